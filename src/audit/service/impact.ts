// What the differences of a Service do to traffic: the share of new connections that fail or reach
// a wrong address, and the share of ready pods that get none (docs/impact.md). The slices give one
// part, the rules of nodes the other (audit/node/packet-impact.ts).
//
// kube-proxy uses ready endpoints, or serving ones that terminate if none is ready
// (k8s.io/kubernetes@v1.36.3 pkg/proxy/topology.go CategorizeEndpoints).

import { canonicalIP } from '../../model/ip.ts';
import type { Endpoint, Key } from '../../model/objects.ts';
import { isHeadless, isSelected } from '../../shadow/endpoints.ts';
import { expectedEndpoints } from '../../shadow/endpointslice.ts';
import { type AuditContext, nodeOf, podsOf, slicesOf } from './cache.ts';
import type { ServiceAudit } from './reconcile.ts';

/** Shares from 0 to 1. */
export interface Impact {
  readonly misrouted: number;
  readonly unused: number;
}

/** What the rules of one node do to the Services that differ on it. */
export interface NodeImpact {
  readonly services: ReadonlyMap<Key, Impact>;
  /** The sums over these Services, and the largest `misrouted` of one. */
  readonly misrouted: number;
  readonly unused: number;
  readonly worst: number;
}

type ListedEndpoint = Pick<Endpoint, 'addresses' | 'ready' | 'serving' | 'terminating'>;

type Candidate = ReturnType<typeof candidatesOf>[number];

/**
 * The endpoints that get connections: the ready ones, else those that still serve. Clients of a
 * headless Service need no port.
 */
function usedOf(all: readonly Candidate[], headless: boolean): ReadonlySet<string> {
  const candidates = all.filter(({ hasPort }) => headless || hasPort);
  const ready = candidates.filter(({ isReady }) => isReady);
  const isEmpty = ready.length === 0 && !headless;
  const used = isEmpty ? candidates.filter(({ isFallback }) => isFallback) : ready;
  return new Set(used.map(({ name }) => name));
}

/** The addresses of an expected or an actual endpoint, each with its ports. */
const candidatesOf = (
  { addresses, ready, serving, terminating }: ListedEndpoint,
  portMap: string,
) =>
  addresses.map((address) => ({
    name: `${canonicalIP(address)} ${portMap}`,
    isReady: ready !== false,
    isFallback: terminating === true && serving !== false,
    hasPort: portMap !== '',
  }));

/** Addresses whose differences are all too young for a finding, as after each rollout. */
function pendingAddresses(items: ServiceAudit['items']): ReadonlySet<string> {
  const [open, pending] = [new Set<string>(), new Set<string>()];
  for (const { output, openedAt, difference } of [...items.values()].flat()) {
    const { address } = difference;
    if (output !== 'endpointslices' || address === null) continue;
    for (const it of address.split(', ')) (openedAt === null ? pending : open).add(canonicalIP(it));
  }
  for (const address of open) pending.delete(address);
  return pending;
}

/**
 * What the open differences of the slices do. `null` for a Service whose endpoints no controller
 * writes, or whose pods are not known.
 */
export function impactOf(
  context: AuditContext,
  { record, items }: Pick<ServiceAudit, 'record' | 'items'>,
): Impact | null {
  const { listers, release } = context;
  const { service } = record;
  if (service === null || !isSelected(service) || !listers.knows('pods')) return null;
  if (!listers.knows('endpointslices')) return null;
  const headless = isHeadless(service);
  const expected = [...podsOf(listers, record)].flatMap((pod) =>
    expectedEndpoints(service, pod, nodeOf(listers, pod), release).flatMap((it) =>
      candidatesOf(it, it.portMap),
    ),
  );
  const actual = slicesOf(listers, record, 'controller').flatMap(({ endpoints, portMap }) =>
    endpoints.flatMap((it) => candidatesOf(it, portMap)),
  );
  const pending = pendingAddresses(items);
  return sharesOf(usedOf(expected, headless), usedOf(actual, headless), pending);
}

/** Every used endpoint gets an equal share of the connections. Without one, all fail. */
function sharesOf(
  expected: ReadonlySet<string>,
  actual: ReadonlySet<string>,
  pending: ReadonlySet<string>,
): Impact {
  const lackIn = (other: ReadonlySet<string>) => (name: string) =>
    !other.has(name) && !pending.has(name.slice(0, name.indexOf(' ')));
  const wrong = [...actual].filter(lackIn(expected)).length;
  const missing = [...expected].filter(lackIn(actual)).length;
  const none = missing > 0 ? 1 : 0;
  return {
    misrouted: actual.size === 0 ? none : wrong / actual.size,
    unused: expected.size === 0 ? 0 : missing / expected.size,
  };
}

/** The impact of slices and of rules that do not follow them; `null` if neither is known. */
export function combine(slices: Impact | null, rules: Impact | null): Impact | null {
  if (slices === null || rules === null) return slices ?? rules;
  const either = (a: number, b: number): number => 1 - (1 - a) * (1 - b);
  return {
    misrouted: either(slices.misrouted, rules.misrouted),
    unused: either(slices.unused, rules.unused),
  };
}

// Finds pods, Services and Nodes by a part of their name or by an address, and shows one pod.

import { canonicalIP, parseIP } from '../model/ip.ts';
import type { Key, Listers, Service } from '../model/objects.ts';
import type { Auditor } from './auditor.ts';
import { explainTarget } from './explanations.ts';

export interface SearchMatch {
  readonly kind: 'Service' | 'Pod' | 'Node';
  /** `namespace/name`, or the name of a Node. */
  readonly key: Key;
  /** The whole name or an address equals the query. */
  readonly exact: boolean;
}

/** A search lists at most this many matches. */
const mostMatches = 50;

/** As kubectl writes an object: `pod/web-1`, `svc/web`, `ip/10.0.0.1`. */
const kindPrefix = /^(?:pods?|po|services?|svc|nodes?|no|ip)\//;

const addressesOf = ({ clusterIPs, clusterIP, externalIPs, loadBalancerIPs }: Service) =>
  [clusterIP, ...clusterIPs, ...externalIPs, ...loadBalancerIPs].map(canonicalIP);

function findAddress(listers: Listers, ip: string): SearchMatch[] {
  const { services, nodes } = listers;
  const match = (kind: SearchMatch['kind']) => (object: { readonly key: Key }) => {
    return { kind, key: object.key, exact: true };
  };
  const hasAddress = (addresses: readonly string[]): boolean =>
    addresses.some((address) => canonicalIP(address) === ip);
  return [
    ...[...services.values()].filter((it) => addressesOf(it).includes(ip)).map(match('Service')),
    ...listers.podsAt(ip).map(match('Pod')),
    ...[...nodes.values()]
      .filter((it) => hasAddress([...it.addresses, ...it.externalIPs]))
      .map(match('Node')),
  ];
}

/** A pass over all names. All words must be part of `namespace/name`. */
function findName({ services, pods, nodes }: Listers, text: string) {
  const words = text.split(/\s+/);
  const [exact, others]: [SearchMatch[], SearchMatch[]] = [[], []];
  let total = 0;
  const add = (kind: SearchMatch['kind'], keys: Iterable<Key>): void => {
    for (const key of keys) {
      if (!words.every((word) => key.includes(word))) continue;
      total++;
      const isExact = key === text || key.endsWith(`/${text}`);
      const list = isExact ? exact : others;
      if (list.length < mostMatches) list.push({ kind, key, exact: isExact });
    }
  };
  add('Service', services.keys());
  add('Node', nodes.keys());
  add('Pod', pods.keys());
  return { matches: [...exact, ...others].slice(0, mostMatches), total };
}

export type SearchResult = ReturnType<typeof search>;

/** The matches of a query, with the explanation of an address; null: it has none. */
export function search(auditor: Auditor, query: string) {
  const { listers } = auditor.store;
  const text = query.trim().toLowerCase().replace(kindPrefix, '');
  const ip = parseIP(text)?.text;
  if (ip !== undefined) {
    const matches = findAddress(listers, ip);
    const explained = explainTarget(auditor, { kind: 'address', address: ip });
    const explanation = explained?.found === true ? explained : null;
    return { query, matches: matches.slice(0, mostMatches), total: matches.length, explanation };
  }
  const found = text === '' ? { matches: [], total: 0 } : findName(listers, text);
  return { query, ...found, explanation: null };
}

export type PodView = NonNullable<ReturnType<typeof podView>>;

/** The page of a pod; null if it neither exists nor is listed anywhere. */
export function podView(auditor: Auditor, key: Key) {
  const { listers } = auditor.store;
  const explanation = explainTarget(auditor, { kind: 'pod', pod: key });
  if (explanation?.found !== true) return null;
  const pod = listers.pods.get(key);
  const [namespace = '', name = ''] = key.split('/');
  const services = pod === undefined ? [] : listers.servicesSelecting(namespace, pod.labels);
  return {
    namespace,
    name,
    node: pod?.node ?? '',
    ready: pod?.ready ?? null,
    ips: pod?.ips ?? [],
    /** The Services that select it. */
    services: services.map((service) => service.key).sort(),
    explanation,
  };
}

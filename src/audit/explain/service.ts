// Explains one Service: its pods and their desired states, near misses if it selects none, and the
// verdict and differences of each output. Also shows it as a table: a row for each address of each
// selected pod, and for each other address that the Service lists.

import { getOrInsert } from '../../model/collections.ts';
import { canonicalIP, parseIP } from '../../model/ip.ts';
import { annotation, label, type Pod, portText, type Service } from '../../model/objects.ts';
import { selectorText } from '../../model/selector.ts';
import { expectedAddress, isSelected } from '../../shadow/endpoints.ts';
import { addressTypesOf } from '../../shadow/endpointslice.ts';
import { hintMode, whyNoHints } from '../../shadow/hints.ts';
import { isMirrored } from '../../shadow/mirroring.ts';
import { addressesOf } from '../../shadow/pod.ts';
import { legal, unknownText } from '../finding/verdicts.ts';
import { fillOf } from '../measure/endpoint-counts.ts';
import type { AuditContext, ServiceState } from '../service/cache.ts';
import { nodeOf, roleOf, slicesOf } from '../service/cache.ts';
import { countHints } from '../service/endpointslices.ts';
import type { ServiceOutput } from '../service/enqueue.ts';
import { type ServiceAudit, type ServiceDifference, unitAddress } from '../service/reconcile.ts';
import { serviceOutputs, unknownReason, type VerdictInput, verdictOf } from '../service/verdict.ts';
import type { Conditions, EntryState } from './conditions.ts';
import { decidingCondition, evaluateConditions, stateWords } from './conditions.ts';
import { itemChange, itemReasons, itemText, severityOf, worstItemsFirst } from './differences.ts';
import type { ExplanationBody, Reason } from './explanation.ts';
import {
  counted,
  fewOf,
  firstChange,
  firstReasons,
  markOf,
  note,
  reason,
  servicePortText,
  worstVerdict,
} from './explanation.ts';
import { missedLabelText, namespacesMatching, podsNear, wantedLabels } from './near-miss.ts';
import { doubtText, managerText, observedEntries } from './pod-in-service.ts';

/** Explains a Service, or the objects that are left under its name. */
export function explainService(context: VerdictInput, audited: ServiceAudit): ExplanationBody {
  const { listers, stale } = context;
  const { record } = audited;
  const { service } = record;
  const items = [...audited.items.values()].flat();
  const verdicts = serviceOutputs.map((output) => verdictOf(listers, audited, output, stale));
  const pods = service === null ? null : podsReason(context, record, service);
  return {
    verdict: worstVerdict(verdicts.filter((verdict) => verdict !== null)),
    severity: severityOf(items),
    ...answerOf(context, audited, pods, items),
    reasons: [
      service === null ? reason('no', `there is no Service ${record.key}`) : kindReason(service),
      pods ?? [],
      serviceOutputs.flatMap((output) => outputReason(context, audited, items, output) ?? []),
      inputReason(items) ?? [],
      foreignReasons(context, record),
    ].flat(),
  };
}

function answerOf(
  context: VerdictInput,
  audited: ServiceAudit,
  pods: Reason | null,
  items: readonly ServiceDifference[],
): Pick<ExplanationBody, 'answer' | 'change'> {
  const answer = `Service ${audited.record.key} ${stateText(audited.record, pods)}`;
  const worst = worstItemsFirst(items).find(
    ({ severity, difference }) => severity !== 'info' && !legal.has(difference.code),
  );
  if (worst !== undefined) {
    return { answer: `${answer}. But: ${itemText(worst)}`, change: itemChange(worst) };
  }
  const doubt = pods === null ? '' : doubtText(context, audited);
  return { answer: answer + doubt, change: firstChange(pods?.parts ?? []) };
}

function stateText({ service, endpoints, members }: ServiceState, pods: Reason | null): string {
  if (service === null) return 'does not exist';
  if (service.type === 'ExternalName') {
    return 'is an alias in DNS (ExternalName) and has no endpoints';
  }
  if (service.selector === null) {
    const isCopied = isMirrored(service, endpoints);
    const end = isCopied ? ', and its Endpoints are mirrored into EndpointSlices' : '';
    return `has no selector: no pod is in it by itself${end}`;
  }
  if (pods === null || pods.mark === 'unknown') return 'cannot be explained without its pods';
  if (members.size === 0) {
    const [closest] = pods.parts;
    const end = closest === undefined ? '' : `; closest: ${closest.text}`;
    return `selects nothing: ${pods.text}${end}`;
  }
  const first = pods.parts.find(({ mark }) => mark === 'no')?.text;
  if (pods.mark === 'no') return `has no endpoint that gets traffic: ${first ?? pods.text}`;
  return `has endpoints: ${pods.text}${first === undefined ? '' : `; ${first}`}`;
}

function kindReason(service: Service): Reason {
  const object = `Service ${service.key}`;
  if (service.type === 'ExternalName') {
    const text =
      'it is of type ExternalName, an alias in DNS: no controller writes endpoints for it';
    return note(text, { object, field: 'spec.type' });
  }
  if (service.selector === null) {
    const text =
      'it has no selector, so no pod is in it by itself: whoever made it writes its Endpoints';
    return note(text, { object, field: 'spec.selector' });
  }
  const ports = service.ports.map(
    (port) => `${servicePortText(port)} to ${port.targetPort || port.port}`,
  );
  const facts = [
    `type ${service.type}`,
    service.clusterIP === 'None' ? ', headless' : '',
    `, selects ${selectorText(service.selector)}`,
    `, ${addressTypesOf(service).join(' and ')}, ports ${ports.join(', ') || 'none'}`,
    service.publishNotReadyAddresses
      ? '; pods that are not ready are published as ready (publishNotReadyAddresses)'
      : '',
    service.deleting ? '; it is being deleted' : '',
  ];
  return reason('yes', facts.join(''), { object, field: 'spec' });
}

/** The selected pods in groups that are equal in all that decides, largest first. */
function groupPods({ members, kinds }: ServiceState, service: Service): Pod[][] {
  const types = addressTypesOf(service);
  const groups = Map.groupBy(members, ([pod, kind]) => {
    const { terminal, deleting, ready, ips, node } = pod;
    const isLeftOut = terminal || kind.stranded;
    const listed = isLeftOut ? [] : types.filter((type) => addressesOf(pod, type).length > 0);
    const facts = [terminal, deleting, ready, ips.length, node === ''];
    return [kinds.indexOf(kind), ...facts, ...listed].join(' ');
  });
  return [...groups.values()]
    .map((group) => group.map(([pod]) => pod))
    .sort((a, b) => b.length - a.length);
}

function groupReason(pods: readonly Pod[], { conditions, expected, state }: Conditions): Reason {
  // The first condition that keeps the group from being ready, in slices first.
  const deciding = [...expected].map((entry) => decidingCondition(conditions, entry));
  const why = [...deciding.slice(1), deciding[0]].find((condition) => condition)?.reason.text;
  const must = state === 'ready' ? 'ready' : `must be ${stateWords[state]}`;
  const names = fewOf(pods.map(({ name }) => name).sort());
  const text = `${counted(pods.length, 'pod')} ${must}${why ? `: ${why}` : ''} (${names})`;
  const object = pods.length === 1 ? `Pod ${pods[0]?.key ?? ''}` : 'Pods';
  const failed = conditions.find((condition) => condition.reason.mark === 'no')?.reason;
  const { field = null, source = null, change = null } = failed ?? {};
  return reason(state === 'ready' ? 'yes' : 'no', text, { object, field, source, change });
}

function podsReason(context: AuditContext, record: ServiceState, service: Service): Reason | null {
  if (!isSelected(service)) return null;
  if (!context.listers.knows('pods')) {
    return reason('unknown', `Pods: ${unknownText['pods-not-known']}`);
  }
  if (record.members.size === 0) return noPodsReason(context, service);
  const { listers, release } = context;
  let ready = 0;
  const parts = groupPods(record, service).flatMap((pods) => {
    const [pod] = pods;
    if (pod === undefined) return [];
    const evaluated = evaluateConditions({ service, pod, node: nodeOf(listers, pod) }, release);
    if (['ready', 'fewer-ports'].includes(evaluated.state)) ready += pods.length;
    return groupReason(pods, evaluated);
  });
  const text = `it selects ${counted(record.members.size, 'pod')}, ${ready} of them ready`;
  return reason(ready > 0 ? 'yes' : 'no', text, { parts });
}

function nearReason({ missed, count, pod, near }: ReturnType<typeof podsNear>[number]): Reason {
  const texts = missed.map(missedLabelText).join('; ');
  const got = missed.map(({ key, got: value }) => `${key}=${value ?? ''}`).join(',');
  const isComplete = missed.every(({ got: value }) => value !== null);
  const selector = isComplete ? `, or let the Service select ${got}` : '';
  const [start, end] = near ? ['', ': perhaps what is meant'] : ['if these are meant, ', ''];
  return note(`${counted(count, 'pod')} such as ${pod.name}: ${texts}${end}`, {
    object: `Pod ${pod.key}`,
    field: `metadata.labels ${missed.map(({ key }) => key).join(', ')}`,
    change: `${start}label them ${wantedLabels(missed)}${selector}`,
  });
}

function noPodsReason({ listers }: AuditContext, service: Service): Reason {
  const groups = podsNear(listers, service);
  const countText = (rest: number): string => `${counted(rest, 'more group')} of pods`;
  const parts = firstReasons(groups, 5, nearReason, countText);
  // This scans every pod of the cluster; a near miss needs no other guess.
  const isFound = groups.some(({ near }) => near);
  const elsewhere = isFound ? [] : namespacesMatching(listers, service);
  if (elsewhere.length > 0) {
    const where = elsewhere.join(', ');
    const text = `pods with these labels are in namespace ${where}, where it does not look`;
    parts.push(note(text, { field: 'metadata.namespace' }));
  }
  const selector = selectorText(service.selector ?? {});
  return reason('no', `no pod in namespace ${service.namespace} has the labels ${selector}`, {
    object: `Service ${service.key}`,
    field: 'spec.selector',
    source: 'pkg/controller/endpoint/endpoints_controller.go syncService',
    parts,
  });
}

export const outputNames: Readonly<Record<ServiceOutput, string>> = {
  endpoints: 'Endpoints',
  endpointslices: 'EndpointSlices',
  mirrored: 'Mirrored EndpointSlices',
};

const sliceReconciler = 'k8s.io/endpointslice reconciler.go';

function outputReason(
  context: VerdictInput,
  audited: ServiceAudit,
  items: readonly ServiceDifference[],
  output: ServiceOutput,
): Reason | null {
  const { record } = audited;
  const verdict = verdictOf(context.listers, audited, output, context.stale);
  const name = outputNames[output];
  if (verdict === null) {
    return output === 'mirrored' ? note(`${name}: none, ${whyNotMirrored(record)}`) : null;
  }
  const unknown = unknownReason(audited, output, context.stale);
  const why = verdict === 'unknown' && unknown !== null ? `, since ${unknownText[unknown]}` : '';
  const text = `${name}: ${verdict}${why}: ${sizeText(context, record, output)}`;
  const parts = [
    ...itemReasons(items.filter((item) => item.output === output)),
    ...deletedPods(context, audited, output),
    ...(output === 'endpointslices' ? sliceReasons(context, record) : []),
  ];
  return reason(markOf(verdict), text, { parts });
}

function deletedPods(context: AuditContext, audit: ServiceAudit, output: ServiceOutput): Reason[] {
  const { listers } = context;
  const { record, items } = audit;
  if (!listers.knows('pods')) return [];
  const addresses = [...items]
    .filter(([, found]) => found.some((item) => item.output === output))
    .flatMap(([unit]) => unit.split(' ')[1] ?? []);
  const wrong = new Set(addresses.slice(0, 20));
  const isGone = (address: string, pod: string | null): boolean =>
    wrong.has(address) && pod !== null && !listers.pods.has(pod);
  const pods = observedEntries(listers, record, isGone).flatMap(({ place, pod }) =>
    (place === 'endpoints') === (output === 'endpoints') ? (pod ?? []) : [],
  );
  const gone = [...new Set(pods)].sort();
  return gone.length === 0 ? [] : [note(`there is no Pod ${fewOf(gone)} any more`)];
}

/** Hints, and more slices than needed, which the controller never packs again. */
function sliceReasons(context: AuditContext, record: ServiceState): Reason[] {
  const hint = hintText(context, record);
  const source = `${sliceReconciler} reconcileByAddressType`;
  const reasons = hint === null ? [] : [note(hint, { source })];
  const found = slicesOf(context.listers, record, 'controller');
  const { slices, minimum } = fillOf(found, context.maxEndpointsPerSlice);
  if (slices === minimum) return reasons;
  const text =
    `${counted(slices, 'slice')} where ${minimum} would hold all: slices are ` +
    'not packed anew when pods go, which is legal and costs no traffic';
  return [...reasons, note(text, { source: sliceReconciler })];
}

function sizeText({ listers }: AuditContext, record: ServiceState, output: ServiceOutput): string {
  if (output === 'endpoints') {
    if (record.endpoints === null) return 'the object does not exist';
    const all = record.endpoints.subsets.flatMap(({ addresses }) => addresses);
    if (all.length === 0) return 'no addresses';
    const ready = all.filter((address) => address.ready).length;
    return `${ready} ready of ${counted(all.length, 'address', 'addresses')}`;
  }
  const slices = slicesOf(listers, record, output === 'mirrored' ? 'mirror' : 'controller');
  const endpoints = slices.flatMap((slice) => slice.endpoints);
  const count = counted(slices.length, 'slice');
  if (endpoints.length === 0) return `${count}, no endpoints`;
  const ready = endpoints.filter((endpoint) => endpoint.ready !== false).length;
  const ports = new Set(slices.flatMap((slice) => slice.ports.map(portText)));
  const all = counted(endpoints.length, 'endpoint');
  return `${count}, ${ready} ready of ${all}, ${[...ports].join(', ') || 'no ports'}`;
}

/** endpointslicemirroring_controller.go syncEndpoints. */
function whyNotMirrored({ service, endpoints }: ServiceState): string {
  if (service !== null && service.selector !== null) return 'since the Service has a selector';
  if (endpoints === null) return 'since there are no Endpoints to mirror';
  if (endpoints.labels[label.skipMirror] === 'true') return `since ${label.skipMirror} is set`;
  if (Object.hasOwn(endpoints.annotations, annotation.leader)) {
    return 'since the Endpoints serve leader election';
  }
  return 'since nothing must be mirrored';
}

function hintText({ listers, release }: AuditContext, record: ServiceState): string | null {
  const { service } = record;
  if (service === null || !isSelected(service)) return null;
  const mode = hintMode(service, release);
  const distribution = service.trafficDistribution;
  if (mode === 'none') {
    return distribution === null
      ? null
      : `no hints: trafficDistribution ${distribution} is not served by 1.${release.minor}`;
  }
  if (mode !== 'auto') {
    const to = mode === 'node' ? 'its own Node' : 'its own zone';
    return `hints: every ready endpoint for ${to} (trafficDistribution ${String(distribution)})`;
  }
  const { ready, zones } = countHints(slicesOf(listers, record, 'controller'));
  if (zones.size > 0) return `hints for ${[...zones].sort().join(', ')}`;
  const why = whyNoHints(listers.zoneCapacity, ready) ?? 'they come back at a later sync';
  return `no hints although topology-mode is Auto: ${why}`;
}

function foreignReasons({ listers }: AuditContext, record: ServiceState): Reason[] {
  const slices = slicesOf(listers, record, 'foreign');
  return slices.slice(0, 5).map((slice) => {
    const count = counted(slice.endpoints.length, 'endpoint');
    const object = `EndpointSlice ${slice.key}`;
    return note(`${object}, ${managerText('foreign', slice)}: ${count}, not judged`, { object });
  });
}

function inputReason(items: readonly ServiceDifference[]): Reason | null {
  const input = items.filter(({ output }) => output === 'input');
  if (input.length === 0) return null;
  const parts = itemReasons(input);
  return input.some(({ severity }) => severity !== 'info')
    ? reason('no', 'Trouble that no controller can put right', { parts })
    : note('Worth knowing', { parts });
}

export type ServiceTable = ReturnType<typeof serviceTable>;
export type ServiceTableRow = ServiceTable['rows'][number];

/** At most `most` rows, beginning with the row of index `from`. */
export function serviceTable(
  input: AuditContext,
  audited: ServiceAudit,
  from: number,
  most: number,
) {
  const { listers } = input;
  const { record } = audited;
  const items = itemsByAddress(audited);
  const all = placesIn(record, items.keys());
  const page = all.slice(from, from + most);
  const addresses = new Set(page.map(({ address }) => address));
  const entries = Map.groupBy(
    observedEntries(listers, record, (address) => addresses.has(address)),
    ({ address }) => address,
  );
  return {
    /** Each slice as a column; the role is null if it belongs to no Service any more. */
    slices: record.slices.map((slice) => ({
      name: slice.name,
      addressType: slice.addressType,
      role: roleOf(listers, record, slice),
      endpoints: slice.endpoints.length,
    })),
    rows: page.map(({ address, pod }) => {
      const found = entries.get(address) ?? [];
      const named = found.find((entry) => entry.pod !== null)?.pod ?? null;
      const ofPod = pod === null ? [] : found.filter((entry) => (entry.pod ?? pod.key) === pod.key);
      return {
        /** In canonical form; '' for a pod without an address. */
        address,
        /** The selected pod, or the pod that an entry names; null without either. */
        pod: pod?.key ?? named,
        selected: pod !== null,
        node: (pod ?? listers.pods.get(named ?? ''))?.node ?? '',
        ...expectedAt(input, record.service, pod, address),
        // If two pods have the address, an entry names one of them, and both rows show it.
        entries: ofPod.length === 0 ? found : ofPod,
        items: items.get(address) ?? [],
      };
    }),
    total: all.length,
    differing: all.filter(({ address }) => items.has(address)).length,
  };
}

function itemsByAddress({ items }: ServiceAudit): Map<string, ServiceDifference[]> {
  const found = new Map<string, ServiceDifference[]>();
  for (const [unit, differences] of items) {
    const address = unitAddress(unit);
    if (address !== null) getOrInsert(found, address, () => []).push(...differences);
  }
  return found;
}

type Place = Readonly<{ address: string; pod: Pod | null }>;

/** Places that differ come first. */
function placesIn(record: ServiceState, differing: Iterable<string>): Place[] {
  const pods = [...record.members.keys()].sort((a, b) => (a.name < b.name ? -1 : 1));
  const owned = pods.flatMap((pod) => pod.ips.map((ip) => ({ address: canonicalIP(ip), pod })));
  const owners = Map.groupBy(owned, ({ address }) => address);
  const endpoints = (record.endpoints?.subsets ?? []).flatMap(({ addresses }) => addresses);
  const sliced = record.slices.flatMap((slice) => slice.endpoints);
  const addresses = new Set([
    ...[...differing].sort(),
    ...owners.keys(),
    ...endpoints.map(({ ip }) => canonicalIP(ip)),
    ...sliced.flatMap((endpoint) => endpoint.addresses.map(canonicalIP)),
  ]);
  const without = pods.filter(({ ips }) => ips.length === 0);
  return [
    ...[...addresses].flatMap(
      (address): Place[] => owners.get(address) ?? [{ address, pod: null }],
    ),
    ...without.map((pod) => ({ address: '', pod })),
  ];
}

/** null: nothing is expected there, or the pods are unknown. `why`: what keeps traffic from it. */
function expectedAt(
  { listers, release }: AuditContext,
  service: Service | null,
  pod: Pod | null,
  address: string,
): { expected: Record<'endpoints' | 'slices', EntryState | null>; why: string | null } {
  const isKnown = service !== null && isSelected(service) && listers.knows('pods');
  if (!isKnown || pod === null) {
    const state = isKnown ? 'absent' : null;
    return { expected: { endpoints: state, slices: state }, why: null };
  }
  const pair = { service, pod, node: nodeOf(listers, pod) };
  const { conditions, expected } = evaluateConditions(pair, release);
  const family = parseIP(address)?.family;
  const slices = family === undefined ? 'absent' : (expected.get(family) ?? null);
  const place = family !== undefined && slices !== null ? family : 'endpoints';
  const why = decidingCondition(conditions, [place, expected.get(place) ?? 'absent']);
  // Endpoints list one address of a pod; nothing is expected of its other addresses there.
  const listed = expectedAddress(service, pod, release)?.ip ?? address;
  const endpoints = listed === address ? (expected.get('endpoints') ?? null) : null;
  return { expected: { endpoints, slices }, why: why?.reason.text ?? null };
}

// Explains one pod and one Service: the desired state with its conditions, the actual entries, and
// the differences. The answer follows the slices, because nodes read nothing else. A pod that is
// rightly absent is no difference: the verdict is `conform`, and the answer names the condition.

import { canonicalIP } from '../../model/ip.ts';
import type { Endpoint, EndpointSlice, Key, Listers, ObjectRef, Pod } from '../../model/objects.ts';
import { label } from '../../model/objects.ts';
import { isHeadless, isSelected, repack } from '../../shadow/endpoints.ts';
import { isControllers, isOwnedBy } from '../../shadow/endpointslice.ts';
import type { Finding } from '../finding/catalogue.ts';
import {
  legal,
  unknownText,
  type Verdict,
  verdictWords,
  worstVerdict,
} from '../finding/verdicts.ts';
import {
  type AuditContext,
  isMember,
  nodeOf,
  type Role,
  roleOf,
  type ServiceState,
} from '../service/cache.ts';
import { isReady, portsText, readyText, sliceObject, targetPod } from '../service/compare.ts';
import { truncationOf } from '../service/endpoints.ts';
import { deadLeftBehind } from '../service/input-checks.ts';
import type { ServiceAudit, ServiceDifference } from '../service/reconcile.ts';
import { serviceOutputs, unknownReason, type VerdictInput, verdictOn } from '../service/verdict.ts';
import type { EntryState, ListingPlace } from './conditions.ts';
import { entryStates, evaluateConditions, placeName, stateOf, stateWords } from './conditions.ts';
import {
  itemChange,
  itemReasons,
  itemText,
  severityOf,
  suppressedReasons,
  worstItemsFirst,
} from './differences.ts';
import { counted, note, type Reason, reason, type ReasonMark } from './explanation.ts';

export interface ObservedEntry {
  /** null if the endpointslice controller does not manage the slice. */
  readonly place: ListingPlace | null;
  /** The manager of the object if `place` is null. */
  readonly manager: string;
  readonly object: string;
  readonly address: string;
  /** The pod that the entry names; null if it names none. */
  readonly pod: Key | null;
  readonly state: EntryState;
  readonly text: string;
}

export const entryNote = ({ object, text }: ObservedEntry, end = ''): Reason =>
  note(`${object}: ${text}${end}`, { object });

/** Selects entries by address, in canonical form, and by the pod that they name. */
export type EntryFilter = (address: string, pod: Key | null) => boolean;

/** The entries of the Endpoints, repacked if an address is listed twice, then those of slices. */
export function observedEntries(
  listers: Listers,
  record: ServiceState,
  filter: EntryFilter,
): ObservedEntry[] {
  const { endpoints, slices, key, service } = record;
  // Few entries of a large Service are wanted, so nothing is made for the others.
  const isWanted = (addresses: readonly string[], target: ObjectRef | null): boolean => {
    const pod = targetPod(target);
    return addresses.some((address) => filter(canonicalIP(address), pod));
  };
  const entriesAt = (
    addresses: Iterable<string>,
    target: ObjectRef | null,
    describe: () => Omit<ObservedEntry, 'address' | 'pod'>,
  ): ObservedEntry[] => {
    const pod = targetPod(target);
    return [...addresses]
      .filter((address) => filter(address, pod))
      .map((address) => ({ ...describe(), address, pod }));
  };
  const subsets = endpoints?.subsets ?? [];
  const wanted = subsets.flatMap(({ addresses }) =>
    addresses.filter(({ ip, target }) => isWanted([ip], target)),
  );
  const ips = new Set(wanted.map(({ ip }) => canonicalIP(ip)));
  const listings = (ips.size === 0 ? [] : subsets).flatMap(({ addresses }, subset) =>
    addresses.filter(({ ip }) => ips.has(canonicalIP(ip))).map((address) => ({ address, subset })),
  );
  const byAddress = Map.groupBy(listings, ({ address }) => canonicalIP(address.ip));
  const listed = [...byAddress].flatMap(([ip, group]) =>
    repack(group).flatMap(({ ready, ports, target }) =>
      entriesAt([ip], target, () => ({
        place: 'endpoints',
        manager: '',
        object: `Endpoints ${key}`,
        state: ready ? stateOf(service, true, ports.length) : 'not-ready',
        text: `${ip}, ${readyText(ready)}, ${portsText(ports)}`,
      })),
    ),
  );
  const sliced = slices.flatMap((slice) => {
    const found = slice.endpoints.filter((it) => isWanted(it.addresses, it.target));
    if (found.length === 0) return [];
    const role = roleOf(listers, record, slice);
    return found.flatMap((endpoint) =>
      entriesAt(new Set(endpoint.addresses.map(canonicalIP)), endpoint.target, () => ({
        place: role === 'controller' ? slice.addressType : null,
        manager: managerText(role, slice),
        object: sliceObject(slice),
        state: stateOf(service, isReady(endpoint), slice.ports.length),
        text: endpointText(endpoint, slice),
      })),
    );
  });
  return [...listed, ...sliced];
}

function endpointText(endpoint: Endpoint, { ports }: EndpointSlice): string {
  const { addresses, terminating, forZones, forNodes } = endpoint;
  const zones = (forZones ?? []).map((zone) => `zone ${zone}`);
  const hints = [...zones, ...(forNodes ?? []).map((node) => `Node ${node}`)].join(', ');
  const ready = readyText(isReady(endpoint)) + (terminating === true ? ', terminating' : '');
  const hint = hints === '' ? '' : `, hint for ${hints}`;
  return `${addresses.join(', ')}, ${ready}, ${portsText(ports)}${hint}`;
}

export function managerText(role: Role | null, { labels }: EndpointSlice): string {
  if (role === 'mirror') return 'mirrored from Endpoints';
  if (role !== 'foreign') return 'no longer a slice of this Service';
  const manager = labels[label.sliceManagedBy] ?? '';
  return manager === '' ? 'without a managed-by label' : `managed by ${manager}`;
}

/** The entries that name a pod, and those at its addresses that name no pod. */
export function entriesOfPod(listers: Listers, record: ServiceState, pod: Pod): ObservedEntry[] {
  const ips = new Set(pod.ips.map(canonicalIP));
  return observedEntries(listers, record, (address, named) =>
    named === null ? ips.has(address) : named === pod.key,
  );
}

/** The state of a pod at a place: that of its best entry, because one entry brings traffic. */
export function observedState(entries: readonly ObservedEntry[], place: ListingPlace): EntryState {
  const states = entries.filter((entry) => entry.place === place).map(({ state }) => state);
  return entryStates.findLast((state) => states.includes(state)) ?? 'absent';
}

/** The Services that list one of these addresses, which are in canonical form. */
export function servicesListing(
  listers: Listers,
  audited: Iterable<ServiceAudit>,
  addresses: readonly string[],
): ServiceAudit[] {
  const pods = addresses.flatMap((ip) => listers.podsAt(ip));
  const isListed = (address: string): boolean => addresses.includes(address);
  return [...audited].filter((service) => {
    const { record } = service;
    // It lists only the addresses of its own pods, so its entries need no scan.
    if (isConform(service) && !pods.some((pod) => isMember(record, pod))) return false;
    return observedEntries(listers, record, isListed).length > 0;
  });
}

function isConform({ record: { service, name, slices }, items, unknown }: ServiceAudit): boolean {
  if (service === null || service.deleting || !isSelected(service)) return false;
  const isCompared = (slice: EndpointSlice): boolean =>
    isControllers(slice) && slice.labels[label.serviceName] === name && isOwnedBy(slice, service);
  return items.size === 0 && unknown.size === 0 && slices.every(isCompared);
}

/** The differences at a pod's addresses and entries, without those of another pod there. */
export function itemsAbout(
  context: AuditContext,
  audited: ServiceAudit,
  pod: Pod,
  entries: readonly ObservedEntry[],
): ServiceDifference[] {
  const { listers } = context;
  const ips = new Set([...pod.ips.map(canonicalIP), ...entries.map(({ address }) => address)]);
  const dead = new Set(deadLeftBehind(context, audited.record));
  return [...audited.items].flatMap(([unit, items]) => {
    const [kind, address] = unit.split(' ');
    if (address === undefined) {
      return items.filter(({ difference: { code, subject } }) => {
        if (code === 'endpoints-missing' || subject === pod.uid) return true;
        if (code === 'left-behind') return entries.length > 0;
        if (code === 'left-behind-dead') return entries.some(({ address }) => dead.has(address));
        return code.startsWith('mirror-') && ips.has(subject.split(' ')[0] ?? '');
      });
    }
    if (kind === 'slice' || !ips.has(address)) return [];
    const others = listers.podsAt(address).filter((other) => other !== pod);
    return items.filter(({ difference: { subject } }) => {
      const isAbout = ({ name, uid }: Pod): boolean => subject === name || subject.endsWith(uid);
      return isAbout(pod) || !others.some(isAbout);
    });
  });
}

/** The end of an answer if an output of a Service is unknown; '' if all are known. */
export function doubtText(
  { stale }: VerdictInput,
  audited: ServiceAudit,
  all = 'not everything',
): string {
  const [first] = serviceOutputs.flatMap((output) => unknownReason(audited, output, stale) ?? []);
  return first === undefined ? '' : `; ${all} is known: ${unknownText[first]}`;
}

function pairInput(context: VerdictInput, audited: ServiceAudit, pod: Pod) {
  const { listers, release } = context;
  const { service } = audited.record;
  if (service === null) return null;
  const evaluated = evaluateConditions({ service, pod, node: nodeOf(listers, pod) }, release);
  const entries = entriesOfPod(listers, audited.record, pod);
  const items = itemsAbout(context, audited, pod, entries);
  return { context, audited, service, pod, entries, items, ...evaluated };
}

type PairInput = NonNullable<ReturnType<typeof pairInput>>;

export type PairExplanation = NonNullable<ReturnType<typeof explainPair>>;

/** null if the Service does not exist. `suppressed`: its suppressed findings. */
export function explainPair(
  context: VerdictInput,
  audited: ServiceAudit,
  pod: Pod,
  suppressed: readonly Finding[] = [],
) {
  const input = pairInput(context, audited, pod);
  if (input === null) return null;
  const { service, conditions, expected, state, decides, entries, items } = input;
  const places = [...expected].map(([place, wanted]) => comparePlace(input, place, wanted));
  const checked = conditions.map((condition) => condition.reason);
  const listed = [
    ...places.map(({ reason: found }) => found),
    ...itemReasons(
      audited.record,
      items.filter(({ output }) => output === 'input' || output === 'mirrored'),
    ),
    ...suppressedReasons(items, suppressed),
    ...entries
      .filter(({ place }) => place === null)
      .map(({ object, manager, text }) => note(`${object}, ${manager}: ${text}`, { object })),
  ];
  return {
    service: service.key,
    /** Whether any object lists it, also one of another client. */
    listed: entries.length > 0,
    /** Also `conform` if no place must list the pod, and none does. */
    verdict: worstVerdict(places.map(({ verdict }) => verdict)) ?? 'conform',
    severity: severityOf(items, suppressed),
    ...answerOf(input, places),
    selected: !conditions.some(
      ({ name, reason: { mark } }) => mark === 'no' && (name === 'labels' || name === 'selector'),
    ),
    state,
    decides,
    places,
    reasons: [...checked, ...listed],
    brief: [...checked.filter(({ mark }) => mark !== 'yes'), ...listed],
  };
}

function comparePlace(input: PairInput, place: ListingPlace, expected: EntryState) {
  const { audited, service } = input;
  const { stale } = input.context;
  const output = place === 'endpoints' ? 'endpoints' : 'endpointslices';
  const items = input.items.filter((item) => item.output === output);
  const entries = input.entries.filter((entry) => entry.place === place);
  const actual = observedState(entries, place);
  // No controller writes for a Service without a selector, so without differences nothing is wrong.
  const isIdle = !isSelected(service) && items.length === 0;
  const verdict: Verdict = isIdle ? 'conform' : verdictOn(audited, items, output, stale);
  const isRight = verdict === 'conform';
  const parts = [
    ...entries.map((entry) => entryNote(entry)),
    ...itemReasons(audited.record, items),
  ];
  const compared = (mark: ReasonMark, text: string) => {
    const found = reason(mark, `${placeName(place)}: ${text}`, { parts });
    return { place, expected, actual, verdict, reason: found };
  };
  const unknown = unknownReason(audited, output, stale);
  if (verdict === 'unknown' && unknown !== null) {
    return compared('unknown', `unknown: ${unknownText[unknown]}`);
  }
  if (!isSelected(service) && actual !== 'absent') {
    const whose = 'written by another client, or left from an earlier selector';
    return compared('note', `${stateWords[actual]}, ${whose}; no pod is expected there`);
  }
  const isEqual = expected === actual;
  if (!isEqual && isRight && place === 'endpoints' && truncationOf(audited.record)) {
    const text =
      'an Endpoints object has at most 1,000 addresses; this Service has more, and the ' +
      'controller leaves out any of them; EndpointSlices have all';
    const source = 'pkg/controller/endpoint/endpoints_controller.go truncateEndpoints';
    parts.push(note(text, { source }));
  }
  const states = isEqual
    ? stateWords[expected] + (isRight ? ', as expected' : '')
    : `expected ${stateWords[expected]}, found ${stateWords[actual]}`;
  return compared(isRight ? 'yes' : 'no', `${verdictWords[verdict]}: ${states}`);
}

const answerWords: Readonly<Record<EntryState, readonly [is: string, should: string]>> = {
  absent: ['is not in', 'should not be in'],
  'no-ports': [
    'is listed without ports, so it receives no traffic, in',
    'should be listed without ports in',
  ],
  'not-ready': [
    'is listed as not ready, so it receives no traffic, in',
    'should be listed as not ready in',
  ],
  'fewer-ports': [
    'receives traffic only on some ports of',
    'should be ready only on some ports of',
  ],
  ready: ['is in', 'should be ready in'],
};

function answerOf(
  { context, audited, service, pod, conditions, entries, items, state, decides }: PairInput,
  places: readonly ReturnType<typeof comparePlace>[],
): { answer: string; change: string | null } {
  const [isListed, should] = answerWords[state];
  // kube-proxy uses terminating endpoints if no other is ready (unserved.ts).
  const isLast = decides?.name === 'deletion' && pod.ready && !isHeadless(service);
  const is = isLast ? 'receives traffic only while no pod is ready, in' : isListed;
  const why = decides === null ? '' : `: ${decides.reason.text}`;
  const wrong = worstItemsFirst(items).filter(({ difference }) => !legal.has(difference.code));
  const written = wrong.find(({ output }) => output !== 'input');
  if (written !== undefined) {
    const actual = places
      .filter(({ expected, actual }) => expected !== actual)
      .filter(({ verdict }) => verdict === 'different' || verdict === 'pending')
      .map(({ place, actual }) =>
        actual === 'absent'
          ? `${placeName(place)} do not list it`
          : `in ${placeName(place)} it is ${stateWords[actual]}`,
      );
    const but = actual.join(' and ') || itemText(written);
    const answer = `Pod ${pod.key} ${should} Service ${service.key}${why}. But: ${but}`;
    return { answer, change: itemChange(written) };
  }
  const [first] = wrong;
  // Another client may list it.
  const isStray = state === 'absent' && entries.length > 0;
  const failed = conditions
    .map((condition) => condition.reason)
    .filter(({ mark }) => mark === 'no');
  const rest = decides === null ? 0 : failed.length - 1;
  const answer = [
    `Pod ${pod.key} ${isStray ? 'is listed in' : is} Service ${service.key}`,
    isStray ? ', though the controllers do not add it' : '',
    state === 'ready' ? ' and receives its traffic' : '',
    why,
    rest < 1 ? '' : `; ${counted(rest, 'more condition fails', 'more conditions fail')}`,
    first === undefined ? '' : `. But: ${itemText(first)}`,
    isSelected(service) ? doubtText(context, audited, 'not everything about it') : '',
  ].join('');
  const changes = failed.flatMap(({ change }) => change ?? []).join('; then ') || null;
  return { answer, change: first === undefined ? changes : itemChange(first) };
}

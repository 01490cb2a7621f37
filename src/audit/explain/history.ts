// What became of one subject while the input went by: when a pod changed, when something else was
// expected of it, when Endpoints and slices followed, and how long each of these hops took. Only
// what is asked about is followed, so a recording is read as fast as without.
//
// The journal looks at the ledger after each change and notes what differs from its last look. What
// is expected and what stands come from the same functions as the explanation itself.

import { canonicalIP } from '../../model/ip.ts';
import type { Key, Pod, WatchEvent } from '../../model/objects.ts';
import { selectorText } from '../../model/selector.ts';
import type { ServiceAuditor } from '../service/auditor.ts';
import type { AuditContext } from '../service/cache.ts';
import { nodeOf } from '../service/cache.ts';
import type { VerdictInput } from '../service/verdict.ts';
import { verdictOf, serviceOutputs } from '../service/verdict.ts';
import { expectedEntries, placeName, stateWords } from './condition.ts';
import type { ExplainTarget as AnySubject } from './explanation.ts';
import { observedState, servicesListing, entriesAt } from './observed.ts';
import { outputNames } from './service.ts';

/** What a node does has no journal: its rules are looked at now and then only. */
type Subject = Exclude<AnySubject, { kind: 'node' }>;

/** One thing that changed. */
export interface HistoryEntry {
  /** Unix seconds on the input's clock. */
  readonly at: number;
  /** What changed: `Pod shop/web-1`, `Service shop/web, Endpoints`. */
  readonly what: string;
  /** null: at the first look. */
  readonly before: string | null;
  readonly after: string;
  /** Seconds since it began to differ from what is expected; null where this is no such hop. */
  readonly lag: number | null;
}

export interface TargetHistory {
  /** Looks at the ledger after an event of the input. */
  observe(
    context: VerdictInput,
    serviceAuditor: ServiceAuditor,
    event: WatchEvent | null,
    at: number,
  ): void;
  /** Oldest first; older ones than the last `kept` are forgotten. */
  readonly entries: readonly HistoryEntry[];
}

/** What is to be seen of one topic; `expected` where there is such a thing. */
interface Seen {
  readonly text: string;
  readonly expected: string | null;
}

const kept = 1000;

export function createTargetHistory(subject: Subject): TargetHistory {
  const moments: HistoryEntry[] = [];
  const last = new Map<string, Seen & { readonly differsSince: number | null }>();
  const pods = new Map<Key, Pod>();
  const note = (moment: HistoryEntry): void => {
    moments.push(moment);
    if (moments.length > kept) moments.shift();
  };
  return {
    entries: moments,
    observe(context, serviceAuditor, event, at) {
      if (event !== null && !concerns(subject, event)) return;
      const seen = look(context, serviceAuditor, subject, pods);
      for (const [what, now] of seen) {
        const before = last.get(what);
        const differs = now.expected !== null && now.expected !== now.text;
        const differsSince = differs ? (before?.differsSince ?? at) : null;
        last.set(what, { ...now, differsSince });
        if (before === undefined) {
          note({ at, what, before: null, after: now.text, lag: null });
          continue;
        }
        if (now.expected !== before.expected && now.expected !== null) {
          const due = `${what} expected`;
          note({ at, what: due, before: before.expected, after: now.expected, lag: null });
        }
        if (now.text === before.text) continue;
        const lag = differs || before.differsSince === null ? null : at - before.differsSince;
        note({ at, what, before: before.text, after: now.text, lag });
      }
      for (const [what, { text: before }] of last) {
        if (seen.has(what)) continue;
        last.delete(what);
        note({ at, what, before, after: endOf(subject), lag: null });
      }
    },
  };
}

/** What has become of something that is not to be seen any more. */
const endOf = (subject: Subject): string =>
  subject.kind === 'service' ? 'nothing to judge' : 'the Service is gone, or selects it no more';

/** Whether an event may change anything about the subject; a Node may always. */
function concerns(subject: Subject, { resource, object }: WatchEvent): boolean {
  if (subject.kind === 'address' || resource === 'nodes') return true;
  const key = subject.kind === 'service' ? subject.service : subject.pod;
  return key.startsWith(`${object.namespace}/`) || subject.kind === 'pair';
}

function look(
  context: VerdictInput,
  serviceAuditor: ServiceAuditor,
  subject: Subject,
  pods: Map<Key, Pod>,
): Map<string, Seen> {
  const seen = new Map<string, Seen>();
  if (subject.kind === 'service') lookAtService(seen, context, serviceAuditor, subject.service);
  else if (subject.kind === 'address')
    lookAtAddress(seen, context, serviceAuditor, subject.address);
  else {
    const pod = context.listers.pods.get(subject.pod);
    if (pod !== undefined) pods.set(subject.pod, pod);
    const known = pod ?? pods.get(subject.pod);
    seen.set(`Pod ${subject.pod}`, {
      text: pod === undefined ? 'gone' : podText(pod),
      expected: null,
    });
    if (known === undefined) return seen;
    for (const key of servicesOf(context, subject, known))
      lookAtPair(seen, context, serviceAuditor, key, known, pod);
  }
  return seen;
}

function podText(pod: Pod): string {
  const state = pod.terminal
    ? 'finished'
    : pod.deleting
      ? 'being deleted'
      : pod.ready
        ? 'Ready'
        : 'not Ready';
  const node = pod.node === '' ? 'on no Node' : `on ${pod.node}`;
  return `${state}, ${node}, ${pod.ips.length === 0 ? 'no address' : pod.ips.join(', ')}`;
}

function servicesOf({ listers }: AuditContext, subject: Subject, pod: Pod): Key[] {
  if (subject.kind === 'pair') return [subject.service];
  return listers
    .servicesSelecting(pod.namespace, pod.labels)
    .map(({ key }) => key)
    .sort();
}

/** `pod` is undefined once it is gone; `known` is what it was then. */
function lookAtPair(
  seen: Map<string, Seen>,
  context: AuditContext,
  serviceAuditor: ServiceAuditor,
  key: Key,
  known: Pod,
  pod: Pod | undefined,
): void {
  const record = serviceAuditor.audited.get(key)?.record;
  const service = record?.service;
  if (record === undefined || service === null || service === undefined) return;
  const { listers, release } = context;
  const stands = [...new Set(known.ips.map(canonicalIP))]
    .flatMap((ip) => entriesAt(listers, record, ip))
    .filter((stand) => stand.pod === null || stand.pod === known.key);
  for (const { place, state: standing } of expectedEntries(
    { service, pod: known, node: nodeOf(listers, known) },
    release,
  )) {
    const expected = stateWords[pod === undefined ? 'absent' : standing];
    const text = stateWords[observedState(stands, place)];
    seen.set(`Service ${key}, ${placeName(place)}`, { text, expected });
  }
}

function lookAtService(
  seen: Map<string, Seen>,
  context: VerdictInput,
  serviceAuditor: ServiceAuditor,
  key: Key,
): void {
  const of = serviceAuditor.audited.get(key);
  if (of === undefined) return void seen.set(`Service ${key}`, { text: 'gone', expected: null });
  const { service } = of.record;
  const text =
    service === null
      ? 'gone'
      : service.selector === null
        ? 'has no selector'
        : `selects ${selectorText(service.selector)}`;
  seen.set(`Service ${key}`, { text, expected: null });
  for (const output of serviceOutputs) {
    const verdict = verdictOf(context.listers, of, output, context.stale);
    if (verdict !== null) seen.set(outputNames[output], { text: verdict, expected: 'conform' });
  }
}

function lookAtAddress(
  seen: Map<string, Seen>,
  { listers }: AuditContext,
  serviceAuditor: ServiceAuditor,
  address: string,
): void {
  const ip = canonicalIP(address);
  const owners = listers
    .podsAt(ip)
    .map(({ key }) => key)
    .sort()
    .join(', ');
  seen.set('pods with the address', { text: owners === '' ? 'none' : owners, expected: null });
  const listing = servicesListing(listers, serviceAuditor.audited.values(), [ip]);
  const text = listing
    .map(({ record }) => record.key)
    .sort()
    .join(', ');
  seen.set('Services that list it', { text: text === '' ? 'none' : text, expected: null });
}

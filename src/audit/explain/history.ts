// Records what happened to one target while the input was read: when the pod, its desired state and
// its entries changed, and how long Endpoints and slices took to follow. It compares the state of
// the Service auditor after each event with the state before.

import { canonicalIP } from '../../model/ip.ts';
import type { Key, Pod, WatchEvent } from '../../model/objects.ts';
import { selectorText } from '../../model/selector.ts';
import type { ServiceAuditor } from '../service/auditor.ts';
import type { AuditContext } from '../service/cache.ts';
import { nodeOf } from '../service/cache.ts';
import type { VerdictInput } from '../service/verdict.ts';
import { serviceOutputs, verdictOf } from '../service/verdict.ts';
import { expectedEntries, placeName, stateWords } from './conditions.ts';
import { podPhase } from './explain.ts';
import type { ExplainTarget } from './explanation.ts';
import { observedEntries, observedState, servicesListing } from './observed.ts';
import { outputNames } from './service.ts';

/** The rules of a node are read only now and then, so a node has no history. */
type HistoryTarget = Exclude<ExplainTarget, { kind: 'node' }>;

/** One change. */
export interface HistoryEntry {
  /** Unix seconds on the input's clock. */
  readonly at: number;
  /** What changed: `Pod shop/web-1`, `Service shop/web, Endpoints`. */
  readonly what: string;
  /** null for the first state. */
  readonly before: string | null;
  readonly after: string;
  /** Seconds since it first differed from what is expected; null if it did not differ. */
  readonly lag: number | null;
}

export interface TargetHistory {
  /** Compares the state after an event with the last one; null as the event means any change. */
  observe(
    context: VerdictInput,
    auditor: ServiceAuditor,
    event: WatchEvent | null,
    at: number,
  ): void;
  /** Oldest first, at most `mostEntries`. */
  readonly entries: readonly HistoryEntry[];
}

/** The state of one topic; `expected` is null if nothing is expected of it. */
interface TopicState {
  readonly text: string;
  readonly expected: string | null;
}

type Topics = Map<string, TopicState>;

const mostEntries = 1000;

export function createTargetHistory(target: HistoryTarget): TargetHistory {
  const entries: HistoryEntry[] = [];
  const last = new Map<string, TopicState & { readonly differsSince: number | null }>();
  const pods = new Map<Key, Pod>();
  const add = (entry: HistoryEntry): void => {
    entries.push(entry);
    if (entries.length > mostEntries) entries.shift();
  };
  return {
    entries,
    observe(context, auditor, event, at) {
      if (event !== null && !mayConcern(target, event)) return;
      const topics = topicsOf(context, auditor, target, pods);
      for (const [what, { text, expected }] of topics) {
        const before = last.get(what);
        const differs = expected !== null && expected !== text;
        const differsSince = differs ? (before?.differsSince ?? at) : null;
        last.set(what, { text, expected, differsSince });
        if (before === undefined) {
          add({ at, what, before: null, after: text, lag: null });
          continue;
        }
        if (expected !== before.expected && expected !== null) {
          const topic = `${what} expected`;
          add({ at, what: topic, before: before.expected, after: expected, lag: null });
        }
        if (text === before.text) continue;
        const lag = differs || before.differsSince === null ? null : at - before.differsSince;
        add({ at, what, before: before.text, after: text, lag });
      }
      const isService = target.kind === 'service';
      const after = isService ? 'nothing to judge' : 'the Service is gone, or selects it no more';
      for (const [what, { text: before }] of last) {
        if (topics.has(what)) continue;
        last.delete(what);
        add({ at, what, before, after, lag: null });
      }
    },
  };
}

/** Whether an event may concern the target; that of a Node always may. */
function mayConcern(target: HistoryTarget, { resource, object }: WatchEvent): boolean {
  if (target.kind === 'address' || target.kind === 'pair' || resource === 'nodes') return true;
  const key = target.kind === 'service' ? target.service : target.pod;
  return key.startsWith(`${object.namespace}/`);
}

/** `pods` caches the last version of each pod. */
function topicsOf(
  context: VerdictInput,
  auditor: ServiceAuditor,
  target: HistoryTarget,
  pods: Map<Key, Pod>,
): Topics {
  const topics: Topics = new Map();
  if (target.kind === 'service') addService(topics, context, auditor, target.service);
  else if (target.kind === 'address') addAddress(topics, context, auditor, target.address);
  else {
    const { listers } = context;
    const pod = listers.pods.get(target.pod);
    if (pod !== undefined) pods.set(target.pod, pod);
    const known = pods.get(target.pod);
    const text = pod === undefined ? 'gone' : podText(pod);
    topics.set(`Pod ${target.pod}`, { text, expected: null });
    if (known === undefined) return topics;
    const selecting = listers.servicesSelecting(known.namespace, known.labels);
    const keys = target.kind === 'pair' ? [target.service] : selecting.map(({ key }) => key).sort();
    for (const key of keys) addPair(topics, context, auditor, key, known, pod !== undefined);
  }
  return topics;
}

function podText(pod: Pod): string {
  const node = pod.node === '' ? 'on no Node' : `on ${pod.node}`;
  return `${podPhase(pod)}, ${node}, ${pod.ips.join(', ') || 'no address'}`;
}

function addPair(
  topics: Topics,
  { listers, release }: AuditContext,
  auditor: ServiceAuditor,
  key: Key,
  pod: Pod,
  exists: boolean,
): void {
  const record = auditor.audited.get(key)?.record;
  const service = record?.service ?? null;
  if (record === undefined || service === null) return;
  const ips = new Set(pod.ips.map(canonicalIP));
  const entries = observedEntries(
    listers,
    record,
    (address, named) => ips.has(address) && (named === null || named === pod.key),
  );
  const pair = { service, pod, node: nodeOf(listers, pod) };
  for (const { place, state } of expectedEntries(pair, release)) {
    const expected = stateWords[exists ? state : 'absent'];
    const text = stateWords[observedState(entries, place)];
    topics.set(`Service ${key}, ${placeName(place)}`, { text, expected });
  }
}

function addService(
  topics: Topics,
  { listers, stale }: VerdictInput,
  { audited }: ServiceAuditor,
  key: Key,
): void {
  const found = audited.get(key);
  const service = found?.record.service ?? null;
  const text =
    service === null
      ? 'gone'
      : service.selector === null
        ? 'has no selector'
        : `selects ${selectorText(service.selector)}`;
  topics.set(`Service ${key}`, { text, expected: null });
  if (found === undefined) return;
  for (const output of serviceOutputs) {
    const verdict = verdictOf(listers, found, output, stale);
    if (verdict !== null) topics.set(outputNames[output], { text: verdict, expected: 'conform' });
  }
}

function addAddress(
  topics: Topics,
  { listers }: AuditContext,
  { audited }: ServiceAuditor,
  address: string,
): void {
  const ip = canonicalIP(address);
  const pods = listers.podsAt(ip);
  const services = servicesListing(listers, audited.values(), [ip]).map(({ record }) => record);
  const add = (what: string, objects: readonly { readonly key: Key }[]): void => {
    const keys = objects.map(({ key }) => key).sort();
    topics.set(what, { text: keys.join(', ') || 'none', expected: null });
  };
  add('pods with the address', pods);
  add('Services that list it', services);
}

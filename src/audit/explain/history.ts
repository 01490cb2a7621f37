// Records what happened to one target while the input was read: when the pod, its desired state and
// its entries changed, and how long Endpoints and slices took to follow.

import { canonicalIP } from '../../model/ip.ts';
import type { Key, Pod, WatchEvent } from '../../model/objects.ts';
import { selectorText } from '../../model/selector.ts';
import type { ServiceAuditor } from '../service/auditor.ts';
import { type AuditContext, nodeOf } from '../service/cache.ts';
import { serviceOutputs, type VerdictInput, verdictOf } from '../service/verdict.ts';
import { expectedStates, placeName, stateWords } from './conditions.ts';
import type { ExplainTarget } from './explanation.ts';
import { podPhase } from './pod.ts';
import { entriesOfPod, observedState, servicesListing } from './pod-in-service.ts';
import { outputNames } from './service.ts';

type HistoryTarget = Exclude<ExplainTarget, { kind: 'node' }>;

export interface HistoryEntry {
  /** Unix seconds on the input's clock. */
  readonly at: number;
  readonly what: string;
  /** null for the first state. */
  readonly before: string | null;
  readonly after: string;
  /** Seconds since it first differed from what is expected; null if it did not differ. */
  readonly lag: number | null;
}

export type TargetHistory = ReturnType<typeof createTargetHistory>;

/** `expected` is null if nothing is expected of it. */
type Topic = readonly [what: string, text: string, expected: string | null];

export function createTargetHistory(target: HistoryTarget) {
  const entries: HistoryEntry[] = [];
  let last = new Map<string, { text: string; expected: string | null; since: number | null }>();
  let lastPod: Pod | undefined;
  return {
    /** Oldest first, at most 1,000. */
    entries,
    /** Compares the state after an event with the last one; null as the event means any change. */
    observe(
      context: VerdictInput,
      auditor: ServiceAuditor,
      event: WatchEvent | null,
      at: number,
    ): void {
      if (event !== null && !mayConcern(target, event)) return;
      const add = (what: string, before: string | null, after: string, lag?: number | null) => {
        entries.push({ at, what, before, after, lag: lag ?? null });
        if (entries.length > 1000) entries.shift();
      };
      if ('pod' in target) lastPod = context.listers.pods.get(target.pod) ?? lastPod;
      const previous = last;
      last = new Map();
      for (const [what, text, expected] of topicsOf(context, auditor, target, lastPod)) {
        const before = previous.get(what);
        const differs = expected !== null && expected !== text;
        last.set(what, { text, expected, since: differs ? (before?.since ?? at) : null });
        if (before === undefined) {
          add(what, null, text);
          continue;
        }
        if (expected !== before.expected && expected !== null) {
          add(`${what} expected`, before.expected, expected);
        }
        const since = differs ? null : before.since;
        if (text !== before.text) add(what, before.text, text, since === null ? null : at - since);
      }
      const isService = target.kind === 'service';
      const gone = 'the Service does not exist, or no longer selects it';
      const after = isService ? 'nothing to compare' : gone;
      for (const [what, { text }] of previous) if (!last.has(what)) add(what, text, after);
    },
  };
}

function mayConcern(target: HistoryTarget, { resource, object }: WatchEvent): boolean {
  if (target.kind === 'address' || target.kind === 'pair' || resource === 'nodes') return true;
  const key = target.kind === 'service' ? target.service : target.pod;
  return key.startsWith(`${object.namespace}/`);
}

/** `lastPod` is the last version of the pod of the target, undefined if it never existed. */
function* topicsOf(
  context: VerdictInput,
  auditor: ServiceAuditor,
  target: HistoryTarget,
  lastPod: Pod | undefined,
): Generator<Topic> {
  if (target.kind === 'service') yield* serviceTopics(context, auditor, target.service);
  else if (target.kind === 'address') yield* addressTopics(context, auditor, target.address);
  else {
    const { listers } = context;
    const pod = listers.pods.get(target.pod);
    yield [`Pod ${target.pod}`, pod === undefined ? 'gone' : podText(pod), null];
    if (lastPod === undefined) return;
    const selecting = listers.servicesSelecting(lastPod.namespace, lastPod.labels);
    const keys = target.kind === 'pair' ? [target.service] : selecting.map(({ key }) => key).sort();
    for (const key of keys) yield* pairTopics(context, auditor, key, lastPod, pod !== undefined);
  }
}

const podText = (pod: Pod): string =>
  `${podPhase(pod)}, on ${pod.node || 'no Node'}, ${pod.ips.join(', ') || 'no address'}`;

function pairTopics(
  { listers, release }: AuditContext,
  { audited }: ServiceAuditor,
  key: Key,
  pod: Pod,
  exists: boolean,
): Topic[] {
  const record = audited.get(key)?.record;
  const service = record?.service ?? null;
  if (record === undefined || service === null) return [];
  const ips = new Set(pod.ips.map(canonicalIP));
  const entries = entriesOfPod(listers, record, pod).filter(({ address }) => ips.has(address));
  const expected = expectedStates({ service, pod, node: nodeOf(listers, pod) }, release);
  return [...expected].map(([place, state]) => [
    `Service ${key}, ${placeName(place)}`,
    stateWords[observedState(entries, place)],
    stateWords[exists ? state : 'absent'],
  ]);
}

function* serviceTopics(input: VerdictInput, auditor: ServiceAuditor, key: Key): Generator<Topic> {
  const { listers, stale } = input;
  const { audited } = auditor;
  const found = audited.get(key);
  const selector = found?.record.service?.selector;
  const text = selector ? `selects ${selectorText(selector)}` : 'has no selector';
  yield [`Service ${key}`, selector === undefined ? 'gone' : text, null];
  if (found === undefined) return;
  for (const output of serviceOutputs) {
    const verdict = verdictOf(listers, found, output, stale);
    if (verdict !== null) yield [outputNames[output], verdict, 'conform'];
  }
}

function addressTopics(context: AuditContext, auditor: ServiceAuditor, address: string): Topic[] {
  const { listers } = context;
  const { audited } = auditor;
  const ip = canonicalIP(address);
  const services = servicesListing(listers, audited.values(), [ip]).map(({ record }) => record);
  const keysOf = (objects: readonly { readonly key: Key }[]): string => {
    const keys = objects.map(({ key }) => key).sort();
    return keys.join(', ') || 'none';
  };
  return [
    ['pods with the address', keysOf(listers.podsAt(ip)), null],
    ['Services that list it', keysOf(services), null],
  ];
}

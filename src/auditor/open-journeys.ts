// Journeys (audit/measure/journey.ts) of pod changes: which changes begin one, and which
// evaluations end its stages.
//
// A stage ends when no difference is left at the addresses of the Pod, apart from those that the
// API allows or of severity info. Findings use the same evaluation. An object that does not exist
// lists no pod.

import { legal } from '../audit/finding/verdicts.ts';
import type { Journey, JourneyOutput, JourneyStart } from '../audit/measure/journey.ts';
import { countStage, createJourneys, journeyOutputs } from '../audit/measure/journey.ts';
import type { LagOperation } from '../audit/measure/lag.ts';
import type { NodeReading } from '../audit/node/staleness.ts';
import type { ServiceAuditor } from '../audit/service/auditor.ts';
import { isInSameState, nodeOf } from '../audit/service/cache.ts';
import { truncationOf } from '../audit/service/endpoints.ts';
import type { WorkItem } from '../audit/service/enqueue.ts';
import type { ServiceAudit } from '../audit/service/reconcile.ts';
import { isUnknown } from '../audit/service/verdict.ts';
import { canonicalIP } from '../model/ip.ts';
import type { Change, Key, Listers, Pod, Service } from '../model/objects.ts';
import { isOutput, kinds } from '../model/objects.ts';
import { selects } from '../model/selector.ts';
import { expectedAddress, isSelected } from '../shadow/endpoints.ts';
import { type ExpectedEndpoint, expectedEndpoints } from '../shadow/endpointslice.ts';
import type { Release } from '../shadow/release.ts';
import { isForwarded } from '../shadow/service-port.ts';
import { addJourney, type Samples } from './samples.ts';

export type JourneyTracker = ReturnType<typeof createJourneyTracker>;

type Listeners = Parameters<typeof createJourneys>[0];

export const createJourneyTracker = (listers: Listers, listeners: Listeners) => ({
  journeys: createJourneys(listeners),
  listers,
  /** Nodes whose rules are known. */
  nodes: new Set<string>(),
  /** `null` until the audit begins. */
  audit: null as { readonly services: ServiceAuditor; readonly release: Release } | null,
});

/** The journeys of pods, whose stages and ends are counted. */
export const createSampledJourneys = (
  listers: Listers,
  samples: Samples,
  onJourney: (journey: Journey) => void,
): JourneyTracker =>
  createJourneyTracker(listers, {
    onStage: (journey, stage) => countStage(samples.travel, journey, stage),
    onEnd(journey) {
      addJourney(samples, journey);
      onJourney(journey);
    },
  });

export function restartJourneys(
  tracker: JourneyTracker,
  audit: NonNullable<JourneyTracker['audit']>,
): void {
  const { journeys } = tracker;
  for (const { namespace, service } of [...journeys.open()]) {
    journeys.release(`${namespace}/${service}`);
  }
  tracker.audit = audit;
}

/** Advances the journeys of a Service that was evaluated after a change. */
export function advanceJourneys(tracker: JourneyTracker, item: WorkItem, change: Change): void {
  // A change of a Pod begins another journey, which decides about the one before it (begin).
  if (change.resource === 'pods') return;
  if (change.resource === 'services') takeService(tracker, change as Change<'services'>);
  for (const output of journeyOutputs) {
    const addresses = item.whole ? null : item.addresses;
    const awaiting = tracker.journeys.awaiting(item.record.key, output, addresses);
    if (awaiting.length > 0) arrive(tracker, output, awaiting, change);
  }
}

/** Advances the journeys to a node whose rules were read. */
export function advanceJourneysOnNode(tracker: JourneyTracker, reading: NodeReading): void {
  const { journeys, nodes } = tracker;
  const { node, at, before, differs } = reading;
  if (differs === null) {
    nodes.delete(node);
    journeys.loseNode(node);
    return;
  }
  nodes.add(node);
  journeys.atNode(node, {
    at,
    before,
    differs: ({ namespace, service, addresses }) => differs(`${namespace}/${service}`, addresses),
  });
}

/** Ends the stages of journeys whose output is now as they want it. */
function arrive(
  tracker: JourneyTracker,
  output: JourneyOutput,
  awaiting: readonly Journey[],
  change: Change,
): void {
  const { journeys, audit } = tracker;
  for (const journey of awaiting) {
    const key = `${journey.namespace}/${journey.service}`;
    const audited = audit?.services.audited.get(key);
    if (audited === undefined || isUnknown(audited.unknown, output)) {
      journeys.release(key);
      return;
    }
    if (!isSettled(audited, output, journey)) continue;
    const isListed = change.gap === true || journey.begun < (change.backAt ?? -Infinity);
    if (isOutput(change.resource)) {
      journeys.reach(journey, stageOf(output, change), nodesOf(tracker, key), isListed);
    } else journeys.overtake(journey);
  }
}

/** The nodes whose rules must follow a Service. */
function nodesOf({ listers, nodes }: JourneyTracker, key: Key): string[] {
  const service = listers.services.get(key);
  return service !== undefined && isForwarded(service) ? [...nodes] : [];
}

type Awaiting = Pick<Journey, 'addresses' | 'operation'>;

function isSettled(
  { items }: ServiceAudit,
  output: JourneyOutput,
  { addresses, operation }: Awaiting,
): boolean {
  if (items.size === 0) return true;
  // Without an object, that is the only difference: no pod is in it.
  const whole = operation === 'remove' ? [] : (items.get(output) ?? []);
  const missing = whole.filter(({ difference }) => difference.code === 'endpoints-missing');
  const own = addresses.flatMap((address) => items.get(`${output} ${address}`) ?? []);
  const differences = [...missing, ...own];
  return differences.every((it) => it.severity === 'info' || legal.has(it.difference.code));
}

function stageOf(output: JourneyOutput, { resource, before, after, at }: Change) {
  const { key = '', resourceVersion = '' } = after ?? before ?? {};
  const object = `${kinds[resource]} ${key}`;
  return { stage: output, at, within: 0, object, resourceVersion, node: null };
}

/** Releases the journeys to a Service that has no selector any more or was replaced. */
function takeService({ journeys }: JourneyTracker, { before, after }: Change<'services'>): void {
  const isReplaced = before?.uid !== after?.uid;
  const service = after ?? before;
  if (service !== null && (isReplaced || !isSelected(service))) journeys.release(service.key);
}

/**
 * Begins the journeys of a change of a Pod that the service auditor has evaluated; at its arrival
 * if the time that the Pod has is of another clock.
 */
export function trackPod(tracker: JourneyTracker, change: Change, isSkewed = false): void {
  if (change.resource !== 'pods' || tracker.audit === null) return;
  const { before, after } = change as Change<'pods'>;
  if (before !== null && after !== null && isInSameState(before, after)) return;
  const selecting = [before, after].flatMap((pod) =>
    pod === null ? [] : tracker.listers.servicesSelecting(pod.namespace, pod.labels),
  );
  for (const service of new Set(selecting)) {
    if (!isSelected(service)) continue;
    const start = startOf(tracker, service, change as Change<'pods'>);
    if (start === null) continue;
    begin(tracker, isSkewed ? { ...start, ownTime: null } : start, change.at);
  }
}

/** Outputs that already are as expected were written before the Pod arrived. */
function begin(tracker: JourneyTracker, start: JourneyStart, at: number): void {
  const { journeys, audit } = tracker;
  const key = `${start.namespace}/${start.service}`;
  const audited = audit?.services.audited.get(key);
  const addresses = new Set(start.addresses);
  const hasArrived = (output: JourneyOutput): boolean =>
    audited !== undefined && isSettled(audited, output, start);
  const awaiting = (output: JourneyOutput) => journeys.ofPod(start, output, addresses);
  // A change that reverts one that never arrived has nothing to wait for. Neither has an address
  // that truncated Endpoints may leave out.
  const isTruncated = audited !== undefined && truncationOf(audited.record) !== null;
  const mayWait = (output: JourneyOutput): boolean =>
    !awaiting(output) && !(isTruncated && output === 'endpoints');
  const awaits = start.awaits.filter((output) => !hasArrived(output) || mayWait(output));
  journeys.begin({ ...start, awaits });
  for (const output of awaits.filter(hasArrived)) {
    const journey = awaiting(output);
    if (journey === null) continue;
    const stage = { stage: output, at, within: null, object: '', resourceVersion: '', node: null };
    journeys.reach(journey, stage, nodesOf(tracker, key));
  }
}

/** What an output must contain for a Pod; the text is all but readiness. */
const noEntry = { isReady: false, addresses: [] as readonly string[], text: '' };

type DesiredEntries = Readonly<Record<JourneyOutput, typeof noEntry>>;

function desiredEntries(listers: Listers, release: Release, service: Service, pod: Pod | null) {
  if (pod === null || !selects(service.selector, pod.labels)) {
    return { endpoints: noEntry, endpointslices: noEntry };
  }
  const address = expectedAddress(service, pod, release);
  const expected = address === null ? [] : [{ ...address, addresses: [address.ip] }];
  const slices = expectedEndpoints(service, pod, nodeOf(listers, pod), release);
  return { endpoints: desiredEntry(expected), endpointslices: desiredEntry(slices) };
}

const desiredEntry = (
  expected: readonly Pick<ExpectedEndpoint, 'ready' | 'addresses' | 'portMap'>[],
): typeof noEntry => ({
  isReady: expected.some(({ ready }) => ready),
  addresses: expected.flatMap(({ addresses }) => addresses),
  text: expected.map(({ addresses, portMap }) => `${addresses.join()} ${portMap}`).join('; '),
});

/** Whether an output must change before traffic follows the change of the Pod. */
const differs = (before: typeof noEntry, after: typeof noEntry): boolean =>
  before.isReady !== after.isReady || (after.isReady && before.text !== after.text);

/** `null` if the change does not affect traffic. */
function startOf(
  { audit, listers }: JourneyTracker,
  service: Service,
  { before, after, at, gap = false, backAt = -Infinity }: Change<'pods'>,
): JourneyStart | null {
  const pod = after ?? before;
  if (pod === null || audit === null) return null;
  const old = desiredEntries(listers, audit.release, service, before);
  const desired = desiredEntries(listers, audit.release, service, after);
  const changed = journeyOutputs.filter((output) => differs(old[output], desired[output]));
  if (changed.length === 0) return null;
  const isReady = (entries: DesiredEntries) => changed.some((output) => entries[output].isReady);
  const operation = !isReady(old) ? 'add' : isReady(desired) ? 'update' : 'remove';
  const unknown = audit.services.audited.get(service.key)?.unknown;
  const addresses = [old, desired].flatMap((entries) =>
    changed.flatMap((output) => entries[output].addresses),
  );
  const ownTime = ownTimeOf(before, after, operation);
  return {
    namespace: pod.namespace,
    service: service.name,
    pod: pod.name,
    uid: pod.uid,
    podNode: pod.node,
    addresses: [...new Set(addresses.map(canonicalIP))],
    operation,
    ownTime,
    at,
    gap: gap || (ownTime !== null && ownTime < backAt),
    resourceVersion: pod.resourceVersion,
    awaits: changed.filter((output) => unknown === undefined || !isUnknown(unknown, output)),
  };
}

/** The Pod's own time of the change; `null` if its time is about another change. */
function ownTimeOf(before: Pod | null, after: Pod | null, operation: LagOperation): number | null {
  if (after === null || operation === 'update') return null;
  const isNew = before?.uid !== after.uid || before.turnedAt !== after.turnedAt;
  const turned =
    operation === 'add' ? before?.ready !== true : after.deleting || before?.ready !== after.ready;
  return isNew && turned ? after.turnedAt : null;
}

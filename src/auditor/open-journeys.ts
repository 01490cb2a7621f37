// Journeys in the loop: which changes of pods begin one, and which judgements end its stages. What
// a journey is, measure/journey.ts says.
//
//   change of a pod ─► what each Service must list before and after ─► begin
//   writing ─► ledger judges the units it touched ─► as expected? ─► endpoints, endpointslices
//   dump of a node ─► as expected? ─► node
//
// An output is as a change wants it when nothing differs any more at the addresses of the pod: then
// it is what the controllers must write from the input as it stands. Differences that the API
// allows, or that nobody suffers from, do not count. Sharing the judgement makes journeys and
// findings agree, and it costs a look-up.

import { legal } from '../audit/finding/verdicts.ts';
import type {
  JourneyStart,
  Journey,
  JourneyOperation,
  JourneyOutput,
  OpenJourneys,
  JourneyStage,
} from '../audit/measure/journey.ts';
import { createJourneys, journeyOutputs } from '../audit/measure/journey.ts';
import type { NodeReading } from '../audit/node/programming-lag.ts';
import type { ServiceAuditor } from '../audit/service/auditor.ts';
import { nodeOf } from '../audit/service/cache.ts';
import type { WorkItem } from '../audit/service/enqueue.ts';
import type { ServiceAudit } from '../audit/service/reconcile.ts';
import { isUnknown } from '../audit/service/verdict.ts';
import { equalTexts } from '../model/equality.ts';
import { canonicalIP } from '../model/ip.ts';
import type { AnyObject, Change, Pod, Resource, Service, Listers } from '../model/objects.ts';
import { isOutput } from '../model/objects.ts';
import { equalLabels, selects } from '../model/selector.ts';
import { expectedAddress, isSelected } from '../shadow/endpoints.ts';
import { expectedEndpoints } from '../shadow/endpointslice.ts';
import type { Release } from '../shadow/release.ts';

export interface JourneysOfCluster {
  readonly journeys: OpenJourneys;
  /** What is known of Services from now on; judging begins anew. */
  readonly follow: (serviceAuditor: ServiceAuditor, release: Release) => void;
  /** Takes in a change that the ledger already judged. */
  readonly take: (change: Change) => void;
  /** A Service was judged after a change. */
  readonly judged: (touch: WorkItem, change: Change) => void;
  /** The rules of a node were read. */
  readonly nodeJudged: (judgement: NodeReading) => void;
}

interface State {
  readonly journeys: OpenJourneys;
  readonly listers: Listers;
  serviceAuditor: ServiceAuditor | null;
  release: Release | null;
  /** Nodes whose rules are read. */
  readonly nodes: Set<string>;
}

interface OnJourney {
  onStage(journey: Journey, stage: JourneyStage): void;
  onEnd(journey: Journey): void;
}

export function followJourneys(listers: Listers, on: OnJourney): JourneysOfCluster {
  const journeys = createJourneys(on);
  const state: State = { journeys, listers, serviceAuditor: null, release: null, nodes: new Set() };
  return {
    journeys,
    follow(serviceAuditor, release) {
      for (const { namespace, service } of [...journeys.open()]) {
        journeys.release(`${namespace}/${service}`);
      }
      state.serviceAuditor = serviceAuditor;
      state.release = release;
    },
    take(change) {
      if (change.resource === 'pods') takePod(state, change as Change<'pods'>);
    },
    judged(touch, change) {
      const { key } = touch.record;
      if (change.resource === 'services') takeService(state, change as Change<'services'>);
      for (const output of journeyOutputs) {
        const addresses = touch.whole ? null : touch.addresses;
        const awaiting = journeys.awaiting(key, output, addresses);
        if (awaiting.length > 0) arrive(state, output, awaiting, change);
      }
    },
    nodeJudged({ node, at, before, differs }) {
      if (differs === null) {
        state.nodes.delete(node);
        journeys.loseNode(node);
        return;
      }
      state.nodes.add(node);
      journeys.atNode(node, at, before, ({ namespace, service, addresses }) =>
        differs(`${namespace}/${service}`, addresses),
      );
    },
  };
}

/** The journeys of one Service whose output is as they want it have come there. */
function arrive(
  state: State,
  output: JourneyOutput,
  awaiting: readonly Journey[],
  change: Change,
): void {
  const { journeys } = state;
  // What a change of a pod means for its own journeys is told when it begins another (depart).
  if (change.resource === 'pods') return;
  let stage: (JourneyStage & { readonly stage: JourneyOutput }) | null = null;
  for (const journey of awaiting) {
    const key = `${journey.namespace}/${journey.service}`;
    const audited = state.serviceAuditor?.audited.get(key);
    if (audited === undefined || isUnknown(audited.unknown, output)) {
      journeys.release(key);
      return;
    }
    if (!isSettled(audited, output, journey)) continue;
    if (!isOutput(change.resource)) {
      journeys.overtake(journey);
      continue;
    }
    stage ??= { stage: output, at: change.at, within: 0, ...writingOf(change), node: null };
    journeys.reach(journey, stage, [...state.nodes]);
  }
}

/** Whether nothing differs at the addresses of a journey that anybody suffers from. */
function isSettled(
  { items }: ServiceAudit,
  output: JourneyOutput,
  { addresses }: Pick<Journey, 'addresses'>,
): boolean {
  if (items.size === 0) return true;
  return addresses.every((address) => {
    const standing = items.get(`${output} ${address}`);
    return (
      standing === undefined ||
      standing.every(
        ({ severity, difference }) => severity === 'info' || legal.has(difference.code),
      )
    );
  });
}

const kinds: Readonly<Record<Resource, string>> = {
  nodes: 'Node',
  services: 'Service',
  pods: 'Pod',
  endpoints: 'Endpoints',
  endpointslices: 'EndpointSlice',
};

function writingOf({
  resource,
  before,
  after,
}: Change): Pick<JourneyStage, 'object' | 'resourceVersion'> {
  const object: AnyObject | null = after ?? before;
  return {
    object: `${kinds[resource]} ${object?.key ?? ''}`,
    resourceVersion: object?.resourceVersion ?? '',
  };
}

/** What no controller lists pods for any more is given up. */
function takeService({ journeys }: State, { before, after }: Change<'services'>): void {
  const isSame = before !== null && after !== null && before.uid === after.uid;
  const object = after ?? before;
  if (object !== null && !(isSame && isSelected(object))) journeys.release(object.key);
}

// --- pods ---

/** Whether two versions of a pod ask the same of every output, as far as journeys tell. */
const isSame = (a: Pod, b: Pod): boolean =>
  a.uid === b.uid &&
  a.ready === b.ready &&
  a.deleting === b.deleting &&
  a.terminal === b.terminal &&
  equalTexts(a.ips, b.ips) &&
  equalLabels(a.labels, b.labels);

function takePod(state: State, change: Change<'pods'>): void {
  const { before, after } = change;
  const { serviceAuditor, listers } = state;
  if (serviceAuditor === null || (before !== null && after !== null && isSame(before, after)))
    return;
  const services = new Set([...selecting(listers, before), ...selecting(listers, after)]);
  for (const service of services) {
    if (!isSelected(service)) continue;
    const departure = departureOf(state, service, change);
    if (departure !== null) depart(state, departure, change);
  }
}

const selecting = (listers: Listers, pod: Pod | null): readonly Service[] =>
  pod === null ? [] : listers.servicesSelecting(pod.namespace, pod.labels);

/** Begins a journey, which is where it wants to be already if the outputs came before the pod. */
function depart(state: State, departure: JourneyStart, change: Change): void {
  const { journeys } = state;
  const { namespace, service, pod } = departure;
  const key = `${namespace}/${service}`;
  const audited = state.serviceAuditor?.audited.get(key);
  const addresses = new Set(departure.addresses);
  const isThere = (output: JourneyOutput): boolean =>
    audited !== undefined && isSettled(audited, output, departure);
  const awaiting = (output: JourneyOutput): Journey | undefined =>
    journeys.awaiting(key, output, addresses).find((journey) => journey.pod === pod);
  // Where the change before did not come, one that takes it back has no way to go.
  const awaits = departure.awaits.filter((output) => !isThere(output) || !awaiting(output));
  journeys.begin({ ...departure, awaits });
  for (const output of awaits.filter(isThere)) {
    const journey = awaiting(output);
    if (journey === undefined) continue;
    const { at } = change;
    const nothing = { object: '', resourceVersion: '', node: null };
    journeys.reach(journey, { stage: output, at, within: null, ...nothing }, [...state.nodes]);
  }
}

/** What an output must say of a pod: where it is ready, and on which ports. */
interface Want {
  readonly isReady: boolean;
  readonly addresses: readonly string[];
  /** Equal exactly if the output must say the same of it, readiness apart. */
  readonly text: string;
}

const nothing: Want = { isReady: false, addresses: [], text: '' };

function wants(
  { listers, release }: State,
  service: Service,
  pod: Pod | null,
): Readonly<Record<JourneyOutput, Want>> {
  if (pod === null || release === null || !selects(service.selector, pod.labels)) {
    return { endpoints: nothing, endpointslices: nothing };
  }
  const address = expectedAddress(service, pod, release);
  const endpoints: Want =
    address === null
      ? nothing
      : {
          isReady: address.ready,
          addresses: [address.ip],
          text: `${address.ip} ${address.portMap}`,
        };
  const listed = expectedEndpoints(service, pod, nodeOf(listers, pod), release);
  const endpointslices: Want = {
    isReady: listed.some(({ ready }) => ready),
    addresses: listed.flatMap(({ addresses }) => addresses),
    text: listed.map(({ addresses, portMap }) => `${addresses.join()} ${portMap}`).join('; '),
  };
  return { endpoints, endpointslices };
}

/** Whether an output must change for traffic to see the change, and whatever it asks for. */
const isOther = (was: Want, is: Want): boolean =>
  was.isReady !== is.isReady || (is.isReady && was.text !== is.text);

/** null: no traffic is to see anything of the change. */
function departureOf(
  state: State,
  service: Service,
  { before, after, at, gap = false }: Change<'pods'>,
): JourneyStart | null {
  const pod = after ?? before;
  if (pod === null) return null;
  const [was, is] = [wants(state, service, before), wants(state, service, after)];
  const changed = journeyOutputs.filter((output) => isOther(was[output], is[output]));
  if (changed.length === 0) return null;
  const isReady = (want: typeof was): boolean => changed.some((output) => want[output].isReady);
  const operation = !isReady(was) ? 'add' : isReady(is) ? 'update' : 'remove';
  const { unknown } = state.serviceAuditor?.audited.get(service.key) ?? {};
  const all = [was, is].flatMap((want) => changed.flatMap((output) => want[output].addresses));
  return {
    namespace: pod.namespace,
    service: service.name,
    pod: pod.name,
    uid: pod.uid,
    podNode: pod.node,
    addresses: [...new Set(all.map(canonicalIP))],
    operation,
    ownTime: ownTimeOf(before, after, operation),
    at,
    gap,
    resourceVersion: pod.resourceVersion,
    awaits: changed.filter((output) => unknown === undefined || !isUnknown(unknown, output)),
  };
}

/** When the pod itself says that this happened; null: what it says is of something else. */
function ownTimeOf(
  before: Pod | null,
  after: Pod | null,
  operation: JourneyOperation,
): number | null {
  if (after === null || operation === 'update') return null;
  const isNew = before?.uid !== after.uid || before.turnedAt !== after.turnedAt;
  const turned =
    operation === 'add' ? before?.ready !== true : after.deleting || before?.ready !== after.ready;
  return isNew && turned ? after.turnedAt : null;
}

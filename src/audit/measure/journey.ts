// Follows changes of pods to the places where traffic depends on them:
//
//   the pod turns ready, or is asked to go ─► arrival ─┬─► endpoints
//                                                      └─► endpointslices ─► node, node, …
//
// A change has one journey for each Service of the pod. It begins at the pod's own time (the
// lastTransitionTime of Ready, or the deletion), in whole seconds of another clock: readiness and
// removal lag may be a second too high. Later times are arrivals on the auditor's clock, or times
// of readings. A journey is counted, but not measured, if its beginning is skewed or a list had a
// part of it.
//
// A journey ends `complete` if it reached everything that it awaits; `overtaken` if the pod or the
// Service changed again before; `gone` if no controller must write the outputs any more; `dropped`
// if too many are open. lag.ts measures changes of Services, which concern all pods at once.

import { getOrInsert, recordOf } from '../../model/collections.ts';
import type { Key } from '../../model/objects.ts';
import { createHistogram, exemplify, type Histogram, observe } from './histogram.ts';
import { convergenceBounds, type LagOperation, lagOperations } from './lag.ts';

export const journeyOutputs = ['endpoints', 'endpointslices'] as const;
export type JourneyOutput = (typeof journeyOutputs)[number];

export const journeyLagOutputs = [...journeyOutputs, 'node'] as const;
export type JourneyStageName = 'arrival' | (typeof journeyLagOutputs)[number];

export interface JourneyStage {
  readonly stage: JourneyStageName;
  /** Unix seconds on the auditor's clock: the arrival, or the reading of the rules. */
  readonly at: number;
  /** Seconds by which it may have been earlier; null if it was reached before the arrival. */
  readonly within: number | null;
  /** The object that arrived: `Pod shop/web-1`, `Node a`; '' if it is unknown. */
  readonly object: string;
  readonly resourceVersion: string;
  readonly node: string | null;
}

type OutputStage = JourneyStage & { readonly stage: JourneyOutput };

/**
 * The quality of the beginning. `coarse`: the pod's time is less than a second before the arrival.
 * `arrival`: the pod has no time, so the arrival replaces it. `skewed`: its time is after the
 * arrival. `gap`: the change, or an output that shows it, arrived in a list or
 * just after a loss of its watch.
 */
export const journeyQualities = ['ok', 'coarse', 'arrival', 'skewed', 'gap'] as const;
export type JourneyQuality = (typeof journeyQualities)[number];

export const journeyEnds = ['complete', 'overtaken', 'gone', 'dropped'] as const;
export type JourneyEnd = (typeof journeyEnds)[number];

/** A change that begins a journey; times are Unix seconds. */
export interface JourneyStart {
  readonly namespace: string;
  readonly service: string;
  readonly pod: string;
  readonly uid: string;
  /** The node of the pod; '' if unknown. */
  readonly podNode: string;
  /** In canonical form, those that an output lists or must list. */
  readonly addresses: readonly string[];
  readonly operation: LagOperation;
  /** The pod's own time of the change; null if it has none. */
  readonly ownTime: number | null;
  readonly at: number;
  readonly gap: boolean;
  readonly resourceVersion: string;
  readonly awaits: readonly JourneyOutput[];
}

type Open = ReturnType<typeof newJourney>;

/** A change on its way, or at its end; times are Unix seconds. */
export type Journey = Readonly<Omit<Open, 'awaits' | 'awaitsNodes' | 'stages'>> & {
  /** In order; the first is the arrival. Of the nodes, the first few and the last. */
  readonly stages: readonly JourneyStage[];
};

function newJourney({ ownTime, at, gap, resourceVersion, awaits, ...rest }: JourneyStart) {
  const object = `Pod ${rest.namespace}/${rest.pod}`;
  const when = { at, within: 0 };
  const arrival: JourneyStage = { stage: 'arrival', ...when, object, resourceVersion, node: null };
  return {
    ...rest,
    begun: ownTime ?? at,
    quality: journeyQuality(ownTime, at, gap),
    stages: [arrival],
    nodes: 0,
    /** null while it is open. */
    end: null as JourneyEnd | null,
    awaits: new Set(awaits),
    /** Nodes whose rules must follow; null until the slices did. */
    awaitsNodes: null as Set<string> | null,
  };
}

/** The quality of a pod's own time, which has whole seconds, for a change that arrived at `at`. */
export function journeyQuality(ownTime: number | null, at: number, gap: boolean): JourneyQuality {
  if (gap) return 'gap';
  if (ownTime === null) return 'arrival';
  if (ownTime > at + 1) return 'skewed';
  return at - ownTime < 1 ? 'coarse' : 'ok';
}

/** Seconds from the beginning to a stage, at least 0. */
export const journeySeconds = ({ begun }: Journey, { at }: JourneyStage): number =>
  Math.max(0, at - begun);

/** The last stage of that name; undefined if the journey did not reach it. */
export const lastOf = ({ stages }: Journey, name: JourneyStageName): JourneyStage | undefined =>
  stages.findLast(({ stage }) => stage === name);

export const journeyLength = ({ begun, stages }: Journey): number =>
  Math.max(0, ...stages.map(({ at }) => at - begun));

export type OpenJourneys = ReturnType<typeof createJourneys>;

interface JourneysOptions {
  /** The most open journeys: about 2 KB each if many nodes must follow. */
  readonly most?: number;
  onStage?(journey: Journey, stage: JourneyStage): void;
  onEnd?(journey: Journey): void;
}

/** The most nodes that all open journeys await; others end with their outputs. */
const mostAwaited = 65_536;

const shownNodes = 8;

type State = ReturnType<typeof createState>;

const createState = (options: JourneysOptions) => ({
  options,
  byPod: new Map<string, Open>(),
  byService: new Map<Key, Set<Open>>(),
  awaited: 0,
  ended: recordOf(journeyEnds, () => 0),
});

type Named = Pick<Journey, 'namespace' | 'service' | 'pod'>;

const serviceKey = ({ namespace, service }: Named): Key => `${namespace}/${service}`;
const podKey = (journey: Named): string => `${serviceKey(journey)} ${journey.pod}`;

export function createJourneys(options: JourneysOptions = {}) {
  const state = createState(options);
  const { byPod, byService, ended } = state;
  return {
    ended: ended as Readonly<typeof ended>,
    open: (): Iterable<Journey> => byPod.values(),
    openCount: () => byPod.size,
    begin: (start: JourneyStart): void => begin(state, start),
    /** Open journeys of a Service that await this output, at these addresses; `null` for any. */
    awaiting(
      service: Key,
      output: JourneyOutput,
      addresses: ReadonlySet<string> | null,
    ): readonly Journey[] {
      return [...(byService.get(service) ?? [])].filter(
        (open) =>
          open.awaits.has(output) &&
          (addresses === null || open.addresses.some((address) => addresses.has(address))),
      );
    },
    /** The open journey of a Pod to a Service, if it awaits this output at one of the addresses. */
    ofPod(named: Named, output: JourneyOutput, addresses: ReadonlySet<string>): Journey | null {
      const open = byPod.get(podKey(named));
      const isAwaited = open?.awaits.has(output) === true;
      return isAwaited && open.addresses.some((it) => addresses.has(it)) ? open : null;
    },
    /** After the slices, these nodes must follow. `isListed`: the output arrived in a list. */
    reach(journey: Journey, stage: OutputStage, nodes: readonly string[], isListed = false): void {
      const open = byPod.get(podKey(journey));
      if (open !== journey || !open.awaits.has(stage.stage)) return;
      if (isListed) open.quality = 'gap';
      reach(state, open, stage, nodes);
    },
    atNode(node: string, reading: JourneyReading): void {
      if (state.awaited > 0) reachNode(state, node, reading);
    },
    /** The rules of a node are unknown from now on, so no journey awaits it. */
    loseNode(node: string): void {
      if (state.awaited === 0) return;
      for (const open of [...byPod.values()]) if (leaveNode(state, open, node)) finish(state, open);
    },
    overtake(journey: Journey): void {
      const open = byPod.get(podKey(journey));
      if (open === journey) end(state, open, 'overtaken');
    },
    /** No controller must write the outputs of the Service any more, or they are unknown. */
    release(service: Key): void {
      for (const open of [...(byService.get(service) ?? [])]) end(state, open, 'gone');
    },
  };
}

function begin(state: State, start: JourneyStart): void {
  const { byPod, byService, options } = state;
  const overtaken = byPod.get(podKey(start));
  if (overtaken !== undefined) end(state, overtaken, 'overtaken');
  if (start.awaits.length === 0) return;
  const open = newJourney(start);
  byPod.set(podKey(open), open);
  getOrInsert(byService, serviceKey(open), () => new Set<Open>()).add(open);
  for (const arrival of open.stages) options.onStage?.(open, arrival);
  const [oldest] = byPod.values();
  if (oldest && byPod.size > (options.most ?? 4096)) end(state, oldest, 'dropped');
}

function reach(state: State, open: Open, stage: OutputStage, nodes: readonly string[]): void {
  open.awaits.delete(stage.stage);
  open.stages.push(stage);
  if (stage.stage === 'endpointslices' && state.awaited + nodes.length <= mostAwaited) {
    open.awaitsNodes = new Set(nodes);
    state.awaited += nodes.length;
  }
  state.options.onStage?.(open, stage);
  finish(state, open);
}

/** Rules of a node, read at `at` in Unix seconds; `before`: the reading before, null if none. */
interface JourneyReading {
  readonly at: number;
  readonly before: number | null;
  readonly differs: (journey: Journey) => boolean;
}

function reachNode(state: State, node: string, { at, before, differs }: JourneyReading): void {
  for (const open of [...state.byPod.values()]) {
    if (open.awaitsNodes?.has(node) !== true) continue;
    const written = lastOf(open, 'endpointslices')?.at ?? Infinity;
    // Rules that were read before the slices arrived cannot show them.
    if (at < written || differs(open)) continue;
    const within = at - Math.min(at, Math.max(written, before ?? written));
    const object = `Node ${node}`;
    const stage: JourneyStage = { stage: 'node', at, within, object, resourceVersion: '', node };
    const last = open.stages.findLastIndex((known) => known.stage === 'node');
    if (open.nodes >= shownNodes) open.stages.splice(last, 1);
    open.stages.push(stage);
    open.nodes++;
    leaveNode(state, open, node);
    state.options.onStage?.(open, stage);
    finish(state, open);
  }
}

function leaveNode(state: State, open: Open, node: string): boolean {
  const was = open.awaitsNodes?.delete(node) === true;
  if (was) state.awaited--;
  return was;
}

function finish(state: State, open: Open): void {
  if (open.awaits.size === 0 && !open.awaitsNodes?.size) end(state, open, 'complete');
}

function end(state: State, open: Open, how: JourneyEnd): void {
  const { byPod, byService, ended, options } = state;
  state.awaited -= open.awaitsNodes?.size ?? 0;
  open.awaitsNodes?.clear();
  open.end = how;
  byPod.delete(podKey(open));
  const key = serviceKey(open);
  const others = byService.get(key);
  others?.delete(open);
  if (others?.size === 0) byService.delete(key);
  ended[how]++;
  options.onEnd?.(open);
}

export const programmingBounds = ['least', 'most'] as const;

export type JourneyLag = ReturnType<typeof createJourneyLag>;

const createLag = (): Histogram => createHistogram(convergenceBounds);

export const createJourneyLag = () => ({
  readiness: recordOf(journeyLagOutputs, createLag),
  removal: recordOf(journeyLagOutputs, createLag),
  programming: recordOf(programmingBounds, createLag),
  begun: recordOf(lagOperations, () => recordOf(journeyQualities, () => 0)),
});

export const isMeasured = ({ quality }: Journey): boolean =>
  quality !== 'skewed' && quality !== 'gap';

function histogramOf(lag: JourneyLag, journey: Journey, { stage }: JourneyStage): Histogram | null {
  const { operation } = journey;
  if (stage === 'arrival' || operation === 'update' || !isMeasured(journey)) return null;
  return (operation === 'add' ? lag.readiness : lag.removal)[stage];
}

/** Counts the beginning of a journey, or measures the stage that it reached. */
export function countStage(lag: JourneyLag, journey: Journey, stage: JourneyStage): void {
  if (stage.stage === 'arrival') lag.begun[journey.operation][journey.quality]++;
  const histogram = histogramOf(lag, journey, stage);
  if (histogram !== null) observe(histogram, journeySeconds(journey, stage));
}

/** Makes the stages of a journey exemplars with the id of its trace. */
export function exemplifyJourney(lag: JourneyLag, journey: Journey, traceId: string): void {
  for (const stage of journey.stages) {
    const histogram = histogramOf(lag, journey, stage);
    const value = journeySeconds(journey, stage);
    if (histogram !== null) exemplify(histogram, { traceId, value, at: stage.at });
  }
}

/** Counts a change that a node followed after at least and at most this many seconds. */
export function countProgrammed(
  { programming }: JourneyLag,
  seconds: Readonly<Record<'least' | 'most', number>>,
): void {
  for (const bound of programmingBounds) observe(programming[bound], seconds[bound]);
}

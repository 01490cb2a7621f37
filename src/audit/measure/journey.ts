// Journeys: how one change of one pod comes to where traffic feels it.
//
//   the pod turns ready, or is asked to go ─► arrival ─┬─► endpoints
//                                                      └─► endpointslices ─► node, node, …
//
// There is one journey for each Service that the pod belongs to. It begins at the pod's own time:
// lastTransitionTime of its Ready condition, or the moment its deletion was asked for. That time is
// whole seconds by the clock of whoever wrote it, so what follows may seem up to a second later
// than it was. Everything after that is told by the auditor's clock: when the change of the pod
// arrived (`arrival`), when the output arrived that is as the change wants it, and when the rules
// of a node were seen to be. The API server tells of no writing when it was made; arrival is the
// earliest that anybody outside knows.
//
// One writing carries many changes. Journeys that share it name the same object at the same
// resourceVersion, so that whoever draws them can link them.
//
// A journey ends `complete` when everything awaited was reached; `overtaken` when the pod, or its
// Service, changed again before that, so that nobody will see the outputs as this change wants
// them; `gone` when nobody has to write the outputs any more; `dropped` when too many are open, the
// oldest first.
//
// Nothing is kept of a pod that is not on a journey, and what is kept of those that are is bounded.
//
// Left out: changes of a Service. They concern all of its pods at once, and convergence lag
// (lag.ts) measures them.

import type { Key } from '../../model/objects.ts';

/** What a change does to the endpoint; an update leaves it ready and changes what it says. */
export type JourneyOperation = 'add' | 'remove' | 'update';

/** The outputs that a change of a pod must come to. */
export const journeyOutputs = ['endpoints', 'endpointslices'] as const;

export type JourneyOutput = (typeof journeyOutputs)[number];

export type JourneyStageName = 'arrival' | JourneyOutput | 'node';

/** A point that a journey came to. */
export interface JourneyStage {
  readonly stage: JourneyStageName;
  /** Unix seconds on the auditor's clock: an arrival; of a node, when its rules were read. */
  readonly at: number;
  /**
   * Seconds by which it may have been earlier: a node's rules are read now and then. null: it had
   * come there before the change of the pod arrived, since watches overtake each other.
   */
  readonly within: number | null;
  /** What arrived: `Pod shop/web-1`; of a node `Node a`; '' where nothing tells it. */
  readonly object: string;
  /** Of that object; '' for a node. With `object` it tells one writing from another. */
  readonly resourceVersion: string;
  readonly node: string | null;
}

/**
 * What the beginning of a journey is worth. `ok`: the pod tells it. `coarse`: the same, less than
 * its resolution of a second before the arrival. `arrival`: the pod tells none (its labels changed,
 * it was deleted at once), so the arrival stands in. `skewed`: the pod tells a time after the
 * arrival. `gap`: the change arrived in a list, so that nobody knows what it overtook.
 */
export const journeyQualities = ['ok', 'coarse', 'arrival', 'skewed', 'gap'] as const;

export type JourneyQuality = (typeof journeyQualities)[number];

export const journeyEnds = ['complete', 'overtaken', 'gone', 'dropped'] as const;

export type JourneyEnd = (typeof journeyEnds)[number];

/** A change on its way, or at its end; times in Unix seconds. */
export interface Journey {
  readonly namespace: string;
  readonly service: string;
  readonly pod: string;
  readonly uid: string;
  /** Where the pod runs; '' where it is not known. */
  readonly podNode: string;
  /** In canonical form, those that any output lists or must list. */
  readonly addresses: readonly string[];
  readonly operation: JourneyOperation;
  readonly begun: number;
  readonly quality: JourneyQuality;
  /**
   * In the order in which they were reached; the first is the arrival. Of nodes, the first few and
   * the last.
   */
  readonly stages: readonly JourneyStage[];
  /** How many nodes it came to. */
  readonly nodes: number;
  /** null: it is still on its way. */
  readonly end: JourneyEnd | null;
}

/** A pod's change as it arrives. */
export interface JourneyStart extends Pick<
  Journey,
  'namespace' | 'service' | 'pod' | 'uid' | 'podNode' | 'addresses' | 'operation'
> {
  /** When it happened, as the pod tells; null: it does not. */
  readonly ownTime: number | null;
  readonly at: number;
  readonly gap: boolean;
  readonly resourceVersion: string;
  /** The outputs that somebody must write. */
  readonly awaits: readonly JourneyOutput[];
}

/** Seconds: the resolution of the times that pods tell. */
const resolution = 1;

/** What a pod's own time is worth as the beginning of a journey that arrived at `at`. */
export function journeyQuality(ownTime: number | null, at: number, gap: boolean): JourneyQuality {
  if (gap) return 'gap';
  if (ownTime === null) return 'arrival';
  if (ownTime > at + resolution) return 'skewed';
  return at - ownTime < resolution ? 'coarse' : 'ok';
}

/** Seconds from the beginning to a stage; never negative, since no lag is. */
export function journeySeconds({ begun }: Journey, { at }: JourneyStage): number {
  return Math.max(0, at - begun);
}

/** The stages that a journey came to at last, of each name; absent: it did not. */
export function lastOf({ stages }: Journey, name: JourneyStageName): JourneyStage | undefined {
  return stages.findLast(({ stage }) => stage === name);
}

/** Seconds from the beginning to the last stage that was reached. */
export function journeyLength(journey: Journey): number {
  const seconds = journey.stages.map((stage) => journeySeconds(journey, stage));
  return Math.max(0, ...seconds);
}

interface Open extends Journey {
  stages: JourneyStage[];
  nodes: number;
  end: JourneyEnd | null;
  readonly awaits: Set<JourneyOutput>;
  /** Nodes that the slices have yet to come to; null: the slices are not as wanted yet. */
  awaitsNodes: Set<string> | null;
}

/** Journeys that are open, and those that ended counted. */
export interface OpenJourneys {
  /** Begins one, and ends the one that it overtakes. */
  begin(departure: JourneyStart): void;
  /** Open journeys of a Service at these addresses, that await this output; null: at any. */
  awaiting(service: Key, output: JourneyOutput, addresses: ReadonlySet<string> | null): Journey[];
  /**
   * An output is as an open journey wants it. Once its slices are, these nodes have to follow; a
   * journey that awaits nothing more is complete.
   */
  reach(
    journey: Journey,
    stage: JourneyStage & { readonly stage: JourneyOutput },
    nodes: readonly string[],
  ): void;
  /**
   * The rules of a node were read at `at`, after a reading at `before`, and are as wanted but for
   * what `differs` says.
   */
  atNode(
    node: string,
    at: number,
    before: number | null,
    differs: (journey: Journey) => boolean,
  ): void;
  /** Nothing is known of the node any more, so it is awaited no longer. */
  loseNode(node: string): void;
  /** Something else changed, so that the output will never be as an open journey wants it. */
  overtake(journey: Journey): void;
  /** Nobody has to write the outputs of the Service any more, or nobody knows what they are. */
  release(service: Key): void;
  /** Those that are on their way, in the order in which they began. */
  open(): Iterable<Journey>;
  openCount(): number;
  readonly ended: Readonly<Record<JourneyEnd, number>>;
}

interface JourneysOptions {
  /** How many may be open. */
  readonly most?: number;
  onStage?(journey: Journey, stage: JourneyStage): void;
  onEnd?(journey: Journey): void;
}

/** Open journeys at most: some 2 KB each where a journey goes to many nodes. */
const mostOpen = 4096;

/** Nodes that all open journeys together may await; further ones end with their outputs. */
const mostAwaited = 65_536;

/** Stages at nodes that a journey remembers. */
const shownNodes = 8;

interface State {
  readonly options: JourneysOptions;
  readonly byPod: Map<string, Open>;
  readonly byService: Map<Key, Set<Open>>;
  /** How many nodes are awaited. */
  awaited: number;
  readonly ended: Record<JourneyEnd, number>;
}

const serviceKey = ({ namespace, service }: Journey | JourneyStart): Key =>
  `${namespace}/${service}`;

/** No pod has a blank in its name. */
const podKey = (of: Journey | JourneyStart): string => `${serviceKey(of)} ${of.pod}`;

export function createJourneys(options: JourneysOptions = {}): OpenJourneys {
  const state: State = {
    options,
    byPod: new Map(),
    byService: new Map(),
    awaited: 0,
    ended: { complete: 0, overtaken: 0, gone: 0, dropped: 0 },
  };
  const { byPod, byService } = state;
  return {
    begin(departure) {
      begin(state, departure);
    },
    awaiting(service, output, addresses) {
      const there = byService.get(service);
      if (there === undefined) return [];
      const isThere = (one: Open): boolean =>
        one.awaits.has(output) &&
        (addresses === null || one.addresses.some((address) => addresses.has(address)));
      return [...there].filter(isThere);
    },
    reach(journey, stage, nodes) {
      const open = byPod.get(podKey(journey));
      if (open === journey && open.awaits.has(stage.stage)) reach(state, open, stage, nodes);
    },
    atNode(node, at, before, differs) {
      if (state.awaited > 0) reachNode(state, node, { at, before, differs });
    },
    loseNode(node) {
      if (state.awaited === 0) return;
      for (const open of [...byPod.values()]) if (leaveNode(state, open, node)) finish(state, open);
    },
    overtake(journey) {
      const open = byPod.get(podKey(journey));
      if (open === journey) end(state, open, 'overtaken');
    },
    release(service) {
      for (const open of [...(byService.get(service) ?? [])]) end(state, open, 'gone');
    },
    open: () => byPod.values(),
    openCount: () => byPod.size,
    ended: state.ended,
  };
}

function begin(state: State, departure: JourneyStart): void {
  const { byPod, byService, options } = state;
  const { ownTime, at, gap, resourceVersion, awaits, ...rest } = departure;
  const overtaken = byPod.get(podKey(departure));
  if (overtaken !== undefined) end(state, overtaken, 'overtaken');
  if (awaits.length === 0) return;
  const quality = journeyQuality(ownTime, at, gap);
  const object = `Pod ${departure.namespace}/${departure.pod}`;
  const arrival: JourneyStage = {
    stage: 'arrival',
    at,
    within: 0,
    object,
    resourceVersion,
    node: null,
  };
  const open: Open = {
    ...rest,
    begun: ownTime ?? at,
    quality,
    stages: [arrival],
    nodes: 0,
    end: null,
    awaits: new Set(awaits),
    awaitsNodes: null,
  };
  byPod.set(podKey(open), open);
  const key = serviceKey(open);
  const there = byService.get(key);
  if (there === undefined) byService.set(key, new Set([open]));
  else there.add(open);
  options.onStage?.(open, arrival);
  const [oldest] = byPod.values();
  if (oldest !== undefined && byPod.size > (options.most ?? mostOpen))
    end(state, oldest, 'dropped');
}

function reach(
  state: State,
  open: Open,
  stage: JourneyStage & { readonly stage: JourneyOutput },
  nodes: readonly string[],
): void {
  open.awaits.delete(stage.stage);
  open.stages.push(stage);
  if (stage.stage === 'endpointslices' && state.awaited + nodes.length <= mostAwaited) {
    open.awaitsNodes = new Set(nodes);
    state.awaited += nodes.length;
  }
  state.options.onStage?.(open, stage);
  finish(state, open);
}

interface Reading {
  readonly at: number;
  readonly before: number | null;
  readonly differs: (journey: Journey) => boolean;
}

function reachNode(state: State, node: string, { at, before, differs }: Reading): void {
  for (const open of [...state.byPod.values()]) {
    if (open.awaitsNodes?.has(node) !== true) continue;
    const written = lastOf(open, 'endpointslices')?.at ?? Infinity;
    // Rules that were read before the slices arrived show nothing of them.
    if (at < written || differs(open)) continue;
    const within = at - Math.min(at, Math.max(written, before ?? written));
    const object = `Node ${node}`;
    const stage: JourneyStage = { stage: 'node', at, within, object, resourceVersion: '', node };
    if (open.nodes >= shownNodes) open.stages.splice(open.stages.findLastIndex(isNode), 1);
    open.stages.push(stage);
    open.nodes++;
    leaveNode(state, open, node);
    state.options.onStage?.(open, stage);
    finish(state, open);
  }
}

const isNode = ({ stage }: JourneyStage): boolean => stage === 'node';

/** Whether the node was awaited. */
function leaveNode(state: State, open: Open, node: string): boolean {
  const was = open.awaitsNodes?.delete(node) === true;
  if (was) state.awaited--;
  return was;
}

/** Ends what awaits nothing more. */
function finish(state: State, open: Open): void {
  if (open.awaits.size > 0 || (open.awaitsNodes?.size ?? 0) > 0) return;
  end(state, open, 'complete');
}

function end(state: State, open: Open, how: JourneyEnd): void {
  const { byPod, byService, ended, options } = state;
  state.awaited -= open.awaitsNodes?.size ?? 0;
  open.awaitsNodes?.clear();
  open.end = how;
  byPod.delete(podKey(open));
  const key = serviceKey(open);
  const there = byService.get(key);
  there?.delete(open);
  if (there?.size === 0) byService.delete(key);
  ended[how]++;
  options.onEnd?.(open);
}

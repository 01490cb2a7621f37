// One step of the explanation of a pair (chain.ts): a question that the controllers ask about a pod
// and a Service, its answer, and what follows from it at each place where the pod may be listed.
//
// What follows is told by the step and decided by the shadows: outcomesOf asks them, and a test
// holds the two against each other.

import type { AddressType, Node, Pod, Port, Service } from '../../model/objects.ts';
import { selects } from '../../model/selector.ts';
import { expectedAddress, isSelected } from '../../shadow/endpoints.ts';
import { addressTypesOf, expectedEndpoints } from '../../shadow/endpointslice.ts';
import type { Release } from '../../shadow/release.ts';

/** What the controllers look at for one pod; `node` as nodeOf gives it. */
export interface PodAndService {
  readonly service: Service;
  readonly pod: Pod;
  readonly node: Node | null | undefined;
}

/** The Endpoints object, or the slices of one address type. */
export type ListingPlace = 'endpoints' | AddressType;

/** Worst first: how a pod stands at a place. `fewer-ports`: some ports of the Service lack. */
export const entryStates = ['absent', 'no-ports', 'not-ready', 'fewer-ports', 'ready'] as const;

export type EntryState = (typeof entryStates)[number];

/** The same for people. */
export const stateWords: Readonly<Record<EntryState, string>> = {
  absent: 'absent',
  'no-ports': 'listed without ports',
  'not-ready': 'listed as not ready',
  'fewer-ports': 'ready on some ports only',
  ready: 'ready',
};

/** A place for people: `Endpoints`, `IPv4 EndpointSlices`. */
export const placeName = (place: ListingPlace): string =>
  place === 'endpoints' ? 'Endpoints' : `${place} EndpointSlices`;

export interface ExpectedEntry {
  readonly place: ListingPlace;
  readonly state: EntryState;
  readonly ports: readonly Port[];
}

export type ConditionName =
  | 'type'
  | 'selector'
  | 'namespace'
  | 'labels'
  | 'phase'
  | 'address'
  | 'family'
  | 'node'
  | 'deletion'
  | 'port'
  | 'readiness';

export interface Condition {
  readonly name: ConditionName;
  /** unknown: the input does not tell. */
  readonly passes: boolean | 'unknown';
  readonly text: string;
  readonly object: string;
  readonly field: string;
  /** The upstream code that decides. */
  readonly source: string;
  /** What it does to the pod; empty where the step passes. */
  readonly effects: ReadonlyMap<ListingPlace, EntryState>;
  /** The smallest change that turns the step; null where it passes. */
  readonly change: string | null;
  /** The pair after that change. */
  fix(pair: PodAndService): PodAndService;
}

export const reconciler = 'k8s.io/endpointslice reconciler.go reconcileByAddressType';
export const sliceUtils = 'k8s.io/endpointslice utils.go';
export const listing = 'k8s.io/endpointslice util/controller_utils.go ShouldPodBeInEndpoints';
export const endpointsController = 'pkg/controller/endpoint/endpoints_controller.go';

export const placesOf = (service: Service): ListingPlace[] => [
  'endpoints',
  ...addressTypesOf(service),
];

/** Whether the selector takes the pod at all, as both controllers list pods. */
function isMember({ service, pod }: PodAndService): boolean {
  return (
    isSelected(service) &&
    service.namespace === pod.namespace &&
    selects(service.selector, pod.labels)
  );
}

function entryState(service: Service, ready: boolean, ports: readonly Port[]): EntryState {
  const usable = service.ports.length > 0 || service.clusterIP === 'None';
  if (!usable || (service.ports.length > 0 && ports.length === 0)) return 'no-ports';
  if (!ready) return 'not-ready';
  return ports.length < service.ports.length ? 'fewer-ports' : 'ready';
}

/** How the pod must stand at every place of the Service, as the shadows have it. */
export function expectedEntries(pair: PodAndService, release: Release): ExpectedEntry[] {
  const { service, pod, node } = pair;
  const member = isMember(pair);
  const address = member ? expectedAddress(service, pod, release) : null;
  const endpoints = member ? expectedEndpoints(service, pod, node, release) : [];
  return placesOf(service).map((place) => {
    const want =
      place === 'endpoints'
        ? address
        : (endpoints.find(({ addressType }) => addressType === place) ?? null);
    if (want === null) return { place, state: 'absent', ports: [] };
    return { place, state: entryState(service, want.ready, want.ports), ports: want.ports };
  });
}

const same = (pair: PodAndService): PodAndService => pair;

const noEffects: ReadonlyMap<ListingPlace, EntryState> = new Map();

interface Failing {
  readonly effects: ReadonlyMap<ListingPlace, EntryState>;
  readonly change: string;
  fix(pair: PodAndService): PodAndService;
}

export type ConditionQuestion = Pick<Condition, 'name' | 'object' | 'field' | 'source'>;

export const passing = (question: ConditionQuestion, text: string): Condition => ({
  ...question,
  text,
  passes: true,
  effects: noEffects,
  change: null,
  fix: same,
});

export const failing = (question: ConditionQuestion, text: string, rest: Failing): Condition => ({
  ...question,
  text,
  passes: false,
  ...rest,
});

export const everywhere = (service: Service, effect: EntryState): Map<ListingPlace, EntryState> =>
  new Map(placesOf(service).map((place) => [place, effect]));

export const objectOf = ({ key }: Service): string => `Service ${key}`;
export const podOf = ({ key }: Pod): string => `Pod ${key}`;

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
export interface Pair {
  readonly service: Service;
  readonly pod: Pod;
  readonly node: Node | null | undefined;
}

/** The Endpoints object, or the slices of one address type. */
export type Place = 'endpoints' | AddressType;

/** Worst first: how a pod stands at a place. `fewer-ports`: some ports of the Service lack. */
export const standings = ['absent', 'no-ports', 'not-ready', 'fewer-ports', 'ready'] as const;

export type StandingAt = (typeof standings)[number];

/** The same for people. */
export const standingWords: Readonly<Record<StandingAt, string>> = {
  absent: 'absent',
  'no-ports': 'listed without ports',
  'not-ready': 'listed as not ready',
  'fewer-ports': 'ready on some ports only',
  ready: 'ready',
};

/** A place for people: `Endpoints`, `IPv4 EndpointSlices`. */
export const placeName = (place: Place): string =>
  place === 'endpoints' ? 'Endpoints' : `${place} EndpointSlices`;

export interface Outcome {
  readonly place: Place;
  readonly standing: StandingAt;
  readonly ports: readonly Port[];
}

export type StepName =
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

export interface Step {
  readonly name: StepName;
  /** unknown: the input does not tell. */
  readonly passes: boolean | 'unknown';
  readonly text: string;
  readonly object: string;
  readonly field: string;
  /** The upstream code that decides. */
  readonly source: string;
  /** What it does to the pod; empty where the step passes. */
  readonly effects: ReadonlyMap<Place, StandingAt>;
  /** The smallest change that turns the step; null where it passes. */
  readonly change: string | null;
  /** The pair after that change. */
  mend(pair: Pair): Pair;
}

export const reconciler = 'k8s.io/endpointslice reconciler.go reconcileByAddressType';
export const sliceUtils = 'k8s.io/endpointslice utils.go';
export const listing = 'k8s.io/endpointslice util/controller_utils.go ShouldPodBeInEndpoints';
export const endpointsController = 'pkg/controller/endpoint/endpoints_controller.go';

export const placesOf = (service: Service): Place[] => ['endpoints', ...addressTypesOf(service)];

/** Whether the selector takes the pod at all, as both controllers list pods. */
function isMember({ service, pod }: Pair): boolean {
  return (
    isSelected(service) &&
    service.namespace === pod.namespace &&
    selects(service.selector, pod.labels)
  );
}

function standingOf(service: Service, ready: boolean, ports: readonly Port[]): StandingAt {
  const usable = service.ports.length > 0 || service.clusterIP === 'None';
  if (!usable || (service.ports.length > 0 && ports.length === 0)) return 'no-ports';
  if (!ready) return 'not-ready';
  return ports.length < service.ports.length ? 'fewer-ports' : 'ready';
}

/** How the pod must stand at every place of the Service, as the shadows have it. */
export function outcomesOf(pair: Pair, release: Release): Outcome[] {
  const { service, pod, node } = pair;
  const member = isMember(pair);
  const address = member ? expectedAddress(service, pod, release) : null;
  const endpoints = member ? expectedEndpoints(service, pod, node, release) : [];
  return placesOf(service).map((place) => {
    const want =
      place === 'endpoints'
        ? address
        : (endpoints.find(({ addressType }) => addressType === place) ?? null);
    if (want === null) return { place, standing: 'absent', ports: [] };
    return { place, standing: standingOf(service, want.ready, want.ports), ports: want.ports };
  });
}

const same = (pair: Pair): Pair => pair;

const noEffects: ReadonlyMap<Place, StandingAt> = new Map();

interface Failing {
  readonly effects: ReadonlyMap<Place, StandingAt>;
  readonly change: string;
  mend(pair: Pair): Pair;
}

export type Question = Pick<Step, 'name' | 'object' | 'field' | 'source'>;

export const passing = (question: Question, text: string): Step => ({
  ...question,
  text,
  passes: true,
  effects: noEffects,
  change: null,
  mend: same,
});

export const failing = (question: Question, text: string, rest: Failing): Step => ({
  ...question,
  text,
  passes: false,
  ...rest,
});

export const everywhere = (service: Service, effect: StandingAt): Map<Place, StandingAt> =>
  new Map(placesOf(service).map((place) => [place, effect]));

export const objectOf = ({ key }: Service): string => `Service ${key}`;
export const podOf = ({ key }: Pod): string => `Pod ${key}`;

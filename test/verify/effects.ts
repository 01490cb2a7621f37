// What an event does to the controllers of a Service: which of them sync it, which outputs the
// event itself wrote, and why a controller does not notice. Written from the event handlers of
// k8s.io/kubernetes@v1.36.3 (pkg/controller/endpoint, endpointslice, endpointslicemirroring) and
// podEndpointsChanged of k8s.io/endpointslice@v0.36.3 util/controller_utils.go.

import { isDeepStrictEqual } from 'node:util';

import type { Output } from '../../src/audit/finding/catalogue.ts';
import type { Cause } from '../../src/audit/finding/causes.ts';
import type { AuditContext } from '../../src/audit/service/cache.ts';
import { countHints } from '../../src/audit/service/endpointslices.ts';
import { canonicalIP } from '../../src/model/ip.ts';
import type {
  Change,
  Endpoints,
  EndpointSlice,
  Key,
  Labels,
  Node,
  Pod,
  Service,
} from '../../src/model/objects.ts';
import { annotation, label, manager } from '../../src/model/objects.ts';
import { selects } from '../../src/model/selector.ts';
import { expectedSliceLabels } from '../../src/shadow/endpointslice.ts';
import { hintMode, reasonOfNoHints } from '../../src/shadow/hints.ts';
import type { View } from './cluster.ts';
import { servicesNamedBy } from './cluster.ts';

export interface Effect {
  /** The outputs whose controllers sync the Service because of the event. */
  readonly wakes: ReadonlySet<Output>;
  /** The outputs that the event itself wrote. */
  readonly writes: ReadonlySet<Output>;
  /** Why the other controllers do not notice a change of the input. */
  readonly blindSpot: Cause | null;
  /** Why the controller does not notice that its output was written. */
  readonly unnoticed: Cause | null;
  /** Whether the event is about the Service, and which addresses it is about; `null` for all. */
  readonly isConcerned: boolean;
  readonly addresses: ReadonlySet<string> | null;
  /** No history is known. */
  readonly beginning: boolean;
  /** Events before this one were missed, or come after it. */
  readonly gap: boolean;
  readonly late: boolean;
}

export const noEffect: Effect = {
  wakes: new Set(),
  writes: new Set(),
  blindSpot: null,
  unnoticed: null,
  isConcerned: false,
  addresses: null,
  beginning: false,
  gap: false,
  late: false,
};

const both: ReadonlySet<Output> = new Set(['endpoints', 'endpointslices']);

/** What an event does to one Service. */
export function effectOf(after: View, context: AuditContext, change: Change, key: Key): Effect {
  switch (change.resource) {
    case 'pods':
      return podEffect(after, change as Change<'pods'>, key);
    case 'nodes':
      return nodeEffect(after, context, change as Change<'nodes'>, key);
    case 'services':
      return serviceEffect(change as Change<'services'>, key);
    case 'endpoints':
      return endpointsEffect(change as Change<'endpoints'>, key);
    case 'endpointslices':
      return sliceEffect(after, change as Change<'endpointslices'>, key);
  }
}

/** addPod, updatePod and deletePod: GetServicesToUpdateOnPodChange. */
function podEffect({ listers }: View, change: Change<'pods'>, key: Key): Effect {
  const { before, after } = change;
  const service = listers.services.get(key) ?? null;
  const isOf = (pod: Pod | null): boolean =>
    pod !== null && service?.namespace === pod.namespace && selects(service.selector, pod.labels);
  const ips = new Set([before, after].flatMap((pod) => pod?.ips.map(canonicalIP) ?? []));
  const [was, is] = [isOf(before), isOf(after)];
  // Slices of other managers are compared with the pods that they refer to.
  const refers =
    before?.uid !== after?.uid &&
    [...listers.slices.values()].some(
      ({ namespace, labels, endpoints }) =>
        `${namespace}/${labels[label.serviceName] ?? ''}` === key &&
        ![manager.slices, manager.mirroring].includes(labels[label.sliceManagedBy] as never) &&
        endpoints.some(({ target }) => target?.name === (after ?? before)?.name),
    );
  const shares = [...ips].some((ip) => listers.podsAt(ip).some((pod) => isOf(pod)));
  // A repeated version that comes late hides nothing.
  const isSame = change.gap !== true && isDeepStrictEqual(contentOf(before), contentOf(after));
  if (!was && !is) {
    return { ...noEffect, isConcerned: (shares || refers) && !isSame, addresses: ips };
  }
  const common = { ...noEffect, isConcerned: true, addresses: ips };
  if (before === null || after?.uid !== before.uid) {
    return { ...common, wakes: both };
  }
  const podChanged =
    before.deleting ||
    after.deleting ||
    before.ready !== after.ready ||
    !isDeepStrictEqual(before.ips, after.ips);
  const labelsChanged =
    !isDeepStrictEqual({ ...before.labels }, { ...after.labels }) ||
    before.hostname !== after.hostname ||
    before.subdomain !== after.subdomain;
  const wakes = podChanged || (labelsChanged && was !== is) ? both : noEffect.wakes;
  const isConcerned = wakes === both || !isSame;
  const phase = before.terminal === after.terminal ? 'pod-change-unnoticed' : 'pod-phase-unnoticed';
  return { ...common, isConcerned, wakes, blindSpot: wakes === both || isSame ? null : phase };
}

/** What a version of a pod says that is not the time or the version. */
const contentOf = (pod: Pod | null): unknown => {
  if (pod === null) return null;
  const { uid, ready, terminal, deleting, node, hostname, subdomain, ports, ips, labels } = pod;
  return [uid, ready, terminal, deleting, node, hostname, subdomain, ports, ips, { ...labels }];
};

/** Node events sync only Services whose hints by topology-mode Auto can no longer be given. */
function nodeEffect(
  { listers }: View,
  { release }: AuditContext,
  { before, after }: Change<'nodes'>,
  key: Key,
): Effect {
  const service = listers.services.get(key);
  const isHandled = before?.zone !== after?.zone || before?.ready !== after?.ready;
  const slices = [...listers.slices.values()].filter((it) => servicesNamedBy(it).includes(key));
  const { ready, zones } = countHints(slices);
  const isAuto = service !== undefined && hintMode(service, release) === 'auto';
  const isOverloaded = zones.size > 0 && reasonOfNoHints(listers.zoneCapacity, ready) !== null;
  const isOn = ({ node }: Pod): boolean => node === (after ?? before)?.name;
  const isOfService = ({ namespace, labels }: Pod): boolean =>
    service?.namespace === namespace && selects(service.selector, labels);
  const movesPods =
    before?.zone !== after?.zone &&
    [...listers.pods.values()].some((pod) => isOn(pod) && isOfService(pod));
  const isSame = isDeepStrictEqual(hintsOf(before), hintsOf(after));
  return {
    ...noEffect,
    blindSpot: 'node-change-unnoticed',
    wakes: isHandled && isAuto && isOverloaded ? new Set<Output>(['endpointslices']) : new Set(),
    isConcerned: movesPods || (isAuto && !isSame),
    addresses: new Set(),
  };
}

const hintsOf = (node: Node | null) =>
  node === null ? null : [node.zone, node.ready, node.controlPlane, node.cpuMillis];

/** Both controllers sync at every event, the mirroring controller if it is about the selector. */
function serviceEffect({ before, after }: Change<'services'>, key: Key): Effect {
  const service = after ?? before;
  if (service?.key !== key) return noEffect;
  const isManual = ({ selector }: Service): boolean => selector === null;
  const isMirrored =
    before === null || after === null ? isManual(service) : isManual(before) !== isManual(after);
  const wakes = new Set<Output>(isMirrored ? [...both, 'mirrored'] : both);
  return { ...noEffect, wakes, isConcerned: true };
}

const mayBeMirrored = (endpoints: Endpoints | null): boolean =>
  endpoints !== null &&
  endpoints.labels[label.skipMirror] !== 'true' &&
  !Object.hasOwn(endpoints.annotations, annotation.leader);

/** The endpoints controller handles deletions of Endpoints, but no updates. */
function endpointsEffect({ before, after }: Change<'endpoints'>, key: Key): Effect {
  if ((after ?? before)?.key !== key) return noEffect;
  const isUpdate = before !== null && after !== null;
  const wakes = new Set<Output>();
  if (after === null) wakes.add('endpoints');
  if (mayBeMirrored(before) || mayBeMirrored(after)) wakes.add('mirrored');
  return {
    ...noEffect,
    wakes,
    writes: new Set<Output>(['endpoints']),
    unnoticed: isUpdate ? 'hand-edited' : null,
    isConcerned: true,
    addresses: isUpdate ? changedAddresses(before, after, listingsIn) : null,
  };
}

type Places = readonly (readonly [ip: string, content: unknown])[];

/** The addresses at which two versions of an object say different things. */
function changedAddresses<T>(a: T | null, b: T | null, placesIn: (object: T) => Places) {
  const texts = [a, b].map((object) => {
    const places = object === null ? [] : placesIn(object);
    const groups = Map.groupBy(places, ([ip]) => ip);
    return new Map([...groups].map(([ip, all]) => [ip, JSON.stringify(all.map((it) => it[1]))]));
  });
  const ips = texts.flatMap((text) => [...text.keys()]);
  return new Set(ips.filter((ip) => texts[0]?.get(ip) !== texts[1]?.get(ip)));
}

const listingsIn = ({ subsets }: Endpoints): Places =>
  subsets.flatMap(({ addresses }) => addresses.map((it) => [canonicalIP(it.ip), it] as const));

const slicingsIn = ({ endpoints, portMap, labels, owners, deleting }: EndpointSlice): Places =>
  endpoints.flatMap((it) => {
    const content = [it, portMap, labels, owners, deleting];
    return it.addresses.map((ip) => [canonicalIP(ip), content] as const);
  });

/** onEndpointSliceAdd, onEndpointSliceUpdate and onEndpointSliceDelete, with their tracker. */
function sliceEffect(
  { listers }: View,
  { before, after }: Change<'endpointslices'>,
  key: Key,
): Effect {
  const slices = [before, after].flatMap((slice) => slice ?? []);
  if (!slices.some((slice) => servicesNamedBy(slice).includes(key))) return noEffect;
  const isOurs = slices.some((slice) => slice.labels[label.sliceManagedBy] === manager.slices);
  const writes = new Set<Output>([isOurs ? 'endpointslices' : 'mirrored']);
  return {
    ...noEffect,
    writes,
    unnoticed: unnoticedWrite(listers.services.get(key) ?? null, before, after),
    isConcerned: true,
    addresses: changedAddresses(before, after, slicingsIn).add((after ?? before)?.name ?? ''),
  };
}

function unnoticedWrite(
  service: Service | null,
  before: EndpointSlice | null,
  after: EndpointSlice | null,
): Cause | null {
  if (before === null) return null;
  if (after === null) {
    if (service === null) return null;
    const isOthers = before.owners.some(
      ({ kind, name, uid }) => kind === 'Service' && name === service.name && uid !== service.uid,
    );
    const isOwned = before.owners.some(
      ({ kind, uid }) => kind === 'Service' && uid === service.uid,
    );
    const isOurs = before.labels[label.sliceManagedBy] === manager.slices;
    const isTaken = isOurs && isOthers && !isOwned && looksLikePlaceholder(service, before);
    return isTaken ? 'service-recreated' : null;
  }
  // The tracker compares generations, which rise with content and labels.
  const content = ({ endpoints, portMap, labels, generation }: EndpointSlice) =>
    [endpoints, portMap, { ...labels }, generation] as const;
  return isDeepStrictEqual(content(before), content(after)) ? 'hand-edited' : null;
}

/** reconciler.go placeholderSliceCompare: labels of empty value do not count. */
function looksLikePlaceholder(service: Service, { endpoints, portMap, labels }: EndpointSlice) {
  if (endpoints.length > 0 || portMap !== '') return false;
  const want: Labels = expectedSliceLabels(service);
  const keys = [...Object.keys(want), ...Object.keys(labels)];
  return keys.every((key) => (want[key] ?? '') === (labels[key] ?? ''));
}

/** What each cause can make of the outputs (docs/upstream-blind-spots.md). */
const effects: Readonly<Record<Cause, RegExp>> = {
  'pod-phase-unnoticed':
    /^((endpoints-address|slice-endpoint)-(missing|unexpected)|endpoints-over-.*)$/,
  'pod-change-unnoticed':
    /^(endpoints-(address|ports|over-capacity)-.*|slice-(endpoint|ports|hints)-.*)$/,
  'node-change-unnoticed': /^slice-(endpoint|hints)-/,
  'pod-without-node': /^endpoints-/,
  'hand-edited': /^(endpoints-.*|mirror-.*|slice-owner-different|slice-orphaned)$/,
  'node-missing-retried': /^slice-/,
  'placeholder-taken-over': /^slice-(labels|owner)-different$/,
  'service-recreated': /^slice-placeholder-missing$/,
  'mirror-recycling-fails': /^mirror-/,
  'slice-relabelled': /^(slice|mirror)-/,
  'headless-label-kept': /-labels-different$/,
};

export const canMake = (cause: Cause, code: string): boolean => effects[cause].test(code);

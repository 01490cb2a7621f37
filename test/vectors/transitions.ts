// Whether one sync can have made the slices of a Service from those of the step before. Only
// changes that one sync can explain are checked.

import { roleOf } from '../../src/audit/service/cache.ts';
import type { EndpointSlice, Service } from '../../src/model/objects.ts';
import { isSelected } from '../../src/shadow/endpoints.ts';
import { addressTypesOf, expectedEndpoints } from '../../src/shadow/endpointslice.ts';
import { endpointIdentity } from '../../src/shadow/mirroring.ts';
import { isListed, resolvePorts } from '../../src/shadow/pod.ts';
import { identities, isReachable } from './slice-filling.ts';
import type { World } from './world.ts';

export interface Before {
  readonly service: Service;
  readonly slices: readonly EndpointSlice[];
  /** uids of the selected pods by key. */
  readonly pods: ReadonlyMap<string, string>;
}

/** What transitions of the next step start from, per Service. */
export function beforeOf(world: World): Map<string, Before> {
  const before = new Map<string, Before>();
  for (const [key, { record }] of world.serviceAuditor.audited) {
    const { service } = record;
    if (service === null || !isSelected(service)) continue;
    const slices = [...record.slices.values()].filter(
      (slice) => roleOf(world.context.listers, record, slice) === 'controller',
    );
    const uid = (pod: string): string => world.context.listers.pods.get(pod)?.uid ?? '';
    const pods = new Map([...record.members.keys()].map(({ key }) => [key, uid(key)]));
    before.set(key, { service, slices, pods });
  }
  return before;
}

export type Judgement = 'possible' | 'wrong' | 'notJudged';

function wantedOf(world: World, service: Service, pods: Iterable<string>, type: string) {
  const { listers, release } = world.context;
  const wanted = new Map<string, Set<string>>();
  for (const key of pods) {
    const pod = listers.pods.get(key);
    if (pod === undefined || !isListed(pod, true)) continue;
    const { portMap } = resolvePorts(service, pod, release.sidecarPortsInSlices);
    const set = wanted.get(portMap) ?? new Set<string>();
    wanted.set(portMap, set);
    const node = listers.nodes.get(pod.node) ?? null;
    for (const endpoint of expectedEndpoints(service, pod, node, release)) {
      if (endpoint.addressType !== type) continue;
      const addresses = [...endpoint.addresses].sort().join(',');
      set.add(endpointIdentity(addresses, endpoint.hostname, pod));
    }
  }
  return wanted;
}

/** What a slice says of each endpoint, hints apart. */
function contents(slice: EndpointSlice | undefined): Map<string, string> {
  const texts = new Map<string, string>();
  for (const [index, identity] of (slice === undefined ? [] : identities(slice)).entries()) {
    const endpoint = slice?.endpoints[index];
    texts.set(identity, JSON.stringify({ ...endpoint, forZones: null, forNodes: null }));
  }
  return texts;
}

/** Checks one Service after a step, address type by address type. */
export function judgeTransition(world: World, before: Before, key: string): Judgement[] {
  const audited = world.serviceAuditor.audited.get(key);
  const service = audited?.record.service;
  if (audited === undefined || service?.uid !== before.service.uid || !isSelected(service))
    return [];
  const now = beforeOf(world).get(key);
  if (now === undefined) return [];
  const conform = [...audited.items.values()].every((items) =>
    items.every(({ output }) => output !== 'endpointslices'),
  );
  const judgements: Judgement[] = [];
  for (const type of addressTypesOf(service)) {
    const ofType = (slice: EndpointSlice): boolean => slice.addressType === type;
    const [was, is] = [before.slices.filter(ofType), now.slices.filter(ofType)];
    const writes = writesBetween(was, is);
    if (writes.total === 0) continue;
    const inputs = inputsChanged(world, before, now);
    // One sync that has slices to delete and to create turns the one into the other.
    const replaced = writes.deletions > 0 && writes.creations > 0;
    const few = writes.total === 1 || (inputs === 1 && writes.most === 1);
    const oneSync = inputs > 0 && few && !replaced;
    const wanted = wantedOf(world, service, now.pods.keys(), type);
    if (!conform || !oneSync || deletedByHand(was, is, wanted)) {
      judgements.push('notJudged');
      continue;
    }
    const after = new Map(is.map((slice) => [slice.uid, slice]));
    const updated = (slice: EndpointSlice, kept: readonly string[]): boolean => {
      const [old, fresh] = [contents(slice), contents(after.get(slice.uid))];
      return kept.some((identity) => old.get(identity) !== fresh.get(identity));
    };
    const { maxEndpointsPerSlice: max, release } = world.context;
    const possible = isReachable(service, was, is, wanted, updated, { max, release });
    judgements.push(possible ? 'possible' : 'wrong');
  }
  return judgements;
}

/** Writes between two states by generations: a slice starts at 1 and gains 1 a write. */
function writesBetween(was: readonly EndpointSlice[], is: readonly EndpointSlice[]) {
  const old = new Map(was.map((slice) => [slice.uid, slice]));
  const rises = is.map((slice) => slice.generation - (old.get(slice.uid)?.generation ?? 0));
  const deletions = was.filter(({ uid }) => is.every((slice) => slice.uid !== uid)).length;
  const creations = is.filter(({ uid }) => !old.has(uid)).length;
  const total = rises.reduce((sum, rise) => sum + rise, deletions);
  return { total, most: Math.max(0, ...rises), deletions, creations };
}

function inputsChanged(world: World, before: Before, now: Before): number {
  let changed = 0;
  for (const key of new Set([...before.pods.keys(), ...now.pods.keys()])) {
    if (!world.changed.has(`pods ${key}`)) continue;
    const [was, is] = [before.pods.get(key), now.pods.get(key)];
    // A pod that was replaced under its name is two changes.
    changed += was !== undefined && is !== undefined && was !== is ? 2 : 1;
  }
  return changed + (world.changed.has(`services ${now.service.key}`) ? 1 : 0);
}

/** A slice went although it still had endpoints to keep: no sync does that. */
function deletedByHand(
  was: readonly EndpointSlice[],
  is: readonly EndpointSlice[],
  wanted: ReadonlyMap<string, ReadonlySet<string>>,
): boolean {
  return was.some(
    (slice) =>
      is.every(({ uid }) => uid !== slice.uid) &&
      identities(slice).some((identity) => wanted.get(slice.portMap)?.has(identity) === true),
  );
}

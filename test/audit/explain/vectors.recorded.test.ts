// The explanations of every state of the vectors: the conditions of each pod and Service, the
// verdict on them beside the differences of the audit, and the Services that list an address. Also
// after slices and Endpoints were deleted, and an endpoint was copied into another slice.

import { expect, test } from 'vitest';

import { expectedStates, type PodAndService } from '../../../src/audit/explain/conditions.ts';
import {
  explainPair,
  observedEntries,
  servicesListing,
} from '../../../src/audit/explain/pod-in-service.ts';
import { truncationOf } from '../../../src/audit/service/endpoints.ts';
import type { ServiceAudit } from '../../../src/audit/service/reconcile.ts';
import { getOrInsert } from '../../../src/model/collections.ts';
import { canonicalIP } from '../../../src/model/ip.ts';
import type { Key, Pod, Service } from '../../../src/model/objects.ts';
import { selects } from '../../../src/model/selector.ts';
import { isSelected } from '../../../src/shadow/endpoints.ts';
import { caseFiles, checkConditions, pairsOf, same, worldsOf } from '../../vectors/world.ts';
import type { World } from '../../vectors/world.ts';

/** Deletes an object that a controller wrote; the auditor follows. */
function takeAway(world: World, number: number): void {
  const { store, serviceAuditor } = world;
  const [one] = [...store.listers.slices.values()].slice(number % 3);
  const [other] = [...store.listers.endpoints.values()].slice(number % 2);
  const at = world.steps * 10;
  for (const object of number % 2 === 0 ? [one] : [one, other]) {
    if (object === undefined) continue;
    const resource = 'subsets' in object ? 'endpoints' : 'endpointslices';
    const change = store.apply({ resource, type: 'deleted', object, at });
    if (change !== null) serviceAuditor.apply(change);
  }
}

/** Copies an endpoint of one slice into another of its address type, as the API demands. */
function misplace(world: World, number: number): void {
  const { store, serviceAuditor } = world;
  const slices = [...store.listers.slices.values()];
  const one = slices[number % slices.length];
  if (one === undefined) return;
  const others = slices.filter((it) => it !== one && it.addressType === one.addressType);
  const [stray] = others[number % others.length]?.endpoints ?? [];
  if (stray === undefined) return;
  const object = { ...one, endpoints: [...one.endpoints, stray] };
  const at = world.steps * 10;
  const change = store.apply({ resource: 'endpointslices', type: 'modified', object, at });
  if (change !== null) serviceAuditor.apply(change);
}

/** At least some of the addresses of pods, Endpoints and slices. */
function addressesOf({ context: { listers } }: World): string[] {
  const all = [
    ...[...listers.pods.values()].flatMap(({ ips }) => ips),
    ...[...listers.endpoints.values()]
      .flatMap(({ subsets }) => subsets)
      .flatMap(({ addresses }) => addresses.map(({ ip }) => ip)),
    ...[...listers.slices.values()]
      .flatMap(({ endpoints }) => endpoints)
      .flatMap(({ addresses }) => addresses),
  ].map(canonicalIP);
  const each = [...new Set(all)];
  const stride = Math.ceil(each.length / 12);
  return each.filter((_, index) => index % stride === 0);
}

type Counts = Record<string, number>;

const keysOf = (audits: readonly ServiceAudit[]): string =>
  audits.map(({ record }) => record.key).join();

function checkAddresses(world: World, counts: Counts): void {
  const { listers } = world.context;
  const audited = [...world.serviceAuditor.audited.values()];
  const addresses = audited.map(
    ({ record }) =>
      new Set(observedEntries(listers, record, () => true).map(({ address }) => address)),
  );
  for (const ip of [...addressesOf(world), '192.0.2.77']) {
    const want = audited.filter((_, index) => addresses[index]?.has(ip));
    const got = servicesListing(listers, audited, [ip]);
    same(keysOf(got), keysOf(want), () => ip);
    counts.listed = (counts.listed ?? 0) + want.length;
    counts.none = (counts.none ?? 0) + audited.length - want.length;
  }
}

/** The Services and the Node with which the conditions of each pod were checked. */
const withConditions = new WeakMap<Pod, Map<Service, PodAndService['node']>>();

function hasConditions({ pod, service, node }: PodAndService): boolean {
  const all = getOrInsert(withConditions, pod, () => new Map<Service, PodAndService['node']>());
  const isKnown = all.has(service) && all.get(service) === node;
  all.set(service, node);
  return isKnown;
}

/** What was checked of each pod and the Service with this key. */
const checked = new WeakMap<Pod, Map<Key, readonly unknown[]>>();

/** Whether nothing that the explanation of a pair depends on has changed since the last check. */
function isChecked({ pod, service, node }: PodAndService, audit: ServiceAudit | undefined) {
  const all = getOrInsert(checked, pod, () => new Map<Key, readonly unknown[]>());
  const before = all.get(service.key) ?? [];
  const { endpoints, slices, truncation } = audit?.record ?? {};
  const items = [...(audit?.items.values() ?? [])].flat();
  const now = [service, node, endpoints, slices, truncation, ...items];
  all.set(service.key, now);
  return before.length === now.length && now.every((it, index) => it === before[index]);
}

function checkPairs(world: World, counts: Counts): void {
  const { context, serviceAuditor } = world;
  for (const pair of pairsOf(world)) {
    const of = serviceAuditor.audited.get(pair.service.key);
    if (isChecked(pair, of)) continue;
    const got = of === undefined ? null : explainPair(context, of, pair.pod);
    if (of === undefined || got === null) throw new Error('A Service that is not audited');
    const { service, pod: one } = pair;
    const name = (): string => `${service.key} ${one.key}`;
    counts.pairs = (counts.pairs ?? 0) + 1;
    counts[got.verdict] = (counts[got.verdict] ?? 0) + 1;
    const selected = isSelected(service) && selects(service.selector, one.labels);
    same(of.record.members.has(one.key), selected, name);
    const outcomes = expectedStates(pair, context.release);
    const states = got.places.map(({ expected }) => expected);
    same(states.join(), [...outcomes.values()].join(), name);
    if (!isSelected(service) || service.deleting) continue;
    for (const { place, expected, actual, verdict } of got.places) {
      if (place === 'endpoints' && truncationOf(of.record) !== null) continue;
      if (expected !== actual) {
        const text = (): string => `${name()} at ${place}: ${expected}, ${actual}`;
        same(verdict === 'conform', false, text);
      }
    }
    const loud = [...of.items.values()]
      .flat()
      .filter(({ output, difference: { subject } }) => output !== 'input' && subject === one.name);
    if (loud.length > 0 && one.ips.length > 0) {
      if (!loud.every(({ difference }) => difference.code === 'slice-duplicate')) {
        const text = (): string => `${name()}: ${loud[0]?.difference.code ?? ''}`;
        same(got.verdict === 'conform', false, text);
      }
    }
  }
}

const pairs: Counts = {};
const conditions: Counts = {};
const addresses: Counts = {};

test.each(caseFiles)('%s', async (name) => {
  const known = pairs.pairs ?? 0;
  let number = 0;
  for await (const world of worldsOf(name)) {
    for (const pair of pairsOf(world)) {
      if (!hasConditions(pair)) checkConditions(pair, world.context.release, conditions);
    }
    checkPairs(world, pairs);
    number++;
    if (number % 4 === 0) misplace(world, number);
    checkAddresses(world, addresses);
    if (number % 5 !== 0) continue;
    takeAway(world, number);
    checkPairs(world, pairs);
  }
  expect(pairs.pairs).toBeGreaterThan(known);
});

test('there are many pairs, and every verdict except unknown', () => {
  expect(pairs.pairs).toBeGreaterThanOrEqual(20_000);
  for (const verdict of ['conform', 'different', 'pending']) {
    expect(pairs[verdict], verdict).toBeGreaterThan(0);
  }
});

test('every condition decides some pairs', () => {
  expect(conditions.pairs).toBeGreaterThanOrEqual(20_000);
  // Conditions that were fixed and evaluated again, and those that failed alone.
  expect(conditions.counterfactuals).toBeGreaterThanOrEqual(20_000);
  expect(conditions.alone).toBeGreaterThanOrEqual(5000);
  const names = ['type', 'selector', 'labels', 'phase', 'address', 'family', 'node', 'deletion'];
  for (const one of [...names, 'port', 'readiness']) {
    expect(conditions[one], one).toBeGreaterThan(0);
  }
});

test('many Services list an address, and many do not', () => {
  expect(addresses.listed).toBeGreaterThan(5000);
  expect(addresses.none).toBeGreaterThan(5000);
});

// Pairs of faults in one state. Two labelled changes (test/oracle/object-faults.ts) of one snapshot
// of real controllers are merged, if they do not change the same field. The state with both must
// show exactly the differences that each change makes alone, each in the finding of its own code,
// owner and cause. Where upstream's code leaves nothing to compare, or where two changes together
// make a third difference, a rule with a name says why, and is counted.

import { createWorld, takeStep } from './world.ts';
import type { Step, World } from './world.ts';
import { canonicalIP } from '../../src/model/ip.ts';
import { gone, managedBy, serviceName } from '../controlplane/faults.ts';
import { readRecords } from '../oracle/comparison.ts';
import type { Spoilt, Target } from '../oracle/object-faults.ts';
import { spoil, targetsIn, verdicts } from '../oracle/object-faults.ts';
import { chanceFrom } from '../apiserver/life.ts';
import type { CaseRecord } from '../oracle/controllers.ts';
import type { Release } from '../../src/shadow/release.ts';
import { newestRelease, releaseOf } from '../../src/shadow/release.ts';

type Json = string | number | boolean | null | Json[] | { [key: string]: Json };
interface Lists {
  readonly endpoints: readonly object[];
  readonly endpointSlices: readonly object[];
}

const endpointsManagedBy = 'endpoints.kubernetes.io/managed-by';

/** What distinguishes an element of a list; where nothing does, its place. */
function identityOf(value: Json, index: number): string {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return String(index);
  const { metadata, addresses, ip, name, port, targetRef } = value;
  const uid = (metadata as Record<string, Json> | undefined)?.uid;
  const isPort = port !== undefined && targetRef === undefined;
  const known = uid ?? addresses ?? ip ?? (isPort ? name : undefined);
  return known === undefined ? String(index) : JSON.stringify(known);
}

/** The fields of a value by path; an element of a list is in the path by its identity. */
function leavesOf(value: Json, path: string, leaves: Map<string, Json>): Map<string, Json> {
  if (typeof value !== 'object' || value === null) return leaves.set(path, value);
  leaves.set(path, Array.isArray(value) ? [] : {});
  const seen = new Set<string>();
  const entries = Array.isArray(value)
    ? value.map((item, index) => {
        let name = `[${identityOf(item, index)}]`;
        while (seen.has(name)) name += '+';
        seen.add(name);
        return [name, item] as const;
      })
    : Object.entries(value);
  for (const [name, item] of entries) leavesOf(item, `${path}\n${name}`, leaves);
  return leaves;
}

/** The value that has these fields. */
function valueOf(leaves: ReadonlyMap<string, Json>): Json {
  const made = new Map<string, Json>();
  for (const [path, leaf] of leaves) {
    const value = structuredClone(leaf);
    made.set(path, value);
    const end = path.lastIndexOf('\n');
    const parent = made.get(path.slice(0, end));
    if (end < 0 || typeof parent !== 'object' || parent === null) continue;
    if (Array.isArray(parent)) parent.push(value);
    else parent[path.slice(end + 1)] = value;
  }
  return made.get('') ?? null;
}

/** The fields that a change removed (`undefined`), replaced or added. */
function changedFields(before: ReadonlyMap<string, Json>, after: ReadonlyMap<string, Json>) {
  const changed = new Map<string, Json | undefined>();
  for (const [path, value] of after) {
    if (JSON.stringify(before.get(path)) !== JSON.stringify(value)) changed.set(path, value);
  }
  for (const path of before.keys()) if (!after.has(path)) changed.set(path, undefined);
  return changed;
}

const listsOf = ({ endpoints, endpointSlices }: Lists): Json =>
  ({ endpoints, endpointSlices }) as unknown as Json;

/** The lists with both changes; null if they change the same field, or one what the other drops. */
export function mergeChanges(base: Lists, one: Lists, other: Lists): Lists | null {
  const [before, first, second] = [base, one, other].map((it) =>
    leavesOf(listsOf(it), '', new Map()),
  ) as [Map<string, Json>, Map<string, Json>, Map<string, Json>];
  const [mine, theirs] = [first, second].map((it) => changedFields(before, it));
  if (mine === undefined || theirs === undefined || mine.size * theirs.size === 0) return null;
  const merged = new Map([...before, ...second]);
  for (const path of before.keys()) if (!second.has(path)) merged.delete(path);
  for (const [path, value] of mine) {
    if (theirs.has(path)) return null;
    const parent = path.slice(0, path.lastIndexOf('\n'));
    if (value === undefined) merged.delete(path);
    else if (!merged.has(parent)) return null;
    else merged.set(path, value);
  }
  const isWhole = [...merged.keys()].every(
    (path) => path === '' || merged.has(path.slice(0, path.lastIndexOf('\n'))),
  );
  return isWhole ? (valueOf(merged) as unknown as Lists) : null;
}

/** The differences above information by place, each with its cause. */
type Shown = ReadonlyMap<string, Difference>;

interface Difference {
  /** `namespace/name` of the Service. */
  readonly service: string;
  readonly unit: string;
  readonly code: string;
  readonly cause: string | null;
}

/** What a world shows. Throws if its findings are not those of its differences. */
function shownIn({ serviceAuditor: { audited, settle }, context: { listers } }: World): Shown {
  const shown = new Map<string, Difference>();
  const owners = new Set<string>();
  for (const [service, { items }] of audited) {
    for (const [unit, list] of items) {
      for (const { difference, severity, cause } of list) {
        const { code, subject } = difference;
        owners.add([service, code, cause].join(' '));
        if (severity === 'info') continue;
        shown.set([service, unit, code, subject].join(' '), { service, unit, code, cause });
      }
    }
  }
  const open = settle
    .open()
    .map(({ namespace, service, code, cause }) => `${namespace}/${service} ${code} ${cause ?? ''}`);
  if (open.sort().join() !== [...owners].sort().join()) {
    throw new Error(`Findings ${open.join()} of differences ${[...owners].join()}`);
  }
  // A slice has any name.
  const named = [...listers.slices.values()].map(
    ({ name, uid }) => [` ${name}`, ` ${uid}`] as const,
  );
  const withUids = (place: string): string =>
    named.reduce(
      (text, [name, uid]) => `${text} `.replaceAll(`${name} `, `${uid} `).slice(0, -1),
      place,
    );
  return new Map([...shown].map(([place, it]) => [withUids(place), it]));
}

/** A case up to the step that is spoilt. */
interface Scene {
  readonly target: Target;
  readonly release: Release;
  readonly steps: readonly Step[];
}

/** What the state shows in the last step of a case, with other outputs if any are given. */
function showWith({ steps, release }: Scene, lists: Lists | null): Shown {
  const world = createWorld(release);
  const [last, ...before] = steps.toReversed();
  for (const step of before.reverse()) takeStep(world, step);
  const outputs =
    lists === null ? {} : { endpoints: lists.endpoints, endpointslices: lists.endpointSlices };
  takeStep(world, { ...last, ...outputs } as Step);
  return shownIn(world);
}

function scenesIn(path: string): Scene[] {
  const records = readRecords(path);
  const [header] = records as unknown as { version?: string }[];
  const release = releaseOf(header?.version ?? '') ?? newestRelease;
  const nodes = new Map(
    records.flatMap((record) => (record.kind === 'nodes' ? [[record.step, record.items]] : [])),
  );
  const cases = Map.groupBy(
    records.filter((record) => record.kind === 'case'),
    (record) => record.case,
  );
  return targetsIn(records).map((target) => {
    const { base } = target;
    const lines = (cases.get(base.case) ?? []).filter(({ step }) => step <= base.step);
    const steps = lines
      .sort((a, b) => a.step - b.step)
      .map(({ services, pods, endpoints, endpointSlices: endpointslices, step }) => {
        return { nodes: nodes.get(step) ?? [], services, pods, endpoints, endpointslices };
      });
    return { target, release, steps: steps };
  });
}

interface Change {
  readonly fault: string;
  readonly service: string;
  readonly lists: Spoilt;
  readonly shown: Shown;
}

const pick = <T>(items: readonly T[], random: () => number): T | undefined =>
  items[Math.floor(random() * items.length)];

/** The lists in another order, so that faults choose other places. */
function shuffled(base: CaseRecord, random: () => number): CaseRecord {
  const copy = structuredClone(base);
  const mix = (list: unknown): void => {
    if (!Array.isArray(list)) return;
    const ranks = new Map(list.map((item) => [item, random()] as const));
    list.sort((a, b) => (ranks.get(a) ?? 0) - (ranks.get(b) ?? 0));
  };
  for (const { endpoints } of copy.endpointSlices) mix(endpoints);
  for (const { subsets } of copy.endpoints) {
    for (const { addresses } of (subsets ?? []) as { addresses?: unknown }[]) mix(addresses);
  }
  return copy;
}

const faults = [...verdicts.keys()];

/** A change of the snapshot with what it shows alone; null: the fault drawn does not apply. */
function draw(scene: Scene, service: string, number: number, random: () => number): Change | null {
  const fault = pick(faults, random) ?? '';
  const { target } = scene;
  const base = shuffled(target.base, random);
  const lists = spoil(fault, { ...target, base, service }, number);
  return lists === null ? null : { fault, service, lists, shown: showWith(scene, lists) };
}

/** What two changes of one snapshot show, each alone and both together. */
interface Pair {
  readonly scene: Scene;
  readonly changes: readonly [Change, Change];
  readonly before: Shown;
  readonly lists: Lists;
  readonly both: Shown;
}

/** A difference that a pair shows otherwise than its changes alone; `where` it is not, or is. */
interface Unlike extends Difference {
  readonly place: string;
  readonly how: 'hidden' | 'fresh' | 'another cause';
}

/** Hidden: one change shows it alone, and the state before both did not show it to end. */
function unlikeIn({ changes, before, both }: Pair): Unlike[] {
  const [one, other] = changes.map(({ shown }) => shown) as [Shown, Shown];
  const hidden = [...new Map([...one, ...other])].filter(
    ([place]) => !both.has(place) && !(before.has(place) && one.has(place) !== other.has(place)),
  );
  const fresh = [...both].filter(([place]) => !one.has(place) && !other.has(place));
  const recaused = [...both].filter(([place, { cause }]) => {
    const alone = [one.get(place), other.get(place)].filter((it) => it !== undefined);
    return alone.length > 0 && alone.every((it) => it.cause !== cause);
  });
  const as = (how: Unlike['how'], list: readonly (readonly [string, Difference])[]): Unlike[] =>
    list.map(([place, it]) => ({ ...it, place, how }));
  return [...as('hidden', hidden), ...as('fresh', fresh), ...as('another cause', recaused)];
}

const isMissing = ({ code }: Difference): boolean => code.endsWith('-missing');

interface RawSlice {
  readonly metadata: {
    readonly uid: string;
    readonly name: string;
    readonly labels?: Readonly<Record<string, string>>;
    readonly ownerReferences?: readonly { readonly name: string; readonly uid: string }[];
  };
  readonly ports?: unknown;
  readonly endpoints?: readonly { readonly addresses: readonly string[] }[] | null;
}

const slicesIn = ({ endpointSlices }: Lists): readonly RawSlice[] =>
  endpointSlices as readonly RawSlice[];

/** The uids of the slices that the controller of a Service finds. */
const writtenUids = (lists: Lists, service: string): ReadonlySet<string> =>
  new Set(
    slicesIn(lists)
      .filter((slice) => isWritten(slice))
      .filter(({ metadata: { labels } }) => labels?.[serviceName] === service.split('/')[1])
      .map(({ metadata: { uid } }) => uid),
  );

const hasMore = (these: ReadonlySet<string>, those: ReadonlySet<string>): boolean =>
  [...these].some((uid) => !those.has(uid));

/** Whether a slice names a Service that exists, by its label or as its owner. */
const isLinked = ({ metadata: { labels, ownerReferences = [] } }: RawSlice, service: string) => {
  const owners = ownerReferences.filter(({ uid }) => uid !== gone).map(({ name }) => name);
  return [labels?.[serviceName], ...owners].includes(service.split('/')[1]);
};

/** Whether the controller of a Service finds a slice: by its labels. */
const isWritten = ({ metadata: { labels = {} } }: RawSlice): boolean =>
  (labels[managedBy] ?? '').startsWith('endpointslice-');

/** The entries of an address in the slices with the label of a Service, with their ports. */
function entriesAt(
  lists: Lists,
  { service, unit }: Unlike,
  fits: (slice: RawSlice) => boolean = isWritten,
): readonly string[] {
  return slicesIn(lists)
    .filter((slice) => slice.metadata.labels?.[serviceName] === service.split('/')[1])
    .filter(fits)
    .flatMap(({ endpoints, ports }) =>
      (endpoints ?? [])
        .filter(({ addresses }) => unit.endsWith(` ${canonicalIP(addresses[0] ?? '')}`))
        .map((endpoint) => JSON.stringify([endpoint, ports])),
    );
}

/** Why two changes together do not show what each of them shows alone. */
interface Rule {
  readonly name: string;
  readonly applies: (it: Unlike, pair: Pair, alone: readonly Lists[]) => boolean;
}

export const rules: readonly Rule[] = [
  {
    // endpointslice_controller.go syncService reads the slices by their labels, and
    // reconcileByPortMapping compares the endpoints in them.
    name: 'an endpoint in no slice of the controller is missing, and nothing else',
    applies: (it, { lists, both }, alone) =>
      it.how === 'hidden' &&
      entriesAt(lists, it).length === 0 &&
      alone.some((lists) => entriesAt(lists, it).length > 0) &&
      [...both.values()].some((other) => other.service === it.service && isMissing(other)),
  },
  {
    // reconcileByPortMapping takes an endpoint out of the wanted ones where it meets it first.
    name: 'a copy of an endpoint is as good as the endpoint',
    applies: (it, { lists }) =>
      it.how === 'hidden' && isMissing(it) && entriesAt(lists, it).length > 0,
  },
  {
    // The same: the others are removed, whatever is wrong with them.
    name: 'of the entries of an endpoint one is kept, and the others are too much',
    applies: (it, { lists, both }) =>
      entriesAt(lists, it).length > 1 &&
      [...both.values()].some(({ service, unit }) => service === it.service && unit === it.unit),
  },
  {
    // kube-proxy merges the slices of all managers, pkg/proxy/endpointslicecache.go of
    // kubernetes@v1.36.3 addEndpoints.
    name: 'a change of one slice contradicts the slice of another manager',
    applies: (it, { lists }) =>
      it.how === 'fresh' &&
      it.unit.startsWith('input ') &&
      new Set(entriesAt(lists, it, () => true)).size > 1,
  },
  {
    // The controller reads its slices by their labels, and the garbage collector needs an owner.
    name: 'a slice of another manager, or without label and owner, is not compared',
    applies: ({ how, place, service }, { lists }) =>
      how === 'hidden' &&
      slicesIn(lists)
        .filter(({ metadata: { uid } }) => place.includes(` slice ${uid} `))
        .every((slice) => !isWritten(slice) || !isLinked(slice, service)),
  },
  {
    // util/endpointslice_tracker.go StaleSlices: while a slice that it wrote is gone from its
    // cache, every sync of the Service ends in an error.
    name: 'a slice without its labels keeps the controller from all that differs',
    applies: ({ how, cause, service }, { scene: { target }, lists }) =>
      how === 'another cause' &&
      cause === 'slice-relabelled' &&
      hasMore(writtenUids(target.base, service), writtenUids(lists, service)),
  },
  {
    // The first snapshot has no history, and nothing in it links the slice with the Service.
    name: 'without history, a slice without label and owner shows nothing of the Service',
    applies: ({ how, cause, service }, { scene: { steps, target }, lists }) => {
      const before = writtenUids(target.base, service);
      const linked = slicesIn(lists).filter((slice) => isLinked(slice, service));
      const all = new Set(linked.map(({ metadata: { uid } }) => uid));
      return (
        how === 'another cause' && cause === null && steps.length === 1 && hasMore(before, all)
      );
    },
  },
  {
    // endpoints_controller.go syncService writes the label whatever else it writes.
    name: 'Endpoints without the label of the controller were written by another client',
    applies: ({ how, cause, unit, service }, { lists: { endpoints } }) =>
      how === 'another cause' &&
      cause === 'hand-edited' &&
      unit.startsWith('endpoints ') &&
      (endpoints as readonly RawSlice[]).some(
        ({ metadata: { name, labels } }) =>
          name === service.split('/')[1] && labels?.[endpointsManagedBy] === undefined,
      ),
  },
  {
    // The same: a sync that ends in an error creates no slice.
    name: 'a new slice of the controller proves that its syncs do not fail',
    applies: ({ how, cause, service }, { scene: { target }, lists }) => {
      const known = writtenUids(target.base, service);
      const isNew = hasMore(writtenUids(lists, service), known);
      return how === 'another cause' && cause === null && isNew;
    },
  },
];

/** Merges and compares pairs until there are `count`. */
export function runPairs(
  paths: readonly string[],
  count: number,
  seed: number,
  allowed: readonly Rule[] = rules,
) {
  const random = chanceFrom(seed);
  const scenes = paths.flatMap(scenesIn);
  const several = scenes.filter(({ target }) => target.base.services.length > 1);
  const counts = { pairs: 0, violations: 0, otherService: 0, alike: 0, overlapping: 0 };
  const legal = new Map<string, number>();
  const missed: string[] = [];
  for (let tries = 0; counts.pairs < count && tries < count * 200; tries++) {
    const isOne = random() < 0.5;
    const scene = pick(isOne ? scenes : several, random);
    if (scene === undefined) break;
    const { base, service } = scene.target;
    const names = base.services.map(({ metadata }) => metadata.name);
    const second = isOne ? service : (pick(names, random) ?? service);
    const one = draw(scene, service, 1, random);
    const other = one === null ? null : draw(scene, second, 2, random);
    if (one === null || other === null) continue;
    const lists = mergeChanges(base, one.lists, other.lists);
    if (lists === null) {
      counts.overlapping++;
      continue;
    }
    counts.pairs++;
    const changes = [one, other] as const;
    const pair = {
      scene,
      changes,
      before: showWith(scene, null),
      lists,
      both: showWith(scene, lists),
    };
    if (one.service !== other.service) counts.otherService++;
    if (changes.every(({ fault }) => verdicts.get(fault) === 'violation')) counts.violations++;
    const unlike = unlikeIn(pair);
    if (unlike.length === 0) counts.alike++;
    for (const it of unlike) {
      const rule = allowed.find(({ applies }) => applies(it, pair, [one.lists, other.lists]));
      if (rule !== undefined) legal.set(rule.name, (legal.get(rule.name) ?? 0) + 1);
      else {
        const { case: name, step } = base;
        const names = changes.map(({ fault, service }) => `${fault} of ${service}`);
        missed.push(
          `${name} step ${step}: ${names.join(' and ')}: ${it.how} ${it.place} ${it.cause ?? ''}`,
        );
      }
    }
  }
  return { bases: scenes.length, ...counts, legal, missed };
}

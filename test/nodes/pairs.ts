// Pairs of faults on one node. The edits of two labelled faults are applied to the rules of the
// recording that both were made from, if they do not overlap. Each fault must be found at its place
// beside the other, unless no packet shows it there: every packet that it changes alone has the
// same outcome with both faults as with the other one.
//
//   npm run -s pairs -- test/nodes/faults/iptables-nft-node-a [--of 8 --nth 0]
//   npm run -s pairs -- --objects test/nodes/faults/v1.37.2-nftables-node-a
//
// With --objects, pairs of a fault of the rules and a change of the slices of one Service
// (test/oracle/object-faults.ts) that kube-proxy has not followed: both must be found, and nothing
// else. The recordings have no pods, so each endpoint of a slice gets one.

import { readdirSync, readFileSync } from 'node:fs';
import { basename, join, resolve } from 'node:path';
import { parseArgs } from 'node:util';

import { areRulesGone } from '../../src/audit/node/aggregate.ts';
import { behaviorOfRules } from '../../src/audit/node/observation.ts';
import { probeSender, probesOf, strayProbes } from '../../src/audit/node/probes.ts';
import { joinHostPort } from '../../src/model/ip.ts';
import type { Packet } from '../../src/model/proxy-config.ts';
import { parseIptablesSave } from '../../src/rules/parse/iptables-save.ts';
import { parseNft } from '../../src/rules/parse/nft-ruleset.ts';
import { wordsOf } from '../../src/rules/report/digest.ts';
import type { RuleSet } from '../../src/rules/ruleset.ts';
import { mergeRuleSets } from '../../src/rules/ruleset.ts';
import { chanceFrom } from '../apiserver/life.ts';
import type { Thing } from '../controlplane/controlplane.ts';
import type { Slice } from '../controlplane/faults.ts';
import { serviceName } from '../controlplane/faults.ts';
import { spoil, verdicts } from '../oracle/object-faults.ts';
import type { Folder } from './folder.ts';
import { readBytes, readFolder } from './folder.ts';
import { expectedOf, forwardingOf, inputOf, summarizeNode } from './walk.ts';

const files = ['iptables-save.txt', 'ip6tables-save.txt', 'nft.json'] as const;

type FileName = (typeof files)[number];

/** Lines of a dump by file; a line of nft.json is an object or an element of a set. */
type DumpLines = Readonly<Partial<Record<FileName, readonly string[]>>>;

interface Edit {
  /** The first line of the base that it replaces. */
  readonly at: number;
  readonly removed: number;
  readonly added: readonly string[];
}

interface NftObject {
  readonly handle?: number;
  readonly elem?: readonly unknown[];
}

function nftLines(text: string): string[] {
  const { nftables } = JSON.parse(text) as { nftables: Record<string, NftObject>[] };
  return nftables.flatMap((entry) => {
    const [kind = ''] = Object.keys(entry);
    const { handle, elem = [], ...object } = entry[kind] ?? {};
    if (handle === undefined && kind !== 'metainfo') throw new Error(`${kind} without a handle`);
    // Packets added the elements with a time.
    const kept = elem.map((it) => JSON.stringify(it)).filter((text) => !text.includes('"expires"'));
    const elements = kept.map((text) => `+${text}`).sort();
    return [JSON.stringify({ [kind]: object }), ...elements];
  });
}

/** The text of a dump that has these lines. */
function textOfLines(name: FileName, lines: readonly string[]): string {
  if (name !== 'nft.json') return `${lines.join('\n')}\n`;
  const objects: Record<string, { elem?: unknown[] }>[] = [];
  for (const line of lines) {
    if (!line.startsWith('+')) objects.push(JSON.parse(line) as (typeof objects)[number]);
    else {
      const [last] = Object.values(objects.at(-1) ?? {});
      if (last !== undefined) (last.elem ??= []).push(JSON.parse(line.slice(1)));
    }
  }
  return JSON.stringify({ nftables: objects });
}

/** Reads the dump of a folder, without times, counters and handles. */
export function linesOf(path: string): DumpLines {
  const found = files.flatMap((name) => {
    const text = readBytes(join(path, name))?.toString();
    if (text === undefined) return [];
    const plain = text.replace(/^#.*\n/gm, '').replace(/\[\d+:\d+\]/g, '[0:0]');
    return [[name, name === 'nft.json' ? nftLines(text) : plain.trim().split('\n')] as const];
  });
  return Object.fromEntries(found);
}

/** The edits from one list of lines to another: a shortest path in the graph of Myers. */
export function editsBetween(base: readonly string[], other: readonly string[]): Edit[] {
  const ends: Map<number, number>[] = [];
  const reach = new Map<number, number>([[1, 0]]);
  const total = base.length + other.length;
  for (let cost = 0; cost <= total; cost++) {
    ends.push(new Map(reach));
    for (let k = -cost; k <= cost; k += 2) {
      const isDown = k === -cost || (k !== cost && at(reach, k - 1) < at(reach, k + 1));
      let x = isDown ? at(reach, k + 1) : at(reach, k - 1) + 1;
      while (x < base.length && x - k < other.length && base[x] === other[x - k]) x++;
      reach.set(k, x);
      if (x >= base.length && x - k >= other.length) return editsOnPath(ends, base, other);
    }
  }
  throw new Error('No path');
}

const at = (reach: ReadonlyMap<number, number>, k: number): number => reach.get(k) ?? -1;

function editsOnPath(
  ends: readonly ReadonlyMap<number, number>[],
  base: readonly string[],
  other: readonly string[],
): Edit[] {
  const steps: Edit[] = [];
  let [x, y] = [base.length, other.length];
  for (let cost = ends.length - 1; cost > 0; cost--) {
    const reach = ends[cost] ?? new Map<number, number>();
    const k = x - y;
    const isDown = k === -cost || (k !== cost && at(reach, k - 1) < at(reach, k + 1));
    const before = isDown ? k + 1 : k - 1;
    x = at(reach, before);
    y = x - before;
    const line = other[y] ?? '';
    steps.unshift(isDown ? { at: x, removed: 0, added: [line] } : { at: x, removed: 1, added: [] });
  }
  return joined(steps);
}

/** Joins edits of neighboring lines. */
function joined(steps: readonly Edit[]): Edit[] {
  const edits: Edit[] = [];
  for (const step of steps) {
    const last = edits.at(-1);
    if (last === undefined || last.at + last.removed < step.at) edits.push(step);
    else {
      edits[edits.length - 1] = {
        at: last.at,
        removed: last.removed + step.removed,
        added: [...last.added, ...step.added],
      };
    }
  }
  return edits;
}

type DumpEdits = Readonly<Partial<Record<FileName, readonly Edit[]>>>;

export function dumpEdits(base: DumpLines, other: DumpLines): DumpEdits {
  const entries = Object.entries(base) as [FileName, readonly string[]][];
  return Object.fromEntries(
    entries.map(([name, lines]) => [name, editsBetween(lines, other[name] ?? [])]),
  );
}

/** The base with both lists of edits; null if they overlap. An edit that both have counts once. */
export function applyBoth(base: DumpLines, first: DumpEdits, second: DumpEdits): DumpLines | null {
  const merged: [FileName, readonly string[]][] = [];
  for (const [name, lines] of Object.entries(base) as [FileName, readonly string[]][]) {
    const texts = new Set((first[name] ?? []).map((edit) => JSON.stringify(edit)));
    const more = (second[name] ?? []).filter((edit) => !texts.has(JSON.stringify(edit)));
    const edits = [...(first[name] ?? []), ...more].sort((a, b) => b.at - a.at);
    const result = [...lines];
    for (const [index, edit] of edits.entries()) {
      const above = edits[index + 1];
      if (above !== undefined && above.at + above.removed >= edit.at) return null;
      result.splice(edit.at, edit.removed, ...edit.added);
    }
    merged.push([name, result]);
  }
  return Object.fromEntries(merged);
}

function rulesetOf(lines: DumpLines): RuleSet {
  const parsed = (Object.entries(lines) as [FileName, readonly string[]][]).map(([name, list]) => {
    const bytes = Buffer.from(textOfLines(name, list));
    if (name === 'nft.json') return parseNft(bytes);
    return parseIptablesSave(bytes, name === 'iptables-save.txt' ? 'ip' : 'ip6');
  });
  return mergeRuleSets(parsed);
}

/** A fault of a node alone. */
interface Single {
  readonly name: string;
  readonly about: string;
  readonly edits: DumpEdits;
  readonly behavior: ReturnType<typeof behaviorOfRules>;
  /** Packets that it changes, by Service port. */
  readonly changed: readonly { readonly packet: Packet; readonly port: string }[];
  /** Of the findings that it makes. */
  readonly ids: ReadonlySet<string>;
}

/** All that pairs of faults of one recording share. */
function sceneOf(basePath: string) {
  const folder = readFolder(basePath);
  const expected = forwardingOf(folder);
  if (expected === null) throw new Error(`${basePath} has no objects`);
  const { forwarding, node } = expected;
  const sender = probeSender(forwarding, node);
  const packets = forwarding.frontends.flatMap((frontend) =>
    [...probesOf(sender, frontend), ...strayProbes(sender, frontend)].map(({ packet }) => {
      return { packet, port: frontend.port.name };
    }),
  );
  const lines = linesOf(basePath);
  const behaviorOf = (dump: DumpLines) => behaviorOfRules(rulesetOf(dump), folder.node);
  const base = behaviorOf(lines);
  const before = new Map(packets.map(({ packet }) => [packet, wordsIn(base, packet)]));
  const findingsWith = (rules: Single['behavior'], wanted = forwarding) =>
    summarizeNode({ forwarding: wanted, node, rules }).findings.filter(
      ({ severity }) => severity !== 'info',
    );
  const singleOf = (path: string): Single | null => {
    const text = readFileSync(join(path, 'fault.json'), 'utf8');
    const fault = JSON.parse(text) as { about: string; violation: boolean; base: string };
    if (!fault.violation || resolve(path, fault.base) !== resolve(basePath)) return null;
    const dump = linesOf(path);
    const behavior = behaviorOf(dump);
    const changed = packets.filter(
      ({ packet }) => wordsIn(behavior, packet) !== before.get(packet),
    );
    const ids = new Set(findingsWith(behavior).map(({ id }) => id));
    const { about } = fault;
    return { name: basename(path), about, edits: dumpEdits(lines, dump), behavior, changed, ids };
  };
  return { lines, behaviorOf, findingsWith, singleOf };
}

const wordsIn = (behavior: Single['behavior'], packet: Packet): string => {
  const outcome = behavior.walk(packet);
  return outcome === null ? '' : wordsOf(outcome);
};

/** Whether a packet shows the fault beside the other one. */
function isShown(fault: Single, other: Single, both: Single['behavior']): boolean {
  const { about, changed } = fault;
  return changed.some(
    ({ packet, port }) =>
      (about === '' || port === about) && wordsIn(both, packet) !== wordsIn(other.behavior, packet),
  );
}

type Found = ReturnType<ReturnType<typeof sceneOf>['findingsWith']>;

/** Whether findings about both faults include this one, at its place. */
const isFound = ({ about, ids }: Single, found: Found): boolean =>
  found.some(({ id, nodeWide, ports }) =>
    about === '' ? nodeWide || ids.has(id) : ports.has(about),
  );

function checkPairs(path: string, every = 1, nth = 0, report = console.log) {
  const counts = { faults: 0, pairs: 0, overlapping: 0, checked: 0, hidden: 0, missed: 0 };
  const paths = readdirSync(path).map((name) => join(path, name));
  const [first = ''] = paths;
  const { base } = JSON.parse(readFileSync(join(first, 'fault.json'), 'utf8')) as { base: string };
  const scene = sceneOf(resolve(first, base));
  const singles = paths.flatMap((name) => scene.singleOf(name) ?? []);
  counts.faults = singles.length;
  let turn = 0;
  for (const [index, one] of singles.entries()) {
    for (const other of singles.slice(index + 1)) {
      if (turn++ % every !== nth) continue;
      counts.pairs++;
      const dump = applyBoth(scene.lines, one.edits, other.edits);
      if (dump === null) {
        counts.overlapping++;
        continue;
      }
      const both = scene.behaviorOf(dump);
      const found = scene.findingsWith(both);
      for (const [fault, beside] of [
        [one, other],
        [other, one],
      ] as const) {
        counts.checked++;
        if (!isShown(fault, beside, both)) counts.hidden++;
        else if (!isFound(fault, found)) {
          counts.missed++;
          const texts = found.map(({ code, id }) => `${code} ${id}`);
          report(JSON.stringify({ missed: fault.name, beside: beside.name, found: texts }));
        }
      }
    }
  }
  return counts;
}

/** A change of the slices of a Service, and what the node must do after it. */
interface ObjectChange {
  readonly name: string;
  /** `namespace/name`. */
  readonly service: string;
  readonly forwarding: NonNullable<ReturnType<typeof forwardingOf>>['forwarding'];
}

type RawList = readonly Thing[];

/** The pods of the endpoints of a namespace, each with the labels that select it. */
function podsOf(services: RawList, slices: RawList): Thing[] {
  const pods = new Map<string, Thing>();
  for (const { metadata, endpoints } of slices as readonly Slice[]) {
    const service = services.find(
      ({ metadata: { name } }) => name === metadata.labels?.[serviceName],
    );
    const { selector } = (service?.spec ?? {}) as { selector?: Record<string, string> };
    for (const { addresses, nodeName, targetRef, conditions } of endpoints ?? []) {
      const uid = targetRef?.uid;
      if (selector === undefined || uid === undefined) continue;
      const known = pods.get(uid)?.metadata;
      const ready = { type: 'Ready', status: conditions.ready === true ? 'True' : 'False' };
      const podIPs = addresses.map((ip) => ({ ip }));
      pods.set(uid, {
        metadata: {
          ...{ name: targetRef?.name ?? uid, namespace: metadata.namespace ?? '', uid },
          ...(conditions.terminating === true ? { deletionTimestamp: '2026-01-01T00:00:00Z' } : {}),
          labels: { ...known?.labels, ...selector },
        },
        spec: { nodeName },
        status: { phase: 'Running', podIPs, conditions: [ready] },
      });
    }
  }
  return [...pods.values()];
}

/** Every fault of an object that a Service of the recording can have, each at one Service. */
function objectChanges(folder: Folder, seed: number): ObjectChange[] {
  const random = chanceFrom(seed);
  const found: ObjectChange[] = [];
  inputOf(folder, (lists) => {
    const listOf = (resource: 'services' | 'endpointslices' | 'nodes'): RawList => {
      const list = lists[resource] ?? [];
      return ('items' in list ? list.items : list) as RawList;
    };
    const [services, slices, nodes] = [
      listOf('services'),
      listOf('endpointslices'),
      listOf('nodes'),
    ];
    for (const [fault] of verdicts) {
      const order = services.map((service) => ({ service, rank: random() }));
      for (const { service } of order.sort((a, b) => a.rank - b.rank)) {
        const { name, namespace = '' } = service.metadata;
        const within = (list: RawList): Thing[] =>
          list.filter(({ metadata }) => metadata.namespace === namespace);
        const [own, near] = [within(slices), within(services)];
        const base = {
          kind: 'case',
          case: namespace,
          step: 0,
          ops: [],
          services: near,
          pods: podsOf(near, own),
          endpoints: [],
          endpointSlices: own,
        } as const;
        const spoilt = spoil(fault, { base, service: name, nodes }, 1);
        if (spoilt === null) continue;
        const others = slices.filter((slice) => !own.includes(slice));
        const endpointslices = [...others, ...spoilt.endpointSlices];
        const input = inputOf(folder, (all) => ({ ...all, endpointslices }));
        if (input === null) throw new Error(`${folder.path} has no objects`);
        const forwarding = expectedOf(folder, input);
        found.push({ name: fault, service: `${namespace}/${name}`, forwarding });
        break;
      }
    }
    return lists;
  });
  return found;
}

/** The differences in findings above information, by what identifies them. */
const differencesIn = (found: Found, isShown = (_: Found[number]['differences'][number]) => true) =>
  new Set(
    found
      .flatMap(({ differences }) => differences)
      .filter((it) => !it.harmless && isShown(it))
      .map(({ code, port, frontend, origin }) => {
        return [port?.name ?? '', frontend, origin, code].join(' ');
      }),
  );

const lacks = (all: ReadonlySet<string>, known: ReadonlySet<string>): string[] =>
  [...all].filter((key) => !known.has(key));

const frontendText = ({ dst, dport, protocol }: Packet): string =>
  `${joinHostPort(dst, dport)}/${protocol}`;

/** Pairs of each fault of the rules with each change of an object. */
export function checkObjectPairs(
  path: string,
  seed: number,
  report: (text: string) => unknown = console.log,
) {
  const counts = {
    faults: 0,
    objects: 0,
    pairs: 0,
    followed: 0,
    hidden: 0,
    split: 0,
    missed: 0,
    false: 0,
  };
  const paths = readdirSync(path).map((name) => join(path, name));
  const [first = ''] = paths;
  const { base } = JSON.parse(readFileSync(join(first, 'fault.json'), 'utf8')) as { base: string };
  const basePath = resolve(first, base);
  const scene = sceneOf(basePath);
  const singles = paths.flatMap((name) => scene.singleOf(name) ?? []);
  const changes = objectChanges(readFolder(basePath), seed);
  Object.assign(counts, { faults: singles.length, objects: changes.length });
  const sound = scene.behaviorOf(scene.lines);
  const alone = new Map(singles.map((one) => [one, scene.findingsWith(one.behavior)]));
  for (const { name, service, forwarding } of changes) {
    const ofObject = scene.findingsWith(sound, forwarding);
    for (const [one, ofRules] of alone) {
      counts.pairs++;
      const changed = new Set(one.changed.map(({ packet }) => frontendText(packet)));
      const found = scene.findingsWith(one.behavior, forwarding);
      const all = differencesIn(found);
      const ids = new Set([...ofRules, ...ofObject].map(({ id }) => id));
      const say = (problem: string): void => {
        const texts = found.map(({ id, ports }) => `${id} ${[...ports].join()}`);
        report(JSON.stringify({ problem, rules: one.name, object: name, service, texts }));
      };
      // What the other fault alone does not show, at packets that it does not change. Without
      // rules, each packet that is not translated has the effect of that.
      const isGone = areRulesGone(found);
      const own = differencesIn(found, ({ untranslated }) => !isGone || untranslated !== true);
      const byObject = lacks(own, differencesIn(ofRules)).filter(
        (text) => !changed.has(text.split(' ')[1] ?? ''),
      );
      const byRules = lacks(all, differencesIn(ofObject));
      const isOfService = (text: string): boolean => text.startsWith(`${service}:`);
      const isFoundThere = found.some(({ ports }) => [...ports].some(isOfService));
      if (ofObject.length === 0) counts.followed++;
      else if (!byObject.some(isOfService)) counts.hidden++;
      else if (!isFoundThere) {
        counts.missed++;
        say('the change of the object is missed');
      }
      if (!byRules.some((text) => one.about === '' || text.startsWith(one.about))) counts.hidden++;
      else if (!isFound(one, found)) {
        counts.missed++;
        say('the fault of the rules is missed');
      }
      // A fault of the node may have several findings beside a change of an object.
      const isSplit = found.some(({ id, nodeWide }) => !nodeWide && !ids.has(id));
      const strange = lacks(new Set(byRules), differencesIn(ofRules));
      if (isSplit) counts.split++;
      if (strange.some((text) => !isOfService(text))) {
        counts.false++;
        say(`false: ${strange.join(', ')}`);
      }
    }
  }
  return counts;
}

if (import.meta.main) {
  const { positionals, values } = parseArgs({
    allowPositionals: true,
    options: {
      of: { type: 'string', default: '1' },
      nth: { type: 'string', default: '0' },
      objects: { type: 'boolean', default: false },
      seed: { type: 'string', default: '1' },
    },
  });
  let wrong = 0;
  for (const path of positionals) {
    const counts = values.objects
      ? checkObjectPairs(path, Number(values.seed))
      : checkPairs(path, Number(values.of), Number(values.nth));
    wrong += counts.missed + ('false' in counts ? counts.false : 0);
    console.log(JSON.stringify({ path, ...counts }));
  }
  if (wrong > 0) process.exitCode = 1;
}

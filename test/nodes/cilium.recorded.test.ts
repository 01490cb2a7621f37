// Faults of Cilium's maps, made in a dump as bpftool prints it, and legal variations of it, at
// frontends of every recording. A fault is about a Service port; the audit must find it there. A
// legal variation must yield nothing above information. Layouts: src/rules/cilium/bpftool-dump.ts.

import { join } from 'node:path';

import { expect, test } from 'vitest';

import { mapsProgram } from '../../src/agent/collect.ts';
import { readReport } from '../../src/agent/client/report.ts';
import type { NodeFacts } from '../../src/agent/node-facts.ts';
import { createReport, type NodeRuleSet, readDumps, walkerAt } from '../../src/agent/report.ts';
import { auditNode, type NodeAudit } from '../../src/audit/node/audit-node.ts';
import { createClassAudit } from '../../src/audit/node/node-class.ts';
import {
  behaviorOfMaps,
  behaviorOfReport,
  type NodeInput,
  observeDumps,
  type ReportedBehavior,
} from '../../src/audit/node/observation.ts';
import { createProxyCache } from '../../src/audit/node/proxy-cache.ts';
import { readCiliumConfig } from '../../src/cluster/decode/cilium-config.ts';
import { formatAddress } from '../../src/model/ip.ts';
import { nodeForwarding } from '../../src/shadow/cilium/node-forwarding.ts';
import { defaultProxyConfig, type Packet } from '../../src/model/proxy-config.ts';
import { runToEnd } from '../../src/model/run-to-end.ts';
import { readBpftoolBatch, readBpftoolDump } from '../../src/rules/cilium/bpftool-dump.ts';
import { readRulesDump } from '../../src/rules/parse/rules-dump.ts';
import { packetText } from '../../src/rules/report/digest.ts';
import { decodeOutcomes, encodeOutcomes } from '../../src/rules/report/outcome-json.ts';
import type { Forwarding } from '../../src/shadow/forwarding.ts';
import { storeOf } from '../build.ts';
import { byteText } from '../cilium/load-balancer.ts';
import { ciliumFoldersBelow } from './folder.ts';
import { ciliumInput, ciliumMaps, ciliumObjects, summarizeAudit, summarizeNode } from './walk.ts';

/** An entry with numbers for bytes. */
interface RawEntry {
  key: number[];
  value: number[];
}

type RawMaps = Map<string, RawEntry[]>;

function parseMaps(text: string): RawMaps {
  const parsed = JSON.parse(text) as Record<string, { key: string[]; value: string[] }[]>;
  const bytes = (texts: string[]): number[] => texts.map(Number);
  return new Map(
    Object.entries(parsed).map(([name, list]) => [
      name,
      list.map(({ key, value }) => ({ key: bytes(key), value: bytes(value) })),
    ]),
  );
}

const copyMaps = (maps: RawMaps): RawMaps =>
  new Map(
    [...maps].map(([name, list]) => [
      name,
      list.map(({ key, value }) => ({ key: [...key], value: [...value] })),
    ]),
  );

const byteTexts = Array.from({ length: 256 }, (_, byte) => byteText(byte));

function printMaps(maps: RawMaps): string {
  const texts = (bytes: number[]) => bytes.map((byte) => byteTexts[byte]);
  const entries = [...maps].map(([name, list]) => [
    name,
    list.map(({ key, value }) => ({ key: texts(key), value: texts(value) })),
  ]);
  return JSON.stringify(Object.fromEntries(entries));
}

/** A frontend in the maps, in one scope. */
interface RawFrontend {
  readonly maps: RawMaps;
  /** `cilium_lb4_` or `cilium_lb6_` */
  readonly prefix: string;
  readonly master: RawEntry;
  /** In their order. */
  readonly slots: readonly RawEntry[];
  /** `ip:port/protocol`, from the bytes. */
  readonly place: string;
  readonly isUnspecified: boolean;
}

const widthOf = (prefix: string): number => (prefix === 'cilium_lb4_' ? 4 : 16);
const little = (bytes: readonly number[], at: number): number =>
  (bytes[at] ?? 0) + 256 * (bytes[at + 1] ?? 0);

const listOf = (maps: RawMaps, name: string): RawEntry[] => {
  const list = maps.get(name) ?? [];
  maps.set(name, list);
  return list;
};

/** All frontends of the external scope, without wildcard entries. */
function rawFrontends(maps: RawMaps): RawFrontend[] {
  return ['cilium_lb4_', 'cilium_lb6_'].flatMap((prefix) => {
    const width = widthOf(prefix);
    const services = listOf(maps, `${prefix}services_v2`);
    const slotOf = ({ key }: RawEntry): number => little(key, width + 2);
    const nameOf = ({ key }: RawEntry): string =>
      [...key.slice(0, width + 2), ...key.slice(width + 4)].join(' ');
    const groups = Map.groupBy(services, nameOf);
    return [...groups.values()].flatMap((group): RawFrontend[] => {
      const [master, ...slots] = group.toSorted((a, b) => slotOf(a) - slotOf(b));
      if (master === undefined || slotOf(master) !== 0 || master.key[width + 4] === 0) return [];
      if (master.key[width + 5] !== 0) return [];
      const address = master.key.slice(0, width);
      return [
        {
          ...{ maps, prefix, master, slots },
          place: `${address.join('.')} ${master.key[width]} ${master.key[width + 1]}`,
          isUnspecified: address.every((byte) => byte === 0),
        },
      ];
    });
  });
}

const countOf = ({ master }: RawFrontend): number => little(master.value, 4);
const idOf = ({ master }: RawFrontend): number[] => master.value.slice(6, 8);
const has = ({ master }: RawFrontend, flag: number): boolean =>
  (little(master.value, 8) & flag) !== 0;
const flip = ({ master }: RawFrontend, flag: number): void => {
  const flags = little(master.value, 8) ^ flag;
  master.value.splice(8, 2, flags & 255, flags >> 8);
};
const setCount = ({ master }: RawFrontend, count: number): void => {
  master.value.splice(4, 2, count & 255, count >> 8);
};
const isEqual = (some: readonly number[], others: readonly number[]): boolean =>
  some.join() === others.join();

function remove(list: RawEntry[], isGone: (entry: RawEntry) => boolean): void {
  const kept = list.filter((entry) => !isGone(entry));
  list.splice(0, list.length, ...kept);
}

const servicesOf = ({ maps, prefix }: RawFrontend) => listOf(maps, `${prefix}services_v2`);
const backendsOf = ({ maps, prefix }: RawFrontend) => listOf(maps, `${prefix}backends_v3`);
const reverseOf = ({ maps, prefix }: RawFrontend) => listOf(maps, `${prefix}reverse_nat`);
const rangesOf = ({ maps, prefix }: RawFrontend) => listOf(maps, `${prefix}source_range`);
const maglevOf = ({ maps, prefix }: RawFrontend) => listOf(maps, `${prefix}maglev`);
const matchesOf = ({ maps }: RawFrontend) => listOf(maps, 'cilium_lb_affinity_match');

const backendOf = (frontend: RawFrontend): RawEntry | undefined =>
  backendsOf(frontend).find(({ key }) => isEqual(key, frontend.slots[0]?.value.slice(0, 4) ?? []));

const isOfFrontend = (frontend: RawFrontend, at: number) => (entry: RawEntry) =>
  isEqual(entry.key.slice(at, at + 2), idOf(frontend));

interface MapFault {
  readonly name: string;
  readonly isViolation: boolean;
  /** Whether the fault can be made at this frontend. */
  readonly fits: (frontend: RawFrontend) => boolean;
  readonly make: (frontend: RawFrontend) => void;
}

/**
 * Sockets use the other scope of a node port with two of them, and in one recording no node port
 * below 31000.
 */
const isUsed = (it: RawFrontend): boolean =>
  !it.isUnspecified || (!has(it, 1 << 13) && portOf(it) >= 31_000);

const portOf = ({ prefix, master: { key } }: RawFrontend): number =>
  (key[widthOf(prefix)] ?? 0) * 256 + (key[widthOf(prefix) + 1] ?? 0);

const flags = { affinity: 1 << 4, routable: 1 << 6, ranges: 1 << 7, host: 1 << 3, dsr: 1 << 15 };

const isServed = (it: RawFrontend): boolean =>
  countOf(it) > 0 && !has(it, flags.host) && isUsed(it);
const isShared = (it: RawFrontend): boolean => isServed(it) && countOf(it) > 1;
/** Packets from outside go to a random slot. */
const hasTable = (it: RawFrontend): boolean => maglevOf(it).some(isOfFrontend(it, 0));
const isOutside = (it: RawFrontend): boolean => isServed(it) && has(it, flags.routable);

const violation = (name: string, fits: MapFault['fits'], make: MapFault['make']): MapFault => ({
  ...{ name, isViolation: true, fits, make },
});
const legal = (name: string, fits: MapFault['fits'], make: MapFault['make']): MapFault => ({
  ...{ name, isViolation: false, fits, make },
});

const mapFaults: readonly MapFault[] = [
  violation('a frontend is missing', isServed, (it) => {
    remove(servicesOf(it), (entry) => entry === it.master);
  }),
  violation('a slot is missing', isShared, (it) => {
    remove(servicesOf(it), (entry) => entry === it.slots[0]);
  }),
  violation('a slot has a backend that does not exist', isServed, (it) => {
    it.slots[0]?.value.splice(0, 4, 255, 255, 255, 0);
  }),
  violation('a backend is missing', isServed, (it) => {
    const backend = backendOf(it);
    remove(backendsOf(it), (entry) => entry === backend);
  }),
  violation('a backend has the address of a pod that is gone', isServed, (it) => {
    const { value } = backendOf(it) ?? { value: [] };
    value[widthOf(it.prefix) - 1] = (value[widthOf(it.prefix) - 1] ?? 0) ^ 128;
  }),
  violation('a backend has a wrong port', isServed, (it) => {
    const { value } = backendOf(it) ?? { value: [] };
    value[widthOf(it.prefix) + 1] = (value[widthOf(it.prefix) + 1] ?? 0) ^ 1;
  }),
  violation('a count is one too low', isShared, (it) => setCount(it, countOf(it) - 1)),
  violation('a count is 0', isServed, (it) => setCount(it, 0)),
  violation('a count is one too high', isServed, (it) => setCount(it, countOf(it) + 1)),
  violation('one backend has two slots', isShared, (it) => {
    it.slots[1]?.value.splice(0, 4, ...(it.slots[0]?.value.slice(0, 4) ?? []));
  }),
  violation(
    'a reverse NAT entry has a wrong port',
    (it) => isServed(it) && !it.isUnspecified,
    (it) => {
      const entry = reverseOf(it).find(isOfFrontend(it, 0));
      const last = (entry?.value.length ?? 0) - 1;
      if (entry !== undefined) entry.value[last] = (entry.value[last] ?? 0) ^ 1;
    },
  ),
  violation(
    'a reverse NAT entry is missing',
    (it) => isServed(it) && !it.isUnspecified,
    (it) => {
      remove(reverseOf(it), isOfFrontend(it, 0));
    },
  ),
  violation(
    'a source range is missing',
    (it) => isOutside(it) && has(it, flags.ranges),
    (it) => {
      remove(rangesOf(it), isOfFrontend(it, 4));
    },
  ),
  violation(
    'a source range is left over',
    (it) => isOutside(it) && has(it, flags.ranges),
    (it) => {
      const address =
        widthOf(it.prefix) === 4 ? [9, 9, 9, 0] : [0x20, 1, 9, ...Array<number>(13).fill(0)];
      const key = [32 + 24, 0, 0, 0, ...idOf(it), 0, 0, ...address];
      rangesOf(it).push({ key, value: [0] });
    },
  ),
  violation(
    'source ranges are not checked',
    (it) => isOutside(it) && has(it, flags.ranges),
    (it) => {
      flip(it, flags.ranges);
    },
  ),
  violation(
    'session affinity is off',
    (it) => isServed(it) && has(it, flags.affinity),
    (it) => {
      flip(it, flags.affinity);
    },
  ),
  violation(
    'session affinity has another time',
    (it) => isServed(it) && has(it, flags.affinity),
    (it) => {
      it.master.value[1] = (it.master.value[1] ?? 0) ^ 1;
    },
  ),
  violation(
    'an affinity match is missing',
    (it) => isServed(it) && matchesOf(it).some(isOfFrontend(it, 4)),
    (it) => {
      const first = matchesOf(it).find(isOfFrontend(it, 4));
      remove(matchesOf(it), (entry) => entry === first);
    },
  ),
  violation(
    'an affinity match has a backend of another Service',
    (it) => isServed(it) && has(it, flags.affinity),
    (it) => {
      const own = it.slots.map(({ value }) => value.slice(0, 4).join());
      const other = backendsOf(it).find(({ key }) => !own.includes(key.join()));
      matchesOf(it).push({ key: [...(other?.key ?? []), ...idOf(it), 0, 0], value: [0] });
    },
  ),
  violation(
    'a Maglev table is missing',
    (it) => isOutside(it) && hasTable(it),
    (it) => {
      remove(maglevOf(it), isOfFrontend(it, 0));
    },
  ),
  violation(
    'a Maglev table has one backend only',
    (it) => isOutside(it) && hasTable(it) && isShared(it),
    (it) => {
      const id = maglevOf(it).find(isOfFrontend(it, 0))?.value ?? [];
      const [table] = listOf(
        it.maps,
        `cilium_maglev_inner:${little(id, 0) + 65_536 * little(id, 2)}`,
      );
      const { length } = table?.value ?? [];
      const first = it.slots[0]?.value.slice(0, 4) ?? [];
      table?.value.splice(
        0,
        length,
        ...Array<number[]>(length / 4)
          .fill(first)
          .flat(),
      );
    },
  ),
  violation(
    'answers take another way',
    (it) => isOutside(it) && !has(it, 1 << 2),
    (it) => flip(it, flags.dsr),
  ),
  violation('a frontend is not reached from outside', isOutside, (it) => flip(it, flags.routable)),
  violation(
    'a cluster IP is reached from outside',
    (it) => isServed(it) && !it.isUnspecified && !has(it, flags.routable) && !maglevOf(it).length,
    (it) => flip(it, flags.routable),
  ),
  legal('slots have another order', isShared, (it) => {
    const [first, second] = it.slots;
    if (first === undefined || second === undefined) return;
    [first.value, second.value] = [second.value, first.value];
  }),
  legal('a backend is left over without a slot', isServed, (it) => {
    const value = [...(backendOf(it)?.value ?? [])];
    value[0] = 99;
    backendsOf(it).push({ key: [255, 255, 0, 0], value });
  }),
  legal('a slot is left over beyond the count', isServed, (it) => {
    const { key, value } = it.slots.at(-1) ?? it.master;
    const at = widthOf(it.prefix) + 2;
    const slot = little(key, at) + 40;
    const left = key.toSpliced(at, 2, slot & 255, slot >> 8);
    servicesOf(it).push({ key: left, value: [...value] });
  }),
  legal('a backend has another state', isServed, (it) => {
    const { value } = backendOf(it) ?? { value: [] };
    value[widthOf(it.prefix) + 3] = 1;
  }),
  legal('an affinity match is left over for a backend that is gone', isServed, (it) => {
    matchesOf(it).push({ key: [254, 254, 0, 0, ...idOf(it), 0, 0], value: [0] });
  }),
  legal('a reverse NAT entry is left over', isServed, (it) => {
    const [entry] = reverseOf(it);
    reverseOf(it).push({ key: [250, 250], value: [...(entry?.value ?? [])] });
  }),
  legal(
    'source ranges of a frontend without a check are missing',
    (it) => !has(it, flags.ranges),
    (it) => {
      remove(rangesOf(it), isOfFrontend(it, 4));
    },
  ),
  legal('wildcard entries are missing', isServed, (it) => {
    remove(servicesOf(it), ({ key }) => key[widthOf(it.prefix) + 4] === 0);
  }),
];

/** The same forwarding, which computes each expectation once for all faults. */
function rememberExpectations(forwarding: Forwarding): Forwarding {
  const known = new Map<string, ReturnType<Forwarding['expect']>>();
  const expect = (packet: Packet): ReturnType<Forwarding['expect']> => {
    const key = packetText(packet);
    // The copy keeps the outcomes, which a getter computes.
    const found = known.get(key) ?? { ...forwarding.expect(packet) };
    known.set(key, found);
    return found;
  };
  return { ...forwarding, expect };
}

const recordings = ciliumFoldersBelow(join(import.meta.dirname, 'cilium/recordings')).map(
  (path) => {
    const text = ciliumMaps(path);
    const input = ciliumInput(path);
    const forwarding = rememberExpectations(input.forwarding);
    const { nodePortRange } = readCiliumConfig(ciliumObjects(path).file.config ?? {}, []);
    return { path, text, maps: parseMaps(text), input: { ...input, forwarding }, nodePortRange };
  },
);

const protocols: Readonly<Record<number, string>> = { 6: 'tcp', 17: 'udp', 132: 'sctp' };

/** Names of the Service ports that have the frontend; empty if not exactly one outcome is right. */
function portsAt({ prefix, master }: RawFrontend, { forwarding }: NodeInput): string[] {
  const width = prefix === 'cilium_lb4_' ? 4 : 16;
  const { key } = master;
  const number = key.slice(0, width).reduce((sum, byte) => sum * 256n + BigInt(byte), 0n);
  const address = formatAddress(width === 4 ? Number(number) : number);
  const isAny = number === 0n;
  const port = (key[width] ?? 0) * 256 + (key[width + 1] ?? 0);
  const found = forwarding.frontends.filter(
    (it) =>
      it.dport === port &&
      it.protocol === protocols[key[width + 4] ?? 0] &&
      (isAny ? it.kind === 'node port' : it.address === address) &&
      it.address.includes(':') === (width === 16),
  );
  const isOpen = found.some(({ address: dst, protocol, dport }) =>
    (['outside', 'pod'] as const).some((from) => {
      const packet = { from, src: '203.0.113.1', dst, protocol, dport };
      return forwarding.expect(packet).outcomes.length !== 1;
    }),
  );
  return isOpen ? [] : [...new Set(found.map(({ port: { name } }) => name))];
}

test('there are recordings of every way in which Cilium writes maps', () => {
  expect(recordings.length).toBeGreaterThan(7);
});

/** Faults that the tests below made, each at one frontend of one recording. */
const made = { violations: 0, legal: 0 };

test.each(mapFaults.map((fault, at) => [fault.name, fault, at] as const))(
  '%s',
  (_, { fits, make, isViolation }, at) => {
    const problems: string[] = [];
    const before = made.violations + made.legal;
    for (const { path, maps: sound, input, nodePortRange } of recordings) {
      const all = rawFrontends(sound).map((it, index) => ({ it, index }));
      const fitting = all.filter(({ it }) => fits(it) && portsAt(it, input).length > 0);
      // Another frontend for each fault.
      const chosen = fitting[(7 * at) % Math.max(fitting.length, 1)];
      if (chosen === undefined) continue;
      const maps = copyMaps(sound);
      const frontend = rawFrontends(maps)[chosen.index];
      if (frontend === undefined) continue;
      make(frontend);
      made[isViolation ? 'violations' : 'legal']++;
      const { entries } = readBpftoolDump(printMaps(maps));
      const rules = behaviorOfMaps(entries, input.rules.localAddresses, nodePortRange);
      const audit = auditNode({ ...input, rules });
      const walked = auditNode(walkingAll({ ...input, rules }));
      expect(resultOf(audit)).toEqual(resultOf(walked));
      const { findings } = summarizeAudit({ ...input, rules }, audit);
      const found = findings.filter(({ severity }) => severity !== 'info');
      // Many Services may have the backend.
      const places = found.flatMap((it) => it.differences.map(({ port }) => port?.name));
      const isFound = portsAt(chosen.it, input).some((name) => places.includes(name));
      if (isViolation ? !isFound : found.length > 0) {
        problems.push(`${path} ${frontend.place}: ${found.map(({ code }) => code).join()}`);
      }
    }
    expect(problems).toEqual([]);
    expect(made.violations + made.legal).toBeGreaterThan(before);
  },
);

test('faults and legal variations are many', () => {
  expect(made.violations).toBeGreaterThanOrEqual(150);
  expect(made.legal).toBeGreaterThanOrEqual(40);
});

/** The same node, where packets to every frontend are walked. */
const walkingAll = ({ rules, ...input }: NodeInput): NodeInput => ({
  ...input,
  rules: { ...rules, isKnownToServe: () => false },
});

const resultOf = ({ differences, unknown }: NodeAudit) => ({
  unknown,
  differences: differences.map(({ code, key }) => `${code} ${key}`),
});

test('most cluster IPs are known to be served without a walk', () => {
  const counts = { all: 0, known: 0 };
  for (const { input } of recordings) {
    const { forwarding, rules } = input;
    const own = forwarding.frontends.filter(({ kind }) => kind === 'cluster IP');
    counts.all += own.length;
    counts.known += own.filter((it) => rules.isKnownToServe?.(forwarding, it)).length;
    expect(resultOf(auditNode(input))).toEqual(resultOf(auditNode(walkingAll(input))));
  }
  expect(counts.known).toBeGreaterThan(0.6 * counts.all);
});

/** Recordings whose flags the maps show; the others have another name or range. */
const inferable = recordings.filter(({ path }) => !/proxy-name|node-port-range/.test(path));

test('findings are none if only the maps show the configuration of Cilium', () => {
  for (const { path, text, input } of inferable) {
    const { services, slices, node } = ciliumObjects(path);
    const dump = readRulesDump(text, null);
    const { config, rules } = observeDumps([dump], input.node, 37);
    const { localAddresses } = rules;
    const forwarding = nodeForwarding(services, slices, node, config, localAddresses);
    const { findings, conform } = summarizeNode({ forwarding, node, rules });
    expect(findings).toEqual([]);
    expect(conform).toBeGreaterThan(100);
  }
  expect(inferable.length).toBeGreaterThan(6);
});

// A node with Cilium by the report of its agent: the audit of a class of nodes finds what the audit
// of the maps finds.

/** What bpftool prints for a batch of commands about these maps, without inner Maglev tables. */
function batchOf(text: string): string {
  const maps = Object.entries(JSON.parse(text) as Record<string, unknown>);
  const pinned = maps.filter(([name]) => !name.includes(':'));
  const answers = pinned.map(([name, output]) => ({
    command: ['map', 'dump', 'pinned', `/sys/fs/bpf/tc/globals/${name}`],
    output,
  }));
  return JSON.stringify(answers);
}

function recordingAt(path: string) {
  const { file, node, services, slices } = ciliumObjects(path);
  const { nodeAddresses = [], nodeAddressesNoNodePort = [] } = file;
  const proxied = createProxyCache(
    storeOf([node, ...services, ...[...slices.values()].flat()]).listers,
  );
  const facts: NodeFacts = {
    node: node.name,
    localAddresses: [...nodeAddresses, ...nodeAddressesNoNodePort],
    interfaces: null,
    routes: null,
    nodeIPs: [...node.addresses],
    podCIDRs: node.podCIDRs,
  };
  return { path, node, proxied, facts, auditByClass: createClassAudit(proxied) };
}

type Recording = ReturnType<typeof recordingAt>;

const nodes = recordings.map(({ path }) => recordingAt(path));

/** The report of the agent, as it comes over the wire. */
function reportOf(rules: NodeRuleSet, { facts }: Recording) {
  const report = createReport(null, facts, { states: {}, problems: [] }, rules);
  return runToEnd(readReport(JSON.parse(JSON.stringify(report))));
}

type Report = ReturnType<typeof reportOf>;

const configOf = ({ settings }: Report) => ({ ...defaultProxyConfig('cilium', 37), ...settings });

function byMaps(batch: string, report: Report, { node, proxied, facts }: Recording): NodeAudit {
  const config = configOf(report);
  const { entries } = readBpftoolBatch(batch);
  const local = report.localAddresses;
  const range = config.cilium?.nodePortRange ?? [0, 0];
  const rules = behaviorOfMaps(entries, local, range);
  const services = proxied.services.values();
  const forwarding = nodeForwarding(services, proxied.slices, node, config, local);
  expect(facts.localAddresses.every((address) => local.includes(address))).toBe(true);
  return auditNode({ forwarding, node, rules });
}

function byReport(rules: NodeRuleSet, report: Report, recording: Recording) {
  const { node, facts, auditByClass } = recording;
  const config = configOf(report);
  const audited = (reported: ReportedBehavior) =>
    runToEnd(auditByClass({ node, rules: reported, config }));
  const first = behaviorOfReport({ ...report, outcomes: new Map() });
  audited(first);
  const asked: readonly Packet[] = first.report.missingPackets();
  const sent = JSON.stringify(encodeOutcomes(asked.map(walkerAt(rules, facts))));
  const answers = runToEnd(decodeOutcomes(JSON.parse(sent)));
  const outcomes = new Map(
    asked.flatMap((packet, at) => {
      const outcome = answers[at];
      return outcome === undefined ? [] : [[packetText(packet), outcome] as const];
    }),
  );
  const second = behaviorOfReport({ ...report, outcomes });
  return { ...audited(second).audit, asked, divergent: second.report.divergent() };
}

const shown = ({ differences, unknown }: Pick<NodeAudit, 'differences' | 'unknown'>) => ({
  differences: differences.map((one) => JSON.stringify({ ...one, port: one.port?.name })).sort(),
  unknown: [...unknown].sort(),
});

/** What is found where: agent and auditor have other addresses outside the cluster. */
const found = ({ differences, unknown }: Pick<NodeAudit, 'differences' | 'unknown'>) => ({
  differences: new Set(differences.map(({ code, port }) => `${code} ${port?.name ?? ''}`)),
  unknown: [...unknown].sort(),
});

function audits(text: string, recording: Recording) {
  const batch = batchOf(text);
  const rules = readDumps([{ program: mapsProgram, bytes: Buffer.from(batch) }]);
  const report = reportOf(rules, recording);
  const direct = byMaps(batch, report, recording);
  const reported = byReport(rules, report, recording);
  return { direct, reported, frontends: report.digests.size };
}

test('the report of an agent has the same audit, and few packets are asked for', () => {
  for (const recording of nodes) {
    const { direct, reported, frontends } = audits(ciliumMaps(recording.path), recording);
    expect(shown(reported), recording.path).toEqual(shown(direct));
    if (/proxy-name|node-port-range/.test(recording.path)) continue;
    expect(reported.divergent, recording.path).toBe(0);
    expect(frontends).toBeGreaterThan(100);
    expect(reported.asked.length, recording.path).toBeLessThan(3 * frontends);
  }
  expect(nodes.length).toBeGreaterThan(7);
});

test.each(mapFaults.map((fault, at) => [fault.name, fault, at] as const))(
  'the report of an agent: %s',
  (_, { fits, make }, at) => {
    let made = 0;
    // Other recordings for each fault, since two audits of each need a second.
    for (const recording of [...nodes, ...nodes].slice(at % nodes.length)) {
      if (made === 2) break;
      const maps = copyMaps(parseMaps(ciliumMaps(recording.path)));
      const fitting = rawFrontends(maps).filter(fits);
      const frontend = fitting[(7 * at) % Math.max(fitting.length, 1)];
      if (frontend === undefined) continue;
      make(frontend);
      made++;
      const { direct, reported } = audits(printMaps(maps), recording);
      expect(found(reported), `${recording.path} ${frontend.place}`).toEqual(found(direct));
    }
    expect(made).toBeGreaterThan(0);
  },
);

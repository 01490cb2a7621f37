// Every recorded fault of a node, and every pair, as an auditor sees it that has read the sound
// node before: all findings of a fault are one incident of the right kind, which names the node.

import { readFileSync } from 'node:fs';
import { join, relative, resolve } from 'node:path';

import { describe, expect, test } from 'vitest';
import { parse } from 'yaml';

import type { IncidentKind } from '../../src/audit/incident/kinds.ts';
import { type AuditorEntry, createAuditor } from '../../src/auditor/auditor.ts';
import type { AnyObject, Resource } from '../../src/model/objects.ts';
import { auditorDefaults } from '../build.ts';
import { foldersBelow, readBytes } from './folder.ts';
import { inputOf } from './walk.ts';

interface Fault {
  readonly class: string;
  readonly violation: boolean;
  readonly base: string;
}

const textOf = (path: string): string => readBytes(path)?.toString() ?? '';

const faultIn = (path: string): Fault =>
  JSON.parse(readFileSync(join(path, 'fault.json'), 'utf8')) as Fault;

/** Single faults, and two faults at once. */
const faults = ['faults', 'pairs']
  .flatMap((name) => foldersBelow(join(import.meta.dirname, name)))
  .map((path) => [relative(import.meta.dirname, path), { path, fault: faultIn(path) }] as const);

/** What was done to the node; every other class edits rules of kube-proxy. */
function kindOf(name: string): IncidentKind {
  if (/^(foreign|extra-table|iptables-left-over|split-backends)/.test(name)) return 'foreign-rules';
  return name === 'node-stale' ? 'node-proxy-not-syncing' : 'node-rules-lost';
}

/** Faults of one kind are one incident of their node. */
const kindsOf = (fault: Fault): IncidentKind[] =>
  [...new Set(fault.class.split('+').map(kindOf))].sort();

const tools = [
  ['iptables-save.txt', 'IPv4'],
  ['ip6tables-save.txt', 'IPv6'],
  ['nft.json', 'IPv4'],
] as const;

/** The sources of the rules in a folder, with their texts. */
const sourcesIn = (folder: string) =>
  ['.', 'other-backend'].flatMap((part) =>
    tools.flatMap(([name, family]) => {
      const text = textOf(join(folder, part, name));
      return text === '' ? [] : [{ tool: join(part, name), family, text }];
    }),
  );

/** The rules of a folder, as files that the command line names. */
const rulesIn = (folder: string, node: string, config: unknown): AuditorEntry[] =>
  sourcesIn(folder).map(({ tool, family, text }) => {
    const source = `${tool} ${family}`;
    return { kind: 'given-rules', node, source, text, unread: null, config };
  });

/** The same rules again, as lines of a recording. */
const unchangedIn = (folder: string, node: string, at: number): AuditorEntry[] =>
  sourcesIn(folder).map(({ tool, family }) => {
    return { kind: 'node-rules', node, tool, family, at, dumpedAt: at, text: null };
  });

function objectsIn(path: string): (readonly [Resource, AnyObject])[] {
  const input = inputOf({ path });
  if (input === null) throw new Error(`No objects: ${path}`);
  const { services, slices, node } = input;
  return [
    ['nodes', node] as const,
    ...services.map((it) => ['services', it] as const),
    ...slices.map((it) => ['endpointslices', it] as const),
  ];
}

/** The sound nodes that an auditor has read twice, so that a finding would open. */
const readTwice = new Set<string>();

/** The incidents of a node that was sound and then got the rules, and objects, of a folder. */
function incidentsOf(path: string, { base }: Fault) {
  const sound = resolve(path, base);
  const proxy = parse(textOf(join(sound, 'proxy-config.yaml'))) as {
    readonly version: string;
    readonly nodeName: string;
    readonly config: unknown;
  };
  const auditor = createAuditor({ ...auditorDefaults, onProblem: () => undefined });
  const listed: Resource[] = ['nodes', 'services', 'endpointslices'];
  const take = (entry: AuditorEntry): void => auditor.take(entry);
  const deliver = (at: number, objects: ReturnType<typeof objectsIn>): void => {
    const wanted = new Map(
      objects.map(([resource, object]) => [`${resource} ${object.key}`, object]),
    );
    for (const resource of listed) {
      for (const object of [...auditor.store.objects[resource].values()]) {
        if (wanted.has(`${resource} ${object.key}`)) continue;
        take({ kind: 'event', event: { resource, type: 'deleted', object, at } });
      }
    }
    for (const [resource, object] of objects) {
      take({ kind: 'event', event: { resource, type: 'modified', object, at } });
    }
  };
  take({ kind: 'header', at: 0, kubernetes: proxy.version, resources: listed });
  deliver(0, objectsIn(sound));
  for (const resource of listed) take({ kind: 'synced', at: 0, resource });
  const read = (at: number, folder: string): void => {
    take({ kind: 'clock', at });
    for (const entry of rulesIn(folder, proxy.nodeName, proxy.config)) take(entry);
  };
  for (const at of readTwice.has(sound) ? [40] : [1, 40]) read(at, sound);
  readTwice.add(sound);
  const opened = auditor.findings.open();
  take({ kind: 'clock', at: 50 });
  deliver(50, objectsIn(path));
  read(55, path);
  take({ kind: 'clock', at: 90 });
  for (const entry of unchangedIn(path, proxy.nodeName, 90)) take(entry);
  take({ kind: 'clock', at: 100 });
  const findings = auditor.findings.open();
  return { opened, findings, node: proxy.nodeName, incidents: auditor.incidents.list() };
}

test('there are faults of many classes', () => {
  expect(faults.length).toBeGreaterThan(250);
});

describe.each(faults)('%s', (_, { path, fault }) => {
  test('is one incident of each kind, on its node', () => {
    const { opened, findings, incidents, node } = incidentsOf(path, fault);
    expect(opened).toEqual([]);
    const onNode = incidents.filter(({ object }) => object === `Node ${node}`);
    expect(onNode).toEqual(incidents);
    const kinds = incidents.map(({ kind }) => kind).sort();
    if (fault.violation) expect(findings.length).toBeGreaterThan(0);
    expect(kinds).toEqual(findings.length === 0 ? [] : kindsOf(fault));
  });
});

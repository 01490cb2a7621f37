// The parts of the oracle that need no control plane: cases, faults and comparisons.

import { spawnSync } from 'node:child_process';
import { join } from 'node:path';

import { describe, expect, test } from 'vitest';

import { readBytes } from '../nodes/folder.ts';
import { casesOf } from './cases.ts';
import { compareVectors, readRecords } from './comparison.ts';
import { makeFaults } from './object-faults.ts';
import { iptablesFaults, nftablesFaults } from './rule-faults.ts';

const sample = readRecords(join(import.meta.dirname, '../vectors/data/v1.36.3-oracle.ndjson.gz'));

describe('the command', () => {
  const program = join(import.meta.dirname, 'oracle.ts');
  const unusable: [string, string[], string][] = [
    ['no release', [], 'Usage'],
    ['a release that nothing builds', ['v1.20.0'], 'Usage'],
    ['a part that does not exist', ['v1.36.3', '--part', 'users'], 'Usage'],
    ['a number that is none', ['v1.36.3', '--cases', 'many'], 'Usage'],
    ['a flag that does not exist', ['v1.36.3', '--all'], '--all'],
  ];

  test.each(unusable)('%s exits with 2', (_, args, want) => {
    const { status, stderr } = spawnSync(process.execPath, [program, ...args], {
      encoding: 'utf8',
    });
    expect(status).toBe(2);
    expect(stderr).toContain(want);
  });
});

describe('casesOf', () => {
  const wordsOf = (seed: number) =>
    casesOf(seed, 40).map(({ name, steps }) => [
      name,
      steps.map((step) => step.map(({ words }) => words)),
    ]);

  test('the same seed gives the same operations', () => {
    expect(wordsOf(3)).toEqual(wordsOf(3));
  });

  test('another seed gives other random cases', () => {
    expect(wordsOf(3).slice(-40)).not.toEqual(wordsOf(4).slice(-40));
  });

  test('no two cases have a name or an address of pods in common', () => {
    const names = casesOf(1, 400).map(({ name }) => name);
    expect(new Set(names).size).toBe(names.length);
    const owners = new Map<string, Set<string>>();
    for (const { name, steps } of casesOf(1, 400)) {
      for (const address of JSON.stringify(steps).matchAll(/10\.1[2-9]\d\.\d+\.\d+/g)) {
        const set = owners.get(address[0]) ?? new Set();
        owners.set(address[0], set.add(name));
      }
    }
    expect(owners.size).toBeGreaterThan(1000);
    expect([...owners].filter(([, set]) => set.size > 1)).toEqual([]);
  });
});

describe('makeFaults', () => {
  const faults = makeFaults('base', sample, { seed: 1, count: 2 }).slice(1) as {
    fault: string;
    base: { case: string; step: number };
    endpoints: unknown;
    endpointSlices: unknown;
  }[];

  test('the sample has a place for more than 70 classes', () => {
    expect(new Set(faults.map(({ fault }) => fault)).size).toBeGreaterThan(70);
  });

  test('every fault changes the lists of its base', () => {
    const bases = new Map(
      sample
        .filter((record) => record.kind === 'case')
        .map((record) => [`${record.case} ${record.step}`, record]),
    );
    const same = faults.filter(({ base, endpoints, endpointSlices }) => {
      const record = bases.get(`${base.case} ${base.step}`);
      const was = JSON.stringify([record?.endpoints, record?.endpointSlices]);
      return was === JSON.stringify([endpoints, endpointSlices]);
    });
    expect(same.map(({ fault }) => fault)).toEqual([]);
  });
});

describe('rule faults', () => {
  const recording = join(import.meta.dirname, '../nodes/recordings/v1.36.3');
  const readDump = (name: string): string => readBytes(join(recording, name))?.toString() ?? '';

  test('every class for iptables changes the dump of a real node', () => {
    const dump = readDump('iptables-nft/node-a/iptables-save.txt').split('\n');
    const idle = Object.entries(iptablesFaults).filter(([, { edit }]) => {
      const edited = edit(dump);
      return edited === null || edited.join('\n') === dump.join('\n');
    });
    expect(idle.map(([name]) => name)).toEqual([]);
  });

  test('every class for nftables makes a script for a real node', () => {
    const { services } = JSON.parse(readDump('objects.json')) as {
      services: { metadata: { name: string }; spec: { clusterIP: string } }[];
    };
    const ips = new Map(services.map(({ metadata, spec }) => [metadata.name, spec.clusterIP]));
    const listing = readDump('nftables/node-a/nft.txt');
    const idle = Object.entries(nftablesFaults).filter(
      ([, { script }]) => (script(listing, ips) ?? '') === '',
    );
    expect(idle.map(([name]) => name)).toEqual([]);
  });
});

describe('compareVectors', () => {
  test('a file does not differ from itself', () => {
    const { compared, different } = compareVectors(sample, sample);
    expect(compared).toBeGreaterThan(400);
    expect(different).toEqual([]);
  });

  test('a run with other uids, times and names of slices does not differ', () => {
    const text = JSON.stringify(sample).replace(/"(uid|resourceVersion)":"/g, '"$1":"x');
    const renamed = text.replace(/"name":"web-[a-z0-9]{5}"/g, '"name":"web-zzzzz"');
    expect(compareVectors(sample, JSON.parse(renamed) as typeof sample).different).toEqual([]);
  });

  test('an endpoint that one side lacks is named with its case and step', () => {
    const changed = structuredClone(sample);
    const record = changed.find(
      (one) => one.kind === 'case' && one.case === 'rolling-update' && one.step === 1,
    );
    if (record?.kind !== 'case') throw new Error('No such record');
    (record.endpointSlices[0] as { endpoints?: unknown[] }).endpoints?.pop();
    const { different } = compareVectors(changed, sample);
    expect(different).toMatchObject([
      { at: 'rolling-update step 1', only: [expect.any(String)], before: [expect.any(String)] },
    ]);
  });
});

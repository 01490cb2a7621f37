// Short recordings of a disturbed control plane (test/controlplane/README.md) in which the program
// was wrong once. Their findings must be exactly those of differences that lasted.

import { createReadStream, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Readable } from 'node:stream';

import { describe, expect, test } from 'vitest';

import type { Source } from '../../src/cluster/files/recording.ts';
import { resources } from '../../src/model/objects.ts';
import type { Found } from '../controlplane/auditor.ts';
import { arrivalsOf, readHistory } from '../controlplane/chaos/history.ts';
import type { Outage } from '../controlplane/chaos/oracle.ts';
import { checkReplay, disagreements } from '../controlplane/chaos/oracle.ts';
import { verifyReplays } from '../verify/compare.ts';

const folder = join(import.meta.dirname, 'chaos');
const files = readdirSync(folder).filter((name) => name.endsWith('.ndjson.gz'));

/** By recording, the findings in the order in which they open: seconds, place, code and cause. */
const expected = JSON.parse(readFileSync(join(folder, 'findings.json'), 'utf8')) as Readonly<
  Record<string, readonly string[]>
>;

/** Seconds of the settle window. */
const settle = 10;

const open = (name: string) => (): Source => ({
  name,
  bytes: createReadStream(join(folder, name)),
});

function textOf({ namespace, service, output, code, cause, since, openedAt }: Found): string {
  const lasted = (openedAt - since).toFixed(1);
  return `${namespace}/${service} ${output} ${code} after ${lasted} s, ${cause ?? 'no cause'}`;
}

test('the recordings and the expectations are about the same files', () => {
  expect(Object.keys(expected).sort()).toEqual(files.sort());
  expect(files).not.toEqual([]);
});

describe.each(files)('%s', (name) => {
  test('has the findings of the differences that lasted, and no other', async () => {
    const { findings, wrong } = await checkReplay(open(name), settle);
    expect(wrong).toEqual([]);
    expect(findings.map(textOf)).toEqual(expected[name]);
  });

  test('has the differences, causes and clocks of the reference auditor', async () => {
    const { events, disagreements: wrong } = await verifyReplays(open(name), { settle });
    expect(wrong).toEqual([]);
    expect(events).toBeGreaterThan(0);
  });
});

describe('the oracle', () => {
  const name = 'masked-hints.ndjson.gz';
  const ask = async (change: (findings: Found[]) => Found[]) => {
    const { findings } = await checkReplay(open(name), settle);
    const history = await readHistory(open(name)(), false);
    const evidence = { history, times: arrivalsOf(history), faults: [], outages: [], settle };
    return disagreements({ ...evidence, findings: change([...findings]) }).map(({ kind }) => kind);
  };
  const withFirst = (change: Partial<Found>) => ([first, ...rest]: Found[]) =>
    first === undefined ? [] : [{ ...first, ...change }, ...rest];

  test('misses a finding that is left out', async () => {
    expect(await ask(() => [])).toContain('missed');
  });

  test('calls a finding of another code or of another Service false', async () => {
    expect(await ask(withFirst({ code: 'endpoints-missing' }))).toContain('false');
    expect(await ask(withFirst({ service: 'another' }))).toContain('false');
  });

  test('calls a finding false whose beginning is before that of its difference', async () => {
    const early = (findings: Found[]) =>
      findings.map((found) => ({ ...found, since: found.since - 1000 }));
    expect(await ask(early)).toContain('false');
  });

  test('counts no time before every resource is listed', async () => {
    const lines = (kind: string, at: number, resource: string) => ({ kind, at, resource });
    const early = ['nodes', 'services', 'pods'].map((it) => lines('synced', 1001, it));
    const late = ['endpoints', 'endpointslices'].map((it) => lines('synced', 1060, it));
    const header = { kind: 'header', format: 1, at: 1000, kubernetes: 'v1.36.3', resources };
    const all = [header, ...early, ...late, { kind: 'end', at: 1100 }];
    const text = all.map((line) => `${JSON.stringify(line)}\n`).join('');
    const source = { name: 'slow list', bytes: Readable.from([Buffer.from(text)]) };
    const history = await readHistory(source, false);
    expect(arrivalsOf(history).latest(0)).toBe(1060);
  });

  describe('about a slice that is deleted by hand, and comes back after 38 s', () => {
    const deleted = {
      title: 'slice, deleted',
      service: 'fleet-a/service-96',
      output: 'endpointslices',
      codes: ['slice-endpoint-missing'],
      object: 'endpointslices fleet-a/service-96-xd6fq',
      revision: 18691,
    };
    const kindsOf = async (fault: typeof deleted, outages: readonly Outage[]) => {
      const source = open('slice-that-comes-back-under-another-name.ndjson.gz')();
      const history = await readHistory(source, true);
      const times = arrivalsOf(history);
      const evidence = { history, times, faults: [fault], outages, settle, findings: [] };
      return new Set(disagreements(evidence).map(({ kind }) => kind));
    };

    test('misses a finding if it could be seen for all of the time', async () => {
      expect(await kindsOf(deleted, [])).toEqual(new Set(['missed', 'unseen']));
    });

    test('misses none if it came back under another name before it could be seen', async () => {
      const outage = { from: 1795427896.9, to: 1795427910.5 };
      expect(await kindsOf(deleted, [outage])).toEqual(new Set());
    });
  });
});

// Holds the auditor against every vector file in data/, and the check itself against input that is
// broken on purpose: a check that cannot fail proves nothing. The rules are in README.md.

import { spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';

import { afterAll, beforeAll, describe, expect, test } from 'vitest';

import { verified } from '../../src/shadow/release.ts';
import type { Summary } from './conform.ts';
import { checkFiles, emptySummary, isConform } from './conform.ts';

const data = join(import.meta.dirname, 'data');
const recorded = readdirSync(data).filter((name) => name.endsWith('.ndjson.gz'));

type Disagreement = Readonly<Record<string, unknown>>;

async function check(file: string): Promise<{ summary: Summary; disagreements: Disagreement[] }> {
  const disagreements: Disagreement[] = [];
  const summary = await checkFiles([file], (one) => disagreements.push(one));
  return { summary, disagreements };
}

describe('what real controllers wrote is conform', () => {
  test('there are vectors of every verified version, and faults', () => {
    const names = recorded.join(' ');
    for (const part of [...verified.controllers, 'faults']) expect(names).toContain(part);
  });

  test.each(recorded)('%s', async (name) => {
    const { summary, disagreements } = await check(join(data, name));
    expect(disagreements).toEqual([]);
    const { falseFindings, missed, misplaced, legalReported, transitions } = summary;
    const got = { falseFindings, missed, misplaced, legalReported, wrong: transitions.wrong };
    const want = { falseFindings: 0, missed: 0, misplaced: 0, legalReported: 0, wrong: 0 };
    expect(got).toEqual(want);
    expect(summary.explained).toBeLessThanOrEqual(0.03 * summary.services);
    expect(summary.unknown).toBeLessThanOrEqual(0.01 * summary.services);
    expect(summary.cases + summary.faults).toBeGreaterThan(0);
    expect(isConform(summary)).toBe(true);
  });
});

describe('isConform', () => {
  const services = { ...emptySummary(), services: 100 };
  const cases: [string, Partial<Summary>, boolean][] = [
    ['nothing wrong', {}, true],
    ['a false finding', { falseFindings: 1 }, false],
    ['a missed fault', { missed: 1 }, false],
    ['a fault reported elsewhere', { misplaced: 1 }, false],
    ['a legal change reported', { legalReported: 1 }, false],
    ['a wrong transition', { transitions: { checked: 1, notChecked: 0, wrong: 1 } }, false],
    ['three in a hundred explained', { explained: 3 }, true],
    ['more explained', { explained: 4 }, false],
    ['one in a hundred unknown', { unknown: 1 }, true],
    ['more unknown', { unknown: 2 }, false],
  ];
  test.each(cases)('%s', (_, more, want) => {
    expect(isConform({ ...services, ...more })).toBe(want);
  });
});

// Broken input. Lines are edited as objects and written beside their base file.

interface RawSlice {
  readonly metadata: { readonly labels: Record<string, string>; generation: number };
  endpoints: { addresses: string[]; conditions: { ready?: boolean } }[] | null;
}

interface RawLine {
  readonly kind: string;
  readonly verdict?: string;
  readonly fault?: string;
  case?: string;
  step?: number;
  readonly base?: { file: string; case: string; step: number };
  endpoints: unknown[];
  endpointSlices: RawSlice[];
}

function linesOf(name: string): RawLine[] {
  const text = gunzipSync(readFileSync(join(data, name))).toString();
  return text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as RawLine);
}

const isOurs = (slice: RawSlice): boolean =>
  slice.metadata.labels['endpointslice.kubernetes.io/managed-by'] ===
  'endpointslice-controller.k8s.io';

let folder = '';
let core: RawLine[] = [];
let faults: RawLine[] = [];

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'vectors-'));
  core = linesOf('v1.33.13-core.ndjson.gz');
  faults = linesOf('v1.36.3-faults.ndjson.gz');
});

afterAll(() => {
  rmSync(folder, { recursive: true });
});

function write(name: string, lines: readonly unknown[]): string {
  const file = join(folder, name);
  writeFileSync(file, lines.map((line) => `${JSON.stringify(line)}\n`).join(''));
  return file;
}

/** The header, the nodes and all steps of one case. */
function withCase(name: string, edit: (line: RawLine) => RawLine): RawLine[] {
  return core
    .filter((line) => line.kind !== 'case' || line.case === name)
    .map((line) => (line.kind === 'case' ? edit(structuredClone(line)) : line));
}

/** A case whose last step has a ready endpoint in a slice of the controller. */
function readyCase(): { name: string; step: number } {
  for (const line of core.toReversed()) {
    if (line.kind !== 'case') continue;
    const ready = line.endpointSlices.some(
      (slice) => isOurs(slice) && slice.endpoints?.some(({ conditions }) => conditions.ready),
    );
    if (ready) return { name: line.case ?? '', step: line.step ?? 0 };
  }
  throw new Error('No case with a ready endpoint');
}

const dropOne = (slice: RawSlice): void => void slice.endpoints?.pop();

const edits: [string, (slice: RawSlice) => void][] = [
  ['an endpoint dropped from a slice', dropOne],
  [
    'an endpoint turned not ready',
    (slice) => {
      for (const { conditions } of slice.endpoints ?? []) conditions.ready = false;
    },
  ],
  [
    'an address of no pod',
    (slice) => {
      for (const endpoint of slice.endpoints ?? []) endpoint.addresses = ['192.0.2.1'];
    },
  ],
];

describe('broken case lines are noticed', () => {
  test('the case is conform as it was recorded', async () => {
    const { name } = readyCase();
    const { summary } = await check(
      write(
        'intact.ndjson',
        withCase(name, (line) => line),
      ),
    );
    expect(summary.falseFindings).toBe(0);
  });

  // An API server raises the generation with every change of the endpoints; who edits the file by
  // hand may leave it as it is, and that must excuse nothing.
  const both = edits.flatMap(([text, edit]) => [
    [text, edit, 1] as const,
    [`${text}, of unchanged generation`, edit, 0] as const,
  ]);

  test.each(both)('%s', async (_, edit, generations) => {
    const { name, step } = readyCase();
    const lines = withCase(name, (line) => {
      if (line.step !== step) return line;
      for (const slice of line.endpointSlices.filter(isOurs)) {
        edit(slice);
        slice.metadata.generation += generations;
      }
      return line;
    });
    const { summary, disagreements } = await check(write('broken.ndjson', lines));
    expect(summary.falseFindings).toBeGreaterThan(0);
    expect(disagreements[0]).toMatchObject({ disagreement: 'false', case: name, step });
    expect(isConform(summary)).toBe(false);
  });

  test('a history that is cut off excuses no address', async () => {
    const { name, step } = readyCase();
    const lines = withCase(name, (line) => line).filter(
      (line) => line.kind !== 'case' || line.step === step,
    );
    for (const line of lines) {
      if (line.kind === 'case') line.endpointSlices.filter(isOurs).forEach(dropOne);
    }
    const { summary } = await check(write('first.ndjson', lines));
    expect(summary.falseFindings).toBeGreaterThan(0);
  });
});

describe('broken fault lines are noticed', () => {
  /** One fault line with its base file, both beside each other. */
  function withFault(fault: string, edit: (line: RawLine, base: RawLine) => RawLine): string {
    const line = faults.find((one) => one.fault === fault && one.base !== undefined);
    if (line?.base === undefined) throw new Error(`No fault ${fault}`);
    const { file, case: name, step } = line.base;
    const bases = linesOf(file).filter((one) => one.kind !== 'case' || one.case === name);
    const base = bases.find((one) => one.kind === 'case' && one.step === step);
    if (base === undefined) throw new Error(`No base ${name}`);
    write('base.ndjson', bases);
    const edited = edit(structuredClone(line), structuredClone(base));
    const moved = { ...edited, base: { ...line.base, file: 'base.ndjson' } };
    return write('fault.ndjson', [faults[0], moved]);
  }

  const want = { faults: 1, missed: 0, misplaced: 0, legalReported: 0, falseFindings: 0 };

  test('the fault is found as it is labelled', async () => {
    const { summary } = await check(withFault('slice-endpoint-missing', (line) => line));
    expect(summary).toMatchObject(want);
  });

  test('a fault that was undone is missed', async () => {
    const file = withFault('slice-endpoint-missing', (line, base) => ({
      ...line,
      endpoints: base.endpoints,
      endpointSlices: base.endpointSlices,
    }));
    const { summary } = await check(file);
    expect(summary).toMatchObject({ ...want, missed: 1 });
  });

  test('a fault of something else is misplaced', async () => {
    const file = withFault('slice-endpoint-missing', (line) => ({
      ...line,
      about: { kind: 'Endpoints', namespace: line.base?.case, name: 'nobody' },
    }));
    const { summary } = await check(file);
    expect(summary).toMatchObject({ missed: 0, misplaced: 1 });
  });

  test.each(['order-shuffled', 'slice-extra-empty'])('a loud %s is reported', async (fault) => {
    const file = withFault(fault, (line) => {
      for (const slice of line.endpointSlices) if (isOurs(slice)) slice.endpoints = null;
      return line;
    });
    const { summary } = await check(file);
    expect(summary).toMatchObject({ ...want, legalReported: 1 });
  });

  test('a base file that is not there is an error', async () => {
    const line = { ...faults.find(({ kind }) => kind === 'fault'), base: { file: 'absent.gz' } };
    await expect(check(write('fault.ndjson', [line]))).rejects.toThrow('absent.gz');
  });

  test('a base case that is not there is an error', async () => {
    write('base.ndjson', [core[0]]);
    const base = { file: 'base.ndjson', case: 'nowhere', step: 0 };
    const line = { ...faults.find(({ kind }) => kind === 'fault'), base };
    await expect(check(write('fault.ndjson', [line]))).rejects.toThrow('nowhere');
  });
});

describe('the command', () => {
  const program = join(import.meta.dirname, 'conform.ts');

  function run(...files: string[]): { status: number | null; out: string; err: string } {
    const { status, stdout, stderr } = spawnSync(process.execPath, [program, ...files], {
      encoding: 'utf8',
    });
    return { status, out: stdout, err: stderr };
  }

  test('a conform file exits with 0 and one line', () => {
    const got = run(join(data, 'v1.36.3-zoneless.ndjson.gz'));
    expect(got.status).toBe(0);
    const lines = got.out.trim().split('\n');
    expect(lines).toHaveLength(1);
    expect(JSON.parse(lines[0] ?? '')).toMatchObject({ cases: 358, falseFindings: 0 });
  });

  test('a file that disagrees exits with 1 and says where', () => {
    const { name } = readyCase();
    const lines = withCase(name, (line) => ({ ...line, endpointSlices: [] }));
    const got = run(write('slices-gone.ndjson', lines));
    expect(got.status).toBe(1);
    const [first] = got.out.split('\n');
    expect(JSON.parse(first ?? '')).toMatchObject({ disagreement: 'false', case: name });
  });

  const unusable: [string, () => string[], string][] = [
    ['no file named', () => [], 'Usage'],
    ['a file that is absent', () => [join(folder, 'absent.ndjson')], 'absent.ndjson'],
    [
      'a base file that is absent',
      () => {
        const lines = [{ ...faults.find(({ kind }) => kind === 'fault') }];
        return [write('alone.ndjson', lines)];
      },
      'No base file beside',
    ],
    [
      'a line that is no JSON',
      () => {
        writeFileSync(join(folder, 'garbage.ndjson'), '{"kind":');
        return [join(folder, 'garbage.ndjson')];
      },
      'JSON',
    ],
  ];
  test.each(unusable)('%s exits with 2', (_, files, want) => {
    const got = run(...files());
    expect(got.status).toBe(2);
    expect(got.err).toContain(want);
  });
});

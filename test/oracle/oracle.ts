// Verifies a release: `npm run -s oracle -- v1.37.2` builds its control plane and kube-proxy, records
// what they write for directed and random cases, breaks some of it on purpose, compares all of it
// with the program, and says what the release before writes differently. Ends with 0 when all is
// conform, with 1 when something disagrees, with 2 when nothing ran. README.md has the flags.

import { existsSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';

import type { Version } from '../controlplane/controlplane.ts';
import { startControlPlane, versions } from '../controlplane/controlplane.ts';
import { isConform, judgeFiles } from '../vectors/conform.ts';
import { casesOf } from './cases.ts';
import type { Comparison } from './comparison.ts';
import { compareVectors, readRecords } from './comparison.ts';
import { recordCases, writeRecords } from './controllers.ts';
import { makeFaults } from './object-faults.ts';

const samples = join(import.meta.dirname, '..');

interface Run {
  readonly version: Version;
  readonly seed: number;
  readonly cases: number;
  readonly faults: number;
  readonly nodes: number;
  /** Where vectors, recordings and faults of nodes go. */
  readonly vectors: string;
  readonly recordings: string;
}

const say = (line: string): void => void process.stderr.write(`${line}\n`);
const print = (value: unknown): void => void process.stdout.write(`${JSON.stringify(value)}\n`);

const fileOf = (version: string, kind = ''): string => `${version}-oracle${kind}.ndjson.gz`;

async function recordVectors(run: Run): Promise<string[]> {
  const { version, seed, faults, vectors } = run;
  const cases = casesOf(seed, run.cases);
  const plane = await startControlPlane({ version });
  try {
    const size = { directed: cases.length - run.cases, random: run.cases };
    const records = await recordCases(plane, cases, { seed, size }, say);
    const [file, broken] = [fileOf(version), fileOf(version, '-faults')];
    await writeRecords(join(vectors, file), records);
    const made = makeFaults(file, records, { seed, count: faults });
    await writeRecords(join(vectors, broken), made);
    return [join(vectors, file), join(vectors, broken)];
  } finally {
    await plane.stop();
  }
}

/** Prints what differs from the release before, and returns how much. */
function tell(title: string, { compared, different }: Comparison) {
  say(`${title}: ${different.length} of ${compared} differ`);
  for (const { at, only, before } of different.slice(0, 20)) {
    say(`  ${at}`);
    for (const text of only.slice(0, 3)) say(`    + ${text.slice(0, 400)}`);
    for (const text of before.slice(0, 3)) say(`    - ${text.slice(0, 400)}`);
  }
  return { compared, different: different.length };
}

async function verify(run: Run): Promise<boolean> {
  const { version, seed } = run;
  const began = performance.now();
  const files = await recordVectors(run);
  const vectors = await judgeFiles(files, print);
  const previous = versions[versions.indexOf(version) - 1] ?? null;
  const sample = join(samples, 'vectors', 'data', fileOf(String(previous)));
  const [own = ''] = files;
  const differences = existsSync(sample)
    ? tell(
        `${version} and ${String(previous)}`,
        compareVectors(readRecords(own), readRecords(sample)),
      )
    : null;
  const seconds = Math.round((performance.now() - began) / 1000);
  print({ version, seed, vectors, previous, differences, seconds });
  return isConform(vectors);
}

const usage = `Usage: npm run -s oracle -- VERSION [--seed N] [--cases N] [--faults N] [--nodes N]
       [--out DIR | --sample]
VERSION is one of ${versions.join(', ')}`;

/** null: the arguments make no run. */
function runOf(args: readonly string[]): Run | null {
  const number = { type: 'string' } as const;
  const { values, positionals } = parseArgs({
    args: [...args],
    allowPositionals: true,
    options: {
      ...{ seed: number, cases: number, faults: number, nodes: number },
      ...{ out: { type: 'string' }, sample: { type: 'boolean' } },
    },
  });
  const version = versions.find((known) => known === positionals[0]);
  const [seed, cases, faults, nodes] = (
    [
      [values.seed, 1],
      [values.cases, 300],
      [values.faults, 4],
      [values.nodes, 2],
    ] as const
  ).map(([given, otherwise]) => Number(given ?? otherwise)) as [number, number, number, number];
  const numbers = [seed, cases, faults, nodes];
  if (version === undefined || positionals.length > 1 || !numbers.every(Number.isInteger))
    return null;
  const out = values.out ?? join('oracle', version);
  const vectors = values.sample === true ? join(samples, 'vectors', 'data') : join(out, 'vectors');
  const recordings = join(values.sample === true ? samples : out, 'nodes');
  return { version, seed, cases, faults, nodes, vectors, recordings };
}

if (import.meta.main) {
  try {
    const run = runOf(process.argv.slice(2));
    if (run === null) throw new Error(usage);
    mkdirSync(run.vectors, { recursive: true });
    process.exitCode = (await verify(run)) ? 0 : 1;
  } catch (error) {
    say(error instanceof Error ? error.message : String(error));
    process.exitCode = 2;
  }
}

// Verifies a release: `npm run -s oracle -- v1.37.2` builds its control plane and kube-proxy,
// records what they write for directed and random cases, breaks some of it on purpose, compares
// all of it with the program, and says what the release before writes differently. Ends with 0
// when all is conform, with 1 when something disagrees, with 2 when nothing ran. README.md has the
// flags.

import { mkdirSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';

import type { Version } from '../controlplane/binaries.ts';
import { versions } from '../controlplane/binaries.ts';
import { startControlPlane } from '../controlplane/controlplane.ts';
import { isTrue, walkFolders } from '../nodes/walk.ts';
import { checkFiles, isConform } from '../vectors/conform.ts';
import { casesOf } from './cases.ts';
import type { Comparison } from './comparison.ts';
import {
  compareSamples,
  previousOf,
  releasesDocument,
  releasesPath,
  samples,
  vectorFile,
} from './comparison.ts';
import { recordCases, writeRecords } from './controllers.ts';
import { recordNodes } from './nodes.ts';
import { makeFaults } from './object-faults.ts';

interface Run {
  readonly version: Version;
  readonly seed: number;
  /** null: both. */
  readonly part: 'controllers' | 'nodes' | null;
  readonly cases: number;
  readonly faults: number;
  readonly nodes: number;
  /** Classes of faults of rules in each mode. */
  readonly ruleFaults: number;
  /** Where vectors, recordings and faults of nodes go. */
  readonly vectors: string;
  readonly nodesIn: string;
}

const say = (line: string): void => void process.stderr.write(`${line}\n`);
const print = (value: unknown): void => void process.stdout.write(`${JSON.stringify(value)}\n`);

async function recordVectors(run: Run): Promise<string[]> {
  const { version, seed, faults, vectors } = run;
  const cases = casesOf(seed, run.cases);
  const plane = await startControlPlane({ version });
  try {
    const size = { directed: cases.length - run.cases, random: run.cases };
    const records = await recordCases(plane, cases, { seed, size }, say);
    const [file, broken] = [vectorFile(version), vectorFile(version, '-faults')];
    await writeRecords(join(vectors, file), records);
    const made = makeFaults(file, records, { seed, count: faults });
    await writeRecords(join(vectors, broken), made);
    return [join(vectors, file), join(vectors, broken)];
  } finally {
    await plane.stop();
  }
}

/** Prints what differs from the release before, and returns how much. */
function printComparison(title: string, comparison: Comparison | null) {
  if (comparison === null) return null;
  const { compared, different, changes } = comparison;
  say(`${title}: ${different.length} of ${compared} differ`);
  for (const { at, only, before } of different.slice(0, 5)) {
    say(`  ${at}`);
    for (const text of only.slice(0, 2)) say(`    + ${text.slice(0, 400)}`);
    for (const text of before.slice(0, 2)) say(`    - ${text.slice(0, 400)}`);
  }
  for (const [change, count] of [...changes].slice(0, 20)) say(`  ${count} ${change}`);
  return { compared, different: different.length, changes: Object.fromEntries(changes) };
}

/** Records and checks nodes of a release; returns also the folder of its recordings. */
async function recordAndWalk({ version, seed, nodes, nodesIn, ruleFaults }: Run) {
  const plane = await startControlPlane({ version });
  try {
    // Other classes for other releases, so that the samples together have many.
    const chosen = seed + versions.indexOf(version);
    const out = { folder: nodesIn, version, classes: ruleFaults, seed: chosen };
    const folders = await recordNodes(plane, nodes, out, say);
    const summary = walkFolders(folders, (line) => {
      process.stdout.write(`${line}\n`);
    });
    return { summary, recordings: folders[0] ?? null };
  } finally {
    await plane.stop();
  }
}

/** Records and checks what is asked for; whether all of it is conform. */
async function verify(run: Run): Promise<boolean> {
  const { version, seed, part } = run;
  const began = performance.now();
  const files = part === 'nodes' ? [] : await recordVectors(run);
  const controllers = files.length === 0 ? null : await checkFiles(files, print);
  const nodes = part === 'controllers' ? null : await recordAndWalk(run);
  if ((controllers?.cases ?? 0) + (nodes?.summary.recordings ?? 0) === 0) {
    throw new Error('Nothing was recorded');
  }
  const previous = previousOf(version);
  const own = { vectors: files[0] ?? null, nodes: nodes?.recordings ?? null };
  const compared = compareSamples(own, previous);
  const differences = {
    controllers: printComparison(`controllers since ${previous}`, compared.controllers),
    kubeProxy: printComparison(`kube-proxy since ${previous}`, compared.kubeProxy),
  };
  const seconds = Math.round((performance.now() - began) / 1000);
  const facts = { version, seed, controllers, nodes: nodes?.summary ?? null };
  print({ ...facts, previous, differences, seconds });
  return (
    (controllers === null || isConform(controllers)) && (nodes === null || isTrue(nodes.summary))
  );
}

const usage = `Usage: npm run -s oracle -- VERSION [--seed N] [--cases N] [--faults N] [--nodes N]
       [--rule-faults N] [--part controllers|nodes] [--out DIR | --sample]
       npm run -s oracle -- --table
VERSION is one of ${versions.join(', ')}`;

const isCount = (value: number): boolean => Number.isInteger(value) && value >= 0;

/** null: the arguments make no run. */
function runOf(args: readonly string[]): Run | null {
  const text = { type: 'string' } as const;
  const { values, positionals } = parseArgs({
    args: [...args],
    allowPositionals: true,
    options: {
      ...{ seed: text, cases: text, faults: text, nodes: text },
      ...{ 'rule-faults': text },
      ...{ out: text, part: text, sample: { type: 'boolean' } },
    },
  });
  const version = versions.find((known) => known === positionals[0]);
  const [seed, cases, faults, nodes, ruleFaults] = (
    [
      [values.seed, 1],
      [values.cases, 300],
      [values.faults, 4],
      [values.nodes, 2],
      [values['rule-faults'], 100],
    ] as const
  ).map(([given, otherwise]) => Number(given ?? otherwise)) as [
    number,
    number,
    number,
    number,
    number,
  ];
  const numbers = [seed, cases, faults, nodes, ruleFaults];
  if (version === undefined || positionals.length > 1 || !numbers.every(isCount)) return null;
  const part = (['controllers', 'nodes'] as const).find((known) => known === values.part) ?? null;
  if (part === null && values.part !== undefined) return null;
  const out = values.out ?? join(tmpdir(), 'oracle', version);
  const isSample = values.sample === true;
  const vectors = isSample ? samples.vectors : join(out, 'vectors');
  const nodesIn = isSample ? samples.nodes : join(out, 'nodes');
  return { version, seed, part, ruleFaults, cases, faults, nodes, vectors, nodesIn };
}

async function main(args: readonly string[]): Promise<boolean> {
  if (args.join() === '--table') {
    writeFileSync(releasesPath, await releasesDocument());
    return true;
  }
  const run = runOf(args);
  if (run === null) throw new Error(usage);
  // Every program in a namespace has a listener that ends it.
  process.setMaxListeners(64);
  mkdirSync(run.vectors, { recursive: true });
  mkdirSync(run.nodesIn, { recursive: true });
  return verify(run);
}

if (import.meta.main) {
  try {
    process.exitCode = (await main(process.argv.slice(2))) ? 0 : 1;
  } catch (error) {
    say(error instanceof Error ? error.message : String(error));
    process.exitCode = 2;
  }
}

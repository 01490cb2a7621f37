// Compares the auditor with the reference auditor (reference.ts): every difference after every
// event, and every finding.
//
//   npm run -s verify -- [RECORDING...] [--settle 30] [--scenarios] [--mutant NAME]
//                        [--lives COUNT [--first SEED]]
//
// It prints disagreements with the events around them, and last a line of JSON:
// {"events":…,"findings":…,"readings":…,"disagreements":…}. Rules of nodes reach the auditor as
// dumps, and in a second replay as reports of their agents. It ends with 1 if there are
// disagreements, and with 2 for wrong usage or if nothing was compared. A mutant is a fault of the
// auditor that must be found: `--mutant list` names them. In lives with odd seeds, watches lose
// events and servers break other promises.

import { once } from 'node:events';
import { createReadStream, readdirSync, readFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { parseArgs } from 'node:util';
import { parentPort, Worker, workerData } from 'node:worker_threads';

import { epoch } from '../scenarios/api.ts';
import type { Scenario } from '../scenarios/parse.ts';
import { parseScenario } from '../scenarios/parse.ts';
import { compile } from '../scenarios/play.ts';
import type { Mutant, Result } from './compare.ts';
import { mutants, nodeMutants, verifyLife, verifyRecording, verifyReplays } from './compare.ts';

export const scenarioFolder = join(import.meta.dirname, '..', 'scenarios');

/** A scenario as a recording: its first step is the list, and it goes on until all has settled. */
export function* linesOf(scenario: Scenario): Generator<object> {
  const resources = [...scenario.delivered];
  const steps = compile(scenario);
  const at = epoch + (steps[0]?.at ?? 0);
  const kubernetes = `v1.${String(scenario.release.minor)}.0`;
  yield { kind: 'header', format: 1, at, kubernetes, resources };
  for (const [index, step] of steps.entries()) {
    const isList = index === 0;
    for (const { resource, type, raw } of step.events) {
      if (!scenario.delivered.has(resource)) continue;
      const name = isList ? 'SYNC' : type.toUpperCase();
      yield { kind: 'object', at: epoch + step.at, resource, type: name, object: raw };
    }
    for (const resource of isList ? resources : []) yield { kind: 'synced', at, resource };
  }
  yield { kind: 'end', at: epoch + (steps.at(-1)?.at ?? 0) + 2 * scenario.window + 1 };
}

/** Every scenario, as the recording that it would be. */
export async function verifyScenario(name: string, mutant: Mutant = {}): Promise<Result> {
  const file = join(scenarioFolder, name);
  const scenario = parseScenario(name, readFileSync(file, 'utf8'));
  const text = [...linesOf(scenario)].map((line) => `${JSON.stringify(line)}\n`).join('');
  const { window: settle, release, maxEndpointsPerSlice } = scenario;
  const source = { name, bytes: Readable.from([Buffer.from(text)]) };
  return verifyRecording(source, { settle, release, maxEndpointsPerSlice }, mutant);
}

export const scenarioNames = (): string[] =>
  readdirSync(scenarioFolder).filter((name) => name.endsWith('.txt'));

/** Disagreements that are printed of one source. */
const most = 20;

function add(total: Result, name: string, result: Result): void {
  const { events, findings, readings, disagreements } = result;
  total.events += events;
  total.findings += findings;
  total.readings += readings;
  total.disagreements.push(...disagreements.map((text) => `${name}: ${text}`));
  for (const text of disagreements.slice(0, most)) console.log(`${name}: ${text}`);
  const more = disagreements.length - most;
  if (more > 0) console.log(`${name}: and ${more} more`);
}

const nothing = (): Result => ({ events: 0, findings: 0, readings: 0, disagreements: [] });

interface Share {
  readonly first: number;
  readonly count: number;
}

async function verifyLives({ first, count }: Share): Promise<Result> {
  const total = nothing();
  for (let seed = first; seed < first + count; seed++) {
    add(total, `life ${seed}`, await verifyLife(seed));
  }
  return total;
}

/** With fewer lives, a thread is not worth its start. */
const leastShare = 250;

/** Shares lives out to threads. */
async function verifyAllLives({ first, count }: Share): Promise<readonly Result[]> {
  const threads = Math.max(1, Math.min(availableParallelism(), Math.floor(count / leastShare)));
  if (threads === 1) return [await verifyLives({ first, count })];
  const size = Math.ceil(count / threads);
  return Promise.all(
    Array.from({ length: threads }, async (_, index): Promise<Result> => {
      const left = count - index * size;
      const share = { first: first + index * size, count: Math.min(size, left) };
      const worker = new Worker(new URL(import.meta.url), { workerData: share });
      const [result] = (await once(worker, 'message')) as [Result];
      return result;
    }),
  );
}

function flagsOf(words: readonly string[]) {
  const { values, positionals } = parseArgs({
    args: [...words],
    allowPositionals: true,
    options: {
      settle: { type: 'string', default: '30' },
      scenarios: { type: 'boolean', default: false },
      lives: { type: 'string', default: '0' },
      first: { type: 'string', default: '0' },
      mutant: { type: 'string' },
    },
  });
  const [settle, count, first] = [values.settle, values.lives, values.first].map(Number);
  const numbers = [settle, count, first];
  if (settle === undefined || count === undefined || first === undefined) throw new Error('flags');
  if (numbers.some((number) => !(Number(number) >= 0))) throw new Error('Expected a number');
  const { mutant: name } = values;
  const known = { ...mutants, ...nodeMutants };
  const mutant = name === undefined ? (): Mutant => ({}) : known[name];
  if (mutant === undefined) throw new Error(`Mutants: ${Object.keys(known).join(', ')}`);
  const { scenarios } = values;
  return { settle, scenarios, lives: { first, count }, mutant, positionals };
}

/** The exit code: 1 for disagreements, 2 for wrong usage or if nothing was compared. */
export async function main(words: readonly string[]): Promise<0 | 1 | 2> {
  const total = nothing();
  try {
    const { settle, scenarios, lives, mutant, positionals } = flagsOf(words);
    for (const path of positionals) {
      const open = () => ({ name: path, bytes: createReadStream(path) });
      add(total, path, await verifyReplays(open, { settle }, mutant));
    }
    for (const name of scenarios ? scenarioNames() : []) {
      add(total, name, await verifyScenario(name, mutant()));
    }
    if (lives.count > 0) {
      for (const one of await verifyAllLives(lives)) {
        total.events += one.events;
        total.findings += one.findings;
        total.disagreements.push(...one.disagreements);
      }
    }
  } catch (error) {
    console.error(error instanceof Error ? error.message : error);
    return 2;
  }
  const { events, findings, readings, disagreements } = total;
  const sums = { events, findings, readings, disagreements: disagreements.length };
  console.log(JSON.stringify(sums));
  if (events === 0) return 2;
  return disagreements.length === 0 ? 0 : 1;
}

const share = workerData as Partial<Share> | null;
// Tests import this file, and may be threads themselves.
if (share?.count !== undefined) parentPort?.postMessage(await verifyLives(share as Share));
else if (import.meta.main) process.exitCode = await main(process.argv.slice(2));

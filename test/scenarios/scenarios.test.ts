// Every scenario in this folder is played in five ways: as written, with every event repeated,
// shuffled within its steps, with its states visited backwards, and with every state met for the
// first time. Findings must follow from the state and not from history; causes and times are
// history, so only the first two ways check them. README.md describes the notation.

import { readdirSync, readFileSync } from 'node:fs';
import { join, relative } from 'node:path';

import { describe, expect, test } from 'vitest';

import { catalogue } from '../../src/audit/finding/catalogue.ts';
import { causes } from '../../src/audit/finding/causes.ts';
import type { ExpectedFindings, Scenario, Step } from './parse.ts';
import { columns, parseScenario } from './parse.ts';
import type { CompiledStep, Settled, Shown, World } from './play.ts';
import {
  allDifferences,
  caused,
  causeless,
  compile,
  countOwners,
  duplicated,
  findingsByState,
  openFindings,
  playAlone,
  playBackward,
  playForward,
  settled,
  show,
  showIncidents,
  showVerdict,
  shuffled,
} from './play.ts';

const folder = relative(process.cwd(), import.meta.dirname);
const files = readdirSync(folder).filter((name) => name.endsWith('.txt'));
const seeds = [1, 2, 3, 4, 5];

function load(name: string): Scenario {
  const file = join(folder, name);
  return parseScenario(file, readFileSync(file, 'utf8'));
}

/** null for a file that cannot be read, which a test of its own reports. */
function loadable(name: string): Scenario | null {
  try {
    return load(name);
  } catch {
    return null;
  }
}

/** Lines of equal columns, each as wide as its widest word. */
function table(lines: readonly string[]): string {
  const rows = [columns, ...lines.map((line) => line.split(' '))];
  const width = (column: number): number =>
    Math.max(...rows.map((row) => row[column]?.length ?? 0));
  return rows
    .map((row) =>
      row
        .map((word, column) => word.padEnd(width(column)))
        .join('  ')
        .trimEnd(),
    )
    .join('\n');
}

const tableOf = (shown: readonly Shown[]): string =>
  shown.length === 0 ? 'none' : table(shown.map(({ text }) => text));

const stepText = (scenario: Scenario, step: Step): string =>
  `${scenario.file}:${step.findings?.line ?? step.line}: at ${step.at}s`;

function checkFindings(where: string, wanted: ExpectedFindings, shown: readonly Shown[]): void {
  if (wanted.atMostPending) {
    const loud = shown.filter(({ state }) => state !== 'pending');
    expect(tableOf(loud), where).toBe('none');
    return;
  }
  const rows = wanted.rows.map(({ text }) => text).sort();
  expect(tableOf(shown), where).toBe(rows.length === 0 ? 'none' : table(rows));
  for (const row of wanted.rows) {
    const got = shown.filter(({ text }) => text === row.text).map(({ details }) => details);
    for (const mention of row.mentions) {
      expect(got.join('\n'), `${where}, line ${row.line}`).toContain(mention);
    }
  }
}

/** Every open finding belongs to exactly one incident, and every incident has one. */
function checkOwners(where: string, world: World): void {
  const { owners, empty } = countOwners(world);
  expect([owners.filter((times) => times !== 1), empty], `${where}: incidents`).toEqual([[], 0]);
}

function checkStep(scenario: Scenario, step: Step, world: World): void {
  const where = stepText(scenario, step);
  expect(openFindings(world), where).toEqual(findingsByState(world));
  if (step.findings !== null) checkFindings(where, step.findings, show(world));
  checkOwners(where, world);
  if (step.incidents !== null) {
    const { line, rows } = step.incidents;
    const wanted = rows.toSorted();
    expect(showIncidents(world), `${scenario.file}:${line}: incidents`).toEqual(wanted);
  }
  for (const { line, key, of, verdict } of step.verdicts) {
    const got = showVerdict(world, key, of);
    expect(got, `${scenario.file}:${line}: ${key} ${of}`).toBe(verdict);
  }
  if (step.lag !== null) {
    const { line, rows } = step.lag;
    expect(world.lags.lines(), `${scenario.file}:${line}: lag`).toEqual(rows.toSorted());
  }
}

/** What the other ways are compared with. */
interface Reference {
  readonly differences: string[];
  readonly settled: Settled | null;
  readonly causeless: string[];
  readonly caused: Set<string>;
}

const referenceOf = (world: World): Reference => ({
  differences: allDifferences(world),
  settled: settled(world),
  causeless: causeless(world),
  caused: caused(world),
});

/** Differences that have a cause on either way are compared by their code alone. */
function checkShuffled(where: string, wanted: Reference, world: World): void {
  const got = referenceOf(world);
  checkOwners(where, world);
  expect(got.differences, where).toEqual(wanted.differences);
  const excused = new Set([...wanted.caused, ...got.caused]);
  const plain = (lines: readonly string[]): string[] =>
    lines.filter((line) => !excused.has(line.split(' ').slice(1, 4).join(' ')));
  expect(plain(got.causeless), where).toEqual(plain(wanted.causeless));
  if (got.settled !== null && wanted.settled !== null) {
    expect(got.settled, where).toEqual(wanted.settled);
  }
}

/** The states must show the same; where both ways know it without history, so must findings. */
function checkState(where: string, wanted: Reference, world: World): void {
  const got = referenceOf(world);
  checkOwners(where, world);
  expect(got.differences, where).toEqual(wanted.differences);
  if (got.settled === null || wanted.settled === null) return;
  expect(got.settled, where).toEqual(wanted.settled);
}

interface Loaded {
  readonly scenario: Scenario;
  readonly steps: readonly CompiledStep[];
  readonly references: readonly Reference[];
}

function referencesOf(scenario: Scenario, steps: readonly CompiledStep[]): Reference[] {
  const references: Reference[] = [];
  playForward(
    scenario,
    steps,
    (events) => events,
    (world) => {
      references.push(referenceOf(world));
    },
  );
  return references;
}

function loadAll(name: string): Loaded | Error {
  try {
    const scenario = load(name);
    const steps = compile(scenario);
    return { scenario, steps, references: referencesOf(scenario, steps) };
  } catch (error) {
    return error instanceof Error ? error : new Error(String(error));
  }
}

function at(loaded: Loaded, index: number): { step: Step; wanted: Reference; where: string } {
  const step = loaded.scenario.steps[index];
  const wanted = loaded.references[index];
  if (step === undefined || wanted === undefined) throw new Error(`No step ${index}`);
  return { step, wanted, where: stepText(loaded.scenario, step) };
}

describe.each(files)('%s', (name) => {
  const loaded = loadAll(name);
  if (loaded instanceof Error) {
    test('can be read', () => {
      throw loaded;
    });
    return;
  }
  const { scenario, steps } = loaded;

  test('as written', () => {
    playForward(
      scenario,
      steps,
      (events) => events,
      (world, index) => {
        checkStep(scenario, at(loaded, index).step, world);
      },
    );
  });

  test('with every event repeated', () => {
    playForward(scenario, steps, duplicated, (world, index) => {
      checkStep(scenario, at(loaded, index).step, world);
    });
  });

  test.each(seeds)('shuffled within each step, seed %d', (seed) => {
    playForward(scenario, steps, shuffled(seed), (world, index) => {
      const { wanted, where } = at(loaded, index);
      checkShuffled(where, wanted, world);
    });
  });

  test('backwards', () => {
    playBackward(scenario, steps, (world, index) => {
      const { wanted, where } = at(loaded, index);
      checkState(where, wanted, world);
    });
  });

  test('every state for the first time', () => {
    playAlone(scenario, steps, (world, index) => {
      const { wanted, where } = at(loaded, index);
      checkState(where, wanted, world);
    });
  });
});

describe('the catalogue', () => {
  const rows = files
    .flatMap((name) => loadable(name)?.steps ?? [])
    .flatMap(({ findings }) => findings?.rows ?? [])
    .filter(({ state }) => state === 'open');

  // Findings about nodes are in other scenarios: test/nodes/walk.test.ts has a broken node for
  // each.
  const codes = Object.entries(catalogue).filter(([, { output }]) => output !== 'node');

  test.each(codes.map(([code]) => code))('%s is open in a scenario', (code) => {
    expect(rows.map((row) => row.code)).toContain(code);
  });

  test.each(Object.keys(causes))('%s is the cause of an open finding in a scenario', (cause) => {
    expect(rows.map((row) => row.cause)).toContain(cause);
  });
});

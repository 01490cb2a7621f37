// Measures what the auditor costs: `npm run -s bench`, with `-- --quick` a small version that only
// shows that all of it runs. Prints tables and, as the last line, all figures as one JSON document.
//
//   replay   the recorded control plane at maximum speed
//   fleet    10,000 Services, 150,000 pods: first list, full audit, heap, cost of single events
//
// and, each only when it is named (`npm run -s bench -- sync`), the program on a live cluster of
// that size, see live.ts: sync, events, scrape; `node`, the agent on a node of that size;
// `explain`, answers of a server of that size; `incidents` and `history`, see their files.
//
// Each part runs in processes of its own, so that nothing is warm and nothing is on the heap that
// the part did not put there. Findings above information fail the bench; a missed target does not.

import { spawnSync } from 'node:child_process';
import { cpus, loadavg, release, totalmem } from 'node:os';
import { fileURLToPath } from 'node:url';

import type { Effort } from './replay.ts';
import { measureEvents, measureExplain, measureReplay } from './replay.ts';
import { buildWorld, createFleet } from './generate.ts';
import type { Shape } from './generate.ts';
import type { LivePart, LiveRow } from './live.ts';
import { liveParts, measureLive, variants } from './live.ts';
import type { Figure, Samples } from './measure.ts';
import { figure, merge, round } from './measure.ts';
import { benchRules, measureNode } from './node.ts';

interface Plan {
  readonly shape: Shape;
  readonly effort: Effort;
  /** Sizes of the Services whose events are measured, smallest and largest compared. */
  readonly sizes: readonly number[];
  readonly replays: number;
  /** Processes that build the fleet, and audits in each after the first. */
  readonly fleets: number;
  readonly audits: number;
}

const full: Plan = {
  shape: {
    nodes: 5000,
    namespaces: 500,
    sizes: [
      { pods: 5000, services: 1 },
      { pods: 250, services: 204 },
      { pods: 30, services: 1761 },
      { pods: 15, services: 100 },
      { pods: 5, services: 7934 },
    ],
  },
  effort: { blocks: 4, rounds: 40 },
  sizes: [15, 250, 5000],
  replays: 7,
  fleets: 3,
  audits: 1,
};

const small: Plan = {
  shape: {
    nodes: 100,
    namespaces: 20,
    sizes: [
      { pods: 1200, services: 1 },
      { pods: 30, services: 40 },
      { pods: 15, services: 20 },
      { pods: 5, services: 200 },
    ],
  },
  effort: { blocks: 2, rounds: 10 },
  sizes: [15, 1200],
  replays: 2,
  fleets: 2,
  audits: 1,
};

// --- parts, each in a process of its own ---

async function replayPart({ replays }: Plan): Promise<Samples> {
  const { events, bytes, lines, elapsed, ...micros } = await measureReplay(replays);
  const perEvent = (samples: readonly number[]): number[] =>
    samples.map((sample) => sample / events);
  return {
    events: [events],
    lines: [lines],
    bytes: [bytes],
    inflating: perEvent(micros.inflating),
    reading: perEvent(micros.reading),
    auditing: perEvent(micros.auditing),
    together: perEvent(micros.together),
    elapsed: perEvent(elapsed),
  };
}

function fleetPart({ shape, effort, sizes, audits }: Plan): Samples {
  const fleet = createFleet(shape);
  const { world, samples } = buildWorld(fleet, audits);
  const found: Record<string, number[]> = {
    pods: [fleet.pods],
    services: [fleet.plans.length],
    json: [samples.json],
    parsing: samples.parsing,
    projecting: samples.projecting,
    holding: samples.holding,
    'first audit': samples.auditing.slice(0, 1),
    'later audits': samples.auditing.slice(1),
  };
  let all = 0;
  for (const [name, values] of Object.entries(samples.bytes)) {
    const each = values.map((value) => value / fleet.pods);
    found[`heap ${name}`] = each;
    all += each[0] ?? 0;
  }
  found['heap all'] = [all];
  const costs = measureEvents(world, effort, sizes);
  for (const [kind, cost] of Object.entries(costs)) {
    for (const part of ['parse', 'project', 'audit'] as const)
      found[`${part} ${kind}`] = cost[part];
  }
  const [least, most] = [sizes[0] ?? 0, sizes.at(-1) ?? 0];
  for (const event of ['pod flips', 'its slice follows']) {
    const median = (size: number): number =>
      figure(costs[`${size} pods: ${event}`]?.audit ?? []).median;
    found[`ratio ${event}`] = [median(most) / median(least)];
  }
  return found;
}

function run(part: string, times: number): Record<string, Figure> {
  const script = fileURLToPath(import.meta.url);
  const runs = Array.from({ length: times }, () => {
    const args = [...process.execArgv, script, ...process.argv.slice(2), `--part=${part}`];
    const child = spawnSync(process.execPath, args, {
      encoding: 'utf8',
      maxBuffer: 64 * 1024 * 1024,
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    if (child.status !== 0) throw new Error(`The part ${part} ended with ${String(child.status)}`);
    return JSON.parse(child.stdout) as Samples;
  });
  return merge(runs);
}

// --- tables ---

type Row = readonly (string | number)[];

const byRuns = 'By `npm run -s bench`; the least and the median of the runs.';

/** As Markdown, the first column to the left and all others to the right. */
function print(title: string, head: Row, rows: readonly Row[], by = byRuns): void {
  const table = [head, ...rows].map((row) => row.map(String));
  const widths = head.map((_, column) =>
    Math.max(4, ...table.map((row) => row[column]?.length ?? 0)),
  );
  const [names = '', ...lines] = table.map((row) => {
    const cells = row.map((cell, column) => {
      const width = widths[column] ?? 0;
      return column === 0 ? cell.padEnd(width) : cell.padStart(width);
    });
    return `| ${cells.join(' | ')} |\n`;
  });
  const rule = widths.map((width, column) => '-'.repeat(width - (column === 0 ? 0 : 1)));
  process.stdout.write(
    `\n### ${title}\n\n${by}\n\n${names}| ${rule.join(': | ').replace(': |', ' |')}: |\n`,
  );
  process.stdout.write(lines.join(''));
}

const cells = (name: string, figure: Figure | undefined): Row => [
  name,
  figure?.min ?? '',
  figure?.median ?? '',
  figure?.runs ?? '',
];

type Figures = Readonly<Record<string, Figure | undefined>>;

function printReplay(replay: Figures): void {
  const count = (name: string): string => String(replay[name]?.median);
  const of = `${count('events')} events, ${count('lines')} lines, ${count('bytes')} bytes`;
  print(
    `Replay of the recording (${of})`,
    ['µs per event', 'min', 'median', 'runs'],
    [
      cells('inflating', replay.inflating),
      cells('reading: lines, JSON.parse, model', replay.reading),
      cells('auditing: store, service audit', replay.auditing),
      cells('all of it, as the program does it', replay.together),
      cells('the same, by the clock', replay.elapsed),
    ],
  );
  const { min = NaN, median = NaN } = replay.elapsed ?? {};
  const [best, usual] = [round(1e6 / min), round(1e6 / median)];
  process.stdout.write(`\n${best} events per second at best, ${usual} in the median\n`);
}

function printFleet(fleet: Figures): void {
  const count = (name: string): string => String(fleet[name]?.median);
  const of = `${count('services')} Services, ${count('pods')} pods`;
  print(
    `First list and full audit of ${of}`,
    ['CPU s', 'min', 'median', 'runs'],
    [
      cells('JSON.parse', fleet.parsing),
      cells('projecting', fleet.projecting),
      cells('holding (store and indexes)', fleet.holding),
      cells('full audit, the first', fleet['first audit']),
      cells('full audit, later ones', fleet['later audits']),
    ],
  );
  print(
    `Heap of ${of}`,
    ['bytes per pod', 'min', 'median', 'runs'],
    [
      cells('nodes', fleet['heap nodes']),
      cells('+ services', fleet['heap services']),
      cells('+ pods', fleet['heap pods']),
      cells('+ endpointslices', fleet['heap endpointslices']),
      cells('+ endpoints', fleet['heap endpoints']),
      cells('+ service audit', fleet['heap service audit']),
      cells('all', fleet['heap all']),
    ],
  );
}

function printEvents(fleet: Figures): void {
  const kinds = Object.keys(fleet).flatMap((name) =>
    name.startsWith('audit ') ? [name.slice('audit '.length)] : [],
  );
  const parts = ['parse', 'project', 'audit'];
  const head = ['CPU µs per event', ...parts.flatMap((part) => [`${part} min`, 'median']), 'runs'];
  const rows = kinds.map((kind) => {
    const figures = parts.map((part) => fleet[`${part} ${kind}`]);
    const values = figures.flatMap((one) => [one?.min ?? '', one?.median ?? '']);
    return [kind, ...values, figures[0]?.runs ?? ''];
  });
  print('Single events in that fleet, by pods of the Service', head, rows);
}

// --- targets ---

interface Target {
  readonly name: string;
  readonly most: number;
  readonly figure: Figure | undefined;
}

/** Noise only adds to a time, so the least of several counts; of ratios and sizes, the median. */
function targetsOf(fleet: Figures): Target[] {
  return [
    { name: 'full audit, CPU s (min)', most: 1, figure: fleet['first audit'] },
    { name: 'heap, bytes per pod (median)', most: 1024, figure: fleet['heap all'] },
    {
      name: 'pod event, largest to smallest Service (median)',
      most: 2,
      figure: fleet['ratio pod flips'],
    },
    {
      name: 'slice event, largest to smallest Service (median)',
      most: 2,
      figure: fleet['ratio its slice follows'],
    },
  ];
}

const reached = ({ name, figure }: Target): number =>
  (name.endsWith('(min)') ? figure?.min : figure?.median) ?? NaN;

function machine() {
  return {
    cpus: cpus().length,
    model: cpus()[0]?.model ?? 'unknown',
    memoryGiB: round(totalmem() / 1024 ** 3),
    kernel: release(),
    node: process.version,
    v8: process.versions.v8,
    load: loadavg().map(round),
  };
}

function printMachine(before: ReturnType<typeof machine>): void {
  const { model, memoryGiB, kernel, node, v8 } = before;
  process.stdout.write(
    `Machine: ${before.cpus} × ${model}, ${memoryGiB} GiB, kernel ${kernel}, ` +
      `Node ${node}, V8 ${v8}; load before ${before.load.join(', ')}\n`,
  );
}

const argumentOf = (name: string): string | undefined =>
  process.argv.find((one) => one.startsWith(`--${name}=`))?.slice(`--${name}=`.length);

async function live(part: LivePart): Promise<void> {
  printMachine(machine());
  const share = Number(argumentOf('share') ?? 1);
  const only = argumentOf('only')?.split(',');
  const rows = await measureLive({
    part,
    share,
    path: argumentOf('path') ?? '/metrics',
    variants: variants.filter((one) => only?.includes(one) ?? true),
  });
  const head = ['figure', ...variants.flatMap((one) => (isOurs(one) ? [one, 'at most'] : [one]))];
  const cellsOf = ({ name, most, reached }: LiveRow): Row => [
    name,
    ...variants.flatMap((one) => {
      const cell = reached[one] ?? '';
      return isOurs(one) ? [cell, most[one] ?? ''] : [cell];
    }),
  ];
  const size = share === 1 ? '' : ` --share=${share}`;
  print(`Live: ${part}`, head, rows.map(cellsOf), `By \`npm run -s bench -- ${part}${size}\`.`);
}

/** A node with rules of 10,000 Services, loaded for real. */
async function node(): Promise<void> {
  printMachine(machine());
  const services = Number(process.argv[3] ?? 10_000);
  const rows = await measureNode(services);
  print('Nodes', ['figure', 'reached', 'at most'], rows, 'By `npm run -s bench -- node`, as root.');
  process.stdout.write(`\n${JSON.stringify({ node: rows })}\n`);
}

/** One explanation of each form. */
async function explanations({ shape }: Plan): Promise<void> {
  printMachine(machine());
  const rows = await measureExplain(shape);
  const head = ['CPU ms of one explanation', 'on', 'first', 'median', 'most'];
  print('Explain', head, rows, 'By `npm run -s bench -- explain`; 21 runs each.');
  process.stdout.write(`\n${JSON.stringify({ explain: rows })}\n`);
}

const isOurs = (variant: (typeof variants)[number]): boolean => variant !== 'kube-state-metrics';

function main(plan: Plan): void {
  const before = machine();
  printMachine(before);
  const replay = run('replay', 1);
  printReplay(replay);
  const fleet = run('fleet', plan.fleets);
  printFleet(fleet);
  printEvents(fleet);
  const targets = targetsOf(fleet).map((target) => ({ ...target, reached: reached(target) }));
  // A small fleet shares the costs of the program among few pods: it says nothing of targets.
  if (plan === full) {
    const rows = targets.map(({ name, most, reached }) => {
      return [name, most, reached, reached <= most ? 'met' : 'missed'];
    });
    print('Targets', ['target', 'at most', 'reached', 'verdict'], rows);
  }
  const { shape } = plan;
  const document = { machine: before, quick: plan === small, shape, targets, replay, fleet };
  process.stdout.write(`\n${JSON.stringify(document)}\n`);
}

/** Runs a part that is a program of its own. */
function runProgram(name: string): void {
  const program = fileURLToPath(new URL(`${name}.ts`, import.meta.url));
  const { status } = spawnSync(
    process.execPath,
    ['--expose-gc', program, ...process.argv.slice(3)],
    { stdio: 'inherit' },
  );
  process.exitCode = status ?? 1;
}

const plan = process.argv.includes('--quick') ? small : full;
const part = argumentOf('part');
const named = liveParts.find((one) => one === process.argv[2]);
if (named !== undefined) await live(named);
else if (process.argv[2] === 'node') await node();
else if (process.argv[2] === 'rules') benchRules(Number(process.argv[3] ?? 10_000));
else if (process.argv[2] === 'explain') await explanations(plan);
else if (process.argv[2] === 'incidents') runProgram('incidents');
else if (process.argv[2] === 'history') runProgram('history');
else if (process.argv[2] === 'moment') runProgram('moment');
else if (part === 'replay') process.stdout.write(JSON.stringify(await replayPart(plan)));
else if (part === 'fleet') process.stdout.write(JSON.stringify(fleetPart(plan)));
else main(plan);

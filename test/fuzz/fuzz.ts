// Feeds changed input to every reader of input, and looks for crashes, hangs and much memory.
//
//   npm run -s fuzz -- [--runs N] [--first N] [--hostile] [READER…]
//
// Without names it takes every reader of readers.ts. A run is repeated by `--runs 1 --first RUN`.
// Each reader runs in a worker with a heap of 512 MiB; a run may take 10 s of CPU. What fails is
// printed with its run, and written to a file. `--hostile` takes the hostile inputs instead.

import { writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads';
import { gzipSync } from 'node:zlib';

import { below, chanceFrom, oneOf, type Random } from '../apiserver/life.ts';
import { hostileInputs, readers } from './readers.ts';

/** MiB of the heap, and seconds of CPU of one run. */
const limits = { heap: 512, seconds: 10 };

/** Readers at one time. */
const workers = 2;

interface Job {
  readonly name: string;
  readonly first: number;
  readonly runs: number;
  readonly hostile: boolean;
  /** The run that is going on, shared with the parent. */
  readonly current: Int32Array;
}

export interface FuzzResult {
  readonly name: string;
  readonly runs: number;
  readonly seconds: number;
  readonly slowest: number;
  /** The first failures, each with its run. */
  readonly failures: readonly { readonly run: number; readonly why: string }[];
}

type Inputs = (run: number) => Buffer;

function inputsOf({ name, hostile }: Pick<Job, 'name' | 'hostile'>): Inputs {
  if (hostile) {
    const all = hostileInputs(name);
    return (run) => all[run]?.bytes() ?? Buffer.alloc(0);
  }
  const seeds = readers[name]?.seeds() ?? [];
  return (run) => mutate(seeds, run);
}

/** Reads the inputs of some runs; why each failed that did. */
async function runAll(job: Job): Promise<Omit<FuzzResult, 'name' | 'runs' | 'seconds'>> {
  const reader = readers[job.name];
  if (reader === undefined) throw new Error(`There is no reader ${job.name}`);
  const inputs = inputsOf(job);
  const failures: FuzzResult['failures'][number][] = [];
  let slowest = 0;
  for (let run = job.first; run < job.first + job.runs && failures.length < 5; run++) {
    const input = inputs(run);
    Atomics.store(job.current, 0, run);
    const began = performance.now();
    try {
      await reader.read(input);
    } catch (error) {
      const isExpected = error instanceof Error && reader.isExpected?.(error) === true;
      if (!isExpected)
        failures.push({ run, why: error instanceof Error ? (error.stack ?? '') : String(error) });
    }
    slowest = Math.max(slowest, (performance.now() - began) / 1000);
  }
  return { slowest, failures };
}

/** Runs a reader in a worker, and ends it if a run hangs. Never rejects. */
export async function fuzz(job: Omit<Job, 'current'>): Promise<FuzzResult> {
  const current = new Int32Array(new SharedArrayBuffer(4)).fill(-1);
  const began = performance.now();
  const worker = new Worker(new URL(import.meta.url), {
    workerData: { ...job, current },
    resourceLimits: { maxOldGenerationSizeMb: limits.heap },
  });
  let [seen, since, hung] = [-1, 0, false];
  const watch = setInterval(() => {
    const run = Atomics.load(current, 0);
    const { user, system } = process.cpuUsage();
    if (run !== seen) [seen, since] = [run, (user + system) / 1e6];
    // Of the whole process, so that a machine under load makes no difference.
    hung = run >= 0 && (user + system) / 1e6 - since > workers * limits.seconds;
    if (hung) void worker.terminate();
  }, 250);
  const { promise, resolve } =
    Promise.withResolvers<Omit<FuzzResult, 'name' | 'runs' | 'seconds'>>();
  const failed = (why: string): void =>
    resolve({ slowest: limits.seconds, failures: [{ run: Atomics.load(current, 0), why }] });
  worker.once('message', resolve);
  worker.once('error', (error) => failed(String(error)));
  worker.once('exit', () => failed(hung ? `took more than ${limits.seconds} s` : 'ended early'));
  const result = await promise;
  clearInterval(watch);
  await worker.terminate();
  return { name: job.name, runs: job.runs, seconds: (performance.now() - began) / 1000, ...result };
}

async function main(): Promise<void> {
  const { values, positionals } = parseArgs({
    options: {
      runs: { type: 'string', default: '1000000' },
      first: { type: 'string', default: '0' },
      hostile: { type: 'boolean', default: false },
    },
    allowPositionals: true,
  });
  const { hostile } = values;
  const names = positionals.length > 0 ? positionals : Object.keys(readers);
  let failed = 0;
  const next = async (): Promise<void> => {
    for (let name = names.shift(); name !== undefined; name = names.shift()) {
      const runs = hostile ? hostileInputs(name).length : Number(values.runs);
      const result = await fuzz({ name, first: hostile ? 0 : Number(values.first), runs, hostile });
      for (const { run, why } of result.failures) {
        failed++;
        const path = join(tmpdir(), `fuzz-${name}-${run}`);
        writeFileSync(path, inputsOf({ name, hostile })(run));
        const what = hostile ? (hostileInputs(name)[run]?.name ?? '') : `seed ${run}`;
        console.log(`${name}: ${what} failed, input in ${path}\n${why}`);
      }
      const { seconds, slowest } = result;
      console.log(
        `${name}: ${runs} inputs in ${seconds.toFixed(1)} s, ` +
          `the slowest ${slowest.toFixed(2)} s, ${result.failures.length} failed`,
      );
    }
  };
  await Promise.all(Array.from({ length: workers }, next));
  process.exitCode = failed === 0 ? 0 : 1;
}

/** Texts that readers may mistake for something else. */
const words: readonly string[] = [
  ...[
    'null',
    'true',
    '[]',
    '{}',
    '""',
    '"',
    "'",
    ',',
    ':',
    '\n',
    '\r\n',
    '---\n',
    '\t',
    '&a ',
    '*a',
    '<<: ',
  ],
  ...['-1', '0', '1e400', '-0', '9007199254740993', '4294967296', '65536', '0x10', '1.5', 'NaN'],
  ...[
    '__proto__',
    '"__proto__":',
    'constructor',
    'toString',
    'hasOwnProperty',
    '"kind":',
    '"items":[',
  ],
  ...[
    '\u0000',
    '\u001b[31m',
    '\u202e',
    '\u2028',
    '\ufeff',
    '\\ud800',
    '\\u0000',
    'é',
    '💥',
    '\u0085',
  ],
  ...[
    '255.255.255.255/33',
    '::ffff:1.2.3.4',
    '1.2.3.4.5',
    'fe80::1%eth0',
    '10.0.0.1-10.0.0.0',
    '0/0',
  ],
  ...[
    '-A ',
    '-j ',
    ' -m ',
    '! ',
    '--to-destination ',
    'COMMIT\n',
    '*nat\n',
    ':X - [0:0]\n',
    '"jump":',
  ],
  ...['\xff\xfe', '\xc3', '\xed\xa0\x80', '\x80', '\x00\x00\x00\x00'],
];

type Change = (random: Random, bytes: Buffer, other: Buffer) => Buffer;

const cutAt = (random: Random, bytes: Buffer): [number, number] => {
  const from = below(random, bytes.length + 1);
  return [from, Math.min(bytes.length, from + below(random, oneOf(random, [2, 16, 400])))];
};

const replace = (bytes: Buffer, from: number, to: number, by: Uint8Array): Buffer =>
  Buffer.concat([bytes.subarray(0, from), by, bytes.subarray(to)]);

const changes: readonly Change[] = [
  function flip(random, bytes) {
    const copy = Buffer.from(bytes);
    if (copy.length > 0) copy[below(random, copy.length)] = below(random, 256);
    return copy;
  },
  (random, bytes) => replace(bytes, ...cutAt(random, bytes), Buffer.alloc(0)),
  function insertWord(random, bytes) {
    const [from] = cutAt(random, bytes);
    return replace(bytes, from, from, Buffer.from(oneOf(random, words), 'latin1'));
  },
  (random, bytes) => replace(bytes, ...cutAt(random, bytes), Buffer.from(oneOf(random, words))),
  function repeat(random, bytes) {
    const [from, to] = cutAt(random, bytes);
    const times = oneOf(random, [2, 8, 100]);
    const piece = bytes.subarray(from, Math.min(to, from + 400));
    return replace(bytes, from, to, Buffer.concat(Array.from({ length: times }, () => piece)));
  },
  function nest(random, bytes) {
    const [from] = cutAt(random, bytes);
    const [open, close] = oneOf(random, [
      ['[', ']'],
      ['{"a":', '}'],
      ['- ', ''],
      ['(', ')'],
    ] as const);
    const depth = oneOf(random, [1, 30, 1000]);
    return replace(bytes, from, from, Buffer.from(open.repeat(depth) + close.repeat(depth)));
  },
  (random, bytes) => bytes.subarray(0, below(random, bytes.length + 1)),
  function splice(random, bytes, other) {
    return replace(bytes, ...cutAt(random, bytes), other.subarray(...cutAt(random, other)));
  },
  function replaceNumber(random, bytes) {
    const text = bytes.toString('latin1');
    const numbers = [...text.matchAll(/\d+/g)];
    const number = numbers[below(random, numbers.length || 1)];
    if (number === undefined) return bytes;
    const by = Buffer.from(oneOf(random, words.slice(16, 26)));
    return replace(bytes, number.index, number.index + number[0].length, by);
  },
];

/** The input of a run: a sound one with a few changes, now and then compressed or cut as such. */
function mutate(seeds: readonly Buffer[], seed: number): Buffer {
  const random = chanceFrom(seed);
  let bytes = oneOf(random, seeds);
  for (let left = 1 + below(random, 6); left > 0; left--) {
    bytes = oneOf(random, changes)(random, bytes, oneOf(random, seeds));
  }
  if (random() > 0.02) return bytes;
  const packed = gzipSync(bytes.subarray(0, 10_000), { level: 1 });
  return random() < 0.5 ? packed : oneOf(random, changes)(random, packed, packed);
}

// A worker of a test runner has other data.
const isWorker = !isMainThread && 'current' in ((workerData as object | null) ?? {});
if (isWorker) {
  parentPort?.postMessage(await runAll(workerData as Job));
} else if (import.meta.main) await main();

// The agent's own pace: a round, and then nothing for at least a hundred times as long as that
// took. What it costs is what the collecting lasted (the programs' time is the node's, too) and the
// CPU of the agent; so it takes no more than a hundredth of one core, however large the node is.
// Rounds are jittered, so that the nodes of a cluster do not ask all at once.
//
// A round is made by a process of its own (reading.ts), which answers questions for a moment and
// ends. Of the dumps only a packed copy is kept between rounds, for those who ask for details
// later: of the moment that the report is of, and without holding what is read.

import type { ChildProcess } from 'node:child_process';
import { fork } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import type { Socket } from 'node:net';
import { join } from 'node:path';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

import type { Packet } from '../model/proxy-config.ts';
import type { EncodedOutcomes } from '../rules/report/outcome-json.ts';
import type {
  NodeSettings,
  PackedRules,
  ReaderAnswer,
  ReaderQuestion,
  ReaderReply,
  RoundCost,
  RoundOrder,
  RoundResult,
} from './channel.ts';
import { gather, pipe } from './channel.ts';
import type { FrontendDetail } from './report.ts';

export interface ScheduleSettings extends NodeSettings {
  /** Seconds between two rounds, where they cost little. */
  readonly interval: number;
  /** A round may use one n-th of a core; default: 100. */
  readonly share?: number;
}

/** What rounds have cost, and how they went. */
export interface AgentCost {
  readonly rounds: number;
  readonly failed: number;
  /** Of these nothing was read: all was as it had been. */
  readonly unchanged: number;
  /** Seconds, of all rounds. */
  readonly collecting: number;
  readonly cpu: number;
  /** Seconds of the last round, and until the next. */
  readonly last: number;
  readonly pause: number;
  /** Bytes of the last dumps. */
  readonly bytes: number;
}

export interface ScheduledAgent {
  /** One round. */
  round(): Promise<void>;
  /** Runs rounds until `stop` is called. */
  run(signal: AbortSignal): Promise<void>;
  /** null: no round is over yet. */
  report(): PublishedReport | null;
  /** Why the last round made no report at all; null if it made one. */
  problem(): string | null;
  /** null: no rule answers for this frontend, or nothing is known. */
  details(key: string): Promise<readonly FrontendDetail[] | null>;
  /** What becomes of these packets, and in which round; null: nothing is known. */
  outcomes(
    packets: readonly Packet[],
  ): Promise<(EncodedOutcomes & { readonly round: string }) | null>;
  cost(): AgentCost;
}

export interface PublishedReport extends Pick<RoundResult, 'etag' | 'frontends'> {
  /** The report as JSON (reading.ts). */
  readonly text: Buffer;
  /** Before this moment nothing of it was read: seconds of the monotonic clock. */
  readonly at: number;
  /** Another text for every round of every agent. */
  readonly round: string;
}

/** Rounds may use one n-th of a core. */
const usualShare = 100;

/** What is read stays for so long: who asks for one thing asks for more. */
const lingerMs = 5000;

/**
 * V8 in a process that lives for a round. It has much garbage for a moment: room for it costs less
 * than to collect it. It ends before its thorough compiler pays, and what threads beside it compile
 * comes after the slow code was run; one thread is also all that a node gives for it. Nor does V8
 * learn from the first objects, which stay, that the later ones do (pretenuring).
 */
export const readerFlags = [
  ...['--max-semi-space-size=16', '--max-opt=2', '--single-threaded'],
  '--no-allocation-site-pretenuring',
];

/** What makes the agent small (commands/agent.ts) makes slow what reads. */
const environment = { MALLOC_MMAP_THRESHOLD_: undefined };

const seconds = (): number => performance.now() / 1000;

function cpuSeconds(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1e6;
}

/** The result of a round: its report, and the bytes that came over the pipe. */
interface Made {
  readonly reading: RoundResult;
  readonly text: Buffer;
  readonly bytes: Buffer;
}

/** A round that has found all as it was. */
interface Same {
  readonly reading: null;
  readonly spent: RoundCost;
}

/** Gives back what a round took: an idle agent must be small, and V8 is in no hurry by itself. */
function collectGarbage(): void {
  setFlagsFromString('--expose-gc');
  const gc = runInNewContext('gc') as (options: { readonly type: string }) => void;
  gc({ type: 'major' });
}

/** A process that reads rules. */
interface Reader {
  /** What comes of the order to make a round; a text: why nothing does. */
  readonly made: Promise<Made | Same | string>;
  /** null: the process has ended. */
  ask(
    question: ReaderQuestion,
  ): Promise<{ readonly answer: ReaderAnswer; readonly cpu: number } | null>;
  /** It does not keep this process from its end. */
  unref(): void;
  end(): boolean;
}

interface State {
  readonly settings: ScheduleSettings;
  published: PublishedReport | null;
  problem: string | null;
  packed: { readonly packed: PackedRules; readonly bytes: Buffer } | null;
  /** Of what the report is of; null: the next round must read. */
  fingerprint: string | null;
  /** Of this report, while it lasts. */
  reader: Reader | null;
  cost: AgentCost;
  /** CPU seconds that answers have taken since the last round. */
  answering: number;
  readonly name: string;
}

/** An agent that has not begun. */
export function createAgent(settings: ScheduleSettings): ScheduledAgent {
  const state: State = {
    settings,
    published: null,
    problem: null,
    packed: null,
    fingerprint: null,
    reader: null,
    cost: {
      rounds: 0,
      failed: 0,
      unchanged: 0,
      collecting: 0,
      cpu: 0,
      last: 0,
      pause: 0,
      bytes: 0,
    },
    answering: 0,
    name: randomBytes(6).toString('base64url'),
  };
  return {
    round: () => round(state, new AbortController().signal),
    async run(signal) {
      while (!signal.aborted) {
        await round(state, signal);
        collectGarbage();
        await pause(state.cost.pause, signal);
      }
    },
    report: () => state.published,
    problem: () => state.problem,
    details: async (key) =>
      (await asked(state, { kind: 'details', key })) as FrontendDetail[] | null,
    async outcomes(packets) {
      const { published } = state;
      const told = (await asked(state, { kind: 'outcomes', packets })) as EncodedOutcomes | null;
      return told === null || published === null ? null : { round: published.round, ...told };
    },
    cost: () => state.cost,
  };
}

async function round(state: State, signal: AbortSignal): Promise<void> {
  const { settings, cost } = state;
  const at = seconds();
  const cpuBegun = cpuSeconds();
  const { interval, share = usualShare, ...own } = settings;
  let reader = startReader({ kind: 'collect', settings: own, last: state.fingerprint });
  const stop = (): boolean => reader.end();
  signal.addEventListener('abort', stop);
  let made = await reader.made;
  if (typeof made === 'string' && !signal.aborted) {
    reader = startReader({ kind: 'unread', settings: own, problem: made });
    made = await reader.made;
  }
  signal.removeEventListener('abort', stop);
  if (signal.aborted) return;
  if (typeof made === 'string') {
    // If even that fails, the last report becomes old, and the Age header shows it.
    state.problem = made;
    process.stderr.write(`endpoint-auditor: ${made}\n`);
    state.cost = { ...cost, failed: cost.failed + 1, pause: Math.max(interval, cost.pause) };
    return;
  }
  state.problem = null;
  const { collecting, bytes, cpu: reading } = publish(state, made, reader, at);
  const cpu = cpuSeconds() - cpuBegun + reading + state.answering;
  state.answering = 0;
  const last = collecting + cpu;
  state.cost = {
    rounds: cost.rounds + 1,
    failed: cost.failed + (state.packed === null ? 1 : 0),
    unchanged: cost.unchanged + (made.reading === null ? 1 : 0),
    collecting: cost.collecting + collecting,
    cpu: cost.cpu + cpu,
    last,
    pause: Math.max(interval, share * last) * (1 + Math.random() / 10),
    bytes,
  };
}

/** Makes known what a round has read; returns what it cost. */
function publish(state: State, made: Made | Same, reader: Reader, at: number): RoundCost {
  const round = `${state.name}-${state.cost.rounds + 1}`;
  if (made.reading === null) {
    reader.end();
    if (state.published !== null) state.published = { ...state.published, at, round };
    return made.spent;
  }
  const { text, bytes } = made;
  const { etag, frontends, packed, fingerprint, spent } = made.reading;
  state.published = { text, etag, frontends, at, round };
  state.packed = packed === null ? null : { packed, bytes };
  state.fingerprint = fingerprint;
  state.reader = lingering(state, reader);
  return spent;
}

/** The program of a process that reads: in the bundle a file beside it. */
const program = join(
  import.meta.dirname,
  import.meta.filename.endsWith('.ts') ? 'rules-reader.ts' : 'reading.cjs',
);

function startReader(order: RoundOrder, bytes?: Buffer): Reader {
  const child = fork(program, {
    execArgv: readerFlags,
    env: { ...process.env, ...environment },
    serialization: 'advanced',
    stdio: ['ignore', 'inherit', 'inherit', 'ipc', 'pipe'],
  });
  const beside = child.stdio[pipe] as Socket;
  // The exit of the process reports its end.
  beside.on('error', () => undefined);
  const waiting: ((reply: Extract<ReaderReply, { kind: 'answer' }> | null) => void)[] = [];
  const made = new Promise<Made | Same | string>((resolve) => {
    child.on('message', (reply: ReaderReply) => {
      if (reply.kind === 'answer') {
        waiting.shift()?.(reply);
        return;
      }
      if (reply.kind === 'same') {
        resolve({ reading: null, spent: reply.spent });
        return;
      }
      const { reading } = reply;
      const { reportSize, packedSize } = reading;
      gather(beside, reportSize + packedSize).then(
        (whole) => {
          const text = whole.subarray(0, reportSize);
          resolve({ reading, text, bytes: whole.subarray(reportSize) });
        },
        (error: unknown) => {
          resolve(String(error));
        },
      );
    });
    ended(child, (how) => {
      resolve(`reading the rules ${how}`);
      for (const take of waiting.splice(0)) take(null);
    });
  });
  const send = (message: RoundOrder | ReaderQuestion): void => {
    if (child.connected) child.send(message, () => undefined);
  };
  send(order);
  if (bytes !== undefined) beside.write(bytes);
  return {
    made,
    ask: (question) =>
      new Promise((resolve) => {
        if (!child.connected) resolve(null);
        else {
          waiting.push(resolve);
          send(question);
        }
      }),
    unref() {
      child.unref();
      child.channel?.unref();
      beside.unref();
    },
    end: () => child.kill('SIGKILL'),
  };
}

function ended(child: ChildProcess, told: (how: string) => void): void {
  child.once('error', (error) => {
    told(`did not begin: ${error.message}`);
  });
  child.once('exit', (code, signal) => {
    told(signal === null ? `ended with ${String(code)}` : `was ended by ${signal}`);
  });
}

/** Ends the reader when no question has come for a while. */
function lingering(state: State, reader: Reader): Reader {
  let timer: NodeJS.Timeout | undefined;
  const linger = (): void => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      if (state.reader === kept) state.reader = null;
      reader.end();
    }, lingerMs).unref();
  };
  const kept: Reader = {
    ...reader,
    ask(question) {
      linger();
      return reader.ask(question);
    },
  };
  linger();
  reader.unref();
  return kept;
}

/** What the last report is of is asked; null: nothing is known. */
async function asked(state: State, question: ReaderQuestion): Promise<ReaderAnswer> {
  const { packed: held } = state;
  if (held === null) return null;
  const { bytes } = held;
  const order = { kind: 'unpack', packed: held.packed, packedSize: bytes.length } as const;
  state.reader ??= lingering(state, startReader(order, bytes));
  const told = await state.reader.ask(question);
  if (told === null) return null;
  // What is asked for lengthens the rest, as what is found without being asked does.
  state.answering += told.cpu;
  return told.answer;
}

function pause(length: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const end = (): void => {
      clearTimeout(timer);
      signal.removeEventListener('abort', end);
      resolve();
    };
    const timer = setTimeout(end, length * 1000);
    signal.addEventListener('abort', end);
  });
}

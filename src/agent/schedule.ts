// The pace of the agent: after each round it rests at least a hundred times as long as the round
// cost (the programs' elapsed time and the agent's CPU time), however large the node is. The rest
// is jittered, so that the agents of a cluster do not work at the same time.
//
// A child process makes each round (rules-reader.ts) and answers questions for a while. The agent
// keeps only compressed dumps, from which another child process answers later questions.

import { fork } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

import type { Packet } from '../model/proxy-config.ts';
import type { EncodedOutcomes } from '../rules/report/outcome-json.ts';
import { nodeArguments } from './node-arguments.ts';
import { deadlineOf } from './collect.ts';
import type { FrontendDetail } from './report.ts';
import type { NodeSettings, ReaderReply, ReaderRequest, RoundReply } from './rules-reader.ts';

export interface ScheduleSettings extends NodeSettings {
  /** Called with the reason why a round made no report. */
  readonly onProblem: (text: string) => void;
  /** The least number of seconds between two rounds. */
  readonly interval: number;
  /** A round may use one n-th of a core; 100. `npm run e2e` shortens the pauses by it. */
  readonly share?: number;
}

type PublishedReport = NonNullable<RoundReply['result']> & {
  /** The start of the round: seconds of the monotonic clock. */
  readonly at: number;
  /** A different text for every round of every agent. */
  readonly round: string;
};

/** Milliseconds after the last question until the process that answered it ends. */
const lingerMs = 5000;

/** The agent is stuck if no round has ended for this number of pauses and of seconds. */
const stuck = { pauses: 5, seconds: 600 };

/**
 * Flags of V8 for a process that lives for a round. Room for its garbage costs less than to collect
 * it, and it ends before optimizing compilers pay off. Its first objects are not typical.
 */
export const readerFlags = [
  ...['--max-semi-space-size=16', '--max-opt=2', '--single-threaded'],
  '--no-allocation-site-pretenuring',
];

/** The program of the reader: a file beside this one. */
const program = join(
  import.meta.dirname,
  import.meta.filename.endsWith('.ts') ? 'rules-reader.ts' : 'reading.cjs',
);

const newState = ({ interval, share = 100, onProblem, ...settings }: ScheduleSettings) => ({
  interval,
  share,
  onProblem,
  settings,
  name: randomBytes(6).toString('base64url'),
  /** When the latest round ended: seconds of the monotonic clock. */
  endedAt: performance.now() / 1000,
  published: null as PublishedReport | null,
  problem: null as string | null,
  /** The process that last read the rules of the report; `null` if none did. */
  reader: null as ReturnType<typeof startReader> | null,
  /** CPU seconds of readers since the last round. Answers make the next rest longer, too. */
  readerCpu: 0,
  cost: {
    rounds: 0,
    failed: 0,
    /** Rounds that found the same rules as the round before, and did not parse them. */
    unchanged: 0,
    /** Seconds, of all rounds. */
    collecting: 0,
    cpu: 0,
    /** Seconds of the last round, and until the next. */
    last: 0,
    pause: 0,
    /** Bytes of the last dumps. */
    bytes: 0,
  },
});

type State = ReturnType<typeof newState>;

export type ScheduledAgent = ReturnType<typeof createAgent>;

/** An agent that has made no round. */
export function createAgent(settings: ScheduleSettings) {
  const state = newState(settings);
  return {
    round: () => makeRound(state, new AbortController().signal),
    /** Makes rounds until `signal` is aborted. */
    async run(signal: AbortSignal): Promise<void> {
      while (!signal.aborted) {
        await makeRound(state, signal);
        // V8 would keep the memory of the round, but an idle agent must be small.
        globalThis.gc?.({ type: 'major', flavor: 'last-resort' });
        await sleep(state.cost.pause * 1000, null, { signal }).catch(() => null);
      }
    },
    /** `null` before the end of the first round. */
    report: () => state.published,
    /** Why the last round made no report at all; `null` if it made one. */
    problem: () => state.problem,
    /** Why no round ends any more, for people; `null` if they do. */
    stuck(): string | null {
      const seconds = performance.now() / 1000 - state.endedAt;
      const most = Math.max(stuck.seconds, stuck.pauses * state.cost.pause);
      const longest = most + deadlineOf(state.settings.limits);
      return seconds < longest ? null : `No round has ended for ${Math.round(seconds)} s`;
    },
    /** `null` if no rule serves this frontend, or the rules are unknown. */
    details: async (key: string) =>
      (await ask(state, { kind: 'details', key })) as readonly FrontendDetail[] | null,
    /** The outcomes of packets, and the round of the rules; `null` if the rules are unknown. */
    async outcomes(packets: readonly Packet[]) {
      const { published } = state;
      const outcomes = (await ask(state, { kind: 'outcomes', packets })) as EncodedOutcomes | null;
      return outcomes && published && { round: published.round, ...outcomes };
    },
    cost: () => state.cost,
  };
}

async function makeRound(state: State, signal: AbortSignal): Promise<void> {
  const { cost, published, settings, interval, share } = state;
  const at = performance.now() / 1000;
  const before = process.cpuUsage();
  const last = published?.fingerprint ?? null;
  const request = { kind: 'round', settings, last, problem: null } as const;
  let reader = startReader(state, signal);
  let reply = (await reader.ask(request)) as RoundReply | string;
  if (typeof reply === 'string' && !signal.aborted) {
    reader = startReader(state, signal);
    reply = (await reader.ask({ ...request, problem: reply })) as RoundReply | string;
  }
  if (signal.aborted) return;
  state.endedAt = performance.now() / 1000;
  if (typeof reply === 'string') {
    // If even that fails, the last report becomes old, and the Age header shows it.
    state.problem = reply;
    state.onProblem(reply);
    state.cost = { ...cost, failed: cost.failed + 1, pause: Math.max(interval, cost.pause) };
    return;
  }
  const { result, collecting, bytes } = reply;
  const report = result ?? published;
  const round = `${state.name}-${cost.rounds + 1}`;
  state.problem = null;
  state.published = report && { ...report, at, round };
  if (result === null) reader.end();
  else {
    reader.linger();
    state.reader = reader;
  }
  const { user, system } = process.cpuUsage(before);
  const cpu = (user + system) / 1e6 + state.readerCpu;
  state.readerCpu = 0;
  state.cost = {
    rounds: cost.rounds + 1,
    failed: cost.failed + (result?.packed === null ? 1 : 0),
    unchanged: cost.unchanged + (result === null ? 1 : 0),
    collecting: cost.collecting + collecting,
    cpu: cost.cpu + cpu,
    last: collecting + cpu,
    pause: Math.max(interval, share * (collecting + cpu)) * (1 + Math.random() / 10),
    bytes,
  };
}

/** `null` if the rules are unknown. */
async function ask(state: State, request: ReaderRequest): Promise<ReaderReply['answer']> {
  const packed = state.published?.packed ?? null;
  if (packed === null) return null;
  if (state.reader === null || state.reader.hasEnded()) {
    state.reader = startReader(state);
    state.reader.linger();
    void state.reader.ask({ kind: 'unpack', packed });
  }
  const answer = await state.reader.ask(request);
  return typeof answer === 'string' ? null : answer;
}

function startReader(
  state: { readerCpu: number; readonly settings: NodeSettings },
  signal?: AbortSignal,
) {
  const child = fork(program, {
    execArgv: nodeArguments(readerFlags),
    // Without the setting that keeps the agent small (commands/agent.ts) and the reader slow.
    env: { ...process.env, MALLOC_MMAP_THRESHOLD_: undefined },
    serialization: 'advanced',
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
    ...(signal === undefined ? {} : { signal, killSignal: 'SIGKILL' }),
  });
  let failure: string | null = null;
  let timer: NodeJS.Timeout | undefined;
  const waiting: ((answer: ReaderReply['answer'] | string) => void)[] = [];
  child.on('message', ({ answer, cpu }: ReaderReply) => {
    state.readerCpu += cpu;
    waiting.shift()?.(answer);
  });
  const fail = (how: string): void => {
    failure ??= `reading the rules ${how}`;
    for (const resolve of waiting.splice(0)) resolve(failure);
  };
  child.on('error', ({ message }) => {
    fail(`did not begin: ${message}`);
  });
  child.on('exit', (code, by) => {
    fail(by === null ? `ended with ${String(code)}` : `was ended by ${by}`);
  });
  const end = (): void => void child.kill('SIGKILL');
  const seconds = deadlineOf(state.settings.limits);
  return {
    /** Resolves to a text if there is no answer: why. */
    async ask(request: ReaderRequest): Promise<ReaderReply['answer'] | string> {
      if (failure !== null) return failure;
      timer?.refresh();
      const { promise, resolve } = Promise.withResolvers<ReaderReply['answer'] | string>();
      waiting.push(resolve);
      // An error of the channel is followed by the exit of the process.
      if (child.connected) child.send(request, () => undefined);
      const late = setTimeout(() => {
        fail(`did not end within ${String(seconds)} s`);
        end();
      }, seconds * 1000).unref();
      return promise.finally(() => {
        clearTimeout(late);
      });
    },
    /** Ends the process when no question comes for a while. */
    linger(): void {
      timer = setTimeout(end, lingerMs).unref();
      child.unref();
      child.channel?.unref();
    },
    end,
    hasEnded: () => child.killed || failure !== null,
  };
}

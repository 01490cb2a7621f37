// The agent's own pace: collect, read, walk, publish, and then do nothing for at least a hundred
// times as long as that took. What it costs is what the collecting lasted (the programs' time is
// the node's, too) and its own CPU; so it takes no more than a hundredth of one core, however large
// the node is. Rounds are jittered, so that the nodes of a cluster do not ask all at once.
//
// Of the dumps only a packed copy is kept between rounds, for those who ask for details: of the
// moment that the report is of, and without holding what is read.

import { randomBytes } from 'node:crypto';
import { hostname, networkInterfaces } from 'node:os';
import { readdirSync } from 'node:fs';
import { promisify } from 'node:util';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { gunzip, gzip } from 'node:zlib';

import { canonicalIP } from '../model/ip.ts';
import type { Packet } from '../model/proxy.ts';
import type { Claim } from '../rules/claims.ts';
import type { Asking } from '../rules/digest.ts';
import { keyOf } from '../rules/digest.ts';
import type { LocalDetection } from '../rules/dumps.ts';
import type { Outcomes } from '../rules/told.ts';
import type { Dump, Limits, Program } from './collect.ts';
import { collect, programs } from './collect.ts';
import type { Detail, Mode, Place, Standing } from './report.ts';
import { askingOf, detailsOf, digestsOf, outcomesOf, readDumps } from './report.ts';

export interface Settings {
  /** Name of the Node object; default: the host's. */
  readonly node?: string;
  readonly nodeIPs: readonly string[];
  readonly podCIDRs: readonly string[];
  /** The text of kube-proxy's configuration file, and where it is from; null: not given. */
  readonly proxyConfig: { readonly source: string; readonly text: string } | null;
  /** Seconds between two rounds, where they cost little. */
  readonly interval: number;
  readonly limits: Limits;
  /** What is run; default: all. */
  readonly programs?: readonly Program[];
  /** A round may cost one part in so many of a core; default: 100. */
  readonly share?: number;
}

/** What GET /v1/report answers. All that changes from round to round by itself is left out. */
export interface Report {
  readonly version: 1;
  readonly node: string;
  readonly nodeIPs: readonly string[];
  readonly podCIDRs: readonly string[];
  readonly mode: Mode | null;
  readonly backend: 'nft' | 'legacy' | null;
  readonly proxyConfig: Settings['proxyConfig'];
  /** By program: `read`, `empty`, `absent` or `failed`. */
  readonly programs: Readonly<Record<string, string>>;
  /** Not empty: what stands on the node is not known, and there are no frontends. */
  readonly problems: readonly string[];
  /** How kube-proxy tells pods from others, as far as its rules show it. */
  readonly localDetection: LocalDetection;
  /** Who the packets are from that digests are of. */
  readonly asking: Asking;
  /** 64 bits in hexadecimal, by frontend. */
  readonly frontends: Readonly<Record<string, string>>;
  /** Frontends that several tables translate for. */
  readonly doubled: readonly string[];
}

/** What rounds have cost, and how they went. */
export interface Cost {
  readonly rounds: number;
  readonly failed: number;
  /** Seconds, of all rounds. */
  readonly collecting: number;
  readonly cpu: number;
  /** Seconds of the last round, and until the next. */
  readonly last: number;
  readonly pause: number;
  /** Bytes of the last dumps. */
  readonly bytes: number;
}

export interface Agent {
  /** One round. */
  round(): Promise<void>;
  /** Rounds, until it is told to stop. */
  run(signal: AbortSignal): Promise<void>;
  /** null: no round is over yet. */
  report(): Published | null;
  /** null: no rule answers for this frontend, or nothing is known. */
  details(key: string): Promise<readonly Detail[] | null>;
  /** What becomes of these packets, and in which round; null: nothing is known. */
  outcomes(packets: readonly Packet[]): Promise<(Outcomes & { readonly round: string }) | null>;
  cost(): Cost;
}

export interface Published {
  readonly body: Report;
  /** Before this moment nothing of it was read: seconds of the monotonic clock. */
  readonly at: number;
  /** Another text for every round of every agent. */
  readonly round: string;
}

const pack = promisify<Buffer, { level: number }, Buffer>(gzip);
const unpack = promisify<Buffer, Buffer>(gunzip);

/** The part of a core that rounds may cost: one in so many. */
const usualShare = 100;

/** Milliseconds of walking after which others have their turn. */
const slice = 10;

const seconds = (): number => performance.now() / 1000;

function cpuSeconds(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1e6;
}

/** Gives back what a round took: an idle agent must be small, and V8 is in no hurry by itself. */
function collectGarbage(): void {
  setFlagsFromString('--expose-gc');
  const gc = runInNewContext('gc') as (options: { readonly type: string }) => void;
  gc({ type: 'major' });
}

interface State {
  readonly settings: Settings;
  published: Published | null;
  packed: readonly Dump[];
  /** Only while details are asked for. */
  standing: Standing | null;
  place: Place;
  cost: Cost;
  /** CPU seconds that answers have taken since the last round. */
  answering: number;
  readonly name: string;
}

/** An agent that has not begun. */
export function createAgent(settings: Settings): Agent {
  const state: State = {
    settings,
    published: null,
    packed: [],
    standing: null,
    place: placeOf(settings),
    cost: { rounds: 0, failed: 0, collecting: 0, cpu: 0, last: 0, pause: 0, bytes: 0 },
    answering: 0,
    name: randomBytes(6).toString('base64url'),
  };
  return {
    round: () => round(state),
    async run(signal) {
      while (!signal.aborted) {
        await round(state);
        collectGarbage();
        await pause(state.cost.pause, signal);
      }
    },
    report: () => state.published,
    details: (key) => details(state, key),
    outcomes: (packets) => outcomes(state, packets),
    cost: () => state.cost,
  };
}

/** Interfaces can come and go: asked for in every round. */
function placeOf({ node, nodeIPs, podCIDRs }: Settings): Place {
  const known = Object.values(networkInterfaces()).flatMap((addresses) => addresses ?? []);
  const outer = known.filter(({ internal, address }) => !internal && !/^fe[89ab]/i.test(address));
  const first = (family: string): string[] =>
    outer
      .filter((one) => one.family === family)
      .slice(0, 1)
      .map(({ address }) => address);
  return {
    node: node ?? hostname(),
    localAddresses: known.map(({ address }) => canonicalIP(address)),
    interfaces: interfaceNames(),
    nodeIPs: (nodeIPs.length > 0 ? nodeIPs : [...first('IPv4'), ...first('IPv6')]).map(canonicalIP),
    podCIDRs,
  };
}

/** null: sysfs does not tell; then what rules ask of interfaces is unknown. */
function interfaceNames(): readonly string[] | null {
  try {
    return readdirSync('/sys/class/net');
  } catch {
    return null;
  }
}

async function round(state: State): Promise<void> {
  const { settings, cost } = state;
  const begun = seconds();
  const cpuBegun = cpuSeconds();
  state.place = placeOf(settings);
  const { dumps, states, problems } = await collect(settings.limits, settings.programs ?? programs);
  const at = seconds();
  const found = [...problems];
  let read: Read = { standing: null, frontends: {} };
  if (found.length === 0) {
    try {
      read = await readAll(dumps, state.place);
    } catch (error) {
      if (!(error instanceof SyntaxError)) throw error;
      found.push(error.message);
    }
  }
  const packed = found.length > 0 ? [] : await packAll(dumps);
  const name = `${state.name}-${cost.rounds + 1}`;
  state.published = { body: reportOf(state, states, found, read), at: begun, round: name };
  state.packed = packed;
  state.standing = null;
  const cpu = cpuSeconds() - cpuBegun + state.answering;
  state.answering = 0;
  const last = at - begun + cpu;
  state.cost = {
    rounds: cost.rounds + 1,
    failed: cost.failed + (found.length > 0 ? 1 : 0),
    collecting: cost.collecting + at - begun,
    cpu: cost.cpu + cpu,
    last,
    pause:
      Math.max(settings.interval, (settings.share ?? usualShare) * last) * (1 + Math.random() / 10),
    bytes: dumps.reduce((sum, { bytes }) => sum + bytes.length, 0),
  };
}

interface Read {
  readonly standing: Standing | null;
  readonly frontends: Readonly<Record<string, string>>;
}

async function readAll(dumps: readonly Dump[], place: Place): Promise<Read> {
  const standing = readDumps(dumps);
  const frontends: Record<string, string> = {};
  let turn = performance.now() + slice;
  for (const [key, digest] of digestsOf(standing, place)) {
    frontends[key] = digest;
    if (performance.now() < turn) continue;
    await new Promise((resolve) => setImmediate(resolve));
    turn = performance.now() + slice;
  }
  return { standing, frontends };
}

function reportOf(
  { settings, place }: State,
  states: Readonly<Record<string, string>>,
  problems: readonly string[],
  { standing, frontends }: Read,
): Report {
  return {
    version: 1,
    node: place.node,
    nodeIPs: place.nodeIPs,
    podCIDRs: place.podCIDRs,
    mode: standing?.mode ?? null,
    backend: standing?.backend ?? null,
    proxyConfig: settings.proxyConfig,
    programs: states,
    problems,
    localDetection: standing?.localDetection ?? {},
    asking: askingOf(place, standing),
    frontends,
    doubled: (standing?.claims ?? []).filter(isDoubled).map(keyOf),
  };
}

const isDoubled = ({ address, translators }: Claim): boolean => address !== null && translators > 1;

const packAll = (dumps: readonly Dump[]): Promise<Dump[]> =>
  Promise.all(
    dumps.map(async (dump) => ({ ...dump, bytes: await pack(dump.bytes, { level: 1 }) })),
  );

/** What is read for details stays for so long: who asks for one asks for more. */
const lingerMs = 5000;

/** What the last report is of; null: nothing is known. */
async function standingOf(state: State): Promise<Standing | null> {
  const { packed, published } = state;
  if (published === null || published.body.problems.length > 0) return null;
  if (state.standing !== null) return state.standing;
  const dumps = await Promise.all(
    packed.map(async (dump) => ({ ...dump, bytes: await unpack(dump.bytes) })),
  );
  const standing = readDumps(dumps);
  if (state.packed === packed) state.standing = standing;
  setTimeout(() => {
    state.standing = null;
  }, lingerMs).unref();
  return standing;
}

async function details(state: State, key: string): Promise<readonly Detail[] | null> {
  if (state.published?.body.frontends[key] === undefined) return null;
  const { place } = state;
  const standing = await standingOf(state);
  return standing === null ? null : detailsOf(standing, place, key);
}

async function outcomes(state: State, packets: readonly Packet[]): ReturnType<Agent['outcomes']> {
  const { place, published } = state;
  const begun = cpuSeconds();
  const standing = await standingOf(state);
  if (standing === null || published === null) return null;
  const told = outcomesOf(standing, place, packets);
  // What is asked for lengthens the rest, as what is found without being asked does.
  state.answering += cpuSeconds() - begun;
  return { round: published.round, ...told };
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

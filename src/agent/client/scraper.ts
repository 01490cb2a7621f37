// Scrapes the agents of all nodes, each once in every round of its own:
//
//   slices of their Service ──► addresses ──► scrape ──► deliver ──► packets to request
//                                    ▲                       │
//                                    └── when the next report should be there
//
// A report says for how long it is valid, so the scraper knows when to ask again. It adds a small
// delay per agent, so that the agents are not all asked at the same time. Few scrapes run at one
// time. An agent that does not answer is asked again soon, then with growing pauses. From its
// second failure on, its node is unknown. A node without an agent is unknown at once.

import type { Packet } from '../../model/proxy-config.ts';
import type { PacketOutcome } from '../../rules/walk/walk.ts';
import type { AgentAddress } from './agents.ts';
import type { AgentClient } from './client.ts';
import type { AgentReport } from './report.ts';
import type { RulesSighting, ScrapeResult } from './scrape.ts';
import { outcomesOf, visit } from './scrape.ts';

/** The state of an agent. */
export const agentStates = ['answering', 'stale', 'refused', 'absent'] as const;

export type AgentState = (typeof agentStates)[number];

/** The last report of an agent. */
export interface NodeReportEntry {
  readonly kind: 'node-report';
  /** Unix seconds; `seenAt` is the moment that the report is of. */
  readonly at: number;
  readonly seenAt: number;
  readonly node: string;
  readonly report: AgentReport;
  /** The same text while the report is the same. */
  readonly version: string;
  /** Seconds from the report to the next. */
  readonly lasting: number;
  /** What becomes of packets that the agent was asked for; null: it was not asked yet. */
  readonly outcomes: ReadonlyMap<string, PacketOutcome> | null;
  /** The packets that the agent must evaluate before the node can be compared. */
  readonly onNeed: (packets: readonly Packet[]) => void;
}

/** A node is not seen; null: it is no node any more. */
export interface NodeUnseenEntry {
  readonly kind: 'node-unseen';
  readonly at: number;
  readonly node: string;
  readonly state: Exclude<AgentState, 'answering'> | null;
}

export type AgentEntry = NodeReportEntry | NodeUnseenEntry;

export interface ScraperOptions {
  readonly asker: AgentClient;
  /** Unix seconds. */
  readonly now: () => number;
  readonly random: () => number;
  readonly sleep: (seconds: number, signal: AbortSignal) => Promise<void>;
  /** The agents by their Node; null: not known yet. */
  readonly agents: () => ReadonlyMap<string, AgentAddress> | null;
  /** The names of all Nodes. */
  readonly nodes: () => Iterable<string>;
  /** Resolves when the entry is taken in. */
  readonly deliver: (entry: AgentEntry) => Promise<void>;
  readonly onTrouble: (node: string, why: string) => void;
}

/** What is known of one node's agent. */
export interface AgentStatus {
  readonly state: AgentState;
  /** Since when it is so, Unix seconds. */
  readonly since: number;
  /** The moment of its last report; null: there was none. */
  readonly seenAt: number | null;
}

export interface Scraper {
  run(signal: AbortSignal): Promise<void>;
  /** By node. */
  readonly status: () => ReadonlyMap<string, AgentStatus>;
  /** Visits so far, by what came of them. */
  readonly visits: Readonly<Record<ScrapeResult['kind'], number>>;
  readonly bytes: () => number;
}

interface Known {
  readonly node: string;
  address: AgentAddress | null;
  state: AgentState;
  since: number;
  sight: RulesSighting | null;
  /** The last report left packets to be asked for. */
  wasShort: boolean;
  failures: number;
  nextAt: number;
  busy: boolean;
}

interface State {
  readonly options: ScraperOptions;
  readonly known: Map<string, Known>;
  readonly visits: Record<ScrapeResult['kind'], number>;
}

/** Visits at one time. */
const mostVisits = 16;

/** Seconds between checks for agents that are due. */
const tick = 0.25;

/** Seconds over which the first visits are spread for each hundred agents. */
const spread = 1;

/** Seconds until an agent is asked again which had no other report, or gave none. */
const again = { same: 1, most: 60 };

export function createFleet(options: ScraperOptions): Scraper {
  const visits = { seen: 0, early: 0, refused: 0, silent: 0 };
  const state: State = { options, known: new Map(), visits };
  return {
    async run(signal) {
      const broken = Promise.withResolvers<never>();
      const going = new Set<Promise<void>>();
      while (!signal.aborted) {
        await look(state);
        for (const one of due(state, mostVisits - going.size)) {
          one.busy = true;
          const visiting = goTo(state, one, signal)
            .catch(broken.reject)
            .finally(() => {
              one.busy = false;
              going.delete(visiting);
            });
          going.add(visiting);
        }
        await Promise.race([options.sleep(tick, signal), broken.promise]);
      }
      await Promise.all(going);
    },
    status: () =>
      new Map(
        [...state.known].map(([node, { state: name, since, sight }]) => [
          node,
          { state: name, since, seenAt: sight?.seenAt ?? null },
        ]),
      ),
    visits,
    bytes: () => options.asker.bytes(),
  };
}

/** Brings up to date who is there. */
async function look({ options, known }: State): Promise<void> {
  const agents = options.agents();
  if (agents === null) return;
  const now = options.now();
  const nodes = new Set([...options.nodes(), ...agents.keys()]);
  for (const node of nodes) {
    const address = agents.get(node) ?? null;
    const one = known.get(node);
    if (one === undefined) {
      const nextAt = now + options.random() * spread * (agents.size / 100);
      const made = { ...stranger, node, address, since: now, nextAt };
      known.set(node, made);
      await unseen(options, made, address === null ? 'absent' : 'stale');
    } else if (!isSame(one.address, address)) Object.assign(one, { address, nextAt: now });
  }
  for (const one of known.values()) {
    if (!nodes.has(one.node)) {
      known.delete(one.node);
      await options.deliver({ kind: 'node-unseen', at: now, node: one.node, state: null });
    } else if (one.address === null && one.state !== 'absent') {
      one.sight = null;
      await unseen(options, one, 'absent');
    }
  }
}

const stranger: Known = {
  node: '',
  address: null,
  state: 'stale',
  since: 0,
  sight: null,
  wasShort: false,
  failures: 0,
  nextAt: 0,
  busy: false,
};

const isSame = (a: AgentAddress | null, b: AgentAddress | null): boolean =>
  a?.host === b?.host && a?.port === b?.port;

/** Who must be asked now, those first that wait longest. */
function due({ options, known }: State, most: number): Known[] {
  const now = options.now();
  return [...known.values()]
    .filter(({ address, busy, nextAt }) => address !== null && !busy && nextAt <= now)
    .sort((a, b) => a.nextAt - b.nextAt)
    .slice(0, Math.max(0, most));
}

async function unseen(
  { deliver, now }: ScraperOptions,
  known: Known,
  state: Exclude<AgentState, 'answering'>,
): Promise<void> {
  const at = now();
  if (known.state !== state) Object.assign(known, { state, since: at });
  await deliver({ kind: 'node-unseen', at, node: known.node, state });
}

async function goTo(state: State, known: Known, signal: AbortSignal): Promise<void> {
  const { options } = state;
  const { asker, now } = options;
  const { address } = known;
  if (address === null) return;
  const going = { asker, address, signal, now };
  const visited = await visit(going, known.sight);
  // It may have gone meanwhile, or be another.
  if (signal.aborted || state.known.get(known.node) !== known || !isSame(known.address, address))
    return;
  state.visits[visited.kind]++;
  if (visited.kind === 'early') known.nextAt = now() + again.same;
  else if (visited.kind !== 'seen') await failed(options, known, visited.kind, visited.why);
  else if (visited.sight.report.node !== known.node) {
    const why = `the agent there says that its node is ${visited.sight.report.node}`;
    await failed(options, known, 'refused', why);
  } else await take(state, known, visited.sight, going);
}

async function failed(
  options: ScraperOptions,
  known: Known,
  kind: 'refused' | 'silent',
  why: string,
): Promise<void> {
  known.failures++;
  const wait = Math.min(again.most, 2 ** (known.failures - 1)) * (0.75 + options.random() / 2);
  known.nextAt = options.now() + wait;
  if (kind === 'silent' && known.failures < 2) return;
  if (known.state === 'answering' || known.failures === 2) options.onTrouble(known.node, why);
  await unseen(options, known, kind === 'refused' ? 'refused' : 'stale');
}

/** A report is stale if it is older than this many rounds and this many seconds. */
const stale = { rounds: 3, seconds: 60 };

async function take(
  { options }: State,
  known: Known,
  sight: RulesSighting,
  going: Parameters<typeof visit>[0],
): Promise<void> {
  const { node, sight: before } = known;
  const { report, etag, round, seenAt, lasting } = sight;
  const now = options.now();
  known.nextAt = Math.max(
    sight.nextAt + options.random() * Math.min(1, lasting / 10),
    now + again.same,
  );
  if (now - seenAt > Math.max(stale.seconds, stale.rounds * lasting)) {
    await unseen(options, known, 'stale');
    return;
  }
  if (known.state === 'answering' && before?.round === round) return;
  let needed: readonly Packet[] = [];
  const entry = { kind: 'node-report', seenAt, node, report, lasting } as const;
  const onNeed = (packets: readonly Packet[]): void => {
    needed = packets;
  };
  // What packets were asked for is of one round; the report alone is the same while its tag is.
  const version = known.wasShort ? `${etag} ${round}` : etag;
  await options.deliver({ ...entry, at: now, version, outcomes: null, onNeed });
  if (needed.length > 0) {
    const outcomes = await outcomesOf(going, needed, round);
    if (outcomes === 'another round') {
      known.nextAt = options.now() + again.same;
      return;
    }
    if (typeof outcomes === 'string') {
      await failed(options, known, 'refused', outcomes);
      return;
    }
    const more = { at: options.now(), version: `${etag} ${round}`, outcomes };
    await options.deliver({ ...entry, ...more, onNeed: () => undefined });
  }
  known.wasShort = needed.length > 0;
  known.failures = 0;
  known.sight = sight;
  if (known.state !== 'answering')
    Object.assign(known, { state: 'answering', since: options.now() });
}

// Scrapes the agents of all nodes, each once in every round of its own:
//
//   slices of their Service ──► addresses ──► scrape ──► deliver ──► packets to request
//                                    ▲                       │
//                                    └── when the next report should be there
//
// The agents are the endpoints of their own headless Service. A small delay per agent prevents that
// all are asked at the same time. An agent that does not answer is asked again soon, then with
// growing pauses, and one that answers garbage at last once per hour. From its second failure on,
// or without an agent, its node is unknown.

import { joinHostPort } from '../../model/ip.ts';
import type { EndpointSlice } from '../../model/objects.ts';
import type { Packet } from '../../model/proxy-config.ts';
import type { PacketOutcome } from '../../rules/walk/walk.ts';
import type { AgentClient, Scrape, ScrapedReport } from './client.ts';
import { refused, scrapeOutcomes, scrapeReport } from './client.ts';
import type { NoAnswer } from './identity.ts';

export const agentStates = ['answering', 'stale', 'refused', 'absent'] as const;

export type AgentState = (typeof agentStates)[number];

/** Times are Unix seconds. */
export interface NodeReportEntry extends Omit<ScrapedReport, 'kind' | 'round' | 'nextAt'> {
  readonly kind: 'node-report';
  readonly at: number;
  readonly node: string;
  /** The same text while the report and the outcomes are the same. */
  readonly version: string;
  /** Outcomes of the packets that the agent evaluated; `null` if none were requested yet. */
  readonly outcomes: ReadonlyMap<string, PacketOutcome> | null;
  /** The packets that the agent must evaluate before the node can be compared. */
  readonly onNeed: (packets: readonly Packet[]) => void;
}

export interface NodeUnseenEntry {
  readonly kind: 'node-unseen';
  readonly at: number;
  readonly node: string;
  /** `null` if the Node was deleted. */
  readonly state: Exclude<AgentState, 'answering'> | null;
}

export type AgentEntry = NodeReportEntry | NodeUnseenEntry;

export interface ScraperOptions {
  readonly client: AgentClient;
  /** Unix seconds. */
  readonly now: () => number;
  readonly random: () => number;
  readonly sleep: (seconds: number, signal: AbortSignal) => Promise<void>;
  /** The EndpointSlices of the agents' Service; `null` before they are known. */
  readonly slices: () => Iterable<EndpointSlice> | null;
  readonly nodes: () => Iterable<string>;
  /** Whether the agent of a node is asked: with shards, another shard may ask it. */
  readonly isAsked: (node: string) => boolean;
  /** Resolves when the entry was processed. */
  readonly deliver: (entry: AgentEntry) => Promise<void>;
  readonly onTrouble: (node: string, why: string) => void;
}

type KnownAgent = ReturnType<typeof newAgent>;

const newAgent = (node: string, address: string | null, since: number, nextAt: number) => ({
  node,
  /** `ip:port`; `null` if the node has no agent. */
  address,
  state: 'stale' as AgentState,
  /** The start of this state, Unix seconds. */
  since,
  last: null as ScrapedReport | null,
  /** Whether the last report was not enough, so packets were requested. */
  wasShort: false,
  /** Why outcomes of packets were missing last; `null` if all were there. */
  lack: null as string | null,
  failures: 0,
  nextAt,
  isBusy: false,
});

const createState = (options: ScraperOptions) => ({
  options,
  known: new Map<string, KnownAgent>(),
  /** Scrapes so far, by their result. */
  visits: { seen: 0, early: 0, refused: 0, silent: 0 },
});

type State = ReturnType<typeof createState>;

/**
 * Scrapes at one time, and how many of them may be of agents that failed last. Each may take 10 s.
 * Without the second limit, nodes that cannot be reached would delay the scrapes of all others.
 */
const mostScrapes = { all: 16, failing: 8 };

/** Seconds between checks for agents that are due. */
const tick = 0.25;

/** Seconds until an agent is asked again that had no other report, gave none, or gave garbage. */
const again = { same: 1, most: 60, garbage: 3600 };

/** A report is stale if it is older than this number of rounds and of seconds. */
const stale = { rounds: 3, seconds: 60 };

export type Scraper = ReturnType<typeof createScraper>;

export function createScraper(options: ScraperOptions) {
  const state = createState(options);
  return {
    /** Runs until the signal is aborted. Rejects, within a tick, when `deliver` does. */
    async run(signal: AbortSignal): Promise<void> {
      // A race of each tick with one promise would keep all ticks in memory.
      const errors: unknown[] = [];
      const running = new Set<Promise<void>>();
      while (!signal.aborted) {
        await updateAgents(state);
        for (const agent of dueAgents(state).slice(0, mostScrapes.all - running.size)) {
          agent.isBusy = true;
          const scraping = scrapeAgent(state, agent, signal)
            .catch((error: unknown) => void errors.push(error))
            .finally(() => {
              agent.isBusy = false;
              running.delete(scraping);
            });
          running.add(scraping);
        }
        await options.sleep(tick, signal);
        if (errors.length > 0) throw errors[0];
      }
      await Promise.all(running);
    },
    /** By node. `seenAt` is the moment of the last report; `null` without one. */
    status: () =>
      new Map(
        Array.from(state.known, ([node, { state: name, since, last }]) => [
          node,
          { state: name, since, seenAt: last?.seenAt ?? null },
        ]),
      ),
    visits: state.visits,
    bytes: options.client.bytes,
  };
}

/**
 * The addresses of agents by node. Of several endpoints on one Node, as while an agent is replaced,
 * a ready one counts, and of equals the first by address.
 */
export function agentsOf(slices: Iterable<EndpointSlice>): Map<string, string> {
  const found = new Map<string, { readonly address: string; readonly rank: string }>();
  for (const { addressType, ports, endpoints } of slices) {
    const port = ports.find(({ protocol, port }) => protocol === 'TCP' && port !== null)?.port;
    if (addressType === 'FQDN' || typeof port !== 'number') continue;
    for (const { addresses, node, ready, terminating } of endpoints) {
      const [host] = addresses;
      if (host === undefined || node === null || node === '') continue;
      const isReady = ready !== false && terminating !== true;
      const rank = `${isReady ? 0 : 1} ${addressType} ${host}`;
      const other = found.get(node);
      if (other !== undefined && rank >= other.rank) continue;
      found.set(node, { address: joinHostPort(host, port), rank });
    }
  }
  return new Map(Array.from(found, ([node, { address }]) => [node, address]));
}

async function updateAgents({ options, known }: State): Promise<void> {
  const slices = options.slices();
  if (slices === null) return;
  const addresses = agentsOf(slices);
  const now = options.now();
  const nodes = new Set([...options.nodes(), ...addresses.keys()].filter(options.isAsked));
  for (const node of nodes) {
    const address = addresses.get(node) ?? null;
    const agent = known.get(node);
    if (agent === undefined) {
      // The first scrapes are spread over a second for each hundred agents.
      const nextAt = now + options.random() * (addresses.size / 100);
      const added = newAgent(node, address, now, nextAt);
      known.set(node, added);
      await markUnseen(options, added, address === null ? 'absent' : 'stale');
    } else if (agent.address !== address) Object.assign(agent, { address, nextAt: now });
  }
  for (const agent of known.values()) {
    const { node, address, state } = agent;
    if (!nodes.has(node)) {
      known.delete(node);
      await options.deliver({ kind: 'node-unseen', at: now, node, state: null });
    } else if (address === null && state !== 'absent') {
      agent.last = null;
      await markUnseen(options, agent, 'absent');
    }
  }
}

function dueAgents({ options, known }: State): KnownAgent[] {
  const now = options.now();
  const agents = [...known.values()];
  const hasFailed = ({ failures }: KnownAgent): boolean => failures > 0;
  let failing = mostScrapes.failing - agents.filter((it) => it.isBusy && hasFailed(it)).length;
  return agents
    .filter(({ address, isBusy, nextAt }) => address !== null && !isBusy && nextAt <= now)
    .sort((a, b) => a.nextAt - b.nextAt)
    .filter((it) => !hasFailed(it) || failing-- > 0);
}

async function markUnseen(
  { deliver, now }: ScraperOptions,
  agent: KnownAgent,
  state: Exclude<AgentState, 'answering'>,
): Promise<void> {
  const at = now();
  if (agent.state !== state) Object.assign(agent, { state, since: at });
  await deliver({ kind: 'node-unseen', at, node: agent.node, state });
}

async function scrapeAgent(state: State, agent: KnownAgent, signal: AbortSignal): Promise<void> {
  const { options, known, visits } = state;
  const { client, now, random, onTrouble } = options;
  const { address, node } = agent;
  if (address === null) return;
  const scrape: Scrape = { client, node, address, signal, now };
  const result = await scrapeReport(scrape, agent.last);
  // Meanwhile the agent may be gone, or replaced by another.
  if (signal.aborted || known.get(node) !== agent || agent.address !== address) return;
  visits[result.kind]++;
  if (result.kind === 'early') {
    agent.nextAt = now() + again.same;
    return;
  }
  const failure =
    result.kind === 'seen' ? await deliverReport(state, agent, result, scrape) : result;
  if (failure === null) return;
  agent.failures++;
  const longest = failure.garbage === undefined ? again.most : again.garbage;
  const wait = Math.min(longest, 2 ** (agent.failures - 1)) * (0.75 + random() / 2);
  agent.nextAt = now() + wait;
  if (failure.kind === 'silent' && agent.failures < 2) return;
  if (agent.state === 'answering' || agent.failures === 2) onTrouble(node, failure.why);
  await markUnseen(options, agent, failure.kind === 'refused' ? 'refused' : 'stale');
}

/** Delivers a report once. Returns how the agent failed; `null` if it did not. */
async function deliverReport(
  { options, known }: State,
  agent: KnownAgent,
  scraped: ScrapedReport,
  scrape: Scrape,
): Promise<NoAnswer | null> {
  const { node } = agent;
  const { report, etag, round, seenAt, lasting } = scraped;
  if (report.node !== node) {
    return refused(`the agent there says that its node is ${report.node}`);
  }
  const at = options.now();
  const delay = options.random() * Math.min(1, lasting / 10);
  agent.nextAt = Math.max(scraped.nextAt + delay, at + again.same);
  if (at - seenAt > Math.max(stale.seconds, stale.rounds * lasting)) {
    await markUnseen(options, agent, 'stale');
    return null;
  }
  if (agent.state === 'answering' && agent.last?.round === round) return null;
  let needed: readonly Packet[] = [];
  const onNeed = (packets: readonly Packet[]): void => {
    needed = packets;
  };
  const entry = { kind: 'node-report', at, seenAt, node, report, etag, lasting, onNeed } as const;
  // Outcomes belong to one round. The report alone is the same while its tag is.
  const version = agent.wasShort ? `${etag} ${round}` : etag;
  await options.deliver({ ...entry, version, outcomes: null });
  const wasShort = needed.length > 0;
  if (wasShort) {
    const scrapedOutcomes = await scrapeOutcomes(scrape, needed, round);
    // Nothing would remove the outcomes of a Node that was deleted meanwhile.
    if (known.get(node) !== agent) return null;
    if (scrapedOutcomes === 'another round') {
      agent.nextAt = options.now() + again.same;
      return null;
    }
    if ('kind' in scrapedOutcomes) return scrapedOutcomes;
    const { outcomes, lack } = scrapedOutcomes;
    if (lack !== null && agent.lack === null) options.onTrouble(node, lack);
    agent.lack = lack;
    const later = { at: options.now(), version: `${etag} ${round}`, onNeed: () => undefined };
    await options.deliver({ ...entry, ...later, outcomes });
  }
  const since = agent.state === 'answering' ? agent.since : options.now();
  Object.assign(agent, { state: 'answering', since, wasShort, failures: 0, last: scraped });
  return null;
}

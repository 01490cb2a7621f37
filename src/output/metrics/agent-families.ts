// The families about the agents of nodes: how they stand, how old what they tell is, and how much
// of it differs from what must be there. They are part of the catalogue (families.ts) and follow
// its rules. Where no agents are asked, all of them are 0.

import type { AgentMetrics, MetricFamily } from './family.ts';
import type { Sample } from './sample.ts';

const prefix = 'endpoint_auditor_';

// Made from records, so that a state or result that is new cannot be forgotten here.
const states = Object.keys({
  answering: true,
  stale: true,
  refused: true,
  absent: true,
} satisfies Record<keyof AgentMetrics['states'], true>) as (keyof AgentMetrics['states'])[];

const results = Object.keys({
  seen: true,
  early: true,
  refused: true,
  silent: true,
} satisfies Record<keyof AgentMetrics['visits'], true>) as (keyof AgentMetrics['visits'])[];

const one = (value: number): Sample[] => [{ labels: {}, value }];

/** Families of agents, in the order of the documentation. */
export const agentFamilies: readonly MetricFamily[] = [
  {
    name: `${prefix}node_agents`,
    type: 'gauge',
    help:
      'Nodes by how their agent stands: it answers, is not heard of (stale), does not accept us ' +
      'or is not understood (refused), or there is none (absent).',
    labels: { state: states },
    unit: 'none',
    stability: 'stable',
    source: 'agent/client/scraper.ts',
    samples: ({ agents }) =>
      states.map((state) => ({ labels: { state }, value: agents.states[state] })),
  },
  {
    name: `${prefix}node_report_oldest_seconds`,
    type: 'gauge',
    help: 'Age of the oldest report of an agent that answers; 0 without any.',
    labels: {},
    unit: 'seconds',
    stability: 'stable',
    source: 'agent/client/scraper.ts',
    samples: ({ agents, now }) =>
      one(agents.oldestSeenAt === null ? 0 : Math.max(0, now - agents.oldestSeenAt)),
  },
  {
    name: `${prefix}node_frontends_divergent`,
    type: 'gauge',
    help:
      'Frontends of all nodes whose digest is not the one that follows from the cluster; those ' +
      'that no digest can tell of, such as with several right fates, are not among them.',
    labels: {},
    unit: 'none',
    stability: 'experimental',
    source: 'audit/node/observation.ts',
    samples: ({ agents }) => one(agents.divergent),
  },
  {
    name: `${prefix}agent_visits_total`,
    type: 'counter',
    help:
      'Visits to agents: a report was there (seen), there was none yet (early), the agent did ' +
      'not accept us or was not understood (refused), or it did not answer (silent).',
    labels: { result: results },
    unit: 'none',
    stability: 'experimental',
    source: 'agent/client/scraper.ts',
    samples: ({ agents }) =>
      results.map((result) => ({ labels: { result }, value: agents.visits[result] })),
  },
  {
    name: `${prefix}agent_bytes_total`,
    type: 'counter',
    help: 'Bytes of the answers of agents.',
    labels: {},
    unit: 'bytes',
    stability: 'experimental',
    source: 'agent/client/client.ts',
    samples: ({ agents }) => one(agents.bytes),
  },
];

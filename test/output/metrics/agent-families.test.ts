// The families of agents: all states and results from the first scrape on, and what they tell.

import { expect, test } from 'vitest';

import { agentFamilies } from '../../../src/output/metrics/agent-families.ts';
import { moment, stateOf } from '../samples.ts';

const valuesOf = (more: Parameters<typeof stateOf>[0]): Record<string, number> => {
  const state = stateOf(more);
  const values = agentFamilies.flatMap((family) => {
    if (family.type === 'histogram') return [];
    return family.samples(state).map(({ labels, value }): [string, number] => {
      return [
        [family.name.slice('endpoint_auditor_'.length), ...Object.values(labels)].join(' '),
        value,
      ];
    });
  });
  return Object.fromEntries(values);
};

test('without agents all are 0', () => {
  const values = valuesOf({});
  expect(Object.keys(values)).toHaveLength(11);
  expect(new Set(Object.values(values))).toEqual(new Set([0]));
});

test('with agents they tell of them', () => {
  const agents = {
    states: { answering: 3, stale: 1, refused: 0, absent: 2 },
    oldestSeenAt: moment - 40,
    divergent: 9,
    visits: { seen: 8, early: 1, refused: 0, silent: 5 },
    bytes: 1234,
  };
  expect(valuesOf({ agents, now: moment })).toMatchObject({
    'node_agents answering': 3,
    'node_agents absent': 2,
    node_report_oldest_seconds: 40,
    node_frontends_divergent: 9,
    'agent_visits_total silent': 5,
    agent_bytes_total: 1234,
  });
});

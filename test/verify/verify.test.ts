// The auditor agrees with the reference auditor on scenarios and on random lives, and the
// comparison finds faults of the auditor.

import { afterEach, describe, expect, test, vi } from 'vitest';

import { mutants, nodeMutants, verifyLife } from './compare.ts';
import { verifyNodeScenario } from './node-scenarios.ts';
import { main, verifyScenario } from './verify.ts';

afterEach(() => {
  vi.restoreAllMocks();
});

/** Some of all kinds; `npm run verify:short` plays all, and random lives. */
const scenarios = [
  'flapping-pod.txt',
  'rolling-update-with-controllers-a-second-behind.txt',
  'node-drain.txt',
  'node-moves-to-another-zone.txt',
  'slice-taken-from-the-controller-by-a-label.txt',
  'failed-pod-keeps-its-address-and-another-pod-gets-it.txt',
  'two-living-pods-one-address.txt',
  'unreadable-pod-makes-its-services-unknown.txt',
  'without-nodes-slices-are-unknown.txt',
];

describe('the auditor and the reference auditor', () => {
  test.each(scenarios)('agree on the scenario %s', async (name) => {
    const { events, disagreements } = await verifyScenario(name);
    expect(disagreements.join('\n')).toBe('');
    expect(events).toBeGreaterThan(0);
  });
});

const nodeScenarios = [
  'endpoint-missing-from-the-rules.txt',
  'stale-endpoint-in-the-rules.txt',
  'two-faults-at-once.txt',
];

describe('the auditor and the reference auditor, by dumps and by reports of agents,', () => {
  test.each(nodeScenarios)('agree on the node of %s', async (name) => {
    const { readings, findings, disagreements } = await verifyNodeScenario(name);
    expect(disagreements.join('\n')).toBe('');
    expect(readings).toBeGreaterThan(0);
    expect(findings).toBeGreaterThan(0);
  });

  test.each(Object.entries(nodeMutants))('disagree about a node with %s', async (_, mutant) => {
    const { disagreements } = await verifyNodeScenario('two-faults-at-once.txt', mutant);
    expect(disagreements.length).toBeGreaterThan(0);
  });
});

test.each([['a finding that is open at the end has a new difference with an older clock', 53532]])(
  'the auditor and the reference auditor agree on a life in which %s',
  async (_, seed) => {
    const { findings, disagreements } = await verifyLife(seed);
    expect(disagreements.join('\n')).toBe('');
    expect(findings).toBeGreaterThan(0);
  },
);

describe('a fault of the auditor is reported', () => {
  const names = ['endpoints-edited-by-hand-stay-so.txt', 'node-moves-to-another-zone.txt'];
  test.each(Object.entries(mutants))('%s', async (_, mutant) => {
    for (const name of names) {
      const { disagreements } = await verifyScenario(name, mutant());
      expect(disagreements.length, name).toBeGreaterThan(0);
    }
  });
});

describe('the command', () => {
  test.each([
    ['an unknown flag', ['--none']],
    ['an unknown mutant', ['--mutant', 'none']],
    ['a number that is none', ['--lives', 'many']],
    ['no input', []],
    ['a file that does not exist', ['test/verify/none.ndjson']],
  ])('ends with 2 for %s', async (_, words) => {
    vi.spyOn(console, 'error').mockReturnValue();
    vi.spyOn(console, 'log').mockReturnValue();
    expect(await main(words)).toBe(2);
  });

  test('ends with 0 and prints its sums if all agree', async () => {
    const log = vi.spyOn(console, 'log').mockReturnValue();
    expect(await main(['--lives', '1', '--first', '901'])).toBe(0);
    const [line] = log.mock.calls.at(-1) as [string];
    expect(JSON.parse(line)).toMatchObject({ disagreements: 0 });
  });

  test('ends with 1 and prints what disagrees, with the events', async () => {
    const log = vi.spyOn(console, 'log').mockReturnValue();
    expect(await main(['--scenarios', '--mutant', 'a wrong cause'])).toBe(1);
    const text = log.mock.calls.flat().join('\n');
    expect(text).toContain('differences (- reference, + auditor)');
    expect(text).toContain('endpoints modified shop/web');
  });
});

// What the server says of an auditor: readiness, and one Service in full.

import { describe, expect, test } from 'vitest';

import { answersOf } from '../../src/auditor/queries.ts';
import { auditorOf, clock, lively, progress, readAnother, watches } from '../entries.ts';

describe('one Service', () => {
  test('is told with its verdicts, what is pending and since when, and its inputs', () => {
    const { auditor } = auditorOf(30, { live: true });
    for (const entry of lively(['nodes'])) auditor.take(entry);
    auditor.take(clock(110));
    const web = answersOf(auditor, 'test').service('shop', 'web');
    expect(web).toMatchObject({
      format: 1,
      now: 110,
      namespace: 'shop',
      service: 'web',
      outputs: [
        { output: 'endpoints', verdict: 'pending', reason: null },
        { output: 'endpointslices', verdict: 'unknown', reason: 'nodes-not-known' },
      ],
      standing: [],
      resolved: [],
      inputs: {
        pods: { state: 'synced', unseenSeconds: 0 },
        nodes: { state: 'off', unseenSeconds: 0 },
      },
    });
    expect(web?.pending.map(({ code, since }) => [code, since])).toEqual([
      ['endpoints-missing', 101],
      ['slice-placeholder-missing', 101],
    ]);
  });

  test('has findings when the window is over, and none of them are its neighbours’', () => {
    const { auditor } = auditorOf(30, { live: true });
    for (const entry of lively()) auditor.take(entry);
    readAnother(auditor, 140, '80');
    for (const entry of progress(140, '80')) auditor.take(entry);
    auditor.findings.retry(140);
    for (const entry of watches(141, 'stale', ['endpoints'])) auditor.take(entry);
    auditor.take(clock(150));
    const web = answersOf(auditor, 'test').service('shop', 'web');
    expect(web?.pending).toEqual([]);
    expect(web?.standing.map(({ code }) => code).sort()).toEqual([
      'endpoints-missing',
      'slice-placeholder-missing',
    ]);
    expect(web?.outputs).toEqual([
      { output: 'endpoints', verdict: 'unknown', reason: 'input-stale' },
      { output: 'endpointslices', verdict: 'different', reason: null },
    ]);
    expect(web?.inputs.endpoints).toEqual({ state: 'stale', unseenSeconds: 9 });
  });

  test('that does not exist is none', () => {
    const { auditor } = auditorOf(30, { live: true });
    expect(answersOf(auditor, 'test').service('shop', 'web')).toBeNull();
    for (const entry of lively()) auditor.take(entry);
    expect(answersOf(auditor, 'test').service('shop', 'api')).toBeNull();
  });
});

test('what the caller knows of the loop is passed on', () => {
  const { auditor } = auditorOf(30);
  expect(answersOf(auditor, 'test').stuck()).toBeNull();
  expect(
    answersOf(auditor, 'test', {
      stuck: () => 'so',
      counters: () => new Map(),
      fleet: null,
    }).stuck(),
  ).toBe('so');
});

// Which cluster is opened, and an audit of it.

import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { afterEach, describe, expect, test, vi } from 'vitest';

import { createConnectionState } from '../../../src/cluster/api/connection-state.ts';
import type { LiveAuditor } from '../../../src/auditor/live.ts';
import { problemText } from '../../../src/cluster/decode/problem.ts';
import {
  auditOnce,
  createLiveAuditor,
  isSettled,
  noteSilence,
  openCluster,
} from '../../../src/commands/shared/cluster.ts';
import { endlessPages, virtualClock } from '../../apiserver/server.ts';
import { emptySlice, liveCluster, printed, rawSlice, usual } from '../../live-cluster.ts';

afterEach(() => {
  vi.unstubAllEnvs();
  vi.restoreAllMocks();
});

const nowhere = join(tmpdir(), 'endpoint-auditor-no-such-kubeconfig');

test('without any configuration, no cluster is opened and an error says so', () => {
  vi.stubEnv('KUBECONFIG', nowhere);
  vi.stubEnv('KUBERNETES_SERVICE_HOST', undefined);
  expect(() => openCluster(usual)).toThrow('No cluster is configured');
});

test('a named cluster, or the one of the pod, is never replaced by another', () => {
  vi.stubEnv('KUBECONFIG', nowhere);
  const refused = /^(?!No cluster is configured)./;
  vi.stubEnv('KUBERNETES_SERVICE_HOST', '10.96.0.1');
  expect(() => openCluster(usual)).toThrow(refused);
  vi.stubEnv('KUBERNETES_SERVICE_HOST', undefined);
  expect(() => openCluster({ ...usual, context: 'x' })).toThrow(refused);
  const named = { ...usual, kubeconfig: nowhere };
  expect(() => openCluster(named)).toThrow(nowhere);
});

test('the address is that of the context', () => {
  const path = join(mkdtempSync(join(tmpdir(), 'endpoint-auditor-')), 'config');
  const one = (name: string, server: string): object => ({ name, cluster: { server } });
  const context = (name: string): object => ({ name, context: { cluster: name, user: 'u' } });
  const config = {
    apiVersion: 'v1',
    kind: 'Config',
    clusters: [one('a', 'https://a.example'), one('b', 'https://b.example')],
    contexts: [context('a'), context('b')],
    users: [{ name: 'u', user: { token: 't' } }],
    'current-context': 'a',
  };
  writeFileSync(path, JSON.stringify(config));
  const open = (context?: string): string => {
    const cluster = openCluster({
      ...usual,
      kubeconfig: path,
      ...(context === undefined ? {} : { context }),
    });
    cluster.close();
    return cluster.server;
  };
  expect([open(), open('b')]).toEqual(['https://a.example', 'https://b.example']);
  expect(() => open('c')).toThrow(/"c"/);
});

test('the auditor of a live cluster reports node rules that it cannot read', async () => {
  const problems: string[] = [];
  const { cluster } = liveCluster(rawSlice);
  const options = { ...usual, settle: 0 };
  const { auditor, live } = createLiveAuditor(cluster, options, (problem) => {
    problems.push(problemText(problem));
  });
  const stop = new AbortController();
  const ended = live.run(stop.signal);
  await expect.poll(() => auditor.serviceAuditor() !== null).toBe(true);
  const rules = { kind: 'given-rules', node: 'node-a', source: 'a.rules', unread: null } as const;
  await live.deliver({ ...rules, text: '*nat\n:PREROUTING\n-A', config: null });
  stop.abort();
  await ended;
  expect(problems.join('\n')).toContain('a.rules');
  expect(problems.join('\n')).toContain('Node node-a');
});

test.each([
  ['is reported if no answer has come', () => undefined, 'Waiting for the API server'],
  [
    'is not reported after an answer, although its bytes wait',
    (state: ReturnType<typeof createConnectionState>) => state.succeeded('version'),
    '',
  ],
])('silence %s', async (_, answer, expected) => {
  const clock = virtualClock();
  const connection = createConnectionState(() => clock.now(), ignore);
  const status = new Map([['pods', { counters: { bytes: 0 } }]]);
  const live = { reflectors: { connection, status } } as unknown as LiveAuditor;
  const { cluster } = liveCluster(rawSlice);
  const { err } = printed();
  noteSilence(
    { ...cluster, clock: { ...cluster.clock, ...clock } },
    live,
    new AbortController().signal,
  );
  answer(connection);
  await clock.runUntil(clock.now() + 60);
  expect(err()).toContain(expected);
  expect(err() === '').toBe(expected === '');
});

const ignore = (): undefined => undefined;

describe('an audit of a live cluster', () => {
  test('ends as soon as the caller has seen enough', async () => {
    const { cluster } = liveCluster(emptySlice);
    let calls = 0;
    const auditor = await auditOnce({ ...usual, settle: 3600 }, cluster, ignore, () => ++calls > 1);
    expect(auditor.serviceAuditor()?.audited.has('shop/web')).toBe(true);
    expect(isSettled(auditor)).toBe(false);
  });

  test('ends when no difference is left', async () => {
    const { cluster } = liveCluster();
    const auditor = await auditOnce(usual, cluster, ignore, isSettled);
    expect(auditor.nextAt()).toBeNull();
  });

  test('gives up if bytes come, but no object', async () => {
    const clock = virtualClock();
    const { cluster, server } = liveCluster(rawSlice, clock);
    server.faults.before = ({ resource, request }) => {
      if (resource === null) return null;
      async function* spaces() {
        while (!request.signal.aborted) {
          await clock.sleep(1, request.signal);
          yield Buffer.from(' ');
        }
      }
      return { status: 200, headers: { 'content-type': 'application/json' }, body: spaces() };
    };
    printed();
    const audited = expect(auditOnce(usual, cluster, ignore, isSettled)).rejects.toThrow(
      'Cannot read from the API server https://fake.example: no object came within 10 s. ' +
        'Incomplete lists: services, nodes, pods, endpointslices, endpoints',
    );
    await clock.runUntil(clock.now() + 120);
    await audited;
  });

  test('gives up if pages with the same object come without end', async () => {
    const clock = virtualClock();
    const { cluster, server } = liveCluster(rawSlice, clock);
    server.watchList = false;
    endlessPages(server, () => '90');
    printed();
    const audited = expect(auditOnce(usual, cluster, ignore, isSettled)).rejects.toThrow(
      /: the list of \w+ does not end after 1[01] pages\..*\w\. Incomplete lists: \w/,
    );
    await clock.runUntil(clock.now() + 20);
    await audited;
  });

  test('throws an error with the reason why the cluster cannot be read', async () => {
    const clock = virtualClock();
    const { cluster, server } = liveCluster(rawSlice, clock);
    for (const verb of ['list', 'watch']) server.faults.forbidden.add(`${verb} services`);
    printed();
    const audited = expect(auditOnce(usual, cluster, ignore, isSettled)).rejects.toThrow(
      'No Services could be read from https://fake.example',
    );
    await clock.runUntil(clock.now() + 120);
    await audited;
  });
});

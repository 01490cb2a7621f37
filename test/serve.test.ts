// The loop: when judging begins, what unreadable input does to verdicts, and how a replay keeps
// time.

import { describe, expect, test } from 'vitest';

import type { Finding } from '../src/audit/findings.ts';
import type { RecordingEntry } from '../src/cluster/recording.ts';
import type { AnyObject, Resource } from '../src/model/objects.ts';
import { resources } from '../src/model/objects.ts';
import type { Auditor } from '../src/serve.ts';
import { createAuditor, replay, reportOf, statusOf } from '../src/serve.ts';
import { project } from '../src/cluster/project.ts';

const service = {
  metadata: { name: 'web', namespace: 'shop', uid: 'web', resourceVersion: '1' },
  spec: { clusterIP: '10.96.0.9', ipFamilies: ['IPv4'], selector: { app: 'web' }, ports: [] },
};

function projected(resource: Resource, raw: object, at: number): AnyObject {
  const projection = project(resource, raw, at);
  if (projection.problem !== undefined) throw new Error(projection.problem.message);
  return projection.object;
}

const added = (resource: Resource, raw: object, at: number): RecordingEntry => ({
  kind: 'event',
  event: { resource, type: 'added', object: projected(resource, raw, at), at },
});

const header = (at: number, kubernetes: string | null = 'v1.33.1'): RecordingEntry => ({
  kind: 'header',
  at,
  kubernetes,
  resources,
});

const synced = (at: number, without: readonly Resource[] = []): RecordingEntry[] =>
  resources
    .filter((resource) => !without.includes(resource))
    .map((resource) => ({ kind: 'synced', at, resource }));

const clock = (at: number): RecordingEntry => ({ kind: 'clock', at });

const end = (at: number): RecordingEntry => {
  const none = new Map<string, number>();
  return { kind: 'end', at, complete: true, skipped: none, problems: none };
};

function auditorOf(settle: number): { auditor: Auditor; opened: Finding[] } {
  const opened: Finding[] = [];
  const auditor = createAuditor({
    settle,
    release: null,
    maxEndpointsPerSlice: 100,
    onOpen: (finding) => opened.push(finding),
  });
  return { auditor, opened };
}

const report = (auditor: Auditor, namespace: string | null = null) =>
  reportOf(auditor, { kind: 'replay', sources: ['test'], namespace, problems: [] });

async function* stream(entries: readonly RecordingEntry[]): AsyncGenerator<RecordingEntry> {
  for (const entry of entries) yield await Promise.resolve(entry);
}

describe('judging begins when every promised resource is complete', () => {
  test('not before, and then with the clock of that moment', () => {
    const { auditor, opened } = auditorOf(30);
    for (const entry of [header(100), added('services', service, 100), ...synced(101, ['pods'])]) {
      auditor.take(entry);
    }
    auditor.take(clock(200));
    expect(auditor.ledger()).toBeNull();
    expect(statusOf(auditor, 'test').notReady).not.toBeNull();
    auditor.take({ kind: 'synced', at: 210, resource: 'pods' });
    expect(statusOf(auditor, 'test').notReady).toBeNull();
    auditor.take(clock(239));
    expect(opened).toEqual([]);
    auditor.take(clock(240));
    expect(opened.map(({ code, openedAt }) => [code, openedAt])).toEqual([
      ['endpoints-missing', 240],
      ['slice-placeholder-missing', 240],
    ]);
  });

  test('what is missing at the end is not known, and so are the outputs that need it', () => {
    const { auditor, opened } = auditorOf(0);
    for (const entry of [
      header(100),
      added('services', service, 100),
      ...synced(101, ['endpointslices']),
      end(102),
    ]) {
      auditor.take(entry);
    }
    expect(report(auditor).unknown).toEqual({ 'endpointslices-not-known': 1 });
    expect(opened.map(({ output }) => output)).toEqual(['endpoints']);
  });

  test('the release is the one that the input names, or the one that was asked for', () => {
    const { auditor } = auditorOf(0);
    auditor.take(header(100));
    expect(auditor.release().minor).toBe(33);
    const { auditor: unnamed } = auditorOf(0);
    unnamed.take(header(100, null));
    expect(unnamed.release().minor).toBe(36);
  });
});

describe('an object that cannot be read', () => {
  const lost = {
    resource: 'pods',
    namespace: 'shop',
    name: 'web-1',
    labels: { app: 'web' },
  } as const;

  test('makes the Services unknown that may select it, until it can be read again', () => {
    const { auditor, opened } = auditorOf(30);
    for (const entry of [header(100), added('services', service, 100), ...synced(101)]) {
      auditor.take(entry);
    }
    auditor.take({ kind: 'unreadable', at: 110, type: 'added', lost });
    auditor.take(clock(200));
    expect(opened).toEqual([]);
    expect(report(auditor).unknown).toEqual({ 'object-unreadable': 2 });
    expect(auditor.dropped().unreadable).toBe(1);
    const pod = {
      metadata: { name: 'web-1', namespace: 'shop', uid: 'web-1', resourceVersion: '7' },
      spec: {},
      status: {},
    };
    auditor.take(added('pods', pod, 201));
    auditor.take(clock(231));
    expect(report(auditor).unknown).toEqual({});
    expect(opened.map(({ since }) => since)).toEqual([201, 201]);
  });
});

test('report, page and metrics count a Service that no version could be read of', () => {
  const { auditor } = auditorOf(30);
  for (const entry of [header(100), ...synced(101)]) auditor.take(entry);
  const lost = { resource: 'services', namespace: 'shop', name: 'web', labels: null } as const;
  auditor.take({ kind: 'unreadable', at: 110, type: 'added', lost });
  const want = { 'object-unreadable': 1 };
  expect(report(auditor).unknown).toEqual(want);
  expect(report(auditor, 'pay').unknown).toEqual({});
  expect(statusOf(auditor, 'test').metrics.summary.unknown).toEqual(want);
});

test('a deletion whose object cannot be read still deletes it', () => {
  const { auditor } = auditorOf(30);
  for (const entry of [header(100), added('services', service, 100), ...synced(101)]) {
    auditor.take(entry);
  }
  const lost = { resource: 'services', namespace: 'shop', name: 'web', labels: null } as const;
  auditor.take({ kind: 'unreadable', at: 110, type: 'deleted', lost });
  auditor.take(clock(200));
  expect(report(auditor)).toMatchObject({ services: 0, unknown: {}, findings: [] });
});

describe('a report', () => {
  test('of one namespace counts no other', () => {
    const { auditor } = auditorOf(0);
    const other = { ...service, metadata: { ...service.metadata, namespace: 'pay' } };
    const events = [added('services', service, 100), added('services', other, 100)];
    for (const entry of [header(100), ...events, ...synced(101), end(102)]) auditor.take(entry);
    expect(report(auditor)).toMatchObject({ services: 2 });
    const one = report(auditor, 'pay');
    expect(one.services).toBe(1);
    expect(one.verdicts.endpoints.different).toBe(1);
    expect(new Set(one.findings.map(({ namespace }) => namespace))).toEqual(new Set(['pay']));
  });
});

describe('a replay', () => {
  const entries = [header(100), added('services', service, 100), ...synced(100), end(101)];

  test('stops at the moment it is told to', async () => {
    const { auditor } = auditorOf(30);
    await replay(auditor, stream([...entries.slice(0, -1), clock(140), end(150)]), {
      speed: Infinity,
      until: 120,
    });
    expect(auditor.now()).toBe(120);
    expect(report(auditor).findings).toEqual([]);
  });

  test('fires timers between entries in its own time, and stops when it is aborted', async () => {
    const { auditor, opened } = auditorOf(30);
    const stop = new AbortController();
    // 1,000 times its speed: the window of 30 s is over after 30 ms, the next entry is an hour
    // away.
    const running = replay(auditor, stream([...entries.slice(0, -1), clock(3700)]), {
      speed: 1000,
      until: null,
      signal: stop.signal,
    });
    await expect.poll(() => opened.length).toBe(2);
    expect(auditor.now()).toBe(130);
    stop.abort();
    await running;
    expect(auditor.now()).toBe(130);
  });
});

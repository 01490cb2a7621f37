// The auditor: when the audit begins, and the effects of unreadable objects and of watches that lag
// or are lost.

import { describe, expect, test } from 'vitest';

import type { Auditor } from '../../src/auditor/auditor.ts';
import { createQueries, unverifiedIn } from '../../src/auditor/queries.ts';
import type { Resource } from '../../src/model/objects.ts';
import { resources } from '../../src/model/objects.ts';
import { wholeCluster } from '../../src/model/scope.ts';
import { newestRelease } from '../../src/shadow/release.ts';
import {
  added,
  auditorOf,
  clock,
  end,
  header,
  lively,
  progress,
  readAgain,
  report,
  rawService,
  synced,
  watches,
} from '../build.ts';

describe('the audit begins when every promised resource is complete', () => {
  test('pending differences start at the time of the last list', () => {
    const { auditor, opened } = auditorOf(30);
    for (const entry of [
      header(100),
      added('services', rawService, 100),
      ...synced(101, ['pods']),
    ]) {
      auditor.take(entry);
    }
    auditor.take(clock(200));
    expect(auditor.serviceAuditor()).toBeNull();
    expect(createQueries(auditor, 'test').notReady()).not.toBeNull();
    auditor.take({ kind: 'synced', at: 210, resource: 'pods' });
    expect(createQueries(auditor, 'test').notReady()).toBeNull();
    auditor.take(clock(239));
    expect(opened).toEqual([]);
    auditor.take(clock(240));
    expect(opened.map(({ code, openedAt }) => [code, openedAt])).toEqual([
      ['endpoints-missing', 240],
      ['slice-placeholder-missing', 240],
    ]);
  });

  test('a resource without a list at the end makes the outputs that need it unknown', () => {
    const { auditor, opened } = auditorOf(0);
    for (const entry of [
      header(100),
      added('services', rawService, 100),
      ...synced(101, ['endpointslices']),
      end(102),
    ]) {
      auditor.take(entry);
    }
    expect(report(auditor).unknown).toEqual({ 'endpointslices-not-known': 1 });
    expect(opened.map(({ output }) => output)).toEqual(['endpoints']);
  });

  test('the release comes from the input, else it is the newest one', () => {
    const { auditor } = auditorOf(0);
    auditor.take(header(100));
    expect(auditor.released().release.minor).toBe(33);
    const { auditor: unnamed } = auditorOf(0);
    unnamed.take(header(100, null));
    expect(unnamed.released().release).toBe(newestRelease);
  });
});

describe('while a control plane of 1.32 is upgraded to 1.33', () => {
  const names = ['web', 'api', 'pay'];
  const metadata = (name: string) => ({ name, namespace: 'shop', uid: name });
  const serviceOf = (name: string) =>
    added(
      'services',
      { ...rawService, metadata: { ...metadata(name), resourceVersion: '1' } },
      100,
    );
  const written = (name: string, at: number, labels: object) =>
    added(
      'endpoints',
      { metadata: { ...metadata(name), resourceVersion: String(at), labels } },
      at,
    );
  const label = { 'endpoints.kubernetes.io/managed-by': 'endpoint-controller' };
  const codes = (auditor: Auditor) =>
    auditor.findings.open().flatMap(({ code, output }) => (output === 'endpoints' ? [code] : []));

  test('Endpoints of the old controllers are not reported', () => {
    const { auditor } = auditorOf(30);
    const objects = names.flatMap((name) => [serviceOf(name), written(name, 100, {})]);
    for (const entry of [header(100), ...objects, ...synced(101), clock(200)]) auditor.take(entry);
    expect(auditor.released()).toMatchObject({ release: { minor: 32 }, by: 'labels' });
    expect(codes(auditor)).toEqual([]);
    expect(unverifiedIn(auditor)).toContain('the cluster is v1.33.1, not 1.32');
  });

  test('those that the new controllers leave without a label are reported', () => {
    const { auditor } = auditorOf(30);
    const objects = names.flatMap((name) => [serviceOf(name), written(name, 100, {})]);
    const upgraded = ['web', 'api'].map((name) => written(name, 210, label));
    const before = [header(100, 'v1.32.1'), ...objects, ...synced(101), header(200), ...upgraded];
    for (const entry of [...before, clock(220), clock(240)]) auditor.take(entry);
    expect(codes(auditor)).toEqual([]);
    for (const at of [250, 279]) auditor.take(clock(at));
    expect(auditor.released().release.minor).toBe(33);
    expect(codes(auditor)).toEqual([]);
    auditor.take(clock(280));
    expect(codes(auditor)).toEqual(['endpoints-labels-different']);
  });
});

describe('an object that cannot be read', () => {
  const lost = {
    resource: 'pods',
    namespace: 'shop',
    name: 'web-1',
    labels: { app: 'web' },
  } as const;

  test('makes the Services unknown that may select it, until a version can be read', () => {
    const { auditor, opened } = auditorOf(30);
    for (const entry of [header(100), added('services', rawService, 100), ...synced(101)]) {
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

test('an object that could never be read makes nothing unknown after its deletion', () => {
  const { auditor } = auditorOf(30);
  for (const entry of [header(100), added('services', rawService, 100), ...synced(101)]) {
    auditor.take(entry);
  }
  const lost = {
    resource: 'endpointslices',
    namespace: 'shop',
    name: 'web-x',
    labels: null,
  } as const;
  auditor.take({ kind: 'unreadable', at: 110, type: 'added', lost });
  expect(report(auditor).unknown).toEqual({ 'object-unreadable': 1 });
  auditor.take({ kind: 'unreadable', at: 111, type: 'deleted', lost });
  expect(report(auditor).unknown).toEqual({});
  // Any object may be the one whose deletion cannot be read.
  const any = { ...lost, name: null };
  auditor.take({ kind: 'unreadable', at: 112, type: 'deleted', lost: any });
  expect(report(auditor).unknown).toEqual({ 'object-unreadable': 1 });
});

test('report, page and metrics count a Service whose versions all are unreadable', () => {
  const { auditor } = auditorOf(30);
  for (const entry of [header(100), ...synced(101)]) auditor.take(entry);
  const lost = { resource: 'services', namespace: 'shop', name: 'web', labels: null } as const;
  auditor.take({ kind: 'unreadable', at: 110, type: 'added', lost });
  const want = { 'object-unreadable': 1 };
  expect(report(auditor).unknown).toEqual(want);
  expect(report(auditor, 'pay').unknown).toEqual({});
  expect(createQueries(auditor, 'test').status().metrics.summary.unknown).toEqual(want);
});

test('an unreadable Node makes slices unknown until a version can be read', () => {
  const { auditor } = auditorOf(30);
  const node = { metadata: { name: 'n1', uid: 'n1', resourceVersion: '3' }, spec: {}, status: {} };
  const lost = { resource: 'nodes', namespace: '', name: 'n1', labels: null } as const;
  const events = [added('services', rawService, 100), added('nodes', node, 100)];
  for (const entry of [header(100), ...events, ...synced(101)]) auditor.take(entry);
  auditor.take({ kind: 'unreadable', at: 110, type: 'modified', lost });
  expect(report(auditor).unknown).toEqual({ 'object-unreadable': 1 });
  const again = { ...node, metadata: { ...node.metadata, resourceVersion: '4' } };
  auditor.take(added('nodes', again, 111));
  expect(report(auditor).unknown).toEqual({});
  auditor.take({ kind: 'unreadable', at: 112, type: 'deleted', lost });
  expect(auditor.store.listers.nodes.size).toBe(0);
  expect(report(auditor).unknown).toEqual({});
});

test('a deletion with an unreadable object deletes the cached object', () => {
  const { auditor } = auditorOf(30);
  for (const entry of [header(100), added('services', rawService, 100), ...synced(101)]) {
    auditor.take(entry);
  }
  const lost = { resource: 'services', namespace: 'shop', name: 'web', labels: null } as const;
  auditor.take({ kind: 'unreadable', at: 110, type: 'deleted', lost });
  auditor.take(clock(200));
  expect(report(auditor)).toMatchObject({ services: 0, unknown: {}, findings: [] });
});

/** Each stream but some comes to what was read, and what waits is asked for again. */
function catchUp(auditor: Auditor, at: number, without: readonly Resource[] = []): void {
  readAgain(auditor, at, '80');
  const others = resources.filter((resource) => !without.includes(resource));
  for (const entry of progress(at, '80', others)) auditor.take(entry);
  auditor.findings.retry(at);
}

describe('a live cluster', () => {
  const codes = ['endpoints-missing', 'slice-placeholder-missing'];

  test('a difference opens when a read after its window equals the cache', () => {
    const { auditor, opened } = auditorOf(30, { live: true });
    for (const entry of lively()) auditor.take(entry);
    auditor.take(added('services', { ...rawService, metadata: other('60') }, 110));
    auditor.advance(140);
    for (const entry of progress(141, '60')) auditor.take(entry);
    auditor.findings.retry(141);
    expect(opened).toEqual([]);
    readAgain(auditor, 141, '60');
    auditor.findings.retry(141);
    expect(opened.map(({ service, code, openedAt }) => [service, code, openedAt])).toEqual([
      ['web', 'endpoints-missing', 141],
      ['web', 'slice-placeholder-missing', 141],
      ['api', 'endpoints-missing', 141],
      ['api', 'slice-placeholder-missing', 141],
    ]);
  });
  const other = (resourceVersion: string) => ({
    ...rawService.metadata,
    name: 'api',
    uid: 'api',
    resourceVersion,
  });

  test('a lost watch makes verdicts unknown, and no finding opens', () => {
    const { auditor, opened } = auditorOf(30, { live: true });
    for (const entry of lively()) auditor.take(entry);
    for (const entry of watches(110, 'stale', ['endpoints'])) auditor.take(entry);
    auditor.take(clock(114));
    expect(report(auditor).unknown).toEqual({});
    catchUp(auditor, 140, ['endpoints']);
    expect(opened.map(({ code }) => code)).toEqual(['slice-placeholder-missing']);
    expect(report(auditor)).toMatchObject({
      unknown: { 'input-stale': 1 },
      verdicts: { endpoints: { unknown: 1, pending: 0 }, endpointslices: { different: 1 } },
    });
    expect(createQueries(auditor, 'test').notReady()).toBeNull();
    auditor.take(clock(170));
    expect(createQueries(auditor, 'test').notReady()).toBe('endpoints not seen for 60 s (stale)');
    // It was seen for 9 s before, and has to be for the rest of its window.
    for (const entry of watches(171, 'synced', ['endpoints'])) auditor.take(entry);
    expect(createQueries(auditor, 'test').notReady()).toBeNull();
    catchUp(auditor, 191.9);
    expect(opened).toHaveLength(1);
    catchUp(auditor, 192);
    expect(opened.map(({ code }) => code).sort()).toEqual(codes);
    expect(opened.at(-1)).toMatchObject({ since: 101, openedAt: 192 });
  });

  test('a finding stays open while its watch is lost', () => {
    const { auditor } = auditorOf(30, { live: true });
    for (const entry of lively()) auditor.take(entry);
    catchUp(auditor, 140);
    for (const entry of watches(150, 'relisting')) auditor.take(entry);
    auditor.take(clock(160));
    expect(report(auditor)).toMatchObject({
      unknown: { 'input-stale': 2 },
      findings: [{ resolvedAt: null }, { resolvedAt: null }],
    });
  });

  test('a watch that reconnects at once changes no window', () => {
    const { auditor, opened } = auditorOf(30, { live: true });
    for (const entry of lively()) auditor.take(entry);
    for (const entry of watches(129, 'stale')) auditor.take(entry);
    for (const entry of watches(130.5, 'synced')) auditor.take(entry);
    catchUp(auditor, 131);
    expect(opened.map(({ openedAt }) => openedAt)).toEqual([131, 131]);
  });

  test('missed changes restart the window of a difference', () => {
    const { auditor, opened } = auditorOf(30, { live: true });
    for (const entry of lively()) auditor.take(entry);
    for (const entry of watches(129, 'relisting', ['pods'])) auditor.take(entry);
    for (const entry of watches(130, 'synced', ['pods'])) auditor.take(entry);
    catchUp(auditor, 159.9);
    expect(opened).toEqual([]);
    catchUp(auditor, 160);
    expect(opened).toHaveLength(2);
  });

  test('a resource without permission is not awaited, and is audited when it is permitted', () => {
    const { auditor, opened } = auditorOf(30, { live: true });
    for (const entry of lively(['endpoints'])) auditor.take(entry);
    catchUp(auditor, 140, ['endpoints']);
    expect(opened.map(({ code }) => code)).toEqual(['slice-placeholder-missing']);
    expect(report(auditor).unknown).toEqual({ 'endpoints-not-known': 1 });
    expect(createQueries(auditor, 'test').notReady()).toBeNull();
    for (const entry of watches(150, 'listing', ['endpoints'])) auditor.take(entry);
    for (const entry of [
      ...synced(
        151,
        resources.filter((one) => one !== 'endpoints'),
      ),
      ...progress(151, '70', ['endpoints']),
      ...watches(151, 'synced', ['endpoints']),
      ...progress(152, '70'),
      clock(181),
    ]) {
      auditor.take(entry);
    }
    catchUp(auditor, 181);
    expect(report(auditor).unknown).toEqual({});
    expect(auditor.findings.open().map(({ code }) => code)).toEqual(codes);
  });

  test('an unready auditor names the lists that it awaits', () => {
    const { auditor } = auditorOf(30, { live: true });
    for (const entry of [header(100), ...watches(100, 'listing'), ...synced(101, ['pods'])]) {
      auditor.take(entry);
    }
    expect(createQueries(auditor, 'test').notReady()).toBe(
      'The first lists are not complete: pods',
    );
  });
});

describe('a scope', () => {
  test('the store keeps objects in the scope and deletes objects that leave it', () => {
    const scope = { ...wholeCluster, namespaces: ['shop'] };
    const { auditor } = auditorOf(30, { scope });
    const other = { ...rawService, metadata: { ...rawService.metadata, namespace: 'pay' } };
    const slice = (name: string, resourceVersion: string) => ({
      metadata: {
        name: 'web-x',
        namespace: 'shop',
        uid: 'x',
        resourceVersion,
        labels: { 'kubernetes.io/service-name': name },
      },
      addressType: 'IPv4',
      endpoints: [],
    });
    const events = [added('services', rawService, 100), added('services', other, 100)];
    for (const entry of [header(100), ...events, ...synced(101)]) auditor.take(entry);
    expect([...auditor.store.listers.services.keys()]).toEqual(['shop/web']);
    const shard = [0, 1]
      .map((index) => ({ ...wholeCluster, shard: { index, count: 2 } }))
      .map((scope) => auditorOf(30, { scope }).auditor);
    for (const one of shard) {
      for (const entry of [added('endpointslices', slice('web', '2'), 100)]) one.take(entry);
    }
    const sliceCounts = (): number[] => shard.map(({ store }) => store.listers.slices.size);
    expect(sliceCounts().sort()).toEqual([0, 1]);
    const names = ['a', 'b', 'c', 'd', 'e'];
    for (const [index, name] of names.entries()) {
      for (const one of shard) {
        one.take(added('endpointslices', slice(name, String(index + 3)), 101 + index));
      }
      expect(sliceCounts().sort()).toEqual([0, 1]);
    }
  });
});

// A live auditor of some namespaces: it needs no permission beyond them, and what it may not read
// is unknown and never a finding.

import { afterEach, describe, expect, test } from 'vitest';

import type { UnknownReason } from '../../src/audit/finding/verdicts.ts';
import { verdictOf } from '../../src/audit/service/verdict.ts';
import type { Auditor } from '../../src/auditor/auditor.ts';
import { createAuditor } from '../../src/auditor/auditor.ts';
import type { LiveAuditor } from '../../src/auditor/live.ts';
import type { Resource } from '../../src/model/objects.ts';
import { resources } from '../../src/model/objects.ts';
import type { FakeServer, Raw, VirtualClock } from '../apiserver/server.ts';
import { statusAnswer, virtualClock } from '../apiserver/server.ts';
import { auditorDefaults } from '../build.ts';
import {
  emptySlice,
  liveCluster,
  putService,
  rawEndpoints,
  rawPod,
  rawSlice,
  runLive,
  withUids,
} from '../live-cluster.ts';

interface Running {
  readonly server: FakeServer;
  readonly auditor: Auditor;
  readonly attached: LiveAuditor;
  readonly problems: string[];
}

let clock: VirtualClock;
let stop = (): Promise<void> => Promise.resolve();

const forbid = ({ faults }: FakeServer, resource: Resource, place: string): void => {
  for (const verb of ['list', 'watch']) faults.forbidden.add(`${verb} ${resource} in ${place}`);
};

const permit = ({ faults }: FakeServer, resource: Resource, place: string): void => {
  for (const verb of ['list', 'watch']) faults.forbidden.delete(`${verb} ${resource} in ${place}`);
};

interface RunOptions {
  readonly namespaces?: readonly string[];
  /** Whether the Nodes may be read; nothing else of the whole cluster may be. */
  readonly nodes?: boolean;
  readonly prepare?: (server: FakeServer) => void;
}

/** The namespaces shop, bank and farm have a Service each, all of them in order. */
function run({ namespaces = ['shop', 'bank'], nodes = true, prepare }: RunOptions = {}): Running {
  clock = virtualClock();
  const { server, cluster } = liveCluster(rawSlice, clock);
  for (const namespace of ['bank', 'farm']) putService(server, namespace);
  for (const resource of resources) {
    if (resource !== 'nodes' || !nodes) forbid(server, resource, '*');
  }
  prepare?.(server);
  const scope = { ...auditorDefaults.scope, namespaces };
  const auditor = createAuditor({ ...auditorDefaults, scope, settle: 3, live: true });
  const { attached, problems, ...live } = runLive(cluster, auditor);
  ({ stop } = live);
  return { server, auditor, attached, problems };
}

afterEach(async () => {
  const ended = stop();
  await pass(1);
  await ended;
});

const pass = (seconds: number): Promise<void> => clock.runUntil(clock.now() + seconds);

const found = ({ auditor }: Running): string[] =>
  auditor.findings
    .open()
    .map(({ namespace, code }) => `${namespace} ${code}`)
    .sort();

const put = ({ server }: Running, resource: Resource, raw: Raw, namespace: string): void => {
  server.objects.put(resource, withUids(server, raw, namespace));
};

/** The pod, not ready; the controllers have not reacted yet. */
function unready(running: Running, namespace: string): void {
  const conditions = [{ type: 'Ready', status: 'False' }];
  put(
    running,
    'pods',
    { ...rawPod, status: { ...(rawPod.status as object), conditions } },
    namespace,
  );
}

/** `ok`, or why an output of the Service is unknown. */
function verdicts({ auditor }: Running, namespace: string): Record<string, string> {
  const services = auditor.serviceAuditor();
  const audited = services?.audited.get(`${namespace}/web`);
  if (services === null || audited === undefined) throw new Error(`No Service in ${namespace}`);
  const outputs = ['endpoints', 'endpointslices'] as const;
  return Object.fromEntries(
    outputs.map((output) => {
      const verdict = verdictOf(auditor.store.listers, audited, output);
      const reason: UnknownReason | undefined = audited.unknown.get(output);
      return [output, verdict === 'unknown' ? (reason ?? '') : (verdict ?? '')];
    }),
  );
}

const bookmarks = async (running: Running, seconds: number): Promise<void> => {
  running.server.bookmarkEvery = 1;
  await pass(seconds);
};

const isReady = { endpoints: 'conform', endpointslices: 'conform' };

describe('an auditor of some namespaces', () => {
  test.each([[['shop']], [['shop', 'bank']]])('lists and watches only %s', async (namespaces) => {
    const running = run({ namespaces });
    await pass(9);
    expect(running.problems).toEqual([]);
    expect(found(running)).toEqual([]);
    for (const namespace of namespaces) expect(verdicts(running, namespace)).toEqual(isReady);
    const { asked, watches } = running.server;
    const places = asked.flatMap(({ resource, request: { path } }) =>
      resource === null || resource === 'nodes' ? [] : [path.split('/').at(-2) ?? ''],
    );
    expect(new Set(places)).toEqual(new Set(namespaces));
    expect(watches.size).toBe(1 + 4 * namespaces.length);
    expect(running.auditor.store.listers.services.size).toBe(namespaces.length);
  });

  test('finds a difference in each of them', async () => {
    const running = run({ prepare: (server) => putService(server, 'bank', emptySlice) });
    await pass(10);
    expect(found(running)).toEqual(['bank slice-endpoint-missing']);
    unready(running, 'shop');
    await pass(10);
    expect(found(running)).toEqual([
      'bank slice-endpoint-missing',
      'shop endpoints-readiness-different',
      'shop slice-conditions-different',
    ]);
  });

  test.each([[['shop']], [['shop', 'bank']]])(
    'without Nodes, says so once and what is unknown in %s',
    async (namespaces) => {
      const running = run({ namespaces, nodes: false });
      await pass(600);
      expect(running.problems).toEqual([
        expect.stringMatching(/Not allowed to watch nodes: Without it the zones, hints/),
      ]);
      expect(found(running)).toEqual([]);
      expect(verdicts(running, 'shop')).toEqual({
        endpoints: 'conform',
        endpointslices: 'nodes-not-known',
      });
      unready(running, 'shop');
      await pass(10);
      expect(found(running)).toEqual([
        'shop endpoints-readiness-different',
        'shop slice-conditions-different',
      ]);
    },
  );

  test('without Nodes, reports no missing endpoint of a slice', async () => {
    const prepare = (server: FakeServer) => putService(server, 'shop', emptySlice);
    const running = run({ nodes: false, prepare });
    await pass(600);
    expect(found(running)).toEqual([]);
    expect(verdicts(running, 'shop').endpointslices).toBe('nodes-not-known');
  });
});

describe('a namespace that may not be read', () => {
  test('is left out, and the others are audited', async () => {
    const running = run({
      prepare(server) {
        putService(server, 'shop', emptySlice);
        for (const resource of resources) forbid(server, resource, 'bank');
      },
    });
    await pass(20);
    expect(found(running)).toEqual(['shop slice-endpoint-missing']);
    expect(running.problems).toHaveLength(4);
    expect(running.problems.join('\n')).toContain(
      'Not allowed to watch services in namespace bank',
    );
    expect(running.auditor.mayRead('services', 'shop')).toBe(true);
    expect(running.auditor.mayRead('services', 'bank')).toBe(false);
    expect([...running.attached.watches.values()].map(({ state }) => state)).toEqual(
      Array(5).fill('synced'),
    );
  });

  test.each(['pods', 'endpoints', 'endpointslices'] as const)(
    'in part, %s, makes only what depends on it unknown, and only there',
    async (resource) => {
      const running = run({ prepare: (server) => forbid(server, resource, 'bank') });
      await pass(20);
      expect(found(running)).toEqual([]);
      const lost = 'namespace-forbidden';
      const both = { endpoints: lost, endpointslices: lost };
      const one = { ...isReady, [resource]: lost };
      expect(verdicts(running, 'bank')).toEqual(resource === 'pods' ? both : one);
      expect(verdicts(running, 'shop')).toEqual(isReady);
      // The other output is audited, and is confirmed by reads that need no other permission.
      unready(running, 'bank');
      await pass(20);
      const want = {
        pods: [],
        endpoints: ['bank slice-conditions-different'],
        endpointslices: ['bank endpoints-readiness-different'],
      };
      expect(found(running)).toEqual(want[resource]);
      expect(running.auditor.confirmer.counts.failed).toBe(0);
      // The permission is given later.
      permit(running.server, resource, 'bank');
      await pass(200);
      expect(verdicts(running, 'bank')).not.toContain(lost);
      expect(found(running)).toEqual([
        'bank endpoints-readiness-different',
        'bank slice-conditions-different',
      ]);
    },
  );

  test('Services that may not be read make no finding of what they leave behind', async () => {
    const running = run({ prepare: (server) => forbid(server, 'services', 'bank') });
    await pass(600);
    expect(found(running)).toEqual([]);
    expect(verdicts(running, 'shop')).toEqual(isReady);
  });

  test('when the permission is taken away, is unknown, and the others are audited', async () => {
    const running = run();
    await pass(9);
    forbid(running.server, 'pods', 'bank');
    running.server.reset();
    await pass(60);
    expect(verdicts(running, 'bank')).toEqual({
      endpoints: 'namespace-forbidden',
      endpointslices: 'namespace-forbidden',
    });
    for (const namespace of ['bank', 'shop']) unready(running, namespace);
    await pass(20);
    expect(found(running)).toEqual([
      'shop endpoints-readiness-different',
      'shop slice-conditions-different',
    ]);
    expect([...running.auditor.stale()]).toEqual([]);
  });
});

describe('the stream of one namespace', () => {
  const streamOf = ({ server }: Running, resource: Resource, namespace: string) => {
    const found = [...server.watches].find(
      (watch) => watch.resource === resource && watch.namespace === namespace,
    );
    if (found === undefined) throw new Error(`No watch of ${resource} in ${namespace}`);
    return found;
  };
  /** Both controllers follow the pod that is not ready. */
  const follow = (running: Running, namespace: string): void => {
    const conditions = { ready: false, serving: false, terminating: false };
    const [endpoint] = rawSlice.endpoints as object[];
    const slice = { ...rawSlice, endpoints: [{ ...endpoint, conditions }] };
    put(running, 'endpointslices', slice, namespace);
    const [subset] = rawEndpoints.subsets as { addresses: object[]; ports: object[] }[];
    const subsets = [{ notReadyAddresses: subset?.addresses, ports: subset?.ports }];
    put(running, 'endpoints', { ...rawEndpoints, subsets }, namespace);
  };

  test('loses an event: no finding, and only that namespace is listed again', async () => {
    const running = run();
    await pass(9);
    streamOf(running, 'endpointslices', 'bank').spoils.push('lost');
    unready(running, 'bank');
    follow(running, 'bank');
    const before = running.server.asked.length;
    // The other namespace goes on, which says nothing of this one.
    for (let passed = 0; passed < 100; passed += 5) {
      await pass(5);
      unready(running, 'shop');
      follow(running, 'shop');
      expect(found(running)).toEqual([]);
    }
    await bookmarks(running, 200);
    expect(found(running)).toEqual([]);
    expect(running.attached.watches.get('endpointslices')?.counters.relists.gap).toBe(1);
    const lists = running.server.asked.slice(before).flatMap(({ resource, request }) => {
      const isList = 'sendInitialEvents' in request.query || request.query.limit === '500';
      return resource !== null && isList ? [request.path] : [];
    });
    expect(lists).toEqual(['/apis/discovery.k8s.io/v1/namespaces/bank/endpointslices']);
  });

  test.each([true, false])('hangs while the other goes on (reads succeed: %s)', async (isRead) => {
    const running = run();
    await pass(9);
    running.server.faults.before = ({ request: { query, path } }) =>
      path.includes('/namespaces/') && !('watch' in query) && !isRead
        ? statusAnswer(500, 'InternalError')
        : null;
    for (const resource of ['endpoints', 'endpointslices'] as const) {
      streamOf(running, resource, 'bank').freeze();
    }
    unready(running, 'bank');
    follow(running, 'bank');
    // Without a read for five minutes the streams decide.
    for (let passed = 0; passed < 400; passed += 10) {
      unready(running, 'shop');
      follow(running, 'shop');
      await pass(10);
      expect(found(running)).toEqual([]);
    }
  });

  test('is interrupted: the resource is not synced until all its streams are', async () => {
    const running = run();
    await pass(9);
    const { server, auditor, attached } = running;
    server.faults.before = ({ resource, request }) =>
      resource === 'pods' && request.path.includes('/bank/') ? 'reset' : null;
    streamOf(running, 'pods', 'bank').stream.fail(new Error('connection reset'));
    await pass(20);
    expect(attached.watches.get('pods')?.state).toBe('stale');
    expect([...auditor.stale()]).toEqual(['pods']);
    expect(attached.reflectors.connection.lost()).toMatchObject({ reason: 'other' });
    server.faults.before = () => null;
    await pass(60);
    expect([...auditor.stale()]).toEqual([]);
    expect(attached.watches.get('pods')?.state).toBe('synced');
    expect(attached.reflectors.connection.lost()).toBeNull();
  });
});

// Incidents of a running auditor: conditions without findings, and the queries about incidents.

import { describe, expect, test } from 'vitest';

import {
  affects,
  measureIncidents,
  findIncident,
  listIncidents,
  viewIncidents,
} from '../../src/auditor/incident-queries.ts';
import { type AuditorEntry, createAuditor } from '../../src/auditor/auditor.ts';
import { createIncidentLedger } from '../../src/auditor/incidents.ts';
import { openFindingKey } from '../../src/audit/finding/catalogue.ts';
import { noImpacts } from '../../src/audit/incident/impact.ts';
import { createWatchProgress } from '../../src/audit/pending/progress.ts';
import { saveService } from '../../src/audit/service/checkpoint.ts';
import { label, type Resource, resources, type WatchEvent } from '../../src/model/objects.ts';
import { findingOf } from '../output/samples.ts';
import {
  auditorDefaults,
  endpoint,
  endpoints,
  event,
  node,
  owner,
  pod,
  service,
  servicePort,
  slice,
  sliceLabels,
  storeOf,
  watches,
} from '../build.ts';

type Running = ReturnType<typeof createAuditor>;

/** An auditor of a Service whose pod is ready, and has no port with the name of its target port. */
function begun(settle = 30, today = () => 0): Running {
  const auditor = createAuditor({ ...auditorDefaults, settle, today });
  const objects = [
    ['nodes', node()],
    ['pods', pod()],
    ['services', service({ ports: [servicePort({ targetPort: 'http' })] })],
  ] as const;
  const entries: AuditorEntry[] = [
    { kind: 'header', at: 0, kubernetes: 'v1.36.3', resources },
    ...objects.map(([resource, object]): AuditorEntry => {
      return { kind: 'event', event: { resource, type: 'added', object, at: 0 } };
    }),
    ...resources.map((resource): AuditorEntry => ({ kind: 'synced', at: 0, resource })),
    ...watches(0, 'synced'),
  ];
  for (const entry of entries) auditor.take(entry);
  return auditor;
}

const namesAt = (auditor: Running, at: number): string[] => {
  auditor.take({ kind: 'clock', at });
  return listIncidents(auditor).map(({ kind, object }) => `${kind} ${object}`);
};

const isConfigured = (name: string): boolean => name.startsWith('service-without-endpoints');

describe('a Service that its configuration keeps from traffic', () => {
  test('is an incident after the settle window', () => {
    const auditor = begun();
    expect(namesAt(auditor, 20).filter(isConfigured)).toEqual([]);
    expect(namesAt(auditor, 40).filter(isConfigured)).toEqual([
      'service-without-endpoints Service shop/web',
    ]);
  });

  test('is none while a suppression accepts it', () => {
    const today = () => Date.parse('2026-12-01') / 1000;
    const auditor = begun(30, today);
    const suppress = 'unserved owner=team expires=2026-12-31 reason=it is planned';
    const object = service({ ports: [servicePort({ targetPort: 'http' })], suppress });
    const event = { resource: 'services', type: 'modified', object, at: 45 } as const;
    expect(namesAt(auditor, 40).filter(isConfigured)).toHaveLength(1);
    auditor.take({ kind: 'event', event });
    expect(namesAt(auditor, 50).filter(isConfigured)).toEqual([]);
  });

  test('is one no longer when it has no pods: it may be scaled to zero', () => {
    const auditor = begun();
    namesAt(auditor, 40);
    const event = { resource: 'pods', type: 'deleted', object: pod(), at: 45 } as const;
    auditor.take({ kind: 'event', event });
    expect(namesAt(auditor, 50).filter(isConfigured)).toEqual([]);
  });
});

describe('an interrupted watch', () => {
  const isLost = (name: string): boolean => name.startsWith('api-unavailable');

  test('is not what a wrong clock makes unseen', () => {
    const auditor = begun();
    for (const entry of watches(10, 'synced')) auditor.take(entry);
    auditor.progress.setClock(true, 10);
    expect(auditor.progress.unseenFor(5, 20).size).toBeGreaterThan(0);
    expect(namesAt(auditor, 20).filter(isLost)).toEqual([]);
  });

  test('is an incident after five seconds, until it is restored for as long', () => {
    const auditor = begun();
    for (const entry of watches(10, 'stale')) auditor.take(entry);
    expect(namesAt(auditor, 14).filter(isLost)).toEqual([]);
    expect(namesAt(auditor, 16).filter(isLost)).toEqual(['api-unavailable API server']);
    for (const entry of watches(30, 'synced')) auditor.take(entry);
    expect(namesAt(auditor, 34).filter(isLost)).toEqual(['api-unavailable API server']);
    expect(namesAt(auditor, 36).filter(isLost)).toEqual([]);
    expect(viewIncidents(auditor).resolved).toMatchObject([
      { kind: 'api-unavailable', since: 10, resolvedAt: 36 },
    ]);
  });

  test('is one incident if it is lost again while the API server starts', () => {
    const auditor = begun();
    for (const entry of watches(10, 'stale')) auditor.take(entry);
    expect(namesAt(auditor, 20).filter(isLost)).toHaveLength(1);
    for (const entry of watches(30, 'synced')) auditor.take(entry);
    for (const entry of watches(32, 'stale')) auditor.take(entry);
    expect(namesAt(auditor, 34).filter(isLost)).toHaveLength(1);
    expect(namesAt(auditor, 36).filter(isLost)).toHaveLength(1);
    for (const entry of watches(50, 'synced')) auditor.take(entry);
    expect(namesAt(auditor, 56).filter(isLost)).toEqual([]);
    expect(viewIncidents(auditor).resolved).toMatchObject([{ since: 10, resolvedAt: 56 }]);
  });

  test('for less than five seconds extends no incident that has ended', () => {
    const auditor = begun();
    for (const entry of watches(10, 'stale')) auditor.take(entry);
    for (const entry of watches(20, 'synced')) auditor.take(entry);
    expect(namesAt(auditor, 26).filter(isLost)).toEqual([]);
    for (const entry of watches(30, 'stale')) auditor.take(entry);
    expect(namesAt(auditor, 32).filter(isLost)).toEqual([]);
  });
});

test('nodes without an agent are one incident after two minutes', () => {
  const missing = ['a', 'b'].map((name) => ({ name, reason: 'agent-absent', since: 0 }) as const);
  const incidents = createIncidentLedger({
    listers: storeOf([]).listers,
    window: 30,
    services: () => null,
    nodes: () => ({ readSince: () => null, withoutAgent: () => missing }),
    impacts: noImpacts,
    suppressions: { review: () => 0, suppressedBy: () => null },
    findings: () => [],
    live: true,
    keep: 1000,
    progress: createWatchProgress(),
  });
  incidents.reviewAt(100);
  expect(incidents.list()).toEqual([]);
  incidents.reviewAt(130);
  expect(incidents.list()).toMatchObject([
    { kind: 'agents-missing', objects: ['Node a', 'Node b'], since: 0 },
  ]);
});

test.each([
  ['has what was worst for longer than the settle window', 40, 0.75],
  ['does not have what was worse for a shorter time', 20, 0.5],
])('the impact of an incident %s', (_, seconds, worst) => {
  const auditor = createAuditor(auditorDefaults);
  const taken = (resource: Resource, type: 'added' | 'modified', object: object, at: number) =>
    auditor.take({ kind: 'event', event: { resource, type, object, at } as WatchEvent });
  /** The right endpoint, and others of no pod. */
  const listed = (others: number, version: number) =>
    slice({
      resourceVersion: String(version),
      generation: version,
      endpoints: [
        endpoint(),
        ...Array.from({ length: others }, (_, at) =>
          endpoint({ addresses: [`10.9.0.${at}`], target: null }),
        ),
      ],
    });
  auditor.take({ kind: 'header', at: 0, kubernetes: 'v1.36.3', resources });
  taken('nodes', 'added', node(), 0);
  taken('pods', 'added', pod(), 0);
  taken('services', 'added', service(), 0);
  taken('endpoints', 'added', endpoints(), 0);
  taken('endpointslices', 'added', listed(1, 1), 0);
  for (const resource of resources) auditor.take({ kind: 'synced', at: 0, resource });
  auditor.take({ kind: 'clock', at: 40 });
  for (const [others, at] of [
    [3, 41],
    [1, 41 + seconds],
    [0, 41 + 2 * seconds],
  ] as const) {
    expect(auditor.incidents.list()).toHaveLength(1);
    taken('endpointslices', 'modified', listed(others, at), at);
    auditor.take({ kind: 'clock', at: at + seconds - 5 });
  }
  expect(auditor.incidents.resolved()).toMatchObject([{ impact: { worst } }]);
});

test('what waits for a controller is one incident after a restart, too', () => {
  const owners = ['web', 'api'].map((name) => service({ name }));
  const stored = owners.flatMap(({ name, uid }) => [
    service({ name }),
    endpoints({ name }),
    slice({
      name: `${name}-abcde`,
      labels: { ...sliceLabels, [label.serviceName]: name },
      owners: [owner({ name, uid })],
    }),
  ]);
  const startWith = (ready: boolean, at: number): Running => {
    const auditor = createAuditor(auditorDefaults);
    auditor.take({ kind: 'header', at, kubernetes: 'v1.36.3', resources });
    for (const object of [node(), pod({ ready }), ...stored]) {
      auditor.take({ kind: 'event', event: event('added', object, at) });
    }
    for (const resource of resources) auditor.take({ kind: 'synced', at, resource });
    auditor.take({ kind: 'clock', at: at + 2 });
    return auditor;
  };
  const before = startWith(true, 0);
  const unready = pod({ ready: false, resourceVersion: '2' });
  before.take({ kind: 'event', event: event('modified', unready, 10) });
  before.take({ kind: 'clock', at: 50 });
  const shownBy = (auditor: Running) =>
    auditor.incidents
      .list()
      .filter(({ kind }) => !isConfigured(kind))
      .map(({ kind, id, since, openedAt }) => ({ kind, id, since, openedAt }));
  const shown = shownBy(before);
  expect(shown).toMatchObject([{ kind: 'controller-not-writing', since: 10 }]);
  const opened = new Map(before.findings.open().map((it) => [openFindingKey(it), it.openedAt]));
  const audits = [...(before.serviceAuditor()?.audited ?? [])];
  const after = startWith(false, 100);
  after.continueServices(new Map(audits.map(([key, audit]) => [key, saveService(audit, opened)])));
  after.take({ kind: 'clock', at: 110 });
  expect(shownBy(after)).toEqual(shown);
});

describe('queries', () => {
  test('count open incidents by kind and severity, and find one by its name', () => {
    const auditor = begun();
    namesAt(auditor, 40);
    const { incidents, openIncidents } = measureIncidents(auditor);
    expect(incidents['service-without-endpoints']).toEqual({ info: 1 });
    const of = { namespace: 'shop', service: 'web', node: '' };
    expect(openIncidents.filter(({ kind }) => isConfigured(kind))).toMatchObject([
      { ...of, severity: 'info', services: 1 },
    ]);
    const [{ id } = { id: '' }] = listIncidents(auditor).filter(({ kind }) => isConfigured(kind));
    expect(findIncident(auditor, id)).toMatchObject({ id, severity: 'info' });
    expect(findIncident(auditor, 'other')).toBeNull();
  });

  test('find what took a merged incident and ended before a restart', () => {
    const auditor = begun();
    namesAt(auditor, 40);
    const [incident] = listIncidents(auditor);
    if (incident === undefined) throw new Error('Expected an incident');
    auditor.earlier.incidents = [{ ...incident, id: 'taker', resolvedAt: 41 }];
    const merged = [['taken', 'taker']] as const;
    auditor.incidents.continueAfterRestart({ open: [], members: [], resolved: [], merged });
    for (const id of ['taken', 'taker']) {
      expect(findIncident(auditor, id)).toMatchObject({ id: 'taker', resolvedAt: 41 });
    }
  });

  test.each([
    // The Services of its findings come and go; the Node stays.
    [{ object: 'Node a' }, ['x', 'y'], { node: 'a', namespace: '', service: '', services: 2 }],
    [{ object: 'Pod shop/web-1' }, ['web'], { namespace: 'shop', service: '', services: 1 }],
    [{ object: 'Service shop/web' }, ['web'], { namespace: 'shop', service: 'web', node: '' }],
    [
      { kind: 'edited-by-someone', object: 'EndpointSlices of Service shop/web' },
      ['web'],
      { namespace: 'shop', service: 'web', node: '' },
    ],
    [
      { object: 'Service shop/web', objects: ['Service shop/web', 'Service shop/api'] },
      ['web', 'api'],
      { namespace: 'shop', service: '', services: 2 },
    ],
    [{ object: 'kube-controller-manager' }, ['web'], { namespace: '', service: '', node: '' }],
    [{ object: 'API server' }, [], { namespace: '', service: '', node: '', services: 0 }],
  ] as const)('of %o have the labels of what it is about', (of, services, labels) => {
    const incident = {
      id: 'a',
      kind: 'cause-unknown',
      objects: [of.object],
      findings: services.map((name) => findingOf({ namespace: 'shop', service: name })),
      reach: { services: services.length, namespaces: 1, nodes: 0, endpoints: 0 },
      ...of,
    };
    const source = {
      incidents: { list: () => [incident], idOf: () => null, forgotten: () => 0 },
    };
    const { openIncidents } = measureIncidents(source as unknown as Running);
    expect(openIncidents).toMatchObject([labels]);
  });

  test('list the worst incidents first', () => {
    const auditor = begun();
    for (const entry of watches(50, 'stale')) auditor.take(entry);
    namesAt(auditor, 60);
    const { open } = viewIncidents(auditor);
    expect(open.at(-1)?.severity).toBe('info');
    expect(open[0]?.severity).toBe('warning');
  });

  test('select incidents of a namespace, and those of none', () => {
    const auditor = begun();
    for (const entry of watches(50, 'stale')) auditor.take(entry);
    namesAt(auditor, 60);
    const kindsIn = (namespace: string | null) =>
      new Set(
        listIncidents(auditor)
          .filter((it) => affects(it, (own) => namespace === null || own === namespace))
          .map(({ kind }) => kind),
      );
    expect(kindsIn('shop').has('service-without-endpoints')).toBe(true);
    expect(kindsIn('other').has('service-without-endpoints')).toBe(false);
    expect(kindsIn('other').has('api-unavailable')).toBe(true);
    expect(kindsIn(null).has('service-without-endpoints')).toBe(true);
  });
});

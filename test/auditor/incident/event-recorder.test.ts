// What incidents ask of the API server: field managers, and Events on Services if they are wanted.

import fc from 'fast-check';
import { afterEach, describe, expect, test } from 'vitest';

import type { Incident } from '../../../src/audit/incident/open-incident.ts';
import { createAuditor } from '../../../src/auditor/auditor.ts';
import { createEventRecorder } from '../../../src/auditor/incident/event-recorder.ts';
import { listIncidents } from '../../../src/auditor/incident-queries.ts';
import { type FakeServer, type Raw, statusAnswer, virtualClock } from '../../apiserver/server.ts';
import { auditorDefaults, times } from '../../build.ts';
import { liveCluster, rawEndpoints, rawSlice, runLive, withUids } from '../../live-cluster.ts';

let stop = (): Promise<void> => Promise.resolve();

afterEach(() => stop());

/** An auditor of a cluster whose Service is as it should be. */
async function run(prepare: (server: FakeServer) => void = () => undefined, events = true) {
  const clock = virtualClock();
  const { server, cluster } = liveCluster(rawSlice, clock);
  prepare(server);
  const auditor = createAuditor({ ...auditorDefaults, settle: 0.2, live: true });
  const { attached, problems, ...live } = runLive(
    cluster,
    auditor,
    events ? { instance: 'auditor-0' } : undefined,
  );
  ({ stop } = live);
  const pass = (seconds: number): Promise<void> => clock.runUntil(clock.now() + seconds);
  await pass(5);
  expect(auditor.serviceAuditor()).not.toBeNull();
  /** Removes the address of the Endpoints, which no event makes the controller repair. */
  const edit = async (manager = 'kubectl-edit', ports: object = {}): Promise<void> => {
    const edited = withUids(server, { ...rawEndpoints, subsets: [] });
    const time = new Date(Math.floor(clock.now()) * 1000).toISOString();
    const fieldsV1 = { 'f:ports': ports };
    const managedFields = [
      { manager: 'kube-controller-manager', operation: 'Update', time: '1969-12-01T00:00:00Z' },
      { manager, operation: 'Update', time, fieldsType: 'FieldsV1', fieldsV1 },
    ];
    const metadata = { ...edited.metadata, managedFields };
    server.objects.put('endpoints', { ...edited, metadata });
    await pass(8);
  };
  const repair = async (): Promise<void> => {
    server.objects.put('endpoints', withUids(server, rawEndpoints));
    await pass(15);
  };
  const gets = () =>
    server.asked.filter(({ verb, resource }) => verb === 'get' && resource !== null);
  return { server, auditor, attached, problems, pass, edit, repair, gets };
}

describe('the field manager of an edited object', () => {
  test('is read once, with metadata only, and is evidence of the incident', async () => {
    const { auditor, edit, gets, pass } = await run();
    expect(gets()).toEqual([]);
    await edit();
    const [incident] = listIncidents(auditor);
    expect(incident?.kind).toBe('edited-by-someone');
    expect(incident?.changes).toMatchObject([
      { kind: 'Endpoints', name: 'web', manager: 'kubectl-edit' },
    ]);
    expect(incident?.evidence.at(-1)?.text).toBe(
      'the field manager kubectl-edit changed Endpoints shop/web',
    );
    await pass(60);
    expect(gets().map(({ request }) => [request.path, request.accept])).toEqual([
      [
        '/api/v1/namespaces/shop/endpoints/web',
        'application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1',
      ],
    ]);
  });

  test('owns no field if its fields have too many levels', async () => {
    const { auditor, edit } = await run();
    const levels = 2000;
    const ports = JSON.parse(`${'{"f:a":'.repeat(levels)}{}${'}'.repeat(levels)}`) as object;
    await edit('kubectl-edit', ports);
    const { open } = auditor.incidents.past(() => 0);
    expect(open.flatMap(({ managers }) => managers)).toMatchObject([
      ['Endpoints shop/web', [{}, { manager: 'kubectl-edit', fields: {} }]],
    ]);
  });

  test('is unknown with the reason if the object may not be read', async () => {
    const { auditor, edit, gets, pass } = await run(({ faults }) => {
      faults.forbidden.add('get endpoints');
    });
    await edit();
    const [incident] = listIncidents(auditor);
    expect(incident?.evidence.at(-1)?.text).toBe(
      'the field manager is unknown: the auditor may not get the object',
    );
    await pass(60);
    expect(gets()).toHaveLength(1);
  });
});

describe('an Event on a Service', () => {
  test('is written once, about the Service, and not repeated for half an hour', async () => {
    const { server, attached, edit, pass } = await run();
    expect(server.events.size).toBe(0);
    await edit();
    await pass(20);
    const [event, ...others] = server.events.values();
    expect(others).toEqual([]);
    expect(event).toMatchObject({
      metadata: { namespace: 'shop' },
      reportingController: 'endpoint-auditor',
      reportingInstance: 'auditor-0',
      reason: 'EditedBySomeone',
      type: 'Warning',
      action: 'Audit',
      regarding: {
        kind: 'Service',
        namespace: 'shop',
        name: 'web',
        uid: server.objects.get('services', 'shop/web')?.metadata.uid,
      },
    });
    expect(event).not.toHaveProperty('series');
    await pass(1200);
    expect(attached.events).toEqual({ created: 1, repeated: 0, failed: 0 });
    await pass(700);
    expect(attached.events).toEqual({ created: 1, repeated: 1, failed: 0 });
    expect([...server.events.values()][0]).toMatchObject({ series: { count: 2 } });
  });

  test('is created again if it has expired, and patched if it exists', async () => {
    const { server, attached, edit, pass } = await run();
    await edit();
    await pass(20);
    server.events.clear();
    await pass(1900);
    expect(attached.events).toEqual({ created: 2, repeated: 0, failed: 0 });
    const ours = [...server.events.entries()];
    expect(ours).toHaveLength(1);
    const other = await run(({ events }) => {
      for (const [key, event] of ours) events.set(key, event);
    });
    await other.edit();
    await other.pass(20);
    expect(other.attached.events).toEqual({ created: 0, repeated: 1, failed: 0 });
  });

  test('of an incident that is resolved is repeated no more', async () => {
    const { attached, edit, repair, pass } = await run();
    await edit();
    await pass(20);
    await repair();
    await pass(3600);
    expect(attached.events).toEqual({ created: 1, repeated: 0, failed: 0 });
  });

  test('that is refused is tried again after a minute, and reported once', async () => {
    const { server, attached, problems, edit, pass } = await run(({ faults }) => {
      faults.forbidden.add('create events');
    });
    await edit();
    await pass(50);
    expect(attached.events).toEqual({ created: 0, repeated: 0, failed: 1 });
    await pass(60);
    expect(attached.events?.failed).toBe(2);
    const reported = problems.filter((it) => it.startsWith('Events'));
    expect(reported).toEqual(['Events: Not recorded: the API server answered 403']);
    server.faults.forbidden.clear();
    await pass(70);
    expect(attached.events?.created).toBe(1);
  });

  test('is never written without the option', async () => {
    const { server, attached, edit, pass } = await run(undefined, false);
    await edit();
    await pass(60);
    expect(attached.events).toBeNull();
    expect(server.asked.filter(({ request }) => request.body !== undefined)).toEqual([]);
  });
});

describe('the Events of several incidents', () => {
  const incident = (id: string, services: readonly string[], severity: Incident['severity']) =>
    ({
      ...{ id, kind: 'controller-slow', object: 'kube-controller-manager', severity },
      services: new Set(services),
    }) as unknown as Incident;

  /** A recorder alone, with incidents that a test can change; a namespace may refuse all. */
  function record(refused = 0) {
    const clock = virtualClock();
    const { server, cluster } = liveCluster(rawSlice, clock);
    const state = { open: [] as Incident[], uid: 'uid-1' };
    const isGone = (path: string): boolean => path.includes('/namespaces/gone/');
    server.faults.before = ({ request }) =>
      isGone(request.path) && refused > 0 ? statusAnswer(refused, 'Refused') : null;
    const recorder = createEventRecorder({
      environment: cluster.environment,
      incidents: () => state.open,
      uidOf: () => state.uid,
      instance: 'auditor-0',
      onFailure: () => undefined,
    });
    const end = new AbortController();
    const running = recorder.run(end.signal);
    stop = async () => {
      end.abort();
      await running;
    };
    const pass = (seconds: number): Promise<void> => clock.runUntil(clock.now() + seconds);
    const refusals = () => server.asked.filter(({ request }) => isGone(request.path)).length;
    return { server, state, pass, refusals };
  }

  const gone = incident(
    'first',
    times(90, (index) => `gone/web-${index}`),
    'warning',
  );
  const other = incident('second', ['shop/web'], 'warning');

  test('are not delayed by others that fail again and again', async () => {
    const { server, state, pass } = record(500);
    state.open = [gone];
    await pass(200);
    state.open = [gone, other];
    await pass(120);
    expect([...server.events.keys()].map((key) => key.split('.')[0])).toEqual(['shop/web']);
  });

  test('wait for a minute in a namespace that refuses one', async () => {
    const { server, state, pass, refusals } = record(403);
    state.open = [gone, other];
    await pass(290);
    expect(refusals()).toBe(5);
    expect(server.events.size).toBe(1);
  });

  /** The answer to a request in the server's place, and whether the server has done it before. */
  const trouble = fc.record({
    isDone: fc.boolean(),
    answer: fc.constantFrom('hang' as const, 'reset' as const, 403, 429, 500, 503),
  });

  test('are all written once, whatever happens to single requests', async () => {
    const services = times(5, (index) => `shop/web-${index}`);
    const property = fc.asyncProperty(fc.array(trouble, { maxLength: 12 }), async (troubles) => {
      const { server, state, pass } = record();
      const left = [...troubles];
      const unseen = new Set<AbortSignal>();
      server.faults.before = ({ request }) => {
        const next = unseen.has(request.signal) ? undefined : left.shift();
        if (next === undefined) return null;
        const { signal } = new AbortController();
        unseen.add(signal);
        if (next.isDone) void server.ask({ ...request, signal });
        const { answer } = next;
        return typeof answer === 'number' ? statusAnswer(answer, 'Refused') : answer;
      };
      state.open = [incident('first', services, 'warning')];
      // Twelve failures of one Event, and half an hour before all are repeated.
      await pass(1500);
      await stop();
      const written = [...server.events.values()].map(({ regarding }) => (regarding as Raw).name);
      expect(written.sort()).toEqual(services.map((key) => key.slice('shop/'.length)));
    });
    await fc.assert(property, { numRuns: 30 });
  });

  test('are others for another type and for a Service that was created again', async () => {
    const { server, state, pass } = record();
    const shown = () =>
      [...server.events.values()].map(({ type, regarding, series }) => [
        type,
        (regarding as Raw).uid,
        series,
      ]);
    state.open = [incident('first', ['shop/web'], 'info')];
    await pass(20);
    expect(shown()).toEqual([['Normal', 'uid-1', undefined]]);
    state.open = [incident('first', ['shop/web'], 'critical')];
    await pass(20);
    expect(shown().slice(1)).toEqual([['Warning', 'uid-1', undefined]]);
    state.uid = 'uid-2';
    await pass(20);
    expect(shown().slice(2)).toEqual([['Warning', 'uid-2', undefined]]);
  });

  test('have names of a length that the API server accepts', async () => {
    const { server, state, pass } = record();
    state.uid = '0b0c6d3e-5a57-4ab5-9a1f-2f2b44d0f6a1';
    state.open = [incident('x'.repeat(300), [`shop/${'w'.repeat(63)}`], 'critical')];
    await pass(20);
    const [name = ''] = [...server.events.keys()].map((key) => key.split('/')[1]);
    expect(name).toHaveLength(253);
    expect(name.endsWith(`.${state.uid}.warning`)).toBe(true);
  });
});

// How incidents open, merge, keep their names and end.

import { describe, expect, test } from 'vitest';

import type { Code, Finding } from '../../../src/audit/finding/catalogue.ts';
import type { Evidence } from '../../../src/audit/incident/classify.ts';
import { noControllers } from '../../../src/audit/incident/controllers.ts';
import { noImpacts } from '../../../src/audit/incident/impact.ts';
import type { Impact } from '../../../src/audit/service/impact.ts';
import { createIncidents } from '../../../src/audit/incident/incidents.ts';
import { plainFinding } from '../../build.ts';

const known: Evidence = {
  controllers: noControllers,
  changesOf: () => [],
  nodesOf: () => [],
  isRelabelled: () => false,
  readSince: () => 0,
};

/** Incidents with evidence that a test can change. */
function testIncidents() {
  const state = {
    evidence: known,
    /** The times for which evidence was asked. */
    assessed: [] as number[],
    impacts: new Map<string, Impact>(),
    asked: [] as string[],
  };
  const open: Finding[] = [];
  const incidents = createIncidents({
    evidence(at) {
      state.assessed.push(at);
      return state.evidence;
    },
    impacts: {
      ...noImpacts,
      ofService(key) {
        state.asked.push(key);
        return state.impacts.get(key) ?? null;
      },
    },
    findings: () => open,
    live: true,
    keep: 2,
  });
  return {
    state,
    incidents,
    add: (...findings: readonly Finding[]): void => {
      for (const finding of findings) incidents.add(finding);
      open.push(...findings);
    },
    end: (finding: Finding, at: number): void => {
      open.splice(open.indexOf(finding), 1);
      incidents.remove({ ...finding, resolvedAt: at });
    },
    ids: () => incidents.list().map(({ id }) => id),
    list: () => incidents.list(),
  };
}

const silent: Evidence = {
  ...known,
  controllers: {
    ...noControllers,
    endpoints: { ...noControllers.endpoints, state: 'silent', waiting: 2, since: 10 },
  },
};

const fail = (): never => {
  throw new Error('Expected an incident');
};

const missing = plainFinding('endpoints-address-missing');
const atNode = (code: Code, more: Partial<Finding> = {}): Finding =>
  plainFinding(code, { node: 'a', object: 'Node a', ...more });

describe('an incident', () => {
  test('has the kind, the object and the beginning in its name', () => {
    const { add, ids } = testIncidents();
    add(missing);
    expect(ids()).toEqual(['cause-unknown.service-shop-web.10']);
  });

  test('ends when its last finding is resolved, and keeps it', () => {
    const { add, end, ids, incidents } = testIncidents();
    const other = plainFinding('slice-endpoint-missing');
    add(missing, other);
    end(missing, 50);
    incidents.review(51, []);
    expect(ids()).toHaveLength(1);
    end(other, 52);
    incidents.review(53, []);
    expect(ids()).toEqual([]);
    const [resolved] = incidents.resolved();
    expect(resolved).toMatchObject({ kind: 'cause-unknown', since: 10, resolvedAt: 52 });
    expect(resolved?.findings.map(({ code }) => code)).toEqual([missing.code, other.code]);
  });

  test('of an unknown cause becomes one of a silent controller, without a second one', () => {
    const { add, ids, list, incidents, state } = testIncidents();
    add(missing);
    const [before = ''] = ids();
    state.evidence = silent;
    incidents.review(60, []);
    const [incident] = list();
    expect(incident).toMatchObject({ kind: 'controller-not-writing', since: 10, openedAt: 40 });
    expect(list()).toHaveLength(1);
    expect(incidents.resolved()).toEqual([]);
    expect(incidents.currentId(before)).toBe(incident?.id);
  });

  test('of a controller ends when writes refute it, and the cause is unknown again', () => {
    const { add, list, incidents, state } = testIncidents();
    add(missing);
    incidents.review(41, []);
    const [before] = list();
    state.evidence = silent;
    incidents.review(42, []);
    const [suspected] = list();
    expect(suspected?.kind).toBe('controller-not-writing');
    expect(incidents.currentId(before?.id ?? '')).toBe(suspected?.id);
    const endpoints = { ...noControllers.endpoints, wroteAt: 100 };
    state.evidence = { ...known, controllers: { ...noControllers, endpoints } };
    incidents.review(101, []);
    const [now] = list();
    expect(now?.kind).toBe('cause-unknown');
    expect(incidents.currentId(now?.id ?? '')).toBe(now?.id);
    expect(incidents.resolved()).toMatchObject([{ id: suspected?.id, resolvedAt: 101 }]);
  });

  test('continues with its kind, its name and its evidence after a restart', () => {
    const before = testIncidents();
    const other = plainFinding('endpoints-address-missing', { service: 'other', since: 12 });
    before.state.evidence = silent;
    before.add(missing, other);
    before.incidents.review(60, []);
    const { open, members } = before.incidents.past(() => 0);
    const after = testIncidents();
    const nothingElse = { resolved: [], merged: [] };
    after.incidents.continueAfterRestart({ open, members: [...members], ...nothingElse });
    after.incidents.add(other, 100);
    after.incidents.add(missing, 101);
    after.incidents.review(102, []);
    const [{ id, kind, evidence, since, openedAt } = fail()] = before.list();
    expect(kind).toBe('controller-not-writing');
    expect(after.list()).toMatchObject([{ id, kind, evidence, since, openedAt }]);
    // One that opens now, and not before the restart, is another incident.
    const fresh = testIncidents();
    fresh.incidents.continueAfterRestart({
      open,
      members: [...before.incidents.past(() => 0).members],
      ...nothingElse,
    });
    fresh.add(missing);
    expect(fresh.list()).toMatchObject([{ kind: 'cause-unknown' }]);
  });

  test('has the opening time of a finding that was open before a restart and joins it', () => {
    const { add, list } = testIncidents();
    add(plainFinding('slice-endpoint-missing', { since: 500, openedAt: 530 }));
    add(missing);
    const [incident] = list();
    expect(incident).toMatchObject({ since: missing.since, openedAt: missing.openedAt });
    expect(list()).toHaveLength(1);
  });

  test('of a finding that was open before a restart has the evidence of the present', () => {
    const { incidents, state } = testIncidents();
    incidents.add(missing, 500);
    expect(state.assessed).toEqual([500]);
    expect(incidents.list()).toMatchObject([{ openedAt: missing.openedAt }]);
  });

  test('of a slow controller becomes one of a silent one', () => {
    const { add, list, incidents, state } = testIncidents();
    const { endpoints } = noControllers;
    const slow = { ...endpoints, state: 'slow', waiting: 2, since: 10 } as const;
    state.evidence = { ...known, controllers: { ...noControllers, endpoints: slow } };
    add(missing);
    expect(list().map(({ kind }) => kind)).toEqual(['controller-slow']);
    state.evidence = silent;
    incidents.review(60, []);
    expect(list().map(({ kind }) => kind)).toEqual(['controller-not-writing']);
  });

  test('goes on as another one if its findings are replaced at one moment', () => {
    const { add, end, ids, list, incidents, state } = testIncidents();
    state.evidence = { ...known, readSince: () => null };
    const first = atNode('node-endpoint-missing');
    add(first);
    const [before = ''] = ids();
    end(first, 70);
    add(atNode('node-rules-stale', { namespace: '', service: '', since: 30, openedAt: 70 }));
    incidents.review(71, []);
    expect(list()).toMatchObject([{ kind: 'node-proxy-not-syncing', since: 10, openedAt: 40 }]);
    expect(incidents.resolved()).toEqual([]);
    expect(incidents.currentId(before)).toBe(list()[0]?.id);
  });

  test('that ended before is another one than a later one of its object', () => {
    const { add, end, list, incidents } = testIncidents();
    const first = atNode('node-rules-flushed');
    add(first);
    end(first, 70);
    incidents.review(71, []);
    add({ ...first, since: 80, openedAt: 110 });
    expect(list()).toMatchObject([{ since: 80 }]);
    expect(incidents.resolved()).toHaveLength(1);
  });

  test('without findings is open while its condition holds', () => {
    const { list, incidents } = testIncidents();
    const place = { kind: 'api-unavailable', key: '', object: 'API server' } as const;
    const condition = { ...place, name: '', since: 5, text: 'The watches are interrupted' };
    incidents.review(12, [condition]);
    incidents.review(13, [condition]);
    expect(list()).toMatchObject([{ kind: 'api-unavailable', object: 'API server', openedAt: 12 }]);
    incidents.review(20, []);
    expect(list()).toEqual([]);
    expect(incidents.resolved()).toMatchObject([{ kind: 'api-unavailable', resolvedAt: 20 }]);
  });

  test('is no part of another one that begins when it ends', () => {
    const { incidents, list } = testIncidents();
    const lost = { kind: 'api-unavailable', key: '', object: 'API server', name: '' } as const;
    const missing = { kind: 'agents-missing', key: '', object: 'Node a', name: 'a' } as const;
    incidents.review(12, [{ ...lost, since: 5, text: 'The watches are interrupted' }]);
    incidents.review(200, [{ ...missing, since: 80, text: 'Node a: the agent is absent' }]);
    expect(list()).toMatchObject([{ kind: 'agents-missing', since: 80, worstSeverity: 'info' }]);
    expect(incidents.resolved()).toMatchObject([{ kind: 'api-unavailable', resolvedAt: 200 }]);
  });
});

describe('the changes of an incident', () => {
  const changeOf = (kind: string, name: string, at: number) => {
    const namespace = kind === 'Node' ? '' : 'shop';
    return { at, kind, namespace, name, field: 'x', from: 'a', to: 'b' };
  };
  const caused = (service: string, object = 'Node b'): Finding =>
    plainFinding('slice-endpoint-different', {
      service,
      object,
      cause: 'node-change-unnoticed',
      causeProven: true,
    });

  test('are those of the object to blame, then those of most findings, then the oldest', () => {
    const { add, list, state } = testIncidents();
    const [node, early, late, shared] = [
      changeOf('Node', 'b', 9),
      changeOf('Pod', 'early', 1),
      changeOf('Pod', 'late', 5),
      changeOf('Pod', 'shared', 7),
    ];
    const changes = new Map([
      ['web', [late, shared, node]],
      ['api', [early, shared]],
      ['db', [node]],
    ]);
    state.evidence = { ...known, changesOf: ({ service }) => changes.get(service) ?? [] };
    state.evidence = { ...state.evidence, nodesOf: () => ['b'] };
    add(caused('web'), caused('api'), caused('db'));
    expect(list()).toMatchObject([{ kind: 'node-change-unnoticed', object: 'Node b' }]);
    expect(list()[0]?.changes).toMatchObject([node, shared, early, late]);
  });

  test('are bounded', () => {
    const { add, list, state } = testIncidents();
    const many = Array.from({ length: 30 }, (_, index) => changeOf('Pod', String(index), index));
    state.evidence = { ...known, changesOf: () => many };
    add(missing);
    expect(list()[0]?.changes).toHaveLength(20);
  });
});

describe('the number of incidents', () => {
  const services = Array.from({ length: 12 }, (_, index) =>
    plainFinding('left-behind', { service: `s${String(index)}`, since: index }),
  );

  test('is bounded: ten of one kind are one', () => {
    const { add, list, ids, incidents } = testIncidents();
    add(...services.slice(0, 9));
    incidents.review(50, []);
    const before = ids();
    expect(before).toHaveLength(9);
    add(...services.slice(9));
    incidents.review(51, []);
    expect(list()).toHaveLength(1);
    expect(list()[0]?.findings).toHaveLength(12);
    expect(list()[0]?.objects).toHaveLength(12);
    for (const id of before) expect(incidents.currentId(id)).toBe(ids()[0]);
  });

  test('of those that are resolved is bounded', () => {
    const { add, end, incidents } = testIncidents();
    for (const finding of services.slice(0, 5)) {
      add(finding);
      end(finding, 60);
      incidents.review(61, []);
    }
    expect(incidents.resolved().map(({ since }) => since)).toEqual([3, 4]);
  });
});

test('what began long before the last write of a silent controller has another cause', () => {
  const { add, list, state } = testIncidents();
  const endpoints = { ...silent.controllers.endpoints, wroteAt: 100, since: 101 };
  state.evidence = { ...silent, controllers: { ...silent.controllers, endpoints } };
  add(missing);
  add(plainFinding('endpoints-address-missing', { service: 'api', since: 101, openedAt: 131 }));
  expect(list().map(({ kind }) => kind)).toEqual(['cause-unknown', 'controller-not-writing']);
});

describe('the worst of an incident', () => {
  const slice = plainFinding('slice-endpoint-missing');
  const another = plainFinding('slice-endpoint-unexpected');

  test('keeps the worst severity that a review has shown', () => {
    const { add, end, list, incidents, state } = testIncidents();
    state.impacts.set('shop/web', { misrouted: 0.01, unused: 0 });
    add(slice);
    incidents.review(41, []);
    state.impacts.set('shop/web', { misrouted: 0.5, unused: 0 });
    incidents.noteImpact('shop/web');
    incidents.review(51, []);
    expect(list()).toMatchObject([{ severity: 'critical', worstSeverity: 'critical' }]);
    state.impacts.set('shop/web', { misrouted: 0.01, unused: 0 });
    expect(list()).toMatchObject([{ severity: 'warning', worstSeverity: 'critical' }]);
    end(slice, 55);
    incidents.review(56, []);
    expect(incidents.resolved()).toMatchObject([
      { severity: 'critical', reach: { services: 1 }, impact: { worst: 0.5 } },
    ]);
  });

  type TestIncidents = ReturnType<typeof testIncidents>;

  test.each([
    ['a finding joins it', true, ({ add }: TestIncidents) => add(another)],
    [
      'a Service of it changes',
      true,
      ({ incidents }: TestIncidents) => incidents.noteImpact('shop/web'),
    ],
    ['another changes', false, ({ incidents }: TestIncidents) => incidents.noteImpact('shop/api')],
    ['nothing changes', false, () => undefined],
  ] as const)('is reviewed again if %s: %s', (_, isAgain, change) => {
    const all = testIncidents();
    const { add, incidents, state } = all;
    add(slice);
    incidents.review(41, []);
    const asked = state.asked.length;
    change(all);
    incidents.review(51, []);
    expect(state.asked.length > asked).toBe(isAgain);
  });

  test('of the rules of a node is reviewed again in any case: its Services are not known', () => {
    const { add, incidents, state } = testIncidents();
    add(atNode('node-frontend-missing'));
    incidents.review(41, []);
    const asked = state.asked.length;
    incidents.review(51, []);
    expect(state.asked.length).toBeGreaterThan(asked);
  });

  test.each([0, 1])('is the same after %d queries while it was open', (queries) => {
    const { add, end, list, incidents, state } = testIncidents();
    state.impacts.set('shop/web', { misrouted: 0.01, unused: 0 });
    add(slice);
    incidents.review(41, []);
    state.impacts.set('shop/web', { misrouted: 0.5, unused: 0 });
    for (let query = 0; query < queries; query++) {
      expect(list()).toMatchObject([{ severity: 'critical', worstSeverity: 'critical' }]);
    }
    state.impacts.set('shop/web', { misrouted: 0.01, unused: 0 });
    end(slice, 45);
    incidents.review(46, []);
    expect(incidents.resolved()).toMatchObject([{ severity: 'warning', impact: { worst: 0.01 } }]);
  });

  test('keeps the largest number of nodes, without more Services', () => {
    const { incidents } = testIncidents();
    const agents = (...nodes: readonly string[]) =>
      nodes.map((name) => {
        const place = { kind: 'agents-missing', key: '', object: `Node ${name}` } as const;
        return { ...place, name, since: 5, text: 'No agent' };
      });
    incidents.review(10, agents('a'));
    incidents.review(30, agents('a', 'b', 'c'));
    incidents.review(50, agents('a'));
    incidents.review(70, []);
    expect(incidents.resolved()).toMatchObject([{ reach: { nodes: 3, services: 0 } }]);
  });

  test('that ends within ten seconds has been measured', () => {
    const { add, end, incidents, state } = testIncidents();
    incidents.review(39, []);
    state.impacts.set('shop/web', { misrouted: 0.01, unused: 0 });
    add({ ...slice, severity: 'critical' });
    incidents.review(41, []);
    state.impacts.clear();
    end({ ...slice, severity: 'critical' }, 45);
    incidents.review(46, []);
    expect(incidents.resolved()).toMatchObject([{ severity: 'warning', impact: { worst: 0.01 } }]);
  });

  test('has the severity of a finding that became worse before it ended', () => {
    const { add, end, incidents, state } = testIncidents();
    state.impacts.set('shop/web', { misrouted: 0, unused: 0 });
    add({ ...missing, severity: 'info' });
    incidents.review(41, []);
    end({ ...missing, severity: 'critical' }, 45);
    incidents.review(46, []);
    expect(incidents.resolved()).toMatchObject([{ severity: 'critical' }]);
  });

  test('is forgotten beyond a bound, and counted', () => {
    const { add, end, incidents } = testIncidents();
    for (const at of [50, 60, 70]) {
      add(slice);
      end(slice, at);
      incidents.review(at, []);
    }
    expect(incidents.resolved()).toHaveLength(2);
    expect(incidents.forgotten()).toBe(1);
  });
});

describe('field managers', () => {
  const change = {
    at: 20,
    kind: 'EndpointSlice',
    namespace: 'shop',
    name: 'web-x',
    field: 'metadata.resourceVersion',
    from: '1',
    to: '2',
  };
  const slice = { kind: 'EndpointSlice', namespace: 'shop', name: 'web-x' };
  const edited = plainFinding('slice-endpoint-missing', {
    object: 'EndpointSlices of Service shop/web',
    cause: 'hand-edited',
    causeProven: true,
  });
  const entry = (manager: string, at: number) => ({ manager, at, fields: {} });

  function editedIncidents() {
    const made = testIncidents();
    made.state.evidence = { ...known, changesOf: () => [change] };
    made.add(edited);
    return made;
  }

  test('are asked for once when an incident opens, and name who edited the object', () => {
    const { incidents, list } = editedIncidents();
    expect(list()[0]?.evidence.at(-1)?.text).toContain('it is being read');
    expect(incidents.unread()).toEqual([slice]);
    incidents.noteManagers(slice, [entry('kube-controller-manager', 3), entry('kubectl-edit', 19)]);
    expect(incidents.unread()).toEqual([]);
    const [incident] = list();
    expect(incident?.kind).toBe('edited-by-someone');
    expect(incident?.changes).toEqual([{ ...change, manager: 'kubectl-edit' }]);
    expect(incident?.evidence.at(-1)).toEqual({
      text: 'the field manager kubectl-edit changed EndpointSlice shop/web-x',
      at: 20,
    });
  });

  test('are unknown with the reason if they could not be read', () => {
    const { incidents, list } = editedIncidents();
    incidents.noteManagers(slice, { unknown: 'the API server answered 404' });
    expect(incidents.unread()).toEqual([]);
    const [incident] = list();
    expect(incident?.changes[0]?.manager).toBeNull();
    expect(incident?.evidence.at(-1)?.text).toBe(
      'the field manager is unknown: the API server answered 404',
    );
  });

  test('are those of at most five objects of an incident', () => {
    const { add, incidents, state } = testIncidents();
    const changes = Array.from({ length: 9 }, (_, index) => ({
      ...change,
      ...{ kind: 'Pod', name: `web-${index}`, field: 'metadata.labels app' },
    }));
    state.evidence = { ...known, changesOf: () => changes };
    add(missing);
    expect(incidents.unread()).toHaveLength(5);
    for (const object of incidents.unread()) incidents.noteManagers(object, []);
    expect(incidents.unread()).toEqual([]);
  });
});

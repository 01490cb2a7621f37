// Incidents that are saved and read again, by a checkpoint and after a restart.

import fc from 'fast-check';
import { expect, test } from 'vitest';

import type { Finding } from '../../../src/audit/finding/catalogue.ts';
import type { Claim, Evidence } from '../../../src/audit/incident/classify.ts';
import { noControllers } from '../../../src/audit/incident/controllers.ts';
import { noImpacts } from '../../../src/audit/incident/impact.ts';
import { createIncidents } from '../../../src/audit/incident/incidents.ts';
import {
  type IncidentCondition,
  type Incident,
  newIncident,
} from '../../../src/audit/incident/open-incident.ts';
import { reportIncident } from '../../../src/audit/incident/report.ts';
import {
  continueIncident,
  isSavedGrouping,
  isSavedIncident,
  isSavedMember,
  isSavedResolved,
  type PastIncidents,
  saveIncident,
} from '../../../src/audit/incident/saved-incidents.ts';
import { getOrInsert } from '../../../src/model/collections.ts';
import { plainFinding } from '../../build.ts';

const claim: Claim = { kind: 'cause-unknown', key: 'a', object: 'Service a/b', likely: [] };
const incident = newIncident('a', claim, { since: 1, openedAt: 2, evidence: [] });
const saved = JSON.parse(JSON.stringify(saveIncident(incident, () => 0))) as object;

test('an incident that was saved and read is the same', () => {
  expect(isSavedIncident(saved)).toBe(true);
  const again = continueIncident(saved as ReturnType<typeof saveIncident>, () => undefined);
  expect(again).toEqual(incident);
});

test('a line of an incident with members and too many changes has the first changes', () => {
  const change = { kind: 'Pod', namespace: 'a', name: 'b', field: 'c', from: null, to: null };
  const changes = [...Array(30).keys()].map((at) => ({ findings: 1, change: { ...change, at } }));
  const hostile = { ...saved, members: { x: 1 }, changes };
  expect(isSavedIncident(hostile)).toBe(true);
  const again = continueIncident(hostile as never, () => undefined);
  expect(again.members).toEqual(new Map());
  expect(again.changes.size).toBe(20);
});

test('a line of an incident whose sets of fields have too many levels is refused', () => {
  const nested = (levels: number): unknown =>
    JSON.parse(`${'{"f:a":'.repeat(levels - 1)}{}${'}'.repeat(levels - 1)}`);
  const withLevels = (levels: number) => ({
    ...saved,
    managers: [['Service a/b', [{ manager: 'helm', at: 1, fields: nested(levels) }]]],
  });
  expect(isSavedIncident(withLevels(32))).toBe(true);
  expect(isSavedIncident(withLevels(33))).toBe(false);
  expect(isSavedIncident(withLevels(20_000))).toBe(false);
});

// --- random incidents ---

const isSilent = { ...noControllers.endpoints, state: 'silent', waiting: 2, since: 5 } as const;

/** All that incidents depend on; instances that share it see the same. */
const createWorld = () => ({
  at: 100,
  isSilent: false,
  misrouted: 0,
  open: [] as Finding[],
  conditions: [] as IncidentCondition[],
});

type World = ReturnType<typeof createWorld>;

const evidenceOf = (world: World): Evidence => ({
  controllers: world.isSilent ? { ...noControllers, endpoints: isSilent } : noControllers,
  changesOf({ namespace, service: name }) {
    const change = { kind: 'Service', field: 'spec.selector', from: null, to: 'a' };
    return [{ at: 70 + name.length, namespace, name, ...change }];
  },
  nodesOf: () => ['a'],
  isRelabelled: () => false,
  readSince: () => 0,
});

const incidentsOf = (world: World, live = true) =>
  createIncidents({
    evidence: () => evidenceOf(world),
    impacts: {
      ...noImpacts,
      ofService: (key) => (key === 'shop/s0' ? { misrouted: world.misrouted, unused: 0 } : null),
    },
    findings: () => world.open,
    live,
    keep: 3,
  });

type TestIncidents = ReturnType<typeof incidentsOf>;

const codes = [
  'endpoints-address-missing',
  'slice-endpoint-missing',
  'slice-ports-different',
  'managers-several',
] as const;
const causes = [null, 'hand-edited'] as const;

function findingOf(world: World, number: number): Finding {
  const code = codes[number % 4] ?? codes[0];
  const cause = causes[(number >> 2) % 2] ?? null;
  const address = `10.0.0.${String(number)}`;
  const texts = { object: 'Endpoints shop/web', field: 'a', expected: address, actual: null };
  return plainFinding(code, {
    service: `s${String(number >> 3)}`,
    cause,
    differences: [{ code, address, pod: null, ...texts }],
    since: world.at - 20 - (number % 3),
    openedAt: world.at,
    suppressed:
      number === 5 ? { owner: 'team', reason: 'test', expires: '2030', source: 'file' } : null,
  });
}

const keyOf = ({ code, cause, service }: Finding): string => [code, cause, service].join(' ');

/** Steps of time, each with something that happens. */
const anyStep = fc.oneof(
  { weight: 6, arbitrary: fc.record({ add: fc.nat({ max: 31 }) }) },
  { weight: 4, arbitrary: fc.record({ end: fc.nat({ max: 31 }) }) },
  { weight: 1, arbitrary: fc.record({ silent: fc.boolean() }) },
  { weight: 1, arbitrary: fc.record({ misrouted: fc.constantFrom(0, 0.01, 0.5) }) },
  { weight: 1, arbitrary: fc.record({ without: fc.subarray(['s0', 's1', 's2']) }) },
  { weight: 1, arbitrary: fc.record({ read: fc.constant(true) }) },
);
type Step = typeof anyStep extends fc.Arbitrary<infer T> ? T : never;

function play(world: World, instances: readonly TestIncidents[], step: Step): void {
  world.at += 7;
  const { at } = world;
  if ('add' in step) {
    const finding = findingOf(world, step.add);
    if (!world.open.some((it) => keyOf(it) === keyOf(finding))) {
      world.open.push(finding);
      for (const incidents of instances) incidents.add(finding);
    }
  } else if ('end' in step) {
    const [finding] = world.open.splice(step.end % Math.max(1, world.open.length), 1);
    if (finding !== undefined) {
      for (const incidents of instances) incidents.remove({ ...finding, resolvedAt: at });
    }
  } else if ('silent' in step) world.isSilent = step.silent;
  else if ('misrouted' in step) {
    world.misrouted = step.misrouted;
    for (const incidents of instances) incidents.noteImpact('shop/s0');
  } else if ('without' in step) {
    world.conditions = step.without.map((name) => {
      const object = `Service shop/${name}`;
      const more = { key: object, name: `shop/${name}`, object, since: at, text: 'no ports' };
      return { kind: 'service-without-endpoints', ...more };
    });
  } else {
    const fields = { 'f:spec': { 'f:selector': {} } };
    for (const incidents of instances) {
      for (const object of incidents.unread()) {
        incidents.noteManagers(object, [{ manager: 'helm', at, fields }]);
      }
    }
  }
  for (const incidents of instances) incidents.review(at, world.conditions);
}

/** All that pages, JSON and alerts show of incidents. */
function shownBy(incidents: TestIncidents) {
  const all = (incident: Incident) => {
    const { services, findings, ...rest } = incident;
    const members = findings.map((it) => [keyOf(it), it.since, it.openedAt, it.resolvedAt]);
    return { ...rest, members, services: [...services], report: reportIncident(incident) };
  };
  return {
    open: incidents.list().map(all),
    resolved: incidents.resolved().map(all),
    forgotten: incidents.forgotten(),
    marks: incidents.marks(),
    unread: incidents.unread(),
  };
}

/** Incidents continue in the order in which their findings open again. */
const inOrder = (list: readonly unknown[]): string[] => list.map((it) => JSON.stringify(it)).sort();

const copyOf = <T>(value: T): T => JSON.parse(JSON.stringify(value)) as T;

/** What incidents save, after JSON, and the findings by their numbers. */
function savedBy(incidents: TestIncidents) {
  const numbers = new Map<Finding, number>();
  const past = incidents.past((finding) => getOrInsert(numbers, finding, () => numbers.size));
  const plain = copyOf({ ...past, members: [...past.members] });
  const resolved = copyOf([...numbers].map(([finding, number]) => [number, finding] as const));
  return { past: plain, resolved };
}

const areForms = ({ open, members, resolved, grouping }: PastIncidents): boolean =>
  open.every(isSavedIncident) &&
  [...members].every(isSavedMember) &&
  resolved.every(isSavedResolved) &&
  isSavedGrouping(grouping);

const steps = fc.array(anyStep, { maxLength: 25 });

test('random incidents of a checkpoint are shown and go on as those before it', () => {
  fc.assert(
    fc.property(steps, steps, fc.boolean(), (before, after, live) => {
      const world = createWorld();
      const incidents = incidentsOf(world, live);
      for (const step of before) play(world, [incidents], step);
      const { past, resolved } = savedBy(incidents);
      expect(areForms(past)).toBe(true);
      const again = incidentsOf(world, live);
      const byNumber = new Map(resolved);
      again.continuePast(past, (number) => byNumber.get(number));
      expect(shownBy(again)).toEqual(shownBy(incidents));
      for (const step of after) {
        play(world, [incidents, again], step);
        expect(shownBy(again)).toEqual(shownBy(incidents));
      }
    }),
  );
});

test('random incidents of findings that open again after a restart are as before', () => {
  const ofFindings = fc.array(
    anyStep.filter((step) => !('without' in step) && !('silent' in step)),
    { maxLength: 40 },
  );
  fc.assert(
    fc.property(ofFindings, fc.boolean(), (before, live) => {
      const world = createWorld();
      const incidents = incidentsOf(world, live);
      for (const step of before) play(world, [incidents], step);
      const { past, resolved } = savedBy(incidents);
      const { open, members, grouping } = past;
      const again = incidentsOf(world, live);
      again.continueAfterRestart({ open, members: [...members], resolved, ...grouping });
      world.at += 20;
      for (const finding of world.open) again.add(finding, world.at);
      for (const it of [incidents, again]) it.review(world.at, []);
      const [actual, want] = [shownBy(again), shownBy(incidents)];
      for (const part of ['open', 'marks', 'unread'] as const) {
        expect(inOrder(actual[part])).toEqual(inOrder(want[part]));
      }
      for (const id of grouping.merged.map(([from]) => from)) {
        expect(again.currentId(id)).toBe(incidents.currentId(id));
      }
      const known = incidents.resolved().length;
      for (const finding of world.open.splice(0)) {
        const ended = { ...finding, resolvedAt: world.at + 1 };
        for (const it of [incidents, again]) it.remove(ended);
      }
      for (const it of [incidents, again]) it.review(world.at + 2, []);
      if (incidents.forgotten() > 0) return;
      const resolvedNow = shownBy(incidents).resolved.slice(known);
      expect(inOrder(shownBy(again).resolved)).toEqual(inOrder(resolvedNow));
    }),
  );
});

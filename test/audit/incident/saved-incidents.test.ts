import { expect, test } from 'vitest';

import type { Claim } from '../../../src/audit/incident/classify.ts';
import { newIncident } from '../../../src/audit/incident/open-incident.ts';
import {
  continueIncident,
  isSavedIncident,
  saveIncident,
} from '../../../src/audit/incident/saved-incidents.ts';

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

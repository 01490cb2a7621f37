// Replays recordings of real control planes, and compares the incidents with the faults that were
// made: each fault belongs to exactly one incident, of the right kind and with the right object.

import { createReadStream, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

import { beforeAll, describe, expect, test } from 'vitest';

import type { Finding } from '../../src/audit/finding/catalogue.ts';
import type { IncidentKind } from '../../src/audit/incident/kinds.ts';
import { createAuditor } from '../../src/auditor/auditor.ts';
import { readRecording } from '../../src/cluster/files/recording.ts';
import { auditorDefaults } from '../build.ts';

type Incident = ReturnType<ReturnType<typeof createAuditor>['incidents']['list']>[number];

interface Expected {
  readonly output: string;
  readonly namespace?: string;
  readonly service?: string;
  readonly node?: string;
}

interface Fault {
  readonly what: string;
  readonly from: number;
  readonly until: number | null;
  readonly expect: readonly Expected[];
}

const truth = JSON.parse(
  readFileSync(join(import.meta.dirname, 'shop.truth.json'), 'utf8'),
) as { readonly faults: readonly Fault[] };

type Place = readonly [what: string, kind: IncidentKind, object: string];

/** The incident of each fault that has findings, by the beginning of its text. */
const places: readonly Place[] = [
  ['Endpoints payments/ledger edited', 'edited-by-someone', 'Endpoints payments/ledger'],
  ['selector of payments/fraud removed', 'service-configuration', 'Service payments/fraud'],
  ['rolling update of the pods that pay', 'service-configuration', 'Service payments/fraud'],
  ['a slice of another manager', 'service-configuration', 'Service shop/checkout'],
  ['kube-proxy on node-b stopped', 'node-proxy-not-syncing', 'Node node-b'],
  ['node-c: KUBE-SEP chain', 'node-rules-lost', 'Node node-c'],
  ['two shop/search pods', 'controller-not-writing', 'kube-controller-manager'],
  ['a shop/recommender pod force-deleted', 'controller-not-writing', 'kube-controller-manager'],
  ['a payments/gateway pod reports', 'addresses-shared', 'Address 10.244.4.12'],
  ['node-c: jump from OUTPUT', 'node-rules-lost', 'Node node-c'],
];

const placeOf = ({ what }: Fault): Place => {
  const found = places.find(([start]) => what.startsWith(start));
  if (found === undefined) throw new Error(`No incident for ${what}`);
  return found;
};

/** The incidents with an open finding, each time that a finding opens or is resolved. */
async function replayed(settle: number, timers: boolean, name = 'shop.ndjson.gz') {
  const incidents = new Map<string, Incident>();
  const owners = new Map<Finding, string>();
  let changes = 0;
  const auditor = createAuditor({
    ...auditorDefaults,
    settle,
    onOpen(finding) {
      changes++;
      owners.set(finding, auditor.incidents.idOf(finding) ?? '');
    },
    onResolve() {
      changes++;
    },
  });
  const note = (): void => {
    const listed = auditor.incidents.list();
    for (const incident of listed) incidents.set(incident.id, incident);
    changes = 0;
  };
  const source = { name, bytes: createReadStream(join(import.meta.dirname, name)) };
  const options = { previousPod: (key: string) => auditor.store.listers.pods.get(key) };
  for await (const entry of readRecording(source, () => undefined, options)) {
    const now = entry.kind === 'event' ? entry.event.at : entry.at;
    for (let next = auditor.nextAt(); timers && next !== null && next < now; ) {
      auditor.advance(next);
      next = auditor.nextAt();
    }
    auditor.take(entry);
    if (changes > 0) note();
  }
  const open = auditor.incidents.list();
  return { seen: [...incidents.values()], owners, open, resolved: auditor.incidents.resolved() };
}

const nameOf = ({ kind, object }: Incident): string => `${kind} ${object}`;

describe.each([30, 10])('a settle window of %i s', (settle) => {
  let got: Awaited<ReturnType<typeof replayed>>;
  beforeAll(async () => {
    got = await replayed(settle, true);
  });

  const faults = truth.faults.filter((fault) => fault.expect.length > 0);
  test.each(faults)('$what: one incident of its kind, with its object', (fault) => {
    const [, kind, object] = placeOf(fault);
    const isOfFault = (finding: Finding): boolean =>
      finding.openedAt >= fault.from &&
      fault.expect.some(
        (want) =>
          finding.output === want.output &&
          finding.namespace === (want.namespace ?? '') &&
          finding.service === (want.service ?? '') &&
          finding.node === (want.node ?? null),
      );
    const ids = [...got.owners].flatMap(([finding, id]) => (isOfFault(finding) ? [id] : []));
    // Later faults of the same place are in incidents of their own, or in this one.
    const [id] = ids;
    const incident = got.seen.find((it) => it.id === id);
    expect(incident === undefined ? null : nameOf(incident)).toBe(`${kind} ${object}`);
    expect(got.seen.filter((it) => nameOf(it) === `${kind} ${object}`)).toHaveLength(1);
  });

  test('there is no other incident, except for two Services that do not change', () => {
    const wanted = new Set(places.map(([, kind, object]) => `${kind} ${object}`));
    const others = got.seen.map(nameOf).filter((name) => !wanted.has(name));
    // It has more addresses than Endpoints can list; the other has a target port of no container.
    expect(others).toEqual([
      'service-configuration Service batch/worker',
      'service-without-endpoints Service payments/fraud-metrics',
    ]);
  });

  test('the stopped controller manager is one incident of its Services, resolved after it', () => {
    const stopped = got.resolved.filter(({ kind }) => kind === 'controller-not-writing');
    const resumed = truth.faults.find(({ what }) => what.includes('manager resumes'));
    expect(stopped).toHaveLength(1);
    const services = new Set(stopped[0]?.findings.map((it) => `${it.namespace}/${it.service}`));
    expect([...services].sort()).toEqual(['shop/everything', 'shop/recommender', 'shop/search']);
    expect(stopped[0]?.resolvedAt).toBeGreaterThanOrEqual(resumed?.from ?? Infinity);
    expect(stopped[0]?.resolvedAt).toBeLessThanOrEqual((resumed?.from ?? 0) + 3);
  });

  test('a replay at full speed, without timers, has the same incidents', async () => {
    const fast = await replayed(settle, false);
    const ids = (incidents: readonly Incident[]) => incidents.map(({ id }) => id);
    expect(ids(fast.open)).toEqual(ids(got.open));
    expect(ids(fast.resolved)).toEqual(ids(got.resolved));
  });
});

// Each was shrunk to the objects of one Service, which alone proves no cause.
const shrunk = readdirSync(join(import.meta.dirname, 'chaos')).filter((it) => it.endsWith('.gz'));

test.each(shrunk)('%s: each finding is in one incident of its Service', async (name) => {
  const { owners, open, resolved } = await replayed(10, true, join('chaos', name));
  const all = [...open, ...resolved];
  for (const [{ namespace, service }, id] of owners) {
    const found = all.filter((incident) => incident.id === id);
    expect(found.map(nameOf)).toEqual([`cause-unknown Service ${namespace}/${service}`]);
    expect(found[0]?.likely).toContain('controller-not-writing');
  }
  expect(new Set(all.map(({ id }) => id))).toEqual(new Set(owners.values()));
});

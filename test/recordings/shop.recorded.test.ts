// Replays the recording of a real control plane in which faults were made and repaired, and holds
// what the auditor says, and when, against what was done. Nodes are seen
// in dumps only, five seconds apart.

import { auditorDefaults } from '../build.ts';
import { createReadStream, readFileSync } from 'node:fs';
import { join } from 'node:path';

import { beforeAll, describe, expect, test } from 'vitest';

import type { Finding, Severity } from '../../src/audit/finding/catalogue.ts';
import { isWorse } from '../../src/audit/finding/catalogue.ts';
import type { Summary } from '../../src/audit/summary.ts';
import { createAuditor } from '../../src/auditor/auditor.ts';
import { createReport } from '../../src/auditor/queries.ts';
import { takeChange } from '../../src/cluster/api/version-filter.ts';
import { readRecording } from '../../src/cluster/files/recording.ts';
import type { AnyObject } from '../../src/model/objects.ts';

interface Expected {
  readonly output: string;
  readonly namespace?: string;
  readonly service?: string;
  readonly node?: string;
  readonly severity: Severity;
}

interface Fault {
  readonly what: string;
  readonly from: number;
  readonly until: number | null;
  readonly expect: readonly Expected[];
}

interface Truth {
  readonly faults: readonly Fault[];
  readonly end: number;
}

const recording = join(import.meta.dirname, 'shop.ndjson.gz');
const truth = JSON.parse(
  readFileSync(join(import.meta.dirname, 'shop.truth.json'), 'utf8'),
) as Truth;

/** Seconds that the auditor, and after a repair the controllers, may take after the window. */
const grace = 2;
const catchUp = 3;
/** Seconds between two dumps of a node. */
const dumpInterval = 5;

interface Said {
  readonly finding: Finding;
  /** The input's clock when the auditor said it. */
  readonly at: number;
}

interface Replayed {
  readonly opened: Said[];
  readonly resolved: Said[];
  readonly open: readonly Finding[];
  readonly problems: number;
  readonly nodes: Summary['nodes'];
}

/** `timers`: the clock also rings between entries, as it does when time is real. */
async function replayed(settle: number, timers: boolean): Promise<Replayed> {
  const opened: Said[] = [];
  const resolved: Said[] = [];
  let problems = 0;
  let last = 0;
  const auditor = createAuditor({ ...auditorDefaults,
    settle,  
    onOpen: (finding) => opened.push({ finding, at: last }),
    onResolve: (finding) => resolved.push({ finding, at: last }),
  });
  const source = { name: 'shop', bytes: createReadStream(recording) };
  const options = { previousPod: (key: string) => auditor.store.listers.pods.get(key) };
  for await (const entry of readRecording(source, () => problems++, options)) {
    const now = entry.kind === 'event' ? entry.event.at : entry.at;
    for (let next = auditor.nextAt(); timers && next !== null && next < now; ) {
      last = next;
      auditor.advance(next);
      next = auditor.nextAt();
    }
    last = now;
    auditor.take(entry);
  }
  const input = { kind: 'replay', sources: [], namespace: null, problems: [] } as const;
  const { nodes } = createReport(auditor, input);
  return { opened, resolved, open: auditor.findings.open(), problems, nodes };
}

const matches = (finding: Finding, want: Expected): boolean =>
  finding.output === want.output &&
  finding.namespace === (want.namespace ?? '') &&
  finding.service === (want.service ?? '') &&
  finding.node === (want.node ?? null);

const atLeast = (finding: Finding, severity: Severity): boolean =>
  !isWorse(severity, finding.severity);

const seen = truth.faults.flatMap((fault) =>
  fault.expect.map((want) => ({
    ...fault,
    want,
    at: `${want.output} of ${want.service ?? want.node ?? ''}`,
    /** Seconds until it can be seen; rules are stale only after changes of several Services. */
    sight: want.output !== 'node' ? 0 : dumpInterval * (want.service === undefined ? 2 : 1),
  })),
);

describe.each([30, 10])('a settle window of %i s', (settle) => {
  let got: Replayed;
  beforeAll(async () => {
    got = await replayed(settle, true);
  });

  test('a replay at full speed, without timers, says the same', async () => {
    const fast = await replayed(settle, false);
    const findings = (said: readonly Said[]) => said.map(({ finding }) => finding);
    expect(findings(fast.opened)).toEqual(findings(got.opened));
    expect(findings(fast.resolved)).toEqual(findings(got.resolved));
  });

  test('the recording is read without a problem', () => {
    expect(got.problems).toBe(0);
  });

  test.each(seen)('$what: reported in time, $at', ({ want, from, sight }) => {
    const said = got.opened.find(
      ({ finding, at }) =>
        matches(finding, want) && atLeast(finding, want.severity) && at >= from,
    );
    expect(said).toBeDefined();
    expect(said?.finding.openedAt).toBeGreaterThanOrEqual(from);
    expect(said?.finding.openedAt).toBeLessThanOrEqual(from + settle + grace + sight);
    expect(said?.at).toBeLessThanOrEqual(from + settle + grace + sight);
  });

  const repaired = seen.filter(({ until }) => until !== null);
  test.each(repaired)('$what: resolved in time, $at', ({ want, until, sight }) => {
    const said = got.resolved.find(({ finding }) => matches(finding, want));
    expect(said).toBeDefined();
    expect(said?.finding.resolvedAt).toBeGreaterThanOrEqual(until ?? 0);
    expect(said?.finding.resolvedAt).toBeLessThanOrEqual(
      (until ?? 0) + catchUp + grace + sight,
    );
  });

  test('nothing else above information is reported', () => {
    const others = got.opened
      .filter(({ finding }) => finding.severity !== 'info')
      .filter(({ finding }) => !seen.some(({ want }) => matches(finding, want)))
      .map(
        ({ finding: { node, namespace, service, code } }) =>
          `${node ?? ''} ${namespace}/${service} ${code}`,
      );
    expect(others).toEqual([]);
  });

  test('no fault is reported twice under one code', () => {
    for (const { want, what } of seen) {
      const codes = got.opened
        .filter(({ finding }) => matches(finding, want) && finding.severity !== 'info')
        .map(({ finding }) => finding.code);
      expect(codes, what).toEqual([...new Set(codes)]);
    }
  });

  test('as many findings of each code are opened as are resolved or open at the end', () => {
    const codes = (findings: readonly Finding[]) => findings.map(({ code }) => code).sort();
    const findingsIn = (said: readonly Said[]) => said.map(({ finding }) => finding);
    const all = [...findingsIn(got.resolved), ...got.open];
    expect(codes(findingsIn(got.opened))).toEqual(codes(all));
  });

  test('a fault that was never repaired is open at the end', () => {
    for (const { want, until, what } of seen) {
      const isOpen = got.open.some((finding) => matches(finding, want));
      expect(isOpen, what).toBe(until === null);
    }
  });

  test('rules that are left behind are so since the first change that did not come', () => {
    const stopped = truth.faults.find(({ expect: [want] }) => want?.node === 'node-b');
    const [stale, ...more] = got.opened.filter(({ finding }) => finding.node === 'node-b');
    expect(more).toEqual([]);
    expect(stale?.finding.code).toBe('node-rules-stale');
    expect(stale?.finding.since).toBeGreaterThanOrEqual(stopped?.from ?? Infinity);
    // The first change is a pod of the roll-out that begins two seconds later.
    expect(stale?.finding.since).toBeLessThanOrEqual((stopped?.from ?? 0) + 5);
  });

  test('all Service ports of all nodes have a verdict', () => {
    expect(got.nodes.map(({ node }) => node)).toEqual(['node-b', 'node-c', 'node-d']);
    for (const { pending, unknown } of got.nodes) expect([pending, unknown]).toEqual([0, 0]);
    expect(got.nodes.map(({ different }) => different > 0)).toEqual([false, true, false]);
  });
});

test('each event follows from the cached state, and a deletion shows the last one', async () => {
  const objects = new Map<string, AnyObject>();
  const counts = { deleted: 0, gap: 0 };
  const source = { name: recording, bytes: createReadStream(recording) };
  for await (const entry of readRecording(source, () => undefined)) {
    if (entry.kind !== 'event') continue;
    const { resource, type, object } = entry.event;
    const name = `${resource} ${object.key}`;
    const cached = { get: () => objects.get(name), values: () => objects.values() };
    const taken = takeChange(cached, '', entry.event);
    if (typeof taken === 'string' || taken.some(({ gap }) => gap === true)) counts.gap++;
    if (type === 'deleted') counts.deleted++;
    if (type === 'deleted') objects.delete(name);
    else objects.set(name, object);
  }
  expect(counts).toEqual({ deleted: 140, gap: 0 });
});

// Compares the lag on the recording of a real control plane with the recording itself. This test
// reads each moment from the raw lines of the file and by other means than the
// program: the pods that are Ready, the addresses that outputs list, and nothing else.

import { createReadStream, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { createGunzip } from 'node:zlib';

import { beforeAll, describe, expect, test } from 'vitest';

import type { Journey } from '../../src/audit/measure/journey.ts';
import { lastOf } from '../../src/audit/measure/journey.ts';
import type { ConvergenceSample } from '../../src/audit/service/reconcile.ts';
import type { Auditor } from '../../src/auditor/auditor.ts';
import { createAuditor } from '../../src/auditor/auditor.ts';
import { readRecording } from '../../src/cluster/files/recording.ts';
import { auditorDefaults } from '../build.ts';

interface Fault {
  readonly what: string;
  readonly from: number;
  readonly until: number | null;
  readonly expect: readonly { output: string; namespace?: string; service?: string }[];
}

const file = join(import.meta.dirname, 'shop.ndjson.gz');
const truth = JSON.parse(
  readFileSync(join(import.meta.dirname, 'shop.truth.json'), 'utf8'),
) as { faults: readonly Fault[] };

interface Raw {
  readonly metadata: {
    readonly name: string;
    readonly namespace?: string;
    readonly labels?: Readonly<Record<string, string>>;
    readonly annotations?: Readonly<Record<string, string>>;
    readonly deletionTimestamp?: string;
  };
  readonly spec?: { readonly selector?: Readonly<Record<string, string>> };
  readonly status?: {
    readonly podIP?: string;
    readonly conditions?: readonly { type: string; status: string }[];
  };
  readonly subsets?: readonly { readonly addresses?: readonly { readonly ip: string }[] }[];
  readonly endpoints?: readonly {
    readonly addresses: readonly string[];
    readonly conditions?: { readonly ready?: boolean };
  }[];
}

interface Line {
  readonly kind: string;
  readonly at: number;
  readonly resource: string;
  readonly type: string;
  readonly object: Raw;
}

/** How long one output of one Service listed other ready addresses than its pods have. */
interface Late {
  readonly service: string;
  readonly output: string;
  readonly from: number;
  readonly until: number;
}

/** What is asked of the recording: which outputs were late, when, and how many were written. */
interface Read {
  readonly late: readonly Late[];
  /** Writings of the two controllers, by whether they have a trigger time. */
  readonly writings: Record<'endpoints' | 'endpointslices', { with: number; without: number }>;
}

const nameOf = ({ metadata: { namespace, name } }: Raw): string => `${namespace ?? ''}/${name}`;

function selects(selector: Readonly<Record<string, string>>, { metadata }: Raw): boolean {
  return Object.entries(selector).every(([key, value]) => metadata.labels?.[key] === value);
}

const isReady = ({ metadata, status }: Raw): boolean =>
  metadata.deletionTimestamp === undefined &&
  status?.podIP !== undefined &&
  status.conditions?.some(({ type, status: is }) => type === 'Ready' && is === 'True') === true;

/** Objects by resource and name. */
type Cached = Readonly<Record<string, Map<string, Raw>>>;

/** The ready addresses that an output lists, or that the pods have; sorted and joined. */
function listed(
  cached: Cached,
  service: Raw,
  what: 'pods' | 'endpoints' | 'endpointslices',
): string {
  const { namespace = '', name } = service.metadata;
  const found = new Set<string>();
  if (what === 'pods') {
    for (const pod of cached.pods?.values() ?? []) {
      if (pod.metadata.namespace !== namespace || !isReady(pod)) continue;
      if (selects(service.spec?.selector ?? {}, pod)) found.add(pod.status?.podIP ?? '');
    }
  } else if (what === 'endpoints') {
    const subsets = cached.endpoints?.get(`${namespace}/${name}`)?.subsets ?? [];
    for (const { addresses } of subsets) for (const { ip } of addresses ?? []) found.add(ip);
  } else {
    for (const { metadata, endpoints } of cached.endpointslices?.values() ?? []) {
      const owner = metadata.labels?.['kubernetes.io/service-name'];
      if (metadata.namespace !== namespace || owner !== name) continue;
      for (const { addresses, conditions } of endpoints ?? []) {
        if (conditions?.ready !== false) for (const ip of addresses) found.add(ip);
      }
    }
  }
  return [...found].sort().join();
}

const outputs = ['endpoints', 'endpointslices'] as const;

/** Services with faults. The test reads only these, so that it stays quick. */
const watched = new Set(
  truth.faults.flatMap((fault) =>
    fault.expect.map(({ namespace, service }) => `${namespace ?? ''}/${service ?? ''}`),
  ),
);

async function readRaw(): Promise<Read> {
  const cached: Cached = {
    nodes: new Map(),
    services: new Map(),
    pods: new Map(),
    endpoints: new Map(),
    endpointslices: new Map(),
  };
  const late: Late[] = [];
  const since = new Map<string, number>();
  const none = () => ({ with: 0, without: 0 });
  const writings = { endpoints: none(), endpointslices: none() };
  const check = (service: Raw, at: number): void => {
    const want = listed(cached, service, 'pods');
    for (const output of outputs) {
      const key = `${nameOf(service)} ${output}`;
      const began = since.get(key);
      if (listed(cached, service, output) !== want) since.set(key, began ?? at);
      else if (began !== undefined) {
        late.push({ service: nameOf(service), output, from: began, until: at });
        since.delete(key);
      }
    }
  };
  const count = ({ resource, object, type }: Line): void => {
    if (type === 'SYNC' || type === 'DELETED') return;
    if (resource !== 'endpoints' && resource !== 'endpointslices') return;
    const { labels, annotations } = object.metadata;
    const by = labels?.['endpointslice.kubernetes.io/managed-by'];
    const service = cached.services?.get(nameOf(object));
    const isOurs =
      resource === 'endpointslices'
        ? by === 'endpointslice-controller.k8s.io'
        : service?.spec?.selector !== undefined;
    if (!isOurs) return;
    const time = annotations?.['endpoints.kubernetes.io/last-change-trigger-time'];
    writings[resource][time === undefined ? 'without' : 'with']++;
  };
  const input = createInterface({ input: createReadStream(file).pipe(createGunzip()) });
  for await (const text of input) {
    const line = JSON.parse(text) as Line;
    if (line.kind !== 'object' || line.type === 'BOOKMARK') continue;
    const { object, resource, type, at } = line;
    if (type === 'DELETED') cached[resource]?.delete(nameOf(object));
    else cached[resource]?.set(nameOf(object), object);
    if (type === 'SYNC') continue;
    count(line);
    for (const key of watched) {
      const service = cached.services?.get(key);
      if (service?.metadata.namespace === object.metadata.namespace && service !== undefined) {
        check(service, at);
      }
    }
  }
  return { late, writings };
}

async function audited(): Promise<{ auditor: Auditor; journeys: Journey[] }> {
  const journeys: Journey[] = [];
  const auditor = createAuditor({ ...auditorDefaults, 
    onJourney: (journey) => journeys.push(journey),
  });
  const source = { name: 'shop', bytes: createReadStream(file) };
  const options = { previousPod: (key: string) => auditor.store.listers.pods.get(key) };
  for await (const entry of readRecording(source, () => undefined, options)) auditor.take(entry);
  return { auditor, journeys };
}

let raw: Read;
let auditor: Auditor;
let journeys: Journey[];
let samples: readonly ConvergenceSample[];

beforeAll(async () => {
  raw = await readRaw();
  ({ auditor, journeys } = await audited());
  samples = auditor.samples.worst.convergence.list(auditor.now() ?? 0);
});

/** What hung, and what changed meanwhile: outputs that the truth says were late. */
const hung = truth.faults.flatMap(({ from, until, expect: wanted, what }) =>
  until === null || wanted.some(({ output }) => output === 'node')
    ? []
    : wanted.map(({ output, namespace, service }) => ({
        what,
        output,
        service: `${namespace ?? ''}/${service ?? ''}`,
        from,
        until,
      })),
);

test('there are six outputs that were late while the controllers hung', () => {
  expect(hung).toHaveLength(6);
});

describe.each(hung)('$service $output: $what', ({ output, service, from, until }) => {
  const isIt = (one: { service: string; output: string }): boolean =>
    one.service === service && one.output === output;

  test('convergence lag is the time from the arrival of the input to that of the repair', () => {
    // What was done is noted when it was done, which is a little after it began to arrive.
    const truths = raw.late.filter(
      (one) => isIt(one) && one.from >= from - 1 && one.until >= until,
    );
    const [longest] = truths.sort((a, b) => b.until - b.from - (a.until - a.from));
    if (longest === undefined) throw new Error('The recording shows no delay');
    const want = longest.until - longest.from;
    // The whole of the time in which the controllers hung and the change was there.
    expect(want).toBeGreaterThan(until - from - 1);
    const [got] = samples.filter((one) =>
      isIt({ output: one.output, service: `${one.namespace}/${one.service}` }),
    );
    expect(Math.abs((got?.seconds ?? 0) - want)).toBeLessThan(0.5);
    expect(Math.abs((got?.at ?? 0) - longest.until)).toBeLessThan(0.5);
  });

  test('so is the journey of the pod', () => {
    const mine = journeys.filter(
      (one) => `${one.namespace}/${one.service}` === service && one.begun >= from - 1,
    );
    const seconds = mine.map((journey) => {
      const stage = lastOf(journey, output as 'endpoints' | 'endpointslices');
      return (stage?.at ?? 0) - journey.begun;
    });
    // The pod has its time in whole seconds.
    expect(Math.max(...seconds)).toBeGreaterThan(until - from - 1);
    expect(Math.max(...seconds)).toBeLessThan(until - from + 1.5);
  });
});

test('ordinary rolling updates are followed within two seconds, at the 99th percentile', () => {
  const hang = truth.faults.find(({ what }) => what.includes('manager hangs'))?.from ?? 0;
  const resume = truth.faults.find(({ what }) => what.includes('manager resumes'))?.from ?? 0;
  const ordinary = journeys.filter(
    ({ begun, stages }) =>
      (stages.at(-1)?.at ?? 0) < hang || begun > resume + 3 || begun < hang - 3,
  );
  expect(ordinary.length).toBeGreaterThan(250);
  const lags = ordinary.flatMap((journey) =>
    outputs.flatMap((output) => {
      const stage = lastOf(journey, output);
      return stage === undefined ? [] : [stage.at - journey.begun];
    }),
  );
  lags.sort((a, b) => a - b);
  expect(lags[Math.ceil(lags.length * 0.99) - 1]).toBeLessThan(2);
});

test('no sample is negative', () => {
  const { convergence, trigger, travel } = auditor.samples;
  const histograms = [
    ...Object.values(convergence).flatMap((of) => Object.values(of)),
    ...Object.values(trigger.lag),
    ...[travel.readiness, travel.removal, travel.programming].flatMap((of) => Object.values(of)),
  ];
  expect(histograms).toHaveLength(12 + 2 + 3 + 3 + 2);
  for (const { counts, count, sum } of histograms) {
    expect(counts.reduce((all, one) => all + one, 0)).toBe(count);
    expect(sum).toBeGreaterThanOrEqual(0);
  }
  expect(samples.every(({ seconds }) => seconds >= 0)).toBe(true);
  for (const { stages } of journeys) {
    const times = stages.map(({ at }) => at);
    expect(times).toEqual(times.toSorted((a, b) => a - b));
  }
});

test.each(outputs)('%s: every writing of the controllers has a quality, and no other', (output) => {
  const counts = auditor.samples.trigger.counts[output];
  const { with: stamped, without } = raw.writings[output];
  // A writing has no trigger of its own where the controller cleared the annotation (deletions), or
  // where another client wrote and kept the old one. Everything else is known by its age.
  const total = Object.values(counts).reduce((sum, one) => sum + one, 0);
  expect(total).toBe(stamped + without);
  expect(counts.absent).toBeGreaterThanOrEqual(without);
  // The controllers were never restarted, and all of the cluster is on one machine with one clock.
  expect([counts.restarted, counts.skewed]).toEqual([0, 0]);
  // Only what was written after the hang is late by more than the resolution of the annotation.
  expect(counts.coarse).toBeGreaterThan(10 * counts.ok);
  expect(counts.ok).toBeGreaterThan(0);
  expect(auditor.samples.trigger.lag[output].count).toBe(counts.ok + counts.coarse);
});

test('journeys are coarse if kubelet and auditor share a clock; updates have no time', () => {
  const { begun } = auditor.samples.travel;
  const { add, remove, update } = begun;
  // Fake kubelets write a transition and are seen at once: below the resolution of a second.
  for (const { skewed, gap, ok, arrival } of [add, remove]) {
    expect([skewed, gap, ok, arrival]).toEqual([0, 0, 0, 0]);
  }
  // One pod reports the address of another, which no condition shows.
  expect(update).toEqual({ ok: 0, coarse: 0, arrival: 1, skewed: 0, gap: 0 });
  expect(journeys).toHaveLength(add.coarse + remove.coarse + 1);
});

// What incidents cost in a fleet of 10,000 Services and 150,000 pods: `npm run -s bench --
// incidents`, with `--quick` a small version. Prints the figures as JSON.
//
// kube-controller-manager stops: one pod of each of 3,000 Services turns not ready, and nothing is
// written. Then a minute passes. All findings open within one call; the program opens at most 256
// differences at once. `share` is the CPU in the functions of `auditor.incidents`, relative to that
// of the whole auditor from the first event on. The first audit is not part of it.
//
// `turn` is the longest turn of the event loop of a live cluster meanwhile. The loop has a clock of
// its own, and its reads get what the cache has. So findings open as they do in the program.

import { createAuditor } from '../../src/auditor/auditor.ts';
import { listIncidents } from '../../src/auditor/incident-queries.ts';
import type { Auditor } from '../../src/auditor/auditor.ts';
import type { Resource } from '../../src/model/objects.ts';
import { createEventLoop } from '../../src/auditor/event-loop.ts';
import { podsOf } from '../../src/audit/service/cache.ts';
import type { FreshRead } from '../../src/audit/pending/confirm.ts';
import { resources } from '../../src/model/objects.ts';
import { auditorDefaults } from '../build.ts';
import { createFleet, eventOf, type Fleet, rawObjects, rawPod } from './generate.ts';
import { askingMicros, cpuMicros, heapBytes, round } from './measure.ts';

const settle = 30;
const changes = ['noteChange', 'noteWrite', 'noteImpact'] as const;
const names = ['add', 'remove', ...changes, 'reviewAt', 'list'] as const;

/** CPU of this thread, milliseconds. */
function threadMillis(): number {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1000;
}

/** Wraps the functions of `incidents`, which the auditor calls by their names. */
function timeIncidents({ incidents }: Auditor) {
  const spent = { all: 0, longest: 0, calls: 0 };
  const functions = incidents as unknown as Record<string, (...given: unknown[]) => unknown>;
  for (const name of names) {
    const original = functions[name];
    if (original === undefined) throw new Error(`The incidents have no ${name}`);
    functions[name] = (...given) => {
      const begun = threadMillis();
      const result = original(...given);
      const took = threadMillis() - begun;
      spent.all += took;
      spent.calls++;
      spent.longest = Math.max(spent.longest, took);
      return result;
    };
  }
  return spent;
}

const eventIn = ({ store }: Auditor, resource: Resource, raw: object, at: number) =>
  eventOf(store, resource, 'modified', raw, JSON.stringify(raw).length, at);

function give(auditor: Auditor, resource: Resource, raw: object, at: number): void {
  auditor.take({ kind: 'event', event: eventIn(auditor, resource, raw, at) });
}

function notReady(fleet: Fleet, plan: Fleet['plans'][number]): object {
  const raw = structuredClone(rawPod(fleet, plan, plan.first)) as {
    metadata: { resourceVersion: string };
    status: { conditions: { type: string; status: string }[] };
  };
  raw.metadata.resourceVersion = String(Number(raw.metadata.resourceVersion) + 1);
  for (const it of raw.status.conditions) if (it.type === 'Ready') it.status = 'False';
  return raw;
}

/** An auditor with all objects of a fleet, before its audit begins. */
function auditorOf(fleet: Fleet, live: boolean): Auditor {
  const auditor = createAuditor({ ...auditorDefaults, settle, live });
  auditor.take({ kind: 'header', at: 0, kubernetes: 'v1.36.3', resources });
  for (const resource of resources) {
    for (const raw of rawObjects(fleet, resource)) give(auditor, resource, raw, 0);
  }
  for (const resource of live ? resources : []) {
    auditor.take({ kind: 'watch', at: 0, resource, state: 'synced' });
  }
  for (const resource of resources) auditor.take({ kind: 'synced', at: 0, resource });
  return auditor;
}

function measureCalls(fleet: Fleet, affected: number) {
  const auditor = auditorOf(fleet, false);
  // The first reviews look at every Service once, which belongs to the first audit.
  for (let at = 60; at <= 100; at++) auditor.advance(at);
  const heap = heapBytes();
  const spent = timeIncidents(auditor);
  const cpu = cpuMicros();
  for (const [index, plan] of fleet.plans.slice(0, affected).entries()) {
    give(auditor, 'pods', notReady(fleet, plan), 100 + index / affected);
  }
  const opening = threadMillis();
  auditor.advance(100 + settle + 2);
  const opened = threadMillis() - opening;
  for (let second = 0; second < 60; second++) auditor.advance(100 + settle + 3 + second);
  const used = (cpuMicros() - cpu) / 1000;
  // Each call asks for the time twice, which costs as much as many of the calls.
  const asking = (2 * spent.calls * askingMicros()) / 1000;
  const [all, whole] = [Math.max(0, spent.all - asking / 2), used - asking];
  const { longest } = spent;
  const incidents = listIncidents(auditor);
  return {
    affected,
    findings: auditor.findings.open().length,
    incidents: incidents.map(({ kind, reach }) => `${kind} of ${String(reach.services)} Services`),
    /** CPU milliseconds: opening all at once, and 256 differences; the longest call; sums. */
    opening: round(opened),
    openingOf256: round((opened * 256) / auditor.findings.open().length),
    longest: round(longest),
    calls: round(all),
    auditor: round(whole),
    share: round(all / whole),
    kilobytes: round((heapBytes() - heap) / 1024),
  };
}

// The event loop, whose tasks run one after the other. Each is measured.

interface Task {
  readonly at: number;
  readonly run: () => void;
}

/** A version that everything is older than. */
const newestVersion = '4000000000';

/** What the cache has of some Services, or of all Nodes, as if it was read. */
function readOf(auditor: Auditor, namespace: string, names: readonly string[]) {
  const listed = <T>(objects: Iterable<T>) => ({ objects: [...objects], version: newestVersion });
  const { listers } = auditor.store;
  const nodes = listed(listers.nodes.values());
  const audited = auditor.serviceAuditor()?.audited;
  const readOne = (name: string): FreshRead => {
    const record = audited?.get(`${namespace}/${name}`)?.record;
    if (record === undefined) return { nodes, version: newestVersion };
    return {
      services: listed(record.service === null ? [] : [record.service]),
      endpoints: listed(record.endpoints === null ? [] : [record.endpoints]),
      endpointslices: listed(record.slices),
      pods: listed(podsOf(listers, record)),
      version: newestVersion,
    };
  };
  return new Map(names.map((name) => [name, readOne(name)]));
}

/** Until as many findings are open as without an event loop. */
async function measureTurns(fleet: Fleet, affected: number, findings: number) {
  const auditor = auditorOf(fleet, true);
  const [tasks, begun] = [new Set<Task>(), 100];
  let now = begun;
  const after = (seconds: number, run: () => void) => {
    const task = { at: now + Math.max(0, seconds), run };
    tasks.add(task);
    return () => void tasks.delete(task);
  };
  const loop = createEventLoop({
    auditor,
    clock: { now: () => now, monotonic: () => now, after, soon: (run) => void after(0, run) },
    reread: (namespace, names) =>
      new Promise((resolve) => {
        const read = readOf(auditor, namespace, names);
        after(0.01, () => resolve(read));
      }),
    hang: () => null,
    onHang: () => undefined,
    skew: () => null,
    onClock: () => undefined,
    onGap: (resource, key) => {
      throw new Error(`${resource} ${key} is not as it was read`);
    },
    onError: (error) => {
      throw error;
    },
    onQuiet: () => undefined,
  });
  const flips = fleet.plans.slice(0, affected).map((plan) => ({
    kind: 'event' as const,
    event: eventIn(auditor, 'pods', notReady(fleet, plan), begun),
  }));
  void loop.deliver(flips);
  void loop.deliver(
    resources.map((resource) => ({
      kind: 'progress',
      at: begun,
      resource,
      resourceVersion: newestVersion,
    })),
  );
  let longest = 0;
  while (now < begun + settle + 300 && auditor.findings.open().length < findings) {
    const [next] = [...tasks].sort((a, b) => a.at - b.at);
    if (next === undefined) break;
    tasks.delete(next);
    now = Math.max(now, next.at);
    const before = threadMillis();
    next.run();
    // What promises go on with belongs to the turn.
    await new Promise((resolve) => setImmediate(resolve));
    longest = Math.max(longest, threadMillis() - before);
  }
  loop.stop();
  const incidents = listIncidents(auditor);
  return {
    findings: auditor.findings.open().length,
    incidents: incidents.map(({ kind, reach }) => `${kind} of ${String(reach.services)} Services`),
    seconds: round(now - begun),
    turn: round(longest),
  };
}

async function measureIncidents(quick: boolean) {
  const fleet = createFleet({
    nodes: quick ? 50 : 5000,
    namespaces: quick ? 20 : 500,
    sizes: [{ pods: 15, services: quick ? 200 : 10_000 }],
  });
  const affected = quick ? 60 : 3000;
  const figures = measureCalls(fleet, affected);
  return { ...figures, live: await measureTurns(fleet, affected, figures.findings) };
}

if (import.meta.main) {
  const figures = await measureIncidents(process.argv.includes('--quick'));
  process.stdout.write(`${JSON.stringify(figures)}\n`);
}

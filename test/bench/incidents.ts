// What incidents cost in a fleet of 10,000 Services and 150,000 pods: `npm run -s bench --
// incidents`, with `--quick` a small version. Prints the figures as JSON.
//
// kube-controller-manager stops: one pod of each of 3,000 Services turns not ready, and nothing is
// written. Then a minute passes. All findings open within one call; the program opens at most 256
// differences at once. `share` is the CPU in the functions of the incident ledger, relative to that
// of the whole auditor from the first event on. The first audit is not part of it.

import { createAuditor } from '../../src/auditor/auditor.ts';
import { listIncidents } from '../../src/auditor/incident-queries.ts';
import type { Auditor } from '../../src/auditor/auditor.ts';
import type { Resource } from '../../src/model/objects.ts';
import { resources } from '../../src/model/objects.ts';
import { auditorDefaults } from '../build.ts';
import { createFleet, eventOf, type Fleet, rawObjects, rawPod } from './generate.ts';
import { askingMicros, cpuMicros, heapBytes, round } from './measure.ts';

const settle = 30;
const names = ['add', 'remove', 'noteChange', 'noteWrite', 'reviewAt', 'list'] as const;

/** CPU of this thread, milliseconds. */
function threadMillis(): number {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1000;
}

/** Wraps the functions of the ledger, which the auditor calls by their names. */
function timeLedger({ incidents }: Auditor) {
  const spent = { all: 0, longest: 0, calls: 0 };
  const ledger = incidents as unknown as Record<string, (...given: unknown[]) => unknown>;
  for (const name of names) {
    const original = ledger[name];
    if (original === undefined) throw new Error(`The ledger has no ${name}`);
    ledger[name] = (...given) => {
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

function give(auditor: Auditor, resource: Resource, raw: object, at: number): void {
  const event = eventOf(auditor.store, resource, 'modified', raw, JSON.stringify(raw).length, at);
  auditor.take({ kind: 'event', event });
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

function measureIncidents(quick: boolean) {
  const fleet = createFleet({
    nodes: quick ? 50 : 5000,
    namespaces: quick ? 20 : 500,
    sizes: [{ pods: 15, services: quick ? 200 : 10_000 }],
  });
  const affected = quick ? 60 : 3000;
  const auditor = createAuditor({ ...auditorDefaults, settle });
  auditor.take({ kind: 'header', at: 0, kubernetes: 'v1.36.3', resources });
  for (const resource of resources) {
    for (const raw of rawObjects(fleet, resource)) give(auditor, resource, raw, 0);
  }
  for (const resource of resources) auditor.take({ kind: 'synced', at: 0, resource });
  // The first reviews look at every Service once, which belongs to the first audit.
  for (let at = 60; at <= 100; at++) auditor.advance(at);
  const heap = heapBytes();
  const spent = timeLedger(auditor);
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
    ledger: round(all),
    auditor: round(whole),
    share: round(all / whole),
    kilobytes: round((heapBytes() - heap) / 1024),
  };
}

if (import.meta.main) {
  const figures = measureIncidents(process.argv.includes('--quick'));
  process.stdout.write(`${JSON.stringify(figures)}\n`);
}

// The end-to-end test of dumps: starts a real control plane, creates a small cluster in it, takes
// dumps as kubectl writes them and runs the real command line on them:
//
//   settled   what the real controllers left behind has no finding above information
//   faults    with the controllers asleep, one object is spoilt: exactly the findings that it must
//             make, and none once it is undone
//   awake     a pod goes while they sleep; once they are awake again, they put it right

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';

import { program } from './auditor.ts';
import type { Tally } from './checks.ts';
import { report, say, secondsSince } from './checks.ts';
import type { Client } from './client.ts';
import { awaitSettled, clientOf, takeDump } from './client.ts';
import { createCluster } from './cluster.ts';
import type { ControlPlane, Version } from './controlplane.ts';
import { faults, inject } from './faults.ts';

/** What is read of a report. */
interface Report {
  readonly findings: readonly {
    readonly code: string;
    readonly severity: string;
    readonly output: string;
    readonly namespace: string;
    readonly service: string;
    readonly object: string;
    readonly expected: string | null;
    readonly actual: string | null;
  }[];
  readonly services: number;
}

interface Expected {
  readonly exit: number;
  /** `namespace/service output code` of every finding above information, in order. */
  readonly finds: readonly string[];
}

const conform: Expected = { exit: 0, finds: [] };

interface Session {
  readonly plane: ControlPlane;
  readonly client: Client;
  /** Where dumps go. */
  readonly folder: string;
  readonly keep: boolean;
  readonly tally: Tally;
}

/** Runs the command line on a dump; the exit code null says that it was killed. */
async function audit(file: string, version: Version) {
  const args = [program, 'audit', file, '-o', 'json', '--kubernetes-version', version];
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'pipe'] });
  const [out, err] = await Promise.all([
    text(child.stdout),
    text(child.stderr),
    once(child, 'exit'),
  ]);
  return { exit: child.exitCode, out, err };
}

/** What is wrong with an audit of the cluster as it is now; empty when nothing is. */
async function judge(session: Session, file: string, want: Expected): Promise<string[]> {
  const dump = await takeDump(session.client);
  writeFileSync(file, dump.text);
  const { exit, out, err } = await audit(file, session.plane.version);
  // A program that does not even start ends with 1 as well, but without a report.
  if ((exit !== 0 && exit !== 1) || out === '') return [`exit ${String(exit)}`, err];
  const report = JSON.parse(out) as Report;
  const loud = report.findings.filter(({ severity }) => severity !== 'info');
  const found = loud
    .map(({ namespace, service, output, code }) => `${namespace}/${service} ${output} ${code}`)
    .sort();
  const services = dump.counts.get('Service') ?? 0;
  const wrong: string[] = [];
  if (exit !== want.exit) wrong.push(`exit ${exit}, not ${want.exit}`);
  if (report.services !== services) wrong.push(`${report.services} of ${services} Services judged`);
  if (found.join('\n') !== want.finds.join('\n')) {
    wrong.push(`expected ${want.finds.join(', ') || 'no finding'}; found:`);
    for (const one of loud) wrong.push(JSON.stringify(one));
  }
  return wrong;
}

/** One check: a dump, an audit, a line. */
async function check(session: Session, title: string, want: Expected): Promise<void> {
  const { tally } = session;
  const number = tally.passed + tally.failed + 1;
  const file = join(session.folder, `dump-${String(number).padStart(2, '0')}.json`);
  const wrong = await judge(session, file, want);
  const where = session.keep ? ` (${file})` : '';
  const found = want.finds.length === 0 ? '' : `: ${want.finds.join(', ')}`;
  report(tally, `${title}${found}${where}`, wrong);
}

async function checkFaults(session: Session): Promise<void> {
  for (const fault of faults) {
    const undo = await inject(session.client, fault);
    await check(session, fault.title, { exit: 1, finds: fault.finds });
    await undo();
    await check(session, `${fault.title}, undone`, conform);
  }
}

/** A pod that is gone for good: only the controllers can put that right. */
async function checkAwake(session: Session): Promise<void> {
  const { plane, client } = session;
  const title = 'pod of shop/search: gone, and nobody wrote it';
  const now = { kind: 'DeleteOptions', apiVersion: 'v1', gracePeriodSeconds: 0 };
  await client.call('DELETE', '/api/v1/namespaces/shop/pods/search-7', now);
  await check(session, title, {
    exit: 1,
    finds: [
      'shop/search endpoints endpoints-address-unexpected',
      'shop/search endpointslices slice-endpoint-unexpected',
    ],
  });
  plane.resumeControllerManager();
  await awaitSettled(client);
  await check(session, `${title}, put right by the controllers`, conform);
}

async function checkAll(session: Session): Promise<void> {
  const { plane, client } = session;
  const begun = performance.now();
  await createCluster(client, plane.version);
  await awaitSettled(client);
  const { counts } = await takeDump(client);
  const kinds = [...counts]
    .map(([kind, count]) => `${kind} ${count}`)
    .sort()
    .join(', ');
  say(`     ${kinds}; settled after ${secondsSince(begun).toFixed(1)} s`);
  await check(session, 'settled', conform);
  plane.pauseControllerManager();
  await checkFaults(session);
  await checkAwake(session);
}

/** `keep`: the folder where the dumps stay; null: they are deleted. */
export async function testDumps(
  plane: ControlPlane,
  keep: string | null,
  tally: Tally,
): Promise<void> {
  const folder = keep === null ? plane.directory : join(keep, plane.version);
  mkdirSync(folder, { recursive: true });
  const client = clientOf(plane);
  try {
    await checkAll({ plane, client, folder, keep: keep !== null, tally });
  } finally {
    client.close();
  }
}

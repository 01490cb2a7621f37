// The end-to-end test: `npm run e2e`, with `-- --version v1.33.13` (which may be given several
// times) for another control plane than the newest. Starts a real control plane, creates a small
// cluster in it, takes dumps as kubectl writes them and runs the real command line on them:
//
//   settled   what the real controllers left behind has no finding above information
//   faults    with the controllers asleep, one object is spoilt: exactly the findings that it must
//             make, and none once it is undone
//   awake     a pod goes while they sleep; once they are awake again, they put it right
//
// Prints a line for every check. `--keep FOLDER` keeps the dumps, whose names the lines then tell.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { parseArgs } from 'node:util';

import type { Client } from './client.ts';
import { awaitSettled, clientOf, takeDump } from './client.ts';
import { createCluster } from './cluster.ts';
import type { ControlPlane, Version } from './controlplane.ts';
import { newestVersion, startControlPlane, versions } from './controlplane.ts';
import { faults, inject } from './faults.ts';

const program = join(import.meta.dirname, '..', '..', 'src', 'main.ts');

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

interface Tally {
  passed: number;
  failed: number;
}

interface Session {
  readonly plane: ControlPlane;
  readonly client: Client;
  /** Where dumps go. */
  readonly folder: string;
  readonly keep: boolean;
  readonly tally: Tally;
}

function say(line: string): void {
  process.stdout.write(`${line}\n`);
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
  if (wrong.length === 0) tally.passed++;
  else tally.failed++;
  const found = want.finds.length === 0 ? '' : `: ${want.finds.join(', ')}`;
  say(`${wrong.length === 0 ? 'ok  ' : 'FAIL'} ${title}${found}${where}`);
  for (const line of wrong) say(`     ${line}`);
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
  say(`     ${kinds}; settled after ${secondsSince(begun)} s`);
  await check(session, 'settled', conform);
  plane.pauseControllerManager();
  await checkFaults(session);
  await checkAwake(session);
}

const secondsSince = (begun: number): string => ((performance.now() - begun) / 1000).toFixed(1);

async function runIn(plane: ControlPlane, keep: string | null, tally: Tally): Promise<void> {
  const folder = keep === null ? plane.directory : join(keep, plane.version);
  mkdirSync(folder, { recursive: true });
  const client = clientOf(plane);
  try {
    await checkAll({ plane, client, folder, keep: keep !== null, tally });
  } finally {
    client.close();
  }
}

async function runVersion(version: Version, keep: string | null, tally: Tally): Promise<void> {
  const begun = performance.now();
  say(`     ${version}: starting; what is not built yet is built first, which takes minutes`);
  let plane: ControlPlane | null = null;
  try {
    plane = await startControlPlane({ version });
    say(`     ${version}: up after ${secondsSince(begun)} s`);
    await runIn(plane, keep, tally);
  } catch (error) {
    tally.failed++;
    say(`FAIL ${error instanceof Error ? (error.stack ?? error.message) : String(error)}`);
  } finally {
    await plane?.stop();
  }
  say(`     ${version}: done after ${secondsSince(begun)} s`);
}

function optionsOf(): { wanted: readonly Version[]; keep: string | null } {
  const { values } = parseArgs({
    options: { version: { type: 'string', multiple: true }, keep: { type: 'string' } },
  });
  const wanted = (values.version ?? [newestVersion]).map((name) => {
    const version = versions.find((one) => one === name);
    if (version !== undefined) return version;
    process.stderr.write(`--version ${name}: expected ${versions.join(' or ')}\n`);
    process.exit(2);
  });
  return { wanted, keep: values.keep ?? null };
}

const { wanted, keep } = optionsOf();
const total: Tally = { passed: 0, failed: 0 };
for (const version of wanted) await runVersion(version, keep, total);
say(`${total.passed} passed, ${total.failed} failed`);
process.exitCode = total.failed === 0 ? 0 : 1;

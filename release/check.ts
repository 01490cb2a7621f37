// Checks what a release publishes: `npm run -s release:check`, after `npm run -s release`. It builds
// everything again and compares the bytes. Then it runs the commands of the executable and of the
// package of npm where no Node, or only that one, is on the PATH. --no-rebuild leaves out the second
// build. Traffic is on the loopback only.

import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync } from 'node:fs';
import { writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

import {
  createServer as createApiServer,
  listen,
  type Raw,
  realClock,
} from '../test/apiserver/server.ts';
import { freePort } from '../test/processes.ts';
import { recording, root } from './bundles.ts';

const artifacts = join(root, 'artifacts');
const problems: string[] = [];

function check(what: string, isRight: boolean, detail = ''): void {
  process.stdout.write(
    `${isRight ? 'ok     ' : 'NOT OK '} ${what}${isRight ? '' : `: ${detail}`}\n`,
  );
  if (!isRight) problems.push(what);
}

const sums = (): string => readFileSync(join(artifacts, 'SHA256SUMS'), 'utf8');

function checkSums(): string[] {
  const names: string[] = [];
  for (const line of sums().trim().split('\n')) {
    const [sum, name = ''] = line.split('  ');
    const found = createHash('sha256')
      .update(readFileSync(join(artifacts, name)))
      .digest('hex');
    check(`the checksum of ${name}`, found === sum, found);
    names.push(name);
  }
  return names;
}

function checkRebuild(before: string): void {
  const earlier = sums();
  cpSync(artifacts, before, { recursive: true });
  execFileSync(process.execPath, [join(root, 'release/release.ts')], { stdio: 'pipe' });
  for (const line of earlier.trim().split('\n')) {
    const [, name = ''] = line.split('  ');
    const { status, stdout } = spawnSync('cmp', [join(before, name), join(artifacts, name)]);
    check(`a second build of ${name} has the same bytes`, status === 0, String(stdout));
  }
}

/** A program, with the arguments before those of a command, and its PATH. */
interface Installed {
  readonly name: string;
  readonly command: readonly string[];
  readonly path: string;
}

/** Only ends a check that hangs: a loaded machine may be many times slower. */
const patience = 30 * 60_000;

interface Ran {
  readonly code: number | null;
  readonly out: string;
  /** How the command ended, and the end of what it printed, for people. */
  readonly detail: string;
}

const endOf = (text: string): string => text.slice(-2000);

function run({ command, path }: Installed, args: readonly string[], env = {}): Ran {
  const [program = '', ...first] = command;
  const { status, signal, error, stdout, stderr } = spawnSync(program, [...first, ...args], {
    encoding: 'utf8',
    env: { PATH: path, ...env },
    timeout: patience,
    maxBuffer: 2 ** 28,
  });
  const ending = `code ${String(status)}, signal ${String(signal)}, ${error?.message ?? 'no error'}`;
  return { code: status, out: stdout, detail: `${ending}\n${endOf(stdout)}\n${endOf(stderr)}` };
}

const service = (port: number): string =>
  JSON.stringify({
    apiVersion: 'v1',
    kind: 'Service',
    metadata: { name: 'web', namespace: 'shop', uid: 'a' },
    spec: { clusterIP: '10.0.0.1', ports: [{ port }], selector: { app: 'web' } },
  });

const kubeconfigOf = (server: string): string =>
  JSON.stringify({
    apiVersion: 'v1',
    kind: 'Config',
    'current-context': 'it',
    contexts: [{ name: 'it', context: { cluster: 'it', user: 'it' } }],
    clusters: [{ name: 'it', cluster: { server, 'insecure-skip-tls-verify': true } }],
    users: [{ name: 'it', user: {} }],
  });

/** The commands that the README names, as far as they need no cluster. */
function checkCommands(installed: Installed, folder: string): void {
  const { name } = installed;
  const expect = (what: string, args: readonly string[], isRight: (ran: Ran) => boolean): void => {
    const ran = run(installed, args);
    check(`${name}: ${what}`, isRight(ran), ran.detail);
  };
  const about = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as { version: string };
  expect('--version', ['--version'], ({ out }) => out === `${about.version}\n`);
  const dump = join(folder, 'dump.json');
  writeFileSync(dump, service(80));
  const config = join(folder, 'config.yaml');
  writeFileSync(config, 'audit:\n  output: json\n');
  const kindOf = (text: string): unknown => (JSON.parse(text || '{}') as { kind?: string }).kind;
  const audit = ['audit', dump, '--config', config];
  expect('audit of a dump with --config', audit, ({ out }) => kindOf(out) === 'audit');
  const away = join(folder, 'kubeconfig');
  // It refuses connections.
  writeFileSync(away, kubeconfigOf('http://127.0.0.1:1'));
  const live = ['audit', '--kubeconfig', away, '--request-timeout', '1s'];
  const isRefused = ({ code, detail }: Ran) => code === 2 && detail.includes('connection refused');
  expect('audit of a cluster that does not answer', live, isRefused);
  const isReplayed = ({ code, out }: Ran) => code === 1 && out.includes('Verdicts');
  expect('replay', ['replay', recording], isReplayed);
  const subject = ['explain', 'service/web', '-n', 'shop', '--input', dump];
  expect('explain', subject, ({ out }) => out.includes('shop/web'));
  expect('lag', ['lag', recording], ({ out }) => out.includes('Journeys: '));
  const demo = ['serve', '--demo', '--once', '--speed', 'max', '--listen', '127.0.0.1:0'];
  expect('the demo', demo, ({ code, out }) => code === 0 && out.includes('findings'));
  expect('agent --help', ['agent', '--help'], ({ out }) => out.includes('--interval'));
}

/** A program that runs until a check of it has ended. */
async function during(
  { name, command, path }: Installed,
  args: readonly string[],
  env: Readonly<Record<string, string>>,
  use: (expect: (what: string, isTrue: () => Promise<boolean>) => Promise<void>) => Promise<void>,
): Promise<void> {
  const [program = '', ...first] = command;
  const child = spawn(program, [...first, ...args], { env: { PATH: path, ...env } });
  const exited = once(child, 'exit');
  let printed = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream.on('data', (part: Buffer) => (printed = endOf(printed + part.toString())));
  }
  const until = performance.now() + patience;
  const isRunning = (): boolean => child.exitCode === null && child.signalCode === null;
  try {
    await use(async (what, isTrue) => {
      let holds = await isTrue();
      while (!holds && isRunning() && performance.now() < until) {
        await sleep(200);
        holds = await isTrue();
      }
      const ending = isRunning() ? 'it runs' : `it ended with code ${String(child.exitCode)}`;
      check(`${name}: ${what}`, holds, `${ending}\n${printed}`);
    });
  } finally {
    child.kill();
    await exited;
  }
}

/** Whether a GET is answered with 200 and a body that has the pattern. */
const answers = (url: string, pattern: RegExp) => (): Promise<boolean> =>
  fetch(url)
    .then(async (response) => response.ok && pattern.test(await response.text()))
    .catch(() => false);

/** The server has a page, documents and metrics, and sends traces. */
async function checkServe(installed: Installed): Promise<void> {
  let received = 0;
  const backend = createServer((request, response) => {
    request.on('data', (part: Buffer) => (received += part.length));
    request.on('end', () => response.end());
  });
  backend.listen(0, '127.0.0.1');
  await once(backend, 'listening');
  const { port: backendPort } = backend.address() as AddressInfo;
  const port = await freePort();
  const address = `http://127.0.0.1:${port}`;
  const args = ['serve', '--demo', '--speed', 'max', '--listen', `127.0.0.1:${port}`];
  const env = {
    OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${backendPort}`,
    // On a loaded machine, a batch would be dropped before it is sent.
    OTEL_BSP_EXPORT_TIMEOUT: String(patience),
  };
  await during(installed, args, env, async (expect) => {
    await expect('serve has a page', answers(`${address}/`, /<\/html>/));
    await expect('serve has metrics', answers(`${address}/metrics`, /^endpoint_auditor_/m));
    const runbook = answers(`${address}/docs/runbook.md`, /id="endpointsmissing"/);
    await expect('serve has documents', runbook);
    await expect('serve has their images', answers(`${address}/docs/images/journey.png`, /^.PNG/));
    await expect('traces arrive at a backend', () => Promise.resolve(received > 0));
  });
  backend.close();
}

/** The server records a history, and opens a moment of it in a process that is itself. */
async function checkHistory(installed: Installed, folder: string): Promise<void> {
  const cluster = createApiServer(realClock);
  cluster.objects.put('services', JSON.parse(service(80)) as Raw);
  const listener = await listen(cluster.ask);
  const [config, history] = [join(folder, 'served'), join(folder, `${installed.name} history`)];
  writeFileSync(config, kubeconfigOf(`https://127.0.0.1:${listener.port}`));
  const port = await freePort();
  const address = `http://127.0.0.1:${port}`;
  const more = ['--history', history, '--listen', `127.0.0.1:${port}`];
  await during(installed, ['serve', '--kubeconfig', config, ...more], {}, async (expect) => {
    const written = /^endpoint_auditor_history_written_timestamp_seconds [1-9]/m;
    await expect('serve records a history', answers(`${address}/metrics`, written));
    // The record may have begun within this second: only the next one is surely in it.
    const at = Math.ceil(Date.now() / 1000);
    const moment = answers(`${address}/services?at=${at}`, /History: .*shop\/web/s);
    await expect('serve opens a moment of it', moment);
  });
  await listener.close();
  const { out, detail } = run(installed, ['incidents', '--history', history]);
  check(`${installed.name}: incidents of the history`, out.includes(' incident'), detail);
}

/** The agent reads the rules in a process of its own, and serves a report. */
async function checkAgent(installed: Installed): Promise<void> {
  const port = await freePort();
  // iptables-save and nft are in these folders, Node is not.
  const env = { PATH: '/usr/sbin:/sbin' };
  await during(installed, ['agent', '--listen', `127.0.0.1:${port}`], env, async (expect) => {
    const rounds = /^endpoint_auditor_agent_rounds_total [1-9]/m;
    await expect('agent makes a round', answers(`http://127.0.0.1:${port}/metrics`, rounds));
  });
}

const folder = mkdtempSync(join(tmpdir(), 'release-'));
try {
  const names = checkSums();
  if (!process.argv.includes('--no-rebuild')) checkRebuild(join(folder, 'before'));
  const nameOf = (part: string): string =>
    join(artifacts, names.find((name) => name.includes(part)) ?? part);
  execFileSync('tar', ['-xzf', nameOf('linux-x64'), '-C', folder]);
  const program = join(folder, 'endpoint-auditor');
  const executable = { name: 'executable', command: [program], path: '/nonexistent' };
  checkCommands(executable, folder);
  await checkServe(executable);
  await checkHistory(executable, folder);
  await checkAgent(executable);
  const plugin = join(folder, 'kubectl-audit_endpoints');
  symlinkSync(program, plugin);
  const help = run({ ...executable, command: [plugin] }, ['--help']);
  check('executable: kubectl plugin', help.out.includes('kubectl audit-endpoints'), help.detail);
  mkdirSync(join(folder, 'installed'));
  const options = ['--silent', '--offline', '--no-save', '--prefix', join(folder, 'installed')];
  execFileSync('npm', ['install', ...options, nameOf('-npm-')], { stdio: 'pipe' });
  const bin = join(folder, 'installed/node_modules/.bin/endpoint-auditor');
  const npm = {
    name: 'npm package',
    command: [bin],
    path: `${join(process.execPath, '..')}:/usr/bin`,
  };
  checkCommands(npm, folder);
  await checkServe(npm);
  await checkHistory(npm, folder);
} finally {
  rmSync(folder, { recursive: true });
}
process.stdout.write(
  `${problems.length === 0 ? 'Nothing is wrong' : `${problems.length} wrong`}\n`,
);
process.exitCode = problems.length === 0 ? 0 : 1;

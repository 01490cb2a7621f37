// Checks what a release publishes: `npm run -s release:check`, after `npm run -s release`. It builds
// everything again and compares the bytes. Then it runs the commands of the executable and of the
// package of npm where no Node, or only that one, is on the PATH. --no-rebuild leaves out the second
// build. Traffic is on the loopback only.

import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

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

function run({ command, path }: Installed, args: readonly string[], env = {}) {
  const [program = '', ...first] = command;
  return spawnSync(program, [...first, ...args], {
    encoding: 'utf8',
    env: { PATH: path, ...env },
    timeout: 300_000,
    maxBuffer: 2 ** 28,
  });
}

const service = (port: number): string =>
  JSON.stringify({
    apiVersion: 'v1',
    kind: 'Service',
    metadata: { name: 'web', namespace: 'shop', uid: 'a' },
    spec: { clusterIP: '10.0.0.1', ports: [{ port }], selector: { app: 'web' } },
  });

function checkCommands(installed: Installed, folder: string): void {
  const { name } = installed;
  const version = run(installed, ['--version']);
  const about = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as { version: string };
  check(`${name}: --version`, version.stdout === `${about.version}\n`, version.stderr);
  const dump = join(folder, 'dump.json');
  execFileSync('sh', ['-c', 'printf %s "$1" > "$2"', 'sh', service(80), dump]);
  const audit = run(installed, ['audit', dump, '-o', 'json']);
  const { kind = '' } = (audit.stdout === '' ? {} : JSON.parse(audit.stdout)) as { kind?: string };
  check(`${name}: audit of a dump`, kind === 'audit', `${audit.stdout}${audit.stderr}`);
  const replayed = run(installed, ['replay', recording]);
  check(
    `${name}: replay`,
    replayed.status === 1 && replayed.stdout.includes('Verdicts'),
    replayed.stderr,
  );
  const subject = ['explain', 'service/web', '-n', 'shop', '--recording', recording];
  const explained = run(installed, subject);
  check(`${name}: explain`, explained.stdout.includes('shop/web'), explained.stderr);
  const demo = run(installed, [
    'serve',
    '--recording',
    '--once',
    '--speed',
    'max',
    '--listen',
    '127.0.0.1:0',
  ]);
  check(`${name}: the demo recording`, demo.stdout.includes('findings'), demo.stderr);
  const missing = run(installed, ['agent', '--help']);
  check(`${name}: agent --help`, missing.stdout.includes('--interval'), missing.stderr);
}

/** The server has a page and metrics, and sends traces. */
async function checkServe({ name, command, path }: Installed): Promise<void> {
  let received = 0;
  const backend = createServer((request, response) => {
    request.on('data', (part: Buffer) => (received += part.length));
    request.on('end', () => response.end());
  });
  backend.listen(0, '127.0.0.1');
  await once(backend, 'listening');
  const endpoint = `http://127.0.0.1:${(backend.address() as AddressInfo).port}`;
  const port = await freePort();
  const [program = '', ...first] = command;
  const args = ['serve', '--recording', '--speed', 'max', '--listen', `127.0.0.1:${port}`];
  const env = { PATH: path, OTEL_EXPORTER_OTLP_ENDPOINT: endpoint };
  const child = spawn(program, [...first, ...args], { env, stdio: 'ignore' });
  try {
    const page = await answerOf(`http://127.0.0.1:${port}/`, '</html>');
    check(`${name}: serve has a page`, page !== '', 'no page');
    const metrics = await answerOf(`http://127.0.0.1:${port}/metrics`, 'endpoint_auditor_');
    check(`${name}: serve has metrics`, metrics !== '', 'none');
    for (let turn = 0; turn < 1500 && received === 0; turn++) await sleep(200);
    check(`${name}: traces arrive at a backend`, received > 0, 'none');
  } finally {
    child.kill();
    await once(child, 'exit');
    backend.close();
  }
}

/** The agent reads the rules in a process of its own, and serves a report. */
async function checkAgent({ name, command }: Installed): Promise<void> {
  const port = await freePort();
  const [program = '', ...first] = command;
  const args = ['agent', '--listen', `127.0.0.1:${port}`];
  // iptables-save and nft are in these folders, Node is not.
  const env = { PATH: '/usr/sbin:/sbin' };
  const child = spawn(program, [...first, ...args], { env, stdio: 'ignore' });
  try {
    const rounds = 'endpoint_auditor_agent_rounds_total 1';
    const metrics = await answerOf(`http://127.0.0.1:${port}/metrics`, rounds);
    check(`${name}: agent makes a round`, metrics !== '', 'none');
  } finally {
    child.kill();
    await once(child, 'exit');
  }
}

/** The answer once it contains `text`; '' if it does not within five minutes. */
async function answerOf(url: string, text: string): Promise<string> {
  for (let turn = 0; turn < 1500; turn++) {
    const answer = await fetch(url)
      .then((response) => response.text())
      .catch(() => '');
    if (answer.includes(text)) return answer;
    await sleep(200);
  }
  return '';
}

const folder = mkdtempSync(join(tmpdir(), 'release-'));
try {
  const names = checkSums();
  if (!process.argv.includes('--no-rebuild')) checkRebuild(join(folder, 'before'));
  const nameOf = (part: string): string =>
    join(artifacts, names.find((name) => name.includes(part)) ?? part);
  execFileSync('tar', ['-xzf', nameOf('linux-x64'), '-C', folder]);
  const program = join(folder, 'endpoint-auditor');
  const executable = { name: 'executable', command: [program], path: '' };
  checkCommands(executable, folder);
  await checkServe(executable);
  await checkAgent(executable);
  const plugin = join(folder, 'kubectl-audit_endpoints');
  symlinkSync(program, plugin);
  const help = run({ ...executable, command: [plugin] }, ['--help']);
  check('executable: kubectl plugin', help.stdout.includes('kubectl audit-endpoints'), help.stderr);
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
} finally {
  rmSync(folder, { recursive: true });
}
process.stdout.write(
  `${problems.length === 0 ? 'Nothing is wrong' : `${problems.length} wrong`}\n`,
);
process.exitCode = problems.length === 0 ? 0 : 1;

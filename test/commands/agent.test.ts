// The agent as it runs on a node: a process in a network namespace with real rules, asked from
// inside. And what it refuses.

import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, writeFileSync } from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { describe, expect, test, vi } from 'vitest';

import type { CollectedDump } from '../../src/agent/collect.ts';
import { programs } from '../../src/agent/collect.ts';
import type { createReport } from '../../src/agent/report.ts';
import { digestsOf, readDumps } from '../../src/agent/report.ts';
import type { AgentOptions } from '../../src/commands/agent.ts';
import { agent } from '../../src/commands/agent.ts';
import { readBytes } from '../nodes/folder.ts';
import { createNamespace, whyNot } from '../processes.ts';

const folder = mkdtempSync(join(tmpdir(), 'endpoint-auditor-agent-'));
const empty = join(folder, 'empty');
writeFileSync(empty, '\n');

const certificates = join(import.meta.dirname, '../apiserver');
const [tlsCert, tlsKey] = [join(certificates, 'server.crt'), join(certificates, 'server.key')];
const defaults = {
  listen: { host: '127.0.0.1', port: 0 },
  nodeIps: [],
  podCidrs: [],
  interval: 60,
  deadline: 60,
  maxSize: 1000,
};

describe('refuses', () => {
  test.each<[Partial<AgentOptions>, RegExp]>([
    [{ listen: { host: null, port: 1 } }, /needs --token-file or --client-ca/],
    [
      { listen: { host: '10.0.0.1', port: 1 }, tokenFile: import.meta.filename },
      /needs --tls-cert/,
    ],
    [{ tlsCert: 'a' }, /--tls-cert and --tls-key belong together/],
    [{ clientCa: 'a' }, /--client-ca needs/],
    [{ identityTokenFile: empty }, /--identity-token-file needs --client-ca/],
    [{ collector: 'a', collectAt: 'b' }, /--collector excludes --collect-at/],
    [{ tokenFile: empty }, /empty: The token is empty/],
    [{ tokenFile: join(folder, 'absent') }, /ENOENT.*absent/],
    [{ tlsCert: empty, tlsKey }, /--tls-cert .*empty has no valid certificate in PEM/],
    [{ tlsCert, tlsKey: empty }, /--tls-key .*empty has no valid private key in PEM/],
    [{ tlsCert, tlsKey, clientCa: empty }, /--client-ca .*empty has no valid certificate in PEM/],
    [{ tlsCert, tlsKey, clientCa: tlsCert, identityTokenFile: empty }, /empty: The token is empty/],
    [
      { tlsCert, tlsKey, clientCa: tlsCert, identityTokenFile: tlsCert },
      /crt: The token is empty or has other/,
    ],
  ])('%j', async (more, message) => {
    const options = { ...defaults, ...more };
    await expect(agent(options, new AbortController())).rejects.toThrow(message);
  });
});

test('a port that is in use ends the process', async () => {
  const other = createServer().listen(0, '127.0.0.1');
  await once(other, 'listening');
  const { port } = other.address() as AddressInfo;
  vi.useFakeTimers({ toFake: ['setInterval'] });
  try {
    const listen = { host: '127.0.0.1', port };
    const running = agent({ ...defaults, listen }, new AbortController());
    await expect(running).rejects.toThrow('EADDRINUSE');
    expect(vi.getTimerCount()).toBe(0);
  } finally {
    vi.useRealTimers();
    other.close();
  }
});

const reason = whyNot();
if (reason !== null) console.warn(`Left out: the agent in a network namespace (${reason})`);
const isRequired = process.env.NETNS_TESTS === 'required';

const main = join(import.meta.dirname, '../../src/main.ts');
const recordings = join(import.meta.dirname, '../nodes/recordings/main');

type Report = ReturnType<typeof createReport>;

interface Loaded {
  readonly file: string;
  /** What loads it, and what shows it. */
  readonly load: readonly string[];
  readonly shows: string;
}

const save = (name: string, file: string): Loaded => ({
  file: `${file}.txt.gz`,
  load: [`${name}-restore`],
  shows: `${name}-save`,
});

/** A process that has no capability, though its user is root. */
const bare = ['setpriv', '--no-new-privs', '--inh-caps=-all', '--bounding-set=-all'] as const;

/**
 * Runs an agent in a namespace with these rules until it has reported. With a collector, another
 * process runs the programs, and the agent has no capability.
 */
async function reportOf(
  path: string,
  loaded: readonly Loaded[],
  collector: string | null = null,
): Promise<Report> {
  const namespace = createNamespace(`ea-agent-${process.pid}`);
  try {
    for (const { file, load } of loaded) namespace.load(join(path, file), ...load);
    const args = ['agent', '--pod-cidrs', '10.244.1.0/24', '--listen', '127.0.0.1:9466'];
    const start = (...line: [string, ...string[]]) => {
      const [command, all] = namespace.inside(...line);
      const child = spawn(command, all, { stdio: 'ignore' });
      return { child, ended: new Promise((resolve) => child.once('exit', resolve)) };
    };
    const node = [process.execPath, main] as const;
    const { child: running, ended } =
      collector === null
        ? start(...node, ...args)
        : start(...bare, ...node, ...args, '--collector', collector);
    const collecting =
      collector === null ? null : start(...node, 'agent', '--collect-at', collector);
    try {
      const url = 'http://127.0.0.1:9466/v1/report';
      const script = `process.stdout.write(await (await fetch('${url}')).text())`;
      for (;;) {
        const [program, more] = namespace.inside(process.execPath, '--input-type=module');
        const asked = spawnSync(program, [...more, '-e', script]);
        const report = asked.status === 0 ? (JSON.parse(asked.stdout.toString()) as object) : {};
        if ('frontends' in report) return report as Report;
        expect(running.exitCode).toBeNull();
        await new Promise((resolve) => setTimeout(resolve, 200));
      }
    } finally {
      running.kill('SIGTERM');
      expect(await ended).toBe(0);
      collecting?.child.kill('SIGTERM');
      expect(await collecting?.ended).toBe(collecting === null ? undefined : 0);
    }
  } finally {
    namespace.remove();
  }
}

/** What an agent must say of recorded dumps. */
function digestsOfFiles(path: string, loaded: readonly Loaded[]): Record<string, string> {
  const dumps = loaded.map(({ file, shows }): CollectedDump => {
    const program = programs.findLast(({ name }) => name === shows);
    const bytes = readBytes(join(path, file));
    if (program === undefined || bytes === null) throw new Error(`${path}: no ${file}`);
    return { program, bytes };
  });
  const nodeIPs = ['172.18.0.2', 'fd00:18::2'];
  const interfaces = ['lo', 'eth0', 'far0'];
  const podCIDRs = ['10.244.1.0/24'];
  const routes = null;
  const place = { node: '', localAddresses: nodeIPs, interfaces, routes, nodeIPs, podCIDRs };
  return Object.fromEntries(digestsOf(readDumps(dumps), place));
}

describe.skipIf(reason !== null && !isRequired)('in a network namespace', () => {
  const iptables = [save('iptables-nft', 'iptables-save'), save('ip6tables-nft', 'ip6tables-save')];
  const nftables = [{ file: 'nft.json.gz', load: ['nft', '-j', '-f'], shows: 'nft' }];
  test.each([
    ['iptables-nft/node-a', iptables, { mode: 'iptables', backend: 'nft' }],
    ['nftables/node-a', nftables, { mode: 'nftables', backend: null }],
  ])('%s: the kernel lists the recorded rules', async (name, loaded, want) => {
    const path = join(recordings, name);
    const report = await reportOf(path, loaded);
    expect(report).toMatchObject({ ...want, nodeIPs: ['172.18.0.2', 'fd00:18::2'], problems: [] });
    const digests = digestsOfFiles(path, loaded);
    expect(Object.keys(digests).length).toBeGreaterThan(100);
    expect(report.frontends).toEqual(digests);
  });

  test.each([
    ['iptables-nft/node-a', iptables],
    ['nftables/node-a', nftables],
  ])('%s: with a collector, an agent without capabilities reports all', async (name, loaded) => {
    const path = join(recordings, name);
    const report = await reportOf(path, loaded, join(folder, `collector-${name.slice(0, 4)}`));
    expect(report.problems).toEqual([]);
    expect(report.frontends).toEqual(digestsOfFiles(path, loaded));
  });

  test('a node without rules has an empty report and no problem', async () => {
    const report = await reportOf(recordings, []);
    expect(report).toMatchObject({ mode: null, backend: null, problems: [], frontends: {} });
  });
});

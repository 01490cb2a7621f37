// The agent's pace, and what it publishes, with scripts for programs.

import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { afterEach, expect, test, vi } from 'vitest';

import type { createReport } from '../../src/agent/report.ts';
import type { ScheduledAgent, ScheduleSettings } from '../../src/agent/schedule.ts';
import { createAgent } from '../../src/agent/schedule.ts';
import { withPrograms } from '../processes.ts';

const recording = join(import.meta.dirname, '../nodes/recordings/main/iptables-nft/node-a');
const print = (name: string): string => `/bin/gzip -dc ${recording}/${name}.txt.gz`;

const programs = {
  'iptables-nft-save': print('iptables-save'),
  'ip6tables-nft-save': print('ip6tables-save'),
};

const settings = (scripts: Readonly<Record<string, string>>, more = {}): ScheduleSettings => ({
  node: 'node-a',
  nodeIPs: ['172.18.0.2', 'FD00:18:0::2'],
  podCIDRs: ['10.244.1.0/24'],
  proxyConfig: { source: 'config.conf', text: 'mode: iptables\n' },
  onProblem: () => undefined,
  interval: 0.01,
  limits: withPrograms(scripts, more),
});

type Report = ReturnType<typeof createReport>;

const reportOf = (agent: ScheduledAgent): Report =>
  JSON.parse(agent.report()?.text.toString() ?? '') as Report;

test('a round publishes digests, and keeps enough for details', async () => {
  const agent = createAgent(settings(programs));
  expect(agent.report()).toBeNull();
  expect(await agent.details('tcp 10.96.0.1:443')).toBeNull();
  await agent.round();
  const report = reportOf(agent);
  expect(report).toMatchObject({
    version: 1,
    node: 'node-a',
    nodeIPs: ['172.18.0.2', 'fd00:18::2'],
    mode: 'iptables',
    backend: 'nft',
    proxyConfig: { source: 'config.conf' },
    problems: [],
  });
  const keys = Object.keys(report.frontends);
  expect(keys.length).toBeGreaterThan(100);
  for (const key of keys.slice(0, 3)) expect((await agent.details(key))?.length).toBeGreaterThan(0);
  expect(await agent.details('tcp 192.0.2.1:1')).toBeNull();
  await agent.round();
  expect(reportOf(agent)).toEqual(report);
});

test.each([
  ['a program fails', { ...programs, nft: 'exit 1' }, {}, 'nft: ended with 1'],
  ['a program is slow', { nft: 'exec /bin/sleep 30' }, { deadlineSeconds: 0.2 }, 'within 0.2 s'],
  ['a dump is cut off', { 'iptables-nft-save': "echo '*nat'" }, {}, 'ends before COMMIT'],
  ['nothing is there', {}, {}, 'none of'],
  ['reading is ended', { nft: 'kill -KILL $PPID' }, {}, 'reading the rules was ended by SIGKILL'],
])('a node is unknown if %s', async (_, scripts, more, problem) => {
  const agent = createAgent(settings(scripts, more));
  await agent.round();
  const report = reportOf(agent);
  expect(report.problems).toEqual([expect.stringContaining(problem)]);
  expect(report.frontends).toEqual({});
  expect(await agent.outcomes([])).toBeNull();
  expect(agent.cost()).toMatchObject({ rounds: 1, failed: 1 });
});

test('the reason why no round is possible is reported until a round succeeds', async () => {
  const said = vi.fn();
  const agent = createAgent({ ...settings(programs), onProblem: said });
  vi.stubEnv('NODE_OPTIONS', '--import=/nowhere');
  await agent.round();
  vi.unstubAllEnvs();
  expect(agent.report()).toBeNull();
  expect(agent.problem()).toBe('reading the rules ended with 1');
  expect(said).toHaveBeenCalledWith('reading the rules ended with 1');
  expect(agent.cost()).toMatchObject({ rounds: 0, failed: 1 });
  await agent.round();
  expect(agent.problem()).toBeNull();
  expect(reportOf(agent).problems).toEqual([]);
});

test('a process that does not answer is killed, and the node is unknown', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  try {
    const scripts = { 'iptables-nft-save': 'exec /bin/sleep 30' };
    const agent = createAgent(settings(scripts, { deadlineSeconds: 1000 }));
    const round = agent.round();
    // Only the deadline of the process is a timer of this one.
    await vi.advanceTimersByTimeAsync(7_000_000);
    expect(agent.report()).toBeNull();
    await vi.advanceTimersByTimeAsync(121_000);
    vi.useRealTimers();
    await round;
    expect(reportOf(agent).problems).toEqual(['reading the rules did not end within 7120 s']);
  } finally {
    vi.useRealTimers();
  }
});

test('it rests a hundred times as long as a round has cost', async () => {
  const agent = createAgent(settings(programs));
  await agent.round();
  const { last, pause, bytes } = agent.cost();
  expect(last).toBeGreaterThan(0);
  expect(pause).toBeGreaterThanOrEqual(100 * last);
  expect(bytes).toBeGreaterThan(10_000);
  const idle = createAgent({ ...settings(programs), interval: 100_000 });
  await idle.round();
  expect(idle.cost().pause).toBeGreaterThanOrEqual(100_000);
});

test('it runs until it is stopped, also during its pause', async () => {
  const agent = createAgent(settings(programs));
  const stop = new AbortController();
  const running = agent.run(stop.signal);
  while (agent.report() === null) await new Promise((resolve) => setTimeout(resolve, 5));
  stop.abort();
  await running;
  expect(agent.cost().rounds).toBe(1);
});

afterEach(() => {
  vi.useRealTimers();
});

test('what was packed says the same as what was read', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  const agent = createAgent(settings(programs));
  await agent.round();
  const [key = ''] = Object.keys(reportOf(agent).frontends);
  const details = await agent.details(key);
  const packets = (details ?? []).map(({ packet }) => packet);
  const outcomes = await agent.outcomes(packets);
  expect(packets.length).toBeGreaterThan(0);
  // The process that made the round has ended.
  vi.advanceTimersByTime(60_000);
  expect(await agent.details(key)).toEqual(details);
  expect(await agent.outcomes(packets)).toEqual(outcomes);
  expect(outcomes?.round).toBe(agent.report()?.round);
});

test('a round that finds all as it was leaves the report, which is of its moment', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'endpoint-auditor-run-'));
  const file = join(folder, 'rules');
  const writeRules = (packets: number, to: string): void => {
    const rule = '-A PREROUTING -d 10.96.0.1/32 -p tcp -m tcp --dport 443 -j DNAT --to-destination';
    const base = `:PREROUTING ACCEPT [${packets}:${packets * 60}]`;
    const times = `# Generated by iptables-save v1.8.9 on ${new Date().toISOString()}`;
    writeFileSync(file, `${times}\n*nat\n${base}\n${rule} ${to}:6443\nCOMMIT\n`);
  };
  const agent = createAgent(settings({ 'iptables-nft-save': `exec /bin/cat ${file}` }));
  writeRules(1, '10.0.0.1');
  await agent.round();
  const first = agent.report();
  writeRules(20, '10.0.0.1');
  await agent.round();
  const second = agent.report();
  expect(second?.text).toBe(first?.text);
  expect(second?.etag).toBe(first?.etag);
  expect(second?.round).not.toBe(first?.round);
  expect(second?.at).toBeGreaterThan(first?.at ?? Infinity);
  expect(JSON.stringify(await agent.details('tcp 10.96.0.1:443'))).toContain('10.0.0.1:6443');
  expect(agent.cost()).toMatchObject({ rounds: 2, failed: 0, unchanged: 1 });
  writeRules(20, '10.0.0.2');
  await agent.round();
  expect(agent.report()?.etag).not.toBe(first?.etag);
  // What could not be read is read the next time, whatever it was before.
  writeFileSync(file, 'nothing that is a dump\n');
  await agent.round();
  expect(reportOf(agent).problems).not.toEqual([]);
  writeRules(20, '10.0.0.2');
  await agent.round();
  expect(reportOf(agent).problems).toEqual([]);
  expect(agent.cost()).toMatchObject({ rounds: 5, failed: 1, unchanged: 1 });
});

test('the later of two rounds answers', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'endpoint-auditor-run-'));
  const file = join(folder, 'rules');
  const writeRules = (to: string): void => {
    const rule = '-A PREROUTING -d 10.96.0.1/32 -p tcp -m tcp --dport 443 -j DNAT --to-destination';
    writeFileSync(file, `*nat\n:PREROUTING ACCEPT [0:0]\n${rule} ${to}:6443\nCOMMIT\n`);
  };
  const agent = createAgent(settings({ 'iptables-nft-save': `exec /bin/cat ${file}` }));
  for (const to of ['10.0.0.1', '10.0.0.2']) {
    writeRules(to);
    await agent.round();
    expect(JSON.stringify(await agent.details('tcp 10.96.0.1:443'))).toContain(`${to}:6443`);
  }
});

// The collector with scripts for programs, and an agent that has none of them itself.

import { once } from 'node:events';
import { mkdtempSync, statSync, writeFileSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';

import { afterEach, expect, test, vi } from 'vitest';

import { collect } from '../../src/agent/collect.ts';
import { collectFrom, createCollector } from '../../src/agent/collector.ts';
import { createAgent } from '../../src/agent/schedule.ts';
import { withPrograms } from '../processes.ts';

const recording = join(import.meta.dirname, '../nodes/recordings/main/iptables-nft/node-a');
const print = (name: string): string => `/bin/gzip -dc ${recording}/${name}.txt.gz`;

const working = {
  'iptables-nft-save': print('iptables-save'),
  'ip6tables-nft-save': print('ip6tables-save'),
};
const scripts = { ...working, 'iptables-legacy-save': 'exit 1' };

const newPath = (): string => join(mkdtempSync(join(tmpdir(), 'collector-')), 'socket');
const atOnce = { tries: 1, pauseMs: 0 };

const running: { close: () => void }[] = [];
afterEach(() => {
  vi.useRealTimers();
  for (const one of running.splice(0)) one.close();
});

async function start(path = newPath(), programs: Readonly<Record<string, string>> = scripts) {
  const collector = createCollector(withPrograms(programs, { deadlineSeconds: 60 }));
  running.push(collector);
  await collector.listen(path);
  return { path, collector };
}

test('an agent gets from a collector what the programs print', async () => {
  const { path } = await start();
  const collected = await collectFrom(path);
  const own = await collect(withPrograms(scripts));
  expect(own.dumps.map(({ bytes }) => bytes.length > 1000)).toEqual([true, true]);
  expect({ ...collected, seconds: 0 }).toEqual({ ...own, seconds: 0 });
  expect(collected.seconds).toBeGreaterThan(0);
});

test('an agent without programs makes the report of one that has them', async () => {
  const { path } = await start(newPath(), working);
  const common = {
    node: 'node-a',
    nodeIPs: ['172.18.0.2'],
    podCIDRs: [],
    proxyConfig: null,
    onProblem: () => undefined,
    interval: 60,
  };
  const own = createAgent({ ...common, limits: withPrograms(working) });
  const other = createAgent({ ...common, limits: withPrograms({}), collector: path });
  await Promise.all([own.round(), other.round()]);
  const texts = [own, other].map((agent) => agent.report()?.text.toString() ?? '');
  expect(texts[0]).toContain('tcp 10.96.0.1:443');
  expect(texts[1]).toBe(texts[0]);
});

test('a collector that begins later is awaited', async () => {
  const path = newPath();
  const collecting = collectFrom(path, { tries: 100, pauseMs: 20 });
  await start(path);
  expect((await collecting).dumps).toHaveLength(2);
});

test('without a collector the rules are unknown', async () => {
  const { dumps, problems } = await collectFrom(newPath(), atOnce);
  expect(dumps).toEqual([]);
  expect(problems).toEqual([expect.stringMatching(/^the collector did not answer: .*ENOENT/)]);
});

test.each([
  ['', 'the answer is empty'],
  ['{"dumps":[{"bytes":5}],"states":{},"problems":[]}\nabc', 'has 53 bytes, not 55'],
  ['{"dumps":[],"states":{},"problems":[]}\nabc', 'has 42 bytes, not 39'],
])('after the answer %j the rules are unknown', async (answer, problem) => {
  const path = newPath();
  const server = createServer((socket) => socket.end(answer));
  running.push(server);
  server.listen(path);
  await once(server, 'listening');
  const { dumps, problems } = await collectFrom(path, atOnce);
  expect(dumps).toEqual([]);
  expect(problems).toEqual([expect.stringContaining(problem)]);
});

test('a socket replaces that of a killed collector, for owner and group', async () => {
  const path = newPath();
  writeFileSync(path, '');
  await start(path);
  expect(statSync(path).isSocket()).toBe(true);
  expect(statSync(path).mode & 0o777).toBe(0o660);
});

test('input changes nothing, and an agent that ends does not end the collector', async () => {
  const { path } = await start();
  const gone = connect(path);
  await once(gone, 'connect');
  gone.destroy();
  const asking = connect(path);
  asking.write('GET /etc/passwd HTTP/1.1\r\n\r\n');
  const answer = await buffer(asking);
  expect(answer.toString('utf8', 0, 11)).toBe('{"states":{');
  expect((await collectFrom(path)).dumps).toHaveLength(2);
});

test('a collector fails if its programs hang', async () => {
  const { path, collector } = await start(newPath(), { nft: 'exec /bin/sleep 5' });
  const failure = expect(collector.closed).rejects.toThrow('did not end within 540 s');
  vi.useFakeTimers({ toFake: ['setTimeout'] });
  const asked = connect(path);
  await once(asked, 'connect');
  await vi.waitUntil(() => vi.getTimerCount() > 0);
  vi.advanceTimersByTime(540_000);
  await failure;
  asked.destroy();
});

test('a collector that cannot create its socket fails at once', async () => {
  const path = join(newPath(), 'no-folder');
  await expect(start(path)).rejects.toThrow(/EACCES|ENOENT/);
});

// A visit to a real agent over loopback: its report, the moment of it, and packets.

import { once } from 'node:events';
import type { Server } from 'node:http';
import type { AddressInfo } from 'node:net';

import { afterEach, expect, test, vi } from 'vitest';

import type { AgentClient, Scrape, ScrapedReport } from '../../../src/agent/client/client.ts';
import {
  createAgentClient,
  scrapeOutcomes,
  scrapeReport,
} from '../../../src/agent/client/client.ts';
import type { ScheduledAgent } from '../../../src/agent/schedule.ts';
import { createAgent } from '../../../src/agent/schedule.ts';
import { createAgentServer } from '../../../src/agent/server.ts';
import type { Packet } from '../../../src/model/proxy-config.ts';
import { packetText } from '../../../src/rules/report/digest.ts';
import { withPrograms } from '../../processes.ts';

const dump = ['*nat', ':PREROUTING ACCEPT [0:0]', '-A PREROUTING -d 10.96.0.1/32 -p tcp -m tcp'];
const rule = `${dump.join('\n')} --dport 443 -j DNAT --to-destination 10.0.0.1:6443\nCOMMIT`;

let server: Server | null = null;

afterEach(() => {
  vi.useRealTimers();
  server?.close();
  server?.closeAllConnections();
});

async function begun(): Promise<{ readonly agent: ScheduledAgent; readonly going: Scrape }> {
  const agent = createAgent({
    nodeIPs: ['172.18.0.2'],
    podCIDRs: [],
    proxyConfig: null,
    onProblem: () => undefined,
    interval: 60,
    limits: withPrograms({ 'iptables-nft-save': `echo '${rule}'` }),
  });
  ({ server } = createAgentServer(agent, { token: null, tls: null }));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const client = createAgentClient(() => ({ token: null, tls: null }));
  const { port } = server.address() as AddressInfo;
  const { signal } = new AbortController();
  return {
    agent,
    going: { client, node: 'node-a', address: `127.0.0.1:${port}`, signal, now: () => 1000 },
  };
}

async function seen(going: Scrape, before: ScrapedReport | null): Promise<ScrapedReport> {
  const visited = await scrapeReport(going, before);
  if (visited.kind !== 'seen') throw new Error(JSON.stringify(visited));
  return visited;
}

test('before the first round it is early', async () => {
  const { going } = await begun();
  expect(await scrapeReport(going, null)).toEqual({ kind: 'early' });
});

test('the moment of a report is the earliest possible, and the same for a round', async () => {
  vi.useFakeTimers({ toFake: ['performance'] });
  const { agent, going } = await begun();
  await agent.round();
  const first = await seen(going, null);
  expect(first.report.digests.size).toBe(1);
  expect(first.seenAt).toBe(999);
  expect(first.lasting).toBeGreaterThanOrEqual(60);
  expect(first.nextAt).toBeGreaterThan(1059);
  const again = await seen({ ...going, now: () => 1010 }, first);
  expect(again).toMatchObject({ round: first.round, etag: first.etag, seenAt: 999 });
  expect(again.report).toBe(first.report);
  await agent.round();
  const next = await seen({ ...going, now: () => 1020 }, again);
  expect(next.round).not.toBe(first.round);
  expect(next).toMatchObject({ etag: first.etag, seenAt: 1019 });
  expect(next.report).toBe(first.report);
});

const packets = Array.from({ length: 1000 }, (_, at): Packet => {
  const dst = at === 500 ? '10.96.0.1' : `10.97.${at >> 8}.${at & 255}`;
  return { from: 'outside', src: '198.51.100.7', dst, protocol: 'tcp', dport: 443 };
});

function outcomesIn(found: Awaited<ReturnType<typeof scrapeOutcomes>>) {
  if (typeof found === 'string' || 'kind' in found) throw new Error(JSON.stringify(found));
  return found.outcomes;
}

test('packets are asked for in as many requests as it takes', async () => {
  const { agent, going } = await begun();
  await agent.round();
  const { round } = await seen(going, null);
  const lengths: number[] = [];
  const client: AgentClient = {
    ...going.client,
    ask: (request) => {
      lengths.push(decodeURIComponent(request.path).length);
      return going.client.ask(request);
    },
  };
  const outcomes = outcomesIn(await scrapeOutcomes({ ...going, client }, packets, round));
  const total = packets.reduce((sum, packet) => sum + packetText(packet).length + 3, 0);
  expect(lengths).toHaveLength(Math.ceil(total / 11_000));
  expect(Math.max(...lengths)).toBeLessThan(11_100);
  expect([...outcomes.keys()]).toEqual(packets.map(packetText));
  const reached = [...outcomes].filter(([, { destinations }]) => destinations.size > 0);
  expect(reached.map(([text]) => text)).toEqual(['outside,198.51.100.7,10.96.0.1,tcp,443']);
  expect([...(reached[0]?.[1].destinations.keys() ?? [])]).toEqual(['10.0.0.1:6443']);
});

test('of another round they are not taken', async () => {
  const { agent, going } = await begun();
  await agent.round();
  const { round } = await seen(going, null);
  await agent.round();
  expect(await scrapeOutcomes(going, packets.slice(0, 1), round)).toBe('another round');
});

const answering = (status: number, body: string): AgentClient => ({
  ask: () => Promise.resolve({ kind: 'answer', status, headers: {}, body }),
  bytes: () => 0,
});

test.each(['-5', 'soon', '1e9', '9999999999'])('an Age of %s is refused', async (age) => {
  const { agent, going } = await begun();
  await agent.round();
  const body = agent.report()?.text.toString() ?? '';
  const answer = { kind: 'answer', status: 200, headers: { age }, body } as const;
  const client: AgentClient = { ask: () => Promise.resolve(answer), bytes: () => 0 };
  const garbage = { kind: 'refused', garbage: 'malformed' };
  expect(await scrapeReport({ ...going, client }, null)).toMatchObject(garbage);
});

test('an unexpected error while its answer is decoded is a failure of the agent', async () => {
  const { going } = await begun();
  const client = answering(200, null as unknown as string);
  const result = await scrapeReport({ ...going, client }, null);
  expect(result).toMatchObject({ kind: 'refused', garbage: 'malformed' });
  expect(result).toHaveProperty('why', expect.stringContaining('unexpected error: TypeError'));
});

const tooLong = { kind: 'refused', why: 'long', garbage: 'too long' } as const;

/** What a parser would need a turn of its own for. */
const manyValues = {
  kind: 'answer',
  status: 200,
  headers: {},
  body: `{"more":[${'0,'.repeat(150_000)}0]}`,
} as const;

test.each([
  [tooLong, 'long'],
  [manyValues, 'Expected at most 150000 values of JSON'],
])('packets whose outcomes are too long are asked for in smaller batches', async (long, why) => {
  const { agent, going } = await begun();
  await agent.round();
  const { round } = await seen(going, null);
  const counts: number[] = [];
  const client: AgentClient = {
    ...going.client,
    ask: (request) => {
      const count = request.path.split('p=').length - 1;
      counts.push(count);
      return count > 100 ? Promise.resolve(long) : going.client.ask(request);
    },
  };
  const found = await scrapeOutcomes({ ...going, client }, packets, round);
  expect([...outcomesIn(found).keys()]).toEqual(packets.map(packetText));
  expect(found).toMatchObject({ lack: null });
  expect(counts.filter((count) => count <= 100).length).toBeGreaterThan(9);
  const never: AgentClient = { ...going.client, ask: () => Promise.resolve(long) };
  const refusal = { ...tooLong, why };
  expect(await scrapeOutcomes({ ...going, client: never }, packets, round)).toEqual(refusal);
});

test('of outcomes that are long together, only the first are asked for', async () => {
  const { going } = await begun();
  let asked = 0;
  const padding = ' '.repeat(12 * 1024 * 1024);
  const client: AgentClient = {
    ask: (request) => {
      asked++;
      const count = request.path.split('p=').length - 1;
      const outcomes = Array.from({ length: count }, () => ({ fates: {}, unknown: [] }));
      const body = JSON.stringify({ round: 'r', rules: [], outcomes }) + padding;
      return Promise.resolve({ kind: 'answer', status: 200, headers: {}, body });
    },
    bytes: () => 0,
  };
  const found = await scrapeOutcomes({ ...going, client }, packets, 'r');
  expect(asked).toBe(3);
  const texts = [...outcomesIn(found).keys()];
  expect(texts.length).toBeGreaterThan(100);
  expect(texts).toEqual(packets.map(packetText).slice(0, texts.length));
  const [all, left] = [packets.length, packets.length - texts.length];
  expect(JSON.stringify(found)).toContain(`${left} of ${all} packets are unknown`);
});

test.each([
  ['of two million levels', '['.repeat(2 ** 21), /levels/],
  ['of many levels in objects', `${'{"a":'.repeat(40)}1${'}'.repeat(40)}`, /levels/],
  ['that is no JSON', '{', /JSON/],
])('a report %s is refused', async (_, body, why) => {
  const { going } = await begun();
  const result = await scrapeReport({ ...going, client: answering(200, body) }, null);
  expect(result).toMatchObject({ kind: 'refused', garbage: 'malformed' });
  expect('why' in result && result.why).toMatch(why);
});

test('a report of too many values is refused before it is parsed', async () => {
  const { going } = await begun();
  const client = answering(200, manyValues.body);
  const why = 'Expected at most 150000 values of JSON';
  expect(await scrapeReport({ ...going, client }, null)).toEqual({ ...tooLong, why });
});

test.each([
  [
    { age: '7', 'cache-control': 'max-age=60', 'server-timing': 'round;dur=1500' },
    { seenAt: 992, lasting: 60, nextAt: 1054.5 },
  ],
  [
    { age: '70', 'cache-control': 'max-age=60' },
    { seenAt: 929, lasting: 60, nextAt: 1000 },
  ],
  [{}, { seenAt: 999, lasting: 30, nextAt: 1030, etag: '', round: '' }],
  // What an agent claims has limits, so that it cannot decide to be asked never again.
  [
    { age: '0', 'cache-control': 'max-age=99999999999', 'server-timing': 'round;dur=9999999' },
    { lasting: 3600, nextAt: 1120 },
  ],
  [
    { age: '0', 'cache-control': 'max-age=0' },
    { lasting: 1, nextAt: 1001 },
  ],
])('the headers %j say when the round was, and when the next will be', async (headers, want) => {
  const { agent, going } = await begun();
  await agent.round();
  const body = agent.report()?.text.toString() ?? '';
  const client: AgentClient = {
    ask: () => Promise.resolve({ kind: 'answer', status: 200, headers, body }),
    bytes: () => 0,
  };
  expect(await seen({ ...going, client }, null)).toMatchObject(want);
});

test.each([
  [500, 'broken', 'status 500: broken'],
  [304, '', 'status 304: '],
  [200, '{', /JSON/],
  [200, '{"version":7}', 'Expected version: 1'],
])('status %d with %j is no report', async (status, body, why) => {
  const { going } = await begun();
  const visited = await scrapeReport({ ...going, client: answering(status, body) }, null);
  expect(visited.kind).toBe('refused');
  expect(visited.kind === 'refused' ? visited.why : '').toMatch(why);
});

test.each([
  [200, '{"round":"r","rules":[],"outcomes":[]}', /another number/],
  [503, 'unknown', /status 503/],
  [200, '{"round":"r"}', /rules/],
])('status %d with %j is no outcome', async (status, body, why) => {
  const { going } = await begun();
  const asked = { ...going, client: answering(status, body) };
  const failure = { kind: 'refused', why: expect.stringMatching(why) as string };
  expect(await scrapeOutcomes(asked, packets.slice(0, 1), 'r')).toMatchObject(failure);
});

// The agents that the scraper asks, when, and the state of each node, by a clock of the test.

import { queryObjects } from 'node:v8';

import { expect, test, vi } from 'vitest';

import type { AgentClient } from '../../../src/agent/client/client.ts';
import type { AgentEntry, NodeReportEntry } from '../../../src/agent/client/scraper.ts';
import { agentStates, createScraper } from '../../../src/agent/client/scraper.ts';
import type { Packet } from '../../../src/model/proxy-config.ts';
import { endpoint, port, slice } from '../../build.ts';

type AgentAnswer = Awaited<ReturnType<AgentClient['ask']>>;

const asking = {
  ip: { node: null, pod: null, outside: null },
  ip6: { node: null, pod: null, outside: null },
  ...{ addresses: [], pods: [], strays: false },
};

const report = (node: string): string =>
  JSON.stringify({
    ...{ version: 1, node, nodeIPs: [], localAddresses: [], mode: 'iptables', proxyConfig: null },
    ...{ settings: {}, problems: [], asking, frontends: {}, doubled: [] },
  });

interface Node {
  readonly port: number | null;
  answer: (path: string) => AgentAnswer | Promise<AgentAnswer>;
}

const refused: AgentAnswer = { kind: 'refused', why: 'status 401' };
const silent: AgentAnswer = { kind: 'silent', why: 'nobody' };

/** An agent whose rounds are `lasting` seconds apart. */
function agentOf(name: string, now: () => number, lasting = 10) {
  return (path: string): AgentAnswer => {
    const round = Math.floor(now() / lasting);
    const headers = {
      etag: 'one',
      round: `r${round}`,
      age: String(Math.floor(now() - round * lasting)),
      'cache-control': `max-age=${lasting}`,
    };
    const body = path.startsWith('/v1/report')
      ? report(name)
      : JSON.stringify({ round: `r${round}`, rules: [], outcomes: [{ fates: {}, unknown: [] }] });
    return { kind: 'answer', status: 200, headers, body };
  };
}

const packet: Packet = {
  ...{ from: 'outside', src: '198.51.100.7', dst: '10.96.0.1', protocol: 'tcp', dport: 80 },
};

/** Runs a fleet for some seconds of its clock; `at` may change what there is. */
async function run(
  nodes: Map<string, Node>,
  seconds: number,
  at: (now: number) => void = () => undefined,
  needs: (entry: NodeReportEntry) => readonly Packet[] = () => [],
) {
  // An answer is decoded in one turn, however busy the machine is.
  vi.spyOn(performance, 'now').mockReturnValue(0);
  const clock = { now: 0 };
  const asked: { at: number; port: number; path: string }[] = [];
  const entries: AgentEntry[] = [];
  const troubles: string[] = [];
  const stop = new AbortController();
  const fleet = createScraper({
    client: {
      ask({ address, path }) {
        const port = Number(address.replace('127.0.0.1:', ''));
        asked.push({ at: clock.now, port, path });
        const found = [...nodes.values()].find((node) => node.port === port);
        return Promise.resolve(found?.answer(path) ?? silent);
      },
      bytes: () => 7,
    },
    isAsked: (node) => !node.startsWith('other-'),
    now: () => clock.now,
    random: () => 0.5,
    async sleep(length) {
      for (let turn = 0; turn < 20; turn++) await Promise.resolve();
      clock.now += length;
      at(clock.now);
      if (clock.now >= seconds) stop.abort();
    },
    slices: () =>
      [...nodes].flatMap(([node, { port: number }]) =>
        number === null
          ? []
          : slice({
              addressType: 'IPv4',
              ports: [port({ port: number })],
              endpoints: [endpoint({ addresses: ['127.0.0.1'], node })],
            }),
      ),
    nodes: () => nodes.keys(),
    deliver(entry) {
      entries.push(entry);
      if (entry.kind === 'node-report') entry.onNeed(needs(entry));
      return Promise.resolve();
    },
    onTrouble: (node, why) => troubles.push(`${node}: ${why}`),
  });
  const nowOf = (): number => clock.now;
  for (const [name, node] of nodes) {
    if (node.answer === answering) node.answer = agentOf(name, nowOf);
  }
  await fleet.run(stop.signal);
  return { fleet, asked, entries, troubles };
}

/** Replaces an agent that answers. */
const answering = (): AgentAnswer => silent;

const at = (port: number, answer: Node['answer'] = answering): Node => ({
  port,
  answer,
});

test('what is over does not stay in memory', async () => {
  const promises: number[] = [];
  await run(new Map(), 2001, (now) => {
    if (now === 1000 || now === 2000) promises.push(queryObjects(Promise, { format: 'count' }));
  });
  const [before = 0, after = Infinity] = promises;
  expect(after - before).toBeLessThan(100);
});

test('an entry that cannot be taken in ends it', async () => {
  const broken = new Error('a programming error');
  const going = run(new Map([['a', at(1)]]), 100, undefined, () => {
    throw broken;
  });
  await expect(going).rejects.toBe(broken);
});

test('each agent is asked once in each of its rounds', async () => {
  const { asked, entries, fleet } = await run(
    new Map([
      ['a', at(1)],
      ['b', at(2)],
    ]),
    101,
  );
  for (const port of [1, 2]) {
    const own = asked.filter((one) => one.port === port);
    expect(own.length).toBeGreaterThanOrEqual(10);
    expect(own.length).toBeLessThanOrEqual(13);
  }
  const reports = entries.filter((entry) => entry.kind === 'node-report');
  expect(reports.length).toBeGreaterThanOrEqual(20);
  for (const { seenAt, at: when, lasting } of reports) {
    expect(when - seenAt).toBeLessThan(4);
    expect(lasting).toBe(10);
  }
  expect(fleet.status().get('a')).toMatchObject({ state: 'answering' });
  expect(fleet.visits).toEqual({ seen: asked.length, early: 0, refused: 0, silent: 0 });
  expect(new Set(reports.map(({ version }) => version))).toEqual(new Set(['one']));
  expect(fleet.bytes()).toBe(7);
  expect(agentStates).toContain(fleet.status().get('b')?.state);
});

test('the agent of a node of another shard is not asked', async () => {
  const nodes = new Map([
    ['a', at(1)],
    ['other-b', at(2)],
  ]);
  const { asked, entries, fleet } = await run(nodes, 25);
  expect(new Set(asked.map(({ port }) => port))).toEqual(new Set([1]));
  expect(new Set(entries.map(({ node }) => node))).toEqual(new Set(['a']));
  expect([...fleet.status().keys()]).toEqual(['a']);
});

test('the same round is delivered once', async () => {
  const nodes = new Map([['a', at(1)]]);
  const { entries } = await run(nodes, 9);
  expect(entries.filter(({ kind }) => kind === 'node-report')).toHaveLength(1);
});

test('requested packets are delivered with the report of the same round', async () => {
  const needs = ({ outcomes }: NodeReportEntry) => (outcomes === null ? [packet] : []);
  const { asked, entries } = await run(new Map([['a', at(1)]]), 25, undefined, needs);
  const reports = entries.filter((entry) => entry.kind === 'node-report');
  expect(asked.filter(({ path }) => path.startsWith('/v1/packets?p='))).toHaveLength(3);
  expect(reports.map(({ outcomes }) => outcomes?.size ?? null)).toEqual([
    null,
    1,
    null,
    1,
    null,
    1,
  ]);
  // What was asked for belongs to one round, so the next is not the same.
  expect(new Set(reports.slice(1).map(({ version }) => version)).size).toBe(3);
});

test('outcomes of a Node that was deleted meanwhile are not delivered', async () => {
  let now = 0;
  const agent = agentOf('a', () => now);
  const late = Promise.withResolvers<undefined>();
  const answer = async (path: string): Promise<AgentAnswer> => {
    if (!path.startsWith('/v1/report')) await late.promise;
    return agent(path);
  };
  const nodes = new Map([['a', at(1, answer)]]);
  const change = (time: number): void => {
    now = time;
    if (now === 2) nodes.delete('a');
    if (now === 4) late.resolve(undefined);
  };
  const needs = ({ outcomes }: NodeReportEntry) => (outcomes === null ? [packet] : []);
  const { entries } = await run(nodes, 6, change, needs);
  expect(entries.map(({ kind }) => kind)).toContain('node-report');
  expect(entries.at(-1)).toMatchObject({ kind: 'node-unseen', state: null });
});

test('outcomes that are too long are a problem of the node, reported once', async () => {
  const clock = { now: 0 };
  const agent = agentOf('a', () => clock.now);
  const padding = ' '.repeat(33 * 1024 * 1024);
  const answer = (path: string): AgentAnswer => {
    const usual = agent(path);
    const isLong = path.startsWith('/v1/packets') && usual.kind === 'answer';
    return isLong ? { ...usual, body: usual.body + padding } : usual;
  };
  const needs = ({ outcomes }: NodeReportEntry) => (outcomes === null ? [packet] : []);
  const nodes = new Map([['a', at(1, answer)]]);
  const { entries, troubles } = await run(nodes, 25, (now) => (clock.now = now), needs);
  expect(entries.filter((it) => it.kind === 'node-report' && it.outcomes?.size === 0)).toHaveLength(
    3,
  );
  expect(troubles).toEqual([expect.stringMatching(/^a: 1 of 1 packets are unknown: a round/)]);
});

test('a node without an agent is absent, and the end of an agent is delivered', async () => {
  const nodes = new Map<string, Node>([
    ['a', at(1)],
    ['b', { port: null, answer: answering }],
  ]);
  const { entries, fleet } = await run(nodes, 30, (now) => {
    if (now === 20) nodes.delete('a');
  });
  const unseen = entries.filter((entry) => entry.kind === 'node-unseen');
  expect(unseen.map(({ node, state }) => [node, state])).toEqual([
    ['a', 'stale'],
    ['b', 'absent'],
    ['a', null],
  ]);
  expect([...fleet.status().keys()]).toEqual(['b']);
});

test('who does not answer is unknown from the second time on, and asked more rarely', async () => {
  const nodes = new Map([['a', at(1)]]);
  let isDown = false;
  const { asked, entries, troubles, fleet } = await run(nodes, 300, (now) => {
    const node = nodes.get('a');
    if (now === 50 && node !== undefined) {
      isDown = true;
      node.answer = () => silent;
    }
  });
  expect(isDown).toBe(true);
  expect(fleet.status().get('a')).toMatchObject({ state: 'stale' });
  const down = asked.filter(({ at: when }) => when > 50);
  expect(down.length).toBeLessThan(12);
  const unseen = entries.filter((entry) => entry.kind === 'node-unseen').slice(1);
  expect(unseen[0]).toMatchObject({ node: 'a', state: 'stale', at: down[1]?.at });
  expect(troubles).toEqual(['a: nobody']);
});

test('of slow agents at most 16 are asked at once, and the run waits for them', async () => {
  const unanswered: (() => void)[] = [];
  const slow = (): Promise<AgentAnswer> => {
    const { promise, resolve } = Promise.withResolvers<AgentAnswer>();
    unanswered.push(() => resolve(silent));
    return promise;
  };
  const answerAll = (): void => {
    for (const answer of unanswered.splice(0)) answer();
  };
  const nodes = new Map(Array.from({ length: 20 }, (_, n) => [`node-${n}`, at(n, slow)]));
  const counts: number[] = [];
  const { asked, fleet } = await run(nodes, 3, (now) => {
    counts.push(unanswered.length);
    if (now === 2) answerAll();
    if (now === 3) setImmediate(answerAll);
  });
  expect(Math.max(...counts)).toBe(16);
  expect(asked.filter(({ at: when }) => when < 2)).toHaveLength(16);
  expect([asked.length, new Set(asked.map(({ port: number }) => number)).size]).toEqual([20, 20]);
  expect([unanswered.length, fleet.visits.silent]).toEqual([0, 16]);
});

test('agents that do not answer within ten seconds do not delay requests to others', async () => {
  const unanswered: { readonly until: number; readonly answer: () => void }[] = [];
  let clock = 0;
  const hanging = (): Promise<AgentAnswer> => {
    const { promise, resolve } = Promise.withResolvers<AgentAnswer>();
    unanswered.push({ until: clock + 10, answer: () => resolve(silent) });
    return promise;
  };
  const nodes = new Map(Array.from({ length: 200 }, (_, n) => [`node-${n}`, at(n, hanging)]));
  nodes.set('alive', at(1000));
  const { asked, fleet } = await run(nodes, 900, (now) => {
    clock = now;
    while ((unanswered[0]?.until ?? Infinity) <= now) unanswered.shift()?.answer();
    if (now === 900) setImmediate(() => unanswered.splice(0).forEach(({ answer }) => answer()));
  });
  // After the first failures of all.
  const times = asked.flatMap(({ at: when, port: of }) => (of === 1000 && when > 200 ? when : []));
  expect(Math.max(...times.map((when, n) => (times[n + 1] ?? 900) - when))).toBeLessThan(12);
  expect(fleet.status().get('alive')).toMatchObject({ state: 'answering' });
  // The others are asked again and again.
  expect(new Set(asked.filter((it) => it.at > 500).map((it) => it.port)).size).toBe(201);
});

test('an agent that never answered is reported from the second time on', async () => {
  const reported = async (seconds: number) =>
    (await run(new Map([['a', at(1, () => silent)]]), seconds)).troubles;
  expect([await reported(1), await reported(3)]).toEqual([[], ['a: nobody']]);
});

test('who refuses is unknown at once', async () => {
  const { fleet, entries, troubles } = await run(new Map([['a', at(1, () => refused)]]), 5);
  expect(fleet.status().get('a')).toMatchObject({ state: 'refused', seenAt: null });
  expect(entries).toContainEqual(expect.objectContaining({ node: 'a', state: 'refused' }));
  expect(troubles).toEqual(['a: status 401']);
});

test('who answers garbage is at last asked once per hour', async () => {
  const garbage: AgentAnswer = { kind: 'refused', why: 'answered too much', garbage: 'too long' };
  const { asked, fleet } = await run(new Map([['a', at(1, () => garbage)]]), 20_000);
  expect(fleet.status().get('a')).toMatchObject({ state: 'refused' });
  const last = asked.slice(-2).map(({ at: when }) => when);
  expect((last[1] ?? 0) - (last[0] ?? 0)).toBeGreaterThan(3000);
  expect(asked.length).toBeLessThan(20);
});

test('an agent of another node is refused', async () => {
  const { fleet, troubles } = await run(
    new Map([
      [
        'a',
        at(
          1,
          agentOf('b', () => 5),
        ),
      ],
    ]),
    5,
  );
  expect(fleet.status().get('a')).toMatchObject({ state: 'refused' });
  expect(troubles[0]).toContain('its node is b');
});

test.each([
  [89, 30, true],
  [90, 30, false],
  [59, 10, true],
  [60, 10, false],
])(
  'a report of %i s ago, in rounds of %i s, is a sight of the node: %s',
  async (age, lasting, isSeen) => {
    const headers = { etag: 'x', round: 'r', age: `${age}`, 'cache-control': `max-age=${lasting}` };
    const old: AgentAnswer = { kind: 'answer', status: 200, headers, body: report('a') };
    const { fleet, entries } = await run(new Map([['a', at(1, () => old)]]), 0.5);
    expect(fleet.status().get('a')).toMatchObject({ state: isSeen ? 'answering' : 'stale' });
    expect(entries.some(({ kind }) => kind === 'node-report')).toBe(isSeen);
  },
);

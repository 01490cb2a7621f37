// What the worst answers of one agent cost the server: `npm run -s worst-report -- [NAME…]`.
//
// Each answer is as long as the client takes (2 MiB, 64 KiB of configuration). It is sent over
// loopback by another thread, decoded by the client of the agents, and audited by an event loop
// with 2,000 Services. The longest turn is in CPU of this thread, so other work on the machine does
// not count. Memory is what the heap and buffers have more than before. The command ends with 1
// if a turn is longer than 100 ms, or if an answer needs more than 100 MiB. V8 gets the flags with
// which the program runs.

import { once } from 'node:events';
import { createServer } from 'node:http';
import { setImmediate as turn } from 'node:timers/promises';
import { parentPort, Worker, workerData } from 'node:worker_threads';
import { gzipSync } from 'node:zlib';

import { createAgentClient, scrapeOutcomes, scrapeReport } from '../../src/agent/client/client.ts';
import type { NodeReportEntry } from '../../src/agent/client/scraper.ts';
import { createAuditor } from '../../src/auditor/auditor.ts';
import { createEventLoop } from '../../src/auditor/event-loop.ts';
import { createClock } from '../../src/commands/shared/clock.ts';
import type { Packet } from '../../src/model/proxy-config.ts';
import { resources } from '../../src/model/objects.ts';
import { auditorDefaults } from '../build.ts';
import { createFleet, eventOf, rawObjects } from './generate.ts';
import { heapBytes, round } from './measure.ts';

const mebi = 2 ** 20;

const limits = { turn: 100, memory: 100 };

/** Room for the fields of a report beside the one that is long. */
const longest = 2 * mebi - 2048;

const agent = {
  version: 1,
  node: 'node-0',
  mode: 'iptables',
  nodeIPs: ['172.18.0.2'],
  localAddresses: ['172.18.0.2'],
  proxyConfig: null as { text: string } | null,
  settings: {},
  problems: [] as readonly string[],
  doubled: [] as readonly string[],
  asking: {
    ip: { node: '172.18.0.2', pod: '10.244.1.1', outside: '203.0.113.1' },
    ip6: { node: null, pod: null, outside: null },
    addresses: ['172.18.0.2'] as readonly string[],
    pods: ['10.244.1.0/24'] as readonly string[],
    strays: true,
  },
  frontends: {} as Readonly<Record<string, unknown>>,
};

const report = (more: object): string => JSON.stringify({ ...agent, ...more });

/** A report with a field of any JSON. */
const withField = (name: string, json: string): string =>
  `${report({}).slice(0, -1)},${JSON.stringify(name)}:${json}}`;

/** A text of a length that repeats a part. */
const repeated = (part: string, length: number, head = '', tail = ''): string =>
  head + part.repeat(Math.floor((length - head.length - tail.length) / part.length)) + tail;

/** As many keys of frontends as fit. */
function frontendsOf(keyAt: (index: number) => string, digest = '0', length = longest) {
  const frontends: Record<string, string> = {};
  let size = 0;
  for (let index = 0; index < 65_536; index++) {
    const key = keyAt(index);
    size += key.length + digest.length + 6;
    if (size > length) break;
    frontends[key] = digest;
  }
  return frontends;
}

const unknownKey = (index: number): string =>
  `tcp 11.${index >> 16}.${(index >> 8) & 255}.1:${index % 65_536}`;
const clusterIPs = (index: number): string => `tcp 172.20.${(index >> 8) & 255}.${index & 255}:80`;
const longIPv6 = (index: number): string =>
  `tcp [2001:db8:1111:2222:3333:4444:5555:${index.toString(16)}]:65535`;

const config = (text: string): string => report({ proxyConfig: { text } });
const kibi64 = 64 * 1024;
const lines = (line: string): string =>
  repeated(`${line}\n`, Math.min(kibi64, 999 * (line.length + 1)));

/** The bodies of reports, by what is bad about them. */
const reports: Readonly<Record<string, () => string>> = {
  'many unknown frontends': () => report({ frontends: frontendsOf(unknownKey) }),
  'many frontends with long IPv6 addresses': () => report({ frontends: frontendsOf(longIPv6) }),
  'node ports': () => report({ frontends: frontendsOf((index) => `udp *:${index}`) }),
  'node ports, 1,024 addresses': () =>
    report({
      frontends: frontendsOf((index) => `udp *:${index}`, '0', longest - 30_000),
      asking: {
        ...agent.asking,
        addresses: Array.from({ length: 1024 }, (_, at) => `10.9.${at >> 8}.${at & 255}`),
      },
    }),
  'own Services with wrong digests': () =>
    report({ frontends: frontendsOf(clusterIPs, 'x'.repeat(64)) }),
  'own Services, 1,024 ranges of pods': () =>
    report({
      frontends: frontendsOf(clusterIPs, '0'),
      asking: {
        ...agent.asking,
        pods: Array.from({ length: 1024 }, (_, at) => `10.${at >> 8}.${at & 255}.0/24`),
      },
    }),
  'all frontends doubled': () => {
    const frontends = frontendsOf(unknownKey, '0', longest / 2);
    return report({ frontends, doubled: Object.keys(frontends) });
  },
  'local addresses': () =>
    report({
      localAddresses: Array.from(
        { length: 2048 },
        (_, at) => `2001:db8::${at.toString(16)}:1.2.3.4`,
      ),
    }),
  'local addresses that are long': () =>
    report({ localAddresses: Array.from({ length: 2048 }, () => `${'1:'.repeat(55)}:`) }),
  'one local address of 2 MiB': () => report({ localAddresses: [repeated('1:', longest)] }),
  'one local address of double colons': () => report({ localAddresses: [repeated('::', longest)] }),
  'node IPs that are long': () =>
    report({ nodeIPs: Array.from({ length: 1000 }, () => repeated('1:', 2000)) }),
  'source ranges of many frontends': () =>
    report({ mode: 'cilium', sourceRanges: frontendsOf(unknownKey) }),
  'empty source ranges of many frontends': () =>
    withField(
      'sourceRanges',
      `{${Array.from({ length: 49_000 }, (_, at) => `"k${at}":[]`).join()}}`,
    ),
  'many source ranges of a frontend': () =>
    withField('sourceRanges', repeated('"10.0.0.0/8",', 140_000 * 13, '{"a":[', '"10.0.0.0/8"]}')),
  problems: () => report({ problems: Array.from({ length: 1000 }, () => repeated('\u001b', 300)) }),
  'one problem of 2 MiB': () => report({ problems: [repeated('\u202e', longest / 6)] }),
  'one key of 2 MiB': () => report({ frontends: { [repeated('tcp 1', longest)]: '0' } }),
  'keys of prototypes': () => withField('frontends', '{"__proto__":{},"constructor":"0"}'),
  'empty lists': () => withField('more', repeated('[],', longest, '[', '[]]')),
  'empty objects': () => withField('more', repeated('{},', longest, '[', '{}]')),
  'objects with a key each': () => withField('more', repeated('{"a":{}},', longest, '[', '{}]')),
  'objects of different shapes': () =>
    withField('more', `[${Array.from({ length: 130_000 }, (_, at) => `{"k${at}":0}`).join()}]`),
  'an object of many keys': () =>
    withField('more', `{${Array.from({ length: 150_000 }, (_, at) => `"k${at}":0`).join()}}`),
  'lists of 30 levels': () =>
    withField('more', repeated(`${'['.repeat(30)}${']'.repeat(30)},`, longest, '[', '[]]')),
  numbers: () => withField('more', repeated('1,', longest, '[', '1]')),
  'large numbers': () => withField('more', repeated('1.1e99,', longest, '[', '1]')),
  'texts of a character': () => withField('more', repeated('"é",', longest / 2, '[', '""]')),
  escapes: () => withField('more', repeated('\\u0041', longest, '"', '"')),
  'a long number': () => withField('more', repeated('9', longest)),
  'not JSON: opening brackets': () => repeated('[', longest),
  'not JSON: commas': () => repeated(',', longest),
  'not JSON: a quote': () => repeated('\\"', longest, '"'),
  'configuration of 999 lines': () => config(lines('a: b')),
  'configuration of long lines': () => config(lines(repeated('x', 60, 'a: '))),
  'configuration of comments': () => config(lines(repeated('#', 64))),
  'configuration of quotes': () => config(repeated('"\' ', kibi64)),
  'configuration of one quoted text': () => config(repeated('\\n', kibi64, 'a: "', '"')),
  'configuration of colons': () => config(repeated('a: ', kibi64)),
  'configuration of carriage returns': () => config(repeated('a: b\r', kibi64)),
  'configuration of flow maps': () => config(repeated('{a: ', 400, '', '}'.repeat(90))),
  'configuration of anchors': () => config(repeated('&a ', kibi64, 'a: ')),
  'configuration of aliases': () =>
    config(`a: &a [${'x,'.repeat(400)}]\nb: [${'*a,'.repeat(400)}]`),
  'configuration of a bomb': () =>
    config(
      [
        'a: &a [x,x,x,x,x,x,x,x,x]',
        ...'bcdefghi'.split('').map((name, at) => {
          const before = String.fromCharCode(97 + at);
          return `${name}: &${name} [${`*${before},`.repeat(9)}]`;
        }),
      ].join('\n'),
    ),
  'configuration of tags': () => config(repeated('!a ', kibi64, 'a: ')),
  'configuration of dashes': () => config(repeated('-', kibi64)),
  'configuration of spaces': () => config(repeated(' ', kibi64, 'a:', 'b')),
  'configuration of closing brackets': () => config(repeated(']', kibi64)),
  'configuration of percent signs': () => config(repeated('%a ', kibi64)),
  'configuration of block texts': () => config(lines('a: |')),
  'configuration of merges': () => config(`a: &a {b: 1}\n${'<<: *a\n'.repeat(900)}`),
  'configuration of question marks': () => config(repeated('?', kibi64)),
};

/** An outcome of a packet that is met by these rules. */
const outcome = (by: string, more = ''): string =>
  `{"fates":{"drop":{"probability":1,"masqueraded":false,"by":${by}}${more}},"unknown":[]}`;

const iptablesRule = (text: string): string =>
  JSON.stringify({
    source: 'iptables',
    family: 'ip',
    table: 'nat',
    chain: 'A',
    base: 'PREROUTING',
    hook: 'prerouting',
    text,
  });
const nftRule = (text: string): string =>
  JSON.stringify({
    source: 'nft',
    family: 'ip',
    table: 'nat',
    chain: 'A',
    base: 'B',
    hook: 'prerouting',
    text,
  });
const answer = (rules: string, outcomes: string): string =>
  `{"round":"1","rules":[${rules}],"outcomes":[${outcomes}]}`;
const shortRule = iptablesRule('-A A -j DROP');
/** As many characters as a rule of nftables, and of iptables, may have. */
const [longRule, longLine] = [mebi, 64 * 1024];
const oneRule = (rule: string): string => answer(rule, outcome('[0]'));

/** The bodies of answers with outcomes of one packet. */
const outcomes: Readonly<Record<string, () => string>> = {
  'a rule that is met often': () => answer(shortRule, outcome(repeated('0,', longest, '[', '0]'))),
  'many rules': () => answer(repeated(`${shortRule},`, longest, '', shortRule), outcome('[0]')),
  'many rules of nft': () => {
    const rule = nftRule('[{"drop":null}]');
    return answer(repeated(`${rule},`, longest, '', rule), outcome('[0]'));
  },
  'a rule of many matches': () =>
    oneRule(iptablesRule(repeated(' -m x', longLine, '-A A', ' -j DROP'))),
  'a rule of spaces': () => oneRule(iptablesRule(repeated(' ', longLine, '-A A', '-j DROP'))),
  'a rule of quotes': () => oneRule(iptablesRule(repeated('"', longLine, '-A A ', ' -j DROP'))),
  'a rule of exclamation marks': () =>
    oneRule(iptablesRule(repeated('! ', longLine, '-A A ', '-j DROP'))),
  'a rule of a comment': () =>
    oneRule(
      iptablesRule(repeated('\\"', longLine / 2, '-A A -m comment --comment "', '" -j DROP')),
    ),
  'a rule of a longer text': () => oneRule(iptablesRule(repeated(' ', longest - 200, '-A A'))),
  'a rule of nft with names of sets': () =>
    oneRule(
      nftRule(repeated('"@abcdef",', longRule, '[{"match":{"right":{"set":["@abcdef",', '""]}}}]')),
    ),
  'a rule of nft with many expressions': () =>
    oneRule(nftRule(repeated('{"counter":null},', 128 * 17, '[', '{"drop":null}]'))),
  'a rule of nft with a long set': () =>
    oneRule(
      nftRule(
        repeated(
          '"1.2.3.4",',
          longRule,
          '[{"match":{"op":"==","left":{"meta":{"key":"mark"}},"right":{"set":[',
          '"1.2.3.5"]}}},{"drop":null}]',
        ),
      ),
    ),
  'a rule of nft with 9,000 endpoints': () => {
    const chain = (at: number): string => `endpoint-2QRHZV4L-default/name/tcp/p80__10.0.0.1/${at}`;
    const set = Array.from({ length: 9000 }, (_, at) => [at, { goto: { target: chain(at) } }]);
    const key = { numgen: { mode: 'random', mod: 9000, offset: 0 } };
    return oneRule(nftRule(JSON.stringify([{ vmap: { key, data: { set } } }])));
  },
  'many destinations': () => {
    const one = (at: number): string =>
      `,"10.0.${at >> 8}.${at & 255}:1":{"probability":0,"masqueraded":false,"by":[0]}`;
    const all = Array.from({ length: 30_000 }, (_, at) => one(at)).join('');
    return answer(shortRule, outcome('[0]', all));
  },
  'many unknown rules': () =>
    answer(
      shortRule,
      `{"fates":{},"unknown":${repeated('{"reason":"a","rule":"b"},', longest, '[', '{}]')}}`,
    ),
  'many outcomes': () =>
    answer(shortRule, repeated(`${outcome('[0]')},`, longest, '', outcome('[0]'))),
};

const raw = (of: Readonly<Record<string, () => string>>, name: string): Buffer =>
  Buffer.from(of[name]?.() ?? '');

/** What the agent answers: the report by its name, or a sound one and the outcomes by theirs. */
type Answers = () => Readonly<Record<'report' | 'outcomes', Buffer>>;

const answers = new Map<string, Answers>([
  ...Object.keys(reports).map(
    (name) =>
      [name, () => ({ report: raw(reports, name), outcomes: Buffer.from(answer('', '')) })] as [
        string,
        Answers,
      ],
  ),
  ...Object.keys(outcomes).map(
    (name) =>
      [
        `outcomes: ${name}`,
        () => ({ report: Buffer.from(report({})), outcomes: raw(outcomes, name) }),
      ] as [string, Answers],
  ),
  [
    'gzip',
    () => ({ report: gzipSync(Buffer.alloc(64 * mebi)), outcomes: Buffer.alloc(0) }),
  ] as const,
]);

// The agent, in a thread of its own.

async function serveAnswers(): Promise<void> {
  let current = answers.get('gzip')?.();
  parentPort?.on('message', (name: string) => {
    current = answers.get(name)?.();
    parentPort?.postMessage(current?.report.length ?? 0);
  });
  const server = createServer((request, response) => {
    const isReport = request.url === '/v1/report';
    response.setHeader('round', '1').setHeader('etag', `"${String(Math.random())}"`);
    response.setHeader('content-type', 'application/json');
    response.end(isReport ? current?.report : current?.outcomes);
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  parentPort?.postMessage(server.address());
}

// The server.

function threadMillis(): number {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1000;
}

const used = (): number => {
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
};

/** The longest turn in CPU, and the most memory that was seen after a turn, until it is stopped. */
function watchTurns() {
  const most = { millis: 0, bytes: 0 };
  let before = threadMillis();
  let isOver = false;
  const look = (): void => {
    most.millis = Math.max(most.millis, threadMillis() - before);
    most.bytes = Math.max(most.bytes, used());
    before = threadMillis();
    if (!isOver) setImmediate(look);
  };
  setImmediate(look);
  return async () => {
    await turn();
    isOver = true;
    return most;
  };
}

function startLoop() {
  const fleet = createFleet({ nodes: 10, namespaces: 20, sizes: [{ pods: 15, services: 2000 }] });
  const auditor = createAuditor({ ...auditorDefaults, live: true, onProblem: () => undefined });
  const clock = createClock();
  const at = clock.now();
  auditor.take({ kind: 'header', at, kubernetes: 'v1.36.3', resources });
  for (const resource of resources) {
    for (const object of rawObjects(fleet, resource)) {
      auditor.take({
        kind: 'event',
        event: eventOf(auditor.store, resource, 'added', object, 0, at),
      });
    }
  }
  for (const resource of resources) {
    auditor.take({ kind: 'synced', at, resource });
    auditor.take({ kind: 'watch', at, resource, state: 'synced' });
  }
  const fail = (error: unknown): void => {
    throw error;
  };
  const loop = createEventLoop({
    auditor,
    clock,
    reread: () => Promise.reject(new Error('There is no API server')),
    onGap: () => undefined,
    hang: () => null,
    onHang: () => undefined,
    skew: () => 0,
    onClock: () => undefined,
    onError: fail,
    onQuiet: () => undefined,
  });
  const [node = ''] = [...auditor.store.listers.nodes.values()].map(({ name }) => name);
  return { auditor, loop, clock, node };
}

/** A packet to ask for where a report alone leads to no question. */
const somePacket: Packet = {
  from: 'outside',
  src: '203.0.113.1',
  dst: '172.20.0.1',
  protocol: 'tcp',
  dport: 80,
};

/** Asks the agent in the worker once, as the scraper does, and has the auditor take its answers. */
function createVisit(port: number) {
  const { loop, clock, node } = startLoop();
  const client = createAgentClient(() => ({ token: null, tls: null }));
  const { signal } = new AbortController();
  const now = (): number => clock.now();
  const scrape = { client, node: 'node-0', address: `127.0.0.1:${port}`, signal, now };
  const deliver = async (entry: Omit<NodeReportEntry, 'onNeed'>): Promise<readonly Packet[]> => {
    let needed: readonly Packet[] = [];
    const onNeed = (packets: readonly Packet[]): void => void (needed = packets);
    await loop.deliver([{ ...entry, onNeed }]);
    return needed;
  };
  const visit = async (): Promise<string> => {
    const seen = await scrapeReport(scrape, null);
    if (seen.kind !== 'seen') return 'why' in seen ? seen.why : seen.kind;
    const { report, etag, seenAt, lasting } = seen;
    const of = { kind: 'node-report', at: now(), seenAt, node, report, etag, lasting } as const;
    const needed = await deliver({ ...of, version: etag, outcomes: null });
    const asked = needed.length > 0 ? needed.slice(0, 1) : [somePacket];
    const found = await scrapeOutcomes(scrape, asked, '1');
    if (found === 'another round') return found;
    if ('kind' in found) return `the report was taken; ${found.why}`;
    await deliver({ ...of, version: `${etag} 1`, outcomes: found.outcomes });
    return `taken, ${needed.length} packets`;
  };
  return { visit, stop: () => loop.stop() };
}

async function measure(names: readonly string[]): Promise<void> {
  const worker = new Worker(new URL(import.meta.url), { workerData: 'agent' });
  const [{ port }] = (await once(worker, 'message')) as [{ port: number }];
  const { visit, stop } = createVisit(port);
  const prepare = async (name: string): Promise<number> => {
    worker.postMessage(name);
    const [length] = (await once(worker, 'message')) as [number];
    return Math.round(length / 1024);
  };
  // What the first report of a node costs is no matter of what is in it.
  await prepare('outcomes: many rules');
  await visit();
  console.log('| answer | KiB | longest turn, ms | MiB | result | |');
  console.log('| :-- | --: | --: | --: | :-- | :-- |');
  let failed = 0;
  for (const name of names) {
    const length = await prepare(name);
    heapBytes();
    const before = used();
    const stopWatch = watchTurns();
    const result = (await visit()).slice(0, 80);
    const { millis, bytes } = await stopWatch();
    const memory = (bytes - before) / mebi;
    const isFine = millis <= limits.turn && memory <= limits.memory;
    if (!isFine) failed++;
    const cells = [name, length, round(millis), round(memory), result, isFine ? '' : 'FAILED'];
    console.log(`| ${cells.join(' | ')} |`);
  }
  stop();
  await worker.terminate();
  console.log(`\n${names.length} answers, ${failed} cost too much`);
  process.exitCode = failed === 0 ? 0 : 1;
}

if (workerData === 'agent') await serveAnswers();
else if (import.meta.main) {
  const given = process.argv.slice(2);
  await measure(given.length > 0 ? given : [...answers.keys()]);
}

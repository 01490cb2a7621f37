import { afterEach, describe, expect, test } from 'vitest';

import { createConnectionState } from '../../../src/cluster/api/connection-state.ts';
import { createGate, createReflector } from '../../../src/cluster/api/reflector.ts';
import type { newCounters } from '../../../src/cluster/api/watch-result.ts';
import type { LiveEntry } from '../../../src/cluster/decode/entry.ts';
import { problemText } from '../../../src/cluster/decode/problem.ts';
import type { World } from '../../apiserver/life.ts';
import { compared, createWorld } from '../../apiserver/life.ts';
import { addCounters, runSeed } from '../../apiserver/seeds.ts';
import type { Instead, Watch } from '../../apiserver/server.ts';
import { answers } from '../../protobuf/fixtures.ts';
import {
  bodyOfText,
  createStream,
  endlessPages,
  statusAnswer,
  statusOf,
} from '../../apiserver/server.ts';

type WatchCounters = ReturnType<typeof newCounters>;

interface Scene {
  readonly world: World;
  readonly reflector: ReturnType<typeof createReflector>;
  readonly problems: string[];
  /** Lets a number of seconds pass. */
  readonly pass: (seconds: number) => Promise<void>;
  readonly put: (name: string, ip?: string) => void;
  readonly remove: (name: string) => void;
  readonly watch: () => Watch;
  /** What was delivered since the last call, in a few words. */
  readonly delivered: () => string[];
  readonly stop: () => Promise<void>;
}

const scenes: Scene[] = [];

afterEach(async () => {
  for (const scene of scenes.splice(0)) await scene.stop();
});

function brief(entry: LiveEntry): string {
  switch (entry.kind) {
    case 'event': {
      const { type, object, gap } = entry.event;
      const version = type === 'deleted' ? '' : ` ${object.resourceVersion}`;
      return `${type} ${object.name}${version}${gap === true ? ' gap' : ''}`;
    }
    case 'watch':
      return entry.state;
    case 'progress':
      return `up to ${entry.resourceVersion}`;
    case 'synced':
      return 'complete';
    case 'unreadable':
      return `unreadable ${entry.lost.name ?? '?'}`;
    case 'header':
    case 'access':
      return entry.kind;
  }
}

interface SceneOptions {
  readonly watchList?: boolean;
  readonly pings?: boolean;
  readonly prepare?: (scene: Scene) => void;
}

/** Pods a and b, versions 101 and 102, and a reflector of pods that is up to date. */
async function scene(options: SceneOptions = {}): Promise<Scene> {
  const world = createWorld(7);
  const problems: string[] = [];
  world.pings = options.pings ?? true;
  world.server.bookmarkEvery = 1e6;
  const reflector = createReflector({
    resource: 'pods',
    namespace: null,
    environment: world.environment,
    held: world.held('pods'),
    deliver: world.deliver,
    onProblem: (problem) => problems.push(problemText(problem)),
    enterGate: createGate(),
    watchList: options.watchList ?? true,
    raw: false,
    onLost: () => undefined,
    connection: createConnectionState(
      () => 0,
      () => undefined,
    ),
  });
  const controller = new AbortController();
  const { objects } = world.server;
  let shown = 0;
  const made: Scene = {
    world,
    reflector,
    problems,
    pass: (seconds) => world.clock.runUntil(world.clock.now() + seconds),
    put(name, ip) {
      const podIPs = ip === undefined ? [] : [{ ip }];
      objects.put('pods', { metadata: { name, namespace: 'shop' }, spec: {}, status: { podIPs } });
    },
    remove: (name) => expect(objects.remove('pods', `shop/${name}`)).toBe(true),
    watch() {
      const watch = [...world.server.watches][0];
      if (watch === undefined) throw new Error('No watch');
      return watch;
    },
    delivered() {
      const entries = world.entries.slice(shown);
      shown = world.entries.length;
      return entries.map(brief);
    },
    async stop() {
      controller.abort();
      await world.clock.runUntil(world.clock.now());
      await run;
    },
  };
  scenes.push(made);
  made.put('a');
  made.put('b');
  options.prepare?.(made);
  const run = reflector.run(controller.signal);
  await made.pass(0);
  return made;
}

const first = ['listing', 'added a 101', 'added b 102', 'complete', 'up to 102', 'synced'];

/** Answers the next requests of a verb in the server's place. */
function answerNext(world: World, verb: 'list' | 'watch', ...answers: Instead[]): void {
  world.server.faults.before = (asked) =>
    asked.verb === verb && answers.length > 0 ? (answers.shift() ?? null) : null;
}

const asked = ({ world }: Scene) =>
  world.server.asked.map(({ verb, request: { query } }) =>
    [verb, query.limit, query.continue, query.resourceVersion, query.sendInitialEvents]
      .filter((word) => word !== undefined)
      .join(' '),
  );

function expectSame({ world }: Scene): void {
  const { got, want } = compared(world, 'pods');
  expect(got).toEqual(want);
}

describe('the first list', () => {
  test('comes with the watch where the server sends it so', async () => {
    const made = await scene();
    expect(made.delivered()).toEqual(first);
    expect(asked(made)).toEqual(['watch true']);
    expect(made.reflector.status.counters).toMatchObject({
      lists: 1,
      pages: 0,
      watches: 1,
      events: 2,
    });
  });

  test('comes in pages where the server refuses, at once', async () => {
    const made = await scene({
      prepare({ world }) {
        world.server.watchList = false;
        world.server.faults.pageSize = 1;
      },
    });
    expect(made.delivered()).toEqual(first);
    const next = JSON.stringify({ at: 102, from: 'shop/b' });
    expect(asked(made)).toEqual(['watch true', 'list 500', `list 500 ${next}`, 'watch 102']);
  });

  test('comes in pages where no ping watches over the connection', async () => {
    const made = await scene({ pings: false });
    expect(made.delivered()).toEqual(first);
    expect(asked(made)).toEqual(['list 500', 'watch 102']);
  });

  test('goes on with the page that failed', async () => {
    const made = await scene({
      watchList: false,
      prepare({ world }) {
        world.server.faults.pageSize = 1;
        answerNext(world, 'list', null, 'reset', statusAnswer(500, 'InternalError'));
      },
    });
    await made.pass(10);
    expect(made.delivered()).toEqual(first);
    const next = JSON.stringify({ at: 102, from: 'shop/b' });
    expect(asked(made).filter((one) => one === `list 500 ${next}`)).toHaveLength(3);
  });

  test('requests a first page again that broke off, since its objects may be gone', async () => {
    let isWhole = false;
    const made = await scene({
      watchList: false,
      prepare({ world }) {
        world.server.faults.chunks = function* (bytes) {
          const text = Buffer.from(bytes).toString();
          const breaksOff = !isWhole && text.includes('PodList');
          isWhole ||= breaksOff;
          yield breaksOff ? bytes.subarray(0, text.lastIndexOf(']')) : bytes;
          if (breaksOff) throw new Error('connection reset');
        };
      },
    });
    made.remove('b');
    await made.pass(10);
    expect(made.delivered()).toContain('deleted b gap');
    expectSame(made);
  });

  const other = { metadata: { name: 'x', namespace: 'shop', uid: 'x', resourceVersion: '90' } };
  const metadata = { resourceVersion: '102' };
  const envelope = { kind: 'ServiceList', apiVersion: 'v1', metadata };
  const podLike = { kind: 'PodList', apiVersion: 'example.org/v1', metadata };
  const item = { kind: 'Service', apiVersion: 'v1', ...other };
  const json = 'application/json';
  const protobuf = 'application/vnd.kubernetes.protobuf';
  const services = answers().find(({ json: { kind }, items }) => kind === 'ServiceList' && items);
  test.each([
    ['with its kind first', json, JSON.stringify({ ...envelope, items: [other] })],
    ['of another group', json, JSON.stringify({ ...podLike, items: [other] })],
    ['with its kind last', json, JSON.stringify({ items: [other], ...envelope })],
    ['cut off before its kind', json, JSON.stringify({ items: [other], ...envelope }).slice(0, -9)],
    ['with the kind at its items', json, JSON.stringify({ items: [item], metadata })],
    ['that is an array', json, JSON.stringify([other])],
    ['in protobuf', protobuf, services?.protobuf ?? ''],
  ])('of another kind %s: no object is taken', async (_name, contentType, content) => {
    const headers = { 'content-type': contentType };
    expect(content).not.toBe('');
    // A second bad answer is taken as far as it can be read.
    const answered = [1, 2, 3].map(() => {
      return { ...statusAnswer(200, ''), headers, body: bodyOfText(content) };
    });
    const made = await scene({
      watchList: false,
      prepare({ world }) {
        world.server.faults.pageSize = 1;
        world.server.faults.before = ({ request }) =>
          request.query.continue === undefined ? null : (answered.pop() ?? null);
      },
    });
    expect(made.reflector.status.state).toBe('listing');
    await made.pass(60);
    expect(answered).toEqual([]);
    expect(made.reflector.status).toMatchObject({ state: 'synced' });
    expect(made.delivered().filter((it) => it !== 'unreadable ?')).toEqual(first);
    expectSame(made);
  });

  test('restarts in one page when its token has expired', async () => {
    const made = await scene({
      watchList: false,
      prepare({ world, put }) {
        world.server.faults.pageSize = 1;
        world.server.faults.before = ({ request }) => {
          if (request.query.continue === undefined || made0) return null;
          made0 = true;
          put('c');
          world.server.objects.compact();
          return null;
        };
        let made0 = false;
      },
    });
    await made.pass(1);
    expect(asked(made).at(-2)).toBe('list');
    expect(made.reflector.status.counters.relists.expired).toBe(1);
    expectSame(made);
  });

  test('objects that go and come before it is complete', async () => {
    const made = await scene({
      prepare({ world, put, remove }) {
        const { objects } = world.server;
        const initial = objects.list('pods').map(({ raw }) => ['ADDED', raw] as const);
        remove('a');
        put('c');
        put('b', '10.0.0.1');
        const changes = objects.after(102)?.map(({ type, raw }) => [type, raw] as const) ?? [];
        const end = {
          annotations: { 'k8s.io/initial-events-end': 'true' },
          resourceVersion: '105',
        };
        const frames = [...initial, ...changes, ['BOOKMARK', { metadata: end }] as const];
        const text = frames
          .map(([type, object]) => `${JSON.stringify({ type, object })}\n`)
          .join('');
        const headers = { 'content-type': 'application/json' };
        world.server.faults.before = ({ request }) => {
          const body = createStream(request.signal);
          body.write(Buffer.from(text));
          return { status: 200, headers, body };
        };
      },
    });
    const before = ['listing', 'added a 101', 'added b 102'];
    const after = ['deleted a gap', 'added c 104', 'modified b 105 gap'];
    const want = [...before, ...after, 'complete', 'up to 105', 'synced'];
    expect(made.delivered()).toEqual(want);
    expectSame(made);
  });
});

describe('a watch', () => {
  test('delivers what happens', async () => {
    const made = await scene();
    made.delivered();
    made.put('a', '10.0.0.1');
    made.remove('b');
    made.put('b');
    await made.pass(0);
    expect(made.delivered()).toEqual(['modified a 103', 'deleted b', 'added b 105']);
  });

  test('lasts five to ten minutes, and the next one goes on', async () => {
    const made = await scene();
    await made.pass(299);
    expect(asked(made)).toHaveLength(1);
    await made.pass(302);
    expect(made.reflector.status.counters).toMatchObject({ watches: 2, reconnects: { eof: 1 } });
    expect(made.delivered()).toEqual([...first, 'stale', 'synced']);
  });

  test('reports its progress by bookmarks', async () => {
    const made = await scene({ prepare: ({ world }) => (world.server.bookmarkEvery = 60) });
    made.world.server.objects.put('nodes', { metadata: { name: 'node-a' } });
    await made.pass(60);
    expect(made.delivered().at(-1)).toBe('up to 103');
    made.watch().stream.end();
    await made.pass(0);
    expect(asked(made).at(-1)).toBe('watch 103');
  });
});

interface Fault {
  readonly name: string;
  readonly act: (scene: Scene) => void;
  /** Seconds until all is well again. */
  readonly within: number;
  readonly want: readonly string[];
  readonly counters: Partial<{ [Name in keyof WatchCounters]: Partial<WatchCounters[Name]> }>;
}

/** Each happens to an open watch, together with the change of pod a to version 103. */
const faults: readonly Fault[] = [
  {
    name: 'the connection is reset',
    act: ({ watch }) => watch().stream.fail(new Error('reset')),
    within: 2,
    want: ['stale', 'synced', 'modified a 103'],
    counters: { reconnects: { reset: 1 } },
  },
  {
    name: 'the server ends the watch with an internal error',
    act: ({ watch }) => watch().refuse(statusOf(500, 'InternalError')),
    within: 2,
    want: ['stale', 'synced', 'modified a 103'],
    counters: { reconnects: { status: 1 } },
  },
  {
    name: 'history is compacted',
    act({ world, watch }) {
      watch().stream.end();
      world.server.objects.compact();
    },
    within: 4,
    want: ['stale', 'synced', 'relisting', 'modified a 103 gap', 'complete', 'up to 103', 'synced'],
    counters: { relists: { expired: 1 }, lists: 2 },
  },
  {
    name: 'the server says 410 Gone in the watch',
    act: ({ watch }) => watch().refuse(statusOf(410, 'Gone')),
    within: 4,
    want: ['relisting', 'modified a 103 gap', 'complete', 'up to 103', 'synced'],
    counters: { relists: { gone: 1 }, lists: 2 },
  },
  {
    name: '429 with Retry-After',
    act({ world, watch }) {
      watch().stream.end();
      answerNext(world, 'watch', statusAnswer(429, 'TooMany', '', { 'retry-after': '20' }));
    },
    within: 21.1,
    want: ['stale', 'synced', 'modified a 103'],
    counters: { throttled: 1 },
  },
  {
    name: '401, although the connection has read the token again',
    act({ world, watch }) {
      watch().stream.end();
      answerNext(world, 'watch', statusAnswer(401, 'Unauthorized'));
    },
    within: 2,
    want: ['stale', 'synced', 'modified a 103'],
    counters: { unauthorised: 1 },
  },
  {
    name: 'the answer is no answer of Kubernetes',
    act({ world, watch }) {
      watch().stream.end();
      const body = (async function* () {
        await Promise.resolve();
        yield Buffer.from('<html>login</html>');
      })();
      const headers = { 'content-type': 'text/html' };
      answerNext(world, 'watch', { status: 200, headers, body });
    },
    within: 2,
    want: ['stale', 'synced', 'modified a 103'],
    counters: { reconnects: { eof: 1, status: 1 } },
  },
  {
    name: 'a frame is garbled',
    act: ({ watch }) => watch().spoils.push('garbled'),
    within: 2,
    want: ['stale', 'synced', 'modified a 103'],
    counters: { badFrames: 1, unreadable: 0, reconnects: { frame: 1 } },
  },
  {
    name: 'a frame is cut off',
    act: ({ watch }) => watch().spoils.push('cut'),
    within: 2,
    want: ['stale', 'synced', 'modified a 103'],
    counters: { badFrames: 1, unreadable: 0 },
  },
  {
    name: 'a frame comes twice',
    act: ({ watch }) => watch().spoils.push('twice'),
    within: 0,
    want: ['modified a 103'],
    counters: { repeated: 1 },
  },
  {
    name: 'the connection is half open, and the ping finds out',
    act({ world, watch }) {
      const frozen = watch();
      frozen.freeze();
      world.clock.after(43, () => frozen.stream.fail(new Error('no answer to a ping')));
    },
    within: 45,
    want: ['stale', 'synced', 'modified a 103'],
    counters: { reconnects: { reset: 1 } },
  },
];

describe.each([true, false])('faults, WatchList %s', (watchList) => {
  test.each(faults)('$name', async ({ act, within, want, counters }) => {
    const made = await scene({ watchList });
    await made.pass(2);
    expect(made.delivered()).toEqual(first);
    act(made);
    made.put('a', '10.0.0.1');
    if (want.includes('modified a 103 gap')) made.world.server.objects.compact();
    await made.pass(within);
    expect(made.delivered()).toEqual(want);
    expect(made.reflector.status.counters).toMatchObject(counters);
    expect(made.reflector.status.state).toBe('synced');
    expectSame(made);
  });
});

test('a list that sends bytes forever is given up after 10 minutes', async () => {
  const endless = ({ clock, server }: World) => {
    server.faults.before = ({ verb, request }) => {
      if (verb !== 'list') return null;
      server.faults.before = () => null;
      async function* spaces() {
        while (true) {
          await clock.sleep(20, request.signal);
          request.signal.throwIfAborted();
          yield Buffer.from(' ');
        }
      }
      return { status: 200, headers: { 'content-type': 'application/json' }, body: spaces() };
    };
  };
  const made = await scene({ watchList: false, prepare: ({ world }) => endless(world) });
  await made.pass(590);
  expect(made.reflector.status.state).toBe('listing');
  await made.pass(20);
  expect(made.reflector.status.counters.reconnects.timeout).toBe(1);
  expect(made.reflector.status.state).toBe('synced');
});

test('pages with ever newer versions of an object are given up', async () => {
  const versionOf = (page: number): string => String(103 + page);
  const prepare = ({ world }: Scene): void => endlessPages(world.server, versionOf);
  const { reflector } = await scene({ watchList: false, prepare });
  await expect.poll(() => reflector.status.counters.reconnects.endless).toBe(1);
  expect(reflector.status.counters.pages).toBe(4001);
});

test('pages without new objects are given up, and asked for after a pause', async () => {
  const prepare = ({ world }: Scene): void => endlessPages(world.server, () => '90');
  const made = await scene({ watchList: false, prepare });
  await made.pass(60);
  const { pages, reconnects } = made.reflector.status.counters;
  expect(reconnects.endless).toBeGreaterThan(2);
  expect(pages).toBeLessThanOrEqual(11 * (reconnects.endless + 1));
  made.world.server.faults.before = () => null;
  await made.pass(60);
  expect(made.reflector.status.state).toBe('synced');
  expectSame(made);
});

describe('half-open connections where no ping watches', () => {
  test('are noticed within 45 s', async () => {
    const made = await scene({ pings: false });
    made.delivered();
    await made.pass(10);
    made.watch().freeze();
    made.put('a', '10.0.0.1');
    await made.pass(45);
    expect(made.delivered()[0]).toBe('stale');
    expect(made.reflector.status.counters.reconnects.idle).toBe(1);
    await made.pass(2);
    expectSame(made);
  });

  test('quiet ones are not cut: they end by themselves', async () => {
    const made = await scene({ pings: false });
    await made.pass(1000);
    const { idle, eof } = made.reflector.status.counters.reconnects;
    expect({ idle, some: eof > 20 && eof < 40 }).toEqual({ idle: 0, some: true });
  });
});

test('a request without an answer is given up', async () => {
  const made = await scene({ prepare: ({ world }) => answerNext(world, 'watch', 'hang') });
  await made.pass(44);
  expect(made.delivered()).toEqual(['listing']);
  await made.pass(4);
  expect(made.delivered()).toEqual(first.slice(1));
});

const metadataAt = (version: number) => ({
  ...{ name: 'a', namespace: 'shop', uid: 'a' },
  resourceVersion: String(version),
});

const bookmarkAt = (version: number): string =>
  `${JSON.stringify({ type: 'BOOKMARK', object: { metadata: metadataAt(version) } })}\n`;

test.each<[string, [least: number, most: number], (scene: Scene) => string]>([
  ['nothing', [3, 7], () => ''],
  ['the same bookmark', [3, 7], () => bookmarkAt(102)],
  [
    'a bookmark',
    [3, 7],
    ({ put, world }) => {
      put('a');
      return bookmarkAt(world.server.objects.version());
    },
  ],
  [
    'an object',
    [55, 61],
    ({ put, world }) => {
      put('a');
      const object = { metadata: metadataAt(world.server.objects.version()) };
      return `${JSON.stringify({ type: 'MODIFIED', object })}\n`;
    },
  ],
])('watches that end at once after %s are repeated after a pause', async (_name, within, body) => {
  let count = 0;
  const made = await scene({
    prepare(made) {
      made.world.server.faults.before = ({ verb, request: { query } }) => {
        if (verb !== 'watch' || query.sendInitialEvents !== undefined) return null;
        // No time passes without a pause.
        if (++count > 100) return 'hang';
        return { ...statusAnswer(200, ''), body: bodyOfText(body(made)) };
      };
    },
  });
  made.watch().stream.end();
  await made.pass(60);
  expect(count).toBeGreaterThanOrEqual(within[0]);
  expect(count).toBeLessThanOrEqual(within[1]);
});

test.each([
  ['with changes', true],
  ['without changes', false],
])('watches %s that end after a second are repeated at once', async (_name, hasChanges) => {
  const made = await scene();
  for (let round = 1; round <= 5; round++) {
    if (hasChanges) made.put('a', `10.0.0.${String(round)}`);
    await made.pass(1);
    made.watch().stream.end();
    await made.pass(0);
    expect(made.reflector.status.counters.watches).toBe(round + 1);
  }
});

test.each(
  [429, 503].flatMap((code) => ['0', '0.001', '-1', '1e-9', 'x'].map((text) => [code, text])),
)('%i with Retry-After: %s is answered by the usual pauses', async (code, text) => {
  const answer = statusAnswer(Number(code), 'Busy', '', { 'retry-after': String(text) });
  const made = await scene({
    prepare: ({ world }) => (world.server.faults.before = () => answer),
  });
  await made.pass(600);
  const { length } = made.world.server.asked;
  expect(length).toBeGreaterThan(10);
  expect(length).toBeLessThan(30);
});

test('a watch that never ends is left', async () => {
  const made = await scene();
  made.watch().freeze();
  await made.pass(660);
  expect(made.reflector.status.counters.reconnects.timeout).toBe(1);
});

describe('what a relist finds', () => {
  test('deleted, created, created again; known objects stay until then', async () => {
    const made = await scene();
    made.put('c');
    await made.pass(0);
    made.delivered();
    made.watch().stream.end();
    answerNext(made.world, 'watch', ...Array<Instead>(4).fill(statusAnswer(410, 'Gone')));
    answerNext(made.world, 'list', statusAnswer(500, 'InternalError'), 'reset');
    made.remove('a');
    made.remove('b');
    made.put('b');
    made.put('d');
    made.world.server.objects.compact();
    made.world.server.watchList = false;
    await made.pass(0);
    expect(made.world.store.listers.pods.size).toBe(3);
    await made.pass(20);
    const all = made.delivered().filter((one) => /^(added|deleted|modified|complete)/.test(one));
    const want = ['added d 107 gap', 'deleted a gap', 'deleted b gap', 'added b 106 gap'];
    expect(all.slice(0, -1).sort()).toEqual(want.sort());
    expect(all.at(-1)).toBe('complete');
    expectSame(made);
  });

  test('an uid that changed without a deletion is one deletion more', async () => {
    const made = await scene();
    await made.pass(2);
    made.delivered();
    const { objects } = made.world.server;
    const { after } = objects;
    Object.assign(objects, {
      after: (version: number) => after(version)?.filter(({ type }) => type !== 'DELETED') ?? null,
    });
    made.watch().stream.end();
    made.remove('a');
    made.put('a');
    await made.pass(1);
    expect(made.delivered()).toEqual(['stale', 'synced', 'deleted a gap', 'added a 104 gap']);
  });
});

describe('time never runs backwards', () => {
  test('a list that is too old changes nothing', async () => {
    const made = await scene({ watchList: false });
    made.put('a', '10.0.0.1');
    made.remove('b');
    await made.pass(0);
    made.delivered();
    const { clock, server } = made.world;
    server.faults.lag = { versions: 2, until: clock.now() + 4 };
    made.watch().refuse(statusOf(410, 'Gone'));
    await made.pass(4);
    expect(made.delivered()).toEqual(['relisting']);
    expect(made.reflector.status.counters.reconnects.older).toBeGreaterThan(0);
    await made.pass(10);
    expect(made.delivered()).toEqual(['complete', 'up to 104', 'synced']);
    expectSame(made);
  });

  test.each([true, false])('unless the server has lost history (WatchList %s)', async (by) => {
    const made = await scene({ watchList: by });
    const saved = made.world.server.objects.save();
    made.put('a', '10.0.0.1');
    made.remove('b');
    made.put('c');
    await made.pass(0);
    made.delivered();
    made.world.server.objects.restore(saved);
    made.world.server.reset();
    await made.pass(30);
    expect(made.reflector.status.counters.relists.reset).toBe(1);
    expectSame(made);
    // Versions that the lost history had are news now.
    made.put('b', '10.0.0.2');
    made.put('c');
    made.remove('c');
    await made.pass(0);
    expect(made.delivered().slice(-3)).toEqual(['modified b 103', 'added c 104', 'deleted c']);
    expectSame(made);
  });

  test('a silent watch is asked about, once in five minutes', async () => {
    const made = await scene();
    const saved = made.world.server.objects.save();
    made.put('a', '10.0.0.1');
    await made.pass(0);
    made.world.server.objects.restore(saved); // and the connection stays
    await made.pass(1500);
    expect(made.reflector.status.counters.relists.reset).toBe(1);
    expectSame(made);
    expect(asked(made).filter((one) => one === 'list 1').length).toBeLessThan(4);
  });

  test('events out of order lead to a list', async () => {
    const made = await scene();
    made.delivered();
    made.watch().spoils.push('swapped');
    made.put('c');
    made.put('a', '10.0.0.1');
    await made.pass(5);
    expect(made.reflector.status.counters.relists.disorder).toBe(1);
    expectSame(made);
  });
});

describe('a server that breaks its promises', () => {
  test('two versions of an object in a wrong order lead to a list', async () => {
    const made = await scene();
    made.delivered();
    made.watch().spoils.push('swapped');
    made.put('a', '10.0.0.1');
    made.put('a', '10.0.0.2');
    await made.pass(5);
    expect(made.delivered()).toContain('relisting');
    expect(made.reflector.status.counters.relists.disorder).toBe(1);
    expectSame(made);
  });

  test('an event that was lost is in the next list, which comes less and less often', async () => {
    const made = await scene();
    made.watch().spoils.push('lost', 'lost');
    made.put('a', '10.0.0.1');
    made.remove('b');
    made.put('c');
    await made.pass(100);
    made.delivered();
    made.reflector.relist('shop/a');
    await made.pass(0);
    expect(made.delivered()).toEqual([
      ...['relisting', 'deleted b gap', 'modified a 103 gap', 'complete', 'up to 105', 'synced'],
    ]);
    expect(made.problems).toEqual([
      '/api/v1/pods: shop/a: The watch has lost an event of an object. Listing again',
    ]);
    const lists = async (seconds: number): Promise<number> => {
      const before = made.reflector.status.counters.relists.gap;
      for (let left = seconds; left > 0; left--) {
        made.reflector.relist('shop/a');
        await made.pass(1);
      }
      return made.reflector.status.counters.relists.gap - before;
    };
    expect([await lists(59), await lists(2), await lists(118)]).toEqual([0, 1, 0]);
    expect(await lists(20 * 3600)).toBeLessThan(30);
    expect(made.reflector.status.state).toBe('synced');
  });

  test.each([
    ['is silent', () => undefined],
    ['ends', ({ watch }: Scene) => watch().stream.end()],
    [
      'goes on with events',
      ({ world, put, reflector }: Scene) => {
        const again = (): void => {
          if (reflector.status.state === 'synced') return;
          put('a');
          world.clock.after(20, again);
        };
        again();
      },
    ],
  ])('a WatchList without its end that %s is followed by pages', async (_name, act) => {
    const made = await scene({
      prepare: ({ world }) => (world.server.faults.initialEnd = 'missing'),
    });
    expect(made.reflector.status.state).toBe('listing');
    act(made);
    await made.pass(125);
    expect(made.reflector.status.state).toBe('synced');
    expect(made.reflector.status.counters.reconnects.endless).toBe(1);
    expect(made.problems).toEqual(['/api/v1/pods: A WatchList did not end. Listing in pages']);
    expectSame(made);
    const isInitial = (): boolean => asked(made).at(-1)?.endsWith('true') === true;
    const relist = async (): Promise<void> => {
      made.watch().refuse(statusOf(410, 'Expired'));
      await made.pass(3);
    };
    await relist();
    expect(isInitial()).toBe(false);
    made.world.server.faults.initialEnd = 'once';
    await made.pass(600);
    await relist();
    expect(isInitial()).toBe(true);
  });

  test.each(['low', 'twice'] as const)(
    'an end of a WatchList that comes %s is harmless',
    async (end) => {
      const made = await scene({ prepare: ({ world }) => (world.server.faults.initialEnd = end) });
      expect(made.delivered()).toEqual(first);
      made.put('a', '10.0.0.1');
      await made.pass(0);
      expect(made.delivered()).toEqual(['modified a 103']);
      expect(made.reflector.status.state).toBe('synced');
    },
  );

  test('a watch that sends nothing is left, and the resource is listed again', async () => {
    const made = await scene({ prepare: ({ world }) => (world.server.bookmarkEvery = 60) });
    await made.pass(60);
    made.delivered();
    made.watch().freeze();
    made.put('a', '10.0.0.1');
    await made.pass(129);
    expect(made.delivered()).toEqual([]);
    await made.pass(4);
    expect(made.delivered()).toEqual([
      ...['relisting', 'modified a 103 gap', 'complete', 'up to 103', 'synced'],
    ]);
    expect(made.reflector.status.counters.relists.starved).toBe(1);
  });

  test('a watch that sends nothing is kept where the server sends no bookmarks', async () => {
    const made = await scene();
    made.delivered();
    await made.pass(299);
    expect(made.delivered()).toEqual([]);
  });
});

describe('permissions', () => {
  const forbid = (world: World, ...what: string[]) => {
    for (const one of what) world.server.faults.forbidden.add(one);
  };

  test('one that is missing is named once, with what works without it', async () => {
    const made = await scene({
      prepare({ world }) {
        world.server.watchList = false;
        forbid(world, 'watch pods');
      },
    });
    await made.pass(300);
    expect(made.reflector.status.state).toBe('off');
    expect(made.problems).toEqual([
      '/api/v1/pods: Not allowed to watch pods: ' +
        'Without it only EndpointSlices mirrored from Endpoints are audited: ' +
        '"pods is forbidden: User \\"auditor\\" cannot watch resource \\"pods\\""',
    ]);
    // Three attempts, and one a minute at most.
    expect(asked(made).length).toBeLessThan(12);
    made.world.server.faults.forbidden.clear();
    await made.pass(91);
    expect(made.reflector.status.state).toBe('synced');
    expectSame(made);
  });

  test('to list is not needed where the watch sends what there is', async () => {
    const made = await scene({ prepare: ({ world }) => forbid(world, 'list pods') });
    made.watch().stream.fail(new Error('reset'));
    await made.pass(3);
    expect(made.reflector.status.state).toBe('synced');
    expect(made.problems).toEqual([]);
  });

  test('a server that has just started and refuses for a moment is believed later', async () => {
    const made = await scene();
    made.delivered();
    made.watch().stream.end();
    answerNext(made.world, 'watch', statusAnswer(403, 'Forbidden'), statusAnswer(403, 'Forbidden'));
    await made.pass(6);
    expect(made.delivered()).toEqual(['stale', 'synced']);
    expect(made.problems).toEqual([]);
  });
});

describe('frames that cannot be decoded', () => {
  test('are passed over the second time, and counted', async () => {
    const made = await scene();
    made.delivered();
    const { faults: server } = made.world.server;
    server.chunks = (bytes) => [
      Buffer.from(Buffer.from(bytes).toString().replace('{"ip":"6', '{')),
    ];
    made.put('a', '6.6.6.6');
    made.put('b', '10.0.0.1');
    await made.pass(10);
    expect(made.delivered()).toEqual(['stale', 'synced', 'unreadable a', 'modified b 104']);
    expect(made.reflector.status.counters).toMatchObject({
      badFrames: 2,
      reconnects: { frame: 1 },
    });
    expect(made.problems[1]).toContain('/api/v1/pods: Pod shop/a: Expected a watch event');
  });

  test.each([true, false])('of a new list are no deleted objects, watchList %s', async (list) => {
    const made = await scene({
      prepare: ({ world }) => {
        world.server.watchList = list;
      },
    });
    made.put('a', '6.6.6.6');
    made.put('b', '10.0.0.1');
    await made.pass(1);
    made.delivered();
    const { faults: server } = made.world.server;
    server.chunks = (bytes) => [
      Buffer.from(Buffer.from(bytes).toString().replaceAll('{"ip":"6.6.6.6"}', '{6}')),
    ];
    made.watch().refuse(statusOf(410, 'Gone'));
    await made.pass(60);
    const delivered = made.delivered();
    expect(delivered).toContain('unreadable a');
    expect(delivered.filter((text) => text.startsWith('deleted'))).toEqual([]);
  });

  const lostIn = (entries: readonly LiveEntry[]): string[] =>
    entries.flatMap((entry) =>
      entry.kind === 'unreadable' ? `${entry.type ?? '?'} ${entry.lost.name ?? '?'}` : [],
    );

  test.each([true, false])('a list lacks one of them: it is gone, watchList %s', async (list) => {
    const made = await scene({
      prepare: ({ world }) => {
        world.server.watchList = list;
      },
    });
    const { objects } = made.world.server;
    for (const name of ['x', 'y']) {
      const metadata = { name, namespace: 'shop' };
      objects.put('pods', { metadata, spec: { hostNetwork: 'yes' } });
    }
    await made.pass(1);
    made.watch().refuse(statusOf(410, 'Gone'));
    made.remove('x');
    await made.pass(60);
    expect(lostIn(made.world.entries)).toEqual(['added x', 'added y', 'added y', 'deleted x']);
    expect(made.reflector.status.state).toBe('synced');
  });

  test.each([true, false])('the only one is gone in a new list, watchList %s', async (list) => {
    const made = await scene({
      prepare: ({ world, remove }) => {
        world.server.watchList = list;
        remove('a');
        remove('b');
      },
    });
    const metadata = { name: 'x', namespace: 'shop' };
    made.world.server.objects.put('pods', { metadata, spec: { hostNetwork: 'yes' } });
    await made.pass(1);
    made.watch().refuse(statusOf(410, 'Gone'));
    made.remove('x');
    await made.pass(60);
    expect(lostIn(made.world.entries)).toEqual(['added x', 'deleted x']);
  });

  test('objects that cannot be read are lost, and the next is read', async () => {
    const made = await scene();
    made.delivered();
    const metadata = { name: 'a', namespace: 'shop' };
    made.world.server.objects.put('pods', { metadata, spec: { hostNetwork: 'yes' } });
    made.put('b', '10.0.0.1');
    await made.pass(0);
    expect(made.delivered()).toEqual(['unreadable a', 'modified b 104']);
    expect(made.reflector.status.counters).toMatchObject({ unreadable: 1, badFrames: 0 });
  });
});

test('a batch that is not taken ends the reflector', async () => {
  const world = createWorld();
  const reflector = createReflector({
    resource: 'pods',
    namespace: null,
    environment: world.environment,
    held: world.held('pods'),
    deliver: () => Promise.reject(new Error('full')),
    onProblem: () => undefined,
    enterGate: createGate(),
    watchList: true,
    raw: false,
    onLost: () => undefined,
    connection: createConnectionState(
      () => 0,
      () => undefined,
    ),
  });
  await expect(reflector.run(new AbortController().signal)).rejects.toThrow('not taken');
});

test('random lives, and all that can go wrong in them', async () => {
  const sums = new Map<string, number>();
  for (let seed = 0; seed < 400; seed++) {
    const { violations, counters } = await runSeed(seed);
    expect({ seed, violations }).toEqual({ seed, violations: [] });
    for (const one of counters.values()) addCounters(sums, one);
  }
  // What never happened was not tested; frames that stay bad and 410 Gone have tests of their own.
  const never = [...sums].filter(([, sum]) => sum === 0).map(([name]) => name);
  const broken = ['relists.gap', 'relists.starved', 'reconnects.endless'];
  expect(never).toEqual(['unreadable', 'relists.gone', ...broken]);
});

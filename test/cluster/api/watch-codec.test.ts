import { describe, expect, test } from 'vitest';

import { acceptOf, codecOf } from '../../../src/cluster/api/watch-codec.ts';
import type { Frame } from '../../../src/cluster/decode/frame.ts';
import { jsonBytes } from '../../../src/cluster/decode/json-objects.ts';
import type { Resource } from '../../../src/model/objects.ts';
import { chunks } from '../../build.ts';

const type = 'application/json';
const slices = 'endpointslices';
const protobuf = 'application/vnd.kubernetes.protobuf';

async function framesOf(
  verb: 'list' | 'watch',
  content: string,
  resource: Resource = 'pods',
  size = 7,
  raw = false,
): Promise<Frame[]> {
  const codec = codecOf(type);
  if (codec === null) throw new Error('No codec');
  const reading = { resource, now: () => 5, previousPod: () => undefined, raw };
  const frames: Frame[] = [];
  for await (const batch of codec[verb](chunks(Buffer.from(content), [size]), reading)) {
    frames.push(...batch);
  }
  return frames;
}

function brief(frame: Frame): string {
  switch (frame.kind) {
    case 'object': {
      const { projection, type: change, version } = frame;
      const { problem } = projection;
      const name =
        problem === undefined ? projection.object.key : `unreadable ${problem.lost.name}`;
      return `${change} ${name} ${version}`;
    }
    case 'bookmark':
      return `bookmark ${frame.version}${frame.initialEnd ? ' end' : ''}`;
    case 'page':
      return `page ${frame.version} ${frame.next}${frame.isOther ? ' of another kind' : ''}`;
    case 'status':
      return `status ${frame.status.code} ${frame.status.reason}`;
    case 'bad':
      return `bad ${frame.message}: ${frame.lost.name ?? '?'}${frame.cut ? ' cut' : ''}`;
  }
}

const metadata = { name: 'web-1', namespace: 'shop', uid: 'u', resourceVersion: '7' };
const line = (kind: string, object: unknown) => `${JSON.stringify({ type: kind, object })}\n`;

test.each(['watch', 'list'] as const)('of a %s, an object over 16 MiB is lost', async (verb) => {
  const name = `"${'x'.repeat(17 * 1024 * 1024)}"`;
  const text =
    verb === 'watch'
      ? `{"type":"ADDED","object":${name}}\n`
      : `{"kind":"PodList","items":[${name}]}`;
  const frames = await framesOf(verb, text, 'pods', 1024 * 1024);
  expect(frames.map(brief)[0]).toMatch(/^bad (Event|Item) too long/);
});

describe('a watch', () => {
  const end = { annotations: { 'k8s.io/initial-events-end': 'true' }, resourceVersion: '9' };
  test.each([
    ['an object', line('ADDED', { metadata }), ['added shop/web-1 7']],
    ['a change', line('MODIFIED', { metadata }), ['modified shop/web-1 7']],
    ['a deletion', line('DELETED', { metadata }), ['deleted shop/web-1 7']],
    ['a bookmark', line('BOOKMARK', { metadata: { resourceVersion: '8' } }), ['bookmark 8']],
    ['the end of initial events', line('BOOKMARK', { metadata: end }), ['bookmark 9 end']],
    ['a status', line('ERROR', { code: 410, reason: 'Expired' }), ['status 410 Expired']],
    ['an unreadable object', line('ADDED', { metadata, spec: 7 }), ['added unreadable web-1 7']],
    ['an unknown type', line('PATCHED', { metadata }), ['bad Expected a watch event: web-1']],
    [
      'an object of another kind',
      line('ADDED', { kind: 'Service', metadata }),
      ['bad Expected a watch event: web-1'],
    ],
    [
      'an object of another group',
      line('ADDED', { apiVersion: 'example.org/v1', kind: 'Pod', metadata }),
      ['bad Expected a watch event: web-1'],
    ],
    ['no object', '7\n', ['bad Expected a watch event: ?']],
    ['no JSON', '{"type"\n', ['bad Expected a watch event: ?']],
    [
      'half a line',
      line('ADDED', { metadata }).slice(0, 60),
      ['bad Expected a watch event: ? cut'],
    ],
    ['blank lines', '\n\n', []],
    [
      'the next one after a bad one',
      `x\n${line('ADDED', { metadata })}`,
      ['bad Expected a watch event: ?', 'added shop/web-1 7'],
    ],
  ])('%s', async (_name, content, want) => {
    expect((await framesOf('watch', content)).map(brief)).toEqual(want);
    expect((await framesOf('watch', content, 'pods', 1)).map(brief)).toEqual(want);
  });

  test('nothing is decoded before it is asked for', async () => {
    const codec = codecOf(type);
    const previousPod = () => undefined;
    const reading = { resource: 'pods', now: () => 5, previousPod, raw: false } as const;
    const content = Buffer.from(line('ADDED', { metadata }).repeat(3));
    const batches = codec?.watch(chunks(content), reading)[Symbol.asyncIterator]();
    const batch = await batches?.next();
    const frames = (batch?.value as Iterable<Frame> | undefined)?.[Symbol.iterator]();
    expect(frames?.next().done).toBe(false);
  });
});

describe('a list', () => {
  const list = (meta: object, ...items: unknown[]) =>
    JSON.stringify({ kind: 'PodList', apiVersion: 'v1', metadata: meta, items });
  const version = { resourceVersion: '9' };
  const more = { ...version, continue: 'there' };
  test.each([
    ['its items', list(more, { metadata }), ['added shop/web-1 7', 'page 9 there']],
    ['none', list(version), ['page 9 ']],
    ['null', '{"metadata":{"resourceVersion":"9"},"items":null}', ['page 9 ']],
    ['an item that is none', list(version, 7), ['added unreadable null ', 'page 9 ']],
    [
      'cut off',
      list(version, { metadata }).slice(0, -1),
      ['added shop/web-1 7', 'bad Unexpected end of list: ? cut'],
    ],
    ['something else', '{"kind":"Status"}', ['page   of another kind']],
    [
      'its items before its kind',
      JSON.stringify({ items: [{ metadata }], kind: 'PodList', metadata: version }),
      ['page 9 ', 'added shop/web-1 7'],
    ],
    [
      'items with their kind',
      JSON.stringify({ items: [{ kind: 'Pod', metadata }], metadata: version }),
      ['added shop/web-1 7', 'page 9 '],
    ],
    ['no JSON', 'busy', ['bad Expected a list: ?']],
    ['items alone', JSON.stringify({ items: [{ metadata }] }), ['bad Expected a list: ?']],
    ['nothing', '', []],
  ])('%s', async (_name, content, want) => {
    expect((await framesOf('list', content)).map(brief)).toEqual(want);
  });
});

test('items without a kind wait for that of their list for at most 16 MiB', async () => {
  const item = `{"metadata":{"name":"${'x'.repeat(9 * 1024 * 1024)}"}}`;
  const reading = framesOf('list', `{"items":[${item},${item},${item}]}`, 'pods', 1024 * 1024);
  expect((await reading).slice(0, 3).map(({ kind }) => kind)).toEqual([
    'object',
    'object',
    'object',
  ]);
});

describe('the size of an object as JSON', () => {
  const managedFields = [
    { manager: 'kubelet', fieldsV1: { 'f:metadata': { 'k:{"ip":"1"}': {} } } },
  ];
  const raws = [
    { kind: 'Endpoints', metadata, subsets: [{ addresses: [{ ip: '10.0.0.1' }] }] },
    { kind: 'Endpoints', metadata: { ...metadata, managedFields }, subsets: [] },
    { kind: 'Endpoints', metadata: { ...metadata, labels: { a: 'ü' }, managedFields } },
  ];
  test.each(raws)('%#: excludes managedFields', async (raw) => {
    const list = JSON.stringify({ metadata: { resourceVersion: '9' }, items: [raw] });
    const spaced = JSON.stringify({ type: 'ADDED', object: raw }).replace('{"type"', '{ "type"');
    for (const isRaw of [false, true]) {
      for (const frames of [
        await framesOf('watch', line('ADDED', raw), 'endpoints', 7, isRaw),
        await framesOf('watch', `${spaced}\n`, 'endpoints', 7, isRaw),
        await framesOf('list', list, 'endpoints', 7, isRaw),
      ]) {
        const [frame] = frames;
        expect(frame).toMatchObject({ projection: { object: { bytes: jsonBytes(raw) } } });
        expect(frame?.kind === 'object' && frame.raw).toEqual(isRaw ? raw : undefined);
      }
    }
  });
});

describe('managedFields do not change how an object is decoded', () => {
  const entry = { manager: 'kubelet', fieldsV1: { 'f:metadata': { 'k:{"ip":"1"}': {} } } };
  test.each([
    ['a list of entries', [entry, entry]],
    ['an empty list', []],
    ['a bracket in a string', [{ ...entry, fieldsV1: { 'v:"a]"': {}, 'k:{"b":"]}"}': {} } }]],
    ['a bracket at the end of a string', [{ manager: 'a}]', operation: ',' }]],
    ['a list in an entry', [{ list: [{ list: [1] }], ...entry }]],
    ['entries that are lists', [entry, [entry, []]]],
    ['null', null],
  ])('%s', async (_name, managedFields) => {
    const owners = [{ apiVersion: 'v1', kind: 'Service', name: 'web', uid: 's', controller: true }];
    const labels = { 'kubernetes.io/service-name': '"managedFields":[{' };
    const rest = { addressType: 'IPv4', endpoints: [{ addresses: ['10.0.0.1'] }] };
    const bare = { ...metadata, labels, ownerReferences: owners };
    const want = await framesOf('watch', line('ADDED', { metadata: bare, ...rest }), slices);
    for (const meta of [
      { ...metadata, labels, managedFields, ownerReferences: owners },
      { managedFields, ...bare },
    ]) {
      const raw = { metadata: meta, ...rest };
      expect(await framesOf('watch', line('ADDED', raw), slices)).toEqual(want);
      const kind = 'EndpointSliceList';
      const list = JSON.stringify({ kind, metadata: { resourceVersion: '9' }, items: [raw] });
      expect((await framesOf('list', list, slices)).slice(0, 1)).toEqual(want);
    }
  });
});

test('codecs are chosen by media type', () => {
  expect(codecOf('application/json')?.mediaType).toBe('application/json');
  expect(codecOf('Application/JSON;stream=watch')).toBe(codecOf('application/json'));
  expect([codecOf('text/html'), codecOf(undefined)]).toEqual([null, null]);
  expect(codecOf(`${protobuf};stream=watch`)?.mediaType).toBe(protobuf);
});

test.each([
  ['list', false, `${protobuf}, ${type}`],
  ['watch', false, `${protobuf};stream=watch, ${type};stream=watch`],
  ['list', true, type],
  ['watch', true, `${type};stream=watch`],
] as const)('what is accepted of a %s, raw: %o', (verb, raw, want) => {
  expect(acceptOf(verb, raw)).toBe(want);
});

test.each([
  ['{"code":429,"message":"busy"}', 429, 'busy'],
  ['{"message":"busy"}', 503, 'busy'],
  ['[]', null, null],
  ['no JSON', null, null],
])('the refusal %s', (content, code, message) => {
  const status = codecOf(type)?.status(Buffer.from(content), 503);
  expect([status?.code ?? null, status?.message ?? null]).toEqual([code, message]);
});

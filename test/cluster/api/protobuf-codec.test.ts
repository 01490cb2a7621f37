import { describe, expect, test } from 'vitest';

import type { Codec, Frame } from '../../../src/cluster/api/frame.ts';
import { protobufCodec } from '../../../src/cluster/api/protobuf-codec.ts';
import { codecOf } from '../../../src/cluster/api/watch-codec.ts';
import type { Resource } from '../../../src/model/objects.ts';
import { resources } from '../../../src/model/objects.ts';
import { chunks } from '../../build.ts';
import type { Answer, Raw } from '../../protobuf/fixtures.ts';
import { answers } from '../../protobuf/fixtures.ts';

const all = answers();
const json = codecOf('application/json');
if (json === null) throw new Error('Expected a codec');

async function framesOf(
  codec: Codec,
  verb: 'list' | 'watch',
  resource: Resource,
  content: Uint8Array,
  size = 1000,
): Promise<Frame[]> {
  const reading = { resource, now: () => 5, previousPod: () => undefined, raw: false };
  const frames: Frame[] = [];
  for await (const batch of codec[verb](chunks(content, [size]), reading)) frames.push(...batch);
  return frames;
}

/** The frames without the size of objects, which differs between JSON and protobuf. */
const unsized = (frames: readonly Frame[]): unknown =>
  JSON.parse(JSON.stringify(frames, (name, value: unknown) => (name === 'bytes' ? 0 : value)));

const pages = (resource: Resource): Answer[] =>
  all.filter((answer) => answer.items !== null && answer.resource === resource);

/** Frames of one resource, and those that any may have. */
const watched = (resource: Resource): Answer[] =>
  all.filter((answer) => answer.items === null && (answer.resource ?? resource) === resource);

const bodyOf = (of: readonly Answer[]): Buffer => Buffer.concat(of.map((one) => one.protobuf));

const codeOf = ({ json }: Answer): unknown => (json.object as Raw).code;

describe('frames are those of the same answers in JSON', () => {
  test.each(resources)('lists of %s', async (resource) => {
    const [page] = pages(resource);
    if (page === undefined) throw new Error('Expected a page');
    const want = await framesOf(json, 'list', resource, Buffer.from(JSON.stringify(page.json)));
    expect(want.at(-1)?.kind).toBe('page');
    const found = await framesOf(protobufCodec, 'list', resource, page.protobuf);
    expect(unsized(found)).toEqual(unsized(want));
  });

  test.each(resources)('watches of %s', async (resource) => {
    const of = watched(resource);
    const text = of.map((answer) => `${JSON.stringify(answer.json)}\n`).join('');
    const want = await framesOf(json, 'watch', resource, Buffer.from(text));
    expect(new Set(want.map(({ kind }) => kind))).toEqual(
      new Set(['object', 'bookmark', 'status']),
    );
    const found = await framesOf(protobufCodec, 'watch', resource, bodyOf(of));
    expect(unsized(found)).toEqual(unsized(want));
  });
});

/** A field that holds at most 127 bytes. */
function part(number: number, content: string | Buffer): Buffer {
  const bytes = Buffer.from(content);
  return Buffer.concat([Buffer.from([(number << 3) | 2, bytes.length]), bytes]);
}

function brief(frame: Frame): string {
  if (frame.kind === 'bad') return `bad ${frame.message}${frame.cut ? ' cut' : ''}`;
  return frame.kind === 'object' ? `${frame.type} ${frame.version}` : frame.kind;
}

describe('what cannot be read', () => {
  const [one, two] = watched('services').filter(({ resource }) => resource !== null);
  if (one === undefined || two === undefined) throw new Error('Expected two frames');
  const versionOf = ({ json }: Answer): string =>
    ((json.object as Raw).metadata as { resourceVersion: string }).resourceVersion;
  const told = (answer: Answer): string =>
    `${String(answer.json.type).toLowerCase()} ${versionOf(answer)}`;
  const noise = Buffer.from([0, 0, 0, 3, 0x0a, 0x7f, 0x41]);
  const endless = Buffer.alloc(4, 0xff);
  test.each([
    ['nothing', [], []],
    [
      'half a frame',
      [one.protobuf.subarray(0, 60)],
      ['bad Expected more: the answer ended early cut'],
    ],
    [
      'a frame that means nothing: the next is read',
      [noise, one.protobuf],
      ['bad Expected as many bytes as the length says', told(one)],
    ],
    [
      'a length that cannot be: nothing more is read',
      [one.protobuf, endless, two.protobuf],
      [told(one), 'bad Expected a length cut'],
    ],
    ['no protobuf', [Buffer.from('{"type":"ADDED"}')], ['bad Expected a length cut']],
  ] as const)('of a watch: %s', async (_name, parts, want) => {
    const content = Buffer.concat(parts);
    const frames = await framesOf(protobufCodec, 'watch', 'services', content, 7);
    expect(frames.map(brief)).toEqual(want);
  });

  const page = pages('nodes')[0]?.protobuf ?? Buffer.alloc(0);
  const items = Array.from({ length: pages('nodes')[0]?.items?.length ?? 0 }, () => /^added/);
  const nameless = Buffer.from('k8s\0\x0a\x00\x12\x00', 'latin1');
  test.each([
    ['nothing', Buffer.alloc(0), [/ended early cut$/]],
    ['cut off', page.subarray(0, -6), [...items.slice(1), /ended early cut$/]],
    ['JSON', Buffer.from('{"kind":"NodeList"}'), [/^bad Expected the prefix of protobuf cut$/]],
    ['without a version', nameless, [/^bad Expected a list$/]],
  ] as const)('of a list: %s', async (_name, content, want) => {
    const frames = (await framesOf(protobufCodec, 'list', 'nodes', content)).map(brief);
    expect(frames).toHaveLength(want.length);
    for (const [index, form] of want.entries()) expect(frames[index]).toMatch(form);
  });

  test('the version of a change is reported anyway', async () => {
    // A Service without a name.
    const object = part(1, part(6, '77'));
    const type = Buffer.concat([part(1, 'v1'), part(2, 'Service')]);
    const unknown = Buffer.concat([Buffer.from('k8s\0'), part(1, type), part(2, object)]);
    const event = Buffer.concat([part(1, 'ADDED'), part(2, part(1, unknown))]);
    const bytes = Buffer.concat([Buffer.from([0, 0, 0, event.length]), event]);
    const frames = await framesOf(protobufCodec, 'watch', 'services', bytes);
    expect(frames).toMatchObject([{ projection: { problem: {} }, version: '77' }]);
  });
});

describe('a refusal', () => {
  const refusal = watched('services').find((answer) => codeOf(answer) === 429);
  const frame = refusal?.protobuf ?? Buffer.alloc(0);
  const body = frame.subarray(frame.indexOf('k8s\0'));

  test('is a Status', () => {
    expect(protobufCodec.status(body, 503)).toEqual({
      code: 429,
      reason: 'TooManyRequests',
      message: '',
      retryAfter: 7,
      causes: ['x'],
    });
  });

  test('or is none', () => {
    expect(protobufCodec.status(Buffer.from('busy'), 503)).toBeNull();
  });
});

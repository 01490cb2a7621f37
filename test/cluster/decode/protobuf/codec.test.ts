import { fc, test as property } from '@fast-check/vitest';
import { describe, expect, test } from 'vitest';

import { codecOf } from '../../../../src/cluster/api/watch-codec.ts';
import type { Codec, DecodeContext, Frame } from '../../../../src/cluster/decode/frame.ts';
import type { Projection } from '../../../../src/cluster/decode/json-objects.ts';
import { project } from '../../../../src/cluster/decode/json-objects.ts';
import { protobufCodec } from '../../../../src/cluster/decode/protobuf/codec.ts';
import type { Resource } from '../../../../src/model/objects.ts';
import { isOutput, resources } from '../../../../src/model/objects.ts';
import { chunks } from '../../../build.ts';
import type { Answer, Raw } from '../../../protobuf/fixtures.ts';
import { answers, itemSizes, messages } from '../../../protobuf/fixtures.ts';

const at = 1_795_258_544.5;
const all = answers();
const pages = all.filter(({ items }) => items !== null);
const frames = all.filter(({ items }) => items === null);

/** The model object of the JSON, with the size of the message. */
const projected = (resource: Resource, raw: unknown, size: number): Projection<Resource> =>
  project(resource, raw, at, { bytes: isOutput(resource) ? size : null });

const resourceOf = ({ resource }: Answer): Resource => resource ?? 'pods';

type Body = AsyncIterable<Uint8Array>;

const contextOf = (resource: Resource): DecodeContext => ({
  resource,
  now: () => at,
  previousPod: () => undefined,
  raw: false,
});

/** The frames of a body, each batch before the next chunk. */
async function framesOf(
  verb: 'list' | 'watch',
  resource: Resource,
  body: Body,
  codec: Codec = protobufCodec,
): Promise<Frame[]> {
  const frames: Frame[] = [];
  for await (const batch of codec[verb](body, contextOf(resource))) frames.push(...batch);
  return frames;
}

const listOf = (resource: Resource, bytes: Buffer, lengths = [bytes.length]): Promise<Frame[]> =>
  framesOf('list', resource, chunks(bytes, lengths));

const watchOf = (resource: Resource, bytes: Buffer, lengths = [bytes.length]): Promise<Frame[]> =>
  framesOf('watch', resource, chunks(bytes, lengths));

function brief(frame: Frame | undefined): string {
  if (frame?.kind === 'bad') return `bad ${frame.message}${frame.cut ? ' cut' : ''}`;
  return frame?.kind === 'object' ? `${frame.type} ${frame.version}` : (frame?.kind ?? 'none');
}

const page = (of: Resource, count: number): Answer => {
  const found = pages.find(({ resource, items }) => resource === of && items?.length === count);
  if (found === undefined) throw new Error(`Expected a page of ${count} ${of}`);
  return found;
};

const sizes = fc.array(fc.integer({ min: 1, max: 3000 }), { minLength: 1, maxLength: 20 });

describe('a list', () => {
  const noList: unknown = expect.objectContaining({ kind: 'bad', message: 'Expected a list' });

  test.each(pages.map((page) => [page.json.kind, page.items?.length, page] as const))(
    '%s of %i',
    async (_kind, _count, answer) => {
      const { json, protobuf, items } = answer;
      const resource = resourceOf(answer);
      const sizes = itemSizes(answer);
      const metadata = json.metadata as { resourceVersion?: string; continue?: string };
      const { resourceVersion: version = '', continue: next = '' } = metadata;
      expect(await listOf(resource, protobuf)).toEqual([
        ...(items ?? []).map((raw, index) => ({
          kind: 'object',
          type: 'added',
          projection: projected(resource, raw, sizes[index] ?? 0),
          version: (raw.metadata as { resourceVersion?: string }).resourceVersion ?? '',
        })),
        version === '' ? noList : { kind: 'page', isOther: false, version, next },
      ]);
    },
  );

  test('of another kind is refused before its items', async () => {
    const [frame] = await listOf('pods', page('nodes', 9).protobuf);
    expect(frame).toMatchObject({ kind: 'page', isOther: true });
  });

  const slices = page('endpointslices', 31);
  const whole = listOf('endpointslices', slices.protobuf);

  property.prop([sizes], { numRuns: 50 })('in chunks that end anywhere', async (sizes) => {
    expect(await listOf('endpointslices', slices.protobuf, sizes)).toEqual(await whole);
  });

  test('delivers an item as soon as it is there', async () => {
    const body = chunks(slices.protobuf, [100]);
    const counts: number[] = [];
    for await (const batch of protobufCodec.list(body, contextOf('endpointslices'))) {
      counts.push([...batch].length);
    }
    expect(Math.max(...counts)).toBe(1);
  });

  test('an object has no reference to the bytes of the chunks that were decoded', async () => {
    const copies: Buffer[] = [];
    async function* copied(): Body {
      for await (const chunk of chunks(slices.protobuf, [777])) {
        copies.push(Buffer.from(chunk));
        yield copies.at(-1) ?? chunk;
      }
    }
    const found = await framesOf('list', 'endpointslices', copied());
    for (const copy of copies) copy.fill(0xff);
    expect(found).toEqual(await whole);
  });

  test('a list longer than an item may be', async () => {
    const { protobuf } = page('pods', 1243);
    // Envelope: prefix, type, the tag of raw and its length; then the list itself.
    const type = 6 + (protobuf[5] ?? 0);
    const cursor = lengthAt(protobuf, type + 1);
    const list = protobuf.subarray(cursor.to, cursor.to + cursor.length);
    const times = Math.ceil((65 * 1024 * 1024) / list.length);
    async function* body(): Body {
      await Promise.resolve();
      yield Buffer.concat([protobuf.subarray(0, type + 1), varint(list.length * times)]);
      for (let round = 0; round < times; round++) yield list;
      yield protobuf.subarray(cursor.to + cursor.length);
    }
    let count = 0;
    let last = '';
    for await (const batch of protobufCodec.list(body(), contextOf('pods'))) {
      for (const { kind } of batch) {
        if (kind === 'object') count++;
        last = kind;
      }
    }
    expect([count, last]).toEqual([1243 * times, 'page']);
  });

  test('an item that cannot be read is a problem, and the others are read', async () => {
    const all = await whole;
    const bytes = Buffer.from(slices.protobuf);
    const third = all[3]?.kind === 'object' ? all[3].projection.object : undefined;
    // The tag of the uid, now one that says another wire type.
    bytes[bytes.indexOf(Buffer.from((third?.uid ?? '').slice(0, 8))) - 2] = 0x28;
    const found = await listOf('endpointslices', bytes);
    expect(found[3]).toMatchObject({
      projection: { problem: { object: `EndpointSlice ${third?.key ?? ''}` } },
    });
    expect(found.toSpliced(3, 1)).toEqual(all.toSpliced(3, 1));
  });

  test('decodes nothing before it is asked for', async () => {
    const names: string[] = [];
    const previousPod = (key: string): undefined => void names.push(key);
    const context = { ...contextOf('pods'), previousPod };
    for await (const batch of protobufCodec.list(chunks(page('pods', 1243).protobuf), context)) {
      expect(names).toEqual([]);
      for (const { kind } of batch) if (kind === 'object') break;
      if (names.length > 0) break;
    }
    expect(names).toHaveLength(1);
  });

  test('an answer that ends early', async () => {
    const { protobuf } = page('nodes', 9);
    for (let end = 0; end < protobuf.length - 4; end += 7) {
      const found = await listOf('nodes', protobuf.subarray(0, end));
      expect(brief(found.at(-1))).toBe('bad Expected more: the answer ended early cut');
      expect(found.at(-1)).toMatchObject({ lost: { resource: 'nodes', name: null } });
    }
  });

  test('an answer that is no protobuf: nothing is read behind its beginning', async () => {
    const bytes = Buffer.concat([Buffer.from('{"kind":"NodeList"}'), page('nodes', 9).protobuf]);
    const want = ['bad Expected the prefix of protobuf cut'];
    expect((await listOf('nodes', bytes, [7])).map(brief)).toEqual(want);
  });

  test('a list without a version is none', async () => {
    const nameless = Buffer.from('k8s\0\x0a\x00\x12\x00', 'latin1');
    expect((await listOf('nodes', nameless)).map(brief)).toEqual(['bad Expected a list']);
  });
});

function varint(value: number): Buffer {
  const bytes: number[] = [];
  let left = value;
  for (; left > 127; left = Math.floor(left / 128)) bytes.push((left % 128) | 128);
  return Buffer.from([...bytes, left]);
}

function lengthAt(bytes: Buffer, from: number): { length: number; to: number } {
  let [length, scale, to] = [0, 1, from];
  for (; ; scale *= 128) {
    const byte = bytes[to++] ?? 0;
    length += (byte & 127) * scale;
    if (byte < 128) return { length, to };
  }
}

describe('a watch', () => {
  const watched = (resource: Resource): Answer[] =>
    frames.filter((frame) => (frame.resource ?? resource) === resource).slice(-300);
  const some = watched('services').filter(({ resource }) => resource !== null);
  const bytes = Buffer.concat(some.map(({ protobuf }) => protobuf));
  const whole = watchOf('services', bytes);

  test.each(resources)('objects of %s have the size of their message', async (resource) => {
    const all = watched(resource);
    const found = await watchOf(resource, Buffer.concat(all.map(({ protobuf }) => protobuf)));
    const objects = found.flatMap((frame) => (frame.kind === 'object' ? frame.projection : []));
    expect(objects).toEqual(
      messages(all).map(({ json, bytes }) => projected(resource, json, bytes.length)),
    );
  });

  property.prop([sizes], { numRuns: 50 })('in chunks that end anywhere', async (sizes) => {
    expect(await watchOf('services', bytes, sizes)).toEqual(await whole);
  });

  const [one, two] = some;
  if (one === undefined || two === undefined) throw new Error('Expected two frames');

  test('a frame with prefix and envelope', async () => {
    const event = one.protobuf.subarray(4);
    const type = Buffer.from('\x0a\x10\x0a\x02v1\x12\x0aWatchEvent', 'latin1');
    const raw = [Buffer.from([0x12]), varint(event.length), event];
    const wrapped = Buffer.concat([Buffer.from('k8s\0'), type, ...raw]);
    const length = Buffer.alloc(4);
    length.writeUInt32BE(wrapped.length);
    const found = await watchOf('services', Buffer.concat([length, wrapped]));
    expect(found).toEqual((await whole).slice(0, 1));
  });

  const versionOf = ({ json }: Answer): string =>
    ((json.object as Raw).metadata as { resourceVersion: string }).resourceVersion;
  const change = (answer: Answer): string =>
    `${String(answer.json.type).toLowerCase()} ${versionOf(answer)}`;
  const noise = Buffer.from([0, 0, 0, 3, 0x0a, 0x7f, 0x41]);
  const pod = frames.find(({ resource }) => resource === 'pods')?.protobuf ?? noise;
  test.each([
    ['nothing', [], []],
    [
      'half a frame',
      [one.protobuf.subarray(0, 60)],
      ['bad Expected more: the answer ended early cut'],
    ],
    [
      'a frame of noise: the next is read',
      [noise, one.protobuf],
      ['bad Expected as many bytes as the length says', change(one)],
    ],
    [
      'a frame of another kind: the next is read',
      [pod, one.protobuf],
      ['bad Expected the kind that is watched', change(one)],
    ],
    [
      'a length that cannot be: nothing more is read',
      [one.protobuf, Buffer.alloc(4, 0xff), two.protobuf],
      [change(one), 'bad Expected a length cut'],
    ],
    ['no protobuf', [Buffer.from('{"type":"ADDED"}')], ['bad Expected a length cut']],
  ] as const)('%s', async (_name, parts, want) => {
    expect((await watchOf('services', Buffer.concat(parts), [7])).map(brief)).toEqual(want);
  });

  test('a bad frame has the value, and its object may be any of the resource', async () => {
    const [frame] = await watchOf('services', pod);
    const lost = { resource: 'services', namespace: null, name: null, labels: null };
    expect(frame).toMatchObject({ value: '"Pod"', lost });
  });

  test('an end between frames is none of the watch, within one it is', async () => {
    for (const [index, { protobuf }] of some.slice(0, 3).entries()) {
      const before = Buffer.concat(some.slice(0, index).map(({ protobuf }) => protobuf));
      for (let end = 0; end <= protobuf.length; end += 13) {
        const bytes = Buffer.concat([before, protobuf.subarray(0, end)]);
        const last = (await watchOf('services', bytes)).at(-1)?.kind;
        expect(last === 'bad').toBe(end !== 0 && end !== protobuf.length);
      }
    }
  });

  test('the version of a change is reported if the object cannot be read', async () => {
    // A Service without a name.
    const object = part(1, part(6, '77'));
    const type = Buffer.concat([part(1, 'v1'), part(2, 'Service')]);
    const unknown = Buffer.concat([Buffer.from('k8s\0'), part(1, type), part(2, object)]);
    const event = Buffer.concat([part(1, 'ADDED'), part(2, part(1, unknown))]);
    const bytes = Buffer.concat([Buffer.from([0, 0, 0, event.length]), event]);
    const frames = await watchOf('services', bytes);
    expect(frames).toMatchObject([{ projection: { problem: {} }, version: '77' }]);
  });
});

describe('an object over 16 MiB is lost, and the next is read', () => {
  const long = (field: number, bytes: Buffer): Buffer =>
    Buffer.concat([varint((field << 3) | 2), varint(bytes.length), bytes]);
  const podOf = (name: string, more: Buffer = Buffer.alloc(0)): Buffer => {
    const metadata = Buffer.concat([part(1, name), part(3, 'shop'), part(6, '7'), more]);
    return long(1, metadata);
  };
  const huge = podOf('web-1', long(12, Buffer.alloc(17 * 1024 * 1024)));
  const wrapped = (raw: Buffer, kind = 'Pod'): Buffer => {
    const type = Buffer.concat([part(1, 'v1'), part(2, kind)]);
    return Buffer.concat([Buffer.from('k8s\0'), part(1, type), long(2, raw), part(3, '')]);
  };
  const lost = { resource: 'pods', namespace: 'shop', name: 'web-1', labels: null };

  test.each([[100_000], [64 * 1024 * 1024]])('in a list, in chunks of %i bytes', async (size) => {
    const items = [huge, podOf('web-2'), huge].map((it) => long(2, it));
    const list = wrapped(Buffer.concat([part(1, part(2, '9')), ...items]), 'PodList');
    const found = await listOf('pods', list, [size]);
    expect(found.map(brief)).toEqual(['bad Item too long', 'added 7', 'bad Item too long', 'page']);
    expect(found[0]).toMatchObject({ lost });
  });

  test.each([[100_000], [64 * 1024 * 1024]])('in a watch, in chunks of %i bytes', async (size) => {
    const frames = [huge, podOf('web-2'), huge].map((it) => {
      const event = Buffer.concat([part(1, 'ADDED'), long(2, long(1, wrapped(it)))]);
      const length = Buffer.alloc(4);
      length.writeUInt32BE(event.length);
      return Buffer.concat([length, event]);
    });
    const found = await watchOf('pods', Buffer.concat(frames), [size]);
    expect(found.map(brief)).toEqual(['bad Event too long', 'added 7', 'bad Event too long']);
    expect(found[0]).toMatchObject({ lost });
  });
});

test('an envelope without a list is not kept', async () => {
  const endless = Buffer.concat([
    Buffer.from('k8s\0'),
    Buffer.from([0x1a, 0xff, 0xff, 0xff, 0x7f]),
  ]);
  async function* body(): Body {
    await Promise.resolve();
    yield endless;
    for (let more = 0; more < 100; more++) yield Buffer.alloc(10_000);
    throw new Error('All was read');
  }
  expect((await framesOf('list', 'pods', body())).map(brief)).toEqual([
    'bad Expected a length cut',
  ]);
  async function* fields(): Body {
    await Promise.resolve();
    yield Buffer.from('k8s\0');
    for (let more = 0; more < 100; more++) yield Buffer.alloc(10_000, Buffer.from([0x1a, 0]));
    throw new Error('All was read');
  }
  expect((await framesOf('list', 'pods', fields())).map(brief)).toEqual([
    'bad Expected a length cut',
  ]);
});

test('labels are not known if one of them cannot be read', async () => {
  const label = part(11, Buffer.concat([part(1, 'app'), part(2, 'web')]));
  const broken = part(11, Buffer.from([0x0a, 0x7f]));
  const pod = part(1, Buffer.concat([part(1, 'a'), part(3, 'shop'), label, broken]));
  const list = Buffer.concat([Buffer.from('k8s\0'), part(2, part(2, pod))]);
  const [frame] = await listOf('pods', list);
  const lost = { namespace: 'shop', name: 'a', labels: null };
  expect(frame).toMatchObject({ projection: { problem: { lost } } });
});

/** A field that holds at most 127 bytes. */
function part(number: number, content: string | Buffer): Buffer {
  const bytes = Buffer.from(content);
  return Buffer.concat([Buffer.from([(number << 3) | 2, bytes.length]), bytes]);
}

describe('frames are those of the same answers in JSON', () => {
  const json = codecOf('application/json');
  if (json === null) throw new Error('Expected a codec');

  /** The frames without the size of objects, which differs between JSON and protobuf. */
  const unsized = (frames: readonly Frame[]): unknown =>
    JSON.parse(JSON.stringify(frames, (name, value: unknown) => (name === 'bytes' ? 0 : value)));

  test.each(resources)('lists of %s', async (resource) => {
    const page = pages.find((page) => page.resource === resource);
    if (page === undefined) throw new Error('Expected a page');
    const text = Buffer.from(JSON.stringify(page.json));
    const want = await framesOf('list', resource, chunks(text), json);
    expect(want.at(-1)?.kind).toBe('page');
    expect(unsized(await listOf(resource, page.protobuf))).toEqual(unsized(want));
  });

  test.each(resources)('watches of %s', async (resource) => {
    const watched = frames.filter((answer) => (answer.resource ?? resource) === resource);
    const text = watched.map((answer) => `${JSON.stringify(answer.json)}\n`).join('');
    const want = await framesOf('watch', resource, chunks(Buffer.from(text)), json);
    const kinds = new Set(want.map(({ kind }) => kind));
    expect(kinds).toEqual(new Set(['object', 'bookmark', 'status']));
    const bytes = Buffer.concat(watched.map(({ protobuf }) => protobuf));
    expect(unsized(await watchOf(resource, bytes))).toEqual(unsized(want));
  });
});

describe('the body of a refusal', () => {
  const refusal = frames.find(({ json }) => (json.object as Raw).code === 429);

  test('is a Status', () => {
    const frame = refusal?.protobuf ?? Buffer.alloc(0);
    const body = frame.subarray(frame.indexOf('k8s\0'));
    const said = { code: 429, reason: 'TooManyRequests', message: '' };
    expect(protobufCodec.status(body, 503)).toEqual({ ...said, retryAfter: 7, causes: ['x'] });
  });

  test.each([
    ['nothing', Buffer.alloc(0)],
    ['text', Buffer.from('404 page not found')],
    ['a list', page('nodes', 9).protobuf],
    ['half of one', Buffer.from('k8s\0\x0a\x7f')],
  ])('%s is none', (_, body) => {
    expect(protobufCodec.status(body, 503)).toBeNull();
  });
});

describe('damage', () => {
  const flips = fc.array(fc.tuple(fc.nat(), fc.nat(255)), { minLength: 1, maxLength: 6 });
  const { protobuf } = page('services', 21);
  const watched = Buffer.concat(frames.slice(-60).map(({ protobuf }) => protobuf));

  const damaged = (bytes: Buffer, flips: readonly (readonly [number, number])[]): Buffer => {
    const result = Buffer.from(bytes);
    for (const [at, value] of flips) result[at % result.length] = value;
    return result;
  };

  property.prop([flips, sizes], { numRuns: 500 })(
    'lists are read or refused',
    async (flips, sizes) => {
      for (const frame of await listOf('services', damaged(protobuf, flips), sizes))
        expectFrame(frame);
    },
  );

  property.prop([flips, sizes], { numRuns: 500 })(
    'watches are read or refused',
    async (flips, sizes) => {
      for (const frame of await watchOf('services', damaged(watched, flips), sizes))
        expectFrame(frame);
    },
  );

  function expectFrame(frame: Frame): void {
    if (frame.kind === 'bad') expect(frame.lost.resource).toBe('services');
    if (frame.kind !== 'object') return;
    const { object, problem } = frame.projection;
    if (object === undefined) expect(problem.lost.resource).toBe('services');
    else expect(object.name).not.toBe('');
  }
});

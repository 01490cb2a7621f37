import { fc, test as property } from '@fast-check/vitest';
import { describe, expect, test } from 'vitest';

import type { Projection } from '../../../../src/cluster/decode/json-objects.ts';
import { project } from '../../../../src/cluster/decode/json-objects.ts';
import type { Status, WatchMessage } from '../../../../src/cluster/decode/protobuf/stream.ts';
import {
  createListReader,
  createWatchReader,
  readStatus,
} from '../../../../src/cluster/decode/protobuf/stream.ts';
import type { Resource } from '../../../../src/model/objects.ts';
import { isOutput, resources } from '../../../../src/model/objects.ts';
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

/** The bytes in pieces of these lengths, which are used again and again. */
function* pieces(bytes: Buffer, lengths: readonly number[]): Generator<Buffer> {
  let from = 0;
  for (let index = 0; from < bytes.length; index++) {
    const to = from + (lengths[index % lengths.length] ?? 1);
    yield Buffer.from(bytes.subarray(from, to));
    from = to;
  }
}

const page = (of: Resource, count: number): Answer => {
  const found = pages.find(({ resource, items }) => resource === of && items?.length === count);
  if (found === undefined) throw new Error(`Expected a page of ${count} ${of}`);
  return found;
};

const sizes = fc.array(fc.integer({ min: 1, max: 3000 }), { minLength: 1, maxLength: 20 });

describe('createListReader', () => {
  test.each(pages.map((page) => [page.json.kind, page.items?.length, page] as const))(
    '%s of %i',
    (_kind, _count, answer) => {
      const { json, protobuf, items } = answer;
      const resource = resourceOf(answer);
      const sizes = itemSizes(answer);
      const reader = createListReader(resource);
      expect([...reader.read(protobuf, at)]).toEqual(
        items?.map((raw, index) => projected(resource, raw, sizes[index] ?? 0)),
      );
      expect(reader.end()).toBeNull();
      const metadata = json.metadata as { resourceVersion?: string; continue?: string };
      expect(reader.resourceVersion()).toBe(metadata.resourceVersion ?? '');
      expect(reader.continueToken()).toBe(metadata.continue ?? '');
    },
  );

  const slices = page('endpointslices', 31);
  const whole = [...createListReader('endpointslices').read(slices.protobuf, at)];

  property.prop([sizes], { numRuns: 50 })('in chunks that end anywhere', (sizes) => {
    const reader = createListReader('endpointslices');
    const found = [...pieces(slices.protobuf, sizes)].flatMap((chunk) => [
      ...reader.read(chunk, at),
    ]);
    expect(found).toEqual(whole);
    expect(reader.end()).toBeNull();
  });

  test('delivers an item as soon as it is there, and the version before it', () => {
    const reader = createListReader('endpointslices');
    let delivered = 0;
    let waiting = 0;
    for (const chunk of pieces(slices.protobuf, [100])) {
      const items = [...reader.read(chunk, at)];
      if (items.length > 0) expect(reader.resourceVersion()).toBe('11111');
      delivered += items.length;
      waiting = Math.max(waiting, items.length);
    }
    expect(delivered).toBe(31);
    expect(waiting).toBe(1);
  });

  test('a chunk may be used again after it was read', () => {
    const reader = createListReader('endpointslices');
    const found = [...pieces(slices.protobuf, [777])].flatMap((chunk) => {
      const items = [...reader.read(chunk, at)];
      chunk.fill(0xff);
      return items;
    });
    expect(found).toEqual(whole);
  });

  test('a list longer than an item may be', () => {
    const { protobuf } = page('pods', 1243);
    // Envelope: prefix, type, the tag of raw and its length; then the list itself.
    const type = 6 + (protobuf[5] ?? 0);
    const cursor = lengthAt(protobuf, type + 1);
    const list = protobuf.subarray(cursor.to, cursor.to + cursor.length);
    const times = Math.ceil((65 * 1024 * 1024) / list.length);
    const length = varint(list.length * times);
    const reader = createListReader('pods');
    let count = 0;
    const take = (chunk: Buffer): void => {
      count += [...reader.read(chunk, at)].length;
    };
    take(Buffer.concat([protobuf.subarray(0, type + 1), length]));
    for (let round = 0; round < times; round++) take(list);
    take(protobuf.subarray(cursor.to + cursor.length));
    expect(reader.end()).toBeNull();
    expect(count).toBe(1243 * times);
  });

  test('one that cannot be read is a problem, and the others are read', () => {
    const bytes = Buffer.from(slices.protobuf);
    const target = Buffer.from((whole[3]?.object?.uid ?? '').slice(0, 8));
    // The tag of the uid, now one that says another wire type.
    bytes[bytes.indexOf(target) - 2] = 0x28;
    const found = [...createListReader('endpointslices').read(bytes, at)];
    expect(found).toHaveLength(31);
    expect(found[3]?.problem?.object).toBe(`EndpointSlice ${whole[3]?.object?.key ?? ''}`);
    expect(found.toSpliced(3, 1)).toEqual(whole.toSpliced(3, 1));
  });

  test('decodes nothing before it is asked for', () => {
    const names: string[] = [];
    const previousPod = (key: string): undefined => void names.push(key);
    const reader = createListReader('pods', { previousPod });
    const items = reader.read(page('pods', 1243).protobuf, at);
    expect(names).toEqual([]);
    const first = items.next().value?.object?.key;
    expect(names).toEqual([first]);
  });

  test('an answer that ends early', () => {
    const { protobuf } = page('nodes', 9);
    for (let end = 0; end < protobuf.length - 4; end += 7) {
      const reader = createListReader('nodes');
      Array.from(reader.read(protobuf.subarray(0, end), at));
      expect(reader.end()?.lost).toMatchObject({ resource: 'nodes', namespace: '', name: null });
    }
  });

  test('an answer that is no protobuf', () => {
    const reader = createListReader('pods');
    expect([...reader.read(Buffer.from('{"kind":"PodList"}'), at)]).toEqual([]);
    expect(reader.problem()).toMatchObject({ message: 'Expected the prefix of protobuf' });
    expect(reader.end()).toBe(reader.problem());
    expect([...reader.read(page('pods', 1243).protobuf, at)]).toEqual([]);
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

/** A Status as JSON. */
interface Failure extends Omit<Status, 'retryAfterSeconds' | 'causes'> {
  readonly details: {
    readonly retryAfterSeconds?: number;
    readonly causes?: readonly { readonly reason?: string }[];
  };
}

/** What a frame says, from its JSON. */
function wanted(frame: Answer): WatchMessage<Resource> {
  const { json } = frame;
  const object = json.object as Raw;
  const metadata = (object.metadata ?? {}) as { resourceVersion?: string; annotations?: Raw };
  if (json.type === 'BOOKMARK') {
    const initialEventsEnd = metadata.annotations?.['k8s.io/initial-events-end'] === 'true';
    return { type: 'bookmark', resourceVersion: metadata.resourceVersion ?? '', initialEventsEnd };
  }
  if (json.type === 'ERROR') {
    const { code = 0, reason = '', message = '', details = {} } = object as Partial<Failure>;
    const { retryAfterSeconds = 0, causes: told = [] } = details;
    const causes = told.map(({ reason = '' }) => reason);
    return { type: 'error', status: { code, reason, message, retryAfterSeconds, causes } };
  }
  const types = { ADDED: 'added', MODIFIED: 'modified', DELETED: 'deleted' } as const;
  const resource = resourceOf(frame);
  const type = types[json.type as keyof typeof types];
  const version = metadata.resourceVersion ?? '';
  const size = messages([frame])[0]?.bytes.length ?? 0;
  return { type, projection: projected(resource, object, size), version };
}

describe('createWatchReader', () => {
  const of = (resource: Resource): Answer[] =>
    frames.filter((frame) => frame.resource === resource || frame.resource === null).slice(-300);

  test.each(resources)('%s, bookmarks and errors', (resource) => {
    const reader = createWatchReader(resource);
    const frames = of(resource);
    const bytes = Buffer.concat(frames.map(({ protobuf }) => protobuf));
    const want = frames.map((frame) => wanted(frame));
    expect(new Set(want.map(({ type }) => type)).size).toBeGreaterThanOrEqual(3);
    expect([...reader.read(bytes, at)]).toEqual(want);
    expect(reader.end()).toBeNull();
  });

  const some = of('services').slice(-30);
  const bytes = Buffer.concat(some.map(({ protobuf }) => protobuf));
  const want = some.map((frame) => wanted(frame));

  property.prop([sizes], { numRuns: 50 })('in chunks that end anywhere', (sizes) => {
    const reader = createWatchReader('services');
    const found = [...pieces(bytes, sizes)].flatMap((chunk) => [...reader.read(chunk, at)]);
    expect(found).toEqual(want);
    expect(reader.end()).toBeNull();
  });

  test('a frame with prefix and envelope', () => {
    const [frame] = frames;
    if (frame === undefined) throw new Error('Expected a frame');
    const event = frame.protobuf.subarray(4);
    const type = Buffer.from('\x0a\x10\x0a\x02v1\x12\x0aWatchEvent', 'latin1');
    const raw = [Buffer.from([0x12]), varint(event.length), event];
    const wrapped = Buffer.concat([Buffer.from('k8s\0'), type, ...raw]);
    const length = Buffer.alloc(4);
    length.writeUInt32BE(wrapped.length);
    const found = [
      ...createWatchReader(resourceOf(frame)).read(Buffer.concat([length, wrapped]), at),
    ];
    expect(found).toEqual([wanted(frame)]);
  });

  test('a frame of noise, and one of another kind, are reported and skipped', () => {
    const [frame] = some;
    if (frame === undefined) throw new Error('Expected a frame');
    const noise = Buffer.from([0, 0, 0, 3, 0x0a, 0x7f, 0x41]);
    const reader = createWatchReader('services');
    const pod = frames.find(({ resource }) => resource === 'pods')?.protobuf ?? noise;
    const found = [...reader.read(Buffer.concat([noise, pod, frame.protobuf]), at)];
    expect(found.map(({ type }) => type)).toEqual(['unreadable', 'unreadable', want[0]?.type]);
    expect(found[1]).toMatchObject({
      problem: { field: 'kind', value: '"Pod"', lost: { resource: 'services', name: null } },
    });
  });

  test('a length that cannot be: nothing more can be read', () => {
    const reader = createWatchReader('services');
    const found = [...reader.read(Buffer.concat([bytes, Buffer.alloc(4, 0xff), bytes]), at)];
    expect(found).toEqual(want);
    expect(reader.problem()).toMatchObject({ value: '4294967295', message: 'Expected a length' });
    expect([...reader.read(bytes, at)]).toEqual([]);
    expect(reader.end()).toBe(reader.problem());
  });

  test('an end between frames is none of the watch, within one it is', () => {
    for (const [index, { protobuf }] of some.slice(0, 3).entries()) {
      const before = Buffer.concat(some.slice(0, index).map(({ protobuf }) => protobuf));
      for (let end = 0; end <= protobuf.length; end += 13) {
        const reader = createWatchReader('services');
        Array.from(reader.read(Buffer.concat([before, protobuf.subarray(0, end)]), at));
        expect(reader.end() === null).toBe(end === 0 || end === protobuf.length);
      }
    }
  });
});

describe('readStatus', () => {
  const failure = frames.find(({ json }) => (json.object as Raw).code === 429);

  test('is the body of an answer that is no success', () => {
    const frame = failure?.protobuf ?? Buffer.alloc(0);
    const body = frame.subarray(frame.indexOf('k8s\0'));
    const said = { code: 429, reason: 'TooManyRequests', message: '' };
    expect(readStatus(body)).toEqual({ ...said, retryAfterSeconds: 7, causes: ['x'] });
  });

  test.each([
    ['nothing', Buffer.alloc(0)],
    ['text', Buffer.from('404 page not found')],
    ['a list', page('nodes', 9).protobuf],
    ['half of one', Buffer.from('k8s\0\x0a\x7f')],
  ])('%s is none', (_, body) => {
    expect(readStatus(body)).toBeNull();
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

  property.prop([flips, sizes], { numRuns: 500 })('lists are read or refused', (flips, sizes) => {
    const reader = createListReader('services');
    for (const chunk of pieces(damaged(protobuf, flips), sizes)) {
      for (const { object, problem } of reader.read(chunk, at)) {
        if (object === undefined) expect(problem.lost.resource).toBe('services');
        else expect(object.name).not.toBe('');
      }
    }
    expect(reader.end()?.lost.resource ?? 'services').toBe('services');
  });

  property.prop([flips, sizes], { numRuns: 500 })('so are watches', (flips, sizes) => {
    const reader = createWatchReader('services');
    for (const chunk of pieces(damaged(watched, flips), sizes)) {
      for (const message of reader.read(chunk, at)) expect(message.type).toMatch(/^[a-z]+$/);
    }
    expect(reader.end()?.lost.resource ?? 'services').toBe('services');
  });
});

import { fc, test as property } from '@fast-check/vitest';
import { describe, expect, test } from 'vitest';

import { project } from '../../../../src/cluster/decode/json-objects.ts';
import { readObject } from '../../../../src/cluster/decode/protobuf/codec.ts';
import type { Pod } from '../../../../src/model/objects.ts';
import { isOutput, resources } from '../../../../src/model/objects.ts';
import type { Message } from '../../../protobuf/fixtures.ts';
import { answers, messages } from '../../../protobuf/fixtures.ts';

const at = 1_795_258_544.5;
const written = messages(answers());

const whole = (bytes: Buffer) => ({ bytes, at: 0, end: bytes.length });

const read = (message: Message, bytes = message.bytes) =>
  readObject(message.resource, whole(bytes), at).projection;

/** The model object of the JSON that Go wrote of the same object, with the size of the message. */
const wanted = ({ resource, json, bytes }: Message) =>
  project(resource, json, at, { bytes: isOutput(resource) ? bytes.length : null });

describe('readObject', () => {
  test.each(resources)('%s are those of the JSON, and in the same order', (resource) => {
    const all = written.filter((message) => message.resource === resource);
    expect(all.length).toBeGreaterThan(50);
    for (const message of all) {
      const object = read(message);
      expect(object).toEqual(wanted(message));
      // The order of properties makes the hidden class, and equality does not see it.
      expect(JSON.stringify(object)).toBe(JSON.stringify(wanted(message)));
    }
  });

  test('nothing of an object refers to the bytes', () => {
    const copies = written.map(({ bytes }) => Buffer.from(bytes));
    const found = written.map((message, index) => read(message, copies[index]));
    const before = JSON.stringify(found);
    for (const copy of copies) copy.fill(0x2e);
    expect(JSON.stringify(found)).toBe(before);
  });

  test('an object within other bytes is read to its end only', () => {
    for (const message of written.slice(0, 200)) {
      const { bytes } = message;
      const around = Buffer.concat([Buffer.alloc(7, 0x0a), bytes, Buffer.alloc(9, 0x0a)]);
      const range = { bytes: around, at: 7, end: 7 + bytes.length };
      const { projection } = readObject(message.resource, range, at);
      expect(projection).toEqual(wanted(message));
    }
  });

  test('a pod keeps its ips and since when', () => {
    const message = written.find(({ resource, json }) => {
      const status = json.status as { podIPs?: unknown[] } | undefined;
      return resource === 'pods' && (status?.podIPs?.length ?? 0) > 0;
    });
    if (message === undefined) throw new Error('Expected a pod with ips');
    const pod = read(message).object as Pod;
    const previous = { ...pod, ipsSince: 7 };
    const { bytes } = message;
    const again = readObject('pods', whole(bytes), at, () => previous).projection.object;
    expect(again?.ips).toBe(previous.ips);
    expect(again?.ipsSince).toBe(7);
  });
});

/** Field 1 of a message, and in it the fields that are given. */
const field = (number: number, ...parts: readonly Buffer[]): Buffer => {
  const inner = Buffer.concat(parts);
  return Buffer.concat([Buffer.from([(number << 3) | 2, inner.length]), inner]);
};
const text = (number: number, value: string): Buffer => field(number, Buffer.from(value));
const int = (number: number, value: number): Buffer => Buffer.from([number << 3, value]);
const name = text(1, 'web');
const namespace = text(3, 'shop');
const identity = field(1, name, namespace, field(11, text(1, 'app'), text(2, 'web')));

describe('what is wrong', () => {
  const lost = { namespace: 'shop', name: 'web', labels: { app: 'web' } };

  test.each([
    ['Pod web', 'pods', [field(1, name)], 'metadata.namespace', 'Expected a namespace'],
    ['Pod in shop', 'pods', [field(1, namespace)], 'metadata.name', 'Expected a name'],
    ['Pod', 'pods', [], 'metadata.namespace', 'Expected a namespace'],
    ['Node a/b', 'nodes', [field(1, text(1, 'a/b'))], 'metadata.name', 'Expected a name with'],
    [
      'Pod shop/web',
      'pods',
      [identity, field(2, int(10, 1))],
      'spec.nodeName',
      'Expected the wire type of the field',
    ],
    [
      'Pod shop/web',
      'pods',
      [identity, field(2, field(2), field(2, field(6, text(3, '80'))))],
      'spec.containers[1].ports[0].containerPort',
      'Expected the wire type of the field',
    ],
    [
      'EndpointSlice shop/web',
      'endpointslices',
      [identity, text(4, 'IPX')],
      'addressType',
      'Expected IPv4, IPv6 or FQDN',
    ],
    [
      'Endpoints shop/web',
      'endpoints',
      [identity, field(2, field(1, Buffer.from([0x0a, 0x7f])))],
      'subsets[0].addresses[0].ip',
      'Expected as many bytes as the length says',
    ],
    [
      'Service shop/web',
      'services',
      [identity, field(2, field(1, Buffer.from([0x18, 0x80])))],
      'spec.ports[0].port',
      'Expected a number that ends',
    ],
  ] as const)('%s: %s %#', (object, resource, parts, at, message) => {
    const bytes = Buffer.concat(parts);
    const { problem } = readObject(resource, whole(bytes), 1).projection;
    expect(problem).toMatchObject({ object, field: at });
    expect(problem?.message).toContain(message);
    if (parts[0] === identity) expect(problem?.lost).toEqual({ resource, ...lost });
  });

  test('fields that Go would never write so are read all the same', () => {
    const owner = field(13, text(1, 'Service'), text(3, 'web'));
    const labels = field(11, text(1, 'tier'), text(2, 'x'));
    const spread = field(1, name, field(11, text(2, 'b'), text(1, 'a')), owner, namespace, labels);
    const twice = [field(3, text(1, 'Running')), field(3, text(6, '10.0.0.1'))];
    const bytes = Buffer.concat([...twice, spread]);
    const { object } = readObject('pods', whole(bytes), 1).projection;
    expect(object).toMatchObject({
      key: 'shop/web',
      labels: { a: 'b', tier: 'x' },
      ips: ['10.0.0.1'],
      terminal: false,
    });
  });

  test('fields that are not known are passed over', () => {
    const fixed = Buffer.from([0x7d, 1, 2, 3, 4, 0x79, 1, 2, 3, 4, 5, 6, 7, 8]);
    const group = Buffer.from([0x7b, 0x08, 1, 0x7b, 0x7c, 0x7c]);
    const bytes = Buffer.concat([identity, fixed, group, Buffer.from([0xf8, 0x07, 0x01])]);
    const { object } = readObject('pods', whole(bytes), 1).projection;
    expect(object?.key).toBe('shop/web');
  });
});

const some = fc.nat({ max: written.length - 1 }).map((index) => written[index]);

/** Either an object or a problem that people can read, and nothing thrown. */
function expectAnswer(message: Message, bytes: Buffer): void {
  const { object, problem } = read(message, bytes);
  if (problem === undefined) expect(object.name).not.toBe('');
  else expect(problem).toMatchObject({ lost: { resource: message.resource } });
}

describe('damaged bytes', () => {
  property.prop([some, fc.nat()], { numRuns: 2000 })(
    'that are cut off anywhere are read or refused',
    (message, at) => {
      if (message === undefined) return;
      expectAnswer(message, message.bytes.subarray(0, at % (message.bytes.length + 1)));
    },
  );

  property.prop([some, fc.array(fc.tuple(fc.nat(), fc.nat(255)), { minLength: 1, maxLength: 8 })], {
    numRuns: 4000,
  })('with other bytes anywhere are read or refused', (message, flips) => {
    if (message === undefined) return;
    const bytes = Buffer.from(message.bytes);
    for (const [at, value] of flips) bytes[at % bytes.length] = value;
    expectAnswer(message, bytes);
  });

  property.prop([fc.constantFrom(...resources), fc.uint8Array({ maxLength: 200 })], {
    numRuns: 2000,
  })('or none that mean anything', (resource, noise) => {
    const bytes = Buffer.from(noise);
    const found = readObject(resource, whole(bytes), 1).projection;
    expect(found.object ?? found.problem).toBeDefined();
  });
});

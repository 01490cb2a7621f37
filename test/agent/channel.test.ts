// Bytes that come over a pipe in pieces.

import { Readable } from 'node:stream';

import { fc, test as property } from '@fast-check/vitest';
import { expect, test } from 'vitest';

import { gather } from '../../src/agent/channel.ts';

const pieces = fc.array(fc.uint8Array({ minLength: 1, maxLength: 20 }), { maxLength: 20 });

property.prop([pieces])('whatever the pieces are, they make the whole', async (parts) => {
  const whole = Buffer.concat(parts);
  const stream = Readable.from(
    parts.map((part) => Buffer.from(part)),
    { objectMode: false },
  );
  expect(await gather(stream, whole.length)).toEqual(whole);
});

test('a stream that ends too early is an error', async () => {
  const stream = Readable.from([Buffer.from('abc')], { objectMode: false });
  await expect(gather(stream, 4)).rejects.toThrow('the pipe ended after 3 of 4 bytes');
});

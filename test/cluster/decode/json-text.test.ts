import { expect, test } from 'vitest';

import { parseJson } from '../../../src/cluster/decode/json-text.ts';

const large = ' '.repeat(1024 * 1024);

test('a large text of few levels is parsed', () => {
  expect(parseJson(`${large}{"a":[{"b":[1]}]}`)).toEqual({ a: [{ b: [1] }] });
});

test('levels that end do not count', () => {
  const items = Array.from({ length: 5000 }, () => '[{}]');
  expect(parseJson(`${large}[${items.join()}]`)).toHaveLength(5000);
});

test('brackets in texts are no levels', () => {
  const text = '[{'.repeat(2000) + '"\\';
  expect(parseJson(`${large}${JSON.stringify([text])}`)).toEqual([text]);
});

test.each(['[', '{"a":', '[{"a":'])(
  'a large text of %s is refused before it is parsed',
  (level) => {
    const text = level.repeat(1000) + large;
    expect(() => parseJson(`${level}${text}`)).toThrow('More than 1,000 levels of JSON');
  },
);

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { parseDocument, stringify } from 'yaml';

import type { Piece } from '../../../src/cluster/decode/json-items.ts';
import {
  parseYamlItem,
  yamlField,
  yamlFormat,
  yamlPieces,
} from '../../../src/cluster/files/yaml-items.ts';
import { all, chunks } from '../../build.ts';

describe('YAML pieces', () => {
  const pieces = (text: string, lengths?: readonly number[], damaged = false) =>
    all(yamlPieces(chunks(Buffer.from(text), lengths), () => damaged));
  const short = (pieces: Piece[]) => pieces.map(({ type, line, text }) => [type, line, text]);

  test.each<[string, string, unknown[]]>([
    ['nothing', '\n# a\n---\n%YAML 1.2\n---\n...\n', []],
    ['a document', 'a: 1\nb:\n- c\n', [['document', 1, 'a: 1\nb:\n- c']]],
    [
      'documents',
      '%YAML 1.2\n---\na: 1\n--- {a: 2}\n...\n\na: 3\n',
      [
        ['document', 3, 'a: 1'],
        ['document', 4, '    {a: 2}'],
        ['document', 6, '\na: 3'],
      ],
    ],
    [
      'a list',
      'kind: List\r\nitems:\r\n- a: 1\r\n  b:\r\n  - c\r\n\r\n- a: 2\r\nmetadata: {}\r\n',
      [
        ['head', 1, 'kind: List\nitems:'],
        ['item', 3, '- a: 1\n  b:\n  - c\n'],
        ['item', 7, '- a: 2'],
        ['tail', 1, 'kind: List\nitems:\nmetadata: {}'],
      ],
    ],
    [
      'an indented list, and another one',
      'items: # all\n\n  # a\n  - a: 1\n   \n  -\n    a: 2\nkind: List\n' +
        '---\nitems:\n- 1\nkind: List\n',
      [
        ['head', 1, 'items: # all'],
        ['item', 4, '  - a: 1\n   '],
        ['item', 6, '  -\n    a: 2'],
        ['tail', 1, 'items: # all\nkind: List'],
        ['head', 10, 'items:'],
        ['item', 11, '- 1'],
        ['tail', 10, 'items:\nkind: List'],
      ],
    ],
    [
      'a list without items',
      'items:\nkind: PodList\n',
      [
        ['head', 1, 'items:'],
        ['tail', 1, 'items:\nkind: PodList'],
      ],
    ],
    [
      'items that are no items of the document',
      'spec:\n  items:\n  - a\nitems: []\n',
      [['document', 1, 'spec:\n  items:\n  - a\nitems: []']],
    ],
    [
      'an end before the kind',
      'apiVersion: v1\nitems:\n- a: 1\n- a: 2\n  b',
      [
        ['head', 1, 'apiVersion: v1\nitems:'],
        ['item', 3, '- a: 1'],
        ['unfinished', 5, '- a: 2\n  b'],
      ],
    ],
  ])('%s', async (_, text, want) => {
    for (const lengths of [[text.length], [1], [2], [3, 5]]) {
      expect(short(await pieces(text, lengths))).toEqual(want);
    }
  });

  test('of a damaged source what comes last is not whole', async () => {
    expect(short(await pieces('a: 1\n---\na: 2\nb: ', [9], true))).toEqual([
      ['document', 1, 'a: 1'],
      ['unfinished', 4, 'a: 2\nb: '],
    ]);
    expect(short(await pieces('kind: List\nitems:\n- 1\n- 2\n', [9], true))).toEqual([
      ['head', 1, 'kind: List\nitems:'],
      ['item', 3, '- 1'],
      ['unfinished', 4, '- 2'],
    ]);
    expect(await pieces('---\n', [9], true)).toEqual([]);
  });

  test('pieces of any objects in any style and chunks parse to the objects', async () => {
    const key = fc.string().filter((key) => key !== '<<'); // which would merge
    const values = [fc.string(), fc.integer(), fc.boolean()];
    const value = fc.object({ maxDepth: 3, key, values });
    const style = fc.record({ indentSeq: fc.boolean(), indent: fc.integer({ min: 2, max: 4 }) });
    const length = fc.integer({ min: 1, max: 50 });
    await fc.assert(
      fc.asyncProperty(fc.array(value), style, length, async (values, style, length) => {
        const items = values.map((value) => ({ kind: 'Pod', value }));
        const text = stringify({ items, kind: 'List' }, { ...style, aliasDuplicateObjects: false });
        const got: unknown[] = [];
        for (const piece of await pieces(text, [length])) {
          if (piece.type !== 'item') continue;
          const parsed = parseYamlItem(piece.text);
          got.push(...('value' in parsed ? (parsed.value as unknown[]) : [parsed]));
        }
        expect(got).toEqual(items);
      }),
      { numRuns: 300 },
    );
  });
});

describe('parsing', () => {
  test('of equal keys the last counts, merges are followed, __proto__ is a key', () => {
    expect(parseYamlItem('a: 1\na: 2\n')).toEqual({ value: { a: 2 } });
    expect(parseYamlItem('a: &a\n  x: 1\nb:\n  <<: *a\n')).toEqual({
      value: { a: { x: 1 }, b: { x: 1 } },
    });
    const parsed = parseYamlItem('__proto__: x\n');
    expect('value' in parsed && Object.keys(parsed.value as object)).toEqual(['__proto__']);
  });

  test('a number that is out of range is a text, as for Go', () => {
    const address = `0x${'f'.repeat(40)}`;
    const texts = ['12e4567', '-1.5e999', '.5E+400', address];
    for (const text of texts) {
      expect(parseYamlItem(`a: ${text}\n${text}: b\n`)).toEqual({
        value: { a: text, [text]: 'b' },
      });
    }
    expect(parseYamlItem('- 12e4\n- 0xff\n- 1.e3\n- .inf\n- "1e5"\n- 1e\n')).toEqual({
      value: [120_000, 255, 1000, Infinity, '1e5', '1e'],
    });
  });

  test('times relative to the beginning of a kwok snapshot are times since the epoch', () => {
    const time = (offset: string) => {
      const parsed = parseYamlItem(`t: "$(time-offset-nanosecond ${offset})"\n`);
      return 'value' in parsed ? (parsed.value as { t: string }).t : null;
    };
    expect(time('0')).toBe('1970-01-01T00:00:00.000000000Z');
    expect(time('1500000000')).toBe('1970-01-01T00:00:01.500000000Z');
    expect(time('-1')).toBe('1969-12-31T23:59:59.999999999Z');
    expect(time('-3600000000000')).toBe('1969-12-31T23:00:00.000000000Z');
    expect(time('999999999999999999')).toBe('2001-09-09T01:46:39.999999999Z');
    expect(time('9999999999999999999')).toBe('$(time-offset-nanosecond 9999999999999999999)');
  });

  test('what cannot be parsed is wrong in a line', () => {
    const parsed = parseYamlItem('a: 1\nb: [\nc: 2\n');
    expect(parsed).toMatchObject({ line: 2 });
    expect('fault' in parsed && parsed.fault).not.toBe('');
  });

  test.each([
    ['a brace too many', '- kind: Pod\n  spec: {nodeName: n1}}\n  status: {}\n', 1],
    ['a bracket too many', 'a: 1\nb: []]\nc: 2\n', 1],
    ['text after a block scalar', 'a: |\n  x\n y\nb: 1\n', 2],
  ])('%s is a fault, not an end', (_, text, line) => {
    expect(parseYamlItem(text)).toEqual({ fault: expect.stringMatching(/./) as string, line });
  });

  test('the faults of changed texts are those that the library finds', () => {
    const options = {
      uniqueKeys: false,
      merge: true,
      logLevel: 'error',
      prettyErrors: false,
    } as const;
    const value = fc.object({ maxDepth: 2, values: [fc.string(), fc.integer()] });
    const words = ['{', '}', '[', ']', ',', ':', '"', "'", '- ', '\n', ' ', '&a ', '*a', '|', '%'];
    const change = fc.tuple(fc.nat(), fc.constantFrom(...words));
    const counts = { faulty: 0, sound: 0 };
    fc.assert(
      fc.property(value, fc.boolean(), fc.array(change, { maxLength: 2 }), (value, flow, list) => {
        const sound = stringify([value], { collectionStyle: flow ? 'flow' : 'block' });
        const text = list.reduce((text, [place, word]) => {
          const at = place % (text.length + 1);
          return text.slice(0, at) + word + text.slice(at);
        }, sound);
        const { errors } = parseDocument(text, options);
        counts[errors.length > 0 ? 'faulty' : 'sound']++;
        // An alias without an anchor is found later, as is a merge with no map.
        if (errors.length > 0 || !/\*|<</.test(text)) {
          expect('fault' in parseYamlItem(text)).toBe(errors.length > 0);
        }
      }),
      { numRuns: 1000 },
    );
    expect(Math.min(counts.faulty, counts.sound)).toBeGreaterThan(100);
  });

  test('of objects of other kinds only the kind is parsed', () => {
    const parse = (text: string) => yamlFormat.parse(text);
    expect(parse('kind: Secret\napiVersion: v1\nx: [\n')).toEqual({
      value: { apiVersion: 'v1', kind: 'Secret' },
    });
    expect(parse('kind: Node\napiVersion: config.openshift.io/v1\nx: [\n')).toEqual({
      value: { apiVersion: 'config.openshift.io/v1', kind: 'Node' },
    });
    expect(parse('kind: Service\nspec:\n  env:\n  - a\n')).toEqual({
      value: { kind: 'Service', spec: { env: ['a'] } },
    });
    expect(parse('kind: PodList\nx: 1\n')).toEqual({ value: { kind: 'PodList', x: 1 } });
  });
});

describe('without a parser', () => {
  test.each([
    ['kind: Pod\n', 'Pod'],
    ['a: 1\nkind: "Pod" # c\n', 'Pod'],
    ["- a: 1\n  kind: 'Pod'\r\n", 'Pod'],
    ['  - kind: Pod\n', 'Pod'],
    ['metadata:\n  kind: Pod\n', null],
    ['- metadata:\n  - kind: Pod\n', null],
    ['kind:\n  Pod\n', null],
    ['kind: |-\n  Pod\n', null],
    ['kind: &a Pod\n', null],
    ['', null],
  ])('the field of the object itself: %j', (text, want) => {
    expect(yamlField(text, 'kind')).toBe(want);
  });

  test.each<[string, string | null, string | null, string | null]>([
    ['kind: Pod\nmetadata:\n  name: a\n  namespace: shop\nx: [', 'Pod', 'shop', 'a'],
    ['- kind: Pod\n  metadata:\n    labels:\n      name: b\n    name: a\n', 'Pod', null, 'a'],
    ['kind: Pod\nmetadata:\nspec:\n  name: a\n', 'Pod', null, null],
    ['kind: Node\nmetadata:\n\n  name: "a"\n', 'Node', null, null],
    ['name: a\n', null, null, null],
    ['', null, null, null],
  ])('what it seems to be: %j', (text, kind, namespace, name) => {
    expect(yamlFormat.guess(text)).toEqual({ kind, namespace, name });
  });
});

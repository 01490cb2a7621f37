// Files of suppressions: their form, and the line of what is wrong.

import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { describe, expect, test } from 'vitest';

import { UsageError } from '../../../src/commands/shared/process.ts';
import { readSuppressions } from '../../../src/commands/shared/suppressions.ts';
import { times } from '../../build.ts';

const path = join(mkdtempSync(join(tmpdir(), 'suppressions-')), 'accepted.yaml');

function read(text: string) {
  writeFileSync(path, text);
  return readSuppressions(path);
}

const good = 'code: slice-duplicate, owner: team, reason: planned, expires: 2026-12-31';

describe('a file', () => {
  test('is a list of suppressions, each with the line where it begins', () => {
    const found = read(`# accepted
- code: slice-duplicate
  namespace: shop
  service: '*'
  owner: team
  reason: planned
  expires: 2026-12-31
- {${good}, node: node-a}
`);
    expect(found).toMatchObject([
      { code: 'slice-duplicate', namespace: 'shop', service: '*', source: `${path}:2` },
      { namespace: '*', node: 'node-a', expires: '2026-12-31', source: `${path}:8` },
    ]);
  });

  test('with invalid entries is bad usage, which names line, field and value of each', () => {
    const wrong = `- code: nope
  owner: team
  reason: planned
  expires: 2026-12-31
- {${good}}
- code: slice-duplicate
  reason: planned
  owner: team
  expires: tomorrow
- text
- {code: slice-duplicate}
`;
    const lines = [
      `${path}:1: Unknown code "nope"`,
      `${path}:6: expires: Expected a date such as 2026-12-31: "tomorrow"`,
      `${path}:10: Expected a suppression with fields: "text"`,
      `${path}:11: owner is missing`,
    ];
    expect(() => read(wrong)).toThrow(new UsageError(lines.join('\n')));
  });

  test('may be empty', () => {
    expect(read('# nothing')).toEqual([]);
  });

  test.each([
    ['no list', 'code: slice-duplicate', 'Expected a list of suppressions'],
    ['too many entries', times(1001, () => `- {${good}}\n`).join(''), 'more than 1000 supp'],
    ['too large', '#'.repeat(1_000_001), 'Is larger than 1000000 bytes'],
    ['too many levels', '['.repeat(20_000), 'Has too many levels'],
    ['an alias', '- &a {code: x}\n- {code: *a}', 'Alias resolution is disabled'],
  ])('with %s is refused', (_, text, message) => {
    expect(() => read(text)).toThrow(message);
    expect(() => read(text)).toThrow(path);
  });

  test('that is no YAML is refused in one line with file, line and column', () => {
    const text = '- code: a\n- {code: b\n';
    const message = 'Flow map in block collection must be sufficiently indented and end with a }';
    expect(() => read(text)).toThrow(new UsageError(`${path}:3:1: ${message}`));
  });

  test('may have aliases only within bounds', () => {
    expect(() => read('- &a [x, x]\n- {code: *a}')).toThrow(UsageError);
  });
});

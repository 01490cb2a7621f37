// Files of suppressions: their form, and the line of what is wrong.

import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { describe, expect, test } from 'vitest';

import { problemText } from '../../../src/cluster/decode/problem.ts';
import { readSuppressions } from '../../../src/commands/shared/suppressions.ts';
import { times } from '../../build.ts';

const path = join(mkdtempSync(join(tmpdir(), 'suppressions-')), 'accepted.yaml');

function read(text: string) {
  const problems: string[] = [];
  writeFileSync(path, text);
  const found = readSuppressions(path, (problem) => problems.push(problemText(problem)));
  return { found, problems: problems.map((problem) => problem.replace(path, 'FILE')) };
}

const good = 'code: slice-duplicate, owner: team, reason: planned, expires: 2026-12-31';

describe('a file', () => {
  test('is a list of suppressions, each with the line where it begins', () => {
    const { found, problems } = read(`# accepted
- code: slice-duplicate
  namespace: shop
  service: '*'
  owner: team
  reason: planned
  expires: 2026-12-31
- {${good}, node: node-a}
`);
    expect(problems).toEqual([]);
    expect(found).toMatchObject([
      { code: 'slice-duplicate', namespace: 'shop', service: '*', source: `${path}:2` },
      { namespace: '*', node: 'node-a', expires: '2026-12-31', source: `${path}:8` },
    ]);
  });

  test('with invalid entries has the others, and names file, line, field and value', () => {
    const { found, problems } = read(`- code: nope
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
`);
    expect(found).toHaveLength(1);
    expect(problems).toEqual([
      'FILE:1: code: Is no code of a finding: "nope"',
      'FILE:9: expires: Expected a date such as 2026-12-31: "tomorrow"',
      'FILE:10: Expected a suppression with fields: "text"',
      'FILE:11: owner: Is missing',
    ]);
  });

  test('may be empty', () => {
    expect(read('# nothing').found).toEqual([]);
  });

  test.each([
    ['no list', 'code: slice-duplicate', 'Expected a list of suppressions'],
    ['no YAML', '- {', ':'],
    ['too many entries', times(1001, () => `- {${good}}\n`).join(''), 'more than 1000 supp'],
    ['too large', '#'.repeat(1_000_001), 'Is larger than 1000000 bytes'],
  ])('with %s is refused', (_, text, message) => {
    expect(() => read(text)).toThrow(message);
    expect(() => read(text)).toThrow(path);
  });

  test('may have aliases only within bounds', () => {
    expect(() => read('- &a [x, x]\n- {code: *a}')).toThrow();
  });
});

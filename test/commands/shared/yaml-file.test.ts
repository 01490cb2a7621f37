// YAML files that the user names: which errors are those of the text.

import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { expect, test } from 'vitest';

import { UsageError } from '../../../src/commands/shared/process.ts';
import { readYamlFile, withTextErrors } from '../../../src/commands/shared/yaml-file.ts';

const path = join(mkdtempSync(join(tmpdir(), 'yaml-file-')), 'file.yaml');

test('an error of the reader is not taken for one of the text', () => {
  writeFileSync(path, 'a: 1\n');
  for (const error of [new RangeError('Invalid array length'), new ReferenceError('x')]) {
    const read = () => {
      throw error;
    };
    expect(() => readYamlFile(path, 'core', read)).toThrow(error);
  }
});

test.each([
  ['an unknown alias', 'a: *b\n', 'Unresolved alias'],
  ['an open list', 'a: &b [*b', 'Flow sequence'],
  ['many levels', '['.repeat(20_000), 'Has too many levels'],
  [
    'many aliases',
    `a: &a [x]\nb: &b [${'*a, '.repeat(200)}]\nc: [${'*b, '.repeat(200)}]\n`,
    'Excessive alias',
  ],
])('%s is an error of the text', (_what, text, message) => {
  writeFileSync(path, text);
  const read = () =>
    readYamlFile(path, 'core', (document) => withTextErrors(path, (): unknown => document.toJS()));
  expect(read).toThrow(UsageError);
  expect(read).toThrow(message);
});

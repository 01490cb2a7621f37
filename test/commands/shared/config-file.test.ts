// The file of --config: how its values become options of a command, and every error with its line.

import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { Command } from 'commander';
import { expect, test } from 'vitest';

import { applyConfigFile } from '../../../src/commands/shared/config-file.ts';
import { parseOutput } from '../../../src/commands/shared/flag-values.ts';
import { addFlags, flag } from '../../../src/commands/shared/options.ts';
import { UsageError } from '../../../src/commands/shared/process.ts';

const path = join(mkdtempSync(join(tmpdir(), 'config-')), 'config.yaml');

/** The options of `serve` or `audit` with a file and a command line. */
function optionsOf(lines: readonly string[], words: readonly string[] = ['serve']) {
  writeFileSync(path, lines.join('\n'));
  const program = new Command().exitOverride();
  const serve = addFlags(program.command('serve'), 'audit', 'cluster', 'metrics', 'page');
  serve.option('--once', 'end');
  addFlags(program.command('audit'), 'audit', 'report', 'gate', 'cluster');
  const explain = addFlags(program.command('explain'), 'audit');
  explain.addOption(flag('-o, --output <format>', 'text or json', parseOutput));
  let found: Readonly<Record<string, unknown>> = {};
  for (const command of program.commands) {
    command.action((options: typeof found) => {
      found = options;
    });
  }
  program.hook('preAction', (_, command) => {
    applyConfigFile(path, program.commands, command);
  });
  program.parse(words, { from: 'user' });
  return found;
}

test('a value is parsed as on the command line, also one that YAML reads as a number', () => {
  const lines = ['settle: 1m30s', 'kubernetes-version: 1.30', 'once: true', 'no-endpoints: true'];
  const byFlags = ['--settle=1m30s', '--kubernetes-version=1.30', '--once', '--no-endpoints'];
  const want = optionsOf([], ['serve', ...byFlags]);
  expect(optionsOf(lines)).toEqual(want);
  expect(want).toMatchObject({ settle: 90, kubernetesVersion: { minor: 30 }, endpoints: false });
});

test('a default remains where neither the file nor the command line has a value', () => {
  expect(optionsOf(['# nothing'])).toMatchObject({ settle: 30, endpoints: true });
  expect(optionsOf(['once: false', 'no-endpoints: false'])).toMatchObject({
    once: false,
    endpoints: true,
  });
});

test('the command line overrides the section of the command, which overrides the rest', () => {
  const lines = ['settle: 10s', 'serve:', '  settle: 20s', 'audit:', '  fail-on: critical'];
  expect(optionsOf(lines)).toMatchObject({ settle: 20 });
  expect(optionsOf(lines, ['audit'])).toMatchObject({
    settle: 10,
    failOn: { severity: 'critical' },
  });
  expect(optionsOf(lines, ['serve', '--settle=3s'])).toMatchObject({ settle: 3 });
  expect(optionsOf(lines, ['audit', '--fail-on=info'])).toMatchObject({
    failOn: { severity: 'info' },
  });
});

test('--all-namespaces overrides the namespace of the file', () => {
  const lines = ['namespace: shop'];
  expect(optionsOf(lines, ['audit'])).toMatchObject({ namespace: 'shop' });
  expect(optionsOf(lines, ['audit', '-A'])).not.toHaveProperty('namespace');
});

test('a list gives several values, by commas or by a flag that is repeated', () => {
  const lines = ['namespaces: [shop, bank]', 'exclude-namespaces: a,b', 'as-group:', '  - ops'];
  expect(optionsOf([...lines, '  - dev'])).toMatchObject({
    namespaces: ['shop', 'bank'],
    excludeNamespaces: ['a', 'b'],
    asGroup: ['ops', 'dev'],
  });
  expect(optionsOf(['as-group: ops'])).toMatchObject({ asGroup: ['ops'] });
});

test('the command decides the values of a flag that another command parses differently', () => {
  expect(optionsOf(['output: text'], ['explain'])).toMatchObject({ output: 'text' });
  expect(() => optionsOf(['output: text'], ['audit'])).toThrow('output: Expected one of table');
});

test.each([
  ['an unknown flag', ['settle: 1s', 'setle: 2s'], ':2: setle: Expected a flag that the commands'],
  [
    'one of a command',
    ['serve:', '  fail-on: info'],
    ':2: serve.fail-on: Expected a flag that serve',
  ],
  ['a deprecated flag', ['metrics.max-services: 3'], ':1: metrics.max-services: Expected a flag'],
  ['a wrong value', ['audit:', '  settle: soon'], ':2: audit.settle: Expected a duration such as'],
  ['the wrong value', ['settle: soon'], ': "soon"'],
  [
    'another choice',
    ['', 'fail-on: never!'],
    ':2: fail-on: Expected a severity, unserved, or both',
  ],
  ['a flag without value', ['once: yes'], ':1: once: Expected true or false: "yes"'],
  ['a list for one value', ['settle: [1s, 2s]'], ':1: settle: Expected a text: ["1s","2s"]'],
  [
    'a map for a list',
    ['namespaces: {a: b}'],
    ':1: namespaces: Expected a text or a list of texts',
  ],
  ['an empty list', ['namespaces: []'], ':1: namespaces: Expected a text or a list of texts'],
  ['one of a list', ['namespaces: [shop, A!]'], 'separated by commas, not "A!"'],
  ['a list as the file', ['- settle'], ':1: Expected flags and their values: ["settle"]'],
  ['a section without flags', ['serve: on'], ':1: serve: Expected flags and their values: "on"'],
  ['a flag twice', ['settle: 1s', 'settle: 2s'], ':2:1: Map keys must be unique'],
  ['broken YAML', ['settle: [1s'], ':1:12: Flow sequence'],
  ['an alias of nothing', ['settle: *a'], 'Unresolved alias'],
  ['too many levels', ['['.repeat(20_000)], 'Has too many levels'],
])('%s is an error with file, line, field and value', (_, lines, want) => {
  const at = (): unknown => optionsOf(lines);
  expect(at).toThrow(UsageError);
  expect(at).toThrow(want);
  expect(at).toThrow(path);
});

test('all errors of a file are named, one a line', () => {
  const read = () => optionsOf(['setle: 1s', 'fail-on: never', 'settle: soon']);
  expect(read).toThrow(/:1: .*\n.*:2: .*\n.*:3: /);
});

test('a file that cannot be read is an error of the system', () => {
  const program = new Command('serve');
  expect(() => {
    applyConfigFile(`${path}.none`, [program], program);
  }).toThrow('ENOENT');
});

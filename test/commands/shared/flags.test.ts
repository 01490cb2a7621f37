// Parsers of flag values: every accepted value, and every error message.

import { describe, expect, test } from 'vitest';

import packageJson from '../../../package.json' with { type: 'json' };
import {
  parseAddress,
  parseCIDRs,
  parseCount,
  parseDuration,
  parseFormat,
  parseIPs,
  parseNames,
  parseNodeFile,
  parseOutput,
  parseRelease,
  parseRulesFile,
  parseService,
  parseShard,
  parseSize,
  parseSpeed,
  parseTime,
} from '../../../src/commands/shared/flag-values.ts';
import { nodeProblem } from '../../../src/commands/shared/process.ts';
import { version } from '../../../src/model/program-version.ts';
import { nameOf, releases } from '../../../src/shadow/release.ts';

/** Tables of one parser: what it takes, and what it refuses with which message. */
function describeParser(
  name: string,
  parse: (text: string) => unknown,
  taken: [string, unknown][],
  refused: string[],
  message: string,
): void {
  describe(name, () => {
    test.each(taken)('%j', (text, want) => {
      expect(parse(text)).toEqual(want);
    });
    test.each(refused)('not %j', (text) => {
      expect(() => parse(text)).toThrow(message);
    });
  });
}

describeParser(
  'parseDuration',
  parseDuration,
  [
    ['30', 30],
    ['0', 0],
    ['1.5', 1.5],
    ['30s', 30],
    ['500ms', 0.5],
    ['1m30s', 90],
    ['1.5h', 5400],
    ['1h2m3s4ms', 3723.004],
    ['0s', 0],
  ],
  ['', 's', '30 s', '-1s', '1w', '1s2', '1m30', 'soon', '1e3', '.5s', '+5'],
  'Expected a duration such as 30s, 1m30s or 500ms.',
);

describeParser(
  'parseSpeed',
  parseSpeed,
  [
    ['1', 1],
    ['0.5', 0.5],
    ['20', 20],
    ['max', Infinity],
  ],
  ['0', '-1', 'Infinity', 'fast', '', 'NaN'],
  'Expected a factor above 0, such as 1 or 20, or max.',
);

describeParser(
  'parseTime',
  parseTime,
  [
    ['1795258606', 1_795_258_606],
    ['1795258606.5', 1_795_258_606.5],
    ['2026-11-21T10:56:46Z', 1_795_258_606],
    ['2026-11-21T11:56:46+01:00', 1_795_258_606],
    ['10:56', { ofDay: 39_360 }],
    ['10:56:46', { ofDay: 39_406 }],
    ['2026-11-21T10:56:46.25Z', 1_795_258_606.25],
    ['2026-11-21T10:56:46', 1_795_258_606],
  ],
  ['', 'now', '2026-11-21', '24:00', '9:5', '2026-13-01T00:00:00Z', '-5', 'Sat Nov 21 2026'],
  'Expected Unix seconds, RFC 3339 (2026-11-21T10:56:46Z) or a time of day (10:56).',
);

describeParser(
  'parseFormat',
  parseFormat,
  ['table', 'wide', 'json', 'yaml', 'junit', 'sarif', 'github', 'markdown'].map((format) => [
    format,
    format,
  ]),
  ['', 'xml', 'JSON'],
  'Expected one of table, wide, json, yaml, junit, sarif, github, markdown.',
);

describeParser(
  'parseRelease',
  (text) => parseRelease(text).minor,
  [
    ['v1.36.3', 36],
    ['1.28', 28],
  ],
  ['', '1.27', '2.0', 'latest'],
  `Expected a release among ${releases.map(nameOf).join(', ')}.`,
);

describeParser(
  'parseCount',
  parseCount,
  [
    ['1', 1],
    ['100', 100],
  ],
  ['0', '-1', '1.5', '', 'many', 'Infinity'],
  'Expected a whole number above 0.',
);

describeParser(
  'parseAddress',
  parseAddress,
  [
    ['127.0.0.1:9465', { host: '127.0.0.1', port: 9465 }],
    ['localhost:80', { host: 'localhost', port: 80 }],
    ['[::1]:9465', { host: '::1', port: 9465 }],
    ['fd00::1:9465', { host: 'fd00::1', port: 9465 }],
    [':9465', { host: null, port: 9465 }],
    [':0', { host: null, port: 0 }],
    [':65535', { host: null, port: 65_535 }],
  ],
  ['', '9465', 'localhost', ':65536', '::x:9465', 'localhost:http', '[::1]', 'a:1:2', ':-1'],
  'Expected an address such as 127.0.0.1:9465 or :9465.',
);

describeParser(
  'parseNames',
  parseNames,
  [
    ['shop', ['shop']],
    ['shop,pay', ['shop', 'pay']],
    [' shop , pay-2 ', ['shop', 'pay-2']],
    ['0', ['0']],
    ['a'.repeat(63), ['a'.repeat(63)]],
  ],
  [
    '',
    'shop,',
    ',shop',
    'Shop',
    'shop_1',
    '-shop',
    'shop-',
    'shop/web',
    'a.b',
    'a'.repeat(64),
    '*',
  ],
  'Expected namespaces separated by commas, not',
);

test('parseNames names the wrong item', () => {
  expect(() => parseNames('shop,Pay,x_y')).toThrow('not "Pay".');
  expect(() => parseNames('shop,,pay')).toThrow('not an empty name.');
});

describeParser(
  'parseShard',
  parseShard,
  [
    ['0/1', { index: 0, count: 1 }],
    ['0/3', { index: 0, count: 3 }],
    ['2/3', { index: 2, count: 3 }],
    ['9998/9999', { index: 9998, count: 9999 }],
  ],
  ['', '3/3', '4/3', '0/0', '1', '1/', '/3', '-1/3', '0/-3', '0.5/3', '0 / 3', 'a/b', '1/2/3'],
  'Expected i/n with i from 0 to n - 1, such as 0/3.',
);

describeParser(
  'parseSize',
  parseSize,
  [
    ['1', 1],
    ['1000000', 1_000_000],
    ['64Ki', 65_536],
    ['64Mi', 67_108_864],
    ['1Gi', 1_073_741_824],
    ['1G', 1_000_000_000],
    ['1K', 1000],
    ['1k', 1000],
    ['2M', 2_000_000],
    ['1.5Mi', 1_572_864],
    ['0.5', 1],
  ],
  ['', '0', '0.4', '0Mi', '-1', '1T', '1mi', '1 Mi', 'Mi', '1e6', '1,5M', 'i', '1i', 'all'],
  'Expected a size such as 64Mi, 1G or 1000000.',
);

describeParser(
  'parseOutput',
  parseOutput,
  ['text', 'json'].map((format) => [format, format]),
  ['', 'yaml', 'TEXT'],
  'Expected one of text, json.',
);

test.each([
  ['node-a=a.rules', { node: 'node-a', path: 'a.rules' }],
  ['node-a.eu.example=dir/a=b', { node: 'node-a.eu.example', path: 'dir/a=b' }],
  ['a.rules', { node: null, path: 'a.rules' }],
  ['=a.rules', { node: null, path: '=a.rules' }],
  ['Node=a', { node: null, path: 'Node=a' }],
  ['node-a=', { node: null, path: 'node-a=' }],
])('parseNodeFile %j', (text, want) => {
  expect(parseNodeFile(text)).toEqual(want);
});

describeParser(
  'parseRulesFile',
  parseRulesFile,
  [['node-a=a.rules', { node: 'node-a', path: 'a.rules' }]],
  ['a.rules', '=a.rules', 'node-a='],
  'Expected NODE=FILE.',
);

test('the version is that of the package', () => {
  expect(version).toBe(packageJson.version);
});

describeParser(
  'parseIPs',
  parseIPs,
  [
    ['10.0.0.1', ['10.0.0.1']],
    ['10.0.0.1, fd00::1', ['10.0.0.1', 'fd00::1']],
  ],
  ['', '10.0.0.1,', '10.0.0.0/24', '10.0.0.256', 'node-a'],
  'Expected addresses separated by commas, not',
);

describeParser(
  'parseCIDRs',
  parseCIDRs,
  [
    ['10.244.1.0/24', ['10.244.1.0/24']],
    ['10.244.1.0/24,fd00::/64', ['10.244.1.0/24', 'fd00::/64']],
  ],
  ['', '10.244.1.0', '10.244.1.0/33', 'fd00::/129', '10.244.1.0/24,x', '/24'],
  'Expected ranges such as 10.244.1.0/24 separated by commas, not',
);

test('parseService reads NAMESPACE/NAME and refuses other texts', () => {
  expect(parseService('auditor/agents')).toEqual({ namespace: 'auditor', name: 'agents' });
  for (const text of ['agents', 'a/b/c', '/agents', 'Auditor/agents', 'auditor/']) {
    expect(() => parseService(text)).toThrow('Expected a Service as NAMESPACE/NAME.');
  }
});

test.each([
  ['24.21.0', null],
  ['22.19.0', null],
  ['22.18.3', /^Needs Node 22.19 or later, and this is 22.18.3\. .*node_modules\/.bin\/node dist/],
  ['20.20.2', /^Needs Node 22.19 or later, and this is 20.20.2\. .*node_modules\/.bin\/node dist/],
])('Node %s', (found, want) => {
  const problem = nodeProblem(found);
  if (want === null) expect(problem).toBeNull();
  else expect(problem).toMatch(want);
});

test('the oldest Node is the one that the package asks for', () => {
  const oldest = packageJson.engines.node.replace('>=', '');
  expect(nodeProblem(`${oldest}.0`)).toBeNull();
  expect(nodeProblem('1.0.0')).toContain(`Node ${oldest} `);
});

// Files with the rules of nodes, and files that cannot be used.

import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';

import { afterEach, describe, expect, test, vi } from 'vitest';

import { printed, usual } from '../live-cluster.ts';
import { auditDump, givenRules, readText } from '../../src/commands/audit.ts';
import type { NodeFile } from '../../src/commands/shared/flag-values.ts';
import type { AuditReport } from '../../src/output/text/report.ts';

const folder = mkdtempSync(join(tmpdir(), 'rules-'));
const file = (name: string, bytes: string | Uint8Array): string => {
  writeFileSync(join(folder, name), bytes);
  return join(folder, name);
};

test("plain and gzipped files are read with their node's configuration", async () => {
  const plain = file('a.txt', '*nat');
  const packed = file('b.txt.gz', gzipSync('*filter'));
  const own = file('own.yaml', 'mode: nftables');
  const all = file('all.yaml', 'mode: iptables');
  const given = await givenRules({
    rules: [
      { node: 'node-a', path: plain },
      { node: 'node-b', path: packed },
    ],
    proxyConfig: [
      { node: null, path: all },
      { node: 'node-b', path: own },
    ],
  });
  const kind = 'given-rules';
  expect(given).toEqual([
    {
      kind,
      node: 'node-a',
      source: plain,
      text: '*nat',
      unread: null,
      config: { mode: 'iptables' },
    },
    {
      kind,
      node: 'node-b',
      source: packed,
      text: '*filter',
      unread: null,
      config: { mode: 'nftables' },
    },
  ]);
});

test('a file that inflates to gigabytes is not read, nor one without an end', async () => {
  const zeros = Buffer.alloc(16 * 1024 * 1024);
  const member = gzipSync(zeros, { level: 9 });
  const bomb = file('bomb.gz', Buffer.concat(Array.from({ length: 128 }, () => member)));
  const given = await givenRules({ rules: [{ node: 'node-a', path: bomb }] });
  expect(given).toMatchObject([
    { text: '', unread: expect.stringContaining('200 times') as string },
  ]);
  await expect(readText('/dev/zero', 1000)).rejects.toThrow('Is longer than 1000 bytes');
});

test('an error about a configuration that is not YAML names its file', async () => {
  const path = file('bad.yaml', 'mode: [');
  await expect(givenRules({ proxyConfig: [{ node: null, path }] })).rejects.toThrow(path);
});

afterEach(() => {
  vi.restoreAllMocks();
});

const node = (name: string, ip: string): object => ({
  ...{ apiVersion: 'v1', kind: 'Node', metadata: { name, resourceVersion: '1' }, spec: {} },
  status: { addresses: [{ type: 'InternalIP', address: ip }] },
});

const cluster = file(
  'cluster.json',
  JSON.stringify({
    apiVersion: 'v1',
    kind: 'List',
    items: [
      node('node-a', '172.18.0.2'),
      node('node-b', '172.18.0.3'),
      {
        ...{ apiVersion: 'v1', kind: 'Service' },
        metadata: { name: 'web', namespace: 'shop', resourceVersion: '1' },
        spec: {
          ...{ type: 'ClusterIP', clusterIP: '10.96.0.10', clusterIPs: ['10.96.0.10'] },
          ...{ ipFamilies: ['IPv4'], ports: [{ port: 80, protocol: 'TCP', targetPort: 8080 }] },
        },
      },
    ],
  }),
);

/** Of a Service without endpoints: nothing rejects what comes to it. */
const wrong = file('wrong.txt', '*nat\n:PREROUTING ACCEPT [0:0]\nCOMMIT\n');

const v6 = 'fd00::10/128 -p tcp -m tcp --dport 80 -j DNAT --to-destination [fd00::2]:80';

async function auditWith(rules: readonly NodeFile[]) {
  const { out, err } = printed();
  const code = await auditDump([cluster], { ...usual, rules });
  const report = JSON.parse(out()) as AuditReport;
  return { code, report, err: err() };
}

const random = Uint8Array.from({ length: 4096 }, (_, at) => (at * 7919) % 251);

describe('unusable rules make only their own node unknown', () => {
  test.each<[string, string, RegExp | null]>([
    ['an empty file', file('empty', ''), /empty: Node node-a: The file is empty/],
    ['blank lines', file('blank', '\n \n'), /blank: Node node-a: The file is empty/],
    ['a folder', folder, /: Node node-a: Cannot read: illegal operation on a directory/],
    ['no file', join(folder, 'absent'), /absent: Node node-a: Cannot read: no such file/],
    [
      'half of a gzip file',
      file('half.gz', gzipSync(random).subarray(0, 99)),
      /half.gz: Node node-a/,
    ],
    ['bytes', file('bytes', random), /bytes:1: Node node-a: Line 1: not a line of iptables-save/],
    ['a text', file('text', 'hello\n'), /text:1: .*not a line of iptables-save: hello/],
    ['a long line', file('long', `*nat\n${'x'.repeat(20_000_000)}`), /long:2: .*: xxxxxxxx/],
    ['half of a dump', file('half', '*nat\n:PREROUTING ACCEPT [0:0]\n'), /half:2: .*before COMMIT/],
    [
      'half of a line',
      file('cut', '*nat\n:KUBE-A - [0:0]\n-A KUB'),
      /cut:3: .*not declared: -A KUB/,
    ],
    ['half of JSON', file('cut.json', '{"nftables": [{"table"'), /cut.json:1: .*not JSON/],
    ['other JSON', file('other.json', '{"a": 1}'), /other.json:1: .*no list "nftables": {"a": 1}/],
    [
      'nft without -j',
      file('plain', 'table ip nat {\n}\n'),
      /plain:1: .*nft with -j: table ip nat/,
    ],
    [
      'another family',
      file('six', `*nat\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -d ${v6}\nCOMMIT\n`),
      null,
    ],
  ])('%s', async (_, path, message) => {
    const rules = [
      { node: 'node-a', path },
      { node: 'node-b', path: wrong },
    ];
    const { code, report, err } = await auditWith(rules);
    expect(code).toBe(2);
    if (message !== null) expect(err).toMatch(message);
    expect(err.length).toBeLessThan(2000);
    expect(report.unknown).toMatchObject({ 'rules-not-known': 1 });
    expect(report.findings.map(({ node: name, code: what }) => `${String(name)} ${what}`)).toEqual([
      'node-b node-reject-missing',
    ]);
  });

  test('a node that is not in the dump is named', async () => {
    const { code, report, err } = await auditWith([
      { node: 'nobody', path: wrong },
      { node: 'node-b', path: wrong },
    ]);
    expect(code).toBe(2);
    expect(err).toMatch(/wrong.txt: Node nobody: There is no such Node in .*cluster.json/);
    expect(report.unknown).toEqual({ 'node-not-known': 1 });
    expect(report.findings).toHaveLength(1);
  });

  test('a repeated file counts once, and a node with an unreadable file is unknown', async () => {
    const one = { node: 'node-a', path: wrong };
    expect((await auditWith([one, one])).code).toBe(1);
    vi.restoreAllMocks();
    const { code, report } = await auditWith([one, { node: 'node-a', path: file('x', 'x') }]);
    expect(code).toBe(2);
    expect(report.findings).toEqual([]);
  });

  test('an empty file beside another one is ignored', async () => {
    const rules = [wrong, file('none', '')].map((path) => ({ node: 'node-a', path }));
    expect((await auditWith(rules)).code).toBe(1);
  });

  test('an unreadable configuration ends the command with one line', async () => {
    const rules = [{ node: 'node-a', path: wrong }];
    for (const path of [folder, wrong, join(folder, 'absent')]) {
      const failed = givenRules({ rules, proxyConfig: [{ node: null, path }] });
      const message = await failed.then(
        () => '',
        (error: unknown) => (error instanceof Error ? error.message : ''),
      );
      expect(message).toMatch(/^\S+: \S.*[^:]$/);
      expect(message.startsWith(path)).toBe(true);
      expect(message).not.toContain('\n');
    }
  });
});

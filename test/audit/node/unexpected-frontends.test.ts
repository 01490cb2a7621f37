// Rules that take more than a Service has, at nodes as real kube-proxies left them: one rule is
// made wider, and what it then answers for is found, and who it was written for, where that is one.

import { join } from 'node:path';

import { expect, test } from 'vitest';

import { auditNode, behaviorOfRules } from '../../../src/audit/node/audit-node.ts';
import { parseIptablesSave } from '../../../src/rules/parse/iptables-save.ts';
import { parseNft } from '../../../src/rules/parse/nft-ruleset.ts';
import type { RuleSet } from '../../../src/rules/ruleset.ts';
import { expectedOf, inputOf } from '../../nodes/audit.ts';
import { readBytes, readFolder } from '../../nodes/folder.ts';

const recordings = join(import.meta.dirname, '../../nodes/recordings/main');

/** What no Service asks for, and the Service port that it is told of. */
function unexpected(
  name: string,
  dump: string,
  read: (text: string) => RuleSet,
  edit: readonly [string | RegExp, string],
): string[] {
  const folder = readFolder(join(recordings, name));
  const input = inputOf(folder);
  const text = readBytes(join(recordings, name, dump))?.toString() ?? '';
  if (input === null) throw new Error('No objects');
  const edited = text.replace(...edit);
  expect(edited).not.toBe(text);
  const { differences } = auditNode({
    forwarding: expectedOf(folder, input),
    node: input.node,
    rules: behaviorOfRules(read(edited), folder.node),
  });
  return differences
    .filter(({ code }) => code === 'node-frontend-unexpected')
    .map(({ port, frontend, origin }) => `${port?.name ?? ''} ${frontend} from ${origin}`)
    .sort();
}

const readIptables = (text: string): RuleSet => parseIptablesSave(text, 'ip');
const web = '-d 10.96.236.25/32 -p tcp -m comment --comment "shop/web:http cluster IP" -m tcp';

test.each<[string, string, readonly [string | RegExp, string], string[]]>([
  [
    'a port range',
    'iptables-nft/node-a',
    [`-A KUBE-SERVICES ${web} --dport 80`, `-A KUBE-SERVICES ${web} --dport 80:90`],
    ['shop/web:http 10.96.236.25:90/tcp from a pod of the node'],
  ],
  [
    'any port',
    'iptables-nft/node-a',
    [`-A KUBE-SERVICES ${web} --dport 80`, '-A KUBE-SERVICES -d 10.96.236.25/32 -p tcp'],
    ['shop/web:http 10.96.236.25:9/tcp from a pod of the node'],
  ],
  [
    'a network that has one Service',
    'iptables-nft/node-a',
    [`-A KUBE-SERVICES ${web}`, '-A KUBE-SERVICES -d 10.96.236.0/24 -p tcp -m tcp'],
    [
      'shop/web:http 10.96.236.0:80/tcp from a pod of the node',
      'shop/web:http 10.96.236.255:80/tcp from a pod of the node',
    ],
  ],
  [
    'node ports at any address',
    'iptables-nft/node-a',
    [/-m addrtype --dst-type LOCAL (?=-j KUBE-NODEPORTS)/, ''],
    [expect.stringMatching(/^ 203\.0\.113\.77:\d+\/(tcp|udp) from a pod of the node$/) as string],
  ],
])('iptables: %s', (_, name, edit, want) => {
  expect(unexpected(name, 'iptables-save.txt', readIptables, edit)).toEqual(want);
});

test('nftables: node ports at an address of the node that serves none', () => {
  const edit = ['"elem": ["172.18.0.2"]', '"elem": ["172.18.0.2", "10.244.1.1"]'] as const;
  expect(unexpected('nftables/node-a', 'nft.json', parseNft, edit)).toEqual([
    expect.stringMatching(/^ 10\.244\.1\.1:\d+\/(tcp|udp) from a pod of the node$/),
  ]);
});

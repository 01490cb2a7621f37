// Rules of other programs beside recorded rules of kube-proxy: what flannel and network policies
// do, and similar rules with an effect. Rules of kube-proxy that match more than a Service has are
// found. Outcomes have the same effect after the JSON encoding of an agent.

import { join } from 'node:path';

import { describe, expect, test } from 'vitest';

import { auditNode } from '../../../src/audit/node/audit-node.ts';
import { isKubernetesRule } from '../../../src/audit/node/compare-packet.ts';
import type { NodeBehavior } from '../../../src/audit/node/observation.ts';
import { behaviorOfRules } from '../../../src/audit/node/observation.ts';
import { parseIptablesSave } from '../../../src/rules/parse/iptables-save.ts';
import { parseNft } from '../../../src/rules/parse/nft-ruleset.ts';
import { decodeOutcomes, encodeOutcomes } from '../../../src/rules/report/outcome-json.ts';
import type { RuleSet } from '../../../src/rules/ruleset.ts';
import { mergeRuleSets } from '../../../src/rules/ruleset.ts';
import type { TraceStep } from '../../../src/rules/walk/walk-state.ts';
import { runToEnd } from '../../../src/model/run-to-end.ts';
import { readBytes, readFolder } from '../../nodes/folder.ts';
import type { NodeAuditSummary } from '../../nodes/walk.ts';
import { expectedOf, inputOf, summarizeNode } from '../../nodes/walk.ts';

const path = join(import.meta.dirname, '../../nodes/recordings/main/iptables-nft/node-a');
const folder = readFolder(path);
const [v4 = '', v6 = ''] = ['iptables-save.txt', 'ip6tables-save.txt'].map((name) =>
  readBytes(join(path, name))?.toString(),
);

/** The dump with these rules before all others of a table. */
function dumpWith(table: string, rules: readonly string[]): string {
  const chains = new Set(rules.map((rule) => rule.split(' ')[1] ?? ''));
  const begin = v4.indexOf(`*${table}\n`);
  const first = v4.indexOf('\n-A ', begin) + 1;
  const head = v4.slice(0, first);
  const added = [...chains].filter((name) => !head.slice(begin).includes(`\n:${name} `));
  const lines = [...added.map((name) => `:${name} - [0:0]`), ...rules];
  return `${head}${lines.join('\n')}\n${v4.slice(first)}`;
}

const throughJSON = (rules: NodeBehavior): NodeBehavior => ({
  ...rules,
  walk: (packet) => {
    const outcome = rules.walk(packet);
    return outcome === null
      ? null
      : (runToEnd(decodeOutcomes(JSON.parse(JSON.stringify(encodeOutcomes([outcome])))))[0] ??
          null);
  },
});

function audits(table: string, ...rules: readonly string[]): NodeAuditSummary[] {
  const input = inputOf(folder);
  if (input === null) throw new Error('No objects');
  const dump = parseIptablesSave(dumpWith(table, rules), 'ip');
  const own = behaviorOfRules(mergeRuleSets([dump, parseIptablesSave(v6, 'ip6')]), folder.node);
  const forwarding = expectedOf(folder, input);
  return [own, throughJSON(own)].map((one) =>
    summarizeNode({ forwarding, node: input.node, rules: one }),
  );
}

/** What is found with these rules first in a table, about this Service; null: about any. */
function found(table: string, service: string | null, ...rules: readonly string[]): string[] {
  const [own, decoded] = audits(table, ...rules).map(({ findings }) =>
    findings
      .filter((one) => service === null || one.service === service)
      .map(({ severity, code, rule }) => `${severity} ${code} ${rule ?? ''}`.trim()),
  );
  expect(decoded).toEqual(own);
  return [...new Set(own)];
}

const pods = '10.244.0.0/16';
const here = '10.244.1.0/24';
/** Pods of another node. */
const elsewhere = '10.244.0.0/24';

describe('a masquerade', () => {
  test('by flannel is allowed', () => {
    const rules = [
      '-A POSTROUTING -j FLANNEL-POSTRTG',
      '-A FLANNEL-POSTRTG -m mark --mark 0x4000/0x4000 -j RETURN',
      `-A FLANNEL-POSTRTG -s ${here} -d ${pods} -j RETURN`,
      `-A FLANNEL-POSTRTG -s ${pods} -d ${here} -j RETURN`,
      `-A FLANNEL-POSTRTG ! -s ${pods} -d ${here} -j RETURN`,
      `-A FLANNEL-POSTRTG -s ${pods} ! -d 224.0.0.0/4 -j MASQUERADE --random-fully`,
      `-A FLANNEL-POSTRTG ! -s ${pods} -d ${pods} -j MASQUERADE --random-fully`,
    ];
    expect(found('nat', null, ...rules)).toEqual([]);
  });

  test('of packets that leave the node again is allowed', () => {
    const rule = `-A POSTROUTING -s ${elsewhere} ! -d ${here} -j MASQUERADE`;
    expect(found('nat', null, rule)).toEqual([]);
  });

  test('of other nodes’ pods to pods of this node is critical', () => {
    const rule = `-A POSTROUTING -s ${elsewhere} -d ${here} -j MASQUERADE`;
    expect(found('nat', null, rule)).toContain(`critical node-foreign-rule ${rule}`);
  });

  test('of a pod of the node is critical', () => {
    const rule = `-A POSTROUTING -s ${pods} -d ${pods} -j MASQUERADE`;
    expect(found('nat', null, rule)).toEqual([`critical node-foreign-rule ${rule}`]);
  });

  test('by kube-proxy is critical for packets of every origin', () => {
    const rule = `-A KUBE-POSTROUTING -s ${elsewhere} -j MASQUERADE`;
    expect(found('nat', null, rule)).toEqual([`critical node-rules-different ${rule}`]);
  });
});

describe('a rule that drops sources which only tests have', () => {
  test.each([
    ['-A FORWARD -s 203.0.113.0/24 -j DROP'],
    ['-A FORWARD -s 203.0.113.0/24 -j BOGONS', '-A BOGONS -j LOG', '-A BOGONS -j DROP'],
  ])('is no fault: %s', (...rules) => {
    expect(found('filter', null, ...rules)).toEqual([]);
  });

  test('is one if it drops others, too', () => {
    const rule = '-A FORWARD -s 192.0.0.0/2 -j DROP';
    expect(found('filter', null, rule)).toEqual([`critical node-foreign-rule ${rule}`]);
  });
});

describe('a rule that rejects what is sent to one endpoint', () => {
  const endpoint = '10.244.1.6/32';
  const policy = (forward: string, pod: string): [string, string, string, string] => [
    `-A FORWARD -j ${forward}`,
    `-A ${forward} -d ${endpoint} -j ${pod}`,
    `-A ${pod} -m addrtype --src-type LOCAL -d ${endpoint} -j ACCEPT`,
    `-A ${pod} -m mark ! --mark 0x10000/0x10000 -j REJECT --reject-with icmp-port-unreachable`,
  ];

  test.each([
    ['KUBE-ROUTER-FORWARD', 'KUBE-POD-FW-WXRM6UQP4DEVWOEZ', 'info'],
    ['cali-FORWARD', 'cali-tw-a', 'info'],
    ['quarantine', 'quarantined', 'warning'],
  ])('in %s and %s is %s', (forward, pod, severity) => {
    const rules = policy(forward, pod);
    expect(found('filter', 'web', ...rules)).toEqual([
      `${severity} node-endpoint-blocked ${rules[3]}`,
    ]);
  });

  test('does not explain a rule that stops all packets', () => {
    const [lead, call] = policy('KUBE-ROUTER-FORWARD', 'KUBE-POD-FW-A');
    const all = `-A FORWARD -d ${pods} -j DROP`;
    const accepted = '-A KUBE-POD-FW-A -j RETURN';
    const texts = found('filter', null, lead, all, call, accepted);
    expect(texts.some((text) => text.startsWith('critical node-foreign-rule'))).toBe(true);
  });
});

test.each([
  ['KUBE-SERVICES', true],
  ['KUBE-SVC-TCOU7JCQXEZGVUNU', true],
  ['KUBE-XLB-TCOU7JCQXEZGVUNU', true],
  ['KUBE-MARK-DROP', true],
  ['KUBE-IPVS-OUT-FILTER', true],
  ['KUBE-IPTABLES-HINT', true],
  ['KUBE-ROUTER-FORWARD', false],
  ['KUBE-POD-FW-WXRM6UQP4DEVWOEZ', false],
  ['KUBE-NWPLCY-WXRM6UQP4DEVWOEZ', false],
  ['KUBE-NWPLCY-DEFAULT', false],
  ['FORWARD', false],
])('%s is a chain of kube-proxy or the kubelet: %s', (chain, own) => {
  const base = { table: { name: 'filter' } };
  expect(isKubernetesRule({ chain, base } as TraceStep)).toBe(own);
});

const recordings = join(import.meta.dirname, '../../nodes/recordings/main');

/** Unexpected frontends, with the Service port that they are attributed to. */
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
])('iptables rules that match %s have unexpected frontends', (_, name, edit, want) => {
  expect(unexpected(name, 'iptables-save.txt', readIptables, edit)).toEqual(want);
});

test('nftables: node ports at another address of the node', () => {
  const edit = ['"elem": ["172.18.0.2"]', '"elem": ["172.18.0.2", "10.244.1.1"]'] as const;
  expect(unexpected('nftables/node-a', 'nft.json', parseNft, edit)).toEqual([
    expect.stringMatching(/^ 10\.244\.1\.1:\d+\/(tcp|udp) from a pod of the node$/),
  ]);
});

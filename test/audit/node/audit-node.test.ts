// A change of the cluster that does not reach a node is found at the Service that changed, and a
// trace agrees with the audit. test/nodes/walk.test.ts audits all recordings, sound and broken.

import { join } from 'node:path';

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import { auditNode, tracePackets } from '../../../src/audit/node/audit-node.ts';
import type { NodeInput } from '../../../src/audit/node/observation.ts';
import { behaviorOfMaps, behaviorOfRules } from '../../../src/audit/node/observation.ts';
import { defaultCiliumConfig } from '../../../src/model/cilium-config.ts';
import type { EndpointSlice } from '../../../src/model/objects.ts';
import { label } from '../../../src/model/objects.ts';
import { defaultProxyConfig } from '../../../src/model/proxy-config.ts';
import { readMapsDump } from '../../../src/rules/cilium/maps-dump.ts';
import { parseIptablesSave } from '../../../src/rules/parse/iptables-save.ts';
import type { RuleSet } from '../../../src/rules/ruleset.ts';
import { mergeRuleSets } from '../../../src/rules/ruleset.ts';
import { ciliumForwarding } from '../../../src/shadow/cilium/forwarding.ts';
import type { Forwarding } from '../../../src/shadow/forwarding.ts';
import { expectedForwarding, slicesByService } from '../../../src/shadow/forwarding.ts';
import { endpoint, node, service, servicePort, slice } from '../../build.ts';
import type { Folder } from '../../nodes/folder.ts';
import { readFolder } from '../../nodes/folder.ts';
import type { Input } from '../../nodes/walk.ts';
import { expectedOf, inputOf, summarizeNode } from '../../nodes/walk.ts';

const nodes = join(import.meta.dirname, '../../nodes');
/** A recording with its objects. */
function folderAt(path: string): { folder: Folder; input: Input } {
  const folder = readFolder(join(nodes, path));
  const input = inputOf(folder);
  if (input === null) throw new Error(`No objects in ${path}`);
  return { folder, input };
}

/** What a forwarding expects of all packets that could be asked, as text. */
function expectations({ ports }: Forwarding): Map<string, string> {
  const texts = ports.map(({ name, protocol, family, usable }): [string, string] => {
    const sets = (usable() ?? []).map(({ cluster, local, any }) => {
      const of = (list: typeof cluster) => list.map(({ text }) => text).sort();
      return [of(cluster), of(local), any];
    });
    return [`${name} ${protocol} ${family}`, JSON.stringify(sets)];
  });
  return new Map(texts);
}

describe.each(['recordings/main/iptables-nft/node-a', 'recordings/main/nftables/node-b'])(
  'a cluster that changes without %s',
  (path) => {
    const { folder, input } = folderAt(path);
    const context = { node: input.node, rules: behaviorOfRules(folder.ruleset, folder.node) };
    const before = expectations(expectedOf(folder, input));
    const places = input.slices.flatMap((slice, at) =>
      slice.endpoints.map((_, index) => [at, index]),
    );

    const changed = (at: number, index: number, how: 'gone' | 'not ready'): EndpointSlice[] =>
      input.slices.map((slice, place) => {
        if (place !== at) return slice;
        const endpoints = slice.endpoints.flatMap((one, place) => {
          if (place !== index) return [one];
          return how === 'gone' ? [] : [{ ...one, ready: false, serving: false }];
        });
        return { ...slice, endpoints };
      });

    test('differs at the Services that changed and at no other', () => {
      const place = fc.constantFrom(...places);
      const how = fc.constantFrom('gone', 'not ready');
      const check = ([at = 0, index = 0]: number[], how: 'gone' | 'not ready'): void => {
        const forwarding = expectedOf(folder, { ...input, slices: changed(at, index, how) });
        const after = expectations(forwarding);
        const isChanged = [...after].some(([name, text]) => before.get(name) !== text);
        const slice = input.slices[at];
        const { findings } = summarizeNode({ ...context, forwarding });
        const services = new Set(
          findings.map(({ namespace, service }) => `${namespace}/${service}`),
        );
        const name = `${slice?.namespace ?? ''}/${slice?.labels[label.serviceName] ?? ''}`;
        expect([...services]).toEqual(isChanged ? [name] : []);
      };
      fc.assert(fc.property(place, how, check), { numRuns: 20 });
    });
  },
);

test('the frontend of a deleted Service is unexpected', () => {
  const { folder, input } = folderAt('recordings/main/nftables/node-a');
  const services = input.services.filter(({ key }) => key !== 'shop/ten');
  const gone = input.services.find(({ key }) => key === 'shop/ten')?.clusterIP ?? '';
  const forwarding = expectedOf(folder, { ...input, services });
  const { findings } = summarizeNode({
    forwarding,
    node: input.node,
    rules: behaviorOfRules(folder.ruleset, folder.node),
  });
  expect(findings.map(({ code }) => code)).toEqual(['node-frontend-unexpected']);
  expect(findings[0]?.object).toContain(`${gone}:80/tcp`);
});

test('missing rules are one finding', () => {
  const { folder, input } = folderAt('recordings/main/iptables-nft/node-a');
  const ruleset = mergeRuleSets([parseIptablesSave('', 'ip'), parseIptablesSave('', 'ip6')]);
  const forwarding = expectedOf(folder, input);
  const rules = behaviorOfRules(ruleset, folder.node);
  const audit = summarizeNode({ forwarding, node: input.node, rules });
  expect(audit.findings.map(({ code }) => code)).toEqual(['node-rules-flushed']);
  expect(audit.conform + audit.different + audit.unknown).toBe(forwarding.ports.length);
});

test.each([
  'recordings/main/iptables-nft/node-a',
  'recordings/main/nftables/node-a',
  'recordings/v1.31.14/nftables/node-a',
  'recordings/v1.37.2/nftables/node-b',
])('nothing is wrong if the node has all addresses of Services: %s', (path) => {
  const { folder, input } = folderAt(path);
  // As kube-ipvs0 has them if kube-proxy was in IPVS mode before.
  const services = input.services.flatMap(({ clusterIPs, loadBalancerIPs, externalIPs }) =>
    [clusterIPs, loadBalancerIPs, externalIPs].flat().filter((ip) => ip !== 'None'),
  );
  const localAddresses = [...folder.node.localAddresses, ...services];
  const own = { ...folder, node: { ...folder.node, localAddresses } };
  const rules = behaviorOfRules(folder.ruleset, own.node);
  const { findings } = summarizeNode({
    forwarding: expectedOf(own, input),
    node: input.node,
    rules,
  });
  expect(findings.map(({ code, severity, object }) => [severity, code, object])).toEqual([]);
});

describe('packets that NodeLocal DNSCache exempts from conntrack', () => {
  const { folder, input } = folderAt('recordings/main/iptables-nft/node-a');
  const vip = input.services.find(({ name }) => name === 'kube-dns')?.clusterIP ?? '';
  const dns = (protocol: string): string => `-d ${vip}/32 -p ${protocol} -m ${protocol} --dport 53`;
  const untracked = (hook: string, matches: string): string => `-A ${hook} ${matches} -j NOTRACK`;
  const hooks = ['PREROUTING', 'OUTPUT'];
  const cache = hooks.flatMap((hook) => ['udp', 'tcp'].map((one) => untracked(hook, dns(one))));

  /** Codes and severities at each port of the Service. */
  const foundWith = (...rules: readonly string[]): string[] => {
    const chains = hooks.map((hook) => `:${hook} ACCEPT [0:0]`);
    const raw = parseIptablesSave(['*raw', ...chains, ...rules, 'COMMIT', ''].join('\n'), 'ip');
    const rulesNow = behaviorOfRules(mergeRuleSets([raw, folder.ruleset]), folder.node);
    const forwarding = expectedOf(folder, input);
    const { findings } = summarizeNode({ forwarding, node: input.node, rules: rulesNow });
    const own = findings.filter(({ service }) => service === 'kube-dns');
    const at = own.flatMap(({ code, severity, ports }) =>
      [...ports].map((port) => `${severity} ${code} ${port}`),
    );
    return at.sort();
  };

  test('are information', () => {
    expect(foundWith(...cache)).toEqual([
      'info node-foreign-rule infra/kube-dns:dns',
      'info node-foreign-rule infra/kube-dns:dns-tcp',
    ]);
  });

  test.each([
    ['another port beside it', `-d ${vip}/32 -p udp -m multiport --dports 53,54`],
    ['all ports', `-d ${vip}/32 -p udp`],
    ['a range of addresses', `-d ${vip}/30 -p udp -m udp --dport 53`],
    ['half of them', `${dns('udp')} -m statistic --mode random --probability 0.5`],
  ])('are critical with %s', (_, matches) => {
    expect(foundWith(untracked('PREROUTING', matches))).toEqual([
      'critical node-foreign-rule infra/kube-dns:dns',
    ]);
  });

  test('are critical if another rule drops them', () => {
    const drop = `-A PREROUTING -d ${vip}/32 -p udp -j DROP`;
    expect(foundWith(untracked('PREROUTING', dns('udp')), drop)).toEqual([
      'critical node-foreign-rule infra/kube-dns:dns',
    ]);
  });
});

describe('a trace', () => {
  const { folder, input } = folderAt('recordings/main/iptables-nft/node-a');
  const { services, slices, node, config } = input;
  const { addresses } = node;
  const bySlices = slicesByService(slices);
  const forwarding = expectedForwarding(services, bySlices, node, config, addresses);
  const inputWith = (ruleset: RuleSet): NodeInput => ({
    forwarding,
    node,
    rules: behaviorOfRules(ruleset, { localAddresses: addresses }),
  });
  const names = [...new Set(forwarding.ports.map(({ name }) => name))];

  test('of recorded rules conforms and lists the rules that translate', () => {
    const walked = names.flatMap((name) => tracePackets(inputWith(folder.ruleset), name));
    expect(walked.length).toBeGreaterThan(names.length);
    expect(walked.filter(({ verdict }) => verdict !== 'conform')).toEqual([]);
    const served = walked.filter(({ wanted }) => wanted.length > 0);
    expect(served.length).toBeGreaterThan(0);
    for (const { wanted, got, rules } of served) {
      expect([...got].sort()).toEqual([...wanted].sort());
      expect(rules.some((rule) => rule.includes('DNAT'))).toBe(true);
      expect(new Set(rules).size).toBe(rules.length);
    }
  });

  test('of missing rules differs for the same packets as the audit', () => {
    const bare = inputWith(parseIptablesSave('', 'ip'));
    const { differences } = auditNode(bare);
    for (const name of names) {
      const own = tracePackets(bare, name).filter(({ verdict }) => verdict === 'different');
      const wanted = differences.filter(({ port }) => port?.name === name);
      const textOf = (one: { frontend: string; origin: string }) => `${one.frontend} ${one.origin}`;
      expect(new Set(own.map(textOf))).toEqual(new Set(wanted.map(textOf)));
    }
  });

  test('of an unknown port is empty', () => {
    expect(tracePackets(inputWith(folder.ruleset), 'no/such:port')).toEqual([]);
  });
});

test('a wrong backend of a node port of Cilium has its Service, at all node addresses', () => {
  const slot = 'LBALG=undef AFFTimeout=0 COUNT=1 QCOUNT=0 FLAGS=NodePort';
  const { entries } = readMapsDump(
    [
      'BE: ID=2 ADDR=10.0.0.99:8080/TCP STATE=active',
      `SVC: ID=4 ADDR=0.0.0.0:30080/TCP SLOT=0 ${slot}+non-routable`,
      `SVC: ID=4 ADDR=0.0.0.0:30080/TCP SLOT=1 BEID=2 ${slot}+non-routable`,
      '',
    ].join('\n'),
  );
  const port = servicePort({ nodePort: 30_080 });
  const [nodeAddress = ''] = node().addresses;
  const forwarding = ciliumForwarding(
    [service({ clusterIP: '10.96.0.1', type: 'NodePort', ports: [port] })],
    slicesByService([slice({ endpoints: [endpoint({ addresses: ['10.0.0.1'] })] })]),
    node(),
    defaultProxyConfig('cilium', 0),
    { ...defaultCiliumConfig(), nodePortAddresses: [nodeAddress] },
    [nodeAddress, '10.244.1.1'],
  );
  const rules = behaviorOfMaps(entries, [nodeAddress, '10.244.1.1'], [30_000, 32_767]);
  const { findings } = summarizeNode({ forwarding, node: node(), rules });
  expect(findings.map(({ code, service: name }) => `${code} ${name}`)).not.toContain(
    'node-frontend-unexpected ',
  );
  expect(findings.length).toBeGreaterThan(0);
});

test('Cilium may have the health check of a Service at its load balancer IP', () => {
  const flags = 'LBALG=undef AFFTimeout=0 COUNT=1 QCOUNT=0 FLAGS=LoadBalancer+Local+InternalLocal';
  const entriesAt = (port: number) => [
    `REV: ID=4 ADDR=192.0.2.1:${port}`,
    `SVC: ID=4 ADDR=192.0.2.1:${port}/TCP SLOT=0 ${flags}`,
    `SVC: ID=4 ADDR=192.0.2.1:${port}/TCP SLOT=1 BEID=2 ${flags}`,
  ];
  const unexpectedAt = (port: number, healthCheckNodePort: number): string[] => {
    const lines = ['BE: ID=2 ADDR=172.18.0.2:31000/TCP STATE=active', ...entriesAt(port), ''];
    const { entries } = readMapsDump(lines.join('\n'));
    const forwarding = ciliumForwarding(
      [
        service({
          ...{ type: 'LoadBalancer', loadBalancerIPs: ['192.0.2.1'], clusterIP: '10.96.0.1' },
          ...{ externalTrafficPolicy: 'Local', healthCheckNodePort },
        }),
      ],
      new Map(),
      node(),
      defaultProxyConfig('cilium', 0),
      defaultCiliumConfig(),
    );
    const rules = behaviorOfMaps(entries, node().addresses, [30_000, 32_767]);
    const { differences } = auditNode({ forwarding, node: node(), rules });
    return differences.flatMap(({ code, frontend }) =>
      code === 'node-frontend-unexpected' ? frontend : [],
    );
  };
  expect(unexpectedAt(31_000, 31_000)).toEqual([]);
  expect(unexpectedAt(31_000, 31_001)).toEqual(['192.0.2.1:31000/tcp']);
});

test.each(['LocalRedirect', 'ClusterIP+l7-load-balancer'])(
  'a Service with the flags %s is unknown, not without its endpoints',
  (flags) => {
    const at = `SVC: ID=4 ADDR=10.96.0.1:80/TCP`;
    const counts = `LBALG=undef AFFTimeout=0 COUNT=1 QCOUNT=0 FLAGS=${flags}+non-routable`;
    const lines = [
      'BE: ID=2 ADDR=10.0.0.99:8080/TCP STATE=active',
      'REV: ID=4 ADDR=10.96.0.1:80',
      `${at} SLOT=0 ${counts}`,
      `${at} SLOT=1 BEID=2 ${counts}`,
      '',
    ];
    const { entries } = readMapsDump(lines.join('\n'));
    const forwarding = ciliumForwarding(
      [service({ clusterIP: '10.96.0.1' })],
      slicesByService([slice({ endpoints: [endpoint({ addresses: ['10.0.0.1'] })] })]),
      node(),
      defaultProxyConfig('cilium', 0),
      defaultCiliumConfig(),
    );
    const rules = behaviorOfMaps(entries, node().addresses, [30_000, 32_767]);
    const { differences, unknown } = auditNode({ forwarding, node: node(), rules });
    expect(differences).toEqual([]);
    expect(unknown.size).toBe(1);
  },
);

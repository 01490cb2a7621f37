import { expect, test } from 'vitest';

import { loadBalancerOf } from '../../../src/rules/cilium/load-balancer.ts';
import { readMapsDump } from '../../../src/rules/cilium/maps-dump.ts';
import {
  createConnector,
  frontendsInMaps,
  rangesInMaps,
} from '../../../src/rules/cilium/packet-outcome.ts';

const service = (address: string, more: string): string =>
  `SVC: ID=4 ADDR=${address} ${more} QCOUNT=0 FLAGS=ClusterIP+non-routable`;

const empty = 'SLOT=0 LBALG=undef AFFTimeout=0 COUNT=0 QCOUNT=0';
const proxyFlags = 'FLAGS=LoadBalancer+l7-load-balancer+check source-range';

const balancer = loadBalancerOf(
  readMapsDump(`
BE: ID=2 ADDR=10.0.0.2:8080/TCP STATE=active
REV: ID=4 ADDR=10.96.0.1:80
${service('10.96.0.1:80/TCP', 'SLOT=0 LBALG=undef AFFTimeout=60 COUNT=2')}+sessionAffinity
${service('10.96.0.1:80/TCP', 'SLOT=1 BEID=2 COUNT=0')}
AFF: ID=4 BEID=2
${service('10.96.0.1:0/ANY', 'SLOT=0 LBALG=undef AFFTimeout=0 COUNT=0')}
SVC: ID=5 ADDR=0.0.0.0:30080/TCP ${empty} FLAGS=NodePort+non-routable
SVC: ID=6 ADDR=10.0.0.9:80/TCP ${empty} FLAGS=HostPort
SVC: ID=7 ADDR=198.18.0.1:80/TCP SLOT=0 L7Proxy=1 COUNT=0 QCOUNT=0 ${proxyFlags}
SRCRANGE: ID=7 CIDR=203.0.113.0/24
`).entries,
);

const walk = createConnector(balancer, { isLocal: () => false, nodePortRange: [30_000, 32_767] });

const outcome = (dst: string, from: 'pod' | 'outside' = 'pod') =>
  walk({ from, src: '203.0.113.1', dst, protocol: 'tcp', dport: 80 });

test('a destination has its share; a slot without a backend drops the rest', () => {
  const { destinations, drop, unknown } = outcome('10.96.0.1');
  expect([...destinations]).toMatchObject([
    ['10.0.0.2:8080', { probability: 0.5, affinity: true, affinitySeconds: 60 }],
  ]);
  expect([drop.probability, unknown]).toEqual([0.5, []]);
  const [step] = [...destinations.values()].flatMap(({ trace }) => trace());
  expect([step?.base.table.name, step?.rule.text]).toEqual([
    'cilium',
    '10.96.0.1:80/tcp id 4 count 2 flags 0x10',
  ]);
});

test('other outcomes', () => {
  expect(outcome('10.96.0.9').pass.probability).toBe(1);
  expect(outcome('10.96.0.1', 'outside').drop.probability).toBe(1);
  const proxied = outcome('198.18.0.1');
  expect(proxied.unknown).toMatchObject([{ reason: expect.stringMatching('proxy') as string }]);
  expect([...proxied.destinations]).toMatchObject([['unknown', { probability: 1 }]]);
});

test('frontends are those of Services, without wildcard entries and host ports', () => {
  const found = frontendsInMaps(balancer).map(({ address, port }) => `${String(address)}:${port}`);
  expect(found).toEqual(['10.96.0.1:80', 'null:30080', '198.18.0.1:80']);
});

test('source ranges of a frontend', () => {
  const at = (address: string) => rangesInMaps(balancer, { address, port: 80, protocol: 'tcp' });
  expect([at('198.18.0.1').length, at('10.96.0.1').length]).toEqual([1, 0]);
});

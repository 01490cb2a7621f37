// Compares the expected outcomes of packets with what real kernels did, with the rules of a
// real kube-proxy: every packet of every recording that has objects.

import { join } from 'node:path';

import { describe, expect, test } from 'vitest';

import { label } from '../../src/model/objects.ts';
import type { Packet, Protocol } from '../../src/model/proxy-config.ts';
import { defaultProxyConfig } from '../../src/model/proxy-config.ts';
import type { ExpectedOutcome } from '../../src/model/proxy-config.ts';
import { expectedForwarding, slicesByService } from '../../src/shadow/forwarding.ts';
import { endpoint, node, service, servicePort, slice } from '../build.ts';
import type { PacketLine, Seen } from '../nodes/folder.ts';
import { foldersBelow, readFolder } from '../nodes/folder.ts';
import { forwardingOf } from '../nodes/walk.ts';

const recordings = foldersBelow(join(import.meta.dirname, '../nodes/recordings'));

function packetsOf({ packet, srcs }: PacketLine): Packet[] {
  const protocol = packet.protocol.toLowerCase() as Protocol;
  return (srcs ?? [packet.src]).map((src) => ({ ...packet, src, protocol }));
}

/** Whether a recorded outcome agrees with this expected one. */
function agrees(expected: ExpectedOutcome, line: PacketLine, isForeign: boolean): boolean {
  const { outcomes, attempts, inconclusive, packet } = line;
  if (inconclusive !== undefined)
    return expected.kind === 'endpoints' || inconclusive.includes(expected.kind);
  if (typeof outcomes === 'string') return expected.kind === outcomes;
  if (expected.kind !== 'endpoints') return false;
  const { endpoints, affinitySeconds } = expected;
  const isWhole = packet.src !== 'varied' && affinitySeconds === null;
  if (
    isWhole &&
    attempts >= 6 * endpoints.size &&
    Object.keys(outcomes).length !== endpoints.size
  ) {
    return false;
  }
  // Other programs may masquerade too; with `some`, the reply's address does not show it.
  const isMarked = (want: boolean, { masqueraded }: Seen): boolean =>
    typeof masqueraded !== 'boolean' || masqueraded === want || (isForeign && masqueraded);
  return Object.entries(outcomes).every(([text, seen]) => {
    const want = endpoints.get(text);
    return want !== undefined && isMarked(want, seen);
  });
}

describe.each(recordings)('%s', (path) => {
  const folder = readFolder(path);
  const expected = forwardingOf(folder);
  if (expected === null) {
    test('has rules alone', () => {
      expect(folder.packets.length).toBeGreaterThan(0);
    });
    return;
  }
  test('every packet has the expected outcome', () => {
    const wrong = folder.packets.flatMap((line) =>
      packetsOf(line).flatMap((packet) => {
        const { outcomes } = expected.forwarding.expect(packet);
        const agreed = outcomes.some((outcome) => agrees(outcome, line, folder.isForeign));
        return agreed ? [] : [{ line, outcomes }];
      }),
    );
    expect(wrong).toEqual([]);
  });

  test('every frontend that a packet asked for is one', () => {
    const { frontends, node: place } = expected.forwarding;
    const known = new Set(frontends.map(({ address, dport }) => `${address} ${dport}`));
    const listed: readonly string[] = expected.node.addresses;
    const translated = folder.packets.filter(({ outcomes }) => typeof outcomes !== 'string');
    // The Node's addresses represent all local ones, and one address all of 127.0.0.0/8.
    const isMeant = (dst: string): boolean => !place.isLocal(dst) || listed.includes(dst);
    const asked = translated.flatMap(({ packet: { dst, dport } }) =>
      isMeant(dst) ? [`${dst} ${dport}`] : [],
    );
    expect(asked.filter((text) => !known.has(text))).toEqual([]);
  });
});

describe('what no recording shows', () => {
  const web = service({ ports: [servicePort({ nodePort: 30_000 })], type: 'NodePort' });
  const config = { ...defaultProxyConfig('iptables', 36), clusterCIDRs: ['10.0.0.0/16'] };
  const to = (dst: string, dport: number, src = '203.0.113.1'): Packet => ({
    from: 'outside',
    src,
    dst,
    protocol: 'tcp',
    dport,
  });

  test('an endpoint with two different entries has two outcomes', () => {
    const slices = [slice(), slice({ name: 'web-2', endpoints: [endpoint({ ready: false })] })];
    const { expect: of } = expectedForwarding([web], slicesByService(slices), node(), config);
    expect(of(to('10.96.0.1', 80)).outcomes.map(({ kind }) => kind)).toEqual([
      'endpoints',
      'reject',
    ]);
  });

  test('either Service, where two claim one address and port', () => {
    const external = { externalIPs: ['198.51.100.7'] };
    const one = service(external);
    const two = service({ ...external, name: 'api', clusterIPs: ['10.96.0.2'] });
    const { expect: of } = expectedForwarding(
      [one, two],
      slicesByService([slice()]),
      node(),
      config,
    );
    expect(of(to('198.51.100.7', 80)).outcomes.map(({ kind }) => kind)).toEqual([
      'endpoints',
      'reject',
    ]);
  });

  test('a Service with too many possible sets of endpoints has no outcomes', () => {
    const lists = Array.from({ length: 7 }, (_, n) => endpoint({ addresses: [`10.0.0.${n}`] }));
    const slices = [
      slice({ endpoints: lists }),
      slice({ name: 'web-2', endpoints: lists.map((one) => ({ ...one, ready: false })) }),
    ];
    const { expect: of } = expectedForwarding([web], slicesByService(slices), node(), config);
    expect(of(to('10.96.0.1', 80))).toMatchObject({
      outcomes: [],
      frontend: { kind: 'cluster IP' },
    });
  });

  test('a slice without the name of a Service is ignored', () => {
    const bare = slice({ labels: { [label.serviceName]: '' } });
    expect(slicesByService([bare, slice()]).get('shop/web')).toEqual([slice()]);
  });

  test.each([
    // INPUT has no jump to KUBE-SERVICES, and cluster-ips-check no hook there.
    ['iptables', 80, ['pass', 'pass', 'reject']],
    ['iptables', 9, ['pass', 'pass', 'pass']],
    ['nftables', 80, ['reject', 'reject', 'reject']],
    ['nftables', 9, ['pass', 'pass', 'reject']],
  ] as const)('in %s mode, port %d of a cluster IP that the node has', (mode, dport, kinds) => {
    const own = { ...defaultProxyConfig(mode, 37), clusterCIDRs: ['10.0.0.0/16'] };
    const addresses = ['172.18.0.2', '10.96.0.1'];
    const input = [[web], slicesByService([]), node(), own, addresses] as const;
    const { expect: of } = expectedForwarding(...input);
    const packet = to('10.96.0.1', dport);
    const kindsFrom = (['outside', 'pod', 'node'] as const).map((from) =>
      of({ ...packet, from }).outcomes.map(({ kind }) => kind),
    );
    expect(kindsFrom).toEqual(kinds.map((kind) => [kind]));
  });

  test('a load balancer IP is allowed as a source if a range includes the node IP', () => {
    const lb = service({
      type: 'LoadBalancer',
      loadBalancerIPs: ['192.0.2.1'],
      loadBalancerSourceRanges: ['172.18.0.0/24'],
    });
    const { expect: of } = expectedForwarding([lb], slicesByService([slice()]), node(), config);
    const kinds = (src: string): unknown => of(to('192.0.2.1', 80, src)).outcomes[0]?.kind;
    expect([kinds('192.0.2.1'), kinds('172.18.0.9'), kinds('203.0.113.1')]).toEqual([
      'endpoints',
      'endpoints',
      'drop',
    ]);
  });
});

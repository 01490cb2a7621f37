// The rules that these tests write do the same as those that real kube-proxies wrote from the same
// objects, packet by packet.

import { join } from 'node:path';

import { expect, test } from 'vitest';

import { readRulesDump } from '../../../src/rules/parse/rules-dump.ts';
import type { RuleSet } from '../../../src/rules/ruleset.ts';
import type { PacketOutcome } from '../../../src/rules/walk/walk.ts';
import { walk } from '../../rules/rulesets.ts';
import type { Api, ServiceObject, SliceObject } from '../../scenarios/api.ts';
import { createApi } from '../../scenarios/api.ts';
import { readBytes, readFolder } from '../folder.ts';
import type { ProxiedNode, ProxiedService } from './kubeproxy.ts';
import {
  iptablesDump,
  iptablesLines,
  nftablesDump,
  nftablesLines,
  servicePortsOf,
} from './kubeproxy.ts';
import type { Variant } from './play.ts';
import { variants } from './play.ts';

const recordings = join(import.meta.dirname, '../recordings/main');
const clusterCIDRs = { IPv4: '10.244.0.0/16', IPv6: 'fd00:10:244::/48' };

interface Objects {
  readonly nodes: readonly {
    readonly metadata: { readonly name: string; readonly labels: Readonly<Record<string, string>> };
    readonly status: { readonly addresses: readonly { readonly address: string }[] };
  }[];
  readonly services: readonly ServiceObject[];
  readonly endpointslices: readonly SliceObject[];
}

const objects = JSON.parse(
  readBytes(join(recordings, 'objects.json'))?.toString() ?? '',
) as Objects;

interface Ingress {
  readonly ip?: string;
  readonly ipMode?: string;
}

type Family = Variant['family'];

const isOf = (family: Family) => (text: string) => text.includes(':') === (family === 'IPv6');

/** The Services of a family, with what kube-proxy uses of them in it, and their slices. */
function apiOf({ services, endpointslices }: Objects, family: Family): Api {
  const api = createApi();
  const isOwn = isOf(family);
  for (const service of services as readonly ProxiedService[]) {
    const { metadata, spec, status } = service;
    if (metadata.labels?.['service.kubernetes.io/service-proxy-name'] !== undefined) continue;
    const clusterIP = ((spec as { clusterIPs?: string[] }).clusterIPs ?? []).find(isOwn);
    if (clusterIP === undefined) continue;
    const externalIPs = (spec.externalIPs ?? []).filter(isOwn);
    const loadBalancerSourceRanges = (spec.loadBalancerSourceRanges ?? []).filter(isOwn);
    const all: readonly Ingress[] = status?.loadBalancer.ingress ?? [];
    const ingress = all.flatMap(({ ip, ipMode }) =>
      ip !== undefined && isOwn(ip) && ipMode !== 'Proxy' ? [{ ip }] : [],
    );
    const own: ProxiedService = {
      ...service,
      spec: { ...spec, clusterIP, externalIPs, loadBalancerSourceRanges },
      status: { loadBalancer: { ingress } },
    };
    api.put('services', own);
  }
  for (const slice of endpointslices) {
    if (slice.addressType === family) api.put('endpointslices', slice);
  }
  return api;
}

function generated({ mode, family }: Variant, node: ProxiedNode): RuleSet {
  const ports = servicePortsOf(apiOf(objects, family), node);
  const cidr = clusterCIDRs[family];
  const text =
    mode === 'nftables'
      ? nftablesDump(nftablesLines(ports, cidr, node.ip))
      : iptablesDump(iptablesLines(ports, cidr, node.ip));
  return readRulesDump(text, family).ruleset;
}

const shown = ({ destinations, reject, drop, pass, unknown }: PacketOutcome): unknown => ({
  destinations: [...destinations]
    .map(([name, { probability, masqueraded, affinitySeconds }]) =>
      [name, probability.toFixed(6), masqueraded, affinitySeconds].join(' '),
    )
    .sort(),
  others: [reject, drop, pass].map(({ probability }) => probability.toFixed(6)),
  unknown: unknown.length,
});

/** Addresses that no Service here has: only real nodes know the service CIDR, and drop them. */
const isOfServiceCIDR = (about: string): boolean =>
  about.startsWith('infra/other-proxy') || about === 'unused address of the service range';

// Other recorded nodes have kube-proxies that are configured in other ways.
test.each(variants)('$mode, $family, on node-a', (variant) => {
  const name = 'node-a';
  const isOwn = isOf(variant.family);
  const folder = readFolder(
    join(recordings, variant.mode === 'nftables' ? 'nftables' : 'iptables-nft', name),
  );
  const { metadata, status } = objects.nodes.find((node) => node.metadata.name === name) ?? {};
  const ip = status?.addresses.find(({ address }) => isOwn(address))?.address ?? '';
  const zone = metadata?.labels['topology.kubernetes.io/zone'] ?? '';
  const ruleset = generated(variant, { name, ip, zone });
  const asked = folder.packets.filter(
    ({ packet, about }) => isOwn(packet.dst) && packet.src !== 'varied' && !isOfServiceCIDR(about),
  );
  const differences = asked.flatMap(({ packet, about }) => {
    const protocol = packet.protocol.toLowerCase() as 'tcp';
    const [own, real] = [ruleset, folder.ruleset].map((rules) =>
      JSON.stringify(shown(walk(rules, folder.node, { ...packet, protocol }))),
    );
    return own === real ? [] : [{ about, packet, own, real }];
  });
  expect(differences).toEqual([]);
  expect(asked.length).toBeGreaterThan(variant.family === 'IPv4' ? 300 : 80);
});

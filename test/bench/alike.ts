// The cost of a node report at the server: `npm run -s bench -- node` prints it next to the cost of
// the agent. Services with 15 endpoints each, on nodes of three zones; each node
// reports correct rules. The reference is one node that is evaluated alone, with all Services.

import { auditNode } from '../../src/audit/node/audit-node.ts';
import { createNodeClasses } from '../../src/audit/node/node-class.ts';
import { behaviorOfReport } from '../../src/audit/node/observation.ts';
import { createProxyCache } from '../../src/audit/node/proxy-cache.ts';
import type { EndpointSlice, Node } from '../../src/model/objects.ts';
import { label } from '../../src/model/objects.ts';
import { defaultProxyConfig } from '../../src/model/proxy-config.ts';
import { digestOf, expectedWordsAt, keyOf } from '../../src/rules/report/digest.ts';
import type { RuleFrontend } from '../../src/rules/report/frontends.ts';
import { expectedForwarding } from '../../src/shadow/forwarding.ts';
import {
  endpoint,
  event,
  node as newNode,
  service,
  slice,
  sliceLabels,
  storeOf,
  times,
} from '../build.ts';
import { cpuMicros, round } from './measure.ts';
import type { NodeRow } from './node.ts';

const endpoints = 15;
const nodeCount = 500;
/** Nodes that report. */
const measured = 12;

const config = { ...defaultProxyConfig('iptables', 36), clusterCIDRs: ['10.128.0.0/9'] };

const nodeAt = (at: number): Node =>
  newNode({
    name: `node-${at}`,
    zone: `zone-${at % 3}`,
    addresses: [`172.18.${at >> 8}.${at & 255}`],
    podCIDRs: [`10.${128 + (at >> 8)}.${at & 255}.0/24`],
  });

function sliceAt(at: number, count = endpoints): EndpointSlice {
  const ofNode = (n: number): number => (at * 7 + n * 31) % nodeCount;
  return slice({
    name: `web-${at}-1`,
    labels: { ...sliceLabels, [label.serviceName]: `web-${at}` },
    endpoints: times(count, (n) => {
      const own = ofNode(n);
      const address = `10.${128 + (own >> 8)}.${own & 255}.${1 + (at % 250)}`;
      return endpoint({ addresses: [address], node: `node-${own}`, zone: `zone-${own % 3}` });
    }),
  });
}

function worldOf(services: number) {
  const nodes = times(measured, nodeAt);
  const store = storeOf([
    ...nodes,
    ...times(services, (at) => {
      const clusterIP = `10.96.${at >> 8}.${at & 255}`;
      return service({ name: `web-${at}`, clusterIP, clusterIPs: [clusterIP] });
    }),
    ...times(services, (at) => sliceAt(at)),
  ]);
  const proxied = createProxyCache(store.listers);
  return { nodes, store, proxied };
}

/** The report of a node with correct rules. */
function toldBy(node: Node, { services, slices }: ReturnType<typeof createProxyCache>) {
  const forwarding = expectedForwarding(services.values(), slices, node, config);
  const [own = ''] = node.addresses;
  const [range = ''] = node.podCIDRs;
  const pod = range.replace(/0\/24$/, '251');
  const asking = {
    ip: { node: own, pod, outside: '198.51.100.7' },
    ip6: { node: null, pod: null, outside: '2001:db8::7' },
    ...{ addresses: [own, '127.0.0.1'], pods: node.podCIDRs, strays: false },
  };
  const digests = new Map<string, string>();
  const claims: RuleFrontend[] = [];
  for (const { address, protocol, dport: port } of forwarding.frontends) {
    const claim: RuleFrontend = { family: 'ip', address, protocol, port, translators: 1 };
    const words = expectedWordsAt(claim, asking, (packet) => forwarding.expect(packet).outcomes);
    digests.set(keyOf(claim), digestOf(words ?? []));
    claims.push(claim);
  }
  const rules = behaviorOfReport({
    ...{ asking, claims, digests, localAddresses: node.addresses, outcomes: new Map() },
  });
  return { node, rules, digest: { asking, digests }, config, localAddresses: node.addresses };
}

const spent = (work: () => void): number => {
  const begun = cpuMicros();
  work();
  return (cpuMicros() - begun) / 1000;
};

/** CPU ms for a node: by itself, first and later ones of a kind, and after a Service changed. */
export function measureAlike(services: number): NodeRow[] {
  const { nodes, store, proxied } = worldOf(services);
  const told = nodes.map((node) => toldBy(node, proxied));
  const alike = createNodeClasses(proxied);
  const judge = (on: (typeof told)[number]): void => {
    const steps = alike.auditInSteps({ ...on, before: new Set() });
    for (let step = steps.next(); ; step = steps.next()) {
      if (step.done !== true) continue;
      const { differences } = step.value.audit;
      if (differences.length > 0) throw new Error(JSON.stringify(differences[0]));
      return;
    }
  };
  const alone = (on: (typeof told)[number]): void => {
    const { node, rules } = on;
    const { services: all, slices } = proxied;
    auditNode({
      forwarding: expectedForwarding(all.values(), slices, node, config),
      node,
      rules,
    });
  };
  const few = told.slice(0, 3);
  const single = spent(() => few.forEach(alone)) / few.length;
  const first = spent(() => few.forEach(judge)) / few.length;
  const later = spent(() => told.forEach(judge)) / told.length;
  const change = store.apply(event('modified', sliceAt(0, endpoints - 1), 1));
  if (change !== null) proxied.apply(change);
  const changed = spent(() => told.forEach(judge)) / told.length;
  return [
    [`server, ${services} Services: a node by itself, CPU ms`, round(single), ''],
    ['the first node of a kind, CPU ms', round(first), ''],
    ['each other node of a kind, CPU ms', round(later), ''],
    ['each of them when one Service has changed, CPU ms', round(changed), ''],
    ['the last in per cent of the first', round((100 * changed) / single), 10],
  ];
}

// The audit by class gives the result of an audit of each node: for every recorded node, sound or
// broken, with the same objects, and while these change.

import { join } from 'node:path';

import { fc, test as property } from '@fast-check/vitest';
import { describe, expect, test } from 'vitest';

import type { NodeAudit } from '../../../src/audit/node/audit-node.ts';
import { auditNode } from '../../../src/audit/node/audit-node.ts';
import type { ClassAudit } from '../../../src/audit/node/node-class.ts';
import { createClassAudit } from '../../../src/audit/node/node-class.ts';
import type { ReportedBehavior } from '../../../src/audit/node/observation.ts';
import type { ProxyCache } from '../../../src/audit/node/proxy-cache.ts';
import { createProxyCache } from '../../../src/audit/node/proxy-cache.ts';
import type { EndpointSlice, Service } from '../../../src/model/objects.ts';
import { expectedForwarding } from '../../../src/shadow/forwarding.ts';
import { event, storeOf } from '../../build.ts';
import type { Input } from '../../nodes/walk.ts';
import { expectedOf, inputOf, rulesReported } from '../../nodes/walk.ts';
import type { Folder } from '../../nodes/folder.ts';
import { foldersBelow, readFolder } from '../../nodes/folder.ts';

interface Recorded {
  readonly path: string;
  readonly folder: Folder;
  readonly input: Input;
}

function recordedIn(path: string): Recorded[] {
  return foldersBelow(join(import.meta.dirname, '../../nodes', path)).flatMap((found) => {
    const folder = readFolder(found);
    const input = inputOf(folder);
    return input === null ? [] : [{ path: found, folder, input }];
  });
}

const shown = ({ differences, coverage: asked, unknown }: NodeAudit): unknown => ({
  differences: differences.map((one) => JSON.stringify({ ...one, port: one.port?.name })).sort(),
  asked: [...asked]
    .flatMap(([group, size]) => (size > 0 ? [`${JSON.stringify(group)} ${size}`] : []))
    .sort(),
  unknown: [...unknown].sort(),
});

function auditByClass(alike: ClassAudit, one: Recorded, rules: ReportedBehavior) {
  const { input, folder } = one;
  const { node, config } = input;
  const localAddresses = [...new Set([...node.addresses, ...folder.node.localAddresses])];
  const steps = alike({ node, rules: { ...rules, localAddresses }, config });
  for (;;) {
    const step = steps.next();
    if (step.done === true) return step.value;
  }
}

/** The audit of the node on its own, with all objects. */
function alone(
  { services, slices }: ProxyCache,
  one: Recorded,
  rules: ReportedBehavior,
): NodeAudit {
  const { node, config } = one.input;
  const own = [...new Set([...node.addresses, ...one.folder.node.localAddresses])];
  const forwarding = expectedForwarding(services.values(), slices, node, config, own);
  return auditNode({ forwarding, node, rules });
}

/** What its agent would report. */
const reportedOf = ({ folder, input }: Recorded): ReportedBehavior =>
  rulesReported(folder, { forwarding: expectedOf(folder, input), node: input.node }).rules;

const sound = recordedIn('recordings');
const all = [...sound, ...recordedIn('faults').filter((_, at) => at % 3 === 1)];

describe('recorded nodes', () => {
  test('have the same audit by class as on their own', () => {
    const kinds = new Map<string, { readonly proxied: ProxyCache; readonly alike: ClassAudit }>();
    for (const one of all) {
      const { services, slices, node } = one.input;
      const objects = JSON.stringify(services.map(({ key }) => key).sort());
      const known = kinds.get(objects);
      const proxied =
        known?.proxied ?? createProxyCache(storeOf([node, ...services, ...slices]).listers);
      const alike = known?.alike ?? createClassAudit(proxied);
      kinds.set(objects, { proxied, alike });
      const rules = reportedOf(one);
      const { audit, ports } = auditByClass(alike, one, rules);
      expect(shown(audit), one.path).toEqual(shown(alone(proxied, one, rules)));
      const whole = expectedForwarding(services, proxied.slices, node, one.input.config);
      expect(ports.map(({ port }) => port).sort()).toEqual(
        whole.ports.map(({ key }) => key).sort(),
      );
    }
    expect(kinds.size).toBeLessThan(all.length / 4);
  });

  test('that are sound have few individual Services', () => {
    for (const one of sound) {
      const { services, slices, node } = one.input;
      if (one.folder.isForeign) continue;
      const alike = createClassAudit(
        createProxyCache(storeOf([node, ...services, ...slices]).listers),
      );
      const individual = new Set<string>();
      const rules = reportedOf(one);
      const isKnownToServe: ReportedBehavior['report']['isKnownToServe'] = (
        forwarding,
        frontend,
        ...rest
      ) => {
        individual.add(frontend.port.service);
        return rules.report.isKnownToServe(forwarding, frontend, ...rest);
      };
      auditByClass(alike, one, { ...rules, report: { ...rules.report, isKnownToServe } });
      expect(individual.size, one.path).toBeLessThan(services.length);
    }
  });
});

/** The node with this address on one of its interfaces. */
function having(address: string, { path, folder, input }: Recorded): Recorded {
  const node = { ...folder.node, localAddresses: [...folder.node.localAddresses, address] };
  return { path, input, folder: { ...folder, node } };
}

/** Addresses of frontends and of an endpoint. */
function addressesOf(one: Recorded): string[] {
  const { frontends } = expectedOf(one.folder, one.input);
  const kinds = new Map(frontends.map(({ kind, address }) => [kind, address]));
  const [endpoint] = one.input.slices.flatMap(({ endpoints }) => endpoints);
  const shared = [kinds.get('external IP'), kinds.get('load balancer IP'), endpoint?.addresses[0]];
  return shared.filter((address) => address !== undefined);
}

describe('a recorded node with an address of a Service on its interface', () => {
  test.each(sound.filter((_, at) => at % 3 === 0).map((one) => [one.path, one] as const))(
    '%s has the same audit by class as on its own, and so has the next node',
    (_path, one) => {
      const { services, slices, node } = one.input;
      const proxied = createProxyCache(storeOf([node, ...services, ...slices]).listers);
      const alike = createClassAudit(proxied);
      const addresses = addressesOf(one);
      expect(addresses).not.toEqual([]);
      for (const other of [...addresses.map((address) => having(address, one)), one]) {
        const rules = reportedOf(other);
        const { audit } = auditByClass(alike, other, rules);
        expect(shown(audit)).toEqual(shown(alone(proxied, other, rules)));
      }
    },
  );
});

const [first] = sound.filter(({ path }) => path.endsWith('iptables-nft/node-a'));
if (first === undefined) throw new Error('No node');
const subject: Recorded = first;
const rules = reportedOf(subject);

/** A slice without some of its endpoints, or a Service that is deleted and added again. */
type Step =
  | { readonly kind: 'slice'; readonly slice: EndpointSlice; readonly left: number }
  | { readonly kind: 'service'; readonly service: Service };

const step = fc.oneof(
  fc
    .tuple(fc.constantFrom(...subject.input.slices), fc.nat(3))
    .map(([slice, left]): Step => ({ kind: 'slice', slice, left })),
  fc.constantFrom(...subject.input.services).map((service): Step => ({ kind: 'service', service })),
);

property.prop([fc.array(step, { minLength: 1, maxLength: 12 })], { numRuns: 12 })(
  'the classes follow changes of Services and slices',
  (steps) => {
    const { services, slices, node } = subject.input;
    const store = storeOf([node, ...services, ...slices]);
    const proxied = createProxyCache(store.listers);
    const alike = createClassAudit(proxied);
    for (const [at, one] of steps.entries()) {
      const apply = (type: 'modified' | 'deleted' | 'added', object: Service | EndpointSlice) => {
        const version = { ...object, resourceVersion: String(1_000_000 + at) };
        const change = store.apply(event(type, version, at));
        if (change !== null) proxied.apply(change);
      };
      if (one.kind === 'slice') {
        const endpoints = one.slice.endpoints.slice(one.left);
        apply('modified', { ...one.slice, endpoints });
      } else if (store.listers.services.has(one.service.key)) apply('deleted', one.service);
      else apply('added', one.service);
      const audited = auditByClass(alike, subject, rules);
      expect(shown(audited.audit)).toEqual(shown(alone(proxied, subject, rules)));
    }
  },
);

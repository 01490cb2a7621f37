// One finding for each cause.

import { describe, expect, test } from 'vitest';

import type { Code } from '../../../src/audit/finding/catalogue.ts';
import type { NodeFinding } from '../../../src/audit/node/aggregate.ts';
import type {
  Coverage,
  CoveredProperty,
  PacketClass,
  PacketDifference,
} from '../../../src/audit/node/packet-difference.ts';
import { aggregateFindings } from '../../../src/audit/node/aggregate.ts';
import { packetClassOf } from '../../../src/audit/node/node-wide.ts';
import { packetClass } from '../../../src/audit/node/packet-difference.ts';
import type { RuleFrontend } from '../../../src/rules/report/frontends.ts';
import { defaultProxyConfig } from '../../../src/model/proxy-config.ts';
import { proxiedPorts, proxyRules } from '../../../src/shadow/service-port.ts';
import { service, times } from '../../build.ts';

const outside = 'outside the cluster';

const rules = proxyRules(defaultProxyConfig('iptables', 36), { name: 'node-a', zone: '' });

const propertyOf: Readonly<Partial<Record<Code, CoveredProperty>>> = {
  'node-reject-missing': 'rejected',
  'node-masquerade-missing': 'masqueraded',
  'node-masquerade-unexpected': 'not masqueraded',
  'node-affinity-different': 'affinity',
};

function difference(
  name: string,
  code: Code,
  more: Partial<PacketDifference> = {},
): PacketDifference {
  const [port] = proxiedPorts(service({ name }), [], rules);
  if (port === undefined) throw new Error('No port');
  return {
    code,
    effect: code,
    properties: [propertyOf[code] ?? 'endpoints'],
    port,
    frontend: '10.96.0.1:80/tcp',
    key: '',
    endpoint: null,
    sides: null,
    kind: 'cluster IP',
    origin: outside,
    expected: '10.0.0.1:8080',
    actual: 'pass 100%',
    rule: null,
    untranslated: false,
    harmless: false,
    ...more,
  };
}

const claims = times(100, (n): RuleFrontend => {
  const address = `10.96.1.${n}`;
  return { family: 'ip', address, protocol: 'tcp', port: 80, translators: 1 };
});

/** This many Services are tested for each property. */
function coverageOf(count: number, ...properties: readonly CoveredProperty[]): Coverage {
  const all: readonly CoveredProperty[] = ['endpoints', ...properties];
  const place = { kind: 'cluster IP', family: 'IPv4', origin: outside };
  return new Map(all.map((property) => [packetClass({ property, ...place }), count]));
}

const shown = ({ nodeWide, difference: { code, object } }: NodeFinding): string =>
  nodeWide ? code : `${code} ${object.split(' at ')[0] ?? ''}`;

const codesOf = (differences: PacketDifference[], all: Coverage, counted = claims): string[] =>
  aggregateFindings('node-a', differences, all, counted).map(shown);

const missing = (count: number, more: Partial<PacketDifference> = {}) =>
  times(count, (n) =>
    difference(`web-${n}`, 'node-frontend-missing', { untranslated: true, ...more }),
  );

const node = 'node-a';

test.each<[Code, string]>([
  ['node-endpoint-missing', 'endpoints'],
  ['node-policy-different', 'endpoints'],
  ['node-masquerade-missing', 'masquerade'],
  ['node-affinity-different', 'affinity'],
  ['node-share-different', 'share'],
  ['node-frontend-missing', 'fate'],
])('%s has the field %s', (code, field) => {
  const found = aggregateFindings(node, [difference('web', code, { rule: '-A X' })], new Map(), []);
  expect(found).toMatchObject([{ difference: { code, field, actual: 'pass 100% by -A X' } }]);
});

test('the class of a difference is the same object as that of the coverage', () => {
  const ofIPv6 = { property: 'rejected', kind: 'node port', family: 'IPv6', origin: 'x' } as const;
  const { kind, origin } = ofIPv6;
  const found = difference('web', 'node-reject-missing', {
    kind,
    origin,
    frontend: '[fd00::1]:80',
  });
  expect(packetClassOf(found, 'rejected')).toBe(packetClass(ofIPv6));
  expect(packetClassOf(found, 'dropped')).not.toBe(packetClass(ofIPv6));
});

test('frontends that several tables translate are one finding about the node', () => {
  const several = difference('web', 'node-backends-both', {
    ...{ port: null, origin: '', key: 'several tables', frontend: 'shop/web:http at x' },
    ...{ expected: 'one table', actual: 'several tables' },
  });
  expect(aggregateFindings(node, [several], new Map(), [])).toMatchObject([
    {
      ...{ id: 'node-backends-both', nodeWide: true },
      difference: { object: 'Node node-a: shop/web:http at x', expected: 'one table' },
    },
  ]);
});

describe('aggregateFindings', () => {
  test('makes no finding of no difference', () => {
    expect(codesOf([], coverageOf(9))).toEqual([]);
  });

  test('makes one finding for each Service and code', () => {
    const elsewhere = { origin: 'a pod of the node' };
    const differences = [
      difference('web', 'node-share-different'),
      difference('web', 'node-endpoint-unexpected', elsewhere),
      difference('web', 'node-share-different', elsewhere),
      difference('api', 'node-share-different'),
    ];
    const findings = aggregateFindings('node-a', differences, coverageOf(9), claims);
    expect(findings.map(({ id, severity }) => `${id} ${severity}`)).toEqual([
      'shop/web node-endpoint-unexpected critical',
      'shop/web node-share-different warning',
      'shop/api node-share-different warning',
    ]);
    expect(findings.map(({ difference: { object } }) => object)).toEqual([
      'shop/web:http at 10.96.0.1:80/tcp from a pod of the node',
      'shop/web:http at 10.96.0.1:80/tcp from outside the cluster and 1 more way',
      'shop/api:http at 10.96.0.1:80/tcp from outside the cluster',
    ]);
  });

  test('makes one finding of harmful and harmless differences, as severe as the worst', () => {
    const differences = [
      difference('web', 'node-foreign-rule', { harmless: true, origin: 'the node' }),
      difference('web', 'node-foreign-rule'),
    ];
    const [finding, ...others] = aggregateFindings(node, differences, coverageOf(9), claims);
    expect(others).toEqual([]);
    expect(finding).toMatchObject({ severity: 'critical', differences: { length: 2 } });
    expect(finding?.difference.object).toContain('from outside the cluster and 1 more way');
  });

  test('makes one node-wide finding of most tested ports', () => {
    const all = coverageOf(9);
    expect(codesOf(missing(5), all)).toEqual(['node-rules-unreachable']);
    expect(codesOf(missing(5), all, [])).toEqual(['node-rules-flushed']);
    expect(codesOf(missing(5, { untranslated: false }), all)).toEqual(['node-rules-different']);
  });

  test('makes no node-wide finding of fewer ports, nor of two', () => {
    expect(codesOf(missing(3), coverageOf(9))).toHaveLength(3);
    expect(codesOf(missing(2), coverageOf(2))).toHaveLength(2);
  });

  test('a difference with another effect is no part of a node-wide finding', () => {
    const other = difference('api', 'node-affinity-different');
    const all = coverageOf(5, 'masqueraded');
    expect(codesOf([...missing(5), other], all)).toEqual([
      'node-rules-unreachable',
      'node-affinity-different shop/api:http',
    ]);
    const marks = times(5, (n) => difference(`web-${n}`, 'node-masquerade-missing'));
    expect(codesOf([...marks, other], all)).toEqual([
      'node-rules-different',
      'node-affinity-different shop/api:http',
    ]);
  });

  const inClass = (kind: string, origin: string) => ({ kind, origin });
  const at = (kind: string, origin: string, count: number): [PacketClass, number] => [
    packetClass({ property: 'endpoints', kind, family: 'IPv4', origin }),
    count,
  ];

  test('few ports of a kind follow all kinds with more ports, apart from node ports', () => {
    const pod = 'a pod of the node';
    const few = difference('api', 'node-frontend-missing', inClass('external IP', outside));
    const all = new Map([at('cluster IP', outside, 5), at('external IP', outside, 1)]);
    expect(codesOf([...missing(5), few], all)).toEqual(['node-rules-unreachable']);
    const nodePorts = new Map([...all, at('node port', outside, 5)]);
    expect(codesOf([...missing(5), few], nodePorts)).toEqual(['node-rules-unreachable']);
    const others = new Map([...all, at('load balancer IP', outside, 5)]);
    expect(codesOf([...missing(5), few], others)).toEqual([
      'node-rules-unreachable',
      'node-frontend-missing shop/api:http',
    ]);
    const half = new Map([...all, at('external IP', outside, 2)]);
    expect(codesOf([...missing(5), few], half)).toHaveLength(2);
    const elsewhere = difference('api', 'node-frontend-missing', inClass('cluster IP', pod));
    const both = new Map([...all, at('cluster IP', pod, 5)]);
    expect(codesOf([...missing(5), elsewhere], both)).toHaveLength(2);
  });

  test('makes one stale node of several Services in an earlier state', () => {
    const old: Code[] = [
      'node-endpoint-missing',
      'node-endpoint-unexpected',
      'node-reject-missing',
    ];
    const differences = old.map((code, n) => difference(`web-${n}`, code));
    expect(codesOf(differences, coverageOf(99, 'rejected'))).toHaveLength(3);
    const gone = difference('', 'node-frontend-unexpected', { port: null, frontend: 'x' });
    expect(codesOf([...differences, gone], coverageOf(99, 'rejected'))).toEqual([
      'node-rules-stale',
    ]);
  });

  test('names the one foreign rule of most ports', () => {
    const rule = '-A PREROUTING -j DROP';
    const differences = times(6, (n) => difference(`web-${n}`, 'node-foreign-rule', { rule }));
    const findings = aggregateFindings('node-a', differences, coverageOf(9), claims);
    expect(findings).toMatchObject([
      {
        id: 'node-foreign-rule',
        service: '',
        difference: { code: 'node-foreign-rule', actual: `pass 100% by ${rule}` },
      },
    ]);
  });

  test('harmless differences are information and not node-wide', () => {
    const harmless = times(5, (n) =>
      difference(`web-${n}`, 'node-reject-missing', { harmless: true }),
    );
    const findings = aggregateFindings('node-a', harmless, coverageOf(5, 'rejected'), claims);
    expect(findings.map(({ severity }) => severity)).toEqual(times(5, () => 'info'));
  });
});

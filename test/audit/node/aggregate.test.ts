// One cause, one finding.

import { describe, expect, test } from 'vitest';

import type { Code } from '../../../src/audit/finding/catalogue.ts';
import type { Coverage, PacketDifference } from '../../../src/audit/node/aggregate.ts';
import { coverageGroup, aggregateFindings } from '../../../src/audit/node/aggregate.ts';
import { defaultProxyConfig } from '../../../src/model/proxy-config.ts';
import { proxiedPorts, proxyRules } from '../../../src/shadow/service-port.ts';
import { service, times } from '../../build.ts';

const rules = proxyRules(defaultProxyConfig('iptables', 36));

function difference(
  name: string,
  code: Code,
  more: Partial<PacketDifference> = {},
): PacketDifference {
  const [port] = proxiedPorts(service({ name }), [], { node: 'node-a', zone: '' }, rules);
  if (port === undefined) throw new Error('No port');
  return {
    code,
    port,
    frontend: '10.96.0.1:80/tcp',
    subject: '',
    kind: 'cluster IP',
    family: 'IPv4',
    origin: 'outside the cluster',
    expected: '10.0.0.1:8080',
    actual: 'pass 100%',
    rule: null,
    untranslated: false,
    harmless: false,
    ...more,
  };
}

const claims = { IPv4: 100, IPv6: 100 };

/** As if so many Services had been asked for everything. */
function asked(count: number, ...codes: readonly Code[]): Coverage {
  const names = new Set(times(count, (n) => `shop/web-${n}`));
  return new Map(codes.map((code) => [coverageGroup(code, 'cluster IP', 'IPv4'), names]));
}

const codesOf = (differences: PacketDifference[], all: Coverage, counted = claims): string[] =>
  aggregateFindings('node-a', differences, all, counted).map(({ code, port }) =>
    `${code} ${port}`.trim(),
  );

const missing = (count: number, more: Partial<PacketDifference> = {}) =>
  times(count, (n) =>
    difference(`web-${n}`, 'node-frontend-missing', { untranslated: true, ...more }),
  );

describe('rollUp', () => {
  test('nothing', () => {
    expect(codesOf([], asked(9))).toEqual([]);
  });

  test('a finding for each Service port, under the worst of its codes', () => {
    const differences = [
      difference('web', 'node-share-different'),
      difference('web', 'node-endpoint-unexpected', { origin: 'a pod of the node' }),
      difference('api', 'node-affinity-different'),
    ];
    const findings = aggregateFindings(
      'node-a',
      differences,
      asked(9, 'node-share-different'),
      claims,
    );
    expect(findings.map(({ code, port }) => `${code} ${port}`)).toEqual([
      'node-endpoint-unexpected shop/web:http',
      'node-affinity-different shop/api:http',
    ]);
    expect(findings[0]).toMatchObject({ severity: 'critical', node: 'node-a', service: 'web' });
    expect(findings[0]?.object).toBe('10.96.0.1:80/tcp from a pod of the node and 1 more way');
  });

  test('most of those asked are the node’s', () => {
    const all = asked(9, 'node-frontend-missing');
    expect(codesOf(missing(5), all)).toEqual(['node-rules-unreachable']);
    expect(codesOf(missing(5), all, { IPv4: 0, IPv6: 100 })).toEqual(['node-rules-flushed']);
    expect(codesOf(missing(5, { untranslated: false }), all)).toEqual(['node-rules-different']);
  });

  test('fewer are not, and two are never most', () => {
    expect(codesOf(missing(3), asked(9, 'node-frontend-missing'))).toHaveLength(3);
    expect(codesOf(missing(2), asked(2, 'node-frontend-missing'))).toHaveLength(2);
  });

  test('rules that are gone explain everything, others what they have in common', () => {
    const other = difference('api', 'node-affinity-different');
    const all = asked(5, 'node-frontend-missing', 'node-masquerade-missing');
    expect(codesOf([...missing(5), other], all)).toEqual(['node-rules-unreachable']);
    const marks = times(5, (n) => difference(`web-${n}`, 'node-masquerade-missing'));
    expect(codesOf([...marks, other], all)).toEqual([
      'node-rules-different',
      'node-affinity-different shop/api:http',
    ]);
  });

  test('several Services in an old state are one stale node', () => {
    const old: Code[] = [
      'node-endpoint-missing',
      'node-endpoint-unexpected',
      'node-reject-missing',
    ];
    const differences = old.map((code, n) => difference(`web-${n}`, code));
    expect(codesOf(differences, asked(99, ...old))).toHaveLength(3);
    const gone = difference('', 'node-frontend-unexpected', { port: null, frontend: 'x' });
    expect(codesOf([...differences, gone], asked(99, ...old))).toEqual(['node-rules-stale']);
  });

  test('one foreign rule for most is one finding that names it', () => {
    const rule = '-A PREROUTING -j DROP';
    const differences = times(6, (n) => difference(`web-${n}`, 'node-foreign-rule', { rule }));
    const findings = aggregateFindings(
      'node-a',
      differences,
      asked(9, 'node-foreign-rule'),
      claims,
    );
    expect(findings).toMatchObject([{ code: 'node-foreign-rule', service: '', rule }]);
  });

  test('what harms nobody is information, and no part of what is wrong for most', () => {
    const harmless = times(5, (n) =>
      difference(`web-${n}`, 'node-reject-missing', { harmless: true }),
    );
    const findings = aggregateFindings('node-a', harmless, asked(5, 'node-reject-missing'), claims);
    expect(findings.map(({ severity }) => severity)).toEqual(times(5, () => 'info'));
  });
});

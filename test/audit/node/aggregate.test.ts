// One finding for each cause.

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

/** This many tested Services for each code. */
function coverageOf(count: number, ...codes: readonly Code[]): Coverage {
  return new Map(codes.map((code) => [coverageGroup(code, 'cluster IP', 'IPv4'), count]));
}

const codesOf = (differences: PacketDifference[], all: Coverage, counted = claims): string[] =>
  aggregateFindings('node-a', differences, all, counted).map(({ code, port }) =>
    `${code} ${port}`.trim(),
  );

const missing = (count: number, more: Partial<PacketDifference> = {}) =>
  times(count, (n) =>
    difference(`web-${n}`, 'node-frontend-missing', { untranslated: true, ...more }),
  );

describe('aggregateFindings', () => {
  test('makes no finding of no difference', () => {
    expect(codesOf([], coverageOf(9))).toEqual([]);
  });

  test('makes one finding for each Service port, with its worst code', () => {
    const differences = [
      difference('web', 'node-share-different'),
      difference('web', 'node-endpoint-unexpected', { origin: 'a pod of the node' }),
      difference('api', 'node-affinity-different'),
    ];
    const findings = aggregateFindings(
      'node-a',
      differences,
      coverageOf(9, 'node-share-different'),
      claims,
    );
    expect(findings.map(({ code, port }) => `${code} ${port}`)).toEqual([
      'node-endpoint-unexpected shop/web:http',
      'node-affinity-different shop/api:http',
    ]);
    expect(findings[0]).toMatchObject({ severity: 'critical', node: 'node-a', service: 'web' });
    expect(findings[0]?.object).toBe('10.96.0.1:80/tcp from a pod of the node and 1 more way');
  });

  test('makes one node-wide finding of most tested ports', () => {
    const all = coverageOf(9, 'node-frontend-missing');
    expect(codesOf(missing(5), all)).toEqual(['node-rules-unreachable']);
    expect(codesOf(missing(5), all, { IPv4: 0, IPv6: 100 })).toEqual(['node-rules-flushed']);
    expect(codesOf(missing(5, { untranslated: false }), all)).toEqual(['node-rules-different']);
  });

  test('makes no node-wide finding of fewer ports, nor of two', () => {
    expect(codesOf(missing(3), coverageOf(9, 'node-frontend-missing'))).toHaveLength(3);
    expect(codesOf(missing(2), coverageOf(2, 'node-frontend-missing'))).toHaveLength(2);
  });

  test('missing rules explain all differences, other causes those with their code', () => {
    const other = difference('api', 'node-affinity-different');
    const all = coverageOf(5, 'node-frontend-missing', 'node-masquerade-missing');
    expect(codesOf([...missing(5), other], all)).toEqual(['node-rules-unreachable']);
    const marks = times(5, (n) => difference(`web-${n}`, 'node-masquerade-missing'));
    expect(codesOf([...marks, other], all)).toEqual([
      'node-rules-different',
      'node-affinity-different shop/api:http',
    ]);
  });

  test('makes one stale node of several Services in an earlier state', () => {
    const old: Code[] = [
      'node-endpoint-missing',
      'node-endpoint-unexpected',
      'node-reject-missing',
    ];
    const differences = old.map((code, n) => difference(`web-${n}`, code));
    expect(codesOf(differences, coverageOf(99, ...old))).toHaveLength(3);
    const gone = difference('', 'node-frontend-unexpected', { port: null, frontend: 'x' });
    expect(codesOf([...differences, gone], coverageOf(99, ...old))).toEqual(['node-rules-stale']);
  });

  test('names the one foreign rule of most ports', () => {
    const rule = '-A PREROUTING -j DROP';
    const differences = times(6, (n) => difference(`web-${n}`, 'node-foreign-rule', { rule }));
    const findings = aggregateFindings(
      'node-a',
      differences,
      coverageOf(9, 'node-foreign-rule'),
      claims,
    );
    expect(findings).toMatchObject([{ code: 'node-foreign-rule', service: '', rule }]);
  });

  test('harmless differences are information and not node-wide', () => {
    const harmless = times(5, (n) =>
      difference(`web-${n}`, 'node-reject-missing', { harmless: true }),
    );
    const findings = aggregateFindings(
      'node-a',
      harmless,
      coverageOf(5, 'node-reject-missing'),
      claims,
    );
    expect(findings.map(({ severity }) => severity)).toEqual(times(5, () => 'info'));
  });
});

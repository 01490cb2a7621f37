import { Command } from 'commander';
import { describe, expect, test } from 'vitest';

import type {
  ClusterFlags,
  AuditFlags,
  MetricsFlags,
  ReportFlags,
} from '../../../src/commands/shared/options.ts';
import {
  addFlags,
  inputsOf,
  onlyInput,
  perServiceOf,
  refuseFlags,
  refuseLive,
  scopeOf,
} from '../../../src/commands/shared/options.ts';
import { wholeCluster } from '../../../src/model/scope.ts';

const parsed = (...args: string[]): ClusterFlags & AuditFlags & ReportFlags =>
  addFlags(new Command().exitOverride(), 'report', 'audit', 'cluster', 'shard')
    .parse(args, { from: 'user' })
    .opts();

test('flags have defaults, and the default scope is the whole cluster', () => {
  const options = parsed();
  expect(options).toMatchObject({
    settle: 30,
    maxEndpointsPerSlice: 100,
    output: 'table',
    endpoints: true,
  });
  expect(scopeOf(options)).toEqual(wholeCluster);
});

test('a selector of labels is read as kubectl reads it, and a wrong one is named', () => {
  expect(parsed('-l', 'app=web,!old').selector?.requirements).toHaveLength(2);
  expect(() => parsed('--selector', 'app in web')).toThrow(
    'Expected a label selector such as app=web: "app in web" is not a requirement.',
  );
});

test('at most 100 namespaces can be named, and at least one remains', () => {
  const names = Array.from({ length: 101 }, (_, index) => `n${index}`);
  const scope = (named: readonly string[], ...args: string[]) =>
    scopeOf(parsed('--namespaces', named.join(','), ...args));
  expect(scope(names.slice(1)).namespaces).toHaveLength(100);
  expect(() => scope(names)).toThrow('--namespaces: at most 100, found 101');
  expect(scope(names, '--exclude-namespaces', 'n7').excluded).toEqual(['n7']);
  expect(() => scope(['a'], '--exclude-namespaces', 'a')).toThrow('leaves no --namespaces');
});

test('the flags of namespaces and shards make the scope', () => {
  const args = ['--namespaces', 'a,b', '--exclude-namespaces', 'c', '--shard', '1/3'];
  const options = parsed(...args, '--no-endpoints');
  expect(options.endpoints).toBe(false);
  expect(scopeOf(options)).toEqual({
    namespaces: ['a', 'b'],
    excluded: ['c'],
    agents: false,
    shard: { index: 1, count: 3 },
    endpoints: false,
  });
});

test('an agent listens on loopback and scans every 30 s by default', () => {
  const parse = (...args: string[]): object =>
    addFlags(new Command().exitOverride(), 'agent').parse(args, { from: 'user' }).opts();
  const usual = { dataplane: 'auto', interval: 30, deadline: 60, maxSize: 512 * 1024 * 1024 };
  const listen = { host: '127.0.0.1', port: 9466 };
  expect(parse()).toEqual({ listen, nodeIps: [], podCidrs: [], ...usual });
  const args = ['--listen', ':1', '--node-ips', '10.0.0.1,fd00::1', '--pod-cidrs', '10.1.0.0/24'];
  expect(parse(...args, '--interval', '5m')).toMatchObject({
    listen: { host: null, port: 1 },
    nodeIps: ['10.0.0.1', 'fd00::1'],
    podCidrs: ['10.1.0.0/24'],
    interval: 300,
  });
});

const silent = (): Command =>
  new Command().exitOverride().configureOutput({ writeErr: () => undefined });

describe('Services with their own series', () => {
  const metered = (...args: string[]) => {
    const command = addFlags(silent(), 'metrics');
    return perServiceOf(command.parse(args, { from: 'user' }).opts<MetricsFlags>());
  };

  test('are those with findings by default, up to a limit', () => {
    expect(metered()).toEqual({ mode: 'findings', max: 1000 });
  });

  test('are those that the flags name', () => {
    const args = ['--metrics-per-service=all', '--metrics-max-services=20000'];
    expect(metered(...args)).toEqual({ mode: 'all', max: 20_000 });
  });

  test('are those that the deprecated names of the flags name', () => {
    const args = ['--metrics.per-service=off', '--metrics.max-services=5'];
    expect(metered(...args)).toEqual({ mode: 'off', max: 5 });
  });

  test.each([
    ['--metrics-per-service=some', /some.*findings, all, off/s],
    ['--metrics-max-services=0', /max-services.*whole number above 0/s],
  ])('%s is rejected', (argument, message) => {
    expect(() => metered(argument)).toThrow(message);
  });
});

describe('with a dump', () => {
  const refusal = (args: readonly string[]): string | null => {
    const command = addFlags(silent(), 'report', 'audit', 'cluster', 'agents');
    command.parse(args, { from: 'user' });
    try {
      refuseLive(command, 'a dump');
      refuseFlags(command, 'a dump', ['settle']);
      return null;
    } catch (error) {
      return String(error);
    }
  };

  test.each([[[]], [['--kubernetes-version', '1.33', '-n', 'shop']], [['--no-endpoints']]])(
    '%j is accepted',
    (args) => {
      expect(refusal(args)).toBeNull();
    },
  );

  test.each([
    [['--context', 'prod'], "option '--context <name>' applies only to a live cluster"],
    [['--agents', 'a/b'], "option '--agents <namespace/name>' applies only to a live cluster"],
    [['--settle', '30s'], "option '--settle <duration>' has no effect on a dump"],
  ])('%j is rejected: %s', (args, message) => {
    expect(refusal(args)).toContain(message);
  });
});

describe('inputs', () => {
  test('are named in any way', () => {
    expect(inputsOf({ input: ['b', 'c'], recording: 'd' }, ['a'])).toEqual(['a', 'b', 'c', 'd']);
    expect(inputsOf({ recording: true })).toEqual([]);
    expect(onlyInput({ input: ['a'] })).toBe('a');
  });

  test.each([[{}], [{ input: ['a', 'b'] }]])('%j is not exactly one', (flags) => {
    expect(() => onlyInput(flags)).toThrow('Expected exactly one recording');
  });
});

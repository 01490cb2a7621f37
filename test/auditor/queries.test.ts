// Queries of the server: readiness and one Service. Reports.

import { describe, expect, test } from 'vitest';

import { createQueries, createReport, notLive } from '../../src/auditor/queries.ts';
import { parseLabelSelector } from '../../src/model/label-selector.ts';
import {
  added,
  auditorOf,
  clock,
  end,
  header,
  lively,
  progress,
  readAgain,
  report,
  rawService,
  synced,
  watches,
} from '../build.ts';
import { findingOf } from '../output/samples.ts';

describe('one Service', () => {
  test('has its verdicts, pending differences and inputs', () => {
    const { auditor } = auditorOf(30, { live: true });
    for (const entry of lively(['nodes'])) auditor.take(entry);
    auditor.take(clock(110));
    const web = createQueries(auditor, 'test').service('shop', 'web');
    expect(web).toMatchObject({
      format: 1,
      now: 110,
      namespace: 'shop',
      service: 'web',
      outputs: [
        { output: 'endpoints', verdict: 'pending', reason: null },
        { output: 'endpointslices', verdict: 'unknown', reason: 'nodes-not-known' },
      ],
      standing: [],
      resolved: [],
      inputs: {
        pods: { state: 'synced', unseenSeconds: 0 },
        nodes: { state: 'off', unseenSeconds: 0 },
      },
    });
    expect(web?.pending.map(({ code, since }) => [code, since])).toEqual([
      ['endpoints-missing', 101],
      ['slice-placeholder-missing', 101],
    ]);
  });

  test('has the resolved findings about whole nodes that concerned its ports', () => {
    const { auditor } = auditorOf(30, { live: true });
    for (const entry of lively()) auditor.take(entry);
    const onNode = (node: string, service: string) => {
      const field = `${service}:http at 10.96.0.1:80/tcp from the node itself`;
      const differences = findingOf().differences.map((it) => ({ ...it, field }));
      return findingOf({ namespace: '', service: '', node, differences, resolvedAt: 105 });
    };
    const resolved = [onNode('a', 'shop/web'), onNode('b', 'shop/web2'), findingOf({ node: 'c' })];
    const findings = { ...auditor.findings, resolved: () => resolved };
    const web = createQueries({ ...auditor, findings }, 'test').service('shop', 'web');
    expect(web?.resolved.map(({ node }) => node)).toEqual(['a', 'c']);
  });

  test('has its own findings after the window', () => {
    const { auditor } = auditorOf(30, { live: true });
    for (const entry of lively()) auditor.take(entry);
    readAgain(auditor, 140, '80');
    for (const entry of progress(140, '80')) auditor.take(entry);
    auditor.findings.retry(140);
    for (const entry of watches(141, 'stale', ['endpoints'])) auditor.take(entry);
    auditor.take(clock(150));
    const web = createQueries(auditor, 'test').service('shop', 'web');
    expect(web?.pending).toEqual([]);
    expect(web?.standing.map(({ code }) => code).sort()).toEqual([
      'endpoints-missing',
      'slice-placeholder-missing',
    ]);
    expect(web?.outputs).toEqual([
      { output: 'endpoints', verdict: 'unknown', reason: 'input-stale' },
      { output: 'endpointslices', verdict: 'different', reason: null },
    ]);
    expect(web?.inputs.endpoints).toEqual({ state: 'stale', unseenSeconds: 9 });
  });

  test('is null if the Service does not exist', () => {
    const { auditor } = auditorOf(30, { live: true });
    expect(createQueries(auditor, 'test').service('shop', 'web')).toBeNull();
    for (const entry of lively()) auditor.take(entry);
    expect(createQueries(auditor, 'test').service('shop', 'api')).toBeNull();
  });
});

test('incidents are grouped once for each state, and again after a change', () => {
  const { auditor } = auditorOf(30, { live: true });
  for (const entry of lively()) auditor.take(entry);
  let calls = 0;
  const list = () => {
    calls++;
    return auditor.incidents.list();
  };
  const queries = createQueries({ ...auditor, incidents: { ...auditor.incidents, list } }, 'test');
  queries.status();
  expect(queries.incidents().open).toEqual([]);
  expect(calls).toBe(1);
  readAgain(auditor, 140, '80');
  for (const entry of progress(140, '80')) auditor.take(entry);
  auditor.findings.retry(140);
  auditor.incidents.reviewAt(150);
  expect(queries.incidents().open).toHaveLength(1);
  expect(queries.incident(queries.incidents().open[0]?.id ?? '')).not.toBeNull();
  expect(calls).toBe(2);
});

test('the state of the event loop is the one that the caller passes', () => {
  const { auditor } = auditorOf(30);
  expect(createQueries(auditor, 'test').stuck()).toBeNull();
  const live = { ...notLive, stuck: () => 'why' };
  expect(createQueries(auditor, 'test', live).stuck()).toBe('why');
});

describe('a report', () => {
  test('of one namespace counts no other namespace', () => {
    const { auditor } = auditorOf(0);
    const other = { ...rawService, metadata: { ...rawService.metadata, namespace: 'pay' } };
    const events = [added('services', rawService, 100), added('services', other, 100)];
    for (const entry of [header(100), ...events, ...synced(101), end(102)]) auditor.take(entry);
    expect(report(auditor)).toMatchObject({ services: 2 });
    const one = report(auditor, 'pay');
    expect(one.services).toBe(1);
    expect(one.verdicts.endpoints.different).toBe(1);
    expect(new Set(one.findings.map(({ namespace }) => namespace))).toEqual(new Set(['pay']));
    expect(one.foreignServices).toEqual([]);
  });

  test('of a label selector counts only Services that have the labels', () => {
    const { auditor } = auditorOf(0);
    const { metadata } = rawService;
    const labeled = { ...rawService, metadata: { ...metadata, name: 'api', labels: { app: 'x' } } };
    const events = [added('services', rawService, 100), added('services', labeled, 100)];
    for (const entry of [header(100), ...events, ...synced(101), end(102)]) auditor.take(entry);
    const of = (text: string) =>
      createReport(auditor, {
        ...{ kind: 'replay', sources: [], namespace: null, problems: [] },
        selector: parseLabelSelector(text),
      });
    const one = of('app in (x,y)');
    expect(one).toMatchObject({ services: 1, selector: 'app in (x,y)' });
    expect(new Set(one.findings.map(({ service }) => service))).toEqual(new Set(['api']));
    expect(one.servicesWithoutEndpoints.map(({ name }) => name)).toEqual(['api']);
    expect(new Set(one.incidents.flatMap(({ objects }) => objects))).toEqual(
      new Set(['Service shop/api']),
    );
    expect(new Set(of('!app').findings.map(({ service }) => service))).toEqual(new Set(['web']));
    expect(of('app=none')).toMatchObject({ services: 0, findings: [], incidents: [] });
  });

  test('of a dump has no times, and a report before the audit throws', () => {
    const { auditor } = auditorOf(0);
    const options = { kind: 'audit', sources: ['dump'], namespace: null, problems: [] } as const;
    expect(() => createReport(auditor, options)).toThrow('The input ended before it began');
    for (const entry of [
      header(100),
      added('services', rawService, 100),
      ...synced(101),
      end(102),
    ]) {
      auditor.take(entry);
    }
    const { findings, input } = createReport(auditor, options);
    expect(input).toMatchObject({ from: null, sources: ['dump'] });
    expect(findings.map(({ since, openedAt }) => [since, openedAt])).toEqual([
      [null, null],
      [null, null],
    ]);
  });
});

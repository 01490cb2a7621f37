// The cluster in numbers.

import { describe, expect, test } from 'vitest';

import type { Code, Finding, Severity } from '../../src/audit/finding/catalogue.ts';
import { createPendingFindings } from '../../src/audit/pending/pending.ts';
import { createServiceAuditor } from '../../src/audit/service/auditor.ts';
import { emptySummary, inOrder, summarize } from '../../src/audit/summary.ts';
import type { AnyObject, Resource, UnreadableObject } from '../../src/model/objects.ts';
import { resources } from '../../src/model/objects.ts';
import { runToEnd } from '../../src/model/run-to-end.ts';
import {
  contextOf,
  endpoint,
  endpoints,
  foreign,
  node,
  plainFinding,
  pod,
  service,
  slice,
  storeOf,
} from '../build.ts';

function summaryOf(
  objects: readonly AnyObject[],
  at: number,
  known: readonly Resource[] = resources,
) {
  const serviceAuditor = createServiceAuditor({
    context: contextOf(storeOf(objects, known)),
    settle: createPendingFindings({ window: 30, keep: 0 }),
  });
  runToEnd(serviceAuditor.begin(10));
  serviceAuditor.settle.advance(at);
  return summarize(serviceAuditor);
}

const settled: AnyObject[] = [service(), pod(), node(), endpoints(), slice()];
const bare = service({ name: 'api', selector: { app: 'nobody' } });
const other = service({ namespace: 'bank', name: 'ledger', uid: 'x', selector: { app: 'nobody' } });

describe('summarize', () => {
  test('without Services is the empty summary', () => {
    expect(summaryOf([], 100)).toEqual(emptySummary);
  });

  test('counts verdicts per output', () => {
    const got = summaryOf([...settled, bare, service({ name: 'db', selector: null })], 20);
    expect(got.services).toBe(3);
    expect(got.verdicts).toEqual({
      endpoints: { conform: 1, pending: 1, different: 0, unknown: 0 },
      endpointslices: { conform: 1, pending: 1, different: 0, unknown: 0 },
      mirrored: { conform: 0, pending: 0, different: 0, unknown: 0 },
      node: { conform: 0, pending: 0, different: 0, unknown: 0 },
    });
    expect(got.pendingSince).toEqual({ endpoints: 10, endpointslices: 10 });
    expect(got.findings).toEqual([]);
  });

  test('counts a pending difference as different when its window has ended', () => {
    const got = summaryOf([...settled, bare], 40);
    expect(got.verdicts.endpoints).toMatchObject({ pending: 0, different: 1 });
    expect(got.pendingSince).toEqual({});
    expect(got.findings.map(({ code }) => code)).toEqual([
      'endpoints-missing',
      'slice-placeholder-missing',
    ]);
  });

  test('what is unknown has its reason', () => {
    const known = resources.filter((one) => one !== 'pods');
    const got = summaryOf([service(), node(), endpoints(), slice()], 40, known);
    expect(got.verdicts.endpoints.unknown).toBe(1);
    expect(got.unknown).toEqual({ 'pods-not-known': 2 });
  });

  test('a Service that cannot be read is counted as long as it is not known', () => {
    const serviceAuditor = createServiceAuditor({
      context: contextOf(storeOf(settled)),
      settle: createPendingFindings({ window: 30, keep: 0 }),
    });
    runToEnd(serviceAuditor.begin(10));
    const lost = (name: string | null, namespace: string | null = 'shop'): UnreadableObject => ({
      resource: 'services',
      namespace,
      name,
      labels: null,
    });
    const within = (namespace: string) => namespace === 'bank';
    runToEnd(serviceAuditor.markUnreadable(lost('api'), 20));
    expect(summarize(serviceAuditor).unknown).toEqual({ 'object-unreadable': 1 });
    expect(summarize(serviceAuditor, { within }).unknown).toEqual({});
    runToEnd(serviceAuditor.markUnreadable(lost('api'), 21));
    runToEnd(serviceAuditor.markUnreadable({ ...lost('api'), resource: 'pods' }, 22));
    runToEnd(serviceAuditor.markUnreadable(lost(null, null), 22));
    expect(summarize(serviceAuditor, { within }).unknown).toEqual({ 'object-unreadable': 1 });
    runToEnd(serviceAuditor.markReadable(lost(null, null), 23));
    runToEnd(serviceAuditor.markReadable({ ...lost('api'), resource: 'pods' }, 23));
    // Of this one an older version is known: what it makes unknown are its two outputs.
    runToEnd(serviceAuditor.markUnreadable(lost('web'), 24));
    expect(summarize(serviceAuditor).unknown).toEqual({ 'object-unreadable': 3 });
    runToEnd(serviceAuditor.markReadable(lost('web'), 25));
    runToEnd(serviceAuditor.markReadable(lost('api'), 25));
    expect(summarize(serviceAuditor).unknown).toEqual({});
  });

  test('what others write is counted apart', () => {
    const orphan = endpoints({ name: 'lock', labels: {} });
    const got = summaryOf([...settled, foreign(), orphan], 40);
    expect(got).toMatchObject({ services: 1, foreign: 2 });
    expect(got.verdicts.endpoints.conform).toBe(1);
  });

  test('trouble of the input is never pending', () => {
    const conflict = foreign({ endpoints: [endpoint({ ready: false })] });
    expect(summaryOf([...settled, conflict], 20).pendingSince).toEqual({});
  });

  test('counts only the namespaces that are asked for', () => {
    const serviceAuditor = createServiceAuditor({
      context: contextOf(storeOf([...settled, other])),
      settle: createPendingFindings({ window: 0, keep: 0 }),
    });
    runToEnd(serviceAuditor.begin(0));
    serviceAuditor.settle.advance(0);
    const of = (name: string) =>
      summarize(serviceAuditor, { within: (namespace) => namespace === name });
    expect(of('shop')).toMatchObject({ services: 1, findings: [] });
    expect(of('bank').findings).toHaveLength(2);
    expect(summarize(serviceAuditor).services).toBe(2);
  });
});

describe('inOrder', () => {
  const finding = (service: string, code: Code, severity: Severity): Finding =>
    plainFinding(code, { service, severity });

  test('worst first, then by name, output and code', () => {
    const findings = [
      finding('b', 'endpoints-missing', 'warning'),
      finding('a', 'left-behind', 'info'),
      finding('a', 'slice-endpoint-missing', 'warning'),
      finding('a', 'endpoints-missing', 'warning'),
      finding('c', 'slice-endpoint-unexpected', 'critical'),
    ];
    const want = [
      'c slice-endpoint-unexpected',
      'a endpoints-missing',
      'a slice-endpoint-missing',
      'b endpoints-missing',
      'a left-behind',
    ];
    for (const order of [findings, findings.toReversed()]) {
      expect(inOrder(order).map(({ service, code }) => `${service} ${code}`)).toEqual(want);
    }
  });

  test('the list that is given is left alone', () => {
    const findings = [finding('b', 'left-behind', 'info'), finding('a', 'left-behind', 'info')];
    inOrder(findings);
    expect(findings.map(({ service }) => service)).toEqual(['b', 'a']);
  });
});

// Queries about one Service and one node, on the recording that comes with the program.

import { createReadStream } from 'node:fs';
import { fileURLToPath } from 'node:url';

import { beforeAll, describe, expect, test } from 'vitest';

import type { Auditor } from '../../src/auditor/auditor.ts';
import { createAuditor } from '../../src/auditor/auditor.ts';
import { nodeView, verdictInput } from '../../src/auditor/explanations.ts';
import { createQueries } from '../../src/auditor/queries.ts';
import { isServiceInScope, type Scope, wholeCluster } from '../../src/model/scope.ts';
import { readRecording } from '../../src/cluster/files/recording.ts';
import {
  added,
  auditorDefaults,
  auditorOf,
  header,
  plainFinding,
  rawService,
  synced,
} from '../build.ts';

const path = fileURLToPath(new URL('../recordings/shop.ndjson.gz', import.meta.url));
let auditor: Auditor = createAuditor(auditorDefaults);

beforeAll(async () => {
  auditor = createAuditor(auditorDefaults);
  const source = { name: path, bytes: createReadStream(path) };
  for await (const entry of readRecording(source, () => undefined)) auditor.take(entry);
});

describe('a Service', () => {
  test('has a page with its table, explanation, nodes and lag', () => {
    const view = createQueries(auditor, path).servicePage('shop', 'search', 0);
    expect(view?.table).toMatchObject({ total: 6, differing: 0 });
    expect(view?.explanation.answer).toContain('Service shop/search has endpoints');
    expect(view?.nodes?.map(({ node, verdict }) => `${node} ${verdict}`)).toEqual([
      'node-b conform',
      'node-c different',
      'node-d conform',
    ]);
    expect(view?.status).toMatchObject({
      nodes: { conform: 2, pending: 0, different: 1, unknown: 0 },
      notConform: [{ node: 'node-c', verdict: 'different', reason: null }],
    });
    expect(view?.nodes?.find(({ node }) => node === 'node-c')?.walked.length).toBeGreaterThan(0);
    expect(view?.lag.some(({ seconds }) => seconds > 50)).toBe(true);
  });

  test('every existing Service has a page, other names have none', () => {
    const answers = createQueries(auditor, path);
    const services = [...answers.services()];
    expect(services.length).toBe(auditor.store.listers.services.size);
    for (const { namespace, name } of services) {
      expect(answers.servicePage(namespace, name, 0)).not.toBeNull();
    }
    expect(answers.servicePage('shop', 'nobody', 0)).toBeNull();
  });
});

describe('a finding of any output counts for its Service', () => {
  const explained = (key: string) => createQueries(auditor, path).explain([`service/${key}`], null);

  test.each([
    ['shop/checkout', 'different', 'critical', { critical: 2, warning: 1, info: 1 }],
    ['payments/gateway', 'different', 'critical', { critical: 1, warning: 1, info: 0 }],
    ['payments/fraud', 'different', 'critical', { critical: 1, warning: 1, info: 1 }],
    ['batch/worker', 'conform', 'info', { critical: 0, warning: 0, info: 1 }],
  ] as const)('%s', (key, verdict, severity, findings) => {
    const services = createQueries(auditor, path).services();
    const listed = [...services].find(({ namespace, name }) => `${namespace}/${name}` === key);
    expect(listed?.health).toEqual({ verdict, severity, findings });
    expect(explained(key)).toMatchObject({ verdict, severity });
    const numbered = explained(key)?.reasons.filter(({ text }) => /^\d+\. /.test(text));
    const { critical, warning, info } = findings;
    expect(numbered?.map(({ text }) => text.split(':')[0])).toEqual(
      [
        ...Array.from({ length: critical }, () => 'critical'),
        ...Array.from({ length: warning }, () => 'warning'),
        ...Array.from({ length: info }, () => 'info'),
      ].map((word, index) => `${index + 1}. ${word}`),
    );
  });

  test('of Services with equal critical findings, the one with more others comes first', () => {
    const found = createQueries(auditor, path).services();
    const names = found.map(({ namespace, name }) => `${namespace}/${name}`);
    // Each has a critical finding and a warning; fraud has information, too.
    expect(names.indexOf('payments/fraud')).toBeLessThan(names.indexOf('payments/gateway'));
  });

  test('the Services with the worst findings come first in the list', () => {
    const found = createQueries(auditor, path)
      .services()
      .map(({ health }) => health.severity);
    const loud = found.filter((severity) => severity === 'critical' || severity === 'warning');
    expect(loud).toContain('warning');
    expect(found.slice(0, loud.length)).toEqual(loud.toSorted());
  });

  test('the answer names the critical finding on a node', () => {
    expect(explained('shop/checkout')?.answer).toContain('node-c');
  });
});

test('an address has the incidents of the nodes that do not forward to it', () => {
  const found = auditor.findings
    .open()
    .find((it) => it.node !== null && auditor.incidents.idOf(it) !== null);
  const endpoint = found?.differences.find(({ address }) => address !== null)?.address ?? '';
  const ip = endpoint.slice(0, endpoint.lastIndexOf(':'));
  const { incidents = [] } = createQueries(auditor, path).explain([`ip/${ip}`], null) ?? {};
  expect(incidents.map(({ id }) => id)).toContain(found && auditor.incidents.idOf(found));
});

test('the Services that cannot receive traffic are listed, each with its reason', () => {
  const answers = createQueries(auditor, path);
  expect(answers.unserved()).toEqual([
    {
      namespace: 'media',
      name: 'thumbnails',
      reason: 'selector_matches_nothing',
      detail:
        'no pod in namespace media has the labels app=thumbnail: the workload is scaled to zero, ' +
        'or the selector is wrong',
      suppressed: null,
    },
    {
      namespace: 'payments',
      name: 'fraud-metrics',
      reason: 'named_port_missing',
      detail: expect.stringContaining('no container has a port named metrics') as string,
      suppressed: null,
    },
  ]);
  expect(answers.explain(['service/fraud-metrics'], 'payments')).toMatchObject({
    verdict: 'conform',
    withoutEndpoints: 'named_port_missing',
  });
  const counts = answers.status().metrics.summary.unserved;
  expect(counts).toMatchObject({ named_port_missing: 1, selector_matches_nothing: 1 });
});

describe('a node', () => {
  test('has a page with its verdicts, findings and the packets of a port', () => {
    const view = nodeView(auditor, 'node-c', 'shop/checkout:http');
    expect(view?.facts).toContain('zone eu-1c');
    expect(view?.verdicts?.length).toBeGreaterThan(10);
    expect(view?.standing.every(({ node }) => node === 'node-c')).toBe(true);
    expect(view?.standing.length).toBeGreaterThan(0);
    expect(view?.walked?.some(({ first }) => first.verdict === 'different')).toBe(true);
  });

  test('has the findings that were resolved before a restart', () => {
    const gone = plainFinding('node-rules-stale', { node: 'node-b', resolvedAt: 50 });
    const earlier = { findings: [gone], incidents: [] };
    expect(nodeView({ ...auditor, earlier }, 'node-b', null)?.resolved[0]).toBe(gone);
  });

  test('a node without known rules has a page, an unknown name has none', () => {
    expect(nodeView(auditor, 'node-a', null)?.verdicts).toBeNull();
    expect(nodeView(auditor, 'node-zzz', null)).toBeNull();
  });
});

describe('while the watch of EndpointSlices is interrupted', () => {
  const answersOf = () =>
    createQueries({ ...auditor, stale: () => new Set(['endpointslices'] as const) }, path);

  test('the verdicts of nodes are unknown on each page and in each answer', () => {
    const answers = answersOf();
    const { node } = answers.status().metrics.summary.verdicts;
    expect(node).toMatchObject({ conform: 0, pending: 0, different: 0 });
    for (const name of ['node-b', 'node-c']) {
      const isUnknown = answers
        .nodePage(name, null)
        ?.verdicts?.every(({ verdict, reason }) => verdict === 'unknown' && reason !== null);
      expect(isUnknown).toBe(true);
      expect(answers.explain([`node/${name}`], null)).toMatchObject({ verdict: 'unknown' });
    }
    const view = answers.servicePage('shop', 'search', 0);
    expect(view?.nodes?.map(({ verdict, reason }) => [verdict, reason])).toEqual(
      view?.nodes?.map(() => ['unknown', 'input-stale']),
    );
    expect(view?.status.nodes).toEqual({ conform: 0, pending: 0, different: 0, unknown: 3 });
    const texts = view?.explanation.reasons.map(({ text }) => text).join('\n');
    expect(texts).toContain('0 of 3 nodes forward it correctly; unknown on node-b, node-c, node-d');
  });

  test('the list of Services has the outputs of the status', () => {
    const { share } = answersOf()
      .services()
      .find(({ namespace, name }) => namespace === 'shop' && name === 'search') ?? { share: null };
    expect(share?.verdicts).toMatchObject({ endpoints: 'conform', endpointslices: 'unknown' });
  });
});

describe('a part of the cluster', () => {
  const pod = { metadata: { name: 'web-1', namespace: 'shop', uid: 'p', labels: { app: 'web' } } };
  const answersIn = (scope: Scope) => {
    const { auditor: part } = auditorOf(0, { scope });
    for (const it of [header(100), added('services', rawService, 100), ...synced(101)]) {
      part.take(it);
    }
    part.take(added('pods', pod, 102));
    const { explain } = createQueries(part, 'test');
    return (...words: string[]) => explain(words, 'shop')?.answer;
  };

  test('is named by answers of a shard about what other shards may know', () => {
    const shards = [0, 1].map((index): Scope => ({ ...wholeCluster, shard: { index, count: 2 } }));
    const index = shards.findIndex((scope) => !isServiceInScope(scope, 'shop', 'web'));
    const answer = answersIn(shards[index] ?? wholeCluster);
    const start = `Within shard ${index}/2: `;
    expect(answer('service/web')).toBe(`${start}Service shop/web does not exist`);
    expect(answer('pod/web-1')?.startsWith(`${start}Pod shop/web-1 is in no Service`)).toBe(true);
    expect(answer('ip/10.96.0.9')?.startsWith(`${start}10.96.0.9 is unknown`)).toBe(true);
    expect(answer('node/a')).toBe('Node a does not exist');
  });

  test('is named by answers of some namespaces about what others may have', () => {
    const answer = answersIn({ ...wholeCluster, namespaces: ['shop'] });
    const start = 'Within the audited namespaces: ';
    expect(answer('service/bank/web')).toBe(`${start}Service bank/web does not exist`);
    expect(answer('ip/10.9.9.9')?.startsWith(start)).toBe(true);
    expect(answer('pod/web-1')).not.toContain(start);
    expect(answersIn(wholeCluster)('service/bank/web')).toBe('Service bank/web does not exist');
  });
});

test('the revision changes with the input only', () => {
  const fresh = createAuditor(auditorDefaults);
  const answers = createQueries(fresh, path);
  const before = answers.beat().revision;
  expect(answers.beat().revision).toBe(before);
  fresh.take({ kind: 'header', at: 5, kubernetes: 'v1.36.3', resources: [] });
  expect(answers.beat()).toMatchObject({ now: 5 });
  expect(answers.beat().revision).not.toBe(before);
});

test('an explanation uses the present state of the store', () => {
  expect(verdictInput(auditor)).toMatchObject({
    listers: auditor.store.listers,
    release: auditor.released().release,
    maxEndpointsPerSlice: 100,
  });
});

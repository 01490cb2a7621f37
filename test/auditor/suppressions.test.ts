// Suppressions in an auditor: those of a file and of annotations, what is reported, and what a
// suppressed finding still does.

import { describe, expect, test } from 'vitest';

import type { Finding } from '../../src/audit/finding/catalogue.ts';
import { isFault, readSuppression } from '../../src/audit/finding/suppressions.ts';
import { createAuditor } from '../../src/auditor/auditor.ts';
import { listIncidents } from '../../src/auditor/incident-queries.ts';
import { createQueries, createReport } from '../../src/auditor/queries.ts';
import type { Problem } from '../../src/cluster/decode/problem.ts';
import { problemText } from '../../src/cluster/decode/problem.ts';
import type { RecordingEntry } from '../../src/cluster/files/recording.ts';
import { annotation } from '../../src/model/objects.ts';
import { type Scope, wholeCluster } from '../../src/model/scope.ts';
import { newestRelease } from '../../src/shadow/release.ts';
import { added, clock, header, rawService, synced } from '../build.ts';

const ignore = (): void => undefined;
const dayOf = (text: string): number => Date.parse(text) / 1000;
const entry = 'endpoints-missing owner=team expires=2026-12-31 reason=it is planned';

const annotated = (text: string) => ({
  ...rawService,
  metadata: { ...rawService.metadata, annotations: { [annotation.suppress]: text, other: 'x' } },
});

const deleted = (raw: object, at: number): RecordingEntry => {
  const entry = added('services', raw, at) as RecordingEntry & { readonly kind: 'event' };
  return { ...entry, event: { ...entry.event, type: 'deleted' } };
};

/** An auditor of a Service without Endpoints and slices, on a day. */
function auditorOn(
  day: string,
  raw: object,
  fromFile: readonly object[] = [],
  scope: Scope = wholeCluster,
) {
  const problems: Problem[] = [];
  const [opened, resolved]: [Finding[], Finding[]] = [[], []];
  const time = { now: dayOf(day) };
  const auditor = createAuditor({
    settle: 0,
    release: newestRelease,
    maxEndpointsPerSlice: 100,
    scope,
    live: false,
    suppressions: fromFile.map((fields) => {
      const read = readSuppression(fields as Record<string, unknown>, 'accepted.yaml:3');
      if (isFault(read)) throw new Error(read.message);
      return read;
    }),
    today: () => time.now,
    onOpen: (finding) => opened.push(finding),
    onResolve: (finding) => resolved.push(finding),
    onJourney: ignore,
    onProblem: (problem) => problems.push(problem),
  });
  for (const it of [header(100), added('services', raw, 100), ...synced(101)]) auditor.take(it);
  auditor.take(clock(200));
  const suppressed = () => auditor.findings.open().map((it) => [it.code, it.suppressed] as const);
  const texts = () => problems.map(problemText);
  return { auditor, opened, resolved, time, suppressed, texts };
}

const owner = { owner: 'team', reason: 'it is planned', expires: '2026-12-31' };

const rawPod = {
  metadata: {
    name: 'web-1',
    namespace: 'shop',
    uid: 'web-1',
    resourceVersion: '3',
    labels: { app: 'web' },
  },
  spec: { nodeName: 'a', containers: [] },
  status: {
    phase: 'Running',
    podIPs: [{ ip: '10.0.0.1' }],
    conditions: [{ type: 'Ready', status: 'True' }],
  },
};

/** It lists a pod that does not exist. */
const strayedSlice = {
  metadata: {
    name: 'web-x',
    namespace: 'shop',
    uid: 'web-x',
    resourceVersion: '4',
    labels: {
      'kubernetes.io/service-name': 'web',
      'endpointslice.kubernetes.io/managed-by': 'endpointslice-controller.k8s.io',
    },
    ownerReferences: [
      { apiVersion: 'v1', kind: 'Service', name: 'web', uid: 'web', controller: true },
    ],
  },
  addressType: 'IPv4',
  ports: [],
  endpoints: [
    {
      addresses: ['10.0.0.7'],
      targetRef: { kind: 'Pod', namespace: 'shop', name: 'gone', uid: 'gone' },
    },
  ],
};

describe('a finding', () => {
  test('is suppressed by an annotation of its Service', () => {
    const { suppressed, texts, opened, auditor } = auditorOn('2026-12-01', annotated(entry));
    const source = 'Service shop/web';
    expect(suppressed()).toEqual([
      ['endpoints-missing', { ...owner, source }],
      ['slice-placeholder-missing', null],
    ]);
    expect(opened[0]?.suppressed).toMatchObject({ owner: 'team' });
    expect(opened[0]?.differences).toHaveLength(1);
    expect(texts()).toEqual([]);
    expect(auditor.samples.opened).toEqual({ 'slice-placeholder-missing': { warning: 1 } });
  });

  test('is suppressed by a file, and keeps that when it is resolved', () => {
    const fields = { code: 'endpoints-missing', namespace: 'shop', service: 'web', ...owner };
    const { suppressed, auditor, resolved } = auditorOn('2026-12-01', rawService, [fields]);
    const want = { ...owner, source: 'accepted.yaml:3' };
    expect(suppressed()[0]).toEqual(['endpoints-missing', want]);
    const report = createReport(auditor, {
      kind: 'replay',
      sources: [],
      namespace: null,
      problems: [],
    });
    expect(report.findings.map((it) => it.suppressed)).toEqual([want, null]);
    auditor.take(deleted(rawService, 201));
    expect(resolved.find(({ code }) => code === 'endpoints-missing')?.suppressed).toEqual(want);
  });

  test('counts again when its suppression has expired, which is reported once', () => {
    const { suppressed, texts, time, auditor } = auditorOn('2026-12-26', annotated(entry));
    const place = 'metadata.annotations[endpoint-auditor/suppress] expires';
    expect(suppressed()[0]?.[1]).not.toBeNull();
    expect(texts()).toEqual([
      `Suppression: Service shop/web: ${place}: The suppression expires within 7 days: ` +
        '"2026-12-31"',
    ]);
    time.now = dayOf('2027-01-01');
    expect(suppressed()[0]).toEqual(['endpoints-missing', null]);
    expect(suppressed()[0]).toEqual(['endpoints-missing', null]);
    auditor.suppressions.review();
    expect(texts().slice(1)).toEqual([
      `Suppression: Service shop/web: ${place}: The suppression has expired, so its findings ` +
        'count again: "2026-12-31"',
    ]);
  });

  test('is not suppressed by an invalid entry, which is reported with object and key', () => {
    const { suppressed, texts } = auditorOn('2026-12-01', annotated('endpoints-missing owner=a'));
    expect(suppressed()[0]).toEqual(['endpoints-missing', null]);
    expect(texts()).toEqual([
      'Suppression: Service shop/web: metadata.annotations[endpoint-auditor/suppress]: ' +
        'reason is missing',
    ]);
  });

  test('is no longer suppressed when the annotation is gone', () => {
    const { suppressed, auditor } = auditorOn('2026-12-01', annotated(entry));
    const metadata = { ...rawService.metadata, resourceVersion: '2' };
    auditor.take(added('services', { ...rawService, metadata }, 300));
    expect(suppressed()[0]).toEqual(['endpoints-missing', null]);
  });
});

describe('an incident', () => {
  const moved = (raw: object, at: number, resourceVersion: string): RecordingEntry => {
    const { metadata } = raw as { readonly metadata: object };
    return added('services', { ...raw, metadata: { ...metadata, resourceVersion } }, at);
  };

  test('ends for a finding that is suppressed after it opened', () => {
    const { auditor } = auditorOn('2026-12-01', rawService);
    const both = `${entry}\nslice-placeholder-missing owner=t expires=2026-12-31 reason=it is`;
    expect(listIncidents(auditor)).toHaveLength(1);
    auditor.take(moved(annotated(entry), 300, '2'));
    auditor.take(clock(301));
    expect(listIncidents(auditor)[0]?.findings).toMatchObject([
      { code: 'slice-placeholder-missing' },
    ]);
    auditor.take(moved(annotated(both), 400, '3'));
    auditor.take(clock(401));
    expect(listIncidents(auditor)).toEqual([]);
    expect(auditor.incidents.resolved()).toMatchObject([{ resolvedAt: 401, findings: [] }]);
  });

  test('has a finding whose suppression ends while it is open', () => {
    const { auditor, time } = auditorOn('2026-12-26', annotated(entry));
    const codes = () => listIncidents(auditor)[0]?.findings.map(({ code }) => code);
    expect(codes()).toEqual(['slice-placeholder-missing']);
    time.now = dayOf('2027-01-01');
    auditor.take(clock(301));
    expect(codes()).toEqual(['endpoints-missing', 'slice-placeholder-missing']);
  });
});

test('an expired suppression of a file is reported with file, line, field and value', () => {
  const fields = { code: 'endpoints-missing', ...owner };
  const { auditor, texts } = auditorOn('2027-02-01', rawService, [fields]);
  auditor.suppressions.review();
  expect(texts()).toEqual([
    'accepted.yaml:3: expires: The suppression has expired, so its findings count again: ' +
      '"2026-12-31"',
  ]);
});

test('an unused suppression is reported only if its namespace was audited', () => {
  const code = 'slice-duplicate';
  const bank = { code, namespace: 'bank', ...owner };
  const { auditor, texts } = auditorOn('2026-12-01', rawService, [bank]);
  const { suppressions } = auditor;
  suppressions.reportUnused(auditor.findings.open(), { ...wholeCluster, namespaces: ['shop'] });
  expect(texts()).toEqual([]);
  suppressions.reportUnused(auditor.findings.open(), wholeCluster);
  expect(texts()).toEqual(['accepted.yaml:3: The suppression matches no finding']);
});

test.each([
  ['that is wrong', 'endpoints-missing owner=team'],
  ['that expires soon', entry],
])('of all shards, one reports an annotation %s', (_name, text) => {
  const shards = [0, 1].map((index) => {
    const scope: Scope = { ...wholeCluster, agents: true, shard: { index, count: 2 } };
    return auditorOn('2026-12-30', annotated(text), [], scope);
  });
  for (const { auditor } of shards) auditor.suppressions.review();
  expect(shards.map(({ texts }) => texts().length).sort()).toEqual([0, 1]);
});

test('an unused suppression of an annotation is reported with its Service and code', () => {
  const unused = 'slice-duplicate owner=b expires=2026-12-31 reason=c';
  const { auditor, texts } = auditorOn('2026-12-01', annotated(`${entry}; ${unused}`));
  auditor.suppressions.reportUnused(auditor.findings.open(), wholeCluster);
  expect(texts()).toEqual([
    'Suppression: Service shop/web: metadata.annotations[endpoint-auditor/suppress]: ' +
      'The suppression matches no finding: "slice-duplicate"',
  ]);
});

describe('a Service without usable endpoints', () => {
  test('is suppressed with the code unserved, and then no metric but one counts it', () => {
    const { auditor, time } = auditorOn('2026-12-01', annotated(entry.replace(/^\S+/, 'unserved')));
    const queries = createQueries(auditor, 'test');
    const counts = () => {
      const { summary, suppressedServices } = queries.status().metrics;
      return [summary.unserved.selector_matches_nothing, suppressedServices];
    };
    const want = { ...owner, source: 'Service shop/web' };
    expect(queries.unserved().map(({ suppressed }) => suppressed)).toEqual([want]);
    expect(counts()).toEqual([0, 1]);
    time.now = dayOf('2027-01-01');
    expect(queries.unserved().map(({ suppressed }) => suppressed)).toEqual([null]);
    expect(counts()).toEqual([1, 0]);
  });

  test('is suppressed by a file', () => {
    const fields = { code: 'unserved', namespace: 'shop', ...owner };
    const { auditor } = auditorOn('2026-12-01', rawService, [fields]);
    expect(createQueries(auditor, 'test').unserved()[0]?.suppressed).toMatchObject(owner);
  });
});

test('a suppressed finding does not decide the severity of its Service', () => {
  const both = `${entry}; slice-placeholder-missing owner=b expires=2026-12-31 reason=c`;
  const { auditor } = auditorOn('2026-12-01', annotated(both));
  const queries = createQueries(auditor, 'test');
  const status = queries.service('shop', 'web');
  expect(status).toMatchObject({ severity: null, verdict: 'different' });
  expect(status?.standing).toHaveLength(2);
  const explained = queries.explain(['service/web'], 'shop');
  expect(explained?.reasons.map(({ text }) => text)).toContain(
    'endpoints-missing is suppressed until 2026-12-31 by team: it is planned',
  );
});

test.each([
  ['pod/web-1', 'shop'],
  ['pod/web-1 service/web', 'shop'],
  ['ip/10.0.0.1', null],
  ['pod/gone', 'shop'],
])('a suppressed finding does not decide the severity of %s', (words, namespace) => {
  const codes = ['endpoints-missing', 'slice-endpoint-missing', 'slice-endpoint-unexpected'];
  const accepted = codes.map((code) => entry.replace(/^\S+/, code)).join('; ');
  const explained = [rawService, annotated(accepted)].map((raw) => {
    const { auditor } = auditorOn('2026-12-01', raw);
    auditor.take(added('nodes', { metadata: { name: 'a', uid: 'a', resourceVersion: '2' } }, 200));
    auditor.take(added('pods', rawPod, 200));
    if (words === 'pod/gone') auditor.take(added('endpointslices', strayedSlice, 200));
    auditor.take(clock(300));
    return createQueries(auditor, 'test').explain(words.split(' '), namespace);
  });
  expect(explained.map((it) => it?.verdict)).toEqual(['different', 'different']);
  expect(explained.map((it) => it?.severity === null)).toEqual([false, true]);
  const texts = JSON.stringify(explained[1]?.reasons);
  expect(texts).toContain('is suppressed until 2026-12-31 by team: it is planned');
});

test('only the annotation of suppressions is kept, and a long one is cut', () => {
  const { auditor } = auditorOn('2026-12-01', annotated('x'.repeat(9000)));
  const service = auditor.store.listers.services.get('shop/web');
  expect(service?.suppress).toHaveLength(4097);
  expect(JSON.stringify(service)).not.toContain('other');
});

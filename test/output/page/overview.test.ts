import { describe, expect, test } from 'vitest';

import type { Code } from '../../../src/audit/finding/catalogue.ts';
import { catalogue } from '../../../src/audit/finding/catalogue.ts';
import { fillOf } from '../../../src/audit/measure/endpoint-counts.ts';
import { countConvergence } from '../../../src/audit/measure/lag.ts';
import { renderOverview, sortNodes } from '../../../src/output/page/overview.ts';
import { sortWorstFirst } from '../../../src/output/page/parts.ts';
import { endpoint, slice, times } from '../../build.ts';
import {
  conformState,
  findingOf,
  hostileNames,
  moment,
  stateOf,
  statusOf,
  tagsIn,
  wordsIn,
} from '../samples.ts';

const codes = Object.keys(catalogue) as Code[];

describe('the overview', () => {
  test('names the reasons why a release is not verified', () => {
    const unverified = ['controllers of 1.29 were not compared'];
    const status = statusOf();
    const metrics = { ...status.metrics, release: '1.29', unverified };
    const text = wordsIn(renderOverview({ ...status, metrics }));
    expect(text).toContain(
      'shadowed as 1.29 · not verified: controllers of 1.29 were not compared',
    );
  });

  test('shows the headline and the open findings', () => {
    const text = wordsIn(renderOverview(statusOf()));
    expect(text).toContain('2 findings 1 critical, 1 info, among 21 Services');
    expect(text).toContain('2026-11-21 10:56:46 UTC');
    expect(text).toContain('shop.ndjson.gz · Kubernetes v1.36.3 · shadowed as 1.36 · 21 Services');
    expect(text).toContain('Endpoints 1 pending, 19 ok');
    expect(text).toContain('EndpointSlices 2 mismatch, 19 ok');
    expect(text).toContain('the input has no Nodes 1');
    expect(text).toContain('Written by other controllers or users, not compared: 2.');
    expect(text).toContain('The oldest pending difference is 12 s old.');
    expect(text).toContain('extra 10.1.2.3 of pod web-1, ready');
    expect(text).toContain('for 30 s, since 2026-11-21 10:56:16 UTC');
    expect(text).toContain('No change has been measured yet.');
    expect(text).not.toMatch(/undefined|NaN|\[object/);
  });

  test('lists findings worst first, and those of one severity newest first', () => {
    const findings = [
      findingOf({ service: 'mild', severity: 'info' }),
      findingOf({ service: 'old', openedAt: moment - 9 }),
      findingOf({ service: 'bad', severity: 'critical' }),
    ];
    const order = sortWorstFirst(findings).map(({ service }) => service);
    expect(order).toEqual(['bad', 'old', 'mild']);
  });

  test('lists resolved findings, the latest first, with their count', () => {
    const resolved = times(9, (index) =>
      findingOf({ service: `gone-${index}`, resolvedAt: moment - 9 + index }),
    );
    const text = wordsIn(renderOverview(statusOf({ resolved, forgotten: 7 })));
    expect(text).toContain('Resolved 16');
    expect(text).toContain('10 more resolved');
    expect(text.indexOf('gone-8')).toBeLessThan(text.indexOf('gone-7'));
    expect(text).not.toContain('gone-1');
  });

  test('shows lag and packing once they are measured', () => {
    const metrics = conformState();
    countConvergence(metrics.convergence, { output: 'mirrored', operation: 'add', seconds: 0.004 });
    const slices = [1, 2].map((count) => slice({ endpoints: times(count, () => endpoint()) }));
    Object.assign(metrics.fill, fillOf(slices, 100));
    const sample = { output: 'node', operation: 'update', seconds: 58, at: moment } as const;
    const longestLags = [{ ...sample, namespace: 'shop', service: 'web', node: 'node-a' }];
    const links = [{ name: 'Graph', url: 'https://x/?q={metric}' }];
    const html = renderOverview(statusOf({ metrics, longestLags, links }));
    expect(html).toContain('href="https://x/?q=endpoint_auditor_convergence_lag_seconds_bucket"');
    const text = wordsIn(html);
    expect(text).toContain(
      'Longest of the last day shop/web on node-a Service ports on nodes update ' +
        '58 s at 2026-11-21 10:56:46 UTC',
    );
    expect(text).toContain('Mirrored slices add 1 4 ms 4 ms 4 ms');
    expect(text).toContain('2 EndpointSlices, 1 more than needed · 2 % full');
  });

  const quiet = conformState().summary;
  const mirrored = (more: object) => ({ ...quiet.verdicts.mirrored, conform: 0, ...more });
  const summaryWith = (more: object) => conformState({ summary: { ...quiet, ...more } });
  const cases: [string, Parameters<typeof statusOf>[0], string, string][] = [
    ['all is well', { metrics: conformState() }, '21 Services ok no differences', 'conform'],
    ['not ready', { notReady: 'No pods\nNo nodes' }, 'Not ready yet No pods; No nodes', 'info'],
    [
      'pending only',
      {
        metrics: summaryWith({
          verdicts: { ...quiet.verdicts, mirrored: mirrored({ pending: 1 }) },
        }),
      },
      '21 Services ok 1 output pending: a controller may be writing it',
      'conform',
    ],
    [
      'unknown is not conform',
      { metrics: summaryWith({ unknown: { 'object-unreadable': 1, 'endpoints-not-known': 3 } }) },
      '4 outputs unknown no findings among 21 Services',
      'warning',
    ],
    [
      'no Services',
      { metrics: summaryWith({ services: 0 }) },
      'No Services The input contains none',
      'quiet',
    ],
  ];
  const mayBeWrong: Parameters<typeof statusOf>[0][] = [
    { metrics: summaryWith({ unknown: { 'input-stale': 3 } }) },
    {
      metrics: summaryWith({ verdicts: { ...quiet.verdicts, mirrored: mirrored({ pending: 1 }) } }),
    },
  ];
  test.each(mayBeWrong)('says of no findings that not everything is known to be ok: %#', (more) => {
    const right = 'None. Everything is as it should be.';
    expect(wordsIn(renderOverview(statusOf({ metrics: conformState() })))).toContain(right);
    const text = wordsIn(renderOverview(statusOf(more)));
    expect(text).toContain('None, but not every output is known to be ok.');
    expect(text).not.toContain(right);
  });

  test.each(cases)('shows the headline: %s', (_, more, text, tone) => {
    const html = renderOverview(statusOf(more));
    expect(wordsIn(html)).toContain(` ${text}`);
    expect(html).toContain(`<section class="head ${tone}"`);
  });

  test('an input that is stale has a warning at the top', () => {
    const state = stateOf();
    const blind = { state: 'stale', blindSince: moment - 42, version: '7' } as const;
    const watches = { ...state.watches, inputs: new Map([['pods', blind] as const]) };
    const text = wordsIn(renderOverview(statusOf({ metrics: { ...state, watches } })));
    expect(text).toContain('pods have not been seen for 42 s: what depends on them is unknown');
    expect(text).toContain('stale for 42 s');
  });

  test('nodes that do not conform come first', () => {
    const of = (node: string, different: number) => ({
      node,
      conform: 1,
      pending: 0,
      different,
      unknown: 0,
    });
    const nodes = [of('a', 0), of('b', 3), of('c', 5)];
    expect(sortNodes(nodes).map(({ node }) => node)).toEqual(['c', 'b', 'a']);
    const state = stateOf();
    const html = renderOverview(
      statusOf({ metrics: { ...state, summary: { ...state.summary, nodes } } }),
    );
    expect(wordsIn(html)).toContain('Service ports by verdict c 5 mismatch, 1 ok');
    expect(html).toContain('href="/nodes/c"');
  });
});

describe('the text of the overview', () => {
  test('loads scripts and styles from the server only', () => {
    const html = renderOverview(statusOf());
    expect(html).not.toMatch(/<script>| style=| on[a-z]+="|https?:|<img|<style|url\(/);
    for (const [, link = ''] of html.matchAll(/(?:href|src|action)="([^"]*)"/g)) {
      expect(link).toMatch(/^[/#?]/);
    }
  });

  test.each(hostileNames)('the name %j adds no tag', (name) => {
    const of = (one: string) => {
      const finding = findingOf({ service: one, namespace: one, actual: one, expected: one });
      const state = stateOf();
      const summary = { ...state.summary, findings: [finding] };
      return renderOverview({
        ...statusOf({ metrics: { ...state, summary }, source: one, kubernetes: one }),
        resolved: [findingOf({ resolvedAt: moment, service: one, node: one })],
      });
    };
    expect(tagsIn(of(name))).toEqual(tagsIn(of('we b')));
    expect(of(name).replaceAll('\n', '')).not.toMatch(/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/u);
  });

  test('has at most 150 KiB with 5000 findings', () => {
    const long = '"'.repeat(253);
    const findings = times(5000, (index) =>
      findingOf({
        code: codes[index % codes.length] ?? 'slice-orphaned',
        namespace: long,
        service: long,
        actual: long,
        expected: long,
      }),
    );
    const state = stateOf();
    const html = renderOverview({
      ...statusOf({ source: long, kubernetes: long }),
      metrics: { ...state, summary: { ...state.summary, findings } },
      resolved: findings.map((one) => ({ ...one, resolvedAt: moment })),
    });
    expect(Buffer.byteLength(html)).toBeLessThan(150 * 1024);
    expect(wordsIn(html)).toContain('4,988 more findings');
    const few = { ...state, summary: { ...state.summary, findings: findings.slice(0, 13) } };
    expect(wordsIn(renderOverview(statusOf({ metrics: few })))).toContain('1 more finding ');
  });

  test('has at most 8000 bytes if all Services conform', () => {
    const html = renderOverview(statusOf({ metrics: conformState() }));
    expect(Buffer.byteLength(html)).toBeLessThan(8000);
  });
});

import { createHash } from 'node:crypto';

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import { endpoint, slice, times } from '../build.ts';
import { conformState, findingOf, moment, stateOf, statusOf } from './samples.ts';
import type { Code, Finding } from '../../src/audit/findings.ts';
import { catalogue } from '../../src/audit/findings.ts';
import { setFill } from '../../src/measure/fill.ts';
import { countConvergence, lagOperations, lagOutputs } from '../../src/measure/lag.ts';
import { renderPage, styleSource } from '../../src/output/page.ts';

const codes = Object.keys(catalogue) as Code[];

const withFindings = (findings: readonly Finding[]) => {
  const state = stateOf();
  return statusOf({ metrics: { ...state, summary: { ...state.summary, findings } } });
};

/** Texts between tags, entities read. */
const words = (html: string): string =>
  html
    .replace(/<style>[^]*<\/style>/, '')
    .replace(/<[^>]*>/g, ' ')
    .replaceAll('&lt;', '<')
    .replaceAll('&amp;', '&')
    .replace(/\s+/g, ' ');

const tags = (html: string): string[] => html.match(/<[^>]*>/g) ?? [];

describe('the page', () => {
  test('says how all is, and what stands, the worst first', () => {
    const text = words(renderPage(statusOf()));
    expect(text).toContain('endpoint-auditor 1.2.3');
    expect(text).toContain('input clock 2026-11-21 10:56:46 UTC');
    expect(text).toContain('Kubernetes v1.36.3 · shadowed as 1.36 · shop.ndjson.gz');
    expect(text).toContain('2 findings: 1 critical, 1 info among 21 Services');
    expect(text).toContain('endpoints 19 1 0 0 12 s endpointslices 19 0 2 0 mirrored 0 0 0 1');
    expect(text).toContain('Unknown: 1 nodes-not-known. Written by others, not judged: 2.');
    expect(text).toContain(
      'critical shop/web endpointslices slice-endpoint-unexpected ' +
        'actual 10.1.2.3 of pod web-1, ready for 30 s, since 2026-11-21 10:56:16 UTC',
    );
    expect(text.indexOf('shop/web')).toBeLessThan(text.indexOf('shop/api'));
    expect(text).toContain(catalogue['slice-endpoint-unexpected'].title);
    expect(text).toContain('Nothing measured yet.');
  });

  test('lists what is resolved below, the latest first', () => {
    const resolved = [
      findingOf({ service: 'early', resolvedAt: moment - 5, cause: 'hand-edited' }),
      findingOf({ service: 'late', resolvedAt: moment - 1 }),
    ];
    const text = words(renderPage(statusOf({ resolved, forgotten: 7 })));
    expect(text).toContain('Resolved findings 9');
    expect(text).toContain(
      'resolved at 2026-11-21 10:56:41 UTC after 25 s · cause: hand-edited and 7 more',
    );
    expect(text.indexOf('shop/late')).toBeLessThan(text.indexOf('shop/early'));
  });

  test('shows lag and packing once they are measured', () => {
    const metrics = conformState();
    countConvergence(metrics.convergence, { output: 'mirrored', operation: 'add', seconds: 0.004 });
    setFill(
      metrics.fill,
      'shop/web',
      [1, 2].map((count) => slice({ endpoints: times(count, () => endpoint()) })),
    );
    const text = words(renderPage(statusOf({ metrics })));
    expect(text).toContain('mirrored add 1 4 ms 4 ms 4 ms');
    expect(text).toContain('2 slices, 1 more than needed · 2 % of their places taken');
  });

  const quiet = conformState().summary;
  const cases: [string, Parameters<typeof statusOf>[0], string, string][] = [
    ['all is well', { metrics: conformState() }, '21 Services conform', '<p class="head">'],
    [
      'not ready',
      { notReady: 'Waiting for pods' },
      'Not ready Waiting for pods',
      '<p class="head info">',
    ],
    [
      'pending only',
      {
        metrics: conformState({
          summary: {
            ...quiet,
            verdicts: {
              ...quiet.verdicts,
              mirrored: { conform: 0, pending: 1, different: 0, unknown: 0 },
            },
          },
        }),
      },
      '21 Services conform, 1 output pending',
      '<p class="head">',
    ],
    [
      'unknown is not conform',
      {
        metrics: conformState({
          summary: {
            ...quiet,
            verdicts: {
              ...quiet.verdicts,
              mirrored: { conform: 0, pending: 0, different: 0, unknown: 3 },
            },
            // One of a Service that cannot be read.
            unknown: { 'object-unreadable': 1, 'endpoints-not-known': 3 },
          },
        }),
      },
      '4 outputs cannot be judged; no findings',
      '<p class="head warning">',
    ],
    [
      'no Services',
      { metrics: conformState({ summary: { ...quiet, services: 0 } }) },
      'No Services',
      '<p class="head">',
    ],
  ];
  test.each(cases)('headline: %s', (_, more, text, mark) => {
    const html = renderPage(statusOf(more));
    expect(words(html)).toContain(` ${text} `);
    expect(html).toContain(mark);
  });
});

describe('the page is safe and small', () => {
  test('no script, no inline style, nothing from elsewhere', () => {
    const html = renderPage(statusOf());
    expect(html).not.toMatch(/<script| style=| on[a-z]+=|https?:|<img|<link|url\(/);
    for (const [, link = ''] of html.matchAll(/href="([^"]*)"/g)) expect(link).toMatch(/^[/#]/);
  });

  test('its policy allows exactly its own style', () => {
    const style = /<style>([^]*)<\/style>/.exec(renderPage(statusOf()))?.[1] ?? '';
    const hash = createHash('sha256').update(style).digest('base64');
    expect(styleSource).toBe(`'sha256-${hash}'`);
  });

  test('every link within the page leads somewhere, and no anchor is there twice', () => {
    const findings = codes.map((code) => findingOf({ code }));
    const resolved = codes.map((code) => findingOf({ code, resolvedAt: moment }));
    const html = renderPage({ ...withFindings(findings), resolved });
    const anchors = [...html.matchAll(/ id="([^"]*)"/g)].map(([, id]) => id);
    expect(new Set(anchors).size).toBe(anchors.length);
    const links = [...html.matchAll(/href="#([^"]*)"/g)].map(([, id]) => id);
    expect(links.length).toBeGreaterThan(0);
    for (const link of links) expect(anchors).toContain(link);
  });

  const hostile = fc
    .string({ unit: 'binary', maxLength: 300 })
    .map((text) => `${text}<b>"'&\u202e`);

  test('whatever the cluster named, the page has the same tags and hides nothing', () => {
    fc.assert(
      fc.property(hostile, hostile, (name, text) => {
        const of = (one: string, other: string): string => {
          const more = { service: one, namespace: one, actual: other, expected: other };
          const status = withFindings([findingOf(more)]);
          const resolved = [findingOf({ ...more, resolvedAt: moment })];
          return renderPage({ ...status, resolved, source: other, kubernetes: one });
        };
        const html = of(name, text);
        expect(tags(html)).toEqual(tags(of('web', 'ready')));
        expect(html.replaceAll('\n', '')).not.toMatch(/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/u);
      }),
    );
  });

  test('20 KB are enough for anything, and it says what is left out', () => {
    const long = '"'.repeat(1000);
    const findings = times(5000, (index) =>
      findingOf({
        code: codes[index % codes.length] ?? 'slice-orphaned',
        namespace: long,
        service: long,
        actual: long,
        expected: long,
        cause: 'mirror-recycling-fails',
      }),
    );
    const state = stateOf();
    for (const output of lagOutputs) {
      for (const operation of lagOperations) {
        countConvergence(state.convergence, { output, operation, seconds: 0.1234 });
      }
    }
    for (const text of [long, 'a'.repeat(63), '€'.repeat(1000)]) {
      const listed = findings.map((one) => ({
        ...one,
        namespace: text,
        service: text,
        actual: text,
      }));
      const resolved = listed.map((one) => ({ ...one, resolvedAt: moment }));
      const html = renderPage({
        metrics: { ...state, summary: { ...state.summary, findings: listed } },
        resolved,
        forgotten: 1_000_000,
        notReady: null,
        source: text,
        kubernetes: text,
      });
      expect(Buffer.byteLength(html)).toBeLessThanOrEqual(20 * 1024);
      expect(words(html)).toMatch(/and 49\d\d more in \/api\/v1\/findings/);
    }
  });

  test('a common page is much smaller', () => {
    expect(Buffer.byteLength(renderPage(statusOf({ metrics: conformState() })))).toBeLessThan(7000);
  });
});

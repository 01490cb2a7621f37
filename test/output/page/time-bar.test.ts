// The time bar, and links of a page that shows a moment of the history.

import { describe, expect, test } from 'vitest';

import { createLagHistory } from '../../../src/audit/measure/sample-history.ts';
import { renderFinding } from '../../../src/output/page/finding-list.ts';
import { renderFrame } from '../../../src/output/page/frame.ts';
import { markup } from '../../../src/output/page/parts.ts';
import {
  keepMoment,
  keepQuery,
  renderHistoryNotice,
  renderTimeBar,
  timeBarPlace,
} from '../../../src/output/page/time-bar.ts';
import { findingOf, statusOf } from '../samples.ts';

const status = statusOf();
const { now } = status.metrics;
const since = now - 960;

describe('the time bar', () => {
  const lag = createLagHistory();
  lag.note({
    ...{ output: 'endpoints', operation: 'add', seconds: 4, at: now - 5 },
    ...{ service: 'shop/web', quality: 'ok' },
  });
  const resolved = [findingOf({ openedAt: since + 15, resolvedAt: since + 25 })];
  const recorded = { ...status, recordedSince: since, resolved, lag: lag.series() };

  test('shows findings and lag at their times, and the present', () => {
    const html = renderTimeBar(recorded, null)?.html ?? '';
    expect(html).toMatch(/<rect class="open" x="1"/);
    expect(html).toMatch(/<rect class="open" x="2"/);
    expect(html).not.toMatch(/<rect class="open" x="4"/);
    expect(html).toMatch(/<rect class="late" x="9[45]"/);
    expect(html).toContain(`max="${Math.floor(now)}"`);
    expect(html).toContain('method="get"');
    expect(html).not.toContain('Live again');
  });

  test('of a moment has steps in both directions, and a link to the present', () => {
    const at = Math.floor(now) - 100;
    const html = renderTimeBar(recorded, at)?.html ?? '';
    expect(html).toContain(`value="${at}"`);
    for (const step of [-600, -60, -10, 10, 60]) expect(html).toContain(`href="?at=${at + step}"`);
    expect(html).not.toContain(`href="?at=${at + 600}"`);
    expect(html).toContain('<a href="?" class="now">Live again</a>');
  });

  test('keeps what else the page was asked for in its links and its form', () => {
    const at = Math.floor(now) - 100;
    const page = `${renderHistoryNotice(at).html}${renderTimeBar(recorded, at)?.html ?? ''}`;
    const shown = keepQuery(page, new URLSearchParams({ namespace: 'a"&<b', at: '5', page: '2' }));
    const kept = 'namespace=a%22%26%3Cb&amp;page=2';
    expect(shown.split(`href="?${kept}"`)).toHaveLength(3);
    expect(shown).toContain(`href="?${kept}&amp;at=${at + 10}"`);
    expect(shown).not.toContain('href="?at=');
    expect(shown).toContain('<input type="hidden" name="namespace" value="a&quot;&amp;&lt;b">');
    expect(shown.split('type="hidden"')).toHaveLength(3);
    expect(keepQuery(page, new URLSearchParams({ at: '5' }))).toBe(page);
  });

  test('is absent if nothing is recorded', () => {
    expect(renderTimeBar(status, null)).toBeNull();
  });
});

describe('a page', () => {
  const main = markup`<a href="/services/shop/web">web</a>`;

  test('of a moment says so, keeps the moment in links and forms, and has no live updates', () => {
    const html = renderFrame({ ...status, at: 1_795_258_544 }, '/', 'Overview', main);
    expect(html).toContain('History: this is the state at 2026-11-21 10:55:44 UTC.');
    expect(html).toContain(timeBarPlace);
    expect(html).toContain('href="/services/shop/web?at=2026-11-21T10:55:44Z"');
    expect(html).toContain('<input type="hidden" name="at" value="2026-11-21T10:55:44Z">');
    expect(html).toMatch(/<body [^>]*class="is-history" data-static/);
    expect(html).not.toContain('http-equiv="refresh"');
    expect(html).not.toMatch(/href="\/assets[^"]*at=/);
  });

  test('has no link to the moment before a finding that is older than the history', () => {
    const [old, recent] = [findingOf({ since: 1000 }), findingOf({ since: 2000 })].map((it) =>
      renderFinding(it, now),
    );
    const shown = (recordedSince: number | null): string =>
      renderFrame({ ...status, recordedSince }, '/', 'x', markup`${old ?? ''}${recent ?? ''}`);
    expect(shown(1000).match(/at=1970[^"]*/g)).toEqual(['at=1970-01-01T00:33:19Z']);
    expect(shown(1000)).toContain('What was before');
    expect(shown(null)).not.toContain('What was before');
  });

  test('of the present has none of that', () => {
    const html = renderFrame(status, '/', 'Overview', main);
    expect(html).not.toMatch(/History:|name="at"|at=2026/);
  });
});

test('a link keeps its own moment, its query and its anchor', () => {
  const at = 1_795_258_544;
  const shown = keepMoment(
    '<a href="/x?a=1#b">1</a><a href="/y?at=5">2</a>' +
      '<a href="?">3</a><a href="https://a.example/">4</a>',
    at,
  );
  expect(shown).toBe(
    '<a href="/x?a=1&amp;at=2026-11-21T10:55:44Z#b">1</a><a href="/y?at=5">2</a>' +
      '<a href="?">3</a><a href="https://a.example/">4</a>',
  );
});

import { describe, expect, test } from 'vitest';

import { renderFrame, renderLinks } from '../../../src/output/page/frame.ts';
import { renderOverview } from '../../../src/output/page/overview.ts';
import { markup } from '../../../src/output/page/parts.ts';
import { conformState, moment, statusOf, wordsIn } from '../samples.ts';

const page = ['/services', 'All', markup``] as const;

test('a page shows its section, its time and its input', () => {
  const html = renderFrame(statusOf({ revision: '7 8' }), ...page);
  expect(html).toMatch(/^<!doctype html>\n<html lang="en">/);
  expect(html).toContain('<title>All · endpoint-auditor</title>');
  expect(html).toContain('<body data-revision="7 8">');
  expect(html.match(/aria-current="page"/g)).toHaveLength(1);
  expect(html).toMatch(/href="\/services" aria-current="page"/);
  const text = wordsIn(html);
  expect(text).toContain('Overview Incidents Findings 2 Services 21 Nodes 0 Docs');
  expect(text).toContain('as of 2026-11-21 10:56:46 UTC');
});

test('a browser without scripts reloads the page', () => {
  expect(renderFrame(statusOf(), ...page)).toContain(
    '<noscript><meta http-equiv="refresh" content="15"></noscript>',
  );
});

test('an auditor that is not ready has no other warnings', () => {
  const status = statusOf({ metrics: conformState(), notReady: 'The first lists are awaited' });
  expect(renderFrame(status, ...page)).not.toContain('class="notice');
});

test('the page of a recording says that it is not live', () => {
  const text = 'Not live. This is the replay of a recording.';
  expect(wordsIn(renderFrame(statusOf({ isLive: false }), ...page))).toContain(text);
  const ended = wordsIn(renderFrame(statusOf({ isLive: false, hasEnded: true }), ...page));
  expect(ended).toContain('Not live. The replay of a recording has ended');
  expect(wordsIn(renderFrame(statusOf(), ...page))).not.toContain('Not live');
});

test('a page names the cluster in its title and its header', () => {
  const html = renderFrame(statusOf({ cluster: 'prod <eu>' }), ...page);
  expect(html).toContain('<title>All · prod &lt;eu&gt; · endpoint-auditor</title>');
  expect(wordsIn(html)).toContain('Cluster prod <eu>');
});

test('links to other programs have the values of the page', () => {
  const links = [
    { name: 'Grafana', url: 'https://grafana.example/d/x?var-service={service}' },
    { name: 'Node', url: 'https://example/{node}' },
  ];
  const html = renderLinks(statusOf({ links }), { namespace: 'shop', service: 'we b' })?.html ?? '';
  expect(html).toContain('href="https://grafana.example/d/x?var-service=we%20b"');
  expect(html).not.toContain('Node');
});

test('a chart has only the links with its metric, and other places none of them', () => {
  const links = [
    { name: 'Graph', url: 'https://grafana.example/explore?expr={metric}&cluster={cluster}' },
    { name: 'Home', url: 'https://grafana.example/{cluster}' },
  ];
  const status = statusOf({ links, cluster: 'prod' });
  const chart = renderLinks(status, { metric: 'a_total' })?.html ?? '';
  expect(chart).toContain('href="https://grafana.example/explore?expr=a_total&amp;cluster=prod"');
  expect(chart).not.toContain('Home');
  expect(wordsIn(renderLinks(status, {})?.html ?? '')).not.toContain('Graph');
});

test('the links of the footer are apart', () => {
  const html = renderFrame(statusOf(), ...page);
  expect(html).toMatch(/>metrics<\/a> ·\s+<a href="\/api\/v1\/findings">/);
});

test('the documentation is not loaded again when the cluster changes', () => {
  const html = renderFrame(statusOf(), '/docs', 'Runbook', markup``);
  expect(html).toContain('data-static');
  expect(html).not.toContain('http-equiv="refresh"');
});

describe('a lost connection', () => {
  const lost = {
    reason: 'dial',
    message: 'connection refused<b>',
    advice: 'Check the address.',
    since: moment,
  } as const;

  test('is named with its reason and its time, and the page is not live', () => {
    const html = renderFrame(statusOf({ lost, shownAt: moment, notReady: 'lost' }), ...page);
    expect(wordsIn(html)).toContain(
      'Cannot reach the API server since 2026-11-21 10:56:46 UTC (connection refused<b>). ' +
        'The page shows the state at that time. Check the address.',
    );
    expect(wordsIn(html)).toContain('no answer since 2026-11-21 10:56:46 UTC');
    expect(html).toContain('data-state="lost"');
    expect(html).not.toContain('refused<b>');
  });

  test('from the start says that nothing has been read', () => {
    const status = statusOf({ lost, hasBegun: false, notReady: 'lost' });
    expect(wordsIn(renderFrame(status, ...page))).toContain('Nothing has been read yet.');
    const overview = wordsIn(renderOverview(status));
    expect(overview).toContain('Not connected');
    expect(overview).not.toContain('Not ready yet');
  });

  test('hides no findings of the state before it', () => {
    const overview = wordsIn(renderOverview(statusOf({ lost, notReady: 'pods not seen' })));
    expect(overview).toContain('2 findings');
    expect(overview).not.toContain('Not ready yet');
  });
});

import { describe, expect, test } from 'vitest';

import type { Finding } from '../../../src/audit/finding/catalogue.ts';
import { catalogue } from '../../../src/audit/finding/catalogue.ts';
import { causes } from '../../../src/audit/finding/causes.ts';
import type { FindingQuery } from '../../../src/output/page/lists.ts';
import { findingUrl, renderFindings, runbookUrl } from '../../../src/output/page/lists.ts';
import { times } from '../../build.ts';
import { findingOf, hostileNames, moment, stateOf, statusOf, tagsIn, wordsIn } from '../samples.ts';

const nothing: FindingQuery = {
  q: '',
  namespace: '',
  state: '',
  severity: '',
  output: '',
  code: '',
  sort: '',
  page: 1,
};

const statusWith = (findings: readonly Finding[], resolved: readonly Finding[] = []) => {
  const state = stateOf();
  return statusOf({ metrics: { ...state, summary: { ...state.summary, findings } }, resolved });
};

const openFindings = [
  findingOf({ service: 'web', cause: 'hand-edited' }),
  findingOf({ service: 'api', severity: 'info', output: 'input', code: 'left-behind' }),
];
const gone = [findingOf({ service: 'old', resolvedAt: moment })];

/** The Services that the page lists. */
const listed = (query: Partial<FindingQuery>): string[] => {
  const html = renderFindings(statusWith(openFindings, gone), { ...nothing, ...query });
  return [...html.matchAll(/class="name" href="\/services\/shop\/([^"]*)"/g)].map(
    ([, name = '']) => name,
  );
};

describe('the page of findings', () => {
  test.each<[Partial<FindingQuery>, string[]]>([
    [{}, ['web', 'api']],
    [{ state: 'resolved' }, ['old']],
    [{ state: 'all' }, ['web', 'api', 'old']],
    [{ severity: 'info' }, ['api']],
    [{ output: 'endpointslices' }, ['web']],
    [{ code: 'left-behind' }, ['api']],
    [{ q: 'HAND web' }, ['web']],
    [{ q: '10.1.2.3 api' }, ['api']],
    [{ q: 'hand-edited' }, ['web']],
    [{ q: 'nobody' }, []],
    [{ state: 'nonsense' }, ['web', 'api']],
  ])('the query %j lists its findings', (query, want) => {
    expect(listed(query)).toEqual(want);
  });

  test('explains the codes and causes that it shows', () => {
    const html = renderFindings(statusWith(openFindings), nothing);
    const text = wordsIn(html);
    expect(text).toContain(catalogue['slice-endpoint-unexpected'].title);
    expect(text).toContain(causes['hand-edited'].remedy);
    const anchors = [...html.matchAll(/ id="([^"]*)"/g)].map(([, id]) => id);
    expect(new Set(anchors).size).toBe(anchors.length);
    for (const [, anchor] of html.matchAll(/href="\/findings\?[^"]*#([^"]*)"/g)) {
      expect(anchors).toContain(anchor);
    }
  });

  test('links the documents and the runbook of a code', () => {
    const html = renderFindings(statusWith(openFindings), nothing);
    const links = [...html.matchAll(/href="(\/docs\/[^"]+)"/g)].map(([, link]) => link);
    expect(links).toEqual([
      findingUrl('left-behind'),
      findingUrl('slice-endpoint-unexpected'),
      runbookUrl('EndpointsUnexpected'),
      findingUrl('cause-hand-edited'),
    ]);
  });

  test('has page links that keep the query', () => {
    const many = times(120, (index) => findingOf({ service: `s-${index}` }));
    const html = renderFindings(statusWith(many), { ...nothing, q: 'shop', page: 2 });
    expect(html).toContain('href="/findings?q=shop&amp;page=1"');
    expect(html).toContain('href="/findings?q=shop&amp;page=3"');
    expect(html.match(/class="finding /g)).toHaveLength(50);
    const last = renderFindings(statusWith(many), { ...nothing, page: 999 });
    expect(wordsIn(last)).toContain('page 3 of 3');
  });

  test('an empty list shows a text', () => {
    expect(wordsIn(renderFindings(statusWith([]), nothing))).toContain('None.');
    const text = wordsIn(renderFindings(statusWith(openFindings), { ...nothing, q: 'zzz' }));
    expect(text).toContain('No finding matches.');
  });

  // No command has a name that the API server does not accept.
  test.each(hostileNames)('the name %j in the query and in findings adds no tag', (name) => {
    const of = (one: string) =>
      renderFindings(statusWith([findingOf({ service: one, actual: one })]), {
        ...nothing,
        q: one,
      });
    expect(tagsIn(of(name))).toEqual(tagsIn(of('we b')));
  });
});

test('a suppressed finding is marked, and comes after the others', () => {
  const suppressed = { owner: 'team', reason: 'planned', expires: '2026-12-31', source: 'a:3' };
  const status = statusWith([findingOf({ suppressed }), findingOf({ severity: 'info' })]);
  const text = wordsIn(renderFindings(status, nothing));
  expect(text).toContain('Suppressed until 2026-12-31 by team: planned (a:3)');
  expect(text).toContain('suppressed critical');
  expect(text.indexOf('suppressed critical')).toBeGreaterThan(text.indexOf('● info'));
});

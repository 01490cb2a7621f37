import { describe, expect, test } from 'vitest';

import { explain } from '../../../src/audit/explain/explain.ts';
import { serviceTable } from '../../../src/audit/explain/service-table.ts';
import { unknownText } from '../../../src/audit/finding/verdicts.ts';
import type { NodeOfService, ServiceView } from '../../../src/auditor/explanations.ts';
import type { AnyObject } from '../../../src/model/objects.ts';
import { renderService } from '../../../src/output/page/details.ts';
import { keepQuery } from '../../../src/output/page/time-bar.ts';
import {
  auditService,
  endpoint,
  endpoints,
  node,
  pod,
  service,
  slice,
  times,
} from '../../build.ts';
import { findingOf, hostileNames, moment, statusOf, tagsIn, wordsIn } from '../samples.ts';

const conform = { output: 'endpoints', verdict: 'conform', reason: null } as const;

function viewOf(objects: AnyObject[], more: Partial<ServiceView> = {}): ServiceView {
  const { context, serviceAuditor } = auditService([node(), ...objects]);
  serviceAuditor.settle.advance(1000);
  const of = serviceAuditor.audited.get('shop/web');
  if (of === undefined) throw new Error('Nothing audited');
  const status = {
    format: 1 as const,
    now: moment,
    namespace: 'shop',
    service: 'web',
    verdict: 'conform' as const,
    severity: null,
    withoutEndpoints: null,
    outputs: [conform],
    pending: [],
    standing: [],
    resolved: [],
    inputs: {},
    nodes: null,
    notConform: [],
    fill: [],
  };
  return {
    status,
    explanation: explain(context, serviceAuditor, { kind: 'service', service: 'shop/web' }),
    table: serviceTable(context, of, 0, 100),
    from: 0,
    maxEndpointsPerSlice: 100,
    nodes: null,
    lag: [],
    ...more,
  };
}

const render = (view: ServiceView): string => renderService(statusOf(), view);

describe('the page of a Service', () => {
  test('shows verdicts, the explanation, the table, the slices and the lag', () => {
    const lag = { output: 'endpoints', operation: 'add', seconds: 0.021, at: moment } as const;
    const more = { lag: [{ ...lag, service: 'shop/web' }] };
    const html = render(viewOf([service(), pod(), endpoints(), slice()], more));
    const text = wordsIn(html);
    expect(text).toContain('web in shop ✓ ok endpoints ✓ ok');
    expect(text).toContain('Service shop/web has endpoints: it selects 1 pod, 1 of them ready');
    expect(text).toContain('1, 0 differ');
    expect(text).toMatch(/web-1 \S+ on node-a ready ● ready ● ready/);
    expect(text).toContain('1 / 100');
    expect(text).toContain('endpoints add 21 ms 2026-11-21 10:56:46 UTC');
    expect(text).toContain('No rules have been read from any node.');
    expect(text).not.toMatch(/undefined|NaN|\[object/);
  });

  test('marks a difference with a sign and a text', () => {
    const bad = slice({ endpoints: [endpoint({ ready: false })] });
    const html = render(viewOf([service(), pod(), endpoints(), bad]));
    expect(html).toContain('class="cell wrong not-ready"');
    expect(wordsIn(html)).toContain(
      '✗ listed as not ready, expected ready The conditions of an endpoint do not match its pod',
    );
  });

  test('many slices share a column, and each row names its slices', () => {
    const slices = times(7, (index) => slice({ name: `web-${index}`, endpoints: [] }));
    const html = render(
      viewOf([service(), pod(), endpoints(), slice({ name: 'web-x' }), ...slices]),
    );
    expect(wordsIn(html)).toContain('EndpointSlices (8)');
    expect(wordsIn(html)).toContain('● ready web-x');
  });

  test('a node that does not conform has a column', () => {
    const at = viewOf([service(), pod(), endpoints(), slice()]);
    const [row] = at.table.rows;
    const to = `${row?.address ?? ''}:8080`;
    const packet = {
      kind: 'cluster IP' as const,
      frontend: '10.96.0.1:80/tcp',
      origin: 'the node itself',
      expected: to,
      actual: 'drop 100%',
      rules: [],
      differences: [],
      unknown: [],
    };
    const walks = { wanted: [to], allowed: [to], got: [] };
    const nodes: NodeOfService[] = [
      { node: 'a', verdict: 'conform', reason: null, walked: [] },
      {
        node: 'b',
        verdict: 'different',
        reason: null,
        walked: [
          { ...packet, ...walks, verdict: 'different' },
          { ...packet, ...walks, origin: 'a pod of the node', got: [to], verdict: 'conform' },
        ],
      },
      { node: 'c', verdict: 'unknown', reason: 'rules-not-known', walked: [] },
    ];
    const text = wordsIn(render({ ...at, nodes }));
    expect(text).toContain('endpoints ✓ ok nodes ✗ mismatch on 1 of 3');
    expect(text).toContain('1 of 3 nodes forward to it as they should.');
    const only = wordsIn(render({ ...at, nodes: nodes.slice(0, 1) }));
    expect(only).toContain('1 of 1 node forwards to it as it should.');
    expect(text).toContain(
      '◐ partly unreachable not reached from the node itself; others are ok ' +
        `? unknown ${unknownText['rules-not-known']}`,
    );
  });

  test('an address that a node does not reach comes first', () => {
    const at = viewOf([service(), pod(), endpoints(), slice()]);
    const [row] = at.table.rows;
    if (row === undefined) throw new Error('No row');
    const rows = ['10.0.0.7', '10.0.0.8'].map((address) => ({ ...row, address }));
    const wanted = rows.map(({ address }) => `${address}:8080`);
    const packet = {
      ...{ kind: 'cluster IP' as const, frontend: '10.96.0.1:80/tcp', origin: 'a pod of the node' },
      ...{ expected: '', actual: '', rules: [], differences: [], unknown: [] },
      ...{ wanted, allowed: wanted, got: wanted.slice(0, 1), verdict: 'different' as const },
    };
    const nodes: NodeOfService[] = [
      { node: 'b', verdict: 'different', reason: null, walked: [packet] },
    ];
    const table = { ...at.table, rows, total: 2 };
    const text = wordsIn(render({ ...at, table, nodes }));
    expect(text).toContain('2, 0 differ in Endpoints or slices');
    expect(text.indexOf('10.0.0.8')).toBeLessThan(text.indexOf('10.0.0.7'));
  });

  test('the pages of the table keep the moment, and lead back to the first one', () => {
    const at = viewOf([service(), pod(), endpoints(), slice()]);
    const second = { ...at, from: 100, table: { ...at.table, total: 300 } };
    const now = keepQuery(render(second), new URLSearchParams({ from: '100' }));
    expect(now).toContain('<a rel="prev" href="/services/shop/web">');
    expect(now).toContain('<a rel="next" href="/services/shop/web?from=200">');
    const then = renderService(statusOf({ at: moment }), second);
    const text = 'at=2026-11-21T10:56:46Z';
    expect(then).toContain(`<a rel="prev" href="/services/shop/web?${text}">`);
    expect(then).toContain(`<a rel="next" href="/services/shop/web?from=200&amp;${text}">`);
  });

  test('a Service without pods and endpoints has a text in place of the table', () => {
    const text = wordsIn(render(viewOf([service(), endpoints({ subsets: [] })])));
    expect(text).toContain('It selects no pod, and nothing is listed.');
    expect(text).toContain('No EndpointSlices.');
  });

  test.each(hostileNames)('the name %j adds no tag', (name) => {
    const of = (one: string) => {
      const view = viewOf([service(), pod({ name: one }), endpoints({ subsets: [] })]);
      const standing = [findingOf({ service: one, actual: one })];
      return render({ ...view, status: { ...view.status, standing } });
    };
    expect(tagsIn(of(name))).toEqual(tagsIn(of('we b')));
  });
});

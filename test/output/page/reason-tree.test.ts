import { expect, test } from 'vitest';

import type { Explanation } from '../../../src/audit/explain/explanation.ts';
import { reason } from '../../../src/audit/explain/explanation.ts';
import { renderReasonTree } from '../../../src/output/page/details.ts';
import { hostileNames, moment, tagsIn, wordsIn } from '../samples.ts';

const difference = {
  code: 'endpoints-address-missing',
  address: '10.0.0.9',
  pod: 'shop/web-1',
  field: 'subsets',
  expected: 'ready',
  actual: null,
  object: 'Endpoints shop/web',
} as const;

const explanationOf = (text: string): Explanation => ({
  subject: { kind: 'service', service: 'shop/web' },
  found: true,
  verdict: 'conform',
  severity: null,
  withoutEndpoints: null,
  answer: text,
  change: text,
  commands: [text],
  managed: null,
  reasons: [
    reason('yes', 'type ClusterIP'),
    reason('no', text, {
      object: 'Pod shop/web-1',
      field: 'metadata.labels',
      source: 'utils.go',
      change: 'label it',
      commands: ['kubectl label'],
      managed: 'open a ticket',
      differences: [difference],
      since: moment,
      parts: [reason('note', 'a part')],
    }),
    reason('unknown', 'who knows'),
  ],
});

test('an explanation has its answer first, then the change, then the reasons with signs', () => {
  const text = wordsIn(renderReasonTree(explanationOf('because')).html);
  expect(text).toContain(
    'because → because because Copy ✓ ok: type ClusterIP ' +
      '✗ problem: because, since 2026-11-21 10:56:46 UTC ' +
      'see Pod shop/web-1 metadata.labels; Kubernetes code: utils.go ' +
      '○ missing 10.0.0.9 of pod shop/web-1 ready Endpoints shop/web subsets ' +
      '→ label it kubectl label Copy open a ticket · a part ' +
      '? unknown: who knows',
  );
});

test('the differences of the Service itself are first, and commands in a text are code', () => {
  const others = ['a', 'b', 'c'].map((name) => ({ ...difference, field: `shop/${name}:http` }));
  const own = { ...difference, field: 'shop/web:http' };
  const explanation = explanationOf('Do not use `kubectl delete`');
  const part = reason('no', 'rules', { differences: [...others, own] });
  const { html } = renderReasonTree({
    ...explanation,
    reasons: [reason('no', '', { parts: [part] })],
  });
  expect(html.indexOf('shop/web:http')).toBeGreaterThan(0);
  expect(html.indexOf('shop/web:http')).toBeLessThan(html.indexOf('shop/a:http'));
  expect(html).toContain('Do not use <code>kubectl delete</code>');
});

test.each(hostileNames)('the text %j adds no tag', (name) => {
  const tags = tagsIn(renderReasonTree(explanationOf(name)).html);
  expect(tags).toEqual(tagsIn(renderReasonTree(explanationOf('a')).html));
});

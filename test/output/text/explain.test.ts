// An explanation as text: the verdict first, no line wider than asked, a mark and a word for
// everything, and nothing hidden in hostile names. As JSON: the document as it is.

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import type { Reason } from '../../../src/audit/explain/explanation.ts';
import { reason } from '../../../src/audit/explain/explanation.ts';
import type { ExplainDocument } from '../../../src/output/text/explain.ts';
import { renderExplanation } from '../../../src/output/text/explain.ts';
import { hostileText } from '../samples.ts';

const at = 1_795_258_700;

const document = (more: Partial<ExplainDocument> = {}): ExplainDocument => ({
  format: 1,
  kind: 'explain',
  at,
  begunAt: at - 300,
  subject: { kind: 'service', service: 'shop/web' },
  found: true,
  verdict: 'conform',
  severity: null,
  withoutEndpoints: null,
  answer: 'Service shop/web has endpoints',
  change: null,
  commands: [],
  managed: null,
  reasons: [reason('yes', 'all is well')],
  history: null,
  incidents: [],
  ...more,
});

const plain = { colour: false, width: 80 };
const text = (more: Partial<ExplainDocument> = {}): string =>
  renderExplanation(document(more), 'text', plain);

test('an explanation prints marks, reasons, sources and changes', () => {
  const parts = [reason('note', 'found: nothing')];
  const wrong = reason('no', 'a pod is absent', {
    object: 'Endpoints shop/web',
    field: 'subsets',
    source: 'endpoints_controller.go syncService',
    change: 'delete the object',
    since: at - 60,
    parts,
  });
  const got = text({
    verdict: 'different',
    severity: 'warning',
    change: 'make the pod ready',
    reasons: [wrong, reason('unknown', 'the input has no Nodes')],
    history: [
      { at: at - 60, what: 'endpoints', before: 'conform', after: 'different', lag: null },
      { at, what: 'Endpoints', before: 'absent', after: 'ready', lag: 60 },
    ],
  });
  expect(got).toBe(
    [
      '✗ MISMATCH (WARNING) at 2026-11-21T10:58:20Z: Kubernetes did not write what it should',
      '  Service shop/web has endpoints',
      '  → make the pod ready',
      '',
      '├─ ✗ a pod is absent, since 10:57:20',
      '│  │ see Endpoints shop/web subsets; Kubernetes code: endpoints_controller.go',
      '│  │   syncService',
      '│  │ → delete the object',
      '│  └─ · found: nothing',
      '└─ ? the input has no Nodes',
      '',
      'History',
      ' 10:57:20  endpoints: ok → mismatch',
      ' 10:58:20  Endpoints: absent → ready (60 s after the change)',
      '',
    ].join('\n'),
  );
});

test.each<[string, Partial<ExplainDocument>, string]>([
  ['conform', {}, '✓ OK: the controllers wrote'],
  ['pending', { verdict: 'pending' }, '✗ PENDING: there is a difference'],
  ['unknown', { verdict: 'unknown' }, '? UNKNOWN: the input lacks'],
  ['a fault of the input', { severity: 'warning' }, '✗ INPUT PROBLEM (WARNING): the input'],
  [
    'a Service without endpoints',
    { withoutEndpoints: 'no_ready_pod' },
    '✗ CANNOT RECEIVE TRAFFIC: no ready pod; the controllers wrote what they should',
  ],
  [
    'a mismatch that leaves no endpoints',
    { verdict: 'different', severity: 'critical', withoutEndpoints: 'ready_pods_not_listed' },
    '✗ MISMATCH (CRITICAL), CANNOT RECEIVE TRAFFIC: ready pods not listed; ',
  ],
  ['information', { severity: 'info' }, '✓ OK: the controllers wrote'],
  ['nothing to compare', { verdict: null }, '· NOTHING TO COMPARE: no controller'],
  ['not found', { found: false, verdict: null }, '? NOT FOUND: no known object has this name'],
])('the head of %s', (_, more, want) => {
  expect(text(more).startsWith(want)).toBe(true);
});

test('a dump has no times, and a long history shows its end', () => {
  const reasons = [reason('no', 'it is wrong', { since: at })];
  expect(text({ reasons, begunAt: null })).not.toContain('since');
  const moment = { at, what: 'endpoints', before: 'a', after: 'b', lag: null };
  const got = text({ history: Array.from({ length: 25 }, () => moment) });
  expect(got).toContain('(5 earlier)');
});

test('a difference that the auditor found at its start may be older', () => {
  const since = (moment: number) => text({ reasons: [reason('no', 'bad', { since: moment })] });
  expect(since(at - 300)).toContain('since 10:53:20 or earlier');
  expect(since(at - 299)).toMatch(/since 10:53:21\n/);
});

test('commands are printed below the change on one line each, whatever its length', () => {
  const long = `kubectl -n shop annotate service/web ${'x'.repeat(90)}`;
  const managed = 'On a managed control plane, open a ticket.';
  const remedy = { change: 'sync it', commands: [long, 'kubectl get lease'], managed };
  const got = text({ ...remedy, reasons: [reason('no', 'bad', remedy)] }).split('\n');
  const lines = ['→ sync it', `  ${managed}`, `  ${long}`, '  kubectl get lease'];
  expect(got.slice(2, 6)).toEqual(lines.map((line) => `  ${line}`));
  expect(got.slice(8, 12)).toEqual(lines.map((line) => `     ${line}`));
});

test('differences are printed as audit prints them, without equal parts', () => {
  const at9 = { code: 'slice-endpoint-missing', address: '10.0.0.9', pod: 'shop/web-9' } as const;
  const missing = { ...at9, field: 'endpoints', expected: 'ready, http 80/TCP', actual: null };
  const onSlice = { ...missing, object: 'EndpointSlice shop/web-1' };
  const node = { ...onSlice, code: 'node-endpoint-missing', field: 'outcome' } as const;
  const wrong = { ...onSlice, field: 'zone', expected: 'a', actual: 'b' };
  const object = 'EndpointSlice shop/web-1';
  const elsewhere = { ...onSlice, object: 'EndpointSlice shop/web-2' };
  const differences = [onSlice, wrong, elsewhere, node];
  const got = text({ reasons: [reason('no', 'bad', { object, differences })] });
  expect(got.split('\n').slice(3)).toEqual([
    '└─ ✗ bad',
    '     + 10.0.0.9 (pod shop/web-9): ready, http 80/TCP',
    '     10.0.0.9 (pod shop/web-9) zone:',
    '     - b',
    '     + a',
    '     + outcome, endpoint 10.0.0.9 (pod shop/web-9): ready, http 80/TCP',
    '     EndpointSlice shop/web-2',
    '       + 10.0.0.9 (pod shop/web-9): ready, http 80/TCP',
    '',
    'Lines with - are in the cluster, lines with + are expected.',
    '',
  ]);
});

test('consecutive followed changes are one row for each output', () => {
  const hop = (what: string, from: number, lag: number) => [
    { at: at + from, what, before: 'conform', after: 'pending', lag: null },
    { at: at + from + lag, what, before: 'pending', after: 'conform', lag },
  ];
  const history = [
    { at, what: 'Endpoints', before: null, after: 'conform', lag: null },
    ...hop('Endpoints', 1, 0.25),
    ...hop('EndpointSlices', 2, 0.5),
    ...hop('EndpointSlices', 3, 1),
    { at: at + 9, what: 'Endpoints', before: 'conform', after: 'pending', lag: null },
    { at: at + 40, what: 'Endpoints', before: 'pending', after: 'different', lag: null },
  ];
  expect(text({ history }).split('History\n')[1]?.trimEnd().split('\n')).toEqual([
    ' 10:58:20  Endpoints: ok',
    ' 10:58:21  Endpoints: a change, followed after 250 ms',
    ' 10:58:22  EndpointSlices: 2 changes until 10:58:23, each followed within 1 s',
    ' 10:58:29  Endpoints: ok → pending',
    ' 10:59:00  Endpoints: pending → mismatch',
  ]);
});

test('the meaning of a verdict is about the node or the controllers', () => {
  const subject = { kind: 'node', node: 'node-a', service: 'shop/web', port: null } as const;
  expect(text({ subject })).toContain('OK: the node forwards as the objects require');
  expect(text({ subject, verdict: 'different' })).toContain(
    'the node does not forward as the objects',
  );
  expect(text({ change: 'label the pod' })).toContain('what they should; you can change the rest');
});

test('colour only adds to the marks', () => {
  const coloured = renderExplanation(document(), 'text', { ...plain, colour: true });
  expect(coloured).toContain('\u001b[');
  // oxlint-disable-next-line no-control-regex -- what a terminal takes for colour
  expect(coloured.replace(/\u001b\[\d+m/g, '')).toBe(text());
});

test('the JSON output is the unchanged document', () => {
  expect(JSON.parse(renderExplanation(document(), 'json', plain))).toEqual(document());
});

const reasons: fc.Arbitrary<Reason> = fc.letrec<{ one: Reason }>((tie) => ({
  one: fc
    .record({
      mark: fc.constantFrom('yes' as const, 'no' as const, 'unknown' as const, 'note' as const),
      text: hostileText,
      object: fc.option(hostileText),
      field: fc.option(hostileText),
      change: fc.option(hostileText),
      commands: fc.array(hostileText, { maxLength: 1 }),
      managed: fc.option(hostileText),
      parts: fc.oneof({ maxDepth: 3 }, fc.constant([]), fc.array(tie('one'), { maxLength: 2 })),
    })
    .map(({ mark, text: words, ...more }) => reason(mark, words, more)),
})).one;

describe('hostile names', () => {
  const hostile = fc
    .record({ answer: hostileText, change: fc.option(hostileText), reasons: fc.array(reasons) })
    .map((more) => document(more));
  const hidden = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/u;

  test('hide nothing in text or JSON', () => {
    fc.assert(
      fc.property(hostile, (one) => {
        for (const format of ['text', 'json'] as const) {
          const got = renderExplanation(one, format, plain);
          expect(hidden.test(got.replaceAll('\n', ''))).toBe(false);
        }
      }),
    );
  });

  test('lines fit the width where words do', () => {
    const words = fc.array(fc.stringMatching(/^[a-z]{1,12}$/), { maxLength: 60 });
    fc.assert(
      fc.property(words, fc.integer({ min: 60, max: 140 }), (list, width) => {
        const one = document({ reasons: [reason('no', list.join(' '), { field: 'spec' })] });
        const lines = renderExplanation(one, 'text', { colour: false, width }).split('\n');
        for (const line of lines.slice(1)) expect(line.length).toBeLessThanOrEqual(width);
      }),
    );
  });
});

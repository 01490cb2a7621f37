import { describe, expect, test } from 'vitest';

import type { NodeView } from '../../../src/auditor/explanations.ts';
import { renderNode } from '../../../src/output/page/details.ts';
import { renderNodes } from '../../../src/output/page/lists.ts';
import { findingOf, hostileNames, stateOf, statusOf, tagsIn, wordsIn } from '../samples.ts';

const countsOf = (node: string, different: number) => ({
  node,
  conform: 5,
  pending: 0,
  different,
  unknown: 0,
});

const statusWith = (...nodes: ReturnType<typeof countsOf>[]) => {
  const state = stateOf();
  return statusOf({ metrics: { ...state, summary: { ...state.summary, nodes } } });
};

const viewOf = (more: Partial<NodeView> = {}): NodeView => ({
  node: 'node-a',
  facts: ['Ready', 'zone z1'],
  verdicts: [
    { port: 'shop/web:http TCP IPv4', namespace: 'shop', verdict: 'conform', reason: null },
    { port: 'shop/api TCP IPv4', namespace: 'shop', verdict: 'different', reason: null },
  ],
  standing: [],
  resolved: [],
  walked: null,
  asked: null,
  ...more,
});

describe('the list of nodes', () => {
  test('lists nodes that do not conform first, and finds nodes by name', () => {
    const status = statusWith(countsOf('a', 0), countsOf('b', 2));
    const names = (html: string) =>
      [...html.matchAll(/href="\/nodes\/(\w)"/g)].map(([, one]) => one);
    expect(names(renderNodes(status, ''))).toEqual(['b', 'a']);
    expect(names(renderNodes(status, 'A'))).toEqual(['a']);
    expect(wordsIn(renderNodes(status, 'zzz'))).toContain('None of that name.');
    expect(wordsIn(renderNodes(statusWith(), ''))).toContain('No node’s rules are known');
  });

  test.each([
    [null, '', 'Nodes 2 What'],
    [2, '', 'Nodes 2 What'],
    [12, '', 'Nodes 2 of 12, with rules known What'],
    [12, 'a', 'Nodes 1 What'],
  ])('of %s nodes, those with %j are counted as %s', (clusterNodes, query, want) => {
    const status = { ...statusWith(countsOf('a', 0), countsOf('b', 2)), clusterNodes };
    expect(wordsIn(renderNodes(status, query))).toContain(want);
  });
});

describe('the page of a node', () => {
  test('shows the facts of the node, and its differences first', () => {
    const html = renderNode(statusOf(), viewOf());
    const text = wordsIn(html);
    expect(text).toContain('node-a Ready · zone z1');
    expect(text).toContain('1 different, 1 conform');
    expect(text).toContain('Nothing: packets fare as they must.');
    expect(text.indexOf('shop/api TCP')).toBeLessThan(text.indexOf('shop/web:http'));
    expect(html).toContain('href="/nodes/node-a?port=shop%2Fweb%3Ahttp"');
    expect(html).toContain('href="/services/shop/api"');
  });

  test('a node with unknown rules is not shown as conform', () => {
    const unknown = { port: '', namespace: '', verdict: 'unknown', reason: 'rules-not-known' };
    const text = wordsIn(renderNode(statusOf(), viewOf({ verdicts: [unknown as never] })));
    expect(text).toContain('rules-not-known');
    expect(text).toContain('It is not known.');
    expect(wordsIn(renderNode(statusOf(), viewOf({ verdicts: null })))).toContain(
      'nothing is told of its rules',
    );
  });

  test('a traced packet has the rules that it met', () => {
    const walked = [
      {
        kind: 'cluster IP' as const,
        frontend: '10.96.0.1:80/tcp',
        origin: 'a pod of the node',
        verdict: 'different' as const,
        expected: '10.0.0.1:80',
        actual: 'drop 100%',
        wanted: [],
        allowed: [],
        got: [],
        rules: ['-A FORWARD -j DROP', '-A OTHER'],
        unknown: [],
      },
    ];
    const html = renderNode(statusOf(), viewOf({ asked: 'shop/web:http', walked }));
    expect(wordsIn(html)).toContain(
      'Packets to shop/web:http walked through the rules that stand ✗ different ' +
        '10.96.0.1:80/tcp from a pod of the node expected 10.0.0.1:80 found drop 100% ' +
        'Rules met -A FORWARD -j DROP -A OTHER',
    );
  });

  test.each(hostileNames)('the name %j adds no tag', (name) => {
    const of = (one: string) =>
      renderNode(
        statusWith(countsOf(one, 1)),
        viewOf({ node: one, facts: [one], standing: [findingOf({ node: one })], asked: one }),
      );
    expect(tagsIn(of(name))).toEqual(tagsIn(of('web')));
  });
});

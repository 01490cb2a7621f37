import { describe, expect, test } from 'vitest';

import { unknownText } from '../../../src/audit/finding/verdicts.ts';
import type { NodeView } from '../../../src/auditor/explanations.ts';
import { renderNode } from '../../../src/output/page/details.ts';
import { type NodeQuery, renderNodes } from '../../../src/output/page/lists.ts';
import { findingOf, hostileNames, stateOf, statusOf, tagsIn, wordsIn } from '../samples.ts';

const nothing: NodeQuery = { q: '', sort: '', page: 1 };

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
    expect(names(renderNodes(status, nothing))).toEqual(['b', 'a']);
    expect(names(renderNodes(status, { ...nothing, sort: 'name' }))).toEqual(['a', 'b']);
    expect(names(renderNodes(status, { ...nothing, q: 'A' }))).toEqual(['a']);
    expect(wordsIn(renderNodes(status, { ...nothing, q: 'zzz' }))).toContain('None of that name.');
    expect(wordsIn(renderNodes(statusWith(), nothing))).toContain('No rules have been read');
  });

  test.each([
    [null, '', 'Nodes 2 Whether'],
    [2, '', 'Nodes 2 Whether'],
    [12, '', 'Nodes 2 of 12, with known rules Whether'],
    [12, 'a', 'Nodes 1 Whether'],
  ])('of %s nodes, those with %j are counted as %s', (clusterNodes, query, want) => {
    const status = { ...statusWith(countsOf('a', 0), countsOf('b', 2)), clusterNodes };
    expect(wordsIn(renderNodes(status, { ...nothing, q: query }))).toContain(want);
  });
});

describe('the page of a node', () => {
  test('shows the facts of the node, and its differences first', () => {
    const html = renderNode(statusOf(), viewOf());
    const text = wordsIn(html);
    expect(text).toContain('node-a Ready · zone z1');
    expect(text).toContain('1 mismatch, 1 ok');
    expect(text).toContain('None, but not every Service port is known to be ok.');
    expect(text.indexOf('shop/api TCP')).toBeLessThan(text.indexOf('shop/web:http'));
    expect(html).toContain('href="/nodes/node-a?port=shop%2Fweb%3Ahttp"');
    expect(html).toContain('href="/services/shop/api"');
  });

  test('a node whose ports are ok has no findings', () => {
    const port = { port: 'shop/web:http TCP IPv4', namespace: 'shop', reason: null };
    const text = wordsIn(
      renderNode(statusOf(), viewOf({ verdicts: [{ ...port, verdict: 'conform' }] })),
    );
    expect(text).toContain('None: packets are forwarded as they should be.');
  });

  test('a node with unknown rules is not shown as conform', () => {
    const unknown = { port: '', namespace: '', verdict: 'unknown', reason: 'rules-not-known' };
    const text = wordsIn(renderNode(statusOf(), viewOf({ verdicts: [unknown as never] })));
    expect(text).toContain(unknownText['rules-not-known']);
    expect(text).not.toContain('None:');
    const html = renderNode(statusOf(), viewOf({ verdicts: null }));
    expect(wordsIn(html)).toContain(
      'No rules have been read from this node. Run the agent or pass --rules NODE=FILE',
    );
    expect(html).toContain('(<a href="/docs/nodes.md">how</a>)');
  });

  test('a node that another shard audits is not said to lack an agent', () => {
    const status = { ...statusOf(), shard: '0/2' };
    const text = wordsIn(renderNode(status, viewOf({ verdicts: null })));
    expect(text).toContain(
      'Shard 0/2 has read no rules from this node. Another shard may audit it.',
    );
    expect(text).not.toContain('Run the agent');
  });

  const packet = {
    kind: 'cluster IP' as const,
    frontend: '10.96.0.1:80/tcp',
    origin: 'a pod of the node',
    verdict: 'different' as const,
    expected: 'one of 10.0.0.1:80, 10.0.0.2:80',
    actual: '10.0.0.1:80 100%',
    wanted: ['10.0.0.1:80', '10.0.0.2:80'],
    allowed: ['10.0.0.1:80', '10.0.0.2:80'],
    got: ['10.0.0.1:80'],
    rules: ['-A FORWARD -j DROP', '-A OTHER'],
    differences: [],
    unknown: [],
  };
  const textOf = (walked: NodeView['walked']) =>
    wordsIn(renderNode(statusOf(), viewOf({ asked: 'shop/web:http', walked })));

  test('packets show the missing endpoints before the equal ones, and the rules', () => {
    const wrong = ['it never reaches 10.0.0.2:80 (Pod shop/web-2)'];
    expect(textOf([{ first: packet, wrong, origins: ['a pod of the node'] }])).toContain(
      'Packets to shop/web:http evaluated with the rules of the node ✗ mismatch ' +
        '10.96.0.1:80/tcp (cluster IP) from a pod of the node ' +
        'It never reaches 10.0.0.2:80 (Pod shop/web-2). ' +
        '○ missing 10.0.0.2:80 = as expected 10.0.0.1:80 Rules met -A FORWARD -j DROP -A OTHER',
    );
  });

  test('without an endpoint that is reached, both outcomes are shown', () => {
    const first = { ...packet, expected: '10.0.0.1:80', actual: 'untranslated 100%', got: [] };
    expect(textOf([{ first, wrong: [], origins: ['outside the cluster'] }])).toContain(
      'expected 10.0.0.1:80 found untranslated 100%',
    );
  });

  test('a port that only some senders cannot reach says which can', () => {
    const good = { ...packet, verdict: 'conform' as const };
    const text = textOf([
      { first: packet, wrong: [], origins: ['the node itself'] },
      { first: good, wrong: [], origins: ['a pod of the node', 'outside the cluster'] },
    ]);
    expect(text).toContain(
      'Mismatch only from node-a itself. From a pod of the node, outside the cluster it is ok.',
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

// Queries about one Service and one node, on the recording that comes with the program.

import { createReadStream } from 'node:fs';
import { fileURLToPath } from 'node:url';

import { beforeAll, describe, expect, test } from 'vitest';

import type { Auditor } from '../../src/auditor/auditor.ts';
import { createAuditor } from '../../src/auditor/auditor.ts';
import { nodeView, verdictInput } from '../../src/auditor/explanations.ts';
import { createQueries } from '../../src/auditor/queries.ts';
import { readRecording } from '../../src/cluster/files/recording.ts';
import { auditorDefaults } from '../build.ts';

const path = fileURLToPath(new URL('../recordings/shop.ndjson.gz', import.meta.url));
let auditor: Auditor = createAuditor(auditorDefaults);

beforeAll(async () => {
  auditor = createAuditor(auditorDefaults);
  const source = { name: path, bytes: createReadStream(path) };
  for await (const entry of readRecording(source, () => undefined)) auditor.take(entry);
});

describe('a Service', () => {
  test('has a page with its table, explanation, nodes and lag', () => {
    const view = createQueries(auditor, path).servicePage('shop', 'search', 0);
    expect(view?.table).toMatchObject({ total: 6, differing: 0 });
    expect(view?.explanation.answer).toContain('Service shop/search has endpoints');
    expect(view?.nodes?.map(({ node, verdict }) => `${node} ${verdict}`)).toEqual([
      'node-b conform',
      'node-c different',
      'node-d conform',
    ]);
    expect(view?.status).toMatchObject({
      nodes: { conform: 2, pending: 0, different: 1, unknown: 0 },
      notConform: [{ node: 'node-c', verdict: 'different', reason: null }],
    });
    expect(view?.nodes?.find(({ node }) => node === 'node-c')?.walked.length).toBeGreaterThan(0);
    expect(view?.lag.some(({ seconds }) => seconds > 50)).toBe(true);
  });

  test('every existing Service has a page, other names have none', () => {
    const answers = createQueries(auditor, path);
    const services = [...answers.services()];
    expect(services.length).toBe(auditor.store.listers.services.size);
    for (const { namespace, name } of services) {
      expect(answers.servicePage(namespace, name, 0)).not.toBeNull();
    }
    expect(answers.servicePage('shop', 'nobody', 0)).toBeNull();
  });
});

describe('a node', () => {
  test('has a page with its verdicts, findings and the packets of a port', () => {
    const view = nodeView(auditor, 'node-c', 'shop/checkout:http');
    expect(view?.facts).toContain('zone eu-1c');
    expect(view?.verdicts?.length).toBeGreaterThan(10);
    expect(view?.standing.every(({ node }) => node === 'node-c')).toBe(true);
    expect(view?.standing.length).toBeGreaterThan(0);
    expect(view?.walked?.some(({ verdict }) => verdict === 'different')).toBe(true);
  });

  test('a node without known rules has a page, an unknown name has none', () => {
    expect(nodeView(auditor, 'node-a', null)?.verdicts).toBeNull();
    expect(nodeView(auditor, 'node-zzz', null)).toBeNull();
  });
});

test('the revision changes with the input only', () => {
  const fresh = createAuditor(auditorDefaults);
  const answers = createQueries(fresh, path);
  const before = answers.beat().revision;
  expect(answers.beat().revision).toBe(before);
  fresh.take({ kind: 'header', at: 5, kubernetes: 'v1.36.3', resources: [] });
  expect(answers.beat()).toMatchObject({ now: 5 });
  expect(answers.beat().revision).not.toBe(before);
});

test('an explanation uses the present state of the store', () => {
  expect(verdictInput(auditor)).toMatchObject({
    listers: auditor.store.listers,
    release: auditor.released().release,
    maxEndpointsPerSlice: 100,
  });
});

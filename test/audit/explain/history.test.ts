// The history of a target: changes of the pod, of its desired state and of its entries, and lags.

import { expect, test } from 'vitest';

import { createTargetHistory } from '../../../src/audit/explain/history.ts';
import { createPendingFindings } from '../../../src/audit/pending/pending.ts';
import { createServiceAuditor } from '../../../src/audit/service/auditor.ts';
import type { AnyObject, WatchEvent } from '../../../src/model/objects.ts';
import { runToEnd } from '../../../src/model/run-to-end.ts';
import {
  address,
  contextOf,
  endpoint,
  endpoints,
  event,
  node,
  pod,
  service,
  slice,
  storeOf,
  subset,
  times,
} from '../../build.ts';

/** Follows a target from a conform state through changes, each with its time. */
function follow(
  subject: Parameters<typeof createTargetHistory>[0],
  changes: readonly [number, WatchEvent['type'], AnyObject][],
) {
  const store = storeOf([service(), node(), pod(), endpoints(), slice()]);
  const context = contextOf(store);
  const serviceAuditor = createServiceAuditor({
    context,
    settle: createPendingFindings({ window: 1000, keep: 1 }),
  });
  runToEnd(serviceAuditor.begin(0));
  const journal = createTargetHistory(subject);
  journal.observe(context, serviceAuditor, null, 0);
  for (const [at, type, object] of changes) {
    const happened = event(type, object, at);
    const change = store.apply(happened);
    if (change !== null) serviceAuditor.apply(change);
    journal.observe(context, serviceAuditor, happened, at);
  }
  return journal.entries;
}

const lines = (moments: ReturnType<typeof follow>): string[] =>
  moments
    .filter(({ before }) => before !== null)
    .map(({ at, what, after, lag }) => `${at} ${what}: ${after} ${String(lag)}`);

const pair: Parameters<typeof createTargetHistory>[0] = {
  kind: 'pair',
  pod: 'shop/web-1',
  service: 'shop/web',
};
const notReady = subset([address({ ready: false })]);
const unready = endpoint({ ready: false, serving: false });

test('each place that follows a change has its lag', () => {
  const moments = follow(pair, [
    [10, 'modified', pod({ ready: false })],
    [11, 'modified', endpoints({ subsets: [notReady] })],
    [15, 'modified', slice({ endpoints: [unready] })],
  ]);
  expect(lines(moments)).toEqual([
    '10 Pod shop/web-1: not Ready, on node-a, 10.0.0.1 null',
    '10 Service shop/web, Endpoints expected: listed as not ready null',
    '10 Service shop/web, IPv4 EndpointSlices expected: listed as not ready null',
    '11 Service shop/web, Endpoints: listed as not ready 1',
    '15 Service shop/web, IPv4 EndpointSlices: listed as not ready 5',
  ]);
});

test('a deleted pod is followed until its entries are gone', () => {
  const moments = follow({ kind: 'pod', pod: 'shop/web-1' }, [
    [10, 'deleted', pod()],
    [12, 'modified', slice({ endpoints: [], ports: [] })],
  ]);
  expect(lines(moments)).toContain('10 Pod shop/web-1: gone null');
  expect(lines(moments)).toContain('12 Service shop/web, IPv4 EndpointSlices: absent 2');
});

test('a Service has its verdicts as history, an address its pods', () => {
  const changes: [number, WatchEvent['type'], AnyObject][] = [[10, 'deleted', pod()]];
  const ofService = follow({ kind: 'service', service: 'shop/web' }, changes);
  expect(lines(ofService)).toContain('10 Endpoints: pending null');
  const ofAddress = follow({ kind: 'address', address: '10.0.0.1' }, changes);
  expect(lines(ofAddress)).toEqual(['10 pods with the address: none null']);
});

test('a deleted Service ends the history', () => {
  const changes: [number, WatchEvent['type'], AnyObject][] = [[10, 'deleted', service()]];
  expect(lines(follow(pair, changes))).toEqual(
    ['Endpoints', 'IPv4 EndpointSlices'].map(
      (place) =>
        `10 Service shop/web, ${place}: the Service does not exist, or no longer selects it null`,
    ),
  );
  const ofService = lines(follow({ kind: 'service', service: 'shop/web' }, changes));
  expect(ofService[0]).toBe('10 Service shop/web: gone null');
});

test('events of other namespaces are ignored, and at most 1,000 entries are kept', () => {
  const elsewhere = pod({ namespace: 'bank', name: 'x' });
  expect(lines(follow({ kind: 'pod', pod: 'shop/web-1' }, [[1, 'added', elsewhere]]))).toEqual([]);
  const flaps = times(400, (at): [number, WatchEvent['type'], AnyObject] => [
    at,
    'modified',
    pod({ ready: at % 2 === 0 }),
  ]);
  expect(follow(pair, flaps)).toHaveLength(1000);
});

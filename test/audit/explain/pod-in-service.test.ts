// One pod and one Service: the sentence that answers whether the pod is in the Service.

import { expect, test } from 'vitest';

import type { PairExplanation } from '../../../src/audit/explain/pod-in-service.ts';
import { explainPair } from '../../../src/audit/explain/pod-in-service.ts';
import type { AnyObject } from '../../../src/model/objects.ts';
import { auditService, endpoint, endpoints, node, pod, service, slice } from '../../build.ts';

function pairOf(objects: readonly AnyObject[]): PairExplanation {
  const { context, serviceAuditor } = auditService(objects);
  serviceAuditor.settle.advance(1000);
  const of = serviceAuditor.audited.get('shop/web');
  const one = context.listers.pods.get('shop/web-1');
  const got = of === undefined || one === undefined ? null : explainPair(context, of, one);
  if (got === null) throw new Error('Nothing to explain');
  return got;
}

const bare = slice({ endpoints: [], ports: [] });
const empty = [endpoints({ subsets: [] }), bare];

test.each([
  [
    'in it',
    [pod(), endpoints(), slice()],
    'Pod shop/web-1 is in Service shop/web and receives its traffic',
  ],
  [
    'another label',
    [pod({ labels: { app: 'wep' } }), ...empty],
    'Pod shop/web-1 is not in Service shop/web: label app is "wep", the selector wants "web"',
  ],
  [
    'two reasons',
    [pod({ labels: {}, ready: false }), ...empty],
    'Pod shop/web-1 is not in Service shop/web: there is no label app, the selector wants ' +
      'app="web"; 1 more condition fails',
  ],
  [
    'missing in the slices',
    [pod(), endpoints(), bare],
    'Pod shop/web-1 should be ready in Service shop/web. But: IPv4 EndpointSlices do not list it',
  ],
  [
    'shown ready though it is not',
    [pod({ ready: false }), endpoints(), slice()],
    'Pod shop/web-1 should be listed as not ready in Service shop/web: its condition Ready is ' +
      'not True, so it must not receive traffic. But: in Endpoints it is ready and in IPv4 ' +
      'EndpointSlices it is ready',
  ],
  [
    'only its node is wrong',
    [pod(), endpoints(), slice({ endpoints: [endpoint({ node: 'node-z' })] })],
    'Pod shop/web-1 should be ready in Service shop/web. But: An endpoint names another pod, ' +
      'node, zone or hostname: 10.0.0.1 of pod web-1: nodeName node-z',
  ],
])('%s', (_, objects, want) => {
  const got = pairOf([service(), node(), ...objects]);
  expect(got.answer).toBe(want);
});

// An address is explained by its pods, and by what lists it for another reason.

import { describe, expect, test } from 'vitest';

import { explain } from '../../../src/audit/explain/explain.ts';
import type { Explanation, ExplainTarget } from '../../../src/audit/explain/explanation.ts';
import { type AnyObject, label } from '../../../src/model/objects.ts';
import {
  auditService,
  endpoint,
  endpoints,
  foreign,
  node,
  owner,
  pod,
  service,
  slice,
  sliceLabels,
  target,
  times,
} from '../../build.ts';

function ask(subject: ExplainTarget, objects: readonly AnyObject[]): Explanation {
  const { context, serviceAuditor } = auditService([service(), node(), ...objects]);
  serviceAuditor.settle.advance(1000);
  return explain(context, serviceAuditor, subject);
}

const aPod: ExplainTarget = { kind: 'pod', pod: 'shop/web-1' };
const anAddress = (address: string): ExplainTarget => ({ kind: 'address', address });
const right = [pod(), endpoints(), slice()];
const empty = [endpoints({ subsets: [] }), slice({ endpoints: [], ports: [] })];

describe('an address', () => {
  const sixth = service({ name: 'six', uid: 'six', ipFamilies: ['IPv6'], clusterIP: 'fd00::a' });
  const dual = pod({ ips: ['10.0.0.1', 'fd00::1'] });
  test.each([
    ['of a pod that its Service does not list', [pod(), ...empty], '10.0.0.1'],
    ['of IPv6', [dual, endpoints(), slice(), sixth], 'fd00::1'],
    ['of a pod that is not ready', [pod({ ready: false }), ...empty], '10.0.0.1'],
    ['of a pod that all is well with', right, '10.0.0.1'],
    ['of a pod of no Service', [pod({ labels: { app: 'wep' } }), ...empty], '10.0.0.1'],
  ])('%s has the verdict, severity and answer of the pod', (_, objects, ip) => {
    const [of, it] = [ask(aPod, objects), ask(anAddress(ip), objects)];
    expect(it).toMatchObject({ verdict: of.verdict, severity: of.severity, change: of.change });
    expect(it.answer).toContain(of.answer);
  });

  test('of the host network has the worst verdict of its pods', () => {
    const shared = { hostNetwork: true, ips: ['192.168.0.1'] };
    const agents = times(3, (index) =>
      pod({ ...shared, name: `agent-${index}`, labels: {}, uid: `agent-${index}` }),
    );
    const got = ask(anAddress('192.168.0.1'), [...agents, pod(shared), ...empty]);
    expect(got).toMatchObject({ verdict: 'different', severity: 'warning' });
    expect(got.answer).toContain('4 pods have the address 192.168.0.1');
    expect(got.answer).toContain('Pod shop/web-1 should be ready in Service shop/web');
  });

  test('of a finished pod and its successor is explained by the successor', () => {
    const done = pod({ name: 'web-0', uid: 'done', terminal: true, ready: false });
    const got = ask(anAddress('10.0.0.1'), [done, pod(), endpoints(), slice()]);
    expect(got).toMatchObject({ verdict: 'conform', severity: null });
    expect(got.answer).toContain('Pod shop/web-1 is in Service shop/web');
  });

  test('that only another manager lists is no difference', () => {
    const other = foreign({ endpoints: [endpoint({ addresses: ['10.7.7.7'], target: null })] });
    const got = ask(anAddress('10.7.7.7'), [...right, other]);
    expect(got).toMatchObject({ found: true, verdict: 'conform', severity: null });
    expect(got.answer).toContain('no pod has the address 10.7.7.7');
    expect(got.answer).toContain('Service shop/web');
  });

  test.each([
    ['10.0.0.1', 'info', 'of a living pod'],
    ['10.0.0.9', 'warning', 'of no pod'],
  ])('%s of a Service that lost its selector is %s, because it is %s', (ip, severity) => {
    const old = service({ name: 'old', uid: 'old', selector: null });
    const left = slice({
      name: 'old-1',
      labels: { ...sliceLabels, [label.serviceName]: 'old' },
      owners: [owner({ name: 'old', uid: 'old' })],
      endpoints: [endpoint(), endpoint({ addresses: ['10.0.0.9'], target: target('gone') })],
    });
    const objects = [...right, old, left];
    expect(ask(anAddress(ip), objects).severity).toBe(severity);
    expect(ask(aPod, objects).severity).toBe('info');
  });

  test('of any kind that a Service has is named', () => {
    const front = service({
      name: 'front',
      uid: 'front',
      clusterIP: '10.96.0.7',
      clusterIPs: ['10.96.0.7', 'fd00::7'],
      externalIPs: ['203.0.113.7'],
    });
    for (const ip of ['10.96.0.7', 'fd00::7', '203.0.113.7']) {
      expect(ask(anAddress(ip), [...right, front]).answer).toContain('Service shop/front');
    }
    expect(
      ask(anAddress('192.168.0.9'), [...right, node({ name: 'b', addresses: ['192.168.0.9'] })])
        .answer,
    ).toContain('Node b');
  });
});

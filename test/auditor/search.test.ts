import { expect, test } from 'vitest';

import { createAuditor } from '../../src/auditor/auditor.ts';
import { podView, search } from '../../src/auditor/search.ts';
import { type AnyObject, resources } from '../../src/model/objects.ts';
import { auditorDefaults, endpoints, event, node, pod, service, slice, times } from '../build.ts';

const objects = [
  node({ name: 'node-a', addresses: ['192.0.2.1'] }),
  service({ clusterIP: '10.96.0.1', clusterIPs: ['10.96.0.1'] }),
  service({
    name: 'web-admin',
    clusterIP: '10.96.0.2',
    clusterIPs: ['10.96.0.2'],
    selector: { app: 'other' },
  }),
  pod(),
  endpoints(),
  slice(),
];

function auditorWith(all: readonly AnyObject[]) {
  const auditor = createAuditor(auditorDefaults);
  auditor.take({ kind: 'header', at: 1, kubernetes: 'v1.36.3', resources });
  for (const object of all) auditor.take({ kind: 'event', event: event('added', object, 1) });
  for (const resource of resources) auditor.take({ kind: 'synced', resource, at: 1 });
  auditor.take({ kind: 'clock', at: 100 });
  return auditor;
}

const auditor = auditorWith(objects);
const [address = ''] = pod().ips;

const found = (query: string): string[] =>
  search(auditor, query).matches.map(
    ({ kind, key, exact }) => `${kind} ${key}${exact ? ' !' : ''}`,
  );

test.each([
  ['web', ['Service shop/web !', 'Service shop/web-admin', 'Pod shop/web-1']],
  ['shop/web', ['Service shop/web !', 'Service shop/web-admin', 'Pod shop/web-1']],
  ['svc/web-admin', ['Service shop/web-admin !']],
  ['SHOP admin', ['Service shop/web-admin']],
  ['node-a', ['Node node-a !']],
  [address, ['Pod shop/web-1 !']],
  ['ip/10.96.0.1', ['Service shop/web !']],
  ['192.0.2.1', ['Node node-a !']],
  ['10.9.9.9', []],
  ['nothing-like-it', []],
  [' ', []],
])('%j finds its objects, the exact ones first', (query, want) => {
  expect(found(query)).toEqual(want);
});

test('an address that something has is explained', () => {
  expect(search(auditor, address).explanation?.answer).toContain(address);
  expect(search(auditor, '10.9.9.9').explanation).toBeNull();
});

test('at most fifty matches are listed, and an exact one is among them', () => {
  const many = times(200, (index) => pod({ name: `api-${index}`, ips: [`10.1.0.${index}`] }));
  const { matches, total } = search(auditorWith([node(), ...many, pod({ name: 'pi' })]), 'pi');
  expect([matches.length, total]).toEqual([50, 201]);
  expect(matches[0]).toEqual({ kind: 'Pod', key: 'shop/pi', exact: true });
});

test('a pod has its Services and its explanation; an unknown one has no page', () => {
  const view = podView(auditor, 'shop/web-1');
  expect(view).toMatchObject({ namespace: 'shop', name: 'web-1', services: ['shop/web'] });
  expect(view?.explanation.answer).toContain('web-1');
  expect(podView(auditor, 'shop/none')).toBeNull();
});

// How a pod must stand at each place, against the shadows themselves.

import { expect, test } from 'vitest';

import type { PodAndService } from '../../../src/audit/explain/condition.ts';
import { expectedEntries } from '../../../src/audit/explain/condition.ts';
import { newestRelease } from '../../../src/shadow/release.ts';
import { containerPort, node, pod, service, servicePort } from '../../build.ts';

const at = (pair: Partial<PodAndService>): string =>
  expectedEntries({ service: service(), pod: pod(), node: node(), ...pair }, newestRelease)
    .map(({ place, state: standing }) => `${place} ${standing}`)
    .join(', ');

const dual = service({ ipFamilies: ['IPv4', 'IPv6'] });
const named = service({ ports: [servicePort({ targetPort: 'http' })] });
const two = service({
  ports: [servicePort({ targetPort: 'http' }), servicePort({ name: 'x', targetPort: 'x' })],
});
const ports = [containerPort('http', 8080)];

test.each([
  ['a ready pod', {}, 'endpoints ready, IPv4 ready'],
  ['another label', { pod: pod({ labels: {} }) }, 'endpoints absent, IPv4 absent'],
  ['another namespace', { pod: pod({ namespace: 'bank' }) }, 'endpoints absent, IPv4 absent'],
  ['not ready', { pod: pod({ ready: false }) }, 'endpoints not-ready, IPv4 not-ready'],
  ['being deleted', { pod: pod({ deleting: true }) }, 'endpoints absent, IPv4 not-ready'],
  ['no Node', { node: null }, 'endpoints ready, IPv4 absent'],
  ['Nodes not known', { node: undefined }, 'endpoints ready, IPv4 ready'],
  ['one family of two', { service: dual }, 'endpoints ready, IPv4 ready, IPv6 absent'],
  ['no port of the name', { service: named }, 'endpoints absent, IPv4 no-ports'],
  [
    'one port of two',
    { service: two, pod: pod({ ports }) },
    'endpoints fewer-ports, IPv4 fewer-ports',
  ],
  ['an alias', { service: service({ type: 'ExternalName' }) }, 'endpoints absent, IPv4 absent'],
])('%s', (_, pair, want) => {
  expect(at(pair)).toBe(want);
});

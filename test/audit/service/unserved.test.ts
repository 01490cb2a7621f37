// Services that cannot receive traffic, each with its reason, and those that can or need none.

import { describe, expect, test } from 'vitest';

import { unservedReason, unservedReasons } from '../../../src/audit/service/unserved.ts';
import { resources } from '../../../src/model/objects.ts';
import type { AnyObject, Resource } from '../../../src/model/objects.ts';
import {
  auditService,
  containerPort,
  endpoint,
  endpoints,
  foreign,
  mirror,
  node,
  pod,
  port,
  service,
  servicePort,
  slice,
} from '../../build.ts';

function reasonFor(
  objects: readonly AnyObject[],
  known: readonly Resource[] = resources,
): string | null {
  const { context, serviceAuditor } = auditService(objects, {}, known);
  const audited = serviceAuditor.audited.get('shop/web');
  if (audited === undefined) throw new Error('Nothing audited');
  return unservedReason(context, audited);
}

const none = slice({ endpoints: [], ports: [] });
const notReady = slice({ endpoints: [endpoint({ ready: false, serving: false })] });
const named = service({ ports: [servicePort({ targetPort: 'http' })] });
const own = service({ selector: null });
const headless = service({ clusterIP: 'None' });
const leaving = endpoint({ ready: false, serving: true, terminating: true });

const reasons: readonly [string, readonly AnyObject[], string][] = [
  ['no pod has the labels', [service(), none], 'selector_matches_nothing'],
  ['a pod has other labels', [service(), pod({ labels: {} }), none], 'selector_matches_nothing'],
  ['no pod is ready', [service(), pod({ ready: false }), notReady], 'no_ready_pod'],
  ['the pod has no address', [service(), pod({ ips: [], ready: false }), none], 'no_ready_pod'],
  [
    'every pod is terminating',
    [service(), pod({ ready: false, deleting: true }), none],
    'all_pods_terminating',
  ],
  ['every pod has finished', [service(), pod({ terminal: true }), none], 'all_pods_finished'],
  [
    'the named port is missing',
    [named, pod({ ports: [containerPort('web', 8080)] }), slice({ ports: [] })],
    'named_port_missing',
  ],
  ['the IP family is missing', [service(), pod({ ips: ['fd00::1'] }), none], 'ip_family_missing'],
  ['the Node is missing', [service(), pod({ node: 'gone' }), none], 'node_missing'],
  ['no slice lists ready pods', [service(), pod(), none], 'ready_pods_not_listed'],
  ['the Service has no ports', [service({ ports: [] }), pod(), none], 'no_service_ports'],
  ['no client writes endpoints', [own], 'no_selector_no_endpoints'],
  [
    'mirrored endpoints are not ready',
    [own, mirror({ endpoints: [] })],
    'no_selector_no_endpoints',
  ],
  [
    'the port of another client has another name',
    [own, foreign({ ports: [port({ name: 'web' })] })],
    'no_selector_no_endpoints',
  ],
  [
    'the port of another client has another protocol',
    [own, foreign({ ports: [port({ protocol: 'UDP' })] })],
    'no_selector_no_endpoints',
  ],
  [
    'the addresses of another client are of another family',
    [own, foreign({ addressType: 'IPv6', endpoints: [endpoint({ addresses: ['fd00::1'] })] })],
    'no_selector_no_endpoints',
  ],
  [
    'a port has been renamed since',
    [service({ ports: [servicePort({ name: 'web' })] }), pod(), slice()],
    'ready_pods_not_listed',
  ],
  ['a headless Service has no pod', [headless, none], 'selector_matches_nothing'],
  [
    'no slice lists ready pods of a headless Service, which name no such port',
    [
      service({ clusterIP: 'None', ports: [servicePort({ targetPort: 'http' })] }),
      pod({ ports: [containerPort('web', 8080)] }),
      none,
    ],
    'ready_pods_not_listed',
  ],
  [
    'a headless Service has terminating pods only',
    [headless, pod({ deleting: true }), slice({ endpoints: [leaving] })],
    'all_pods_terminating',
  ],
];

test.each(reasons)('%s', (_, objects, reason) => {
  expect(reasonFor([node(), ...objects])).toBe(reason);
});

test('every reason occurs in the table', () => {
  expect(new Set(reasons.map(([, , reason]) => reason))).toEqual(new Set(unservedReasons));
});

describe('a Service is not reported', () => {
  test.each<[string, readonly AnyObject[]]>([
    ['with a ready endpoint', [service(), pod(), endpoints(), slice()]],
    ['with one ready pod of two', [service(), pod(), pod({ name: 'b', ready: false }), slice()]],
    ['of type ExternalName', [service({ type: 'ExternalName' })]],
    [
      'of type ExternalName with a selector that matches nothing',
      [service({ type: 'ExternalName', clusterIP: '' })],
    ],
    ['that is headless without a selector', [service({ selector: null, clusterIP: 'None' })]],
    ['that is being deleted', [service({ deleting: true }), none]],
    ['whose endpoints another client writes', [own, foreign()]],
    [
      'whose port has no name, which is any to Cilium',
      [service({ selector: null, ports: [servicePort({ name: '' })] }), foreign()],
    ],
    ['whose endpoints have a port without a name', [own, foreign({ ports: [port({ name: '' })] })]],
    [
      'of two families with endpoints of the second',
      [
        service({ selector: null, ipFamilies: ['IPv4', 'IPv6'] }),
        foreign({ addressType: 'IPv6', endpoints: [endpoint({ addresses: ['fd00::1'] })] }),
      ],
    ],
    ['whose pods another client lists', [service(), none, foreign()]],
    ['whose Endpoints are mirrored', [own, endpoints({ labels: {} }), mirror()]],
    [
      'that publishes pods that are not ready',
      [service({ publishNotReadyAddresses: true }), pod({ ready: false }), slice()],
    ],
    [
      'whose terminating pods still serve',
      [service(), pod({ deleting: true }), slice({ endpoints: [leaving] })],
    ],
    [
      'that is headless without ports',
      [service({ clusterIP: 'None', ports: [] }), pod(), slice({ ports: [] })],
    ],
    [
      'that is headless, and whose pods name no such port',
      [
        service({ clusterIP: 'None', ports: [servicePort({ targetPort: 'http' })] }),
        pod({ ports: [containerPort('web', 8080)] }),
        slice({ ports: [] }),
      ],
    ],
    ['that does not exist', [slice()]],
  ])('%s', (_, objects) => {
    expect(reasonFor([node(), ...objects])).toBeNull();
  });

  test.each(['pods', 'endpointslices'] as const)('if %s are not known', (missing) => {
    const known = resources.filter((resource) => resource !== missing);
    expect(reasonFor([service(), none], known)).toBeNull();
  });
});

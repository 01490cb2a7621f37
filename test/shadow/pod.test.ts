// Who is listed, under which hostname and ports: what both controllers ask of a pod.

import { describe, expect, test } from 'vitest';

import type { ContainerPort, ServicePort } from '../../src/model/objects.ts';
import { carriesHostname, isListed, resolvePorts } from '../../src/shadow/pod.ts';
import { containerPort, pod, service, servicePort } from '../build.ts';

describe('isListed', () => {
  const cases: [string, Parameters<typeof pod>[0], boolean, boolean][] = [
    ['a ready pod', {}, true, true],
    ['a pod that is not ready', { ready: false }, true, true],
    ['a terminating pod', { deleting: true }, false, true],
    ['a terminal pod', { terminal: true }, false, false],
    ['a terminal pod that is ready', { terminal: true, ready: true }, false, false],
    ['a terminating terminal pod', { terminal: true, deleting: true }, false, false],
    ['a pod without address', { ips: [] }, false, false],
    ['a pod without node', { node: '' }, true, true],
  ];
  test.each(cases)('%s', (_, more, want, wantTerminating) => {
    expect(isListed(pod(more), false)).toBe(want);
    expect(isListed(pod(more), true)).toBe(wantTerminating);
  });
});

describe('carriesHostname', () => {
  const named = { hostname: 'web-1', subdomain: 'web' };
  const cases: [string, Parameters<typeof pod>[0], boolean][] = [
    ['subdomain is the Service', named, true],
    ['another subdomain', { ...named, subdomain: 'api' }, false],
    ['no subdomain', { ...named, subdomain: '' }, false],
    ['no hostname', { ...named, hostname: '' }, false],
    ['another namespace', { ...named, namespace: 'bank' }, false],
  ];
  test.each(cases)('%s', (_, more, want) => {
    // The Service has a cluster IP: that plays no role.
    expect(carriesHostname(service(), pod(more))).toBe(want);
    expect(carriesHostname(service({ clusterIP: 'None' }), pod(more))).toBe(want);
  });
});

const http = containerPort('http', 8080);
const sidecar = containerPort('http', 9090, true);
const udp: ContainerPort = { ...http, protocol: 'UDP' };
const named = servicePort({ targetPort: 'http' });

describe('resolvePorts', () => {
  const cases: [string, ServicePort[], ContainerPort[], number[], number[]][] = [
    ['a number needs no container port', [servicePort()], [], [8080], [8080]],
    ['a number is not checked', [servicePort({ targetPort: 1 })], [http], [1], [1]],
    ['an unset targetPort', [servicePort({ targetPort: 0 })], [http], [0], [0]],
    ['a name', [named], [http], [8080], [8080]],
    ['a name that the pod lacks', [named], [containerPort('web', 1)], [], []],
    ['a name of another protocol', [named], [udp], [], []],
    ['the first container wins', [named], [http, containerPort('http', 1)], [8080], [8080]],
    ['a sidecar', [named], [sidecar], [9090], []],
    ['a container before a sidecar', [named], [http, sidecar], [8080], [8080]],
    ['one of two names', [named, servicePort({ targetPort: 'x' })], [http], [8080], [8080]],
    ['a Service without ports', [], [http], [], []],
    ['a digit in quotes is a name', [servicePort({ targetPort: '8080' })], [http], [], []],
  ];
  test.each(cases)('%s', (_, ports, containers, withSidecars, withoutSidecars) => {
    const [of, on] = [service({ ports }), pod({ ports: containers })];
    const numbers = (sidecars: boolean) =>
      resolvePorts(of, on, sidecars).ports.map(({ port }) => port);
    expect(numbers(true)).toEqual(withSidecars);
    expect(numbers(false)).toEqual(withoutSidecars);
  });

  test('name, protocol and appProtocol come from the Service', () => {
    const of = service({ ports: [{ ...named, name: 'web', appProtocol: 'h2c' }] });
    expect(resolvePorts(of, pod({ ports: [http] }), true).ports).toEqual([
      { name: 'web', protocol: 'TCP', port: 8080, appProtocol: 'h2c' },
    ]);
  });

  test('an unnamed Service port has the empty name', () => {
    const of = service({ ports: [servicePort({ name: '' })] });
    expect(resolvePorts(of, pod(), true).ports[0]?.name).toBe('');
  });

  test('what is remembered belongs to one Service and one list of ports', () => {
    const [a, b] = [service({ ports: [named] }), service({ ports: [servicePort()] })];
    const list = [containerPort('http', 7)];
    const one = pod({ ports: list });
    expect(resolvePorts(a, one, true)).toBe(resolvePorts(a, pod({ ports: list }), true));
    expect(resolvePorts(a, one, true).ports[0]?.port).toBe(7);
    expect(resolvePorts(b, one, true).ports[0]?.port).toBe(8080);
    expect(resolvePorts(a, pod({ ports: [http] }), true).ports[0]?.port).toBe(8080);
  });
});

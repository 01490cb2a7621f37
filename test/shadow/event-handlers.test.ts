// Which changes the controllers sleep through.

import { describe, expect, test } from 'vitest';

import type { Labels } from '../../src/model/objects.ts';
import { annotation, label } from '../../src/model/objects.ts';
import { isMirrorable, wakesMirroring, wakesOfPodUpdate } from '../../src/shadow/event-handlers.ts';
import { containerPort, endpoints, pod, service } from '../build.ts';

type Pods = Parameters<typeof pod>[0];

describe('wokenByPod', () => {
  const cases: [string, Pods, Pods, 'all' | 'membership' | 'none'][] = [
    ['nothing', {}, {}, 'none'],
    ['readiness', {}, { ready: false }, 'all'],
    ['deletion begins', {}, { deleting: true }, 'all'],
    ['anything while it is being deleted', { deleting: true }, { deleting: true }, 'all'],
    ['an address comes', { ips: [] }, {}, 'all'],
    ['an address changes', {}, { ips: ['10.0.0.2'] }, 'all'],
    [
      'addresses change places',
      { ips: ['1.1.1.1', 'fd00::1'] },
      { ips: ['fd00::1', '1.1.1.1'] },
      'all',
    ],
    ['an address in other words', {}, { ips: ['10.0.0.01'] }, 'all'],
    ['labels', {}, { labels: { app: 'api' } }, 'membership'],
    ['labels that no Service selects', {}, { labels: { app: 'web', x: 'y' } }, 'membership'],
    ['hostname', {}, { hostname: 'a' }, 'membership'],
    ['subdomain', {}, { subdomain: 'a' }, 'membership'],
    ['labels and readiness', {}, { labels: {}, ready: false }, 'all'],
    ['phase', {}, { terminal: true }, 'none'],
    ['node', { node: '' }, { node: 'node-a' }, 'none'],
    ['container ports', {}, { ports: [containerPort('http', 1)] }, 'none'],
    ['host network', {}, { hostNetwork: true }, 'none'],
    ['when it became ready', {}, { turnedAt: 5 }, 'none'],
  ];
  test.each(cases)('%s', (_, before, after, want) => {
    expect(wakesOfPodUpdate(pod(before), pod(after))).toBe(want);
  });
});

describe('isMirrorable', () => {
  const cases: [string, Labels, Labels, boolean][] = [
    ['no label', {}, {}, true],
    ['skip-mirror', { [label.skipMirror]: 'true' }, {}, false],
    ['skip-mirror of another value', { [label.skipMirror]: 'false' }, {}, true],
    ['skip-mirror in capitals', { [label.skipMirror]: 'True' }, {}, true],
    ['leader election', {}, { [annotation.leader]: '{}' }, false],
    ['an empty leader annotation', {}, { [annotation.leader]: '' }, false],
    ['the controller’s own', { [label.endpointsManagedBy]: 'endpoint-controller' }, {}, true],
  ];
  test.each(cases)('%s', (_, labels, annotations, want) => {
    expect(isMirrorable(endpoints({ labels, annotations }))).toBe(want);
  });
});

describe('wakesMirroring', () => {
  const selected = service();
  const selectorless = service({ selector: null });
  const cases: [string, typeof selected | null, typeof selected | null, boolean][] = [
    ['a selectorless Service comes', null, selectorless, true],
    ['a selectorless Service goes', selectorless, null, true],
    ['a Service with selector comes', null, selected, false],
    ['a Service with selector goes', selected, null, false],
    ['the selector goes', selected, selectorless, true],
    ['a selector comes', selectorless, selected, true],
    ['another selector', selected, service({ selector: { app: 'api' } }), false],
    ['something else', selectorless, service({ selector: null, ports: [] }), false],
  ];
  test.each(cases)('%s', (_, before, after, want) => {
    expect(wakesMirroring(before, after)).toBe(want);
  });
});

// The change that made a difference is named in the explanation: object, field, both values, time.

import { describe, expect, test } from 'vitest';

import { explain } from '../../../src/audit/explain/explain.ts';
import type { Reason } from '../../../src/audit/explain/explanation.ts';
import { createPendingFindings } from '../../../src/audit/pending/pending.ts';
import { createServiceAuditor } from '../../../src/audit/service/auditor.ts';
import type { AnyObject } from '../../../src/model/objects.ts';
import { runToEnd } from '../../../src/model/run-to-end.ts';
import { renderExplanation } from '../../../src/output/text/explain.ts';
import {
  contextOf,
  endpoints,
  event,
  node,
  pod,
  service,
  servicePort,
  slice,
  storeOf,
} from '../../build.ts';

type Step = readonly [at: number, object: AnyObject, how?: 'deleted' | 'gap'];

const midday = Date.UTC(2026, 10, 21, 12) / 1000;

/** The explanation of the Service after some changes. */
function explained(steps: readonly Step[], start: readonly AnyObject[] = []) {
  const store = storeOf([service(), node(), pod(), endpoints(), slice(), ...start]);
  const context = contextOf(store);
  const settle = createPendingFindings({ window: 30, keep: 9 });
  const serviceAuditor = createServiceAuditor({ context, settle });
  runToEnd(serviceAuditor.begin(midday));
  for (const [after, object, how] of steps) {
    const type = how === 'deleted' ? how : 'modified';
    const change = store.apply(event(type, object, midday + after));
    if (change !== null) serviceAuditor.apply({ ...change, gap: how === 'gap' });
  }
  return explain(context, serviceAuditor, { kind: 'service', service: 'shop/web' });
}

const withParts = (reason: Reason): Reason[] => [reason, ...reason.parts.flatMap(withParts)];

/** The changes that the explanation names, each once. */
const changesIn = (steps: readonly Step[], start: readonly AnyObject[] = []): string[] => [
  ...new Set(
    explained(steps, start)
      .reasons.flatMap(withParts)
      .flatMap(({ changed, text }) => (changed === null ? [] : `${changed.at - midday} ${text}`)),
  ),
];

const other = pod({ name: 'web-2', ips: ['10.0.0.2'], labels: { app: 'api' } });

const portText = (port: number, to: number): string =>
  `name=http,protocol=TCP,port=${port},targetPort=${to}`;

describe('an explanation names', () => {
  const cases: [string, Step[], string[]][] = [
    [
      'a label of a pod that leaves the Service',
      [[5, pod({ labels: { app: 'api', version: '2' } })]],
      ['5 pod shop/web-1: label app changed from web to api'],
    ],
    [
      'a label that a pod lost',
      [[5, pod({ labels: {} })]],
      ['5 pod shop/web-1: label app was removed (it was web)'],
    ],
    [
      'a label of a pod that comes to the Service',
      [[5, { ...other, labels: { app: 'web' } }]],
      ['5 pod shop/web-2: label app changed from api to web'],
    ],
    [
      'a selector',
      [[5, service({ selector: { app: 'api' } })]],
      ['5 service shop/web: spec.selector changed from app=web to app=api'],
    ],
    [
      'the ports of the Service',
      [[5, service({ ports: [servicePort({ port: 81, targetPort: 9090 })] })]],
      [`5 service shop/web: ports changed from ${portText(80, 8080)} to ${portText(81, 9090)}`],
    ],
    [
      'the zone of a Node',
      [[5, node({ zone: 'zone-b' })]],
      ['5 node node-a: label topology.kubernetes.io/zone changed from zone-a to zone-b'],
    ],
    [
      'the phase and the readiness of a pod',
      [[5, pod({ terminal: true, ready: false })]],
      [
        '5 pod shop/web-1: status.phase Failed or Succeeded changed from false to true',
        '5 pod shop/web-1: status.conditions Ready changed from true to false',
      ],
    ],
    [
      'a new pod',
      [[5, pod({ name: 'web-3', ips: ['10.0.0.3'] })]],
      ['5 pod shop/web-3: was created'],
    ],
    ['a pod that is gone', [[5, pod(), 'deleted']], ['5 pod shop/web-1: was deleted']],
    [
      'a write of Endpoints',
      [[5, endpoints({ subsets: [], resourceVersion: '7' })]],
      ['5 endpoints shop/web: metadata.resourceVersion was set to 7'],
    ],
    [
      'the change that began it, and the one that changed it since',
      [
        [5, service({ ports: [servicePort({ targetPort: 9090 })] })],
        [6, service({ ports: [servicePort({ targetPort: 9091 })] })],
      ],
      [
        `5 service shop/web: ports changed from ${portText(80, 8080)} to ${portText(80, 9090)}`,
        `6 service shop/web: ports changed from ${portText(80, 9090)} to ${portText(80, 9091)}`,
      ],
    ],
    [
      'no later change that does not matter',
      [
        [5, pod({ ready: false })],
        [6, other],
      ],
      ['5 pod shop/web-1: status.conditions Ready changed from true to false'],
    ],
  ];
  test.each(cases)('%s', (_, steps, want) => {
    expect(changesIn(steps, [other])).toEqual(want);
  });

  test('nothing for differences at the start', () => {
    expect(explained([], [other, pod({ ready: false })]).verdict).toBe('pending');
    expect(changesIn([], [other, pod({ ready: false })])).toEqual([]);
  });

  test('no change of another address after a gap', () => {
    const unseen = pod({ name: 'web-3', ips: ['10.0.0.3'] });
    const steps: Step[] = [[5, { ...other, labels: { app: 'web' } }, 'gap']];
    const [change] = changesIn(steps, [other, unseen]);
    expect(change).toBe('5 pod shop/web-2: label app changed from api to web');
  });

  test('at most eight changes of one difference, the first among them', () => {
    const steps = Array.from({ length: 20 }, (_, at): Step => {
      return [at, service({ ports: [servicePort({ targetPort: 9000 + at })] })];
    });
    const store = storeOf([service(), node(), pod(), endpoints(), slice()]);
    const settle = createPendingFindings({ window: 30, keep: 9 });
    const serviceAuditor = createServiceAuditor({ context: contextOf(store), settle });
    runToEnd(serviceAuditor.begin(0));
    for (const [at, object] of steps) {
      const change = store.apply(event('modified', object, at));
      if (change !== null) serviceAuditor.apply(change);
    }
    const items = [...(serviceAuditor.audited.get('shop/web')?.items.values() ?? [])].flat();
    expect(items.length).toBeGreaterThan(0);
    for (const { changes } of items) {
      expect(changes.map(({ at }) => at)).toEqual([0, 13, 14, 15, 16, 17, 18, 19]);
    }
  });
});

test('the change has its time in the text and its fields in the JSON document', () => {
  const steps: Step[] = [[184, pod({ labels: { app: 'api' } })]];
  const document = {
    format: 1,
    kind: 'explain',
    at: midday + 200,
    begunAt: 0,
    history: [],
    incidents: [],
  } as const;
  const all = { ...document, ...explained(steps) };
  const text = renderExplanation(all, 'text', { colour: false, width: 200 });
  expect(text).toContain('pod shop/web-1: label app changed from web to api at 12:03:04');
  const json = renderExplanation(all, 'json', { colour: false, width: 200 });
  expect(json.replace(/\s+/g, '')).toContain(
    `"changed":{"at":${midday + 184},"kind":"Pod","namespace":"shop","name":"web-1",` +
      '"field":"metadata.labelsapp","from":"web","to":"api"}',
  );
});

// Every cause with its evidence rule, both ways: with the cause the difference follows from
// upstream's code, and it is named, as certain or as likely; where the same difference comes for
// another reason, it is not, even if the cause's condition is met elsewhere in the Service.

import { describe, expect, test } from 'vitest';

import type { Cause } from '../../../src/audit/finding/causes.ts';
import { explains } from '../../../src/audit/finding/causes.ts';
import { createPendingFindings } from '../../../src/audit/pending/pending.ts';
import { createServiceAuditor } from '../../../src/audit/service/auditor.ts';
import type { AnyObject } from '../../../src/model/objects.ts';
import { label } from '../../../src/model/objects.ts';
import { runToEnd } from '../../../src/model/run-to-end.ts';
import {
  address,
  contextOf,
  endpoint,
  endpoints,
  event,
  mirror,
  node,
  owner,
  pod,
  port,
  service,
  servicePort,
  slice,
  sliceLabels,
  storeOf,
  subset,
  target,
} from '../../build.ts';

type Happening = readonly [at: number, object: AnyObject, type?: 'deleted'];

/** The cause of the first difference of a code at the end, with its certainty. */
function causeAfter(start: readonly AnyObject[], changes: readonly Happening[], code: string) {
  const store = storeOf(start);
  const settle = createPendingFindings({ window: 30, keep: 9 });
  const serviceAuditor = createServiceAuditor({ context: contextOf(store), settle });
  runToEnd(serviceAuditor.begin(0));
  for (const [at, object, type = 'modified'] of changes) {
    const change = store.apply(event(type, object, at));
    if (change !== null) serviceAuditor.apply(change);
  }
  const items = [...(serviceAuditor.audited.get('shop/web')?.items.values() ?? [])].flat();
  const found = items.find(({ difference }) => difference.code === code);
  if (found === undefined)
    throw new Error(`No ${code}: ${items.map((it) => it.difference.code).join()}`);
  if (found.cause === null) return 'none';
  return `${found.proven ? 'certain' : 'likely'} ${found.cause}`;
}

const other = pod({ name: 'web-2', ips: ['10.0.0.2'] });
const atOther = { addresses: ['10.0.0.2'], target: target('web-2') };
const ofOther = { ip: '10.0.0.2', target: target('web-2') };
const listing = (...all: Parameters<typeof endpoint>[0][]) =>
  slice({ generation: 2, endpoints: all.map(endpoint) });
const listed = (...all: Parameters<typeof address>[0][]) =>
  endpoints({ subsets: [subset(all.map(address))] });
const both = [service(), pod(), other, node(), listed({}, ofOther), listing({}, atOther)];
const one = [service(), pod(), node(), endpoints(), slice()];
const empty = slice({ endpoints: [], ports: [] });
const none = [service(), node(), endpoints({ subsets: [] }), empty];
const unselected = pod({ labels: {} });
const lost = pod({ name: 'web-3', ips: ['10.0.0.3'], node: 'node-z' });
const renamed = slice({ labels: { ...sliceLabels, [label.serviceName]: 'api' } });
const byHand = endpoints({
  labels: {},
  subsets: [
    subset(
      [address({ target: null }), address({ ip: 'fd00::1', target: null })],
      [port({ port: 1 })],
    ),
  ],
});

type Case = readonly [
  title: string,
  code: string,
  start: readonly AnyObject[],
  changes: readonly Happening[],
];

const cases: Readonly<Record<Cause, { certain?: Case[]; likely?: Case[]; not: Case[] }>> = {
  'pod-phase-unnoticed': {
    certain: [
      [
        'a pod finishes and stays ready',
        'slice-endpoint-unexpected',
        one,
        [[9, pod({ terminal: true })]],
      ],
      [
        'a finished pod runs again, not ready',
        'endpoints-address-missing',
        [pod({ terminal: true, ready: false }), ...none],
        [[9, pod({ ready: false })]],
      ],
    ],
    likely: [
      [
        'the listed pod is finished at the start',
        'slice-endpoint-unexpected',
        [pod({ terminal: true }), ...one.filter((object) => object.name !== 'web-1')],
        [],
      ],
    ],
    not: [
      [
        'a pod is missing at the start, and its earlier phase is not known',
        'endpoints-address-missing',
        [pod({ ready: false }), ...none],
        [],
      ],
      [
        'a label changes after another pod finished',
        'slice-endpoint-unexpected',
        both,
        [
          [8, pod({ name: 'web-2', ips: ['10.0.0.2'], terminal: true })],
          [9, unselected],
        ],
      ],
      [
        'the finished pod terminates at the start',
        'slice-endpoint-unexpected',
        [pod({ terminal: true, deleting: true }), ...none.slice(0, 3), slice()],
        [],
      ],
      [
        'the finished pod is not ready at the start, but listed as ready',
        'endpoints-address-unexpected',
        [pod({ terminal: true, ready: false }), service(), node(), endpoints(), empty],
        [],
      ],
    ],
  },
  'pod-change-unnoticed': {
    certain: [
      [
        'a pod is bound to another Node',
        'slice-endpoint-different',
        [...one, node({ name: 'node-b' })],
        [[9, pod({ node: 'node-b' })]],
      ],
    ],
    not: [
      [
        'a slice is written with another Node',
        'slice-endpoint-different',
        [...one, node({ name: 'node-b' })],
        [[9, listing({ node: 'node-b' })]],
      ],
      [
        'a label changes, and the readiness of the pod in the same update',
        'slice-conditions-different',
        one,
        [[9, pod({ ready: false, labels: { app: 'web', a: '1' } })]],
      ],
    ],
  },
  'node-change-unnoticed': {
    certain: [
      ['a Node moves', 'slice-endpoint-different', one, [[9, node({ zone: 'zone-b' })]]],
      ['a Node goes', 'slice-endpoint-unexpected', one, [[9, node(), 'deleted']]],
    ],
    likely: [
      [
        'a zone differs at the start',
        'slice-endpoint-different',
        [node({ zone: 'zone-b' }), ...one.filter((object) => object.name !== 'node-a')],
        [],
      ],
    ],
    not: [
      [
        'a slice loses an endpoint after its Node moved',
        'slice-endpoint-missing',
        both,
        [
          [8, node({ zone: 'zone-b' })],
          [9, listing(atOther)],
        ],
      ],
      [
        'an endpoint is left in a slice with the ports of before, and then its Node goes',
        'slice-endpoint-unexpected',
        one,
        [
          [8, service({ ports: [servicePort({ targetPort: 8081 })] })],
          [8.1, slice({ name: 'web-2', ports: [port({ port: 8081 })] })],
          [9, node(), 'deleted'],
        ],
      ],
      [
        'the pod is listed on another Node than its missing one at the start',
        'slice-endpoint-unexpected',
        [pod({ node: 'node-z' }), ...none.slice(0, 3), slice()],
        [],
      ],
    ],
  },
  'pod-without-node': {
    certain: [
      [
        'a pod has an address and no Node',
        'endpoints-address-missing',
        one,
        [[9, { ...other, node: '' }]],
      ],
    ],
    not: [
      [
        'a pod without a Node has no address',
        'endpoints-readiness-different',
        [...one, { ...other, node: '', ips: [] }],
        [[9, pod({ ready: false })]],
      ],
    ],
  },
  'hand-edited': {
    certain: [
      [
        'Endpoints change alone',
        'endpoints-readiness-different',
        one,
        [[99, listed({ ready: false })]],
      ],
      [
        'Endpoints that the controller cannot write change',
        'endpoints-readiness-different',
        [service(), pod(), { ...other, node: '' }, node(), endpoints(), slice()],
        [[99, listed({ ready: false })]],
      ],
      ['a slice loses its owner', 'slice-owner-different', one, [[9, slice({ owners: [] })]]],
      [
        'Endpoints of no Service get the label of the controller',
        'endpoints-orphaned',
        [endpoints({ labels: {} })],
        [[9, endpoints()]],
      ],
    ],
    likely: [
      [
        'Endpoints change soon after an event of the Service',
        'endpoints-readiness-different',
        one,
        [
          [8, service({ labels: {} })],
          [9, listed({ ready: false })],
        ],
      ],
    ],
    not: [
      ['a slice changes', 'slice-conditions-different', one, [[9, listing({ ready: false })]]],
      [
        'a pod changes after another address was edited',
        'endpoints-readiness-different',
        both,
        [
          [8, listed({}, { ...ofOther, ready: false })],
          [9, pod({ ready: false })],
        ],
      ],
    ],
  },
  'node-missing-retried': {
    likely: [
      [
        'a pod comes while the slices are written for another',
        'slice-endpoint-missing',
        [...one, lost],
        [
          [8, other],
          [9, pod({ name: 'web-4', ips: ['10.0.0.4'] })],
          [9.1, listing({}, atOther)],
        ],
      ],
    ],
    not: [
      [
        'a pod comes long after the last write',
        'slice-endpoint-missing',
        [...one, lost],
        [[9, other]],
      ],
      ['a label changes', 'slice-endpoint-unexpected', [...one, lost], [[9, unselected]]],
      ['a pod is missing at the start', 'slice-endpoint-missing', [...one, other, lost], []],
      [
        'Endpoints are deleted before a slice is edited',
        'slice-endpoint-missing',
        [...both, lost],
        [
          [9, listed({}, ofOther), 'deleted'],
          [9.1, listing({})],
        ],
      ],
    ],
  },
  'placeholder-taken-over': {
    certain: [
      [
        'the slice is owned by an earlier Service',
        'slice-owner-different',
        [...none.slice(0, 3), slice({ ...empty, owners: [owner({ uid: 'old' })] })],
        [],
      ],
    ],
    not: [
      [
        'the Service must have an endpoint',
        'slice-owner-different',
        [pod(), ...none.slice(0, 3), slice({ ...empty, owners: [owner({ uid: 'old' })] })],
        [],
      ],
      [
        'the Service comes to have an endpoint',
        'slice-owner-different',
        [...none.slice(0, 3), slice({ ...empty, owners: [owner({ uid: 'old' })] })],
        [[9, pod()]],
      ],
      [
        'another slice exists',
        'slice-owner-different',
        [...none, slice({ ...empty, name: 'web-2', owners: [owner({ uid: 'old' })] })],
        [],
      ],
    ],
  },
  'service-recreated': {
    certain: [
      [
        'the placeholder of an earlier Service is deleted',
        'slice-placeholder-missing',
        [...none.slice(0, 3), slice({ ...empty, owners: [owner({ uid: 'old' })] })],
        [[9, slice({ ...empty, owners: [owner({ uid: 'old' })] }), 'deleted']],
      ],
    ],
    not: [
      [
        'its own placeholder is deleted',
        'slice-placeholder-missing',
        none,
        [[9, empty, 'deleted']],
      ],
      [
        'a slice with other labels of an earlier Service is deleted',
        'slice-placeholder-missing',
        [
          ...none.slice(0, 3),
          slice({
            ...empty,
            labels: { ...sliceLabels, a: '1' },
            owners: [owner({ uid: 'old' })],
          }),
        ],
        [
          [
            9,
            slice({
              ...empty,
              labels: { ...sliceLabels, a: '1' },
              owners: [owner({ uid: 'old' })],
            }),
            'deleted',
          ],
        ],
      ],
    ],
  },
  'mirror-recycling-fails': {
    likely: [
      [
        'slices of two families are to be made of others',
        'mirror-endpoint-missing',
        [service({ selector: null }), byHand, mirror()],
        [],
      ],
    ],
    not: [
      [
        'slices of two families are to be made of none',
        'mirror-endpoint-missing',
        [service({ selector: null }), byHand],
        [],
      ],
    ],
  },
  'slice-relabelled': {
    certain: [['a slice loses its label', 'slice-endpoint-missing', one, [[9, renamed]]]],
    likely: [
      [
        'a slice of the Service names another at the start',
        'slice-endpoint-missing',
        [...one.slice(0, 4), renamed],
        [],
      ],
    ],
    not: [
      [
        'the controller made another slice since',
        'slice-endpoint-unexpected',
        one,
        [
          [8, renamed],
          [9, slice({ name: 'web-2' })],
          [9, renamed, 'deleted'],
          [10, unselected],
        ],
      ],
    ],
  },
  'headless-label-kept': {
    certain: [
      [
        'the headless label is missing',
        'endpoints-labels-different',
        [service({ clusterIP: 'None' }), ...one.slice(1)],
        [],
      ],
    ],
    not: [
      [
        'another label is missing too',
        'slice-labels-different',
        [service({ clusterIP: 'None', labels: { a: '1' } }), ...one.slice(1)],
        [],
      ],
    ],
  },
};

describe.each(Object.entries(cases))('%s', (cause, { certain = [], likely = [], not }) => {
  const named = [
    ...certain.map((it) => [...it, `certain ${cause}`] as const),
    ...likely.map((it) => [...it, `likely ${cause}`] as const),
  ];
  test.each(named)('is named if %s (%s)', (_, code, start, changes, want) => {
    expect(causeAfter(start, changes, code)).toBe(want);
    expect(explains(cause as Cause, code)).toBe(true);
  });

  test.each(not)('is not named if %s (%s)', (_, code, start, changes) => {
    expect(causeAfter(start, changes, code)).not.toContain(cause);
  });
});

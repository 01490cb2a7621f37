// What a change touches and whom it wakes. Each case makes one change to a settled cluster of two
// Services and says, per Service, which addresses are judged again, who was woken, or why nobody.

import { describe, expect, test } from 'vitest';

import { setEndpoints } from '../../../src/audit/service/address-index.ts';
import type { ServiceState } from '../../../src/audit/service/cache.ts';
import { addSlice, createServiceState, setService } from '../../../src/audit/service/cache.ts';
import type { Records, WorkItem } from '../../../src/audit/service/enqueue.ts';
import { recordsNamed, enqueue } from '../../../src/audit/service/enqueue.ts';
import type { AnyObject, EndpointSlice, Key } from '../../../src/model/objects.ts';
import { annotation, label } from '../../../src/model/objects.ts';
import {
  address,
  containerPort,
  contextOf,
  endpoint,
  endpoints,
  event,
  foreign,
  mirror,
  node,
  owner,
  pod,
  service,
  slice,
  sliceLabels,
  storeOf,
  subset,
  target,
} from '../../build.ts';

const api = service({ name: 'api', selector: { app: 'api' } });
const apiPod = pod({ name: 'api-1', ips: ['10.0.1.1'], node: 'node-b', labels: { app: 'api' } });
const apiSlice = slice({
  name: 'api-1',
  labels: { ...sliceLabels, [label.serviceName]: 'api' },
  owners: [owner({ name: 'api', uid: 'uid-api' })],
  endpoints: [endpoint({ addresses: ['10.0.1.1'], target: target('api-1') })],
});
const settled: AnyObject[] = [
  service(),
  api,
  pod(),
  apiPod,
  node(),
  node({ name: 'node-b', zone: 'zone-b' }),
  endpoints(),
  slice(),
  apiSlice,
];

interface Prepared {
  readonly records: Records;
  readonly all: Map<Key, ServiceState>;
  readonly change: (type: 'modified' | 'deleted', object: AnyObject) => WorkItem[];
}

function prepared(objects: readonly AnyObject[] = settled): Prepared {
  const store = storeOf(objects);
  const context = contextOf(store);
  const { listers } = store;
  const all = new Map<Key, ServiceState>();
  const getOrCreate = (key: Key): ServiceState => {
    const record = all.get(key) ?? createServiceState(key);
    all.set(key, record);
    return record;
  };
  const records: Records = {
    context,
    get: (key) => all.get(key),
    getOrCreate,
    leftBehindAt: () => [],
    foreignIn: () => [...all.values()].filter(({ slices }) => [...slices.values()].some(isForeign)),
    auto: () => [...all.values()].filter(({ service: of }) => of?.topologyAuto === true),
  };
  for (const of of listers.services.values()) {
    setService(context, getOrCreate(of.key), of, listers.podsIn(of.namespace));
  }
  for (const one of listers.endpoints.values()) setEndpoints(getOrCreate(one.key), one);
  for (const one of listers.slices.values()) {
    for (const record of recordsNamed(records, one)) addSlice(record, one);
  }
  const change: Prepared['change'] = (type, object) => {
    const done = store.apply(event(type, object, 1));
    return done === null ? [] : enqueue(records, done);
  };
  return { records, all, change };
}

const isForeign = (one: EndpointSlice): boolean =>
  one.labels[label.sliceManagedBy] === 'example.com/controller';

/** `web: 10.0.0.1; endpoints, endpointslices`: name, what is judged, who was woken or why not. */
function brief({
  record,
  addresses,
  whole,
  wakes: woken,
  blindSpot: blind,
  unseen,
}: WorkItem): string {
  const what = whole ? 'whole' : [...addresses].sort().join(' ') || 'outputs';
  const wakes = [...woken].sort().join(', ') || (blind ?? unseen ?? 'nobody');
  return `${record.name}: ${what}; ${wakes}`;
}

type Case = [string, 'modified' | 'deleted', AnyObject, string[]];

function check(objects: readonly AnyObject[], [, type, object, want]: Case): void {
  expect(prepared(objects).change(type, object).map(brief).sort()).toEqual(want);
}

const both = 'endpoints, endpointslices';

test('whatever becomes of a pod, its latest version is the one that is counted', () => {
  const { all, change } = prepared([service(), node(), pod()]);
  const versions = [
    pod({ turnedAt: 5 }),
    pod({ ready: false, turnedAt: 6 }),
    pod({ ready: false, turnedAt: 7 }),
    pod({ ready: false, node: 'node-z' }),
    pod({ uid: 'another' }),
  ];
  for (const version of versions) {
    change('modified', version);
    expect(all.get('shop/web')?.members).toEqual([version]);
  }
  change('deleted', pod({ uid: 'another' }));
  expect(all.get('shop/web')).toMatchObject({ members: [], memberKinds: [], kinds: [] });
});

describe('pods', () => {
  const cases: Case[] = [
    [
      'one comes',
      'modified',
      pod({ name: 'web-2', ips: ['10.0.0.2'] }),
      [`web: 10.0.0.2; ${both}`],
    ],
    ['one goes', 'deleted', pod(), [`web: 10.0.0.1; ${both}`]],
    ['readiness', 'modified', pod({ ready: false }), [`web: 10.0.0.1; ${both}`]],
    ['addresses', 'modified', pod({ ips: ['10.0.0.2'] }), [`web: 10.0.0.1 10.0.0.2; ${both}`]],
    ['nothing that counts', 'modified', pod({ turnedAt: 5 }), []],
    ['phase', 'modified', pod({ terminal: true }), ['web: 10.0.0.1; pod-phase-unnoticed']],
    ['node', 'modified', pod({ node: 'node-b' }), ['web: 10.0.0.1; pod-change-unnoticed']],
    [
      'container ports',
      'modified',
      pod({ ports: [containerPort('http', 1)] }),
      ['web: 10.0.0.1; pod-change-unnoticed'],
    ],
    // A hostname alone changes no membership.
    ['hostname', 'modified', pod({ hostname: 'a' }), ['web: 10.0.0.1; pod-change-unnoticed']],
    [
      'another Service',
      'modified',
      pod({ labels: { app: 'api' } }),
      [`api: 10.0.0.1; ${both}`, `web: 10.0.0.1; ${both}`],
    ],
    [
      'a label that nobody selects',
      'modified',
      pod({ labels: { app: 'web', a: '1' } }),
      ['web: 10.0.0.1; pod-change-unnoticed'],
    ],
    ['recreated under its name', 'modified', pod({ uid: 'new' }), [`web: 10.0.0.1; ${both}`]],
    ['not selected', 'modified', pod({ name: 'x', labels: {}, ips: ['10.0.9.9'] }), []],
    ['of another namespace', 'modified', pod({ namespace: 'bank', ips: ['10.0.9.9'] }), []],
    [
      'an address that another pod has',
      'modified',
      pod({ namespace: 'bank', uid: 'b' }),
      ['web: 10.0.0.1; nobody'],
    ],
    [
      'an address of the other Service’s pod',
      'modified',
      pod({ ips: ['10.0.0.1', '10.0.1.1'] }),
      ['api: 10.0.1.1; nobody', `web: 10.0.0.1 10.0.1.1; ${both}`],
    ],
  ];
  test.each(cases)('%s', (...one) => {
    check(settled, one);
  });

  test('that another manager’s slice names', () => {
    const named = foreign({
      endpoints: [endpoint({ addresses: ['10.0.9.9'], target: target('x') })],
    });
    const objects = [...settled, named];
    check(objects, [
      '',
      'modified',
      pod({ name: 'x', labels: {}, ips: [] }),
      ['web: 10.0.9.9; nobody'],
    ]);
  });
});

describe('Nodes', () => {
  const unnoticed = 'node-change-unnoticed';
  const cases: Case[] = [
    ['another zone', 'modified', node({ zone: 'zone-c' }), [`web: 10.0.0.1; ${unnoticed}`]],
    ['one goes', 'deleted', node(), [`web: 10.0.0.1; ${unnoticed}`]],
    ['readiness', 'modified', node({ ready: false }), []],
    ['a Node without pods', 'modified', node({ name: 'node-c' }), []],
  ];
  test.each(cases)('%s', (...one) => {
    check(settled, one);
  });

  test('what topology hints count touches every Service that asks for them', () => {
    const objects = [...settled, service({ topologyAuto: true })];
    const want = [`web: outputs; ${unnoticed}`];
    for (const more of [{ ready: false }, { cpuMillis: 1 }, { controlPlane: true }]) {
      check(objects, ['', 'modified', node({ name: 'node-b', zone: 'zone-b', ...more }), want]);
    }
    check(objects, ['', 'modified', node({ name: 'node-b', zone: 'zone-b' }), []]);
  });
});

describe('Services', () => {
  const selectorless = service({ selector: null });
  const cases: Case[] = [
    ['any change', 'modified', service({ labels: { a: '1' } }), [`web: whole; ${both}`]],
    ['it goes', 'deleted', service(), [`web: whole; ${both}`]],
    ['its selector goes', 'modified', selectorless, [`web: whole; ${both}, mirrored`]],
    [
      'one without selector comes',
      'modified',
      service({ name: 'db', selector: null }),
      [`db: whole; ${both}, mirrored`],
    ],
  ];
  test.each(cases)('%s', (...one) => {
    check(settled, one);
  });

  test('a new one of the name starts without a wedge', () => {
    const { all, change } = prepared();
    const held = all.get('shop/web');
    if (held !== undefined) held.relabelled = new Set('x');
    change('modified', service({ labels: { a: '1' } }));
    expect(all.get('shop/web')?.relabelled.size).toBe(1);
    change('modified', service({ uid: 'new' }));
    expect(all.get('shop/web')?.relabelled.size).toBe(0);
  });
});

describe('Endpoints', () => {
  const leader = { [annotation.leader]: 'b' };
  const notReady = endpoints({ subsets: [subset([address({ ready: false })])] });
  const cases: Case[] = [
    [
      'an edit: the endpoints controller does not watch',
      'modified',
      notReady,
      ['web: 10.0.0.1; mirrored'],
    ],
    ['nothing but a label', 'modified', endpoints({ labels: {} }), ['web: outputs; mirrored']],
  ];
  test.each(cases)('%s', (...one) => {
    check(settled, one);
  });

  test('an edit is told by its cause, a deletion is heard of', () => {
    const [edit] = prepared().change('modified', notReady);
    expect(edit).toMatchObject({ unseen: 'hand-edited', blindSpot: null });
    expect([...(edit?.writes ?? [])]).toEqual(['endpoints']);
    const [gone] = prepared().change('deleted', endpoints());
    expect(gone?.unseen).toBeNull();
    expect([...(gone?.wakes ?? [])].sort()).toEqual(['endpoints', 'mirrored']);
  });

  test('leader election wakes nobody', () => {
    const elected = endpoints({ name: 'lock', labels: {}, annotations: leader });
    const [touch] = prepared([...settled, elected]).change('modified', {
      ...elected,
      annotations: leader,
    });
    expect([...(touch?.wakes ?? [])]).toEqual([]);
  });
});

const off = endpoint({ ready: false });
const two = endpoint({ addresses: ['10.0.0.2'], target: target('web-2') });

const sliceCases: Case[] = [
  [
    'an endpoint',
    'modified',
    slice({ generation: 2, endpoints: [off] }),
    ['web: 10.0.0.1; nobody'],
  ],
  [
    'an endpoint more',
    'modified',
    slice({ generation: 2, endpoints: [endpoint(), two] }),
    ['web: 10.0.0.2; nobody'],
  ],
  [
    'its ports: every address',
    'modified',
    slice({ generation: 2, ports: [] }),
    ['web: 10.0.0.1; nobody'],
  ],
  ['owners, which nobody sees', 'modified', slice({ owners: [] }), ['web: 10.0.0.1; hand-edited']],
  ['annotations', 'modified', slice({ annotations: { a: '1' } }), ['web: outputs; hand-edited']],
  // An API server raises the generation with every change of the content.
  [
    'an endpoint, of unchanged generation',
    'modified',
    slice({ endpoints: [off] }),
    ['web: 10.0.0.1; nobody'],
  ],
  ['it goes', 'deleted', slice(), ['web: 10.0.0.1; nobody']],
];

describe('slices', () => {
  test.each(sliceCases)('%s', (...one) => {
    check(settled, one);
  });

  test.each([
    ['an empty one of a Service before', [], 'web: outputs; service-recreated'],
    ['one of a Service before, with endpoints', [endpoint()], 'web: 10.0.0.1; nobody'],
  ])('%s goes: nobody tracks it', (_, endpoints, want) => {
    const old = slice({ owners: [owner({ uid: 'old' })], endpoints });
    check([...settled, old], ['', 'deleted', old, [want]]);
  });

  test('one that is renamed touches both Services', () => {
    const renamed = slice({
      generation: 2,
      labels: { ...sliceLabels, [label.serviceName]: 'api' },
    });
    const { all, change } = prepared();
    expect(
      change('modified', renamed)
        .map(({ record }) => record.name)
        .sort(),
    ).toEqual(['api', 'web']);
    expect(all.get('shop/web')?.relabelled).toEqual(new Set(['uid-web-abcde']));
    change('modified', slice({ generation: 3 }));
    expect(all.get('shop/web')?.relabelled.size).toBe(0);
  });

  test('whose output it is', () => {
    const writes = (one: AnyObject): string[] => {
      const [touch] = prepared().change('modified', one);
      return [...(touch?.writes ?? [])];
    };
    expect(writes(slice({ generation: 2 }))).toEqual(['endpointslices']);
    expect(writes(mirror())).toEqual(['mirrored']);
    // A slice that loses its managed-by label was the controller's.
    expect(writes(slice({ generation: 2, labels: {} }))).toEqual(['endpointslices']);
  });
});

describe('recordsNamed', () => {
  test('by label and by owner', () => {
    const { records } = prepared();
    const names = (one: EndpointSlice | null): string[] =>
      [...recordsNamed(records, one)].map(({ name }) => name).sort();
    expect(names(null)).toEqual([]);
    expect(names(slice())).toEqual(['web']);
    expect(names(slice({ owners: [owner({ name: 'api', uid: 'x' })] }))).toEqual(['api', 'web']);
    expect(names(foreign({ labels: {}, owners: [owner({ kind: 'Pod', name: 'api' })] }))).toEqual(
      [],
    );
    expect(names(slice({ labels: { [label.serviceName]: '' }, owners: [] }))).toEqual([]);
  });
});

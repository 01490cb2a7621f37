// The work that a change causes. Each case makes one change to a settled cluster of two Services
// and lists, per Service, the addresses to evaluate and the controllers that wake, if any.

import { describe, expect, test } from 'vitest';

import type { ServiceCache, ServiceState } from '../../../src/audit/service/cache.ts';
import {
  createServiceState,
  loadCache,
  podsOf,
  updateCache,
} from '../../../src/audit/service/cache.ts';
import type { WorkItem } from '../../../src/audit/service/enqueue.ts';
import { enqueue } from '../../../src/audit/service/enqueue.ts';
import type { AnyObject, EndpointSlice, Key, Listers } from '../../../src/model/objects.ts';
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
  readonly all: Map<Key, ServiceState>;
  readonly listers: Listers;
  readonly change: (type: 'modified' | 'deleted', object: AnyObject) => WorkItem[];
}

function prepared(objects: readonly AnyObject[] = settled): Prepared {
  const store = storeOf(objects);
  const all = new Map<Key, ServiceState>();
  const cache: ServiceCache = {
    context: contextOf(store),
    get: (key) => all.get(key),
    getOrCreate(key) {
      const record = all.get(key) ?? createServiceState(key);
      all.set(key, record);
      return record;
    },
    leftBehind: new Map(),
    foreign: new Set(),
    autoHinted: new Set(),
  };
  Array.from(loadCache(cache));
  for (const record of all.values()) {
    if (record.slices.some(isForeign)) cache.foreign.add(record);
    if (record.service?.topologyAuto === true) cache.autoHinted.add(record);
  }
  const change: Prepared['change'] = (type, object) => {
    const done = store.apply(event(type, object, 1));
    if (done === null) return [];
    updateCache(cache, done);
    return enqueue(cache, done);
  };
  return { all, listers: store.listers, change };
}

const isForeign = (one: EndpointSlice): boolean =>
  one.labels[label.sliceManagedBy] === 'example.com/controller';

/** `web: 10.0.0.1; endpoints, endpointslices`: name, addresses, and who wakes or why none does. */
function brief({ record, addresses, whole, wakes, blindSpot, unseen }: WorkItem): string {
  const what = whole ? 'whole' : [...addresses].sort().join(' ') || 'outputs';
  const woken = [...wakes].sort().join(', ') || (blindSpot ?? unseen ?? 'none');
  return `${record.name}: ${what}; ${woken}`;
}

type Case = [string, 'modified' | 'deleted', AnyObject, string[]];

function check(objects: readonly AnyObject[], [, type, object, want]: Case): void {
  expect(prepared(objects).change(type, object).map(brief).sort()).toEqual(want);
}

const both = 'endpoints, endpointslices';

test('the members contain the latest version of a pod after every change', () => {
  const { all, listers, change } = prepared([service(), node(), pod()]);
  const versions = [
    pod({ turnedAt: 5 }),
    pod({ ready: false, turnedAt: 6 }),
    pod({ ready: false, turnedAt: 7 }),
    pod({ ready: false, node: 'node-z' }),
    pod({ uid: 'another' }),
  ];
  for (const version of versions) {
    change('modified', version);
    const record = all.get('shop/web');
    expect(record && [...podsOf(listers, record)]).toEqual([version]);
    const { ready, node } = version;
    const kinds = [{ ready, nodeless: node === '', pods: 1 }];
    expect(record).toMatchObject({ kinds });
    expect([...(record?.members.values() ?? [])]).toEqual(record?.kinds);
  }
  change('deleted', pod({ uid: 'another' }));
  expect(all.get('shop/web')).toMatchObject({ members: new Map(), kinds: [] });
});

describe('a change of a pod', () => {
  const cases: Case[] = [
    [
      'created: wakes both controllers',
      'modified',
      pod({ name: 'web-2', ips: ['10.0.0.2'] }),
      [`web: 10.0.0.2; ${both}`],
    ],
    ['deleted', 'deleted', pod(), [`web: 10.0.0.1; ${both}`]],
    ['in readiness', 'modified', pod({ ready: false }), [`web: 10.0.0.1; ${both}`]],
    [
      'in addresses: both are evaluated',
      'modified',
      pod({ ips: ['10.0.0.2'] }),
      [`web: 10.0.0.1 10.0.0.2; ${both}`],
    ],
    ['in nothing that a controller reads', 'modified', pod({ turnedAt: 5 }), []],
    [
      'in phase: wakes no controller',
      'modified',
      pod({ terminal: true }),
      ['web: 10.0.0.1; pod-phase-unnoticed'],
    ],
    [
      'in its node name: wakes no controller',
      'modified',
      pod({ node: 'node-b' }),
      ['web: 10.0.0.1; pod-change-unnoticed'],
    ],
    [
      'in container ports: wakes no controller',
      'modified',
      pod({ ports: [containerPort('http', 1)] }),
      ['web: 10.0.0.1; pod-change-unnoticed'],
    ],
    // A hostname alone changes no membership.
    [
      'in hostname: wakes no controller',
      'modified',
      pod({ hostname: 'a' }),
      ['web: 10.0.0.1; pod-change-unnoticed'],
    ],
    [
      'in labels, so that another Service selects it',
      'modified',
      pod({ labels: { app: 'api' } }),
      [`api: 10.0.0.1; ${both}`, `web: 10.0.0.1; ${both}`],
    ],
    [
      'in a label that no Service selects',
      'modified',
      pod({ labels: { app: 'web', a: '1' } }),
      ['web: 10.0.0.1; pod-change-unnoticed'],
    ],
    ['recreated under its name', 'modified', pod({ uid: 'new' }), [`web: 10.0.0.1; ${both}`]],
    ['that no Service selects', 'modified', pod({ name: 'x', labels: {}, ips: ['10.0.9.9'] }), []],
    ['in another namespace', 'modified', pod({ namespace: 'bank', ips: ['10.0.9.9'] }), []],
    [
      'in another namespace with the address of a selected pod',
      'modified',
      pod({ namespace: 'bank', uid: 'b' }),
      ['web: 10.0.0.1; none'],
    ],
    [
      'in addresses, to one of the other Service’s pod',
      'modified',
      pod({ ips: ['10.0.0.1', '10.0.1.1'] }),
      ['api: 10.0.1.1; none', `web: 10.0.0.1 10.0.1.1; ${both}`],
    ],
  ];
  test.each(cases)('%s', (...one) => {
    check(settled, one);
  });

  test('that another manager’s slice refers to', () => {
    const named = foreign({
      endpoints: [endpoint({ addresses: ['10.0.9.9'], target: target('x') })],
    });
    const objects = [...settled, named];
    check(objects, [
      '',
      'modified',
      pod({ name: 'x', labels: {}, ips: [] }),
      ['web: 10.0.9.9; none'],
    ]);
  });
});

describe('a change of a Node', () => {
  const unnoticed = 'node-change-unnoticed';
  const cases: Case[] = [
    ['in its zone', 'modified', node({ zone: 'zone-c' }), [`web: 10.0.0.1; ${unnoticed}`]],
    ['deleted', 'deleted', node(), [`web: 10.0.0.1; ${unnoticed}`]],
    ['in readiness', 'modified', node({ ready: false }), []],
    ['without pods', 'modified', node({ name: 'node-c' }), []],
  ];
  test.each(cases)('%s', (...one) => {
    check(settled, one);
  });

  test('in what hints depend on affects every Service with topology-mode Auto', () => {
    const objects = [...settled, service({ topologyAuto: true })];
    const want = [`web: outputs; ${unnoticed}`];
    for (const more of [{ ready: false }, { cpuMillis: 1 }, { controlPlane: true }]) {
      check(objects, ['', 'modified', node({ name: 'node-b', zone: 'zone-b', ...more }), want]);
    }
    check(objects, ['', 'modified', node({ name: 'node-b', zone: 'zone-b' }), []]);
  });

  describe('that hints no longer fit', () => {
    const zones = ['zone-a', 'zone-b', 'zone-c'];
    const hinted = ({ family, start }: { family: 'IPv4' | 'IPv6'; start: string }) =>
      slice({
        name: family,
        addressType: family,
        endpoints: zones.map((zone, at) =>
          endpoint({ addresses: [`${start}${at + 1}`], zone, forZones: [zone] }),
        ),
      });
    const four = hinted({ family: 'IPv4', start: '10.0.0.' });
    const six = hinted({ family: 'IPv6', start: 'fd00::' });
    const nodes = zones.map((zone) => node({ name: zone, zone }));
    const auto = service({ topologyAuto: true, ipFamilies: ['IPv4', 'IPv6'] });
    const broken = node({ name: 'zone-c', zone: 'zone-c', ready: false });
    const ofOther = slice({ ...six, labels: foreign().labels, owners: [] });
    // Two zones need two endpoints each of three. Six would be enough.
    test.each([
      ['one family', [four]],
      ['two families, each by itself', [four, six]],
      ['another manager, which does not count', [four, ofOther]],
    ])('in %s', (_, slices) => {
      const woken = ['web: outputs; endpointslices'];
      check([auto, ...nodes, ...slices], ['', 'modified', broken, woken]);
    });
  });
});

describe('a change of a Service', () => {
  const selectorless = service({ selector: null });
  const cases: Case[] = [
    ['in labels', 'modified', service({ labels: { a: '1' } }), [`web: whole; ${both}`]],
    ['deleted', 'deleted', service(), [`web: whole; ${both}`]],
    ['to no selector', 'modified', selectorless, [`web: whole; ${both}, mirrored`]],
    [
      'created without a selector',
      'modified',
      service({ name: 'db', selector: null }),
      [`db: whole; ${both}, mirrored`],
    ],
  ];
  test.each(cases)('%s', (...one) => {
    check(settled, one);
  });

  test('recreated under its name ends a wedge', () => {
    const { all, change } = prepared();
    const item = all.get('shop/web');
    if (item !== undefined) item.relabelled = new Set('x');
    change('modified', service({ labels: { a: '1' } }));
    expect(all.get('shop/web')?.relabelled.size).toBe(1);
    change('modified', service({ uid: 'new' }));
    expect(all.get('shop/web')?.relabelled.size).toBe(0);
  });
});

describe('a change of Endpoints', () => {
  const leader = { [annotation.leader]: 'b' };
  const notReady = endpoints({ subsets: [subset([address({ ready: false })])] });
  const cases: Case[] = [
    [
      'in an address: the endpoints controller does not wake',
      'modified',
      notReady,
      ['web: 10.0.0.1; mirrored'],
    ],
    ['in a label only', 'modified', endpoints({ labels: {} }), ['web: outputs; mirrored']],
  ];
  test.each(cases)('%s', (...one) => {
    check(settled, one);
  });

  test('is unseen if it is an edit, but not if it is a deletion', () => {
    const [edit] = prepared().change('modified', notReady);
    expect(edit).toMatchObject({ unseen: 'hand-edited', blindSpot: null });
    expect([...(edit?.writes ?? [])]).toEqual(['endpoints']);
    const [gone] = prepared().change('deleted', endpoints());
    expect(gone?.unseen).toBeNull();
    expect([...(gone?.wakes ?? [])].sort()).toEqual(['endpoints', 'mirrored']);
  });

  test('with a leader election record wakes no controller', () => {
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
    'in an endpoint',
    'modified',
    slice({ generation: 2, endpoints: [off] }),
    ['web: 10.0.0.1; none'],
  ],
  [
    'in the number of endpoints',
    'modified',
    slice({ generation: 2, endpoints: [endpoint(), two] }),
    ['web: 10.0.0.2; none'],
  ],
  [
    'in its ports: every address is evaluated',
    'modified',
    slice({ generation: 2, ports: [] }),
    ['web: 10.0.0.1; none'],
  ],
  [
    'in owners: the controller does not notice',
    'modified',
    slice({ owners: [] }),
    ['web: 10.0.0.1; hand-edited'],
  ],
  [
    'in annotations: the controller does not notice',
    'modified',
    slice({ annotations: { a: '1' } }),
    ['web: outputs; hand-edited'],
  ],
  // An API server raises the generation with every change of the content.
  [
    'in an endpoint with an unchanged generation',
    'modified',
    slice({ endpoints: [off] }),
    ['web: 10.0.0.1; none'],
  ],
  ['deleted', 'deleted', slice(), ['web: 10.0.0.1; none']],
];

describe('a change of a slice', () => {
  test.each(sliceCases)('%s', (...one) => {
    check(settled, one);
  });

  test.each([
    ['an empty slice', { endpoints: [], ports: [] }, 'web: outputs; service-recreated'],
    ['an empty slice with ports', { endpoints: [] }, 'web: outputs; none'],
    [
      'an empty slice with other labels',
      { endpoints: [], ports: [], labels: { ...sliceLabels, a: '1' } },
      'web: outputs; none',
    ],
    ['a slice with endpoints', { endpoints: [endpoint()] }, 'web: 10.0.0.1; none'],
  ])('the deletion of %s of an earlier Service', (_, more, want) => {
    const old = slice({ owners: [owner({ uid: 'old' })], ...more });
    check([...settled, old], ['', 'deleted', old, [want]]);
  });

  test('in its service-name label affects both Services', () => {
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

  test('is a write of the controller that manages the slice', () => {
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

// The live auditor on the simulated API server: random lives, and by hand those stories that went
// wrong when lives were random first. `npm run verify:lives` and `npm run simulate` run many more.

import { readFileSync } from 'node:fs';
import { join } from 'node:path';

import { describe, expect, test } from 'vitest';

import type { Resource } from '../../src/model/objects.ts';
import type { Simulation } from './auditing.ts';
import { auditSeed, createSimulation, settle } from './auditing.ts';
import { statusAnswer } from './server.ts';
import { sync } from './life.ts';
import { mutants } from './mutants.ts';
import { keep, soak } from './soak.ts';

test('random lives of an API server cause no wrong finding', async () => {
  const failed: string[] = [];
  const sums = { opened: 0, resolved: 0, found: 0, healed: 0 };
  for (let seed = 0; seed < 80; seed++) {
    const { violations, counts } = await auditSeed(seed);
    sums.opened += counts.opened;
    sums.resolved += counts.resolved;
    sums.found += counts.found;
    sums.healed += counts.healed;
    if (violations.length > 0) failed.push(`seed ${seed}: ${violations.slice(0, 3).join('\n')}`);
  }
  expect(failed).toEqual([]);
  expect(sums.opened).toBeGreaterThan(25);
  expect(sums.resolved).toBeGreaterThan(12);
  expect(sums.found).toBeGreaterThan(250);
  expect(sums.healed).toBeGreaterThan(8);
});

test('random lives cause no wrong finding with a stream per namespace', async () => {
  const failed: string[] = [];
  let found = 0;
  for (let seed = 0; seed < 30; seed++) {
    const { violations, counts } = await auditSeed(seed, undefined, ['shop', 'bank']);
    found += counts.found;
    if (violations.length > 0) failed.push(`seed ${seed}: ${violations.slice(0, 3).join('\n')}`);
  }
  expect(failed).toEqual([]);
  expect(found).toBeGreaterThan(250);
});

test.each([
  ['nothing names a Service whose creation was lost', 22365],
  ['an object that a stream owes came, went and came again', 23069],
])('a life in which %s goes well', async (_, seed) => {
  const { violations } = await auditSeed(seed);
  expect(violations).toEqual([]);
});

test('a life of two hours causes no wrong finding, and its past is forgotten', async () => {
  const hours: number[] = [];
  const { violations, counts, server, auditor } = await soak(2, 2, (passed) => {
    hours.push(passed);
  });
  expect(violations).toEqual([]);
  expect(hours).toEqual([1, 2]);
  expect(counts.opened).toBeGreaterThan(5);
  expect(server.objects.version()).toBeGreaterThan(1000);
  expect(server.asked.length).toBeLessThan(1000);
  // A longer life keeps as many, so its heap shows only other growth.
  expect(auditor.findings.resolved()).toHaveLength(keep.findings);
  expect(auditor.incidents.resolved()).toHaveLength(keep.incidents);
});

test.each(mutants)('the mutant "$name" finds its text once', ({ file, from }) => {
  const text = readFileSync(join(import.meta.dirname, '..', '..', file), 'utf8');
  expect(text.split(from)).toHaveLength(2);
});

interface Story {
  readonly sim: Simulation;
  /** Writes the pod, ready or not. */
  readonly pod: (isReady: boolean) => void;
  /** The controllers do what they must, of some outputs. */
  readonly work: (...outputs: ('endpoints' | 'endpointslices')[]) => void;
  readonly freeze: (...resources: Resource[]) => void;
}

/** One Service of one pod, as the controllers leave it; nothing happens by chance. */
async function story(): Promise<Story> {
  const work: Story['work'] = (...outputs) => {
    for (const output of outputs) sync(sim.truth.api, output, 's0');
  };
  const pod: Story['pod'] = (isReady) => {
    sim.server.objects.put('pods', {
      metadata: { name: 'p0', namespace: 'shop', labels: { app: 's0' } },
      spec: { nodeName: 'node-a', containers: [{ name: 'web' }] },
      status: {
        phase: 'Running',
        podIPs: [{ ip: '10.0.0.1' }],
        conditions: [{ type: 'Ready', status: isReady ? 'True' : 'False' }],
      },
    });
  };
  const sim = createSimulation(1, ({ server }) => {
    server.objects.put('nodes', { metadata: { name: 'node-a' }, status: {} });
    server.objects.put('services', {
      metadata: { name: 's0', namespace: 'shop' },
      spec: {
        type: 'ClusterIP',
        clusterIP: '10.96.0.9',
        ipFamilies: ['IPv4'],
        selector: { app: 's0' },
        ports: [{ name: 'http', port: 80, targetPort: 8080, protocol: 'TCP' }],
      },
    });
  });
  pod(true);
  work('endpoints', 'endpointslices');
  await sim.pass(1);
  return {
    sim,
    pod,
    work,
    freeze(...all) {
      for (const watch of sim.server.watches) if (all.includes(watch.resource)) watch.freeze();
    },
  };
}

const open = ({ sim }: Story): string[] => sim.auditor.findings.open().map(({ code }) => code);

/** Bookmarks of every stream come, and nothing else happens. */
const bookmarks = async ({ sim }: Story): Promise<void> => {
  await sim.pass(60);
};

/** The auditor asks for the next read. */
async function awaitRead({ sim }: Story): Promise<void> {
  const { counts } = sim.auditor.confirmer;
  const { asked } = counts;
  while (counts.asked === asked) await sim.pass(0.5);
}

describe('what was false once', () => {
  test('a connection hangs just after all streams have come to one version', async () => {
    const one = await story();
    const { sim, pod, work, freeze } = one;
    await bookmarks(one);
    await sim.pass(57.9);
    pod(false);
    await sim.pass(2); // bookmarks: all streams have come to the pod's version
    freeze('pods', 'services', 'endpoints', 'endpointslices', 'nodes');
    work('endpoints', 'endpointslices');
    await sim.pass(settle + 5);
    expect(open(one)).toEqual([]);
  });

  test('a stream hangs while others go on: a read shows that it lags', async () => {
    const one = await story();
    const { sim, pod, work, freeze } = one;
    pod(false);
    await sim.pass(0.1);
    freeze('endpoints', 'endpointslices');
    work('endpoints', 'endpointslices');
    await sim.pass(settle + 1);
    pod(false);
    await sim.pass(1);
    expect(open(one)).toEqual([]);
  });

  test('it was well for a while, as only a late event shows', async () => {
    const one = await story();
    const { sim, pod, work } = one;
    sim.lags.set('endpointslices', 7);
    pod(false);
    await sim.pass(0.5);
    work('endpoints', 'endpointslices');
    await sim.pass(5);
    sim.lags.clear();
    sim.server.objects.remove('endpointslices', 'shop/s0-ipv4');
    await sim.pass(settle - 2);
    // The deletion came last; before it, the slice was as the pod is.
    expect(open(one)).toEqual([]);
    await sim.pass(settle);
    expect(open(one)).not.toEqual([]);
  });

  test('it was well for a while in a gap', async () => {
    const one = await story();
    const { sim, pod, work, freeze } = one;
    pod(false);
    await sim.pass(settle / 2);
    freeze('endpointslices');
    work('endpoints', 'endpointslices');
    await sim.pass(1);
    pod(true); // and the controller writes nothing
    sim.server.objects.compact();
    for (const { resource, stream } of sim.server.watches) {
      if (resource === 'endpointslices') stream.end();
    }
    await sim.pass(settle - 1);
    expect(open(one)).toEqual([]);
    await sim.pass(4);
    expect(open(one)).not.toEqual([]);
  });

  test('reads fail while a stream lags: what comes after the window is older', async () => {
    const one = await story();
    const { sim, pod, work } = one;
    sim.server.bookmarkEvery = 5;
    await bookmarks(one);
    sim.server.faults.before = ({ request }) =>
      request.path.includes('/namespaces/') ? statusAnswer(500, 'InternalError') : null;
    sim.lags.set('endpointslices', 8);
    pod(false);
    work('endpoints');
    await sim.pass(settle - 0.3);
    work('endpointslices');
    await sim.pass(20);
    expect(sim.counts.opened).toBe(0);
    expect(sim.violations).toEqual([]);
  });

  test('a permission is taken away: what was seen before says nothing', async () => {
    const one = await story();
    const { sim, pod, work } = one;
    for (const verb of ['list', 'watch']) sim.server.faults.forbidden.add(`${verb} pods`);
    sim.server.reset();
    await sim.pass(30);
    expect(sim.attached.watches.get('pods')?.state).toBe('off');
    pod(false);
    work('endpoints', 'endpointslices');
    await sim.pass(60);
    expect(open(one)).toEqual([]);
    expect([...sim.auditor.stale()]).toContain('pods');
    expect(sim.violations).toEqual([]);
  });
});

test('a difference that ended in a version that came late opens after a new window', async () => {
  const one = await story();
  const { sim, pod } = one;
  pod(false);
  await sim.pass(settle - 3);
  for (const { resource, spoils } of sim.server.watches) {
    if (resource === 'pods') spoils.push('swapped');
  }
  pod(true); // the stream delivers it after the next version
  await sim.pass(2);
  pod(false);
  await sim.pass(settle - 1);
  expect(open(one)).toEqual([]);
  await sim.pass(4);
  expect(open(one)).not.toEqual([]);
  expect(sim.violations).toEqual([]);
});

describe('what was missed or late once', () => {
  test('a second difference of a Service opens soon after the first', async () => {
    const one = await story();
    const { sim, pod, work } = one;
    pod(false);
    work('endpoints');
    await sim.pass(1.5);
    sim.server.objects.remove('endpoints', 'shop/s0');
    await sim.pass(settle - 1.4);
    expect(open(one)).toEqual(['slice-conditions-different']);
    await sim.pass(3.4);
    expect(open(one).sort()).toEqual(['endpoints-missing', 'slice-conditions-different']);
  });

  test('a read takes long that began before: the finding opens after it', async () => {
    const one = await story();
    const { sim, pod } = one;
    sim.readSeconds = 14;
    await awaitRead(one);
    sim.readSeconds = 0.005;
    pod(false);
    await sim.pass(settle + 3);
    expect(open(one)).toEqual([]);
    await sim.pass(2);
    expect(open(one)).not.toEqual([]);
    expect(sim.violations).toEqual([]);
  });

  test('a read hangs that began before: the finding opens after it', async () => {
    const one = await story();
    const { sim, pod } = one;
    const { faults } = sim.server;
    const { before } = faults;
    faults.before = ({ request }) => (request.path.includes('/namespaces/') ? 'hang' : null);
    await awaitRead(one);
    await sim.pass(0.1);
    faults.before = before;
    pod(false);
    await sim.pass(settle + 3.5);
    expect(open(one)).toEqual([]);
    await sim.pass(4);
    expect(open(one)).not.toEqual([]);
    expect(sim.violations).toEqual([]);
  });

  test('reads fail for five minutes: the streams decide', async () => {
    const one = await story();
    const { sim, pod } = one;
    sim.server.faults.before = ({ request }) =>
      request.path.includes('/namespaces/') ? statusAnswer(500, 'InternalError') : null;
    pod(false);
    await sim.pass(settle + 1);
    expect(open(one)).toEqual([]);
    await sim.pass(285);
    expect(open(one)).toEqual([]);
    await bookmarks(one);
    await bookmarks(one);
    expect(open(one).length).toBeGreaterThan(0);
  });
});

describe('a lost event', () => {
  const lose = ({ sim }: Story, ...lost: Resource[]): void => {
    for (const { resource, spoils } of sim.server.watches) {
      if (lost.includes(resource)) spoils.push('lost');
    }
  };
  const relists = ({ sim }: Story): Record<string, number> =>
    Object.fromEntries(
      [...sim.attached.watches].flatMap(([resource, { counters }]) =>
        counters.relists.gap === 0 ? [] : [[resource, counters.relists.gap]],
      ),
    );
  const zone = ({ sim }: Story, value: string): void => {
    const metadata = { name: 'node-a', labels: { 'topology.kubernetes.io/zone': value } };
    sim.server.objects.put('nodes', { metadata, status: {} });
  };
  const second = ({ sim }: Story): void => {
    const raw = sim.server.objects.get('pods', 'shop/p0');
    if (raw === undefined) throw new Error('No pod');
    const metadata = { ...raw.metadata, name: 'p1' };
    sim.server.objects.put('pods', {
      ...raw,
      metadata,
      status: { ...(raw.status as object), podIPs: [{ ip: '10.0.0.2' }] },
    });
  };

  const stories: [string, Resource, (one: Story) => void][] = [
    ['of a changed pod', 'pods', ({ pod }) => pod(false)],
    ['of a deleted pod', 'pods', ({ sim }) => sim.server.objects.remove('pods', 'shop/p0')],
    ['of a new pod', 'pods', second],
    [
      'of a Service with another port',
      'services',
      ({ sim }) => {
        const raw = sim.server.objects.get('services', 'shop/s0');
        const ports = [{ name: 'http', port: 80, targetPort: 9090, protocol: 'TCP' }];
        if (raw !== undefined) {
          sim.server.objects.put('services', { ...raw, spec: { ...(raw.spec as object), ports } });
        }
      },
    ],
  ];
  test.each(stories)('%s opens no finding, and leads to a list', async (_name, resource, act) => {
    const one = await story();
    await bookmarks(one);
    lose(one, resource);
    act(one);
    one.work('endpoints', 'endpointslices');
    for (let passed = 0; passed < 5400; passed += 60) {
      await one.sim.pass(60);
      expect(open(one)).toEqual([]);
    }
    expect(relists(one)).toEqual({ [resource]: 1 });
    expect(one.sim.violations).toEqual([]);
  });

  test.each(['endpoints', 'endpointslices'] as const)(
    'of %s opens no finding, and leads to a list',
    async (resource) => {
      const one = await story();
      lose(one, resource);
      one.pod(false);
      one.work('endpoints', 'endpointslices');
      for (let passed = 0; passed < 600; passed += 10) {
        await one.sim.pass(10);
        expect(open(one)).toEqual([]);
      }
      expect(relists(one)).toEqual({ [resource]: 1 });
    },
  );

  test('of a Node opens no finding, and leads to a list', async () => {
    const one = await story();
    lose(one, 'nodes');
    zone(one, 'zone-b');
    one.pod(false);
    one.work('endpoints', 'endpointslices');
    await one.sim.pass(120);
    expect(one.sim.counts.opened).toBe(0);
    expect(relists(one)).toEqual({ nodes: 1 });
  });

  test('that a read has shown restarts the clock when a later version comes', async () => {
    const one = await story();
    const { sim, pod, work } = one;
    const before = sim.server.objects.get('endpointslices', 'shop/s0-ipv4');
    if (before === undefined) throw new Error('No slice');
    pod(false);
    await sim.pass(0.5);
    lose(one, 'endpointslices');
    work('endpoints', 'endpointslices');
    await sim.pass(settle); // a read shows that the slice is right
    sim.server.objects.put('endpointslices', before);
    await sim.pass(settle - 1);
    expect(open(one)).toEqual([]);
    await sim.pass(3);
    expect(open(one)).toEqual(['slice-conditions-different']);
    expect(sim.violations).toEqual([]);
  });

  test('that ends a difference after its read does not keep the finding from opening', async () => {
    const one = await story();
    const { sim, pod, work } = one;
    sim.server.bookmarkEvery = 1;
    await bookmarks(one);
    pod(false);
    await sim.pass(settle - 1);
    sim.lags.set('pods', 5);
    second(one); // the read shows it, and its stream does not
    await sim.pass(2);
    lose(one, 'endpoints', 'endpointslices');
    work('endpoints', 'endpointslices');
    await sim.pass(5);
    expect(open(one)).toContain('slice-conditions-different');
    sim.lags.clear();
    await sim.pass(120);
    expect(open(one)).toEqual([]);
    expect(sim.violations).toEqual([]);
  });

  test('of a pod that a Service selects later opens a finding if reads fail', async () => {
    const one = await story();
    const { sim } = one;
    sim.readable = false;
    sim.server.bookmarkEvery = 1;
    await bookmarks(one);
    lose(one, 'pods');
    for (const [resource, key] of [
      ['pods', 'shop/p0'],
      ['services', 'shop/s0'],
    ] as const) {
      const raw = sim.server.objects.get(resource, key);
      if (raw === undefined) throw new Error('No object');
      const metadata = { ...raw.metadata, name: 's1', labels: { app: 's1' } };
      const spec = { ...(raw.spec as object), selector: { app: 's1' } };
      sim.server.objects.put(resource, { ...raw, metadata, spec });
    }
    for (const output of ['endpoints', 'endpointslices'] as const) {
      sync(sim.truth.api, output, 's1');
    }
    await sim.pass(settle + 290);
    expect(open(one)).toEqual([]);
    await sim.pass(20);
    expect(open(one)).toContain('slice-endpoint-unexpected');
    expect(sim.violations).toEqual([]);
  });

  test('that hides a difference is noticed, and the difference is found', async () => {
    const one = await story();
    lose(one, 'pods');
    one.pod(false); // and the controllers do nothing
    await one.sim.pass(240);
    expect(relists(one)).toEqual({ pods: 1 });
    expect(open(one).length).toBeGreaterThan(0);
  });

  test('that hides the end of a difference is noticed, and the finding is resolved', async () => {
    const one = await story();
    one.pod(false);
    await one.sim.pass(settle + 5);
    expect(open(one).length).toBeGreaterThan(0);
    lose(one, 'endpoints', 'endpointslices');
    one.work('endpoints', 'endpointslices');
    await one.sim.pass(240);
    expect(open(one)).toEqual([]);
  });
});

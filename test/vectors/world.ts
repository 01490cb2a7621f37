// A case of a vector file as a settled cluster that is followed from step to step: the real store,
// the real service auditor, with a settle window that every step outlasts. Within a step the input
// changes first and the outputs after it; in which order things really happened is not in the file.

import { createReadStream, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { createGunzip } from 'node:zlib';

import { expect } from 'vitest';

import type { Condition, PodAndService } from '../../src/audit/explain/conditions.ts';
import {
  decidingCondition,
  entryStates,
  evaluateConditions,
  expectedStates,
} from '../../src/audit/explain/conditions.ts';
import { createPendingFindings } from '../../src/audit/pending/pending.ts';
import type { ServiceAuditor } from '../../src/audit/service/auditor.ts';
import { createServiceAuditor } from '../../src/audit/service/auditor.ts';
import type { AuditContext } from '../../src/audit/service/cache.ts';
import { nodeOf } from '../../src/audit/service/cache.ts';
import { project } from '../../src/cluster/decode/json-objects.ts';
import type { Store } from '../../src/cluster/store/store.ts';
import { createStore } from '../../src/cluster/store/store.ts';
import type { AnyObject, Pod, Resource, Service, WatchEvent } from '../../src/model/objects.ts';
import { resources } from '../../src/model/objects.ts';
import { runToEnd } from '../../src/model/run-to-end.ts';
import { defaultMaxEndpointsPerSlice } from '../../src/shadow/endpointslice.ts';
import type { Release } from '../../src/shadow/release.ts';
import { newestRelease, releaseOf } from '../../src/shadow/release.ts';
import { node, servicePort } from '../build.ts';

export type Raw = Record<string, unknown>;

/** The raw objects of one step, as a LIST gives them. */
export type Step = Readonly<Record<Resource, readonly Raw[]>>;

export interface World {
  readonly store: Store;
  readonly serviceAuditor: ServiceAuditor;
  readonly context: AuditContext;
  /** Steps taken so far. */
  steps: number;
  /** The objects of the last step by resource and key, with their text. */
  readonly lastObjects: Map<string, { readonly text: string; readonly object: AnyObject }>;
  /** Keys of the objects that the last step changed. */
  changed: Set<string>;
}

export function createWorld(release: Release): World {
  const store = createStore(new Set(resources));
  const context: AuditContext = {
    listers: store.listers,
    release,
    maxEndpointsPerSlice: defaultMaxEndpointsPerSlice,
  };
  const settle = createPendingFindings({ window: 1, keep: 0 });
  const serviceAuditor = createServiceAuditor({ context, settle });
  return { store, serviceAuditor, context, steps: 0, lastObjects: new Map(), changed: new Set() };
}

/** Takes the world to its next step; throws when an object cannot be read. */
export function takeStep(world: World, step: Step): void {
  const at = world.steps * 10;
  const events = eventsOf(world, step, at);
  if (world.steps === 0) {
    for (const event of events) world.store.apply(event);
    runToEnd(world.serviceAuditor.begin(at));
  } else {
    for (const event of events) {
      const change = world.store.apply(event);
      if (change !== null) world.serviceAuditor.apply({ ...change, gap: true });
    }
  }
  world.steps++;
  world.serviceAuditor.settle.advance(at + 5);
}

/** As the decoder makes it. */
function keyOf({ metadata }: Raw): string {
  const { namespace, name } = metadata as { readonly namespace?: string; readonly name: string };
  return namespace === undefined ? name : `${namespace}/${name}`;
}

const texts = new WeakMap<Raw, string>();

/** All cases of a step have the same Nodes; tests edit other objects. */
function textOf(resource: Resource, raw: Raw): string {
  const text = texts.get(raw) ?? JSON.stringify(raw);
  if (resource === 'nodes') texts.set(raw, text);
  return text;
}

function eventsOf(world: World, step: Step, at: number): WatchEvent[] {
  const events: WatchEvent[] = [];
  const seen = new Set<string>();
  world.changed = new Set();
  for (const resource of resources) {
    for (const raw of step[resource]) {
      const key = `${resource} ${keyOf(raw)}`;
      const text = textOf(resource, raw);
      const before = world.lastObjects.get(key);
      seen.add(key);
      if (before?.text === text) continue;
      const projection = project(resource, raw, at);
      if (projection.problem !== undefined) throw new Error(projection.problem.message);
      // Labelled corruptions keep the version of the object they corrupt, so versions show nothing.
      const object = { ...projection.object, resourceVersion: '' };
      world.lastObjects.set(key, { text, object });
      world.changed.add(key);
      events.push({ resource, type: before === undefined ? 'added' : 'modified', object, at });
    }
  }
  for (const [key, { object }] of world.lastObjects) {
    if (seen.has(key)) continue;
    world.lastObjects.delete(key);
    world.changed.add(key);
    const resource = key.slice(0, key.indexOf(' ')) as Resource;
    events.push({ resource, type: 'deleted', object, at });
  }
  const order = (event: WatchEvent): number => resources.indexOf(event.resource);
  return events.sort((a, b) => order(a) - order(b));
}

// Every pair of a pod and a Service of the vector files: of each case line, the Services and the
// pods of its namespace with the Nodes of its step, all combinations. Also checks the conditions
// of a pair.

interface Line {
  readonly kind: string;
  readonly version?: string;
  readonly case: string;
  readonly step: number;
  readonly items: Raw[];
  readonly services: Raw[];
  readonly pods: Raw[];
  readonly endpoints: Raw[];
  readonly endpointSlices: Raw[];
}

/** The vector files of recorded states, without those of labelled faults. */
export const caseFiles: readonly string[] = readdirSync(join(import.meta.dirname, 'data')).filter(
  (name) => name.endsWith('.ndjson.gz') && !name.includes('faults'),
);

/** The worlds of all cases after each of their steps, one at a time. */
export async function* worldsOf(name: string): AsyncGenerator<World> {
  const file = createReadStream(join(import.meta.dirname, 'data', name)).pipe(createGunzip());
  let release: Release = newestRelease;
  const nodes = new Map<number, readonly Raw[]>();
  const worlds = new Map<string, World>();
  for await (const text of createInterface({ input: file, crlfDelay: Infinity })) {
    if (text === '') continue;
    const line = JSON.parse(text) as Line;
    if (line.kind === 'header') release = releaseOf(line.version ?? '') ?? release;
    else if (line.kind === 'nodes') nodes.set(line.step, line.items);
    else if (line.kind === 'case') {
      const world = worlds.get(line.case) ?? createWorld(release);
      worlds.set(line.case, world);
      const { services, pods, endpoints, endpointSlices: endpointslices } = line;
      takeStep(world, {
        nodes: nodes.get(line.step) ?? [],
        services,
        pods,
        endpoints,
        endpointslices,
      });
      yield world;
    }
  }
}

/** Every pod with every Service of the world. */
export function* pairsOf({ context: { listers } }: World): Generator<PodAndService> {
  for (const service of listers.services.values()) {
    for (const pod of listers.pods.values()) {
      yield { service, pod, node: nodeOf(listers, pod) };
    }
  }
}

/** Calls `expect` only for a difference: 100,000 calls would need most of the time. */
export function same<T extends string | boolean>(got: T, want: T, text: () => string): void {
  if (got !== want) expect(got, text()).toBe(want);
}

/**
 * Compares the conditions of a pair with its desired state, also after the changes that they
 * propose. `counts` counts the comparisons.
 */
export function checkConditions(
  pair: PodAndService,
  release: Release,
  counts: Record<string, number>,
): void {
  const evaluated = evaluateConditions(pair, release);
  const failed = evaluated.conditions.filter(({ reason }) => reason.mark === 'no');
  const name = (): string => `${pair.service.key} ${pair.pod.key}`;
  counts.pairs = (counts.pairs ?? 0) + 1;
  for (const [place, state] of expectedStates(pair, release)) {
    const effects = evaluated.conditions.map((condition) => condition.effects.get(place));
    const worst = entryStates.find((known) => effects.includes(known)) ?? 'ready';
    const at = (): string => `${name()} at ${place}`;
    same(worst, state, at);
    const deciding = decidingCondition(evaluated.conditions, [place, state]);
    same(deciding === null, state === 'ready', at);
    if (deciding === null) continue;
    counts[deciding.name] = (counts[deciding.name] ?? 0) + 1;
    counts.counterfactuals = (counts.counterfactuals ?? 0) + 1;
    if (failed.length === 1) counts.alone = (counts.alone ?? 0) + 1;
    // After all other changes, this condition alone keeps the pod from being ready.
    const others = failed.filter((condition) => condition !== deciding).reduce(fixCondition, pair);
    const text = (): string => `${at()}: ${deciding.name}`;
    const stateOf = (changed: PodAndService) =>
      expectedStates(changed, release).get(place) ?? 'absent';
    same(stateOf(others) === 'ready', false, text);
    same(stateOf(fixCondition(others, deciding)), 'ready', text);
    const { conditions, expected } = evaluateConditions(fixCondition(pair, deciding), release);
    const after = decidingCondition(conditions, [place, expected.get(place) ?? 'absent']);
    same(after?.reason.text === deciding.reason.text, false, text);
  }
  const fixed = failed.reduce(fixCondition, pair);
  const states = [...new Set(expectedStates(fixed, release).values())];
  same(states.join(), 'ready', name);
}

// Applies the change after which a failed condition passes, so that the explanation is compared
// with the desired state of the changed pod and Service.

const withPod = (pair: PodAndService, change: Partial<Pod>): PodAndService => ({
  ...pair,
  pod: { ...pair.pod, ...change },
});

const withService = (pair: PodAndService, change: Partial<Service>): PodAndService => ({
  ...pair,
  service: { ...pair.service, ...change },
});

/** Names the target of the Service port that the text of a failed port condition begins with. */
function fixPort(pair: PodAndService, text: string): PodAndService {
  const { service, pod } = pair;
  if (service.ports.length === 0) return withService(pair, { ports: [servicePort()] });
  const port = service.ports.find((known) => {
    const name = `${known.name === '' ? '' : `${known.name} `}${known.port}/${known.protocol}`;
    return text.slice('port '.length).split(/, |: /)[0] === name;
  });
  if (port === undefined) throw new Error(`No port of ${text}`);
  const { targetPort, protocol } = port;
  const added = { name: String(targetPort), protocol, port: port.port, sidecar: false };
  return withPod(pair, { ports: [...pod.ports, added] });
}

/** The pair after the change that a failed condition proposes. */
function fixCondition(pair: PodAndService, { name, reason }: Condition): PodAndService {
  const { service, pod } = pair;
  switch (name) {
    case 'type':
      return withService(pair, { type: 'ClusterIP' });
    case 'selector': {
      const selector = { app: 'fixed' };
      const labels = { ...pod.labels, ...selector };
      return withPod(withService(pair, { selector }), { labels });
    }
    case 'namespace':
      return withPod(pair, { namespace: service.namespace });
    case 'labels':
      return withPod(pair, { labels: { ...pod.labels, ...service.selector } });
    case 'phase':
      return withPod(pair, { terminal: false });
    case 'address':
      return withPod(pair, { ips: ['192.0.2.1', '2001:db8::1'] });
    case 'family': {
      const ip = reason.text.includes('no IPv6 address') ? '2001:db8::1' : '192.0.2.1';
      return withPod(pair, { ips: [...pod.ips, ip] });
    }
    case 'node':
      return { ...withPod(pair, { node: pod.node === '' ? 'a-node' : pod.node }), node: node() };
    case 'deletion':
      return withPod(pair, { deleting: false });
    case 'port':
      return fixPort(pair, reason.text);
    case 'readiness':
      return withPod(pair, { ready: true });
  }
}

// A checkpoint: the state of an auditor as lines of a recording, from which an audit continues. The
// snapshot is taken at once: lists of objects, which never change. The lines are made later.
//
//   header, watch states, objects (SYNC), zones, what cannot be read, states of Services and nodes,
//   synced

import { openFindingKey } from '../audit/finding/catalogue.ts';
import { pastOf } from '../audit/past.ts';
import { saveService } from '../audit/service/checkpoint.ts';
import type { Auditor } from '../auditor/auditor.ts';
import { createPodReferences, type PodReferences } from '../cluster/files/pod-endpoints.ts';
import { createRecorder } from '../cluster/files/recorder.ts';
import type { Redactor } from '../cluster/files/redactor.ts';
import { similarPod } from '../cluster/files/similar-pod.ts';
import type {
  AnyObject,
  Endpoint,
  Endpoints,
  EndpointSlice,
  ObjectOf,
  Pod,
  Resource,
} from '../model/objects.ts';
import { label, resources } from '../model/objects.ts';
import type { CheckpointLines } from './recorder.ts';
import { redactKey, redactState } from './redact-state.ts';

const json = (fields: object): string => `${JSON.stringify(fields)}\n`;

/** Whether objects of a namespace belong to a part of a cluster; `null`: it is not known. */
export type Includes = (resource: Resource, namespace: string | null) => boolean;

/** What a checkpoint has of the state: all of it, or that of some objects, and without names. */
export interface CheckpointContent {
  readonly includes: Includes;
  readonly redactor: Redactor | null;
}

const everything: CheckpointContent = { includes: () => true, redactor: null };

/** The state of an auditor now; `at` is the time of its lines. `null` before the first audit. */
export function checkpointOf(
  auditor: Auditor,
  at: number,
  content: CheckpointContent = everything,
): CheckpointLines | null {
  const snapshot = snapshotOf(auditor, at, content);
  return snapshot && { at, parts: linesOf(snapshot, at, content.redactor) };
}

function snapshotOf(auditor: Auditor, at: number, { includes, redactor }: CheckpointContent) {
  const services = auditor.serviceAuditor();
  if (services === null) return null;
  const { store, findings, progress } = auditor;
  const isWhole = includes === everything.includes;
  const present = resources.filter((resource) => store.listers.knows(resource));
  const openedAt = new Map(findings.open().map((it) => [openFindingKey(it), it.openedAt]));
  const audits = [...services.audited.values()].filter(({ record }) =>
    includes('services', record.namespace),
  );
  const states = audits.map((audit) => {
    const { key } = audit.record;
    const saved = saveService(audit, openedAt);
    const [service, state] =
      redactor === null ? [key, saved] : [redactKey(key, redactor), redactState(saved, redactor)];
    const line = { kind: 'service-state', at, service, state };
    // Differences change later. Most Services have none, and thousands of texts take long.
    return audit.items.size > 0 ? json(line) : line;
  });
  const watches = [...progress.inputs].map(([resource, { state, blindSince }]) => ({
    kind: 'watch' as const,
    at: Math.min(blindSince ?? at, at),
    resource,
    state,
  }));
  watches.sort((a, b) => a.at - b.at);
  const objects = present.map((resource) => {
    const all: readonly AnyObject[] = [...store.objects[resource].values()];
    const included = isWhole ? all : all.filter((it) => includes(resource, it.namespace));
    return [resource, included] as const;
  });
  const unreadable = [...services.unreadable.values()];
  const header = {
    kind: 'header' as const,
    at: watches[0]?.at ?? at,
    kubernetes: auditor.kubernetes(),
    resources: present,
  };
  const { settle, maxEndpointsPerSlice, release } = auditor.options;
  return {
    isWhole,
    header,
    settings: { settle, maxEndpointsPerSlice, minor: release?.minor ?? null },
    watches,
    objects,
    unreadable: unreadable.filter((it) => includes(it.resource, it.namespace)),
    zones: [...store.listers.zonesSeen].map((zone) => redactor?.name(zone) ?? zone),
    /** Lines, or what they are made of. */
    states,
    // A part of a cluster, and one without names, has no nodes.
    nodes: isWhole ? nodeLines(auditor, at) : [],
    // And its incidents are those of the part.
    past: isWhole ? pastOf(auditor) : [],
  };
}

type SavedNodes = NonNullable<ReturnType<Auditor['savedNodes']>>;

/** The line of what is known of a node; `null`: it was removed. */
export const nodeLine = (
  node: string,
  state: ReturnType<SavedNodes['saved']>,
  at: number,
): string => json({ kind: 'node-state', at, node, state });

function nodeLines(auditor: Auditor, at: number): string[] {
  const nodes = auditor.savedNodes();
  return nodes === null ? [] : [...nodes.names()].map((it) => nodeLine(it, nodes.saved(it), at));
}

type Snapshot = NonNullable<ReturnType<typeof snapshotOf>>;

function* linesOf(snapshot: Snapshot, at: number, redactor: Redactor | null): Generator<string> {
  const { header, settings, watches, objects, unreadable, isWhole } = snapshot;
  const recorder = createRecorder(redactor);
  yield recorder.line(header, { settings });
  for (const entry of watches) yield recorder.line(entry);
  /** The latest that was written whole. A bundle has only whole objects. */
  let latest: Pod | null = null;
  const references = createPodReferences();
  for (const placed of besideTheirPods(objects)) {
    if (placed === null) {
      yield '';
      continue;
    }
    const [resource, object] = placed;
    const pod = resource === 'pods' && isWhole ? (object as Pod) : null;
    const fields = pod && latest && similarPod(pod, latest);
    if (isWhole) references.add(resource, object);
    if (fields !== null) {
      yield json({ kind: 'pod', at: recorder.timeOf(at), ...fields });
      continue;
    }
    latest = pod ?? latest;
    const { rest, pods } = isWhole ? splitObject(references, object) : { rest: object };
    const event = { resource, type: 'added' as const, object: rest, at };
    yield recorder.line({ kind: 'event', event }, { ...timesOf(object), pods });
  }
  for (const lost of unreadable) {
    const { resource, namespace, isForbidden } = lost;
    yield recorder.line(
      isForbidden === true && namespace !== null
        ? { kind: 'access', at, resource, namespace, permitted: false }
        : { kind: 'unreadable', at, type: null, lost },
    );
  }
  yield json({ kind: 'zones', at, zones: snapshot.zones });
  for (const state of snapshot.states) yield typeof state === 'string' ? state : json(state);
  yield* snapshot.nodes;
  for (const [part, state] of snapshot.past) yield json({ kind: 'audit-state', at, part, state });
  // The audit begins with the last list that it waits for. A later one would begin it again,
  // without the states of Services. It does not wait for a resource that may not be read any more.
  const off = new Set(watches.flatMap((it) => (it.state === 'off' ? it.resource : [])));
  const present = objects.map(([resource]) => resource);
  const ordered = present.toSorted((a, b) => Number(off.has(b)) - Number(off.has(a)));
  for (const resource of ordered) yield recorder.line({ kind: 'synced', at, resource });
}

/** An output with references to its pods; other objects whole. */
function splitObject(references: PodReferences, object: AnyObject) {
  // A reader would compute the size from the line, which has only a part of the object.
  const hasSize = 'bytes' in object && object.bytes !== null;
  return hasSize ? references.split(object) : { rest: object };
}

type ObjectLists = readonly (readonly [Resource, readonly AnyObject[]])[];

/** `null`: other work may run. */
type PlacedObject = readonly [Resource, AnyObject] | null;

/**
 * All objects, with the pods of a Service just before its Endpoints and slices, which refer to
 * them: only to pods of their namespace, and by the Nodes before.
 */
function* besideTheirPods(objects: ObjectLists): Generator<PlacedObject> {
  const lists = new Map<Resource, readonly AnyObject[]>(objects);
  const listOf = <R extends Resource>(resource: R): readonly ObjectOf[R][] =>
    (lists.get(resource) ?? []) as readonly ObjectOf[R][];
  const groupsOf = <R extends Resource>(resource: R) =>
    Map.groupBy(listOf(resource), ({ namespace }) => namespace);
  for (const node of listOf('nodes')) yield ['nodes', node];
  for (const service of listOf('services')) yield ['services', service];
  const [pods, endpoints] = [groupsOf('pods'), groupsOf('endpoints')];
  const slices = groupsOf('endpointslices');
  for (const name of new Set([...pods.keys(), ...endpoints.keys(), ...slices.keys()])) {
    yield* inNamespace(pods.get(name) ?? [], endpoints.get(name) ?? [], slices.get(name) ?? []);
  }
}

/** The pods that are put into a map in one turn. */
const mostAtOnce = 4096;

function* inNamespace(
  podList: readonly Pod[],
  endpointsList: readonly Endpoints[],
  sliceList: readonly EndpointSlice[],
): Generator<PlacedObject> {
  // By their names alone, since a key would be a new text for each endpoint.
  const pods = new Map<string, Pod>();
  for (const pod of podList) {
    pods.set(pod.name, pod);
    if (pods.size % mostAtOnce === 0) yield null;
  }
  const podsOf = function* (
    endpoints: readonly Pick<Endpoint, 'target'>[],
  ): Generator<PlacedObject> {
    for (const { target } of endpoints) {
      const pod = target === null ? undefined : pods.get(target.name);
      if (pod === undefined || pod.namespace !== target?.namespace) continue;
      pods.delete(pod.name);
      yield ['pods', pod];
    }
  };
  const slicesOf = function* (list: readonly EndpointSlice[]): Generator<PlacedObject> {
    for (const slice of list) {
      yield* podsOf(slice.endpoints);
      yield ['endpointslices', slice];
    }
  };
  const slices = Map.groupBy(sliceList, ({ labels }) => labels[label.serviceName] ?? '');
  for (const endpoints of endpointsList) {
    for (const { addresses } of endpoints.subsets) yield* podsOf(addresses);
    yield ['endpoints', endpoints];
    yield* slicesOf(slices.get(endpoints.name) ?? []);
    slices.delete(endpoints.name);
  }
  for (const list of slices.values()) yield* slicesOf(list);
  for (const pod of pods.values()) yield ['pods', pod];
}

/** When this version arrived, and since when a pod has its addresses. */
const timesOf = (object: AnyObject) => ({
  ...('at' in object && { arrived: object.at }),
  ...('ipsSince' in object && { ipsSince: object.ipsSince }),
});

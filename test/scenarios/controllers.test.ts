// Holds the simple controllers of the scenarios against what real ones wrote (test/vectors/data):
// from the Services, pods and Nodes of every recorded case they must write the same endpoints. They
// know no history, so the few cases in which upstream's blind spots show may differ, and the share
// is bounded; topology hints by annotation, truncation, and addresses that one Endpoints object
// lists twice are left out, as api.ts leaves them out.

import { createReadStream, existsSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { createGunzip } from 'node:zlib';

import { expect, test } from 'vitest';

import { canonicalIP } from '../../src/model/ip.ts';
import type {
  Api,
  ApiObject,
  EndpointsObject,
  NodeObject,
  PodObject,
  PortEntry,
  ServiceObject,
  SliceObject,
} from './api.ts';
import { keyOf, syncEndpoints, syncMirror, syncSlices } from './api.ts';

interface CaseLine {
  readonly kind: 'case';
  readonly case: string;
  readonly step: number;
  readonly services: ServiceObject[];
  readonly pods: PodObject[];
  readonly endpoints: EndpointsObject[];
  readonly endpointSlices: SliceObject[];
}

type Line =
  | CaseLine
  | { readonly kind: 'nodes'; readonly step: number; readonly items: NodeObject[] }
  | { readonly kind: 'header' };

const data = join(import.meta.dirname, '..', 'vectors', 'data');
const files = [
  ['v1.30.14-core.ndjson.gz', 30],
  ['v1.33.13-core.ndjson.gz', 33],
  ['v1.36.3-core.ndjson.gz', 36],
] as const;

async function* linesOf(file: string): AsyncGenerator<Line> {
  const input = createReadStream(file).pipe(createGunzip());
  for await (const text of createInterface({ input })) yield JSON.parse(text) as Line;
}

/** Reads from the objects of a case, and keeps apart what is written. */
function recordedApi(objects: ReadonlyMap<string, ApiObject>): Api & { written: SliceObject[] } {
  const written = new Map<string, ApiObject>();
  return {
    now: 0,
    get: (resource, key) =>
      (written.get(`${resource} ${key}`) ?? objects.get(`${resource} ${key}`)) as never,
    list: (resource) =>
      [...objects]
        .filter(([place]) => place.startsWith(`${resource} `))
        .map(([, object]) => object) as never,
    put(resource, draft) {
      const metadata = { ...draft.metadata, uid: `new-${written.size}` };
      const object = { ...draft, metadata };
      written.set(`${resource} ${keyOf(metadata)}`, object as never);
      return object as never;
    },
    remove: () => false,
    uid: () => null,
    serviceKeys: new Set(),
    takeEvents: () => [],
    get written() {
      return [...written.values()].filter(({ kind }) => kind === 'EndpointSlice') as SliceObject[];
    },
  };
}

const portText = ({ name = '', port, protocol, appProtocol = '' }: PortEntry): string =>
  `${name} ${port} ${protocol} ${appProtocol}`;

/** What Endpoints say, address by address and port by port, whatever the packing. */
function endpointsText(endpoints: EndpointsObject | undefined): string[] {
  const lines = new Set<string>();
  const { labels = {} } = endpoints?.metadata ?? {};
  if (endpoints !== undefined) lines.add(JSON.stringify(Object.entries(labels).sort()));
  for (const { addresses = [], notReadyAddresses = [], ports } of endpoints?.subsets ?? []) {
    for (const address of [...addresses, ...notReadyAddresses]) {
      const { ip, nodeName, hostname, targetRef } = address;
      const isReady = addresses.includes(address);
      for (const port of (ports ?? []).map(portText).concat(ports === undefined ? [''] : [])) {
        lines.add([canonicalIP(ip), isReady, nodeName, hostname, targetRef?.uid, port].join('|'));
      }
    }
  }
  return [...lines].sort();
}

/** What slices say, endpoint by endpoint, whatever the packing. */
function slicesText(slices: readonly SliceObject[], withHints: boolean): string[] {
  const lines = new Set<string>();
  for (const { metadata, addressType, ports, endpoints } of slices) {
    const labels = Object.entries(metadata.labels ?? {}).sort();
    const group = [addressType, (ports ?? []).map(portText).sort(), labels];
    if (endpoints === null) lines.add(JSON.stringify(group));
    for (const endpoint of endpoints ?? []) {
      const { addresses, conditions, hostname, nodeName, zone, targetRef, hints } = endpoint;
      const { ready, serving, terminating } = conditions;
      const said = [addresses.map(canonicalIP), ready, serving, terminating, hostname, nodeName];
      const hinted = withHints ? [hints?.forZones, hints?.forNodes] : [];
      lines.add(JSON.stringify([group, said, zone, targetRef?.uid, hinted]));
    }
  }
  return [...lines].sort();
}

const managedBy = 'endpointslice.kubernetes.io/managed-by';
const serviceName = 'kubernetes.io/service-name';

function recordedSlices(line: CaseLine, name: string, manager: string): SliceObject[] {
  return line.endpointSlices.filter(({ metadata }) => {
    const { labels } = metadata;
    return labels?.[serviceName] === name && labels[managedBy] === manager;
  });
}

interface Count {
  total: number;
  different: number;
}

function compare(count: Count, ours: readonly string[], recorded: readonly string[]): void {
  count.total++;
  if (JSON.stringify(ours) !== JSON.stringify(recorded)) count.different++;
}

const listsTwice = ({ subsets = [] }: EndpointsObject): boolean => {
  const all = subsets.flatMap(({ addresses = [], notReadyAddresses = [] }) => [
    ...addresses,
    ...notReadyAddresses,
  ]);
  return new Set(all.map(({ ip }) => canonicalIP(ip))).size < all.length;
};

function compareService(
  line: CaseLine,
  service: ServiceObject,
  nodes: readonly NodeObject[],
  minor: number,
  counts: Record<'endpoints' | 'slices' | 'mirrored', Count>,
): void {
  const { namespace = '', name, annotations = {} } = service.metadata;
  const { selector = {}, type } = service.spec;
  const isSelecting = type !== 'ExternalName' && Object.keys(selector).length > 0;
  const endpoints = line.endpoints.find(({ metadata }) => metadata.name === name);
  const objects = new Map<string, ApiObject>([[`services ${keyOf(service.metadata)}`, service]]);
  for (const pod of line.pods) objects.set(`pods ${keyOf(pod.metadata)}`, pod);
  for (const node of nodes) objects.set(`nodes ${node.metadata.name}`, node);
  if (!isSelecting && endpoints !== undefined) {
    objects.set(`endpoints ${keyOf(endpoints.metadata)}`, endpoints);
  }
  const api = recordedApi(objects);
  if (!isSelecting) {
    if (endpoints !== undefined && listsTwice(endpoints)) return;
    syncMirror(api, namespace, name);
    const recorded = recordedSlices(line, name, 'endpointslicemirroring-controller.k8s.io');
    compare(counts.mirrored, slicesText(api.written, false), slicesText(recorded, false));
    return;
  }
  const isTruncated = endpoints?.metadata.annotations?.['endpoints.kubernetes.io/over-capacity'];
  if (isTruncated === undefined) {
    syncEndpoints(api, namespace, name, minor);
    const ours = api.get('endpoints', `${namespace}/${name}`);
    compare(counts.endpoints, endpointsText(ours), endpointsText(endpoints));
  }
  syncSlices(api, namespace, name, minor);
  const withHints = !Object.keys(annotations).some((key) => key.includes('/topology-'));
  const recorded = recordedSlices(line, name, 'endpointslice-controller.k8s.io');
  compare(counts.slices, slicesText(api.written, withHints), slicesText(recorded, withHints));
}

test.each(files)('the simple controllers write what real ones wrote: %s', async (name, minor) => {
  const file = join(data, name);
  expect(existsSync(file), file).toBe(true);
  const nodes = new Map<number, NodeObject[]>();
  const counts = {
    endpoints: { total: 0, different: 0 },
    slices: { total: 0, different: 0 },
    mirrored: { total: 0, different: 0 },
  };
  for await (const line of linesOf(file)) {
    if (line.kind === 'nodes') nodes.set(line.step, line.items);
    if (line.kind !== 'case') continue;
    for (const service of line.services) {
      compareService(line, service, nodes.get(line.step) ?? [], minor, counts);
    }
  }
  for (const [output, { total, different }] of Object.entries(counts)) {
    expect(total, output).toBeGreaterThan(50);
    expect(different / total, `${output}: ${different} of ${total}`).toBeLessThan(0.05);
  }
});

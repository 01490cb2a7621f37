// Records what the real controllers write for cases: etcd, API server and controller manager, with
// this program as user, kubelet and scheduler. All cases take their steps together, each in its own
// namespace; after every step the controllers work until they have nothing left to do. The lines
// are those of test/vectors/README.md.

import { createWriteStream } from 'node:fs';
import { finished } from 'node:stream/promises';
import { createGzip } from 'node:zlib';

import { createNode, inParallel, setZone } from '../controlplane/cluster.ts';
import type { Client, ControlPlane, Method, Thing } from '../controlplane/controlplane.ts';
import { awaitSettled, clientOf } from '../controlplane/controlplane.ts';
import type { Case } from './cases.ts';
import type { Ask } from './operations.ts';

/** A line of a vector file, as it is written. */
export interface CaseRecord {
  readonly kind: 'case';
  readonly case: string;
  readonly step: number;
  readonly ops: readonly string[];
  readonly services: readonly Thing[];
  readonly pods: readonly Thing[];
  readonly endpoints: readonly Thing[];
  readonly endpointSlices: readonly Thing[];
}

export interface NodesRecord {
  readonly kind: 'nodes';
  readonly step: number;
  readonly ops: readonly string[];
  readonly items: readonly Thing[];
  readonly snapshotAt: string;
  readonly settleSeconds: number;
}

export type VectorRecord = CaseRecord | NodesRecord | { readonly kind: 'header' };

const paths = {
  services: '/api/v1/services',
  pods: '/api/v1/pods',
  endpoints: '/api/v1/endpoints',
  endpointSlices: '/apis/discovery.k8s.io/v1/endpointslices',
} as const;

const nodes = [
  ...['a1', 'a2', 'a3'].map((id) => ({ name: `node-${id}`, zone: 'zone-a' })),
  ...['b1', 'b2', 'x2', 'notready'].map((id) => ({ name: `node-${id}`, zone: 'zone-b' })),
  ...['c1', 'c2', 'x1'].map((id) => ({ name: `node-${id}`, zone: 'zone-c' })),
  { name: 'node-cp', zone: 'zone-a' },
];

const nodePath = (name: string): string => `/api/v1/nodes/${name}`;

async function createNodes(client: Client): Promise<readonly string[]> {
  for (const [index, node] of nodes.entries()) {
    await createNode(client, { ...node, number: index + 1 });
  }
  const labels = { 'node-role.kubernetes.io/control-plane': '' };
  await client.call('PATCH', nodePath('node-cp'), { metadata: { labels } });
  const conditions = [{ type: 'Ready', status: 'False' }];
  await client.call('PATCH', `${nodePath('node-notready')}/status`, { status: { conditions } });
  return [`create ${nodes.length} nodes`];
}

/** What happens to the Nodes before the operations of a step. */
const nodeSteps: readonly ((client: Client) => Promise<readonly string[]>)[] = [
  createNodes,
  async (client) => {
    await setZone(client, 'node-x2', 'zone-a');
    return ['relabel node-x2 zone-b -> zone-a'];
  },
  async (client) => {
    await client.call('DELETE', nodePath('node-x1'));
    return ['delete node-x1'];
  },
  async (client) => {
    await createNode(client, { name: 'node-nozone', zone: 'zone-a', number: 61 });
    await setZone(client, 'node-nozone', null);
    await createNode(client, { name: 'node-x1', zone: 'zone-a', number: 60 });
    return ['create node-nozone (no zone label)', 'create node-x1 in zone-a'];
  },
  async (client) => {
    await client.call('DELETE', nodePath('node-nozone'));
    const conditions = [{ type: 'Ready', status: 'True' }];
    await client.call('PATCH', `${nodePath('node-notready')}/status`, { status: { conditions } });
    return ['delete node-nozone', 'node-notready becomes Ready'];
  },
];

export function askIn({ call }: Client, namespace: string): Ask {
  return (method: Method, path, body) => {
    const group = path.startsWith('/endpointslices') ? '/apis/discovery.k8s.io/v1' : '/api/v1';
    return call(method, `${group}/namespaces/${namespace}${path}`, body);
  };
}

/** Runs a step of a case; returns the words of its operations. */
async function takeStep(client: Client, { name, steps }: Case, step: number): Promise<string[]> {
  const ask = askIn(client, name);
  const words: string[] = [];
  for (const operation of steps[step] ?? []) {
    try {
      await operation.run(ask);
      words.push(operation.words);
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      const said = /"message":"(?<said>(?:[^"\\]|\\.)*)"/.exec(reason)?.groups?.said ?? reason;
      words.push(`REJECTED ${operation.words}: ${said}`);
    }
  }
  return words;
}

async function listAll(client: Client, path: string): Promise<Thing[]> {
  const { items } = (await client.call('GET', path)) as { items: Thing[] };
  for (const { metadata } of items) delete metadata.managedFields;
  return items;
}

/** The case lines of a step and, before them, that of the Nodes. */
async function snapshot(
  client: Client,
  step: number,
  words: ReadonlyMap<string, readonly string[]>,
  onNodes: { readonly ops: readonly string[]; readonly settleSeconds: number },
): Promise<VectorRecord[]> {
  const items = await listAll(client, '/api/v1/nodes');
  const kinds = Object.keys(paths) as (keyof typeof paths)[];
  const lists = await Promise.all(
    kinds.map(async (kind) => {
      const objects = await listAll(client, paths[kind]);
      return [kind, Map.groupBy(objects, ({ metadata }) => metadata.namespace ?? '')] as const;
    }),
  );
  const snapshotAt = new Date().toISOString();
  const records: VectorRecord[] = [{ kind: 'nodes', step, items, snapshotAt, ...onNodes }];
  for (const [name, ops] of words) {
    const inCase = lists.map(([kind, groups]) => [kind, groups.get(name) ?? []]);
    const objects = Object.fromEntries(inCase) as Record<keyof typeof paths, Thing[]>;
    records.push({ kind: 'case', case: name, step, ops, ...objects });
  }
  return records;
}

/** Feature gates of the controller manager that its metrics name, as `STAGE=0|1`. */
function gatesIn(metrics: string): Record<string, string> {
  const pattern = /^kubernetes_feature_enabled\{name="(\w+)",stage="(\w*)"\} (\d)/gm;
  const ours = /Endpoint|Topology|Traffic|Service|Sidecar|IP|Proxy/;
  const gates = [...metrics.matchAll(pattern)]
    .filter(([, name = '']) => ours.test(name))
    .map(([, name = '', stage = '', on = '']) => [name, `${stage}=${on}`] as const);
  return Object.fromEntries(gates.toSorted(([a], [b]) => a.localeCompare(b)));
}

async function headerOf(
  plane: ControlPlane,
  client: Client,
  run: { readonly seed: number; readonly size: object },
): Promise<{ readonly kind: 'header' }> {
  const { gitVersion } = (await client.call('GET', '/version')) as { gitVersion: string };
  if (gitVersion !== plane.version) {
    throw new Error(`The API server says ${gitVersion}, not ${plane.version}`);
  }
  const fields = { version: plane.version, serverVersion: gitVersion, ...run };
  const recorded = new Date().toISOString().slice(0, 10);
  const featureGates = { 'kube-controller-manager': gatesIn(await client.metrics()) };
  return { kind: 'header', ...fields, recorded, nodeProfile: 'churn', featureGates } as {
    kind: 'header';
  };
}

/**
 * Plays cases on a control plane and returns the lines. The last step, the same number in every
 * case, is a restart of the controller manager.
 */
export async function recordCases(
  plane: ControlPlane,
  cases: readonly Case[],
  run: { readonly seed: number; readonly size: object },
  say: (line: string) => void,
): Promise<VectorRecord[]> {
  const client = clientOf(plane);
  try {
    await inParallel(cases, 8, ({ name }) =>
      client.call('POST', '/api/v1/namespaces', { metadata: { name } }),
    );
    const records: VectorRecord[] = [await headerOf(plane, client, run)];
    const last = Math.max(nodeSteps.length, ...cases.map(({ steps }) => steps.length));
    for (let step = 0; step <= last; step++) {
      const words = new Map<string, readonly string[]>();
      const began = performance.now();
      const ops = (await nodeSteps[step]?.(client)) ?? [];
      if (step === last) {
        await plane.restartControllerManager();
        const ending = ['kube-controller-manager stopped and started'];
        for (const { name } of cases) words.set(name, ending);
      } else {
        const active = cases.filter(({ steps }) => step < steps.length);
        for (const { name } of active) words.set(name, []);
        await inParallel(active, 8, async (one) =>
          words.set(one.name, await takeStep(client, one, step)),
        );
      }
      const acted = performance.now();
      await awaitSettled(client);
      const settleSeconds = Math.round(performance.now() - acted) / 1000;
      records.push(...(await snapshot(client, step, words, { ops, settleSeconds })));
      const seconds = ((performance.now() - began) / 1000).toFixed(1);
      say(`step ${step}: ${words.size} cases, ${seconds} s`);
    }
    return records;
  } finally {
    client.close();
  }
}

/** Writes a vector file, packed. */
export async function writeRecords(path: string, records: readonly object[]): Promise<void> {
  const gzip = createGzip({ level: 9 });
  const file = gzip.pipe(createWriteStream(path));
  for (const record of records) gzip.write(`${JSON.stringify(record)}\n`);
  gzip.end();
  await finished(file);
}

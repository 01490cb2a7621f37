// Records faults that Cilium itself makes: `npm run -s cilium:faults -- OUT --seed 1 --faults 24`.
// While one object changes, its load balancer is stopped, so that its maps are those of an earlier
// state, or its own writes fail. Then a second load balancer starts with the objects as they are.
// A fault is a violation of each Service port at which the two show other frontends, by what
// Cilium itself prints (lb/maps-dump). This comparison shares no code with the audit.

import { mkdirSync, writeFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';

import type { Client, Thing } from '../controlplane/controlplane.ts';
import { clientOf, startControlPlane } from '../controlplane/controlplane.ts';
import { type BpfMaps, type CiliumLoadBalancer, newestCilium } from './load-balancer.ts';
import type { ObjectLists } from './objects.ts';
import {
  createNodes,
  createObjects,
  diceOf,
  listObjects,
  namespace,
  nodeNames,
} from './objects.ts';
import type { State } from './record.ts';
import {
  argumentsOf,
  flagsOf,
  nodeIn,
  packed,
  withBalancer,
  writeConfig,
  writeObjects,
} from './record.ts';

type Dice = ReturnType<typeof diceOf>;

interface RawService extends Thing {
  readonly spec: {
    readonly type: string;
    readonly clusterIPs?: readonly string[];
    readonly externalIPs?: readonly string[];
    readonly sessionAffinity: string;
    readonly internalTrafficPolicy?: string;
    readonly externalTrafficPolicy?: string;
    readonly ports: readonly {
      readonly name?: string;
      readonly port: number;
      readonly nodePort?: number;
      readonly protocol: string;
    }[];
  };
  readonly status?: { readonly loadBalancer?: { readonly ingress?: readonly { ip?: string }[] } };
}

interface RawSlice extends Thing {
  readonly addressType: string;
  readonly endpoints: readonly { readonly conditions: { readonly ready?: boolean } }[] | null;
  readonly ports: readonly { readonly port: number }[];
}

const services = `/api/v1/namespaces/${namespace}/services`;
const slices = `/apis/discovery.k8s.io/v1/namespaces/${namespace}/endpointslices`;

interface Objects {
  readonly client: Client;
  readonly lists: ObjectLists;
  readonly dice: Dice;
  readonly at: number;
}

const own = (list: readonly Thing[]): Thing[] =>
  list.filter((it) => it.metadata.namespace === namespace);

const serviceWith = ({ lists, dice }: Objects, isWanted: (it: RawService) => boolean) =>
  dice.oneOf((own(lists.services) as RawService[]).filter(isWanted));

/** A slice of a Service with frontends. */
function sliceWith({ lists, dice }: Objects, ready: number): RawSlice {
  const served = (own(lists.services) as RawService[]).filter(isServed);
  const names = new Set(served.map(({ metadata }) => metadata.name));
  const fitting = (own(lists.endpointslices) as RawSlice[]).filter(
    ({ metadata, endpoints }) =>
      names.has(metadata.labels?.['kubernetes.io/service-name'] ?? '') &&
      (endpoints ?? []).filter(({ conditions }) => conditions.ready ?? true).length >= ready,
  );
  return dice.oneOf(fitting);
}

const isServed = ({ spec }: RawService): boolean => spec.clusterIPs?.[0] !== 'None';
const isExternal = ({ spec }: RawService): boolean => spec.type !== 'ClusterIP';

const patch = ({ client }: Objects, path: string, body: object): Promise<unknown> =>
  client.call('PATCH', path, body);

const patchSlice = (objects: Objects, { metadata }: Thing, body: object): Promise<unknown> =>
  patch(objects, `${slices}/${metadata.name}`, body);

const patchSpec = (objects: Objects, { metadata }: Thing, spec: object): Promise<unknown> =>
  patch(objects, `${services}/${metadata.name}`, { spec });

const ready = { ready: true, serving: true, terminating: false };
const notReady = { ready: false, serving: false, terminating: false };

const newEndpoint = ({ addressType }: RawSlice, at: number, conditions: object): object => ({
  addresses: [addressType === 'IPv4' ? `10.244.250.${at + 1}` : `fd00:10:244:ff::${at + 1}`],
  conditions,
  nodeName: 'node-a',
});

const other = (value: string | undefined, one: string, two: string): string =>
  value === one ? two : one;

/** Changes of one object. */
const changes: Readonly<Record<string, (objects: Objects) => Promise<unknown>>> = {
  'an endpoint goes': (it) => {
    const slice = sliceWith(it, 2);
    return patchSlice(it, slice, { endpoints: slice.endpoints?.slice(1) });
  },
  'an endpoint comes': (it) => {
    const slice = sliceWith(it, 1);
    const endpoints = [...(slice.endpoints ?? []), newEndpoint(slice, it.at, ready)];
    return patchSlice(it, slice, { endpoints });
  },
  'endpoints are not ready any more': (it) => {
    const slice = sliceWith(it, 1);
    const endpoints = slice.endpoints?.map((one) => ({ ...one, conditions: notReady }));
    return patchSlice(it, slice, { endpoints });
  },
  'endpoints have another port': (it) => {
    const slice = sliceWith(it, 1);
    const ports = slice.ports.map((one) => ({ ...one, port: one.port + 1 }));
    return patchSlice(it, slice, { ports });
  },
  'a slice goes': (it) => it.client.call('DELETE', `${slices}/${sliceWith(it, 1).metadata.name}`),
  'a Service goes': (it) =>
    it.client.call('DELETE', `${services}/${serviceWith(it, isServed).metadata.name}`),
  'a Service comes': (it) =>
    it.client.call('POST', services, {
      metadata: { name: `new-${it.at}` },
      spec: { type: 'NodePort', ports: [{ name: 'http', port: 80 }] },
    }),
  'session affinity changes': (it) => {
    const service = serviceWith(it, isServed);
    const sessionAffinity = other(service.spec.sessionAffinity, 'ClientIP', 'None');
    return patchSpec(it, service, { sessionAffinity, sessionAffinityConfig: null });
  },
  'the internal traffic policy changes': (it) => {
    const service = serviceWith(it, isServed);
    const policy = other(service.spec.internalTrafficPolicy, 'Local', 'Cluster');
    return patchSpec(it, service, { internalTrafficPolicy: policy });
  },
  'the external traffic policy changes': (it) => {
    const service = serviceWith(it, isExternal);
    const policy = other(service.spec.externalTrafficPolicy, 'Local', 'Cluster');
    return patchSpec(it, service, { externalTrafficPolicy: policy });
  },
  'an external IP comes': (it) =>
    patchSpec(it, serviceWith(it, isServed), { externalIPs: [`198.18.9.${it.at + 1}`] }),
  'source ranges change': (it) => {
    const service = serviceWith(it, ({ spec }) => spec.type === 'LoadBalancer');
    return patchSpec(it, service, { loadBalancerSourceRanges: [`198.51.${it.at}.0/24`] });
  },
  'an endpoint comes that is not ready': (it) => {
    const slice = sliceWith(it, 1);
    const endpoints = [...(slice.endpoints ?? []), newEndpoint(slice, it.at, notReady)];
    return patchSlice(it, slice, { endpoints });
  },
  'a label of a Service changes': (it) => {
    const { metadata } = serviceWith(it, isServed);
    const labels = { 'example.org/note': `change-${it.at}` };
    return patch(it, `${services}/${metadata.name}`, { metadata: { labels } });
  },
  'a Service of another proxy comes': (it) =>
    it.client.call('POST', services, {
      metadata: {
        name: `mesh-${it.at}`,
        labels: { 'service.kubernetes.io/service-proxy-name': 'x' },
      },
      spec: { ports: [{ port: 80 }] },
    }),
  'a slice of no Service comes': (it) =>
    it.client.call('POST', slices, {
      metadata: { name: `lost-${it.at}`, labels: { 'kubernetes.io/service-name': 'lost' } },
      addressType: 'IPv4',
      endpoints: [{ addresses: [`10.244.251.${it.at % 250}`], conditions: ready }],
      ports: [{ port: 8080 }],
    }),
  'an annotation of a slice changes': (it) => {
    const annotations = { 'example.org/note': `change ${it.at}` };
    return patchSlice(it, sliceWith(it, 1), { metadata: { annotations } });
  },
};

// What Cilium prints of its maps, without ids.

const field = (line: string, name: string): string =>
  new RegExp(`(?:^| )${name}=(.*?)(?= [A-Z]+=|$)`).exec(line)?.[1] ?? '';

/** Of each frontend but wildcard entries, in both scopes: what decides where connections go. */
export function frontendsIn(text: string): Map<string, Record<string, string>> {
  const lines = text.split('\n').filter(Boolean);
  const of = (kind: string): string[] => lines.filter((line) => line.startsWith(`${kind}: `));
  const backends = new Map(of('BE').map((line) => [field(line, 'ID'), field(line, 'ADDR')]));
  const nameOf = (id: string): string => backends.get(id) ?? 'nowhere';
  const reverse = new Map(of('REV').map((line) => [field(line, 'ID'), field(line, 'ADDR')]));
  const byId = (kind: string, shown: (line: string) => string) => {
    const groups = Map.groupBy(of(kind), (line) => field(line, 'ID'));
    return (id: string): string[] => (groups.get(id) ?? []).map(shown).sort();
  };
  const rangesOf = byId('SRCRANGE', (line) => field(line, 'CIDR'));
  const matchesOf = byId('AFF', (line) => nameOf(field(line, 'BEID')));
  const tableOf = byId('MAGLEV', (line) =>
    line
      .replace(/(\d+)\((\d+)\)/g, (_, id: string, count) => `${nameOf(id)}*${String(count)}`)
      .replace(/^.*?ID=\d+ /, '')
      .split(/[[\] ]+/)
      .sort()
      .join(' '),
  );
  const services = of('SVC').filter((line) => !field(line, 'ADDR').endsWith(':0/ANY'));
  const found = new Map<string, Record<string, string>>();
  const scoped = new Set<string>();
  for (const line of services.filter((it) => field(it, 'SLOT') === '0')) {
    const [id, address] = [field(line, 'ID'), field(line, 'ADDR')];
    const count = Number(field(line, 'COUNT'));
    const used = services.filter((it) => {
      const slot = Number(field(it, 'SLOT'));
      return field(it, 'ADDR') === address && slot > 0 && slot <= count;
    });
    const flags = field(line, 'FLAGS').split('+');
    const isEmpty = count === 0;
    found.set(address, {
      flags: flags.filter((flag) => !isEmpty || withoutBackends.has(flag)).join('+'),
      count: String(count),
      timeout: isEmpty ? '' : field(line, 'AFFTimeout'),
      'reverse NAT': String(address.startsWith(`${reverse.get(id) ?? 'none'}/`)),
      backends: used
        .map((it) => nameOf(field(it, 'BEID')))
        .sort()
        .join(' '),
      ranges: flags.includes('check source-range') ? rangesOf(id).join(' ') : '',
      'affinity matches':
        !isEmpty && flags.includes('sessionAffinity') ? matchesOf(id).join(' ') : '',
      table: tableOf(id).join(),
    });
    if (flags.includes('two-scopes')) scoped.add(address);
  }
  return inBothScopes(found, scoped);
}

/**
 * Flags that count without backends: packets of new connections are refused before affinity and
 * policies are looked at (bpf/bpf_sock.c and bpf/lib/lb.h, cilium@v1.20.2).
 */
const withoutBackends: ReadonlySet<string> = new Set([
  'non-routable',
  'check source-range',
  'deny',
]);

/** What lookups find: without two scopes, sockets use the external one (lb4_lookup_service). */
function inBothScopes(
  found: ReadonlyMap<string, Record<string, string>>,
  scoped: ReadonlySet<string>,
): Map<string, Record<string, string>> {
  const outside = [...found].filter(([key]) => !key.endsWith('/i'));
  return new Map(
    outside.flatMap(([key, shown]) => {
      const inside = scoped.has(key) ? found.get(`${key}/i`) : shown;
      const pairs = [[key, shown] as const, [`${key}/i`, inside ?? {}] as const];
      return pairs.map(
        ([name, parts]) => [name, { ...parts, flags: flagsOfPackets(parts) }] as const,
      );
    }),
  );
}

/** Without the flags that decide only about the scope or the list of backends. */
const flagsOfPackets = ({ flags = '' }: Record<string, string>): string =>
  flags
    .split('+')
    .filter((flag) => flag !== 'two-scopes' && flag !== 'InternalLocal')
    .join('+');

/** Names of Service ports by frontend; node ports by port alone. */
function portNames(lists: ObjectLists): Map<string, string> {
  const names = new Map<string, string>();
  for (const { metadata, spec, status } of lists.services as RawService[]) {
    const ingress = status?.loadBalancer?.ingress ?? [];
    const ips = [...(spec.clusterIPs ?? []), ...(spec.externalIPs ?? [])];
    for (const { name, port, nodePort, protocol } of spec.ports) {
      const key = `${metadata.namespace ?? ''}/${metadata.name}`;
      const full = name === undefined ? key : `${key}:${name}`;
      for (const ip of [...ips, ...ingress.flatMap((one) => one.ip ?? [])]) {
        names.set(`${ip.includes(':') ? `[${ip}]` : ip}:${port}/${protocol}`, full);
      }
      if (nodePort !== undefined) names.set(`:${nodePort}/${protocol}`, full);
    }
  }
  return names;
}

/** How two outputs differ: addresses of frontends, and the Service ports that have them. */
export function compareOutputs(actual: string, wanted: string, lists: ObjectLists) {
  const [got, want] = [frontendsIn(actual), frontendsIn(wanted)];
  const names = portNames(lists);
  const keys = [...new Set([...got.keys(), ...want.keys()])];
  const different = keys.filter((key) => !isDeepStrictEqual(got.get(key), want.get(key)));
  const nameOf = (key: string): string | undefined => {
    const place = key.replace(/\/i$/, '');
    return names.get(place) ?? names.get(place.replace(/^.*(?=:\d+\/)/, ''));
  };
  const ports = [...new Set(different.flatMap((key) => nameOf(key) ?? []))].sort();
  const notes = different.map((key) => `${key} ${differenceOf(got.get(key), want.get(key))}`);
  return { ports, notes };
}

function differenceOf(got?: Record<string, string>, want?: Record<string, string>): string {
  if (got === undefined || want === undefined) return got ? 'is left over' : 'is missing';
  const names = Object.keys(want).filter((name) => got[name] !== want[name]);
  const texts = names.map((name) => `${name} ${got[name] ?? ''}, not ${want[name] ?? ''}`);
  return `has ${texts.join('; ')}`.slice(0, 200);
}

type Kind = 'maps of an earlier state' | 'failed writes';

async function dumpOf(balancer: CiliumLoadBalancer, work: string): Promise<string> {
  const path = join(work, 'maps');
  await balancer.command(`lb/maps-dump ${path}`);
  return readFile(path, 'utf8');
}

/** The maps while an object changes, and what Cilium prints of them. */
async function mapsDuring(
  kind: Kind,
  balancer: CiliumLoadBalancer,
  work: string,
  permille: number,
  change: () => Promise<unknown>,
): Promise<{ maps: BpfMaps; text: string }> {
  if (kind === 'maps of an earlier state') {
    const text = await dumpOf(balancer, work);
    balancer.signal('SIGSTOP');
    await change();
    // Events are sent by now.
    await sleep(500);
    return { maps: await balancer.maps(), text };
  }
  await balancer.command(`fail-writes ${permille}`);
  await change();
  await sleep(1500);
  for (let left = 100; left > 0; left--) {
    // Cilium tries again while its maps are read, and a table of Maglev may be gone.
    const before = await dumpOf(balancer, work);
    const maps = await balancer.maps().catch(() => null);
    if (maps !== null && (await dumpOf(balancer, work)) === before) return { maps, text: before };
  }
  throw new Error('The maps change all the time');
}

const defaultArguments = { seed: 1, faults: 24, services: 8 };

async function record({
  out,
  seed,
  faults,
  services: count,
}: ReturnType<typeof argumentsOf<typeof defaultArguments>>): Promise<void> {
  const plane = await startControlPlane();
  const client = clientOf(plane);
  const names = Object.keys(changes);
  try {
    await createNodes(client);
    await createObjects(client, seed * 10_000, count);
    for (let at = 0; at < faults; at++) {
      const dice = diceOf(seed * 10_000 + at);
      const kind: Kind = at % 2 === 0 ? 'maps of an earlier state' : 'failed writes';
      const name = names[(at >> 1) % names.length] ?? '';
      const before = await listObjects(client);
      const node = nodeIn(before, nodeNames[at % nodeNames.length] ?? 'node-a');
      const flags = flagsOf(seed * 10_000 + at);
      const objects = join(out, `objects-${seed}-${at}.json`);
      const state: State = { version: newestCilium, node, flags, objects };
      const change = (): Promise<unknown> =>
        changes[name]?.({ client, lists: before, dice, at }) ?? Promise.resolve();
      const permille = dice.oneOf([1000, 700, 400]);
      const { maps, text } = await withBalancer(state, plane.kubeconfig, (balancer, work) =>
        mapsDuring(kind, balancer, work, permille, change),
      );
      const lists = await listObjects(client);
      const wanted = await withBalancer(state, plane.kubeconfig, dumpOf);
      const folder = join(out, `fault-${seed}-${at}`);
      mkdirSync(folder, { recursive: true });
      writeObjects(out, `objects-${seed}-${at}`, lists);
      writeConfig(state, folder);
      packed(join(folder, 'cilium-maps.json'), JSON.stringify(maps));
      const { ports, notes } = compareOutputs(text, wanted, lists);
      const isViolation = notes.length > 0;
      const fault = {
        class: kind,
        about: ports.length > 1 ? ports : (ports[0] ?? ''),
        harm: isViolation ? 'violation' : 'legal',
        violation: isViolation,
        note: [name, ...notes.slice(0, 2)].join('. '),
        mode: 'cilium',
        node: node.name,
        base: '.',
        madeBy: kind === 'failed writes' ? `fail-writes ${permille}` : 'SIGSTOP',
      };
      writeFileSync(join(folder, 'fault.json'), `${JSON.stringify(fault, null, 2)}\n`);
      console.log(`${folder}: ${kind}, ${name}: ${ports.join() || fault.harm}`);
    }
  } finally {
    client.close();
    await plane.stop();
  }
}

if (import.meta.main) {
  await record(argumentsOf('faults OUT [--seed N] [--faults N]', defaultArguments));
}

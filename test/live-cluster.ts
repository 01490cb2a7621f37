// A live cluster for tests: the fake API server in process, on the machine's own time or on a
// virtual clock, with one Service in it that is as the controllers leave it.

import { vi } from 'vitest';

import type { MonotonicClock } from '../src/auditor/event-loop.ts';
import { createClock } from '../src/commands/shared/clock.ts';
import { createConnection } from '../src/cluster/api/transport/connection.ts';
import type { Cluster } from '../src/commands/shared/cluster.ts';
import type { Auditor } from '../src/auditor/auditor.ts';
import { connectAuditor } from '../src/auditor/live.ts';
import { problemText } from '../src/cluster/decode/problem.ts';
import { useLog } from '../src/commands/shared/console.ts';
import type { Resource } from '../src/model/objects.ts';
import type { FakeServer, Raw, VirtualClock } from './apiserver/server.ts';
import { createServer, realClock } from './apiserver/server.ts';

const target = { kind: 'Pod', namespace: 'shop', name: 'web-1', uid: 'uid-of-web-1' };

export const rawNode: Raw = {
  metadata: { name: 'node-a', labels: { 'topology.kubernetes.io/zone': 'zone-a' } },
  status: { allocatable: { cpu: '4' }, conditions: [{ type: 'Ready', status: 'True' }] },
};

export const rawService: Raw = {
  metadata: { name: 'web', namespace: 'shop', labels: { team: 'checkout' } },
  spec: {
    clusterIP: '10.96.0.9',
    ipFamilies: ['IPv4'],
    selector: { app: 'web' },
    ports: [{ port: 80, targetPort: 8080, protocol: 'TCP' }],
  },
};

export const rawPod: Raw = {
  metadata: {
    name: 'web-1',
    namespace: 'shop',
    labels: { app: 'web' },
    managedFields: [{ manager: 'kubelet' }],
  },
  spec: { nodeName: 'node-a', containers: [{ name: 'web', image: 'images.example/secret' }] },
  status: {
    phase: 'Running',
    podIPs: [{ ip: '10.1.0.1' }],
    conditions: [{ type: 'Ready', status: 'True' }],
  },
};

export const rawEndpoints: Raw = {
  metadata: {
    name: 'web',
    namespace: 'shop',
    labels: { team: 'checkout', 'endpoints.kubernetes.io/managed-by': 'endpoint-controller' },
  },
  subsets: [
    {
      addresses: [{ ip: '10.1.0.1', nodeName: 'node-a', targetRef: target }],
      ports: [{ port: 8080, protocol: 'TCP' }],
    },
  ],
};

export const rawSlice: Raw = {
  metadata: {
    name: 'web-x',
    namespace: 'shop',
    labels: {
      team: 'checkout',
      'kubernetes.io/service-name': 'web',
      'endpointslice.kubernetes.io/managed-by': 'endpointslice-controller.k8s.io',
    },
    ownerReferences: [{ apiVersion: 'v1', kind: 'Service', name: 'web', uid: 'uid-of-web' }],
  },
  addressType: 'IPv4',
  ports: [{ name: '', port: 8080, protocol: 'TCP' }],
  endpoints: [
    {
      addresses: ['10.1.0.1'],
      conditions: { ready: true, serving: true, terminating: false },
      nodeName: 'node-a',
      zone: 'zone-a',
      targetRef: target,
    },
  ],
};

/** A slice that lacks the pod. */
export const emptySlice: Raw = { ...rawSlice, endpoints: [] };

interface Live {
  readonly server: FakeServer;
  readonly cluster: Cluster;
}

/** The Service alone, well or with another slice; on the machine's own time without a clock. */
export function liveCluster(slice: Raw = rawSlice, virtual?: VirtualClock): Live {
  const server = createServer(virtual ?? realClock);
  server.objects.put('nodes', rawNode);
  putService(server, 'shop', slice);
  const clock: MonotonicClock =
    virtual === undefined
      ? createClock()
      : { ...virtual, monotonic: () => virtual.now(), soon: (call) => void virtual.after(0, call) };
  const account = {
    server: 'https://fake.example',
    credentials: () => Promise.reject(new Error('No connection')),
    refresh: () => undefined,
    runningPlugin: () => null,
    close: () => undefined,
  };
  const connection = createConnection(account, () => clock.now());
  const environment = { ...connection, ask: server.ask, pings: () => true };
  return {
    server,
    cluster: {
      server: account.server,
      environment:
        virtual === undefined
          ? environment
          : {
              ...environment,
              monotonic: () => virtual.now(),
              random: () => 0.5,
              sleep: (seconds, signal) => virtual.sleep(seconds, signal),
            },
      clock,
      close: () => {
        server.reset();
      },
    },
  };
}

/** The Service in a namespace, with its pod and what the controllers write. */
export function putService(server: FakeServer, namespace: string, slice: Raw = rawSlice): void {
  const put = (resource: Resource, raw: Raw): void => {
    server.objects.put(resource, withUids(server, raw, namespace));
  };
  put('services', rawService);
  put('pods', rawPod);
  put('endpoints', rawEndpoints);
  put('endpointslices', slice);
}

const addresses: Readonly<Record<string, string>> = { bank: '10.1.1.1', farm: '10.1.2.1' };

/** A copy of an object that refers to the Service and the pod by the uids that the server gave. */
export function withUids({ objects }: FakeServer, raw: Raw, namespace = 'shop'): Raw {
  const uidOf = (resource: Resource, name: string): string =>
    objects.get(resource, `${namespace}/${name}`)?.metadata.uid ?? '';
  const text = JSON.stringify(raw)
    .replaceAll('"namespace":"shop"', `"namespace":"${namespace}"`)
    .replaceAll('"10.1.0.1"', `"${addresses[namespace] ?? '10.1.0.1'}"`)
    .replaceAll('uid-of-web-1', uidOf('pods', 'web-1'))
    .replaceAll('uid-of-web', uidOf('services', 'web'));
  return JSON.parse(text) as Raw;
}

// What a command prints while a test runs it in this process.

interface Printed {
  readonly out: () => string;
  readonly err: () => string;
}

/** Collects what is written from now on, until mocks are restored. */
export function printed(): Printed {
  // Another test may have started a server, which has a log.
  useLog(null);
  const texts = { out: '', err: '' };
  const collect = (stream: NodeJS.WriteStream, name: 'out' | 'err'): void => {
    vi.spyOn(stream, 'write').mockImplementation((chunk) => {
      texts[name] += String(chunk);
      return true;
    });
  };
  collect(process.stdout, 'out');
  collect(process.stderr, 'err');
  return { out: () => texts.out, err: () => texts.err };
}

/** What the options of every command on a cluster are when none is given. */
export const usual = {
  settle: 0.3,
  maxEndpointsPerSlice: 100,
  endpoints: true,
  output: 'json',
  failOn: { severity: 'warning', unserved: false },
  metricsPerService: 'findings',
  metricsMaxServices: 1000,
} as const;

/** Connects an auditor to a cluster; `stop` resolves when it is done. */
export function runLive(
  { environment, clock }: Cluster,
  auditor: Auditor,
  events?: { readonly instance: string },
) {
  const problems: string[] = [];
  const attached = connectAuditor({
    environment,
    clock,
    auditor,
    endpoints: true,
    events,
    onProblem: (problem) => problems.push(problemText(problem)),
    onQuiet: () => undefined,
  });
  const controller = new AbortController();
  const ended = attached.run(controller.signal);
  const stop = (): Promise<void> => {
    controller.abort();
    return ended;
  };
  return { attached, problems, stop };
}

// A real control plane on loopback: etcd, kube-apiserver and kube-controller-manager with only the
// controllers that write Endpoints and EndpointSlices and the garbage collector. binaries.ts builds
// them.

import type { ChildProcess } from 'node:child_process';
import { execFile, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import {
  closeSync,
  existsSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { Agent, request as httpsRequest } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';

import { freePort } from '../processes.ts';
import type { Version } from './binaries.ts';
import { findEtcd, findPrograms, newestVersion } from './binaries.ts';

const run = promisify(execFile);

type Tool = 'etcd' | 'kube-apiserver' | 'kube-controller-manager';

/** Paths of the binaries. */
type Binaries = Readonly<Record<Tool, string>>;

export interface Options {
  readonly version?: Version;
  /** Feature gates of both binaries. */
  readonly featureGates?: Readonly<Record<string, boolean>>;
  /** The controllers to run. */
  readonly controllers?: readonly string[];
  /** Further flags; a later flag wins over an earlier one of the same name. */
  readonly apiserverFlags?: readonly string[];
  readonly controllerManagerFlags?: readonly string[];
}

export interface ControlPlane {
  readonly version: Version;
  /** Everything the control plane writes: keys, logs, data. Gone once it is stopped. */
  readonly directory: string;
  readonly kubeconfig: string;
  readonly server: string;
  /** Where etcd answers its clients: `http://127.0.0.1:1234`. */
  readonly etcd: string;
  /** Bearer token of a cluster administrator. */
  readonly token: string;
  /** Client certificate of a cluster administrator, and its key. */
  readonly certificate: string;
  readonly key: string;
  /** Certificate of the authority that signed every server certificate. */
  readonly ca: string;
  /** Base of the controller manager's own endpoints; `/metrics` is open to all there. */
  readonly controllerManager: string;
  /** It runs no instruction when this has ended. */
  readonly pauseControllerManager: () => Promise<void>;
  readonly resumeControllerManager: () => void;
  /** It is gone until it is restarted. */
  readonly killControllerManager: () => Promise<void>;
  /** With further flags, which are forgotten by the next restart. */
  readonly restartControllerManager: (flags?: readonly string[]) => Promise<void>;
  readonly restartApiserver: () => Promise<void>;
  /** Kills the API server; startApiserver brings it back. */
  readonly killApiserver: () => Promise<void>;
  readonly startApiserver: () => Promise<void>;
  /** Ends etcd and starts it on the same data; the API server finds it again by itself. */
  readonly restartEtcd: () => Promise<void>;
  readonly stop: () => Promise<void>;
}

const certificates = {
  server: {
    subject: '/CN=kube-apiserver',
    extensions: 'subjectAltName=IP:127.0.0.1,DNS:localhost',
  },
  admin: { subject: '/O=system:masters/CN=admin', extensions: 'extendedKeyUsage=clientAuth' },
};

/** Writes an authority, what it signs, and the key of service accounts. */
async function writeKeys(directory: string): Promise<void> {
  const openssl = (...args: string[]) => run('openssl', args, { cwd: directory });
  const ec = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2'];
  await Promise.all([
    openssl('genrsa', '-out', 'accounts.key', '2048'),
    openssl('req', '-x509', ...ec, '-subj', '/CN=ca', '-keyout', 'ca.key', '-out', 'ca.crt'),
  ]);
  const signed = Object.entries(certificates).map(([name, { subject, extensions }]) =>
    openssl(
      ...['req', '-x509', ...ec, '-subj', subject, '-CA', 'ca.crt', '-CAkey', 'ca.key'],
      ...['-addext', extensions, '-addext', 'basicConstraints=critical,CA:FALSE'],
      ...['-keyout', `${name}.key`, '-out', `${name}.crt`],
    ),
  );
  await Promise.all(signed);
}

function kubeconfigOf(server: string, ca: string, token: string): string {
  const data = Buffer.from(ca).toString('base64');
  return JSON.stringify({
    apiVersion: 'v1',
    kind: 'Config',
    'current-context': 'it',
    clusters: [{ name: 'it', cluster: { server, 'certificate-authority-data': data } }],
    users: [{ name: 'admin', user: { token } }],
    contexts: [{ name: 'it', context: { cluster: 'it', user: 'admin' } }],
  });
}

/** A program of the control plane, and what it was started with. */
interface Program {
  readonly path: string;
  readonly flags: readonly string[];
  readonly log: string;
  child: ChildProcess;
}

/** Whether a program has ended, or never began. */
const isGone = ({ pid, exitCode, signalCode }: ChildProcess): boolean =>
  pid === undefined || exitCode !== null || signalCode !== null;

function start(path: string, flags: readonly string[], log: string): Program {
  const out = openSync(log, 'a');
  const child = spawn(path, flags, { stdio: ['ignore', out, out] });
  closeSync(out);
  return { path, flags, log, child };
}

/** Ends a program, gently if it can be, and waits until it is gone. */
async function end({ child }: Program, signal: NodeJS.Signals): Promise<void> {
  if (isGone(child)) return;
  const gone = once(child, 'exit');
  child.kill(signal);
  child.kill('SIGCONT');
  const timer = setTimeout(() => child.kill('SIGKILL'), 2000);
  await gone;
  clearTimeout(timer);
}

/** Whether all threads of a process are stopped: on a busy machine some run on after SIGSTOP. */
function isStopped(pid: number): boolean {
  const threads = `/proc/${pid}/task`;
  return readdirSync(threads).every((thread) => {
    const status = join(threads, thread, 'status');
    // A thread may have ended since the folder was read.
    return existsSync(status) && /^State:\s+T/m.test(readFileSync(status, 'utf8'));
  });
}

const tailOf = (program: Program): string =>
  readFileSync(program.log, 'utf8').split('\n').slice(-30).join('\n');

function answersOk(url: string, ca: string): Promise<boolean> {
  return new Promise((resolve) => {
    const request = httpsRequest(url, { ca, agent: false, timeout: 2000 }, (response) => {
      response.resume();
      resolve(response.statusCode === 200);
    });
    request.on('timeout', () => {
      request.destroy();
    });
    request.on('error', () => {
      resolve(false);
    });
    request.end();
  });
}

/** Waits until a program says that it is ready; throws with the end of its log if it never does. */
async function awaitReady(program: Program, url: string, ca: string): Promise<void> {
  const deadline = Date.now() + 120_000;
  while (Date.now() < deadline && !isGone(program.child)) {
    if (await answersOk(url, ca)) return;
    await sleep(100);
  }
  throw new Error(`${program.path} did not become ready:\n${tailOf(program)}`);
}

const gates = ({ featureGates = {} }: Options): string[] => {
  const pairs = Object.entries(featureGates).map(([name, on]) => `${name}=${on}`);
  return pairs.length === 0 ? [] : [`--feature-gates=${pairs.join(',')}`];
};

interface Ports {
  readonly etcd: number;
  readonly peer: number;
  readonly apiserver: number;
  readonly controllerManager: number;
}

function etcdFlags(directory: string, ports: Ports): string[] {
  const client = `http://127.0.0.1:${ports.etcd}`;
  const peer = `http://127.0.0.1:${ports.peer}`;
  return [
    `--data-dir=${join(directory, 'etcd')}`,
    '--unsafe-no-fsync',
    `--listen-client-urls=${client}`,
    `--advertise-client-urls=${client}`,
    `--listen-peer-urls=${peer}`,
    `--initial-advertise-peer-urls=${peer}`,
    `--initial-cluster=default=${peer}`,
  ];
}

function apiserverFlags(directory: string, ports: Ports, options: Options): string[] {
  const file = (name: string): string => join(directory, name);
  return [
    `--etcd-servers=http://127.0.0.1:${ports.etcd}`,
    '--bind-address=127.0.0.1',
    '--advertise-address=127.0.0.1',
    `--secure-port=${ports.apiserver}`,
    `--tls-cert-file=${file('server.crt')}`,
    `--tls-private-key-file=${file('server.key')}`,
    `--client-ca-file=${file('ca.crt')}`,
    `--token-auth-file=${file('tokens.csv')}`,
    '--service-account-issuer=https://kubernetes.default.svc',
    `--service-account-key-file=${file('accounts.key')}`,
    `--service-account-signing-key-file=${file('accounts.key')}`,
    '--authorization-mode=RBAC',
    '--service-cluster-ip-range=10.96.0.0/12,fd00:10:96::/112',
    '--endpoint-reconciler-type=none',
    '--disable-admission-plugins=ServiceAccount,DefaultTolerationSeconds,Priority',
    ...gates(options),
    ...(options.apiserverFlags ?? []),
  ];
}

const defaultControllers = [
  'endpoints-controller',
  'endpointslice-controller',
  'endpointslice-mirroring-controller',
  'garbage-collector-controller',
];

function controllerManagerFlags(directory: string, ports: Ports, options: Options): string[] {
  const file = (name: string): string => join(directory, name);
  return [
    `--kubeconfig=${file('kubeconfig')}`,
    '--bind-address=127.0.0.1',
    `--secure-port=${ports.controllerManager}`,
    `--tls-cert-file=${file('server.crt')}`,
    `--tls-private-key-file=${file('server.key')}`,
    '--authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics',
    `--controllers=${(options.controllers ?? defaultControllers).join(',')}`,
    '--leader-elect=false',
    '--kube-api-qps=2000',
    '--kube-api-burst=4000',
    '--concurrent-endpoint-syncs=10',
    '--concurrent-service-endpoint-syncs=10',
    '--mirroring-concurrent-service-endpoint-syncs=10',
    ...gates(options),
    ...(options.controllerManagerFlags ?? []),
  ];
}

/** What must not outlive this process. */
const running = new Set<{ readonly programs: Map<Tool, Program>; readonly directory: string }>();

const signals = { SIGHUP: 129, SIGINT: 130, SIGTERM: 143 } as const;

function endAllNow(): void {
  for (const { programs, directory } of running) {
    for (const { child } of programs.values()) child.kill('SIGKILL');
    rmSync(directory, { recursive: true, force: true, maxRetries: 5 });
  }
  running.clear();
}

const onSignal = (signal: NodeJS.Signals): void =>
  process.exit(signals[signal as keyof typeof signals]);

function guard(): void {
  if (running.size > 0) return;
  process.once('exit', endAllNow);
  for (const signal of Object.keys(signals)) process.on(signal, onSignal);
}

function unguard(): void {
  if (running.size > 0) return;
  process.off('exit', endAllNow);
  for (const signal of Object.keys(signals)) process.off(signal, onSignal);
}

async function portsOf(): Promise<Ports> {
  const [etcd, peer, apiserver, controllerManager] = await Promise.all(
    Array.from({ length: 4 }, freePort),
  );
  return { etcd, peer, apiserver, controllerManager } as Ports;
}

/** Starts a control plane; it ends with stop() or, at the latest, with this process. */
export async function startControlPlane(options: Options = {}): Promise<ControlPlane> {
  const version = options.version ?? newestVersion;
  const [etcd, binaries] = await Promise.all([
    findEtcd(version),
    findPrograms(version, ['kube-apiserver', 'kube-controller-manager']),
  ]);
  const directory = await mkdtemp(join(tmpdir(), 'controlplane-'));
  const programs = new Map<Tool, Program>();
  const entry = { programs, directory };
  guard();
  running.add(entry);
  const stop = async (): Promise<void> => {
    const all = [...programs.values()].reverse();
    for (const program of all) await end(program, 'SIGKILL');
    await rm(directory, { recursive: true, force: true, maxRetries: 5 });
    running.delete(entry);
    unguard();
  };
  try {
    return await startIn(directory, programs, { etcd, ...binaries }, { ...options, version }, stop);
  } catch (error) {
    await stop();
    throw error;
  }
}

/** How the programs of one control plane are started, each in its turn. */
interface Starter {
  readonly etcd: () => void;
  readonly apiserver: () => Promise<void>;
  readonly controllerManager: (more?: readonly string[]) => Promise<void>;
  readonly kill: (tool: Tool) => Promise<void>;
  readonly again: (tool: Tool, begin: () => Promise<void>) => Promise<void>;
  readonly pause: () => Promise<void>;
  readonly resume: () => void;
}

const serverAt = (port: number): string => `https://127.0.0.1:${port}`;

function starterIn(
  directory: string,
  programs: Map<Tool, Program>,
  binaries: Binaries,
  ports: Ports,
  options: Options,
): Starter {
  const launch = (tool: Tool, flags: readonly string[]): Program => {
    const program = start(binaries[tool], flags, join(directory, `${tool}.log`));
    // A program that cannot be started is found out when it does not become ready.
    program.child.on('error', () => undefined);
    programs.set(tool, program);
    return program;
  };
  const ready = async (program: Program, url: string): Promise<void> =>
    awaitReady(program, url, await readFile(join(directory, 'ca.crt'), 'utf8'));
  return {
    etcd: () => void launch('etcd', etcdFlags(directory, ports)),
    apiserver: () => {
      const program = launch('kube-apiserver', apiserverFlags(directory, ports, options));
      return ready(program, `${serverAt(ports.apiserver)}/readyz`);
    },
    controllerManager: (more = []) => {
      const flags = [...controllerManagerFlags(directory, ports, options), ...more];
      const program = launch('kube-controller-manager', flags);
      return ready(program, `${serverAt(ports.controllerManager)}/healthz`);
    },
    kill: async (tool) => {
      const program = programs.get(tool);
      if (program !== undefined) await end(program, 'SIGKILL');
    },
    again: async (tool, begin) => {
      const program = programs.get(tool);
      if (program !== undefined) await end(program, 'SIGTERM');
      await begin();
    },
    pause: async () => {
      const child = programs.get('kube-controller-manager')?.child;
      if (child?.pid === undefined) throw new Error('kube-controller-manager does not run');
      child.kill('SIGSTOP');
      while (!isStopped(child.pid)) await sleep(1);
    },
    resume: () => {
      programs.get('kube-controller-manager')?.child.kill('SIGCONT');
    },
  };
}

async function startIn(
  directory: string,
  programs: Map<Tool, Program>,
  binaries: Binaries,
  options: Options & { readonly version: Version },
  stop: () => Promise<void>,
): Promise<ControlPlane> {
  const ports = await portsOf();
  const file = (name: string): string => join(directory, name);
  const starter = starterIn(directory, programs, binaries, ports, options);
  starter.etcd();
  await writeKeys(directory);
  const token = randomBytes(16).toString('hex');
  const server = serverAt(ports.apiserver);
  const ca = await readFile(file('ca.crt'), 'utf8');
  const kubeconfig = file('kubeconfig');
  await writeFile(file('tokens.csv'), `${token},admin,admin,system:masters\n`);
  await writeFile(kubeconfig, kubeconfigOf(server, ca, token));
  await starter.apiserver();
  await starter.controllerManager();
  return {
    version: options.version,
    directory,
    kubeconfig,
    server,
    etcd: `http://127.0.0.1:${ports.etcd}`,
    token,
    certificate: await readFile(file('admin.crt'), 'utf8'),
    key: await readFile(file('admin.key'), 'utf8'),
    ca,
    controllerManager: serverAt(ports.controllerManager),
    pauseControllerManager: starter.pause,
    resumeControllerManager: starter.resume,
    killControllerManager: () => starter.kill('kube-controller-manager'),
    restartControllerManager: (flags) =>
      starter.again('kube-controller-manager', () => starter.controllerManager(flags)),
    restartApiserver: () => starter.again('kube-apiserver', starter.apiserver),
    killApiserver: () => starter.kill('kube-apiserver'),
    startApiserver: starter.apiserver,
    restartEtcd: () =>
      starter.again('etcd', () => {
        starter.etcd();
        return Promise.resolve();
      }),
    stop,
  };
}

// What the end-to-end test says to a control plane: requests of the REST API, a dump of the five
// resources as kubectl writes it, and waiting until the controllers have nothing left to do.

export type Method = 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';

interface Meta {
  name: string;
  namespace?: string;
  labels?: Record<string, string>;
  ownerReferences?: { uid: string }[];
  [field: string]: unknown;
}

export interface Thing {
  metadata: Meta;
  [field: string]: unknown;
}

export interface Client {
  /** One request; a body of PATCH is a merge patch. Throws when the server refuses it. */
  readonly call: (method: Method, path: string, body?: object) => Promise<unknown>;
  /** The metrics of the controller manager. */
  readonly metrics: () => Promise<string>;
  readonly close: () => void;
}

interface Answer {
  readonly status: number;
  readonly text: string;
}

function ask(
  agent: Agent,
  url: string,
  how: { method: Method; headers: Record<string, string> },
  body: string,
): Promise<Answer> {
  const { method, headers } = how;
  return new Promise((resolve, reject) => {
    const request = httpsRequest(url, { agent, method, headers, timeout: 60_000 }, (response) => {
      let text = '';
      response.setEncoding('utf8');
      response.on('data', (part: string) => {
        text += part;
      });
      response.on('end', () => {
        resolve({ status: response.statusCode ?? 0, text });
      });
      response.on('error', reject);
    });
    request.on('timeout', () => request.destroy(new Error(`${method} ${url}: no answer`)));
    request.on('error', (error) => {
      // A server may close a connection that was idle at the moment when it is used again.
      if (method === 'GET' && request.reusedSocket) resolve(ask(agent, url, how, body));
      else reject(error);
    });
    request.end(body);
  });
}

export function clientOf(plane: ControlPlane): Client {
  const agent = new Agent({ keepAlive: true, maxSockets: 16, ca: plane.ca });
  const authorization = `Bearer ${plane.token}`;
  const demand = async (
    method: Method,
    url: string,
    headers: Record<string, string>,
    body = '',
  ): Promise<string> => {
    const answer = await ask(agent, url, { method, headers }, body);
    if (answer.status < 300) return answer.text;
    throw new Error(`${method} ${url}: ${answer.status} ${answer.text.slice(0, 500)}`);
  };
  return {
    async call(method, path, body) {
      const type = method === 'PATCH' ? 'application/merge-patch+json' : 'application/json';
      const text = body === undefined ? '' : JSON.stringify(body);
      const headers = {
        authorization,
        accept: 'application/json',
        'content-type': type,
        // Node would leave it out of a DELETE, and the server would take the body for a request.
        'content-length': String(Buffer.byteLength(text)),
      };
      return JSON.parse(await demand(method, plane.server + path, headers, text)) as unknown;
    },
    metrics: () => demand('GET', `${plane.controllerManager}/metrics`, { authorization }),
    close: () => agent.destroy(),
  };
}

const resources = [
  { path: '/api/v1/pods', apiVersion: 'v1', kind: 'Pod' },
  { path: '/api/v1/services', apiVersion: 'v1', kind: 'Service' },
  { path: '/api/v1/nodes', apiVersion: 'v1', kind: 'Node' },
  { path: '/api/v1/endpoints', apiVersion: 'v1', kind: 'Endpoints' },
  {
    path: '/apis/discovery.k8s.io/v1/endpointslices',
    apiVersion: 'discovery.k8s.io/v1',
    kind: 'EndpointSlice',
  },
] as const;

async function list({ call }: Client, path: string): Promise<Thing[]> {
  const { items } = (await call('GET', path)) as { items: Thing[] };
  return items;
}

interface Dump {
  readonly text: string;
  /** How many objects of each kind it holds. */
  readonly counts: ReadonlyMap<string, number>;
}

/** As `kubectl get pods,services,nodes,endpoints,endpointslices -A -o json` writes it. */
export async function takeDump(client: Client): Promise<Dump> {
  const counts = new Map<string, number>();
  const lists = resources.map(async ({ path, apiVersion, kind }) => {
    const items = await list(client, path);
    counts.set(kind, items.length);
    for (const { metadata } of items) delete metadata.managedFields;
    // The items of a list do not say what they are; kubectl does.
    return items.map((item) => ({ apiVersion, kind, ...item }));
  });
  const items = (await Promise.all(lists)).flat();
  const document = { apiVersion: 'v1', items, kind: 'List', metadata: { resourceVersion: '' } };
  return { text: `${JSON.stringify(document, null, 4)}\n`, counts };
}

/** What the controllers have written, as one text that changes whenever they write. */
async function writtenNow(client: Client): Promise<string> {
  const written = resources.filter(({ kind }) => kind.startsWith('Endpoint'));
  const lists = await Promise.all(written.map(({ path }) => list(client, path)));
  return lists
    .flat()
    .map(({ metadata }) => `${String(metadata.uid)} ${String(metadata.resourceVersion)}`)
    .join('\n');
}

/** Whether a queue holds work now, and how often work had to be done again. */
function workOf(metrics: string): { busy: boolean; retries: string } {
  const lines = metrics.split('\n').filter((line) => /\{name="[^"]*(?:endpoint|gc_)/.test(line));
  const of = (name: string): string[] => lines.filter((line) => line.startsWith(`${name}{`));
  const open = [...of('workqueue_depth'), ...of('workqueue_unfinished_work_seconds')];
  return {
    busy: open.length === 0 || open.some((line) => !line.endsWith(' 0')),
    retries: of('workqueue_retries_total').join('\n'),
  };
}

/**
 * Waits until the queues are empty and nothing was written or retried for five seconds: work that
 * failed comes back after a second or two, and is in no queue until then.
 */
export async function awaitSettled(client: Client): Promise<void> {
  const deadline = Date.now() + 180_000;
  let since = Date.now();
  let before = '';
  while (Date.now() < deadline) {
    const [written, metrics] = await Promise.all([writtenNow(client), client.metrics()]);
    const { busy, retries } = workOf(metrics);
    const now = `${written}\n${retries}`;
    if (busy || now !== before) since = Date.now();
    if (Date.now() - since >= 5000) return;
    before = now;
    await sleep(250);
  }
  throw new Error('The controllers were still at work after three minutes');
}

// The account of the auditor, with the permissions that it asks for and no other: get, list and
// watch of the five resources. It reads its token from a file, as in a pod.

const rbac = '/apis/rbac.authorization.k8s.io/v1';
const verbs = ['get', 'list', 'watch'];

/** What of the core group the auditor reads. */
export const core = ['pods', 'services', 'nodes', 'endpoints'];

const role = `${rbac}/clusterroles/auditor`;

const roleFor = (resources: readonly string[]) => ({
  metadata: { name: 'auditor' },
  rules: [
    { apiGroups: [''], resources, verbs },
    { apiGroups: ['discovery.k8s.io'], resources: ['endpointslices'], verbs },
  ],
});

/** Lets the account read these resources of the core group, and EndpointSlices. */
export const permit = (client: Client, resources: readonly string[]): Promise<unknown> =>
  client.call('PUT', role, roleFor(resources));

/** Lets the account write Events, as `--events` needs it. */
export async function permitEvents(client: Client): Promise<void> {
  const name = 'auditor-events';
  const rules = [
    { apiGroups: ['events.k8s.io'], resources: ['events'], verbs: ['create', 'patch'] },
  ];
  await client.call('POST', `${rbac}/clusterroles`, { metadata: { name }, rules });
  await client.call('POST', `${rbac}/clusterrolebindings`, {
    metadata: { name },
    roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'ClusterRole', name },
    subjects: [{ kind: 'ServiceAccount', name: 'auditor', namespace }],
  });
}

export interface Account {
  /** The kubeconfig file, which names the token's. */
  readonly kubeconfig: string;
  /** Has a token made that dies with the Secret of that name, which is created; returns it. */
  readonly newToken: (secret: string) => Promise<string>;
  /** Replaces the token file. */
  readonly write: (token: string) => void;
  /** Every token of before is invalid from then on, after the ten seconds it is cached. */
  readonly revoke: (secret: string) => Promise<unknown>;
}

const namespace = 'auditor';
const within = `/api/v1/namespaces/${namespace}`;

/** Creates the account with its role; `server` is where the kubeconfig finds the API server. */
export async function createAccount(
  plane: ControlPlane,
  client: Client,
  folder: string,
  server = plane.server,
): Promise<Account> {
  await client.call('POST', '/api/v1/namespaces', { metadata: { name: namespace } });
  await client.call('POST', `${within}/serviceaccounts`, { metadata: { name: 'auditor' } });
  await client.call('POST', `${rbac}/clusterroles`, roleFor(core));
  await client.call('POST', `${rbac}/clusterrolebindings`, {
    metadata: { name: 'auditor' },
    roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'ClusterRole', name: 'auditor' },
    subjects: [{ kind: 'ServiceAccount', name: 'auditor', namespace }],
  });
  const newToken = async (name: string): Promise<string> => {
    const secret = await client.call('POST', `${within}/secrets`, { metadata: { name } });
    const { uid } = (secret as { metadata: { uid: string } }).metadata;
    const boundObjectRef = { kind: 'Secret', apiVersion: 'v1', name, uid };
    const made = await client.call('POST', `${within}/serviceaccounts/auditor/token`, {
      spec: { boundObjectRef },
    });
    return (made as { status: { token: string } }).status.token;
  };
  const write = (token: string): void => {
    writeFileSync(join(folder, 'token'), `${token}\n`);
  };
  write(await newToken('first'));
  writeFileSync(join(folder, 'ca.crt'), plane.ca);
  const config = {
    'current-context': 'it',
    clusters: [{ name: 'it', cluster: { server, 'certificate-authority': 'ca.crt' } }],
    users: [{ name: 'auditor', user: { tokenFile: 'token' } }],
    contexts: [{ name: 'it', context: { cluster: 'it', user: 'auditor' } }],
  };
  writeFileSync(join(folder, 'config'), JSON.stringify(config));
  return {
    kubeconfig: join(folder, 'config'),
    newToken,
    write,
    revoke: (secret) => client.call('DELETE', `${within}/secrets/${secret}`),
  };
}

/** So that the controllers can be as quick as their work allows. */
export const liveFlags = {
  controllerManagerFlags: [
    '--kube-api-qps=5000',
    '--kube-api-burst=10000',
    '--concurrent-endpoint-syncs=20',
    '--concurrent-service-endpoint-syncs=20',
    '--mirroring-concurrent-service-endpoint-syncs=20',
  ],
};

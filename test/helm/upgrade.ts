// The chart on a real API server, by helm: the upgrade from 0.1.0, whose archive is in this folder,
// and back; the pods under the Pod Security level `restricted`; a server with Roles alone; and
// which ServiceAccounts may read what with web.authFilter. And the rotation of all certificates and
// tokens of server and agent, and shards with agents.

import { writeFileSync } from 'node:fs';
import { join } from 'node:path';

import { isNodeInScope, wholeCluster } from '../../src/model/scope.ts';
import { newestVersion } from '../controlplane/binaries.ts';
import type { Client } from '../controlplane/controlplane.ts';
import { proxyConfig } from '../controlplane/nodes.ts';
import { endProgram, freePort } from '../processes.ts';
import type { Manifest } from './files.ts';
import { chart, manifestsOf, type Pod, startPod } from './files.ts';
import {
  agent,
  appsIn,
  awaitAgents,
  checkAudit,
  createAgentPods,
  createPair,
  equal,
  fileIn,
  isRight,
  issue,
  namespace,
  podOf,
  release,
  sampleOf,
  server,
  type Stage,
  statusOf,
  templateOf,
  tokenOf,
  until,
  within,
} from './install.ts';

const old = join(import.meta.dirname, 'endpoint-auditor-0.1.0.tgz');

const workloads = [`deployments/${release}`, `daemonsets/${release}-agent`];

type Amounts = Readonly<Record<string, string>>;

interface Resources {
  readonly requests?: Amounts;
  readonly limits?: Amounts;
}

interface Workload {
  readonly spec: {
    readonly revisionHistoryLimit: number;
    readonly selector: { readonly matchLabels: Readonly<Record<string, string>> };
    readonly template: {
      readonly spec: {
        readonly containers: readonly { readonly image: string; readonly resources: Resources }[];
      };
    };
  };
}

const workloadOf = async ({ call }: Client, name: string): Promise<Workload> =>
  (await call('GET', `${appsIn}/${name}`)) as Workload;

const selectorsOf = (client: Client): Promise<unknown[]> =>
  Promise.all(
    workloads.map(async (name) => (await workloadOf(client, name)).spec.selector.matchLabels),
  );

const imageOf = async (client: Client): Promise<string | undefined> =>
  (await workloadOf(client, `deployments/${release}`)).spec.template.spec.containers[0]?.image;

/** `Kind namespace/name` of each object of the release. */
async function objectsOf({ helm }: Stage): Promise<string[]> {
  const objects = manifestsOf(await helm('get', 'manifest', release));
  return objects.map(({ kind, metadata }) => {
    const { name, namespace: of = '' } = metadata as { name: string; namespace?: string };
    return `${kind} ${of}/${name}`;
  });
}

/** What helm prints to stderr when it fails; the empty string when it does not. */
const failureOf = ({ helm }: Stage, ...args: string[]): Promise<string> =>
  helm(...args).then(
    () => '',
    (error: unknown) => (error as { stderr?: string }).stderr ?? String(error),
  );

const secretOf = async ({ call }: Client): Promise<unknown> =>
  ((await call('GET', `${within}/secrets/${release}-agent`)) as { data: unknown }).data;

const resourcesOf = (client: Client): Promise<(Resources | undefined)[]> =>
  Promise.all(
    workloads.map(async (name) => {
      const { spec } = (await workloadOf(client, name)).spec.template;
      return spec.containers[0]?.resources;
    }),
  );

/** What the README of the chart states of the upgrade. */
async function checkStatements(stage: Stage): Promise<void> {
  const { client, check } = stage;
  const [server, agent] = await resourcesOf(client);
  const memory = [server?.requests?.memory, server?.limits?.memory, agent?.limits?.memory];
  check('upgrade: requests and limits by default', equal(memory, ['224Mi', '320Mi', '512Mi']));
  const named = ['template', release, '--kube-version', newestVersion];
  const refused = await failureOf(stage, ...named, old);
  const isRefused = refused.includes('image.registry');
  check('0.1.0 refuses to render without a registry', isRefused ? null : refused);
  const refusal = await failureOf(stage, ...named, chart);
  check('the chart renders without a registry', refusal === '' ? null : refusal);
}

const on = { enabled: true };

/** All parts of the chart. */
const values = {
  image: { registry: 'images.example.com' },
  agent: on,
  serviceMonitor: on,
  podMonitor: on,
  prometheusRule: on,
  dashboards: on,
  networkPolicy: on,
  podDisruptionBudget: { minAvailable: 1 },
};

/** From 0.1.0 with all that it can, to this version, back, and here again. */
export async function checkUpgrade(stage: Stage): Promise<void> {
  const { client, folder, check, helm } = stage;
  const file = join(folder, 'upgrade.yaml');
  writeFileSync(file, JSON.stringify(values));
  await helm('install', release, old, '--create-namespace', '--values', file);
  const before = {
    objects: await objectsOf(stage),
    selectors: await selectorsOf(client),
    secret: await secretOf(client),
    image: await imageOf(client),
  };
  check(
    '0.1.0 is installed',
    before.image?.endsWith(':v0.1.0') === true ? null : (before.image ?? ''),
  );
  const checkKept = async (what: string): Promise<void> => {
    check(`${what}: no selector changes`, equal(await selectorsOf(client), before.selectors));
    check(
      `${what}: the secret of the agents is kept`,
      equal(await secretOf(client), before.secret),
    );
  };

  await helm('upgrade', release, chart, '--values', file);
  const checkSelectors = async (what: string): Promise<void> => {
    check(`${what}: no selector changes`, equal(await selectorsOf(client), before.selectors));
    const keys = Object.keys((await secretOf(client)) as object).sort();
    check(`${what}: agents get no token`, equal(keys, ['client-ca.crt', 'tls.crt', 'tls.key']));
  };
  await checkSelectors('upgrade from 0.1.0');
  const objects = await objectsOf(stage);
  const gone = before.objects.filter((object) => !objects.includes(object));
  check('upgrade from 0.1.0: no object changes its name', equal(gone, []));
  const isNew = (await imageOf(client)) !== before.image;
  check('upgrade from 0.1.0: the image is new', isNew ? null : 'it is the same');
  await checkStatements(stage);

  await helm('rollback', release, '1');
  await checkKept('rollback');
  check('rollback: the image is that of 0.1.0', equal(await imageOf(client), before.image));

  for (const flag of ['--reset-then-reuse-values', '--reuse-values']) {
    const failure = await failureOf(stage, 'upgrade', release, chart, flag);
    check(`upgrade from 0.1.0 with ${flag}`, failure === '' ? null : failure);
    // Helm keeps the mode of 0.1.0, the shared token, with --reuse-values.
    if (flag === '--reuse-values') await checkKept(`upgrade with ${flag}`);
    else await checkSelectors(`upgrade with ${flag}`);
    // Helm keeps the defaults of 0.1.0 with --reuse-values.
    const hasLimits = flag === '--reset-then-reuse-values';
    const [server] = await resourcesOf(client);
    const memory = hasLimits ? '320Mi' : undefined;
    check(`upgrade with ${flag}: limit ${memory ?? 'none'}`, equal(server?.limits?.memory, memory));
    const { revisionHistoryLimit } = (await workloadOf(client, `deployments/${release}`)).spec;
    check(`upgrade with ${flag}: old revisions are kept`, equal(revisionHistoryLimit, 10));
    await helm('rollback', release, '1');
  }

  await helm('uninstall', release);
  const left = await Promise.all(
    [...workloads.map((name) => `${appsIn}/${name}`), `${within}/secrets/${release}-agent`].map(
      (path) =>
        client.call('GET', path).then(
          () => [path],
          () => [],
        ),
    ),
  );
  check('uninstall after a rollback leaves nothing', equal(left.flat(), []));
}

/** The StatefulSet of shards, most of whose fields cannot change. */
export async function checkShardsUpgrade({ client, check, helm }: Stage): Promise<void> {
  const set = ['--set', 'image.registry=images.example.com,shards=2'];
  await helm('install', release, old, '--create-namespace', ...set);
  const path = `${appsIn}/statefulsets/${release}`;
  const uidOf = async (): Promise<string> =>
    ((await client.call('GET', path)) as { metadata: { uid: string } }).metadata.uid;
  const before = await uidOf();
  await helm('upgrade', release, chart, ...set);
  check('upgrade from 0.1.0 with shards keeps the StatefulSet', equal(await uidOf(), before));
  await helm('uninstall', release);
}

/** The status of an attempt to create a pod, which is not made. */
function tryPod({ call }: Client, labels: object, spec: object): Promise<string | null> {
  const metadata = { name: 'tried', labels };
  return call('POST', `${within}/pods?dryRun=All`, { metadata, spec }).then(
    () => null,
    (error: unknown) => String(error),
  );
}

/** The pods in a namespace that enforces the Pod Security level `restricted`. */
export async function checkPodSecurity(stage: Stage): Promise<void> {
  const { client, check, helm } = stage;
  const enforce = async (level: string | null): Promise<void> => {
    const labels = { 'pod-security.kubernetes.io/enforce': level };
    await client.call('PATCH', within, { metadata: { labels } });
  };
  await helm('install', release, chart, '--create-namespace');
  check('the chart installs without any value', null);
  await helm('upgrade', release, chart, '--set', 'agent.enabled=true');
  await enforce('restricted');
  const [server, agent] = await Promise.all(
    workloads.map((name) => templateOf(client, `${appsIn}/${name}`)),
  );
  const attempt = (of: typeof server): Promise<string | null> =>
    tryPod(client, of?.metadata.labels ?? {}, of?.spec ?? {});
  check('restricted: the pod of the server is accepted', await attempt(server));
  const refusal = (await attempt(agent)) ?? 'it is accepted';
  check(
    'restricted: an agent is refused',
    refusal.includes('violates PodSecurity') ? null : refusal,
  );
  const hooks: Manifest[] = manifestsOf(await helm('get', 'hooks', release));
  check('helm test has one pod', equal(hooks.length, 1));
  for (const { metadata, spec } of hooks) {
    const { labels = {} } = metadata as { labels?: object };
    const problem = await tryPod(client, labels, spec as object);
    check('restricted: the pod of helm test is accepted', problem);
  }
  await enforce('privileged');
  check('privileged: an agent is accepted', await attempt(agent));
  await enforce(null);
  await helm('uninstall', release);
}

const reasonOf = (reason: string): string => `endpoint_auditor_outputs_unknown{reason="${reason}"}`;

/** Starts the server of the release as its pod says, and looks at it while it is ready. */
async function withServer(
  { plane, client, folder, children }: Stage,
  name: string,
  port: number,
  look: (base: string) => Promise<void>,
): Promise<void> {
  const pod = await podOf(plane, client, `${appsIn}/deployments/${release}`, 'Containerfile');
  const child = startPod(join(folder, name), pod);
  children.push(child);
  const base = `http://127.0.0.1:${port}`;
  await until(async () => (await fetch(`${base}/readyz`)).ok, `${name} is ready`);
  await look(base);
  await endProgram(child);
}

/** A new Service is audited in the named namespaces, and in no other. */
async function checkChanges({ client, check }: Stage, base: string, what: string): Promise<void> {
  const count = () => sampleOf(base, 'endpoint_auditor_services');
  const before = await count();
  const spec = { ports: [{ port: 80 }], selector: { app: 'none' } };
  const paths = ['kube-system', 'shop'].map((name) => `/api/v1/namespaces/${name}/services`);
  for (const path of paths) await client.call('POST', path, { metadata: { name: 'new' }, spec });
  await until(async () => (await count()) === before + 1, 'the new Service is audited');
  for (const path of paths) await client.call('DELETE', `${path}/new`);
  await until(async () => (await count()) === before, 'the deleted Service is not audited');
  check(`${what}: the server follows the changes of its namespaces`, null);
}

async function checkFindings({ check }: Stage, base: string, what: string): Promise<void> {
  const { standing } = (await (await fetch(`${base}/api/v1/findings`)).json()) as {
    standing: { severity: string; code: string }[];
  };
  const loud = standing.filter(({ severity }) => severity !== 'info');
  check(`${what}: nothing false is found`, equal(loud, []));
}

/** Roles in two namespaces, then with Nodes: what the token may do, and what the server audits. */
export async function checkNamespaces(stage: Stage): Promise<void> {
  const { plane, client, check, helm } = stage;
  const port = await freePort();
  const set = (nodes: boolean): string[] => [
    '--set',
    `auditor.namespaces={shop,platform},rbac.scope=namespaces,rbac.nodes=${String(nodes)}`,
    '--set',
    `extraArgs[0]=--listen=127.0.0.1:${port}`,
  ];
  const statusFor = async (path: string): Promise<number> => {
    const token = await tokenOf(client, release);
    return (await statusOf(`${plane.server}${path}`, { ca: plane.ca }, token)).status;
  };
  const slices = '/apis/discovery.k8s.io/v1';
  const expected = (nodes: boolean): [string, number][] => [
    ['/api/v1/namespaces/shop/pods', 200],
    ['/api/v1/namespaces/platform/services', 200],
    ['/api/v1/namespaces/shop/endpoints', 200],
    [`${slices}/namespaces/shop/endpointslices`, 200],
    ['/api/v1/nodes', nodes ? 200 : 403],
    ['/api/v1/pods', 403],
    [`${slices}/endpointslices`, 403],
    ['/api/v1/namespaces/kube-system/pods', 403],
    [`${within}/pods`, 403],
    ['/api/v1/namespaces/shop/secrets', 403],
  ];
  for (const nodes of [false, true]) {
    const what = nodes ? 'Roles and Nodes' : 'Roles alone';
    const verb = nodes ? 'upgrade' : 'install';
    await helm(verb, release, chart, '--create-namespace', ...set(nodes));
    for (const [path, want] of expected(nodes)) {
      check(`${what}: GET ${path} is answered with ${want}`, equal(await statusFor(path), want));
    }
    await withServer(stage, `server-nodes-${String(nodes)}`, port, async (base) => {
      const services = await sampleOf(base, 'endpoint_auditor_services');
      check(`${what}: the server audits ${services} Services`, services > 0 ? null : 'none');
      const unknown = await sampleOf(base, reasonOf('nodes-not-known'));
      const isRight = nodes ? unknown === 0 : unknown > 0;
      check(`${what}: ${unknown} outputs are unknown without Nodes`, isRight ? null : 'wrong');
      const forbidden = await sampleOf(base, reasonOf('namespace-forbidden'));
      check(`${what}: no namespace is unknown`, equal(forbidden, 0));
      const pending = 'endpoint_auditor_pending_oldest_seconds{output=';
      const ages = ['endpoints', 'endpointslices', 'mirrored'];
      await until(async () => {
        const samples = ages.map((output) => sampleOf(base, `${pending}"${output}"}`));
        return (await Promise.all(samples)).every((age) => age === 0);
      }, 'no difference is pending');
      await checkChanges(stage, base, what);
      await checkFindings(stage, base, what);
    });
  }
  await helm('uninstall', release);
  const roles = '/apis/rbac.authorization.k8s.io/v1/namespaces/shop/roles';
  const { items } = (await client.call('GET', roles)) as { items: unknown[] };
  check('uninstall: no Role is left', equal(items, []));
}

/** Makes a ServiceAccount, which has a role of the chart or none; returns a token of it. */
async function accountWith({ client }: Stage, name: string, role: string | null): Promise<string> {
  const { call } = client;
  await call('POST', `/api/v1/namespaces/${namespace}/serviceaccounts`, { metadata: { name } });
  if (role !== null) {
    await call('POST', '/apis/rbac.authorization.k8s.io/v1/clusterrolebindings', {
      metadata: { name: `test-${name}` },
      roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'ClusterRole', name: role },
      subjects: [{ kind: 'ServiceAccount', name, namespace }],
    });
  }
  return tokenOf(client, name);
}

const paths = ['/metrics', '/', '/api/v1/findings', '/api', '/livez'] as const;

/** Installs the chart, and asks its server with the token of each account. */
export async function checkAuthFilter(stage: Stage): Promise<void> {
  const { plane, client, folder, check, children, helm } = stage;
  const [page, metrics] = [await freePort(), await freePort()];
  await helm(
    ...['install', release, chart, '--create-namespace'],
    ...['--set', 'web.authFilter=true,service.metricsPort=9467'],
    ...['--set', `extraArgs={--listen=127.0.0.1:${page},--metrics-listen=127.0.0.1:${metrics}}`],
  );
  const pod = await podOf(plane, client, `${appsIn}/deployments/${release}`, 'Containerfile');
  const child = startPod(join(folder, 'auth-filter'), pod);
  children.push(child);
  const ready = `http://127.0.0.1:${metrics}/readyz`;
  await until(async () => (await fetch(ready)).ok, 'the server with an auth filter is ready');
  const tokens = {
    'no account': null,
    stranger: await accountWith(stage, 'stranger', null),
    prometheus: await accountWith(stage, 'prometheus', `${release}-metrics-reader`),
    reader: await accountWith(stage, 'reader', `${release}-page-reader`),
    'a wrong token': 'x.y.z',
  };
  const expected = {
    'no account': [401, 401, 401, 401, 200],
    stranger: [403, 403, 403, 403, 200],
    prometheus: [200, 403, 403, 403, 200],
    reader: [403, 200, 200, 200, 200],
    'a wrong token': [401, 401, 401, 401, 200],
  };
  const statusFor = async (path: string, token: string | null): Promise<number> => {
    const port = path === '/metrics' ? metrics : page;
    const headers = token === null ? {} : { authorization: `Bearer ${token}` };
    const response = await fetch(`http://127.0.0.1:${port}${path}`, { headers });
    await response.text();
    return response.status;
  };
  for (const [who, token] of Object.entries(tokens)) {
    const got = await Promise.all(paths.map((path) => statusFor(path, token)));
    const want = expected[who as keyof typeof expected];
    check(`auth filter: ${who} gets ${paths.join(', ')}`, equal(got, want));
  }
  const swapped = await fetch(`http://127.0.0.1:${page}/metrics`, {
    headers: { authorization: `Bearer ${tokens.reader}` },
  });
  await swapped.text();
  check('auth filter: the port of the page has no metrics', equal(swapped.ok, false));
  await endProgram(child);
  await helm('uninstall', release);
}

/** A token of a ServiceAccount that is valid until `revoke` is called. */
async function revocableToken({ client }: Stage, account: string) {
  const path = `${within}/secrets`;
  const made = await client.call('POST', path, { metadata: { name: 'rotated' } });
  const { uid } = (made as { metadata: { uid: string } }).metadata;
  const bound = { kind: 'Secret', apiVersion: 'v1', name: 'rotated', uid };
  const request = { spec: { boundObjectRef: bound } };
  const issued = await client.call('POST', `${within}/serviceaccounts/${account}/token`, request);
  const { token } = (issued as { status: { token: string } }).status;
  return { token, revoke: () => client.call('DELETE', `${path}/rotated`) };
}

/** Replaces the files that are mounted into a pod that runs. */
function remount(folder: string, { mounted }: Pod): void {
  for (const [path, text] of Object.entries(mounted)) writeFileSync(join(folder, path), text);
}

const tokenPath = '/var/run/secrets/kubernetes.io/serviceaccount/token';

/**
 * Replaces authority, certificates and tokens while server and agent run: both must continue with
 * the new ones, and the old ones must be of no use.
 */
export async function checkRotation(stage: Stage): Promise<void> {
  const { plane, client, folder, check, children, helm } = stage;
  const pair = await createPair(plane, client, join(folder, 'rotation'));
  try {
    const set = 'agent.enabled=true,agent.auth.mode=cert-manager';
    await helm('install', release, chart, '--create-namespace', '--set', set);
    await issue(client, join(folder, 'first-authority'));
    await createAgentPods(client, pair);
    const podsNow = async () => ({
      agent: await podOf(inside(stage), client, agent.workload, agent.file),
      server: await podOf(inside(stage), client, server.workload, server.file),
    });
    const old = await podsNow();
    const account = await revocableToken(stage, release);
    const mountedAtFirst = { ...old.server.mounted, [tokenPath]: account.token };
    const folders = { agent: join(folder, 'rotated-agent'), server: join(folder, 'rotated') };
    children.push(
      startPod(folders.agent, old.agent, pair.of.space.name),
      startPod(folders.server, { ...old.server, mounted: mountedAtFirst }, pair.outside.name),
    );
    await awaitAgents(pair.server, 'answering');
    check('rotation: the agent answers the server', null);

    await issue(client, join(folder, 'second-authority'));
    const next = await podsNow();
    remount(folders.server, next.server);
    remount(folders.agent, next.agent);
    await account.revoke();
    const askAPI = () => statusOf(`${plane.server}/version`, { ca: plane.ca }, account.token);
    await until(async () => (await askAPI()).status === 401, 'the old token is revoked');
    const askAgent = (trusted: Pod, shown: Pod): Promise<number> => {
      const tls = {
        ca: fileIn(trusted.mounted, 'ca.crt'),
        cert: fileIn(shown.mounted, 'tls.crt'),
        key: fileIn(shown.mounted, 'tls.key'),
        servername: `${release}-agent.${namespace}.svc`,
      };
      return statusOf(`${pair.agent}/v1/report`, tls, null).then(
        ({ status }) => status,
        () => 0,
      );
    };
    const began = Date.now();
    await until(async () => (await askAgent(next.server, next.server)) === 200, 'it is renewed');
    check('rotation: the agent has the new certificate and authority', null);
    const byOld = await askAgent(next.server, old.server);
    check('rotation: the agent refuses the old client certificate', equal(byOld, 401));
    check(
      'rotation: the old authority is refused',
      equal(await askAgent(old.server, next.server), 0),
    );
    const answers = 'endpoint_auditor_agent_requests_total{result="success"}';
    const before = await sampleOf(pair.server, answers);
    await until(async () => (await sampleOf(pair.server, answers)) > before, 'a new report');
    await awaitAgents(pair.server, 'answering');
    const seconds = Math.round((Date.now() - began) / 1000);
    check(`rotation: the agent answers the server again within ${seconds} s`, null);
    const ready = await fetch(`${pair.server}/readyz`);
    check('rotation: the server is ready with its new token', equal(ready.status, 200));
    const alive = children.slice(-2).map(({ exitCode, signalCode }) => exitCode ?? signalCode);
    check('rotation: no process has ended', equal(alive, [null, null]));
    await Promise.all(children.slice(-2).map((child) => endProgram(child)));
    await helm('uninstall', release);
  } finally {
    await pair.stop();
  }
}

// Shards with agents: both pods of the StatefulSet, one after the other, in the network namespace
// of the server, and the agent of a node in that of the node.

type Pair = Awaited<ReturnType<typeof createPair>>;

/** Where the agent runs. */
const node = 'node-a1';

const valuesOfShards = {
  image: { registry: 'images.example.com' },
  shards: 2,
  agent: { enabled: true, proxyConfig: JSON.stringify(proxyConfig(node, 'iptables', '')) },
};

/** What the API server sends behind the bridge of the namespace. */
const inside = (stage: Stage) => ({ ...stage.plane, server: 'https://127.0.0.1:6443' });

interface Share {
  readonly services: number;
  /** Nodes that the shard audits. */
  readonly nodes: number;
}

async function namesOf({ client }: Stage, resource: string): Promise<string[]> {
  const { items } = (await client.call('GET', `/api/v1/${resource}`)) as {
    items: { metadata: { name: string } }[];
  };
  return items.map(({ metadata }) => metadata.name);
}

/** The controllers have written the agent to the slices by which servers find it. */
const isListed = async ({ client }: Stage, { of }: Pair): Promise<boolean> =>
  JSON.stringify(
    await client.call('GET', `/apis/discovery.k8s.io/v1/namespaces/${namespace}/endpointslices`),
  ).includes(`"${of.address}"`);

/** Runs one shard; returns what it audits. If it asks the agent, the node must be right. */
async function shareOf(stage: Stage, pair: Pair, index: number): Promise<Share> {
  const { client, folder, check, children } = stage;
  const { outside, server: base } = pair;
  const first = await podOf(
    inside(stage),
    client,
    `${appsIn}/statefulsets/${release}`,
    server.file,
  );
  const args = first.args.map((text) => text.replace(/^--shard=0\//, `--shard=${index}/`));
  check(`shard ${index} has its index`, equal(args.includes(`--shard=${index}/2`), true));
  const child = startPod(join(folder, `shard-${index}`), { ...first, args }, outside.name);
  children.push(child);
  await until(async () => (await fetch(`${base}/readyz`)).ok, `shard ${index} is ready`);
  const scope = { ...wholeCluster, agents: true, shard: { index, count: 2 } };
  const own = (await namesOf(stage, 'nodes')).filter((name) => isNodeInScope(scope, name));
  const asks = own.includes(node);
  const nodesIn = (state: string): Promise<number> =>
    sampleOf(base, `endpoint_auditor_node_agents{state="${state}"}`);
  const answering = Number(asks);
  await until(
    async () =>
      (await nodesIn('answering')) === answering &&
      (await nodesIn('absent')) === own.length - answering,
    `shard ${index} audits ${own.length} nodes, ${answering} with an agent`,
  );
  if (asks) {
    await until(() => isRight(base), `shard ${index} has the rules of the node, and all are right`);
    check(`shard ${index} audits the rules of the node, and all are right`, null);
  }
  const services = await checkAudit(check, base);
  await endProgram(child);
  return { services, nodes: own.length };
}

/** Each node and each Service is in one shard, and the agent answers the shard that asks it. */
export async function checkShards(stage: Stage): Promise<void> {
  const { plane, client, folder, check, children, helm } = stage;
  const file = join(folder, 'shards.yaml');
  writeFileSync(file, JSON.stringify(valuesOfShards));
  const pair = await createPair(plane, client, join(folder, 'shards'));
  try {
    await helm('install', release, chart, '--create-namespace', '--values', file);
    await createAgentPods(client, pair);
    const pod = await podOf(inside(stage), client, agent.workload, agent.file);
    const child = startPod(join(folder, 'agent-shards'), pod, pair.of.space.name);
    children.push(child);
    await until(() => isListed(stage, pair), 'the agent is in a slice');
    const shares = [await shareOf(stage, pair, 0), await shareOf(stage, pair, 1)];
    await endProgram(child);
    const sumOf = (key: keyof Share): number => shares.reduce((sum, share) => sum + share[key], 0);
    check(
      'no shard is empty',
      equal(Math.min(...shares.map(({ services }) => services)) > 0, true),
    );
    const [services, nodes] = [await namesOf(stage, 'services'), await namesOf(stage, 'nodes')];
    check('each Service is in one shard', equal(sumOf('services'), services.length));
    check('each Node is in one shard', equal(sumOf('nodes'), nodes.length));
    await helm('uninstall', release);
  } finally {
    await pair.stop();
  }
}

// Chooses the API server and the credentials as kubectl does, by KubeConfig of
// @kubernetes/client-node. This file adds what KubeConfig lacks: the field tokenFile of a user,
// groups to impersonate, a certificate authority for a context without a user, plain HTTP, a proxy
// from the environment, exec plugins (exec-plugin.ts), and kubectl's rules for several files. To
// read cached tokens early, it loads everything again.

import { existsSync, readFileSync, statSync } from 'node:fs';
import type { RequestOptions } from 'node:https';
import { delimiter, dirname, join, resolve } from 'node:path';
import type { ConnectionOptions } from 'node:tls';

// Not the index of the package, which loads its clients of every API.
import { findHomeDir, KubeConfig } from '@kubernetes/client-node/dist/config.js';
import type { Cluster, User } from '@kubernetes/client-node/dist/config_types.js';
import { HttpMethod, RequestContext } from '@kubernetes/client-node/dist/gen/http/http.js';
import { type buildConnector, type Dispatcher, ProxyAgent } from 'undici';

import { type Fields, isFields } from '../../decode/json-fields.ts';
import { createExecPlugin } from './exec-plugin.ts';
import { systemErrorText } from '../../decode/problem.ts';
import { parseYaml } from '../../decode/yaml-text.ts';
import { proxyFor } from './proxy.ts';

export interface KubeconfigOptions {
  /** A kubeconfig file; null: what $KUBECONFIG names, ~/.kube/config, or the pod's own account. */
  readonly kubeconfig: string | null;
  /** null: the current context. */
  readonly context: string | null;
  /** The names of a cluster and a user of the kubeconfig in place of those of the context. */
  readonly cluster?: string | undefined;
  readonly user?: string | undefined;
  /** The user, and its groups, to impersonate. */
  readonly as?: string | undefined;
  readonly asGroups?: readonly string[] | undefined;
}

const podToken = '/var/run/secrets/kubernetes.io/serviceaccount/token';

/** As rest.InClusterConfig of k8s.io/client-go@v0.36.3, or by a kubeconfig file. */
export function isConfigured(environment: Readonly<Record<string, string | undefined>>): boolean {
  const { KUBERNETES_SERVICE_HOST: host = '', KUBERNETES_SERVICE_PORT: port = '' } = environment;
  const isInPod = host !== '' && port !== '' && existsSync(podToken);
  return isInPod || filesIn(environment).some((path) => existsSync(path));
}

/** Where to connect to, and how; `server` is such as `https://10.0.0.1:6443`. */
export interface Target {
  readonly server: string;
  readonly tls: Pick<
    ConnectionOptions,
    'ca' | 'cert' | 'key' | 'servername' | 'rejectUnauthorized'
  >;
  /** Sends requests through the proxy; null: none is needed. */
  readonly proxy: Dispatcher | null;
}

export type Account = ReturnType<typeof openAccount>;

/** Throws an Error that says which file, context or field is wrong. */
export function openAccount(options: KubeconfigOptions) {
  const stop = new AbortController();
  let loaded = load(options, stop.signal);
  return {
    server: loaded.cluster.server,
    /**
     * Loads the kubeconfig again after a request was rejected, unless another request has caused
     * that already. Otherwise each of many rejected requests would start an exec plugin.
     */
    refresh({ source }: Pick<Credentials, 'source'>): void {
      if (source === loaded) loaded = load(options, stop.signal);
    },
    /** Reads certificates and tokens that may have changed; rejects where one cannot be had. */
    credentials: () => credentialsOf(loaded, { ...loaded.impersonated, ...impersonation(options) }),
    /** The exec plugin that is running; `null` if none is. */
    runningPlugin: () => loaded.plugin?.running() ?? null,
    /** Ends the exec plugins that run. */
    close: () => stop.abort(),
  };
}

/** As rest.ImpersonationConfig of k8s.io/client-go@v0.36.3 transport/round_trippers.go. */
function impersonation({
  as,
  asGroups = [],
}: KubeconfigOptions): Readonly<Record<string, string | readonly string[]>> {
  return {
    ...(as === undefined ? {} : { 'Impersonate-User': as }),
    ...(asGroups.length === 0 ? {} : { 'Impersonate-Group': asGroups }),
  };
}

type Credentials = Awaited<ReturnType<typeof credentialsOf>>;

async function credentialsOf(
  source: ReturnType<typeof load>,
  impersonated: ReturnType<typeof impersonation>,
) {
  const { config, cluster, proxyUrl, plugin } = source;
  const applied: RequestOptions & { headers: Record<string, string> } = { headers: {} };
  await config.applyToHTTPSOptions(applied);
  if (plugin !== null) {
    const { token, cert, key } = await plugin.credentials();
    if (token !== null) applied.headers.Authorization = `Bearer ${token}`;
    if (cert !== null) applied.cert = cert;
    if (key !== null) applied.key = key;
  }
  const { headers, auth, ca, cert, key, servername, rejectUnauthorized } = applied;
  if (typeof auth === 'string') {
    headers.Authorization = `Basic ${Buffer.from(auth).toString('base64')}`;
  }
  // A token file may end with a newline.
  const trimmed = Object.entries(headers).map(([name, value]) => [name, value.trim()] as const);
  const tls: Target['tls'] = { ca, cert, key, servername, rejectUnauthorized };
  return {
    /** What was loaded. */
    source: source as object,
    server: cluster.server,
    headers: { ...Object.fromEntries(trimmed), ...impersonated },
    tls,
    /** Resolves with null where no proxy is needed. */
    openProxy: async () => (proxyUrl === null ? null : proxyTo(proxyUrl, cluster, tls)),
  };
}

/**
 * By HTTP/1.1: no ping would find a dead connection. SOCKS is left to another KubeConfig with only
 * the current certificates, so that no exec plugin runs again.
 */
async function proxyTo(proxyUrl: string, cluster: Cluster, tls: Target['tls']) {
  if (!proxyUrl.startsWith('socks')) {
    const requestTls = tls as buildConnector.BuildOptions;
    return new ProxyAgent({ uri: proxyUrl, requestTls, allowH2: false });
  }
  const [certData, keyData] = [tls.cert, tls.key].map((pem) =>
    pem === undefined ? undefined : Buffer.from(pem as string | Buffer).toString('base64'),
  );
  const user = { name: 'anybody', certData, keyData } as User;
  const config = new KubeConfig();
  config.loadFromClusterAndUser({ ...cluster, proxyUrl }, user);
  const context = new RequestContext(cluster.server, HttpMethod.GET);
  await config.applySecurityAuthentication(context);
  return context.getDispatcher() ?? null;
}

function filesIn(environment: Readonly<Record<string, string | undefined>>): string[] {
  const named = (environment.KUBECONFIG ?? '').split(delimiter).filter((path) => path !== '');
  if (named.length > 0) return named;
  const home = findHomeDir();
  return home === null ? [] : [join(home, '.kube', 'config')];
}

/**
 * As `Load` of k8s.io/client-go@v0.36.3 tools/clientcmd/loader.go: of two things with one name the
 * first counts, as does the first current context. KubeConfig takes the last one of these.
 */
function loadFiles(config: KubeConfig, paths: readonly string[]): void {
  const files = paths.map((path) => {
    const file = new KubeConfig();
    file.loadFromFile(path);
    return file;
  });
  const firstOfEach = <T extends { readonly name: string }>(items: readonly T[]): T[] =>
    items.filter(({ name }, index) => items.findIndex((item) => item.name === name) === index);
  config.loadFromOptions({
    clusters: firstOfEach(files.flatMap((file) => file.getClusters())),
    users: firstOfEach(files.flatMap((file) => file.getUsers())),
    contexts: firstOfEach(files.flatMap((file) => file.getContexts())),
    currentContext: files.map((file) => file.getCurrentContext()).find(Boolean) ?? '',
  });
}

function load(options: KubeconfigOptions, signal: AbortSignal) {
  const { kubeconfig } = options;
  const config = new KubeConfig();
  const named = kubeconfig === null ? filesIn(process.env) : [kubeconfig];
  // As for kubectl, some of several files may be missing or empty.
  const isEmpty = (path: string): boolean => named.length > 1 && statSync(path).size === 0;
  const existing = named.filter((path) => existsSync(path) && !isEmpty(path));
  const paths = existing.length > 0 ? existing : named;
  if (kubeconfig === null && !isConfigured(process.env)) {
    const pod = `not in a pod (${podToken}, KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT)`;
    const files = paths.length === 0 ? 'home with a .kube/config' : paths.join(delimiter);
    throw new Error(`No cluster to connect to: no ${files}, and ${pod}`);
  }
  const where = paths.length === 0 ? podToken : paths.join(delimiter);
  let chosen: ReturnType<typeof choose>;
  try {
    if (kubeconfig === null && existing.length === 0) config.loadFromDefault();
    else loadFiles(config, paths);
    chosen = choose(config, options);
  } catch (error) {
    const unread = systemErrorText(error);
    if (unread !== null) throw new Error(unread, { cause: error });
    const message = error instanceof Error ? error.message : String(error);
    throw new Error(`${where}: ${message}`, { cause: error });
  }
  const { user } = chosen;
  const { proxyUrl: ownProxy = '', ...found } = chosen.cluster;
  // Without a proxy, which KubeConfig would use otherwise.
  const cluster = found.server.startsWith('http:') ? { ...found, skipTLSVerify: true } : found;
  const proxyUrl = ownProxy === '' ? proxyFor(cluster.server, process.env) : ownProxy;
  const { folder, fields } = fieldsOf(paths, 'user', user.name);
  const tokenFile = typeof fields.tokenFile === 'string' ? resolve(folder, fields.tokenFile) : null;
  const authProvider = { name: 'tokenFile', config: { tokenFile } };
  const exec: unknown = user.exec;
  const withoutPlugin = { ...user, exec: undefined };
  const plugin =
    tokenFile === null && isFields(exec)
      ? createExecPlugin(exec, execInfo(exec, cluster, proxyUrl, paths), folder, signal)
      : null;
  config.loadFromClusterAndUser(
    cluster,
    tokenFile === null ? withoutPlugin : { ...withoutPlugin, authProvider },
  );
  return { config, cluster, proxyUrl, plugin, impersonated: impersonatedBy(fields) };
}

/**
 * The cluster and the user of a context, or those that the options name in their place. Throws an
 * Error that says what is wrong with them.
 */
function choose(config: KubeConfig, options: KubeconfigOptions): { cluster: Cluster; user: User } {
  const name = options.context ?? config.getCurrentContext();
  const context = config.getContextObject(name);
  const isNamed = options.cluster !== undefined && options.user !== undefined;
  if (context === null && !(isNamed && options.context === null)) {
    const known = config.getContexts().map((context) => context.name);
    if (known.length === 0) throw new Error('Is no kubeconfig: it has no contexts');
    const problem = name === '' ? 'No current context' : `No context ${quoted(name)}`;
    throw new Error(`${problem}; there are ${known.join(', ')} (see --context)`);
  }
  const clusterName = options.cluster ?? context?.cluster ?? '';
  const cluster = config.getCluster(clusterName);
  if (cluster === null) {
    const by = options.cluster === undefined ? `, which context ${quoted(name)} names` : '';
    throw new Error(`No cluster ${quoted(clusterName)}${by}`);
  }
  const user = config.getUser(options.user ?? context?.user ?? '');
  if (options.user !== undefined && user === null)
    throw new Error(`No user ${quoted(options.user)}`);
  const { server } = cluster;
  if (!/^https?:\/\//.test(server) || !URL.canParse(server)) {
    const wrong = `server of cluster ${quoted(clusterName)} is ${quoted(server)}`;
    throw new Error(`${wrong}, expected a URL such as https://10.0.0.1:6443`);
  }
  return { cluster, user: user ?? { name: 'anonymous' } };
}

const quoted = (name: unknown): string => JSON.stringify(name ?? '');

/** The value of KUBERNETES_EXEC_INFO, as k8s.io/client-go@v0.36.3 writes it. */
function execInfo(
  exec: Fields,
  cluster: Cluster,
  proxyUrl: string | null,
  paths: readonly string[],
): string {
  const { apiVersion, provideClusterInfo } = exec;
  const { caFile = '', caData } = cluster;
  const { extensions } = fieldsOf(paths, 'cluster', cluster.name).fields;
  const own = itemsOf(extensions).find((it) => it.name === 'client.authentication.k8s.io/exec');
  const about = {
    server: cluster.server,
    'tls-server-name': cluster.tlsServerName,
    'insecure-skip-tls-verify': cluster.skipTLSVerify,
    'certificate-authority-data':
      caData ?? (existsSync(caFile) ? readFileSync(caFile, 'base64') : undefined),
    'proxy-url': proxyUrl ?? undefined,
    // Settings of the plugin, such as the name of a shoot of Gardener.
    config: own?.extension,
  };
  return JSON.stringify({
    apiVersion: apiVersion ?? 'client.authentication.k8s.io/v1',
    kind: 'ExecCredential',
    spec: { interactive: false, ...(provideClusterInfo === true ? { cluster: about } : {}) },
  });
}

/** All fields of the first cluster or user with a name, and the folder of its file. */
function fieldsOf(paths: readonly string[], kind: 'cluster' | 'user', name: string) {
  for (const path of paths.filter((path) => existsSync(path))) {
    // KubeConfig has refused duplicate keys; this parser compares each key with all others.
    const file = parseYaml(readFileSync(path, 'utf8'), { uniqueKeys: false });
    const found = itemsOf(isFields(file) ? file[`${kind}s`] : null).find((it) => it.name === name);
    if (found === undefined) continue;
    const fields = found[kind];
    return { folder: dirname(path), fields: isFields(fields) ? fields : ({} as Fields) };
  }
  return { folder: '', fields: {} as Fields };
}

const itemsOf = (value: unknown): Fields[] =>
  Array.isArray(value) ? (value as unknown[]).filter(isFields) : [];

/** A key as a part of a header, whose name has no parentheses. */
const headerNameOf = (key: string): string =>
  encodeURIComponent(key).replaceAll('(', '%28').replaceAll(')', '%29');

/** What a user impersonates beside the field `as`, which KubeConfig reads. */
function impersonatedBy({ as, ...fields }: Fields): ReturnType<typeof impersonation> {
  const { 'as-uid': uid, 'as-groups': groups, 'as-user-extra': extra } = fields;
  if (typeof as !== 'string' || as === '') return {};
  const textsOf = (value: unknown): string[] =>
    Array.isArray(value) ? (value as unknown[]).map(String) : [];
  const all = Object.entries({
    'Impersonate-Uid': typeof uid === 'string' && uid !== '' ? [uid] : [],
    'Impersonate-Group': textsOf(groups),
    ...Object.fromEntries(
      Object.entries(isFields(extra) ? extra : {}).map(([key, values]) => [
        `Impersonate-Extra-${headerNameOf(key)}`,
        textsOf(values),
      ]),
    ),
  });
  return Object.fromEntries(all.filter(([, values]) => values.length > 0));
}

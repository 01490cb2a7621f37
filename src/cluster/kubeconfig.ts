// Which API server, and as whom: what kubectl would take, by @kubernetes/client-node's KubeConfig,
// which reads kubeconfig files and the service account of a pod, runs exec plugins and reads
// rotating token files. Of that package nothing else is used.
//
// KubeConfig does not know the field tokenFile of a user, ignores a cluster's certificate authority
// where the context names no user, and refuses plain HTTP; all three are made up for here. It keeps
// tokens for a minute and the output of an exec plugin until that expires; to read them anew
// before, everything is loaded anew.

import { existsSync, readFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { delimiter, dirname, join, resolve } from 'node:path';

import { KubeConfig } from '@kubernetes/client-node';
import { parse } from 'yaml';

import { isFields } from './fields.ts';

import type { RequestOptions } from 'node:https';
import type { Fields } from './fields.ts';

export interface KubeconfigOptions {
  /** A kubeconfig file; null: what $KUBECONFIG names, ~/.kube/config, or the pod's own account. */
  readonly kubeconfig: string | null;
  /** null: the current one. */
  readonly context: string | null;
}

/** What a connection is made with, as it is now. */
export interface Credentials {
  /** `https://10.0.0.1:6443`. */
  readonly server: string;
  readonly headers: Readonly<Record<string, string>>;
  /** ca, cert, key, servername, rejectUnauthorized, and the agent of a proxy. */
  readonly options: RequestOptions;
  readonly proxied: boolean;
}

export interface Account {
  /** Reads certificates and tokens that may have changed; rejects where one cannot be had. */
  credentials(): Promise<Credentials>;
  /** Forgets what is cached. */
  refresh(): void;
  readonly server: string;
}

/** Where a pod finds the token of its service account. */
const podToken = '/var/run/secrets/kubernetes.io/serviceaccount/token';

/** Whether there is anything to connect to without being told. */
export function isConfigured(environment: Readonly<Record<string, string | undefined>>): boolean {
  return filesIn(environment).some((path) => existsSync(path)) || existsSync(podToken);
}

/** Throws an Error that says which file, context or field is wrong. */
export function openAccount(options: KubeconfigOptions): Account {
  let config = load(options);
  return {
    server: config.getCurrentCluster()?.server ?? '',
    refresh: () => void (config = load(options)),
    credentials: () => credentialsOf(config),
  };
}

async function credentialsOf(config: KubeConfig): Promise<Credentials> {
  const cluster = config.getCurrentCluster();
  const proxied = (cluster?.proxyUrl ?? '') !== '';
  const applied: RequestOptions & { headers: Record<string, string> } = { headers: {} };
  // KubeConfig keeps a proxy's agent, with the certificates that it was made with.
  const source = proxied ? copyOf(config) : config;
  await source.applyToHTTPSOptions(applied);
  const { headers, auth, ...rest } = applied;
  if (typeof auth === 'string') {
    headers.Authorization = `Basic ${Buffer.from(auth).toString('base64')}`;
  }
  // A token file may end with a newline.
  const trimmed = Object.entries(headers).map(([name, value]) => [name, value.trim()]);
  return {
    server: cluster?.server ?? '',
    headers: Object.fromEntries(trimmed) as Record<string, string>,
    options: rest,
    proxied,
  };
}

function filesIn(environment: Readonly<Record<string, string | undefined>>): string[] {
  const named = (environment.KUBECONFIG ?? '').split(delimiter).filter((path) => path !== '');
  return named.length > 0 ? named : [join(homedir(), '.kube', 'config')];
}

function load({ kubeconfig, context }: KubeconfigOptions): KubeConfig {
  const config = new KubeConfig();
  const paths = kubeconfig === null ? filesIn(process.env) : [kubeconfig];
  if (kubeconfig === null && !isConfigured(process.env)) {
    throw new Error(`No cluster to connect to: no ${paths.join(delimiter)}, no ${podToken}`);
  }
  try {
    if (kubeconfig === null) config.loadFromDefault();
    else config.loadFromFile(kubeconfig);
  } catch (error) {
    throw new Error(`${paths.join(delimiter)}: ${messageOf(error)}`, { cause: error });
  }
  const problem = choose(config, context);
  if (problem !== null) throw new Error(`${paths.join(delimiter)}: ${problem}`);
  return completed(config, paths);
}

/** Makes a context the current one; returns what is wrong with it. */
function choose(config: KubeConfig, context: string | null): string | null {
  const name = context ?? config.getCurrentContext();
  const chosen = config.getContextObject(name);
  if (chosen === null) {
    const known = config.getContexts().map((one) => one.name);
    return `No context ${quoted(name)}; there are ${known.join(', ') || 'none'}`;
  }
  config.setCurrentContext(name);
  if (config.getCurrentCluster() !== null) return null;
  return `No cluster ${quoted(chosen.cluster)}, which context ${quoted(name)} names`;
}

const quoted = (name: unknown): string => JSON.stringify(name ?? '');

/** The cluster and user of the current context, with what KubeConfig leaves out. */
function completed(config: KubeConfig, paths: readonly string[]): KubeConfig {
  const cluster = config.getCurrentCluster();
  const user = config.getCurrentUser() ?? { name: 'anonymous' };
  const tokenFile = tokenFileOf(paths, user.name);
  const authProvider = { name: 'tokenFile', config: { tokenFile } };
  if (cluster !== null) {
    config.loadFromClusterAndUser(
      cluster.server.startsWith('http:') ? { ...cluster, skipTLSVerify: true } : cluster,
      tokenFile === null ? user : { ...user, authProvider },
    );
  }
  return config;
}

function copyOf(config: KubeConfig): KubeConfig {
  const copy = new KubeConfig();
  const [cluster, user] = [config.getCurrentCluster(), config.getCurrentUser()];
  if (cluster !== null && user !== null) copy.loadFromClusterAndUser(cluster, user);
  return copy;
}

/** The field tokenFile of a user, as an absolute path; a token beside it does not count. */
function tokenFileOf(paths: readonly string[], name: string): string | null {
  for (const path of paths.filter((one) => existsSync(one))) {
    const file: unknown = parse(readFileSync(path, 'utf8'));
    const users = isFields(file) && Array.isArray(file.users) ? (file.users as unknown[]) : [];
    const found = users.filter(isFields).find((user) => user.name === name);
    const user: Fields = found !== undefined && isFields(found.user) ? found.user : {};
    if (typeof user.tokenFile === 'string') return resolve(dirname(path), user.tokenFile);
  }
  return null;
}

const messageOf = (error: unknown): string =>
  error instanceof Error ? error.message : String(error);

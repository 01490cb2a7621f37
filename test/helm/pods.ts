// Pods of the chart as the kubelet would make them of the objects on the API server: arguments,
// environment, mounted Secrets and ConfigMaps, and a token of their ServiceAccount.

import { request as httpsRequest } from 'node:https';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

import type { Client } from '../controlplane/client.ts';
import type { ControlPlane } from '../controlplane/controlplane.ts';
import type { Pod } from './tree.ts';

export const namespace = 'monitoring';
export const within = `/api/v1/namespaces/${namespace}`;
export const appsIn = `/apis/apps/v1/namespaces/${namespace}`;

/** Where agents run. */
export const node = 'node-a1';

export async function until(isTrue: () => Promise<boolean>, what: string): Promise<void> {
  const deadline = Date.now() + 60_000;
  while (Date.now() < deadline) {
    if (await isTrue().catch(() => false)) return;
    await sleep(200);
  }
  throw new Error(`Waited in vain: ${what}`);
}

interface Container {
  readonly args: readonly string[];
  readonly env?: readonly {
    readonly name: string;
    readonly value?: string;
    readonly valueFrom?: { readonly fieldRef: { readonly fieldPath: string } };
  }[];
  readonly securityContext: { readonly capabilities: { readonly add?: readonly string[] } };
  readonly volumeMounts?: readonly { readonly name: string; readonly mountPath: string }[];
}

interface Volume {
  readonly name: string;
  readonly secret?: {
    readonly secretName: string;
    readonly items?: readonly { readonly key: string; readonly path: string }[];
  };
  readonly configMap?: { readonly name: string };
}

interface PodSpec {
  readonly serviceAccountName: string;
  readonly automountServiceAccountToken: boolean;
  readonly containers: readonly Container[];
  readonly volumes?: readonly Volume[];
}

/** The template of pods of a workload. */
export interface Template {
  readonly metadata: { readonly labels: Readonly<Record<string, string>> };
  readonly spec: PodSpec;
}

export async function templateOf({ call }: Client, path: string): Promise<Template> {
  const { spec } = (await call('GET', path)) as { spec: { template: Template } };
  return spec.template;
}

/** The values of the downward API for the first pod of its set on that node. */
const downward: Readonly<Record<string, string>> = {
  'spec.nodeName': node,
  "metadata.labels['apps.kubernetes.io/pod-index']": '0',
};

type Texts = Readonly<Record<string, string>>;

/** The files of a volume, by their names in it. */
async function filesIn({ call }: Client, { secret, configMap }: Volume): Promise<Texts> {
  if (configMap !== undefined) {
    const { data } = (await call('GET', `${within}/configmaps/${configMap.name}`)) as {
      data: Texts;
    };
    return data;
  }
  const path = `${within}/secrets/${secret?.secretName ?? ''}`;
  const { data } = (await call('GET', path)) as { data: Texts };
  const items = secret?.items ?? Object.keys(data).map((key) => ({ key, path: key }));
  return Object.fromEntries(
    items.map((item) => [item.path, Buffer.from(data[item.key] ?? '', 'base64').toString()]),
  );
}

async function mountedBy(client: Client, { volumes = [], containers }: PodSpec): Promise<Texts> {
  const files: Record<string, string> = {};
  for (const { name, mountPath } of containers[0]?.volumeMounts ?? []) {
    const volume = volumes.find((one) => one.name === name);
    if (volume === undefined) throw new Error(`There is no volume ${name}`);
    for (const [file, text] of Object.entries(await filesIn(client, volume))) {
      files[join(mountPath, file)] = text;
    }
  }
  return files;
}

/** A token as the kubelet would have it mounted. */
export async function tokenOf({ call }: Client, account: string): Promise<string> {
  const made = await call('POST', `${within}/serviceaccounts/${account}/token`, { spec: {} });
  return (made as { status: { token: string } }).status.token;
}

/** The pod that a workload makes, with all that the kubelet would give it. */
export async function podOf(
  plane: Pick<ControlPlane, 'server' | 'ca'>,
  client: Client,
  path: string,
  containerfile: Pod['containerfile'],
): Promise<Pod & { readonly token: string | null }> {
  const { spec } = await templateOf(client, path);
  const [container] = spec.containers;
  if (container === undefined) throw new Error(`${path} has no container`);
  const env: Record<string, string> = {};
  for (const { name, value, valueFrom } of container.env ?? []) {
    env[name] = value ?? downward[valueFrom?.fieldRef.fieldPath ?? ''] ?? '';
  }
  const expand = (text: string): string =>
    text.replaceAll(/\$\((\w+)\)/g, (_all, name: string) => env[name] ?? '');
  const token = spec.automountServiceAccountToken
    ? await tokenOf(client, spec.serviceAccountName)
    : null;
  const account = '/var/run/secrets/kubernetes.io/serviceaccount';
  const own = token === null ? {} : { token, 'ca.crt': plane.ca, namespace };
  const mounted: Record<string, string> = { ...(await mountedBy(client, spec)) };
  for (const [name, text] of Object.entries(own)) mounted[join(account, name)] = text;
  const { hostname, port } = new URL(plane.server);
  return {
    containerfile,
    args: container.args.map(expand),
    env: { ...env, KUBERNETES_SERVICE_HOST: hostname, KUBERNETES_SERVICE_PORT: port },
    mounted,
    capabilities: container.securityContext.capabilities.add ?? [],
    token,
  };
}

/** What a client shows and believes. */
export interface Tls {
  readonly ca: string;
  readonly servername?: string;
  readonly cert?: string;
  readonly key?: string;
}

/** The answer to a request with a token, or without; throws where there is none. */
export function statusOf(
  url: string,
  tls: Tls,
  token: string | null,
  method = 'GET',
): Promise<{ readonly status: number; readonly text: string }> {
  return new Promise((resolve, reject) => {
    const headers = token === null ? {} : { authorization: `Bearer ${token}` };
    const request = httpsRequest(url, { ...tls, method, headers, agent: false }, (response) => {
      let text = '';
      response.on('data', (part: Buffer) => {
        text += part.toString();
      });
      response.on('end', () => {
        resolve({ status: response.statusCode ?? 0, text });
      });
      response.on('error', reject);
    });
    request.on('error', reject);
    request.end();
  });
}

export async function sampleOf(base: string, series: string): Promise<number> {
  const text = await (await fetch(`${base}/metrics`)).text();
  const line = text.split('\n').find((one) => one.startsWith(`${series} `));
  if (line === undefined) throw new Error(`There is no ${series}`);
  return Number(line.slice(series.length + 1));
}

/** null: equal; else in what they differ. */
export const equal = (got: unknown, want: unknown): string | null =>
  JSON.stringify(got) === JSON.stringify(want)
    ? null
    : `got ${JSON.stringify(got)}, want ${JSON.stringify(want)}`;

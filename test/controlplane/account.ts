// The account of the auditor, with the permissions that it asks for and no other: get, list and
// watch of the five resources. It reads its token from a file, as in a pod.

import { writeFileSync } from 'node:fs';
import { join } from 'node:path';

import type { Client } from './client.ts';
import type { ControlPlane } from './controlplane.ts';

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

// What the end-to-end test says to a control plane: requests of the REST API, a dump of the five
// resources as kubectl writes it, and waiting until the controllers have nothing left to do.

import { Agent, request as httpsRequest } from 'node:https';
import { setTimeout as sleep } from 'node:timers/promises';

import type { ControlPlane } from './controlplane.ts';

export type Method = 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';

export interface Meta {
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

export interface Dump {
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

// The load server (apiserver/): an API server with a made-up cluster as large as clusters get, and
// with changes on demand.

import { mkdtemp, rm } from 'node:fs/promises';
import { request } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

import { build, start } from './programs.ts';

export interface LoadOptions {
  /** Divides all counts; 1 is the full world of 150,000 pods. */
  readonly share?: number;
  /** JSON of a pod, managedFields included; 12,000 by default. */
  readonly podBytes?: number;
  /** Seconds between bookmarks. */
  readonly bookmark?: number;
  /** Whether it answers in JSON regardless of the Accept header, as a proxy may do. */
  readonly json?: boolean;
  /** The core it runs on; null: any. */
  readonly core?: number | null;
}

/** When an event was made and when it was first written to a watch, Unix seconds. */
export interface Stamp {
  readonly resource: 'pods' | 'endpoints' | 'endpointslices';
  readonly namespace: string;
  readonly service: string;
  /** Of the pod, or of the Service for what the controllers write. */
  readonly name: string;
  readonly resourceVersion: number;
  readonly ready: boolean;
  readonly madeAt: number;
  /** 0 before the first watch. */
  readonly sentAt: number;
}

export interface LoadServer {
  readonly url: string;
  readonly kubeconfig: string;
  readonly token: string;
  /** The authority's certificate, PEM. */
  readonly authority: string;
  readonly pid: number;
  /**
   * Changes the readiness of this many pods per second, and their slices and Endpoints, or
   * `alone` have a new version and nothing else; 0 stops.
   */
  readonly churn: (rate: number, alone?: boolean) => Promise<void>;
  /** All events since the start, or since they were last cleared. */
  readonly stamps: (clear: boolean) => Promise<Stamp[]>;
  /** How often what was asked for: `GET /api/v1/pods watch`. */
  readonly requests: () => Promise<Record<string, number>>;
  /** How many objects there are of each resource. */
  readonly world: () => Promise<Record<string, number>>;
  readonly stop: () => Promise<void>;
}

/** Builds the load server if need be, starts it and waits until it listens. */
export async function startLoadServer(options: LoadOptions = {}): Promise<LoadServer> {
  const { share = 1, podBytes = 12_000, bookmark = 60, json = false, core = null } = options;
  const path = await build('apiserver', '.', 'apiserver');
  const dir = await mkdtemp(join(tmpdir(), 'endpoint-auditor-load-'));
  const args = ['-dir', dir, '-share', String(share), '-pod-bytes', String(podBytes)];
  args.push('-bookmark', `${bookmark}s`, ...(json ? ['-json'] : []));
  const program = start(path, args, core);
  const stop = async (): Promise<void> => {
    await program.stop();
    await rm(dir, { recursive: true, force: true });
  };
  const { stdout } = program.child;
  if (stdout === null) throw new Error('Expected a pipe');
  for await (const line of createInterface({ input: stdout })) {
    const told = JSON.parse(line) as Pick<LoadServer, 'url' | 'kubeconfig' | 'token' | 'authority'>;
    return { ...told, pid: program.pid, ...controls(told), stop };
  }
  await stop();
  throw new Error('The load server ended before it listened');
}

type Controls = Pick<LoadServer, 'churn' | 'stamps' | 'requests' | 'world'>;

function controls(at: Pick<LoadServer, 'url' | 'token' | 'authority'>): Controls {
  const ask = async (method: string, path: string): Promise<unknown> => {
    const { promise, resolve, reject } = Promise.withResolvers<unknown>();
    const headers = { authorization: `Bearer ${at.token}` };
    const options = { method, headers, ca: at.authority };
    const asked = request(`${at.url}/control/${path}`, options, (answer) => {
      const parts: Buffer[] = [];
      answer.on('data', (part: Buffer) => parts.push(part));
      answer.on('error', reject);
      answer.on('end', () => {
        const text = Buffer.concat(parts).toString();
        if (answer.statusCode === 200) resolve(JSON.parse(text));
        else reject(new Error(`${method} ${path}: ${String(answer.statusCode)} ${text}`));
      });
    });
    asked.on('error', reject);
    asked.end();
    return promise;
  };
  return {
    churn: async (rate, alone = false) => {
      await ask('POST', `churn?rate=${rate}&alone=${String(alone)}`);
    },
    stamps: async (clear) => (await ask('GET', `stamps?clear=${String(clear)}`)) as Stamp[],
    requests: async () => (await ask('GET', 'requests')) as Record<string, number>,
    world: async () => (await ask('GET', 'world')) as Record<string, number>,
  };
}

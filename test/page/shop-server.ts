// An API server on loopback with the objects with which the recording of the shop begins, and a
// kubeconfig for it. It can be ended and started again on the same port.

import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';

import type { Resource } from '../../src/model/objects.ts';
import {
  createServer,
  keyPath,
  listen,
  type Listener,
  type Raw,
  realClock,
} from '../apiserver/server.ts';
import { freePort } from '../processes.ts';

const recording = join(import.meta.dirname, '../recordings/shop.ndjson.gz');

interface Line {
  readonly type?: string;
  readonly resource: Resource;
  readonly object: Raw;
}

/** `start` resolves to a running server; nothing listens before. */
export async function createShopServer() {
  const world = createServer(realClock);
  for (const text of gunzipSync(readFileSync(recording)).toString().trim().split('\n')) {
    const line = JSON.parse(text) as Line;
    if (line.type !== 'SYNC') continue;
    const { metadata } = world.objects.put(line.resource, line.object);
    // References to the object have the uid of the recording.
    Object.assign(metadata, { uid: line.object.metadata.uid });
  }
  const port = await freePort();
  const cluster = {
    server: `https://127.0.0.1:${String(port)}`,
    'certificate-authority': keyPath('server', 'crt'),
  };
  const kubeconfig = join(mkdtempSync(join(tmpdir(), 'shop-server-')), 'config');
  const content = {
    apiVersion: 'v1',
    kind: 'Config',
    clusters: [{ name: 'c', cluster }],
    users: [{ name: 'u', user: {} }],
    contexts: [{ name: 'x', context: { cluster: 'c', user: 'u' } }],
    'current-context': 'x',
  };
  writeFileSync(kubeconfig, JSON.stringify(content));
  return { kubeconfig, start: (): Promise<Listener> => listen(world.ask, { port }) };
}

// A recording of a cluster whose names are scripts: no API server admits them, but a file may say
// anything, and pages must show it all the same.

import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const name = '<img src=x onerror=alert(2)>"\'<script>globalThis.taken=true<script>';

const meta = { name, namespace: 'shop', uid: 'u', resourceVersion: '1' };
const labels = { app: name };

const objects: Readonly<Record<string, object>> = {
  nodes: { metadata: { name, uid: 'n', resourceVersion: '1' } },
  services: {
    metadata: { ...meta, labels },
    spec: { clusterIP: '10.96.0.1', ipFamilies: ['IPv4'], selector: labels, ports: [] },
  },
  pods: {
    metadata: { ...meta, labels },
    spec: { nodeName: name, containers: [] },
    status: { podIPs: [{ ip: '10.0.0.1' }], conditions: [{ type: 'Ready', status: 'True' }] },
  },
  endpoints: {
    metadata: meta,
    subsets: [{ addresses: [{ ip: '10.0.0.9', nodeName: name }], ports: [{ name, port: 1 }] }],
  },
  endpointslices: {
    metadata: {
      ...meta,
      name: `${name}-1`,
      labels: {
        'kubernetes.io/service-name': name,
        'endpointslice.kubernetes.io/managed-by': 'endpointslice-controller.k8s.io',
      },
    },
    addressType: 'IPv4',
    endpoints: [{ addresses: ['10.0.0.9'], conditions: { ready: true }, nodeName: name }],
    ports: [{ name, port: 1, protocol: 'TCP' }],
  },
};

/** Writes it, and says which name everything in it has. */
export function recordHostile(): { file: string; name: string } {
  const resources = Object.keys(objects);
  const lines: unknown[] = [
    { kind: 'header', format: 1, at: 10, kubernetes: name, resources },
    ...resources.flatMap((resource) => [
      { kind: 'object', at: 10, resource, type: 'SYNC', object: objects[resource] },
      { kind: 'synced', at: 10, resource },
    ]),
    { kind: 'end', at: 60 },
  ];
  const file = join(mkdtempSync(join(tmpdir(), 'hostile-')), 'hostile.ndjson');
  writeFileSync(file, lines.map((line) => `${JSON.stringify(line)}\n`).join(''));
  return { file, name };
}

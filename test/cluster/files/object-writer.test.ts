// A model object that is written and read again is equal.

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import { project } from '../../../src/cluster/decode/json-objects.ts';
import { writeObject } from '../../../src/cluster/files/object-writer.ts';
import type { AnyObject, Resource } from '../../../src/model/objects.ts';
import { annotation } from '../../../src/model/objects.ts';
import { resourceOf } from '../../build.ts';
import { steps } from '../../random-cluster.ts';

/** The object after it was written as JSON and read, with the times that a line states. */
function readBack(resource: Resource, object: AnyObject): AnyObject | undefined {
  const raw: unknown = JSON.parse(JSON.stringify(writeObject(resource, object)));
  const at = 'at' in object ? object.at : 0;
  const bytes = 'bytes' in object ? object.bytes : null;
  const read = project(resource, raw, at, { bytes }).object;
  return read && 'ipsSince' in object ? { ...read, ipsSince: object.ipsSince } : read;
}

const texts = readFileSync(join(import.meta.dirname, '../../recordings/shop.ndjson.gz'));

test('every object of a real control plane is equal', () => {
  let count = 0;
  for (const line of gunzipSync(texts).toString().trimEnd().split('\n')) {
    const { kind, resource, type, object } = JSON.parse(line) as Record<string, unknown>;
    if (kind !== 'object' || type === 'BOOKMARK') continue;
    const known = project(resource as Resource, object, 5, { bytes: 9 }).object;
    if (known === undefined) throw new Error(line);
    expect(readBack(resource as Resource, known)).toEqual(known);
    count++;
  }
  expect(count).toBeGreaterThan(3000);
});

test('every random object is equal', () => {
  fc.assert(
    fc.property(steps, (step) => {
      if (step.kind !== 'put') return;
      const { object } = step;
      const resource = resourceOf(object);
      // The model of Pods and Nodes has neither an arrival nor labels of Nodes.
      const bare = { ...object, at: undefined };
      const isArrived = resource !== 'pods' && resource !== 'nodes';
      const known = isArrived ? object : { ...bare, ...(resource === 'nodes' && { labels: {} }) };
      expect(readBack(resource, known as AnyObject)).toEqual(known);
    }),
    { numRuns: 2000 },
  );
});

describe('what is not audited is not written', () => {
  test('environment variables, arguments and the last-applied annotation', () => {
    const metadata = {
      name: 'web',
      namespace: 'shop',
      annotations: { [annotation.lastApplied]: 'secret' },
    };
    const container = { args: ['secret'], env: [{ name: 'A', value: 'secret' }], image: 'secret' };
    const raws = {
      pods: { metadata, spec: { containers: [container], initContainers: [container] } },
      endpoints: { metadata },
      endpointslices: { metadata, addressType: 'IPv4' },
      services: { metadata, spec: {} },
    };
    for (const [resource, raw] of Object.entries(raws)) {
      const { object } = project(resource as Resource, raw, 1);
      if (object === undefined) throw new Error(resource);
      expect(JSON.stringify(writeObject(resource as Resource, object))).not.toContain('secret');
    }
  });
});

test('a pod is written whatever its grace period is', () => {
  const deletion = { deletionTimestamp: '2026-11-21T08:00:00Z' };
  for (const deletionGracePeriodSeconds of [30, 9_223_372_036, 10 ** 13, 2 ** 63]) {
    const metadata = { name: 'web', namespace: 'shop', ...deletion, deletionGracePeriodSeconds };
    const { object } = project('pods', { metadata }, 1);
    if (object === undefined) throw new Error('unreadable');
    expect(readBack('pods', object)).toMatchObject({ deleting: true });
  }
});

test('a pod has the times of the API server, and no list or map without entries', () => {
  const created = '2026-11-21T08:00:00Z';
  const raw = { metadata: { name: 'web', namespace: 'shop', creationTimestamp: created } };
  const pods = { ...raw, spec: { initContainers: [{ restartPolicy: 'Always' }] } };
  const raws = { pods, services: raw, endpoints: raw, endpointslices: { ...raw, endpoints: [{}] } };
  for (const [resource, given] of Object.entries(raws)) {
    const { object } = project(resource as Resource, { ...given, addressType: 'IPv4' }, 1);
    if (object === undefined) throw new Error(resource);
    const text = JSON.stringify(writeObject(resource as Resource, object));
    expect(text).toContain(`"creationTimestamp":"${created}"`);
    expect(text).not.toMatch(/"(?:annotations|hints)":\{\}|"(?:externalIPs|initContainers)":\[/);
  }
});

// Every pair of a pod and a Service of the vector files: of each case line, the Services and the
// pods of its namespace with the Nodes of its step, all combinations.

import { createReadStream, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { createGunzip } from 'node:zlib';

import type { PodAndService } from '../../src/audit/explain/condition.ts';
import { nodeOf } from '../../src/audit/service/cache.ts';
import type { Release } from '../../src/shadow/release.ts';
import { newestRelease, releaseOf } from '../../src/shadow/release.ts';
import type { Raw, World } from './world.ts';
import { createWorld, takeStep } from './world.ts';

interface Line {
  readonly kind: string;
  readonly version?: string;
  readonly case: string;
  readonly step: number;
  readonly items: Raw[];
  readonly services: Raw[];
  readonly pods: Raw[];
  readonly endpoints: Raw[];
  readonly endpointSlices: Raw[];
}

/** The vector files of recorded states, without those of labelled faults. */
export const caseFiles: readonly string[] = readdirSync(join(import.meta.dirname, 'data')).filter(
  (name) => name.endsWith('.ndjson.gz') && !name.includes('faults'),
);

/** The worlds of all cases after each of their steps, one at a time. */
export async function* worldsOf(name: string): AsyncGenerator<World> {
  const file = createReadStream(join(import.meta.dirname, 'data', name)).pipe(createGunzip());
  let release: Release = newestRelease;
  const nodes = new Map<number, readonly Raw[]>();
  const worlds = new Map<string, World>();
  for await (const text of createInterface({ input: file, crlfDelay: Infinity })) {
    if (text === '') continue;
    const line = JSON.parse(text) as Line;
    if (line.kind === 'header') release = releaseOf(line.version ?? '') ?? release;
    else if (line.kind === 'nodes') nodes.set(line.step, line.items);
    else if (line.kind === 'case') {
      const world = worlds.get(line.case) ?? createWorld(release);
      worlds.set(line.case, world);
      const { services, pods, endpoints, endpointSlices: endpointslices } = line;
      takeStep(world, {
        nodes: nodes.get(line.step) ?? [],
        services,
        pods,
        endpoints,
        endpointslices,
      });
      yield world;
    }
  }
}

/** Every pod with every Service of the world. */
export function* pairsOf({ context: { snapshot } }: World): Generator<PodAndService> {
  for (const service of snapshot.services.values()) {
    for (const pod of snapshot.pods.values()) {
      yield { service, pod, node: nodeOf(snapshot, pod) };
    }
  }
}

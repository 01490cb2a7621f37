// Every pair of a pod and a Service of the vector files: of each case line, the Services and the
// pods of its namespace with the Nodes of its step, all combinations. Also checks the conditions
// of a pair.

import { createReadStream, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { createGunzip } from 'node:zlib';

import { expect } from 'vitest';

import type { ExpectedEntry, PodAndService } from '../../src/audit/explain/conditions.ts';
import {
  decidingCondition,
  entryStates,
  evaluateConditions,
  expectedEntries,
} from '../../src/audit/explain/conditions.ts';
import { nodeOf } from '../../src/audit/service/cache.ts';
import type { Release } from '../../src/shadow/release.ts';
import { newestRelease, releaseOf } from '../../src/shadow/release.ts';
import { fixCondition } from './fix-condition.ts';
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
export function* pairsOf({ context: { listers } }: World): Generator<PodAndService> {
  for (const service of listers.services.values()) {
    for (const pod of listers.pods.values()) {
      yield { service, pod, node: nodeOf(listers, pod) };
    }
  }
}

const isReady = ({ state }: ExpectedEntry): boolean => state === 'ready';

/**
 * Compares the conditions of a pair with its desired state, also after the changes that they
 * propose. `counts` counts the comparisons.
 */
export function checkConditions(
  pair: PodAndService,
  release: Release,
  counts: Record<string, number>,
): void {
  const evaluated = evaluateConditions(pair, release);
  const failed = evaluated.conditions.filter(({ passes }) => passes === false);
  const name = `${pair.service.key} ${pair.pod.key}`;
  counts.pairs = (counts.pairs ?? 0) + 1;
  for (const { place, state } of expectedEntries(pair, release)) {
    const effects = evaluated.conditions.map((condition) => condition.effects.get(place));
    const worst = entryStates.find((known) => effects.includes(known)) ?? 'ready';
    expect(worst, `${name} at ${place}`).toBe(state);
    const deciding = decidingCondition(evaluated, place);
    expect(deciding === null, `${name} at ${place}`).toBe(state === 'ready');
    if (deciding === null) continue;
    counts[deciding.name] = (counts[deciding.name] ?? 0) + 1;
    counts.counterfactuals = (counts.counterfactuals ?? 0) + 1;
    if (failed.length === 1) counts.alone = (counts.alone ?? 0) + 1;
    // After all other changes, this condition alone keeps the pod from being ready.
    const others = failed.filter((condition) => condition !== deciding).reduce(fixCondition, pair);
    const text = `${name} at ${place}: ${deciding.name}`;
    const stateOf = (changed: PodAndService) =>
      expectedEntries(changed, release).find((entry) => entry.place === place)?.state;
    expect(stateOf(others), text).not.toBe('ready');
    expect(stateOf(fixCondition(others, deciding)), text).toBe('ready');
    const after = decidingCondition(
      evaluateConditions(fixCondition(pair, deciding), release),
      place,
    );
    expect(after?.text, text).not.toBe(deciding.text);
  }
  const fixed = failed.reduce(fixCondition, pair);
  expect(expectedEntries(fixed, release).every(isReady), name).toBe(true);
}

// Every pair of a pod and a Service of the vector files: of each case line, the Services and the
// pods of its namespace with the Nodes of its step, all combinations. What the conditions of any
// pair must be is checked here too.

import { createReadStream, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { createGunzip } from 'node:zlib';

import { expect } from 'vitest';

import type { Condition, ExpectedEntry, PodAndService } from '../../src/audit/explain/condition.ts';
import { expectedEntries } from '../../src/audit/explain/condition.ts';
import type { Conditions } from '../../src/audit/explain/conditions.ts';
import {
  concludedState,
  decidingCondition,
  evaluateConditions,
} from '../../src/audit/explain/conditions.ts';
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
export function* pairsOf({ context: { listers } }: World): Generator<PodAndService> {
  for (const service of listers.services.values()) {
    for (const pod of listers.pods.values()) {
      yield { service, pod, node: nodeOf(listers, pod) };
    }
  }
}

const isWhole = (outcomes: readonly ExpectedEntry[]): boolean =>
  outcomes.every(({ state: standing }) => standing === 'ready');

const fails = ({ conditions: steps }: Conditions): Condition[] =>
  steps.filter(({ passes }) => passes === false);

const mended = (pair: PodAndService, steps: readonly Condition[]): PodAndService =>
  steps.reduce((now, step) => step.fix(now), pair);

const nameOf = ({ service, pod }: PodAndService): string => `${service.key} ${pod.key}`;

/** What a chain must be; throws where it is not. `counts` counts the comparisons. */
export function checkConditions(
  pair: PodAndService,
  release: Release,
  counts: Record<string, number>,
): void {
  const chain = evaluateConditions(pair, release);
  const wrong = fails(chain);
  counts.pairs = (counts.pairs ?? 0) + 1;
  for (const { place, state: standing } of expectedEntries(pair, release)) {
    expect(concludedState(chain, place), `${nameOf(pair)} at ${place}`).toBe(standing);
    const deciding = decidingCondition(chain, place);
    expect(deciding === null, `${nameOf(pair)} at ${place}`).toBe(standing === 'ready');
    if (deciding === null) continue;
    counts[deciding.name] = (counts[deciding.name] ?? 0) + 1;
    counts.counterfactuals = (counts.counterfactuals ?? 0) + 1;
    if (wrong.length === 1) counts.alone = (counts.alone ?? 0) + 1;
    // Whatever else is in the way: put right, it is this step that keeps the pod from being ready,
    // and mending it moves on to another, or is enough.
    const others = mended(
      pair,
      wrong.filter((step) => step !== deciding),
    );
    const text = `${nameOf(pair)} at ${place}: ${deciding.name}`;
    const at = (outcomes: readonly ExpectedEntry[]) => outcomes.find((one) => one.place === place);
    expect(at(expectedEntries(others, release))?.state, text).not.toBe('ready');
    expect(at(expectedEntries(deciding.fix(others), release))?.state, text).toBe('ready');
    const after = decidingCondition(evaluateConditions(deciding.fix(pair), release), place);
    expect(after?.text, text).not.toBe(deciding.text);
  }
  expect(isWhole(expectedEntries(mended(pair, wrong), release)), nameOf(pair)).toBe(true);
}

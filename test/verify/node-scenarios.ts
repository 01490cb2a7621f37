// Scenarios of nodes (test/nodes/scenarios) as recordings: each step is followed by readings of the
// same rules, until the next step or until all windows have ended.

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Readable } from 'node:stream';

import type { Source } from '../../src/cluster/files/recording.ts';
import { createWorld, playStep, textFor, variants } from '../nodes/scenarios/play.ts';
import type { Variant } from '../nodes/scenarios/play.ts';
import { epoch } from '../scenarios/api.ts';
import { parseScenario } from '../scenarios/parse.ts';
import type { Result } from './compare.ts';
import { verifyReplays } from './compare.ts';
import type { Mutant } from './compare.ts';

const folder = join(import.meta.dirname, '..', 'nodes', 'scenarios');

/** Seconds of the settle window, and from one reading to the next. */
const [settle, period] = [10, 4];

function linesOf(name: string, variant: Variant): object[] {
  const text = readFileSync(join(folder, name), 'utf8');
  const scenario = parseScenario(name, textFor(text, variant));
  const world = createWorld(scenario, variant);
  const { api, nodeRules } = world;
  const resources = [...scenario.delivered];
  const kubernetes = `v1.${String(scenario.release.minor)}.0`;
  const lines: object[] = [{ kind: 'header', format: 1, at: epoch, kubernetes, resources }];
  let isList = true;
  const takeEvents = api.takeEvents.bind(api);
  api.takeEvents = () => {
    const events = takeEvents();
    const at = epoch + api.now;
    for (const { resource, type, raw } of events) {
      const word = isList ? 'SYNC' : type.toUpperCase();
      lines.push({ kind: 'object', at, resource, type: word, object: raw });
    }
    for (const resource of isList ? resources : []) lines.push({ kind: 'synced', at, resource });
    isList = false;
    return events;
  };
  const take = nodeRules.take.bind(nodeRules);
  nodeRules.take = (entry, at) => {
    take(entry, at);
    if (entry.kind === 'node-config') {
      const { kind, node, mode, clusterCIDRs } = entry;
      lines.push({ kind, at, node, mode, clusterCIDR: clusterCIDRs.join(',') });
    } else if (entry.kind === 'node-rules') {
      const { kind, node, tool, family, text: rules } = entry;
      const line = { kind, at, node, tool, family };
      lines.push(rules === null ? { ...line, unchanged: true } : { ...line, text: rules });
      const next = scenario.steps.find((step) => epoch + step.at > at)?.at ?? Infinity;
      for (let later = at + period; later <= at + 3 * settle; later += period) {
        if (later < epoch + next) lines.push({ ...line, at: later, unchanged: true });
      }
    }
  };
  for (const step of scenario.steps) playStep(world, step);
  return [...lines, { kind: 'end', at: (lines.at(-1) as { at: number }).at }];
}

/** A scenario in all four ways. */
export async function verifyNodeScenario(
  name: string,
  mutant: () => Mutant = () => ({}),
): Promise<Result> {
  const total: Result = { events: 0, findings: 0, readings: 0, disagreements: [] };
  for (const variant of variants) {
    const text = linesOf(name, variant)
      .map((line) => `${JSON.stringify(line)}\n`)
      .join('');
    const open = (): Source => ({ name, bytes: Readable.from([Buffer.from(text)]) });
    const result = await verifyReplays(open, { settle }, mutant);
    total.events += result.events;
    total.findings += result.findings;
    total.readings += result.readings;
    const way = `${variant.mode} ${variant.family}`;
    total.disagreements.push(...result.disagreements.map((line) => `${way}: ${line}`));
  }
  return total;
}

// What a checkpoint has of the past, also if someone has changed it: an auditor leaves out what it
// cannot read, and answers.

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Readable } from 'node:stream';

import { describe, expect, test } from 'vitest';

import { reportIncident } from '../../src/audit/incident/report.ts';
import { createSavedPast, pastOf } from '../../src/audit/past.ts';
import { type Auditor, createAuditor } from '../../src/auditor/auditor.ts';
import { createReport } from '../../src/auditor/queries.ts';
import { replay } from '../../src/auditor/replay.ts';
import { readRecording } from '../../src/cluster/files/recording.ts';
import { checkpointOf } from '../../src/history/checkpoint.ts';
import { createLagReport } from '../../src/output/text/lag.ts';
import { auditorDefaults } from '../build.ts';
import { randomOf } from '../history/crash.ts';
import { parseScenario } from '../scenarios/parse.ts';
import { linesOf, scenarioFolder, scenarioNames } from '../verify/verify.ts';

async function replayed(text: string): Promise<Auditor> {
  const auditor = createAuditor({ ...auditorDefaults, settle: 10 });
  const bytes = Readable.from([Buffer.from(text)]);
  const entries = readRecording({ name: 'recording', bytes }, () => undefined);
  await replay(auditor, entries, { speed: Infinity, until: null });
  return auditor;
}

/** The lines of checkpoints after all scenarios with open or resolved incidents. */
async function checkpoints(): Promise<readonly (readonly string[])[]> {
  const found: (readonly string[])[] = [];
  for (const name of scenarioNames()) {
    const scenario = parseScenario(name, readFileSync(join(scenarioFolder, name), 'utf8'));
    const lines = [...linesOf(scenario)].map((line) => `${JSON.stringify(line)}\n`);
    if (lines.length > 40) continue;
    const auditor = await replayed(lines.join(''));
    const { incidents } = auditor;
    if (incidents.resolved().length === 0 || incidents.list().length === 0) continue;
    const checkpoint = checkpointOf(auditor, auditor.now() ?? 0);
    found.push([...(checkpoint?.parts ?? [])]);
  }
  return found;
}

/** It becomes an object with too many levels for a recursive function. */
const deepMark = 'deep value';
const deep = `${'{"f:a":'.repeat(20_000)}{}${'}'.repeat(20_000)}`;

const strange = [deepMark, null, [], {}, '', 'x', -1, 1e300, [{}], { a: {} }, true, '__proto__'];

/** The value with one place, anywhere in it, that has something else. */
function withOther(value: unknown, random: () => number): unknown {
  const isTree = typeof value === 'object' && value !== null;
  const names = isTree ? Object.keys(value) : [];
  if (names.length === 0 || random() < 0.1) return strange[Math.floor(random() * strange.length)];
  const name = names[Math.floor(random() * names.length)] ?? '';
  const copy = structuredClone(value) as Record<string, unknown>;
  copy[name] = withOther(copy[name], random);
  return copy;
}

/** Asks for all that the past is part of. */
function ask(auditor: Auditor): void {
  const { incidents, samples, findings } = auditor;
  for (const it of [...incidents.list(), ...incidents.resolved()]) {
    JSON.stringify(reportIncident(it));
    incidents.currentId(it.id);
  }
  incidents.unread();
  createReport(auditor, { kind: 'replay', sources: [], namespace: null, problems: [] });
  createLagReport(auditor);
  JSON.stringify([findings.resolved(), samples.history.series(), auditor.earlier]);
  auditor.advance((auditor.now() ?? 0) + 100);
  auditor.advance((auditor.now() ?? 0) + 1000);
}

describe('the past in a checkpoint', () => {
  test('has parts that are read back, each once', async () => {
    for (const lines of await checkpoints()) {
      const past = createSavedPast();
      const states = lines
        .map((line) => JSON.parse(line) as { kind: string; part: string; state: unknown })
        .filter(({ kind }) => kind === 'audit-state');
      for (const { part, state } of states) expect([part, past.add(part, state)]).toContain(true);
      const again = [...pastOf(await replayed(lines.join('')))];
      const known = new Set(states.map(({ part, state }) => JSON.stringify([part, state])));
      const missing = again.map((it) => JSON.stringify(it)).filter((it) => !known.has(it));
      expect(missing).toEqual([]);
    }
  });

  test('that someone has changed is left out or used, and all questions have answers', async () => {
    const all = await checkpoints();
    expect(all.length).toBeGreaterThan(2);
    const random = randomOf(1);
    let refused = 0;
    for (let round = 0; round < 300; round++) {
      const lines = all[Math.floor(random() * all.length)] ?? [];
      const places = lines.flatMap((it, index) => (it.includes('"audit-state"') ? [index] : []));
      const changed = [...lines];
      for (let left = 3; left > 0; left--) {
        const place = places[Math.floor(random() * places.length)] ?? 0;
        const line = JSON.parse(lines[place] ?? '') as { state: unknown };
        const other = { ...line, state: withOther(line.state, random) };
        changed[place] = `${JSON.stringify(other).replace(`"${deepMark}"`, deep)}\n`;
      }
      const auditor = await replayed(changed.join(''));
      refused += auditor.dropped().skipped ?? 0;
      ask(auditor);
    }
    expect(refused).toBeGreaterThan(100);
  });

  test('of an unknown part is left out', () => {
    const past = createSavedPast();
    expect(past.add('constructor', {})).toBe(false);
    expect(past.add('future', {})).toBe(false);
  });
});

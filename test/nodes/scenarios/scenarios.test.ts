// Every scenario in this folder is run in four ways: with the rules of kube-proxy's iptables and
// nftables mode, in IPv4 and IPv6. README.md describes the notation.

import { readdirSync, readFileSync } from 'node:fs';
import { join, relative } from 'node:path';

import { describe, expect, test } from 'vitest';

import type { Scenario, Step } from '../../scenarios/parse.ts';
import { catalogue } from '../../../src/audit/finding/catalogue.ts';
import { parseScenario, ScenarioError } from '../../scenarios/parse.ts';
import { createWorld, playStep, problemOf, show, showVerdict, textFor, variants } from './play.ts';
import type { Variant, World } from './play.ts';

const folder = relative(process.cwd(), import.meta.dirname);
const first: Variant = { mode: 'nftables', family: 'IPv4' };
const files = readdirSync(folder).filter((name) => name.endsWith('.txt'));

function checkStep({ file }: Scenario, step: Step, world: World): void {
  const packets = playStep(world, step);
  for (const statement of packets) {
    expect(problemOf(world, statement), `${file}:${statement.place.line}: packet`).toBeNull();
  }
  const { findings, verdicts } = step;
  if (findings !== null) {
    const shown = show(world);
    const where = `${file}:${findings.line}: at ${step.at}s`;
    expect(shown.map(({ text }) => text).sort(), `${where}: ${JSON.stringify(shown)}`).toEqual(
      findings.rows.map(({ text }) => text).sort(),
    );
    for (const { text, line, mentions } of findings.rows) {
      const said = shown.filter((one) => one.text === text).map(({ details }) => details);
      for (const mention of mentions) {
        expect(said.join('\n'), `${file}:${line}`).toContain(mention);
      }
    }
  }
  for (const { line, key, of, verdict } of verdicts) {
    if (of !== 'node') throw new ScenarioError(file, line, `Expected a verdict on the node: ${of}`);
    expect(showVerdict(world, key, step.at), `${file}:${line}: verdict on ${key}`).toBe(verdict);
  }
}

function play(file: string, text: string, variant: Variant): void {
  const scenario = parseScenario(file, textFor(text, variant));
  const world = createWorld(scenario, variant);
  for (const step of scenario.steps) checkStep(scenario, step, world);
}

describe.each(files)('%s', (name) => {
  const file = join(folder, name);
  test.each(variants)('$mode, $family', (variant) => {
    play(file, readFileSync(file, 'utf8'), variant);
  });
});

describe('the catalogue', () => {
  const rows = files
    .map((name) => parseScenario(name, textFor(readFileSync(join(folder, name), 'utf8'), first)))
    .flatMap(({ steps }) => steps.flatMap(({ findings }) => findings?.rows ?? []));

  // What hardly any other node does, is of several nodes with agents.
  const codes = Object.entries(catalogue)
    .filter(([code, { output }]) => output === 'node' && code !== 'node-unlike-others')
    .map(([code]) => code);

  test.each(codes)('%s is open in a scenario', (code) => {
    expect(rows.filter(({ state }) => state === 'open').map((row) => row.code)).toContain(code);
  });
});

// The steps of the GitHub action, run by bash as a runner runs them.

import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { describe, expect, test } from 'vitest';
import { parse } from 'yaml';

import type { AuditReport } from '../src/output/text/report.ts';
import * as live from './live-cluster.ts';

interface Step {
  readonly id?: string;
  readonly run?: string;
  readonly env?: Readonly<Record<string, string>>;
}

interface Action {
  readonly inputs: Readonly<Record<string, { readonly default?: string }>>;
  readonly runs: { readonly steps: readonly Step[] };
}

const pathOf = (name: string): string => fileURLToPath(new URL(name, import.meta.url));
const action = parse(readFileSync(pathOf('../action.yml'), 'utf8')) as Action;
const step = action.runs.steps.find(({ id }) => id === 'audit');
const program = `${process.execPath} ${pathOf('../src/main.ts')}`;

/** A folder with a space in its name, with a dump whose slice lacks its pod. */
const folder = mkdtempSync(join(tmpdir(), 'the action '));
const kinds = ['Node', 'Service', 'Pod', 'Endpoints', 'EndpointSlice'];
const raws = [live.rawNode, live.rawService, live.rawPod, live.rawEndpoints, live.emptySlice];
const items = raws.map((raw, index) => ({
  apiVersion: kinds[index] === 'EndpointSlice' ? 'discovery.k8s.io/v1' : 'v1',
  kind: kinds[index],
  ...raw,
}));
const dump = join(folder, 'dump.json');
writeFileSync(dump, JSON.stringify({ apiVersion: 'v1', kind: 'List', items }));

/** Runs the step with these inputs, as its `env` passes them. */
function run(inputs: Readonly<Record<string, string>>) {
  const values = { ...inputs, program };
  const passed = Object.entries(step?.env ?? {}).map(([variable, expression]) => {
    const name = /inputs\.([a-z-]+)/.exec(expression)?.[1] ?? '';
    const value = values[name as keyof typeof values] as string | undefined;
    return [variable, value ?? action.inputs[name]?.default ?? ''];
  });
  const files = {
    GITHUB_OUTPUT: join(folder, 'output'),
    GITHUB_STEP_SUMMARY: join(folder, 'summary'),
  };
  for (const path of Object.values(files)) writeFileSync(path, '');
  const env = { PATH: process.env.PATH, RUNNER_TEMP: folder, ...files };
  // As a runner does for `shell: bash`.
  const args = ['--noprofile', '--norc', '-eo', 'pipefail', '-c', step?.run ?? ''];
  const { status, stdout } = spawnSync('bash', args, {
    env: { ...env, ...(Object.fromEntries(passed) as object) },
    encoding: 'utf8',
  });
  const [output, summary] = Object.values(files).map((path) => readFileSync(path, 'utf8'));
  return { status, stdout, output, summary };
}

describe('the action', () => {
  test('fails, annotates, and writes the summary and the report', () => {
    const { status, stdout, output, summary } = run({ path: dump });
    expect(status).toBe(1);
    expect(stdout).toMatch(/^::error title=shop\/web%3A [^:]+::slice-endpoint-missing: /);
    expect(summary).toContain('| **fails** |');
    const report = /^report=(.*)$/m.exec(output ?? '')?.[1] ?? '';
    const { findings } = JSON.parse(readFileSync(report, 'utf8')) as AuditReport;
    expect(findings.map(({ code }) => code)).toEqual(['slice-endpoint-missing']);
  });

  test('accepts what its inputs accept', () => {
    const ignore = 'slice-duplicate\nslice-endpoint-missing:shop/web\n';
    expect(run({ path: `${dump}\n`, ignore }).status).toBe(0);
    const baseline = join(folder, 'baseline.json');
    writeFileSync(baseline, readFileSync(join(folder, 'endpoint-auditor.json')));
    expect(run({ path: dump, baseline }).status).toBe(0);
    const suppressions = join(folder, 'accepted.yaml');
    const entry = { code: 'slice-endpoint-missing', owner: 'team', reason: 'it is planned' };
    writeFileSync(suppressions, JSON.stringify([{ ...entry, expires: '2999-12-31' }]));
    expect(run({ path: dump, suppressions }).status).toBe(0);
  });

  test('ends with the exit codes of the program', () => {
    expect(run({ path: dump, args: '-n\nother' }).status).toBe(2);
    expect(run({ path: dump, 'fail-on': 'never' }).status).toBe(64);
  });
});

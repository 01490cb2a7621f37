// The gate of `audit` and `replay`: flags, files and exit codes.

import { mkdtempSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { Command } from 'commander';
import { afterEach, describe, expect, test, vi } from 'vitest';

import { auditDump } from '../../../src/commands/audit.ts';
import { explainSubject } from '../../../src/commands/explain.ts';
import { replayFile } from '../../../src/commands/replay.ts';
import { parseIgnoreRule } from '../../../src/commands/shared/gate.ts';
import {
  addFlags,
  type AuditFlags,
  type ReportFlags,
} from '../../../src/commands/shared/options.ts';
import { UsageError } from '../../../src/commands/shared/process.ts';
import type { AuditReport } from '../../../src/output/text/report.ts';
import * as live from '../../live-cluster.ts';
import { printed, usual } from '../../live-cluster.ts';
import { schemaErrors } from '../../report-schema.ts';

const folder = mkdtempSync(join(tmpdir(), 'gate-'));

function save(name: string, content: unknown): string {
  const path = join(folder, name);
  writeFileSync(path, typeof content === 'string' ? content : JSON.stringify(content));
  return path;
}

afterEach(() => {
  vi.restoreAllMocks();
});

const typed = (kind: string, raw: object): object => ({
  apiVersion: kind === 'EndpointSlice' ? 'discovery.k8s.io/v1' : 'v1',
  kind,
  ...raw,
});

const text = JSON.stringify({
  apiVersion: 'v1',
  kind: 'List',
  items: [
    typed('Node', live.rawNode),
    typed('Service', live.rawService),
    typed('Pod', live.rawPod),
    typed('Endpoints', live.rawEndpoints),
    typed('EndpointSlice', live.emptySlice),
  ],
});

/** The slice of shop/web lacks its pod. */
const dump = save('dump.json', text);

const gate = (...args: string[]): ReportFlags =>
  addFlags(new Command().exitOverride(), 'report', 'name', 'gate')
    .configureOutput({ writeErr: () => undefined })
    .parse(args, { from: 'user' })
    .opts();

const audit = (...args: string[]) => auditWith({}, ...args);

async function auditWith(more: Partial<AuditFlags>, ...args: string[]) {
  const { out } = printed();
  const code = await auditDump([dump], { ...usual, ...gate(...args), ...more });
  const output = out();
  vi.restoreAllMocks();
  return { code, output };
}

const missing = 'slice-endpoint-missing';

describe('the exit code', () => {
  test.each([
    [[], 1],
    [['--fail-on', 'info'], 1],
    [['--ignore', missing], 0],
    [['--ignore', `${missing}:shop/web`], 0],
    [['--ignore', `${missing}:shop/api`], 1],
    [['--ignore', 'slice-duplicate', '--ignore', missing], 0],
  ])('of %j is %i', async (args, want) => {
    expect((await audit(...args)).code).toBe(want);
  });

  test('a baseline that is too large is refused before it is read', async () => {
    const path = save('large.json', '');
    truncateSync(path, 16 * 1024 * 1024 + 1);
    await expect(audit('--baseline', path)).rejects.toThrow(/large.json: Is larger than 16777216/);
  });

  test('only new findings fail against a baseline', async () => {
    const before = save('baseline.json', (await audit('-o', 'json')).output);
    const { code, output } = await audit('--baseline', before);
    expect(code).toBe(0);
    expect(output).toMatch(/\nGate passed: 0 findings fail .*; accepted: 1 in the baseline\n$/);
    const empty = save('empty.json', { format: 1, findings: [] });
    expect((await audit('--baseline', empty)).code).toBe(1);
    const { output: text } = await audit('--baseline', before, '-o', 'json');
    const document = JSON.parse(text) as AuditReport;
    expect(schemaErrors(document)).toEqual([]);
    expect(document.gate).toEqual({
      failOn: 'warning',
      failed: 0,
      accepted: { suppressed: 0, ignored: 0, baseline: 1, minor: 0 },
      unserved: null,
    });
  });
});

test.each([
  ['github', /^::error title=shop\/web%3A A pod is missing .*::slice-endpoint-missing: /],
  ['markdown', /\n\| \*\*fails\*\* \| (?:critical|warning) \| shop\/web \| slice-endpoint-missing/],
  ['sarif', /"ruleId": "slice-endpoint-missing"/],
  ['junit', /<failure type="(?:critical|warning)"/],
])('-o %s', async (format, want) => {
  const { code, output } = await audit('-o', format);
  expect(code).toBe(1);
  expect(output).toMatch(want);
});

describe('a suppressed finding', () => {
  const owner = { owner: 'team', reason: 'it is planned', expires: '2999-12-31' };
  const file = save('accepted.yaml', JSON.stringify([{ code: missing, ...owner }]));
  const more = { suppressions: file };

  test('does not fail the gate, and is listed in one line', async () => {
    const { code, output } = await auditWith(more, '-o', 'table');
    expect(code).toBe(0);
    expect(output).toMatch(
      /^Suppressed findings: 1\n {2}\S+ {2}slice-endpoint-missing {2}shop\/web {2}endpointslices/,
    );
    expect(output).toContain(`until 2999-12-31 by team: it is planned (${file}:1)\n`);
    expect(output).toContain('\nNo other findings; 1 finding suppressed\n');
    expect(output).not.toContain('fix [1]');
    const wide = await auditWith(more, '-o', 'wide');
    expect(wide.output).toMatch(/ SUPPRESSED\n.* until 2999-12-31 by team: it is planned\n/);
  });

  test('is in JSON with its suppression, and not in a baseline', async () => {
    const { code, output } = await auditWith(more, '-o', 'json');
    expect(code).toBe(0);
    const document = JSON.parse(output) as AuditReport;
    expect(schemaErrors(document)).toEqual([]);
    expect(document.findings[0]?.suppressed).toEqual({ ...owner, source: `${file}:1` });
    expect(document.gate).toMatchObject({ failed: 0, accepted: { suppressed: 1 } });
    const before = save('suppressed.json', output);
    expect((await audit('--baseline', before)).code).toBe(1);
  });

  test.each([
    ['github', 'notice title=endpoint-auditor'],
    ['markdown', '| suppressed | '],
    ['sarif', '"justification": "until 2999-12-31 by team: it is planned"'],
    ['junit', '<skipped message="suppressed: '],
  ])('is no failure in -o %s', async (format, want) => {
    const { code, output } = await auditWith(more, '-o', format);
    expect(code).toBe(0);
    expect(output).toContain(want);
    expect(output).not.toMatch(/<failure|::error|\*\*fails/);
  });

  test('fails when the suppression has expired, which the report says', async () => {
    const old = { code: missing, ...owner, expires: '2020-01-01' };
    const suppressions = save('old.yaml', JSON.stringify([old]));
    const { code, output } = await auditWith({ suppressions }, '-o', 'json');
    expect(code).toBe(1);
    const document = JSON.parse(output) as AuditReport;
    expect(document.findings[0]?.suppressed).toBeNull();
    expect(document.problems).toEqual([
      `${suppressions}:1: expires: The suppression has expired, so its findings count again: ` +
        '"2020-01-01"',
    ]);
  });
});

describe('a baseline and suppressions', () => {
  const owner = { owner: 'team', reason: 'it is planned' };
  const fileOf = (name: string, expires: string): { suppressions: string } => ({
    suppressions: save(name, JSON.stringify([{ code: missing, ...owner, expires }])),
  });

  test('an expired suppression overrides a baseline that has the finding', async () => {
    const before = save('with-finding.json', (await audit('-o', 'json')).output);
    expect((await audit('--baseline', before)).code).toBe(0);
    const expired = fileOf('expired.yaml', '2020-01-01');
    const { code, output } = await auditWith(expired, '--baseline', before, '-o', 'github');
    expect(code).toBe(1);
    expect(output).toMatch(/^::error /);
    const warning = /\n::warning title=endpoint-auditor::.*expired.yaml:1: .* has expired/;
    expect(output).toMatch(warning);
    expect((await auditWith(fileOf('valid.yaml', '2999-12-31'), '--baseline', before)).code).toBe(
      0,
    );
  });

  test('a baseline does not accept what was suppressed in it', async () => {
    const valid = fileOf('valid.yaml', '2999-12-31');
    const before = save('suppressed-in.json', (await auditWith(valid, '-o', 'json')).output);
    expect((await audit('--baseline', before)).code).toBe(1);
  });
});

test('a suppression or --ignore that matches no finding is noted once', async () => {
  const fields = { owner: 'team', reason: 'it is planned', expires: '2999-12-31' };
  const entries = [missing, 'slice-duplicate'].map((code) => ({ code, ...fields }));
  const suppressions = save(
    'unused.yaml',
    entries.map((it) => `- ${JSON.stringify(it)}\n`).join(''),
  );
  const ignore = ['--ignore', missing, '--ignore', 'slice-duplicate:shop/web'];
  const { output } = await auditWith(
    { suppressions },
    ...ignore,
    '--ignore',
    'unserved',
    '-o',
    'json',
  );
  expect((JSON.parse(output) as AuditReport).problems).toEqual([
    `${suppressions}:2: The suppression matches no finding`,
    '--ignore: Matches no finding: "slice-duplicate:shop/web"',
  ]);
});

test('a wrong entry of the file of suppressions is bad usage, and nothing is audited', async () => {
  const suppressions = save('wrong.yaml', JSON.stringify([{ code: missing }]));
  await expect(auditWith({ suppressions })).rejects.toThrow(
    new UsageError(`${suppressions}:1: owner is missing`),
  );
});

test.each([
  ['json', 'a.json', 'a report (-o json or yaml)'],
  ['yaml', 'a.yaml', 'a report (-o json or yaml)'],
  ['sarif', 'a.sarif', 'a SARIF file (-o sarif)'],
  ['junit', 'a.xml', 'a JUnit file (-o junit)'],
])('a report of -o %s is no input, and the error says what it is', async (format, name, what) => {
  const { output } = await audit('-o', format);
  const path = save(name, output);
  const message = `${path} is ${what}, not a dump or a recording`;
  const flags = { ...usual, ...gate() };
  await expect(auditDump([path], flags)).rejects.toThrow(message);
  await expect(replayFile(path, { ...flags, speed: Infinity })).rejects.toThrow(message);
  const explained = explainSubject(['service/web'], { ...usual, input: [path], output: 'text' });
  await expect(explained).rejects.toThrow(message);
});

test('a wrong annotation is a warning in -o github', async () => {
  const metadata = { ...live.rawService.metadata };
  const annotations = { 'endpoint-auditor/suppress': 'nope' };
  const service = { ...live.rawService, metadata: { ...metadata, annotations } };
  const annotated = text.replace(JSON.stringify(typed('Service', live.rawService)), () =>
    JSON.stringify(typed('Service', service)),
  );
  const path = save('annotated.json', annotated);
  const { out } = printed();
  const flags = { ...usual, ...gate('--ignore', missing, '-o', 'github') };
  expect(await auditDump([path], flags)).toBe(0);
  expect(out()).toMatch(/^::warning title=endpoint-auditor::Suppression: Service shop\/web: /);
});

test('--fail-on unserved fails for a Service without usable endpoints', async () => {
  // The slice of shop/web is empty, so it is unserved too.
  const only = ['--ignore', missing, '--cluster-name', 'prod'];
  expect((await audit(...only)).code).toBe(0);
  const strict = await audit(...only, '--fail-on', 'unserved');
  expect(strict.code).toBe(1);
  expect(strict.output).toContain('Cluster: prod\n');
  expect(strict.output).toMatch(/, 1 Service without usable endpoints \(--fail-on warning,un/);
  const ignored = ['--ignore', 'unserved:shop/web'];
  const { code, output } = await audit(
    ...[...only, ...ignored, '--fail-on', 'critical,unserved', '-o', 'json'],
  );
  expect(code).toBe(0);
  const document = JSON.parse(output) as AuditReport;
  expect(schemaErrors(document)).toEqual([]);
  expect(document).toMatchObject({
    cluster: 'prod',
    gate: { failOn: 'critical', failed: 0, unserved: 0 },
  });
});

describe('bad usage', () => {
  test.each([
    ['no JSON', 'what?'],
    ['another document', { format: 1 }],
    ['another format', { format: 2, findings: [] }],
    ['findings without names', { format: 1, findings: [{}] }],
  ])('a baseline that is %s', async (_, content) => {
    const path = save('wrong.json', content);
    await expect(audit('--baseline', path)).rejects.toThrow(`${path}: Expected a report of audit`);
  });

  test.each(['', `${missing}:`, `${missing}:shop`, `${missing}:shop/web/x`])(
    '--ignore %j',
    (rule) => {
      expect(parseIgnoreRule(rule)).toBeUndefined();
      expect(() => gate('--ignore', rule)).toThrow('Expected CODE or CODE:NAMESPACE/SERVICE');
    },
  );

  test('--ignore of an unknown code names one that is near', () => {
    const text = 'Unknown code "endpoint-missing"; did you mean endpoints-missing?';
    expect(() => gate('--ignore', 'endpoint-missing')).toThrow(text);
    expect(() => gate('--ignore', 'endpoint-missing:shop/web')).toThrow(text);
    expect(() => gate('--ignore', 'none-such')).toThrow('Unknown code "none-such"');
  });

  test('--fail-on lists its values in the help, also pairs', () => {
    const help = addFlags(new Command().configureHelp({ helpWidth: 1000 }), 'gate');
    const values = /--fail-on .*"critical", "warning", "info", "unserved", "critical,unserved", /;
    expect(help.helpInformation()).toMatch(values);
  });

  test('a level that is none', () => {
    for (const level of ['all', 'critical,warning', '', 'unserved,']) {
      expect(() => gate('--fail-on', level)).toThrow('Expected a severity, unserved, or both');
    }
  });
});

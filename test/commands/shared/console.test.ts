// The output of commands, and the exit code of a report.

import { afterEach, describe, expect, test, vi } from 'vitest';

import { problemAt } from '../../../src/cluster/decode/problem.ts';
import {
  exitCodeOf,
  printReport,
  problemLog,
  printFinding,
  warnIfUnverified,
} from '../../../src/commands/shared/console.ts';
import { gateOf } from '../../../src/output/text/gate.ts';
import { nameOf, newestRelease, oldestRelease, verified } from '../../../src/shadow/release.ts';
import { auditorOf, header } from '../../build.ts';
import { conformState, findingOf, reportOf, stateOf } from '../../output/samples.ts';
import { printed } from '../../live-cluster.ts';

afterEach(() => {
  vi.restoreAllMocks();
  vi.unstubAllEnvs();
});

const usualGate = {
  failOn: { severity: 'warning', unserved: false },
  ignored: [],
  baseline: null,
} as const;

describe('the exit code', () => {
  const well = conformState();
  const withFindings = (...severities: ('critical' | 'info')[]) =>
    reportOf(well, { findings: severities.map((severity) => findingOf({ severity })) });
  test.each([
    ['all conform', reportOf(well), 0],
    ['information only', withFindings('info'), 0],
    ['a finding', withFindings('info', 'critical'), 1],
    ['something is unknown', reportOf(stateOf()), 2],
    ['unknown is more than a finding', reportOf(stateOf(), { findings: [findingOf()] }), 2],
    ['nothing was audited', reportOf(well, { services: 0 }), 2],
    ['only what others write', reportOf(well, { services: 0, foreign: 1 }), 0],
  ])('%s', (_name, report, want) => {
    expect(exitCodeOf(report, gateOf(report, usualGate))).toBe(want);
  });
});

test('problems are printed as they arrive, and the first 100 are kept', () => {
  const { err } = printed();
  const { problems, onProblem } = problemLog();
  for (let line = 1; line <= 150; line++) onProblem(problemAt('a.json', line, 'Expected JSON'));
  expect(err().split('\n')[0]).toBe('endpoint-auditor: a.json:1: Expected JSON');
  expect(err().trimEnd().split('\n')).toHaveLength(150);
  expect(problems).toHaveLength(100);
});

test('a finding is one line', () => {
  const { out } = printed();
  printFinding(findingOf());
  expect(out()).toMatch(/^10:56:46 OPEN +critical shop\/web .*\n$/);
});

test.each([
  ['v1.99.0', nameOf(newestRelease)],
  ['v1.20.3', nameOf(oldestRelease)],
])('the unknown release %s is in a warning, and the audited %s', (version, audited) => {
  const { err } = printed();
  const { auditor } = auditorOf(0);
  auditor.take(header(1, version));
  warnIfUnverified(auditor);
  const reason = `the cluster is ${version}, not ${audited}`;
  expect(err()).toContain(`Audited as Kubernetes ${audited}, not verified: ${reason}`);
});

test('a verified release causes no warning', () => {
  const { err } = printed();
  const { auditor } = auditorOf(0);
  auditor.take(header(1, verified.controllers.at(-1)));
  warnIfUnverified(auditor);
  expect(err()).toBe('');
});

test.each<[string | undefined, boolean]>([
  [undefined, true],
  ['', true],
  ['wide', true],
  ['-1', true],
  ['120', false],
])('in a pipe with COLUMNS %j, long lines are whole: %s', (columns, isWhole) => {
  vi.stubEnv('COLUMNS', columns);
  const { out } = printed();
  const actual = `10.1.2.3 of pod web-1: ${'a port, '.repeat(30)}and a last`;
  printReport(reportOf(conformState(), { findings: [findingOf({ actual })] }), 'table');
  expect(out().includes(actual)).toBe(isWhole);
});

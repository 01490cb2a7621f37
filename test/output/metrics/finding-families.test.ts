import { expect, test } from 'vitest';

import type { Finding } from '../../../src/audit/finding/catalogue.ts';
import { noServiceSeries } from '../../../src/output/metrics/service-rows.ts';
import type { OpenedFindings } from '../../../src/output/metrics/state.ts';
import { countOpened } from '../../../src/output/metrics/state.ts';
import { findingOf, seriesOf, stateOf } from '../samples.ts';

test('opened findings are counted by code and severity', () => {
  const opened: OpenedFindings = {};
  countOpened(opened, findingOf({ code: 'slice-orphaned', severity: 'warning' }));
  countOpened(opened, findingOf({ code: 'slice-orphaned', severity: 'warning' }));
  countOpened(opened, findingOf({ code: 'slice-orphaned', severity: 'info' }));
  expect(opened).toEqual({ 'slice-orphaned': { warning: 2, info: 1 } });
});

test('a code has a series of each severity before its first finding', async () => {
  const series = (opened: OpenedFindings): Promise<string[]> =>
    seriesOf('findings_opened_total{', { opened });
  const atStart = await series({});
  expect(atStart).toContain('code="slice-orphaned",severity="critical"} 0');
  const later = await series({ 'slice-orphaned': { critical: 3 } });
  expect(later).toHaveLength(atStart.length);
  expect(later).toContain('code="slice-orphaned",severity="critical"} 3');
});

const findingSeries = async (
  name: 'service' | 'node',
  findings: readonly Finding[],
  max: number,
): Promise<string[]> => {
  const { summary } = stateOf();
  const perService = { ...noServiceSeries, max };
  return seriesOf(`${name}_findings{`, { perService, summary: { ...summary, findings } });
};

test('a finding has a series with its Service, code and cause', async () => {
  const web = { namespace: 'shop', service: 'web', code: 'slice-endpoint-missing' } as const;
  const findings = [
    findingOf({ ...web, cause: 'hand-edited' }),
    findingOf({ ...web, cause: null, severity: 'warning' }),
    findingOf({ ...web, code: 'node-frontend-missing', node: 'a' }),
    findingOf({ ...web, code: 'node-frontend-missing', node: 'b' }),
  ];
  const of = 'namespace="shop",service="web"';
  expect(await findingSeries('service', findings, 9)).toEqual([
    `${of},code="slice-endpoint-missing",cause="hand-edited",severity="critical",incident=""} 1`,
    `${of},code="slice-endpoint-missing",cause="",severity="warning",incident=""} 1`,
    `${of},code="node-frontend-missing",cause="",severity="critical",incident=""} 2`,
  ]);
  expect(await findingSeries('node', findings, 9)).toEqual([
    'node="a",code="node-frontend-missing",severity="critical",incident=""} 1',
    'node="b",code="node-frontend-missing",severity="critical",incident=""} 1',
  ]);
});

test('a finding about a whole node is not one of a Service', async () => {
  const findings = [findingOf({ code: 'node-rules-stale', namespace: '', service: '', node: 'a' })];
  expect(await findingSeries('service', findings, 9)).toEqual([]);
  expect(await findingSeries('node', findings, 9)).toHaveLength(1);
});

test.each([0, 1, 2, 3])('the sum of findings is the same with %i names', async (max) => {
  const findings = ['web', 'api', 'web', 'db'].map((service) => {
    return findingOf({ service, node: `on-${service}`, code: 'node-frontend-missing' });
  });
  for (const name of ['service', 'node'] as const) {
    const series = await findingSeries(name, findings, max);
    const values = series.map((line) => Number(line.split(' ').at(-1)));
    expect(values.reduce((sum, value) => sum + value, 0)).toBe(4);
    const named = series.filter((line) => !line.includes(`${name}="",`));
    expect(named).toHaveLength(max);
    expect(named.join('')).toContain(
      max === 0 ? '' : `${name}="${name === 'node' ? 'on-' : ''}web"`,
    );
  }
});

test('a suppressed finding is counted only as suppressed', async () => {
  const [reason, expires, source] = ['planned', '2026-12-31', 'Service shop/web'];
  const suppressed = { owner: 'team', reason, expires, source };
  const findings = [
    findingOf({ suppressed }),
    findingOf({ code: 'node-rules-stale', service: '', node: 'a', suppressed }),
  ];
  const { summary } = stateOf();
  const more = { summary: { ...summary, findings } };
  const ones = async (name: string) =>
    (await seriesOf(name, more)).filter((series) => !series.endsWith(' 0'));
  expect(await ones('findings{')).toEqual([]);
  expect(await findingSeries('service', findings, 9)).toEqual([]);
  expect(await findingSeries('node', findings, 9)).toEqual([]);
  expect(await ones('suppressed_findings{')).toEqual([
    'code="slice-endpoint-unexpected"} 1',
    'code="node-rules-stale"} 1',
  ]);
});

import { describe, expect, test } from 'vitest';

import type { Finding } from '../../../src/audit/finding/catalogue.ts';
import { maxNamedIncidents } from '../../../src/output/metrics/incident-families.ts';
import type { IncidentSeries } from '../../../src/output/metrics/state.ts';
import { findingOf, seriesOf, stateOf } from '../samples.ts';

const incidentOf = (more: Partial<IncidentSeries> = {}): IncidentSeries => ({
  id: 'node-rules-lost.node-a.100',
  kind: 'node-rules-lost',
  severity: 'critical',
  namespace: '',
  service: '',
  node: 'a',
  services: 3,
  ...more,
});

test('an incident has a series with its name, and what it is about', async () => {
  const openIncidents = [incidentOf()];
  expect(await seriesOf('incident_services{', { openIncidents })).toEqual([
    'incident="node-rules-lost.node-a.100",kind="node-rules-lost",severity="critical",' +
      'namespace="",service="",node="a"} 3',
  ]);
  expect(await seriesOf('incident_services{', { openIncidents: [] })).toEqual([]);
});

const findingIn = async (
  openIncidents: readonly IncidentSeries[],
  ...findings: readonly Finding[]
): Promise<string[]> => {
  const summary = { ...stateOf().summary, findings };
  const incidentOf = ({ service }: Finding): string | null => (service === 'db' ? null : service);
  const series = await seriesOf('service_findings{', { summary, openIncidents, incidentOf });
  return series.map((line) => line.replace(/^.*,incident=/, ''));
};

describe('the series of a finding', () => {
  test('has the name of its incident, or an empty one without an incident', async () => {
    const findings = [findingOf({ service: 'web' }), findingOf({ service: 'db' })];
    expect(await findingIn([incidentOf({ id: 'web' })], ...findings)).toEqual([
      '"web"} 1',
      '""} 1',
    ]);
  });

  test('has no name of an incident above the limit, as that has none', async () => {
    const openIncidents = Array.from({ length: maxNamedIncidents + 2 }, (_, index) =>
      incidentOf({ id: `i${String(index)}` }),
    );
    const series = await seriesOf('incident_services{', { openIncidents });
    expect(series).toHaveLength(maxNamedIncidents + 1);
    expect(series.at(-1)).toMatch(/^incident="",.*,node=""\} 6$/);
    const [last, over] = [maxNamedIncidents - 1, maxNamedIncidents];
    const findings = [last, over].map((index) => findingOf({ service: `i${String(index)}` }));
    expect(await findingIn(openIncidents, ...findings)).toEqual([`"i${String(last)}"} 1`, '""} 1']);
  });
});

import { expect, test } from 'vitest';

import { traceFamilies } from '../../../src/output/metrics/trace-families.ts';
import { noTracingCounts } from '../../../src/output/traces/tracing.ts';
import { exposition, stateOf } from '../samples.ts';

async function linesOf(tracing: ReturnType<typeof noTracingCounts>): Promise<string[]> {
  const names = traceFamilies.map(({ name }) => name);
  const text = await exposition(stateOf({ tracing }));
  return text.split('\n').filter((line) => names.some((name) => line.startsWith(name)));
}

test('every count has its series', async () => {
  const counts = noTracingCounts();
  Object.assign(counts.journeys, { slow: 1, ratio: 2, none: 3 });
  counts.exported = 4;
  Object.assign(counts.dropped, { queue: 5, export: 6, shutdown: 7 });
  expect(await linesOf(counts)).toEqual([
    'endpoint_auditor_journeys_traced_total{choice="slow"} 1',
    'endpoint_auditor_journeys_traced_total{choice="ratio"} 2',
    'endpoint_auditor_journeys_traced_total{choice="none"} 3',
    'endpoint_auditor_spans_exported_total 4',
    'endpoint_auditor_spans_dropped_total{reason="queue"} 5',
    'endpoint_auditor_spans_dropped_total{reason="export"} 6',
    'endpoint_auditor_spans_dropped_total{reason="shutdown"} 7',
  ]);
});

test('without traces, all are 0', async () => {
  const lines = await linesOf(noTracingCounts());
  expect(lines).toHaveLength(7);
  for (const line of lines) expect(line).toMatch(/ 0$/);
});

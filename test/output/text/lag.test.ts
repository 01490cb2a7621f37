import { describe, expect, test } from 'vitest';

import { createJourneyLag } from '../../../src/audit/measure/journey.ts';
import {
  countConvergence,
  createConvergenceLag,
  createTriggerLag,
} from '../../../src/audit/measure/lag.ts';
import type { LagReport } from '../../../src/output/text/lag.ts';
import { listDistributions, renderLag } from '../../../src/output/text/lag.ts';
import { lagReport } from '../samples.ts';

describe('the table', () => {
  test('shows the distributions, the worst samples with their stages, and their quality', () => {
    expect(renderLag(lagReport, 'table').split('\n')).toEqual([
      'Lag from 2026-11-21T10:51:46Z to 2026-11-21T10:56:46Z',
      '',
      'LAG           OUTPUT      OF    COUNT   P50      P99     LONGEST',
      'convergence   endpoints   add   2       500 ms   9.9 s   700 s'.replace('700 s', '12 min'),
      '',
      'The worst 1 journey of pods, stage by stage:',
      'LONG   SERVICE    POD     CHANGE   BEGAN                  QUALITY   ARRIVED   ENDPOINTS   ' +
        'SLICES   LAST NODE   END',
      '61 s   shop/web   web-1   remove   2026-11-21T10:55:46Z   ok        1.5 s     -           ' +
        '60 s     61 s b      complete',
      '',
      'The 1 output that was late for longest:',
      'LATE   SERVICE    OUTPUT   OPERATION   RIGHT AGAIN',
      '9 s    shop/web   node a   update      2026-11-21T10:56:46Z',
      '',
      'Journeys: 3 complete, 1 overtaken; 2 open, the oldest since 2026-11-21T10:56:16Z',
      'Beginnings of journeys: add: 2 ok; remove: 1 arrival; update: none',
      'Trigger times: endpoints: 4 ok, 1 restarted; endpointslices: none',
      "Clock of the auditor: at most -500 ms ahead of the API server's",
      '',
    ]);
  });

  test("escapes the texts of the server's answer", () => {
    const [journey] = lagReport.worst.journeys;
    if (journey === undefined) throw new Error('No journey');
    const journeys = [{ ...journey, pod: 'web\u001b[31m\n' }];
    const text = renderLag({ ...lagReport, worst: { ...lagReport.worst, journeys } }, 'table');
    expect(text).toContain('web\\u001b[31m\\u000a');
    expect(text).not.toContain('\u001b');
  });

  test('says where nothing was measured', () => {
    const none: LagReport = {
      ...lagReport,
      distributions: [],
      worst: { journeys: [], convergence: [] },
      clockAheadSeconds: null,
    };
    const text = renderLag(none, 'table');
    expect(text).toContain('\nNo lag was measured\n');
    expect(text).toContain('\nClock of the auditor: not known\n');
    expect(text).not.toContain('worst');
  });
});

test('the JSON output is the unchanged document', () => {
  expect(JSON.parse(renderLag(lagReport, 'json'))).toEqual(lagReport);
});

test('every distribution has its buckets, which add up', () => {
  const convergence = createConvergenceLag();
  for (const seconds of [0.001, 0.3, 0.3, 7, 1000]) {
    countConvergence(convergence, { output: 'node', operation: 'remove', seconds });
  }
  const all = listDistributions({
    convergence,
    trigger: createTriggerLag(),
    travel: createJourneyLag(),
  });
  // 4 outputs by 3 operations, 2 resources, twice 3 outputs, and 2 bounds.
  expect(all).toHaveLength(12 + 2 + 6 + 2);
  const names = all.map(({ lag, output, of }) => `${lag} ${output} ${of ?? ''}`);
  expect(new Set(names).size).toBe(all.length);
  for (const { counts, bounds, count } of all) {
    expect(counts).toHaveLength(bounds.length + 1);
    expect(counts.reduce((sum, one) => sum + one, 0)).toBe(count);
  }
  expect(all.find(({ count }) => count > 0)).toMatchObject({
    output: 'node',
    of: 'remove',
    max: 1000,
  });
});

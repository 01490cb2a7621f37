import { expect, test } from 'vitest';

import { createHistogram, observe } from '../../../src/audit/measure/histogram.ts';
import { convergenceBounds } from '../../../src/audit/measure/lag.ts';
import { createMeasurements } from '../../../src/audit/measure/measurements.ts';
import {
  continueInterval,
  continueMeasures,
  isSavedInterval,
  isSavedMeasures,
  saveInterval,
  saveMeasures,
} from '../../../src/audit/measure/saved-lag.ts';

test('counts that were saved and read are the same', () => {
  const measures = createMeasurements();
  observe(measures.convergence.endpoints.add, 3);
  measures.trigger.counts.endpoints.absent = 4;
  measures.sizes.endpoints.updates = 5;
  const saved: unknown = JSON.parse(JSON.stringify(saveMeasures(measures)));
  expect(isSavedMeasures(saved)).toBe(true);
  const again = createMeasurements();
  continueMeasures(again, saved as ReturnType<typeof saveMeasures>);
  expect(again).toEqual(measures);
});

test('bounds of a file are not used, and another number of counts is refused', () => {
  const histogram = createHistogram(convergenceBounds);
  observe(histogram, 3);
  const saved = saveInterval(10, { endpoints: histogram });
  const { counts } = histogram;
  const hostile = {
    start: 10,
    outputs: { endpoints: { ...saved.outputs.endpoints, bounds: [1] } },
  };
  expect(isSavedInterval(hostile)).toBe(true);
  expect(continueInterval(hostile)).toEqual({ endpoints: histogram });
  const short = { ...saved.outputs.endpoints, counts: counts.slice(1) };
  expect(isSavedInterval({ start: 10, outputs: { endpoints: short } })).toBe(false);
  expect(isSavedInterval({ start: 10, outputs: { other: saved.outputs.endpoints } })).toBe(false);
});

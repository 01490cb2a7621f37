import { expect, test } from 'vitest';

import { createLagHistory } from '../../../src/audit/measure/sample-history.ts';
import { lagPoints, renderLagChart } from '../../../src/output/page/chart.ts';
import { times } from '../../build.ts';
import { wordsIn } from '../samples.ts';

const names = {
  endpoints: 'Endpoints',
  endpointslices: 'Slices',
  mirrored: 'Mirrored',
  node: 'Nodes',
};

function seriesOf(changes: readonly (readonly [at: number, seconds: number])[]) {
  const history = createLagHistory();
  for (const [at, seconds] of changes) {
    history.note({ service: 'a/b', output: 'endpoints', operation: 'add', seconds, at });
  }
  return history.series();
}

const htmlOf = (...changes: (readonly [number, number])[]): string =>
  renderLagChart(seriesOf(changes), names)?.html ?? '';

test('a line is interrupted where nothing changed for 40 seconds', () => {
  const html = htmlOf([100, 1], [110, 2], [300, 3]);
  const [, line = ''] = /1000 184[^]*?class="line endpoints" d="([^"]*)"/.exec(html) ?? [];
  expect(line.match(/[ML]/g)).toEqual(['M', 'L', 'M']);
  expect(wordsIn(html)).toContain('Endpoints');
  expect(wordsIn(html)).not.toContain('Slices');
  expect(html).not.toMatch(/NaN|undefined|Infinity/);
});

test('a longer lag is higher, and each point shows its value', () => {
  const html = htmlOf([100, 0.02], [110, 58]);
  const [, low = 0, high = 0] = (/d="M0 ([\d.]+)L1000 ([\d.]+)"/.exec(html) ?? []).map(Number);
  expect(high).toBeLessThan(low);
  expect(wordsIn(html)).toContain('00:01:50 UTC: Endpoints 58 s');
});

test('the axes have units that people use', () => {
  const html = htmlOf([0, 0.01], [3600, 7200]);
  const texts = wordsIn(html);
  for (const label of ['10 ms', '1 s', '1 min', '1 h', '00:30']) expect(texts).toContain(label);
});

test('every output has a line of its own', () => {
  const series = seriesOf([
    [0, 1],
    [10, 1],
  ]);
  const all = { ...series.longest, node: [1, 2], mirrored: [1, 2], endpointslices: [1, 2] };
  const html = renderLagChart({ ...series, longest: all }, names)?.html ?? '';
  for (const output of Object.keys(names)) expect(html).toContain(`class="line ${output}"`);
});

test('a long time has at most 120 points, each with the longest lag of its part', () => {
  const points = lagPoints(seriesOf(times(360, (index) => [10 * index, index % 3])));
  expect(points).toHaveLength(120);
  expect(points.every(({ longest }) => longest.endpoints === 2)).toBe(true);
});

test('there is no chart with fewer than two points', () => {
  expect(htmlOf([100, 1])).toBe('');
});

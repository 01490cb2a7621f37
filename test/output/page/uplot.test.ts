import { runInNewContext } from 'node:vm';

import { expect, test } from 'vitest';

import { uplotScript } from '../../../src/output/page/uplot.ts';

test('defines uPlot', () => {
  const [window, document] = [new EventTarget(), new EventTarget()];
  const matchMedia = () => new EventTarget();
  const browser = { window, document, matchMedia, navigator: {}, CustomEvent, devicePixelRatio: 1 };
  expect(runInNewContext(`${uplotScript}; typeof uPlot`, browser)).toBe('function');
});

import { runInNewContext } from 'node:vm';

import { expect, test } from 'vitest';

import { clientScript, uplotScript } from '../../../src/output/page/asset-texts.ts';

test('the script of uPlot defines uPlot', () => {
  const [window, document] = [new EventTarget(), new EventTarget()];
  const matchMedia = () => new EventTarget();
  const browser = { window, document, matchMedia, navigator: {}, CustomEvent, devicePixelRatio: 1 };
  expect(runInNewContext(`${uplotScript}; typeof uPlot`, browser)).toBe('function');
});

test('the script of the pages begins with its mode and ends with its start', () => {
  expect(clientScript).toMatch(/^'use strict';\nfunction [^]*\nstart\(\);\n$/);
});

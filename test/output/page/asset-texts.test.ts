import { expect, test } from 'vitest';

import { clientScript } from '../../../src/output/page/asset-texts.ts';

test('the script of the pages begins with its mode and ends with its start', () => {
  expect(clientScript).toMatch(/^'use strict';\nfunction [^]*\nstart\(\);\n$/);
});

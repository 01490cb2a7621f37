// docs/releases.md agrees with the committed samples.

import { readFileSync } from 'node:fs';

import { expect, test } from 'vitest';

import { releasesDocument, releasesPath } from './comparison.ts';

test('docs/releases.md is what the samples give', async () => {
  expect(readFileSync(releasesPath, 'utf8')).toBe(await releasesDocument());
});

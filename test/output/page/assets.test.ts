import { expect, test } from 'vitest';

import { assetPath, assets } from '../../../src/output/page/frame.ts';

const names = ['style.css', 'page.js', 'icon.svg'] as const;

test.each(names)('the path of %s has a hash of its text', (name) => {
  const path = assetPath(name);
  expect(path).toMatch(new RegExp(`^/assets/[0-9a-f]{12}-${name}$`));
  expect(assets.get(path)).toMatch(/\S/);
});

test('no other asset is served', () => {
  expect([...assets.keys()].sort()).toEqual(names.map(assetPath).sort());
});

test('the assets of a page have less than 40 KiB', () => {
  const bytes = [...assets.values()].map((text) => Buffer.byteLength(text));
  expect(bytes.reduce((sum, one) => sum + one, 0)).toBeLessThan(40 * 1024);
});

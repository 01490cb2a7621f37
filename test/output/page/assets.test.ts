import { expect, test } from 'vitest';

import { findAsset, assetPath } from '../../../src/output/page/assets.ts';

const names = ['style.css', 'page.js', 'charts.js', 'icon.svg'] as const;

test.each(names)('%s is found by its path', (name) => {
  const path = assetPath(name);
  expect(path).toMatch(new RegExp(`^/assets/[0-9a-f]{12}-${name}$`));
  expect(findAsset(path.slice('/assets/'.length))?.body).not.toBe('');
});

test('no asset is found by another version or path', () => {
  expect(findAsset('000000000000-style.css')).toBeNull();
  expect(findAsset('../page.ts')).toBeNull();
});

test('the assets of a page have less than 100 KiB', () => {
  const bytes = names.map((name) =>
    Buffer.byteLength(findAsset(assetPath(name).slice('/assets/'.length))?.body ?? ''),
  );
  expect(bytes.reduce((sum, one) => sum + one, 0)).toBeLessThan(100 * 1024);
});

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import {
  compareVersions,
  isAtLeast,
  newest,
  versionVerdict,
} from '../../src/model/resource-version.ts';

const versions = fc.bigInt({ min: 1n, max: 2n ** 63n - 1n });

describe('versions', () => {
  test('are in the order of the numbers, to the last digit', () => {
    const property = fc.property(versions, versions, (a, b) => {
      const order = a < b ? -1 : a > b ? 1 : 0;
      expect(compareVersions(String(a), String(b))).toBe(order);
      expect(isAtLeast(String(a), String(b))).toBe(order >= 0);
      expect(newest(String(a), String(b))).toBe(String(a < b ? b : a));
    });
    fc.assert(property);
    expect(compareVersions('9223372036854775806', '9223372036854775807')).toBe(-1);
  });

  test.each(['', 'abc', '1.5', '-1'])(
    '%j is no number, and nothing is known of its age',
    (text) => {
      expect(compareVersions(text, '7')).toBeNull();
      expect(isAtLeast(text, '7')).toBe(false);
      expect(isAtLeast('7', text)).toBe(false);
      expect(newest(text, '7')).toBe('7');
      expect(newest('7', text)).toBe('7');
    },
  );
});

test.each([
  ['modified', '8', 'new'],
  ['modified', '7', 'repeated'],
  ['modified', '6', 'stale'],
  ['modified', 'x', 'new'],
  ['deleted', '7', 'new'],
  ['deleted', '6', 'stale'],
])('an object that is %s in version %s, where 7 is known, is %s', (type, resourceVersion, want) => {
  expect(versionVerdict('7', { type, object: { resourceVersion } })).toBe(want);
});

// Causes are text for people: every entry is complete and in one form.

import { expect, test } from 'vitest';

import type { CauseEntry } from '../../../src/audit/finding/causes.ts';
import { causes } from '../../../src/audit/finding/causes.ts';

const entries: [string, CauseEntry][] = Object.entries(causes);

// Words of the API keep their case, also where they begin a sentence.
const isSentence = (text: string): boolean => /^\S.*[.”]$/.test(text);
const isTitle = (text: string): boolean => /^\S.*[^.\s]$/.test(text) && text.length <= 90;
const isReference = (text: string): boolean => /\.go|^k8s\.io\/|^pkg\/|^etcd /.test(text);

test.each(entries)('%s', (name, entry) => {
  expect(name).toMatch(/^[a-z]+(?:-[a-z]+)+$/);
  expect(isTitle(entry.title)).toBe(true);
  expect(isSentence(entry.condition)).toBe(true);
  expect(isSentence(entry.remedy)).toBe(true);
  expect(isReference(entry.upstream)).toBe(true);
});

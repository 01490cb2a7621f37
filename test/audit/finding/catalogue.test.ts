// The catalogue is text for people: every entry is complete and in one form.

import { describe, expect, test } from 'vitest';

import type { CatalogueEntry, Output } from '../../../src/audit/finding/catalogue.ts';
import { catalogue, isWorse, severities } from '../../../src/audit/finding/catalogue.ts';
import { causes } from '../../../src/audit/finding/causes.ts';
import { kinds } from '../../../src/audit/incident/kinds.ts';

const entries: [string, CatalogueEntry][] = Object.entries(catalogue);

// Words of the API keep their case, also where they begin a sentence.
const isSentence = (text: string): boolean => /^\S.*[.”]$/.test(text);
const isTitle = (text: string): boolean => /^\S.*[^.\s]$/.test(text) && text.length <= 90;
const isReference = (text: string): boolean => /\.go|^k8s\.io\/|^pkg\/|^etcd /.test(text);

describe('codes', () => {
  test.each(entries)('%s', (code, entry) => {
    expect(code).toMatch(/^[a-z]+(?:-[a-z]+)+$/);
    expect(isTitle(entry.title)).toBe(true);
    expect(isSentence(entry.meaning)).toBe(true);
    expect(isSentence(entry.remedy)).toBe(true);
    expect(isReference(entry.upstream)).toBe(true);
  });

  test.each([
    ['findings', catalogue],
    ['causes', causes],
    ['incidents', kinds],
  ])('sentences of %s have at most 25 words', (_, texts) => {
    const sentences = Object.values<object>(texts)
      .flatMap((entry) => Object.values(entry).filter((text) => typeof text === 'string'))
      .flatMap((text) => text.split(/(?<=[.!?])\s+(?=[A-Z])/));
    expect(sentences.length).toBeGreaterThan(50);
    expect(sentences.filter((text) => text.split(/\s+/).length > 25)).toEqual([]);
  });

  test('rules that nothing jumps to name their chain', () => {
    expect(catalogue['node-rules-unreachable'].meaning).toContain('KUBE-SERVICES');
  });

  test('titles are unique', () => {
    const titles = entries.map(([, { title }]) => title);
    expect(new Set(titles).size).toBe(titles.length);
  });

  test('the code begins with the output', () => {
    const outputOf = (code: string): Output => {
      if (code === 'endpoints-truncated') return 'input';
      if (code.startsWith('endpoints-')) return 'endpoints';
      if (code.startsWith('slice-')) return 'endpointslices';
      if (code.startsWith('node-')) return 'node';
      return code.startsWith('mirror-') ? 'mirrored' : 'input';
    };
    const wrong = entries.filter(([code, { output }]) => outputOf(code) !== output);
    expect(wrong).toEqual([]);
  });

  test('the code ends with the difference, if it names one', () => {
    const wrong = entries.filter(([code, { difference }]) => {
      const word = /-(missing|unexpected|different)$/.exec(code)?.[1];
      return word !== undefined && word !== difference;
    });
    expect(wrong).toEqual([]);
  });
});

describe('isWorse', () => {
  test('critical, warning, info', () => {
    expect(severities).toEqual(['critical', 'warning', 'info']);
    const worse = severities.flatMap((a) =>
      severities.filter((b) => isWorse(a, b)).map((b) => `${a} ${b}`),
    );
    expect(worse).toEqual(['critical warning', 'critical info', 'warning info']);
  });
});

// The catalogue of kinds, and the document that shows it.

import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import { describe, expect, test } from 'vitest';

import { parseTarget } from '../../../src/audit/explain/target.ts';
import { kinds } from '../../../src/audit/incident/kinds.ts';

const path = join(import.meta.dirname, '../../../docs/incidents.md');

const sections = Object.entries(kinds).map(([kind, entry]) => {
  const { title, evidence, refutation, least, remedy, commands } = entry;
  const list = commands.map((command) => `\n  - \`${command}\``).join('');
  return [
    `### ${kind}`,
    '',
    `${title}.`,
    '',
    `- Evidence: ${evidence}`,
    `- Refuted by: ${refutation}`,
    `- Severity: ${least} or worse, by its effect on traffic`,
    `- What to do: ${remedy}${list}`,
    '',
  ].join('\n');
});

describe('docs/incidents.md', () => {
  test('has the kinds of the catalogue', () => {
    const text = readFileSync(path, 'utf8');
    const head = text.slice(0, text.includes('### ') ? text.indexOf('### ') : text.length);
    const want = `${head.trimEnd()}\n\n${sections.join('\n')}`;
    if (process.env.UPDATE === '1') writeFileSync(path, want);
    expect(readFileSync(path, 'utf8')).toBe(want);
  });
});

describe('a kind', () => {
  test.each(Object.entries(kinds))('%s has commands with known placeholders', (_, entry) => {
    const words = entry.commands.flatMap((text) => text.match(/\{\w+\}/g) ?? []);
    const known = ['{namespace}', '{service}', '{node}', '{address}'];
    expect(words.filter((word) => !known.includes(word))).toEqual([]);
  });

  test.each(Object.entries(kinds))('%s deletes no Service and no pod of a workload', (_, entry) => {
    const proxy = 'kubectl -n kube-system delete pod -l k8s-app=kube-proxy ';
    expect(
      entry.commands.filter((text) => /\b(?:delete|drain|replace|scale)\b/.test(text)),
    ).toEqual(entry.commands.filter((text) => text.startsWith(proxy)));
    expect(entry.remedy).not.toMatch(/(?:delete|recreate) (?:the|a|one of its) (?:Service|pods?)/i);
  });

  test.each(Object.entries(kinds))('%s has commands of explain with a subject', (_, entry) => {
    const start = 'endpoint-auditor explain ';
    for (const text of entry.commands.filter((it) => it.startsWith(start))) {
      const [subject = '', ...rest] = text.slice(start.length).replaceAll(/[{}]/g, '').split(' ');
      expect(parseTarget([subject], null).service).toBe('/service');
      expect(rest).toEqual(['-n', 'namespace']);
    }
  });

  test.each(Object.entries(kinds))('%s has texts that end as sentences', (_, entry) => {
    const { title, evidence, refutation, remedy } = entry;
    expect(title).toMatch(/[^.]$/);
    for (const text of [evidence, refutation, remedy]) expect(text).toMatch(/\.$/);
  });
});

import { readFileSync } from 'node:fs';
import { join } from 'node:path';

import { expect, test } from 'vitest';

import type { Code } from '../../../src/audit/finding/catalogue.ts';
import { catalogue } from '../../../src/audit/finding/catalogue.ts';
import type { Cause } from '../../../src/audit/finding/causes.ts';
import { causes } from '../../../src/audit/finding/causes.ts';
import { findAlert, findingUrl, runbookUrl } from '../../../src/output/page/lists.ts';
import { alerts, codesOf } from '../../alerts/alertmanager.ts';

/** The address of the page, which the chart replaces by externalUrl. */
const page = 'http://127.0.0.1:9465';

const docs = join(import.meta.dirname, '../../../docs');
const codes = Object.keys(catalogue) as Code[];

/** Anchors of the headings of a document, as GitHub makes them. */
function anchorsOf(name: string): Set<string> {
  const lines = readFileSync(join(docs, name), 'utf8').split('\n');
  const headings = lines.flatMap((line) => /^#+ (?<text>.+)$/.exec(line)?.groups?.text ?? []);
  return new Set(
    headings.map((text) =>
      text
        .toLowerCase()
        .replace(/[^\w -]/g, '')
        .replaceAll(' ', '-'),
    ),
  );
}

/** The alerts whose section in the runbook asks for findings of a code. */
function sectionsAbout(code: Code): string[] {
  const [, ...sections] = readFileSync(join(docs, 'runbook.md'), 'utf8').split('\n### ');
  return sections
    .filter((section) => new RegExp(`[?&]code=${code}\\b(?!-)`).test(section))
    .map((section) => section.split('\n')[0] ?? '');
}

test.each(codes)('%s leads to the alert that it fires, or to the section about it', (code) => {
  const firing = alerts.filter((rule) => codesOf(rule).includes(code)).map(({ alert }) => alert);
  const said = sectionsAbout(code);
  const want = firing.length > 0 ? firing : said;
  expect(want).toEqual(findAlert(code) === null ? [] : [findAlert(code)]);
});

test('all links lead to sections that are there', () => {
  const [findings, runbook] = [anchorsOf('findings.md'), anchorsOf('runbook.md')];
  const names = Object.keys(causes).map((cause) => `cause-${cause as Cause}` as const);
  for (const name of [...codes, ...names]) {
    const [path = '', anchor = ''] = findingUrl(name).slice('/docs'.length).split('#');
    expect([path, findings.has(anchor)], name).toEqual(['/findings.md', true]);
  }
  for (const alert of codes.flatMap((code) => findAlert(code) ?? [])) {
    const [path = '', anchor = ''] = runbookUrl(alert).slice('/docs'.length).split('#');
    expect([path, runbook.has(anchor)], alert).toEqual(['/runbook.md', true]);
  }
});

test('alerts lead to the same documents, as the page serves them', () => {
  for (const { alert = '', annotations } of alerts) {
    expect(annotations?.runbook_url).toBe(`${page}${runbookUrl(alert)}`);
  }
});

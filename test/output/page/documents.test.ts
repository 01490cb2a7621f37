import { expect, test } from 'vitest';

import { documentNames, readDocumentFile } from '../../../src/output/page/document-files.ts';
import { renderDocument } from '../../../src/output/page/documents.ts';
import { statusOf } from '../samples.ts';

const htmlOf = (name: string): string => renderDocument(statusOf(), name) ?? '';

test('files are documents and their images, and no decisions', () => {
  expect(documentNames).toContain('README.md');
  expect(documentNames).toContain('runbook.md');
  expect(documentNames).toContain('images/journey.png');
  expect(documentNames.filter((name) => /decisions|report\.schema/.test(name))).toEqual([]);
  expect(String(readDocumentFile('runbook.md'))).toMatch(/^# Runbook\n/);
  expect(readDocumentFile('../package.json')).toBeNull();
});

test('headings are anchors, and links to other documents stay links', () => {
  const html = htmlOf('findings.md');
  expect(html).toContain('id="slice-endpoint-missing"');
  expect(html).toMatch(/href="runbook\.md#/);
});

test('a link to a file that is not installed is its text', () => {
  const html = htmlOf('upstream-blind-spots.md');
  expect(html).not.toContain('../test/');
  expect(html).not.toMatch(/href="[^"]*\.txt"/);
});

test('every document is in the list, with the shown one marked', () => {
  const html = htmlOf('lag.md');
  expect(html).toContain('href="/docs/README.md"');
  expect(html).toContain('href="/docs/lag.md" aria-current="page"');
});

test.each(['none.md', '../package.json', ''])('%j is no document', (name) => {
  expect(renderDocument(statusOf(), name)).toBeNull();
});

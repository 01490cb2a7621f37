import { expect, test } from 'vitest';

import { renderFrame } from '../../../src/output/page/frame.ts';
import { markup } from '../../../src/output/page/parts.ts';
import { conformState, statusOf, wordsIn } from '../samples.ts';

const page = ['/services', 'All', markup``] as const;

test('a page shows its section, its time and its input', () => {
  const html = renderFrame(statusOf({ revision: '7 8' }), ...page);
  expect(html).toMatch(/^<!doctype html>\n<html lang="en">/);
  expect(html).toContain('<title>All · endpoint-auditor</title>');
  expect(html).toContain('<body data-revision="7 8">');
  expect(html.match(/aria-current="page"/g)).toHaveLength(1);
  expect(html).toMatch(/href="\/services" aria-current="page"/);
  const text = wordsIn(html);
  expect(text).toContain('Overview Findings 2 Services 21 Nodes 0');
  expect(text).toContain('as of 2026-11-21 10:56:46 UTC');
});

test('a browser without scripts reloads the page', () => {
  expect(renderFrame(statusOf(), ...page)).toContain(
    '<noscript><meta http-equiv="refresh" content="15"></noscript>',
  );
});

test('an auditor that is not ready has no other warnings', () => {
  const status = statusOf({ metrics: conformState(), notReady: 'The first lists are awaited' });
  expect(renderFrame(status, ...page)).not.toContain('class="notice');
});

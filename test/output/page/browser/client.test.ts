// The tests in test/page show that the script works in a browser. This test checks that it is
// JavaScript that needs nothing but a browser.

import { Script } from 'node:vm';

import { expect, test } from 'vitest';

import { clientScript } from '../../../../src/output/page/asset-texts.ts';

test('the script is JavaScript without types', () => {
  expect(() => new Script(clientScript)).not.toThrow();
  expect(clientScript).not.toMatch(/\b(?:import|export|require)\b|__vi|: PageState/);
});

test('every function that the script calls is in it or in the browser', () => {
  const own = new Set([...clientScript.matchAll(/function (\w+)\(/g)].map(([, name]) => name));
  for (const name of ['refresh', 'morph', 'connect', 'start']) {
    expect(own.has(name)).toBe(true);
  }
});

test('the script makes no markup of text', () => {
  expect(clientScript).not.toMatch(/innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(/);
});

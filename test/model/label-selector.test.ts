// Selectors of --selector, as kubectl reads them.

import { describe, expect, test } from 'vitest';

import { matchesLabels, parseLabelSelector } from '../../src/model/label-selector.ts';

const web = { app: 'web', tier: 'front', 'app.kubernetes.io/name': 'shop', weight: '5', bare: '' };

describe('a label selector', () => {
  test.each([
    ['app=web', true],
    ['app==web', true],
    ['app = web', true],
    ['app=api', false],
    ['app!=api', true],
    ['app!=web', false],
    ['missing!=web', true],
    ['missing=web', false],
    ['app', true],
    ['missing', false],
    ['!missing', true],
    ['!app', false],
    ['bare=', true],
    ['app=', false],
    ['app in (api, web)', true],
    ['app in (api)', false],
    ['missing in (api,web)', false],
    ['bare in (,x)', true],
    ['app notin (api,web)', false],
    ['missing notin (api)', true],
    ['weight>4', true],
    ['weight<5', false],
    ['app>4', false],
    ['app.kubernetes.io/name=shop', true],
    ['app=web,tier in (front,back),!missing', true],
    ['app=web,tier=back', false],
    ['constructor', false],
  ])('%s', (text, want) => {
    expect(matchesLabels(parseLabelSelector(text), web)).toBe(want);
  });

  test.each([
    ['', 'the selector is empty'],
    ['app=web,', '"" is not a requirement'],
    ['app in web', '"app in web" is not a requirement'],
    ['app in (web', '"app in (web" is not a requirement'],
    ['app = web x', '"app = web x" is not a requirement'],
    ['=web', '"=web" is not a requirement'],
    ['-app=web', '"-app" is not the key of a label'],
    ['app=w@b', '"w@b" is not the value of a label'],
    ['weight>heavy', '"heavy" is not a whole number'],
  ])('%s is refused', (text, reason) => {
    expect(() => parseLabelSelector(text)).toThrow(reason);
  });
});

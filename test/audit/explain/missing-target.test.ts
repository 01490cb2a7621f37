import { expect, test } from 'vitest';

import { missing, notFound } from '../../../src/audit/explain/missing-target.ts';
import { contextOf, pod, service, storeOf } from '../../build.ts';

const objects = [service(), service({ namespace: 'bank' }), service({ name: 'webs' }), pod()];
const context = contextOf(storeOf(objects));

test.each([
  ['shop/wep', 'there is shop/web'],
  ['shop/frontend', undefined],
  ['mail/web', 'there is bank/web, shop/web'],
])('Service %s: %s', (key, meant) => {
  const got = missing(context, { kind: 'service', service: key }, 'Service', key);
  expect(got).toMatchObject({ found: false, answer: `Service ${key} does not exist` });
  expect(got.reasons[0]?.text).toBe(meant);
});

test.each([
  ['*/wep', ['there is bank/web, shop/web']],
  ['*/frontend', []],
])('%s was looked for in every namespace', (key, meant) => {
  const got = missing(context, { kind: 'service', service: key }, 'Service', key);
  expect(got.answer).toBe(`Service ${key.slice(2)} does not exist in any namespace`);
  expect(got.reasons.map(({ text }) => text)).toEqual(meant);
});

test('a namespace without any Service is said', () => {
  const got = missing(context, { kind: 'pod', pod: 'mail/web-1' }, 'Pod', 'mail/web-1');
  expect(got.reasons.map(({ text }) => text)).toEqual([
    'there is shop/web-1',
    'there is no Service in namespace mail',
  ]);
});

test('what the input does not deliver is not known, which is not the same as not there', () => {
  const blind = contextOf(storeOf([service()], ['services']));
  const got = missing(blind, { kind: 'pod', pod: 'shop/a' }, 'Pod', 'shop/a');
  expect(got.answer).toBe('Pod shop/a is not known: the input has no Pods');
});

test('nothing is judged of it', () => {
  const got = notFound({ kind: 'address', address: '10.0.0.1' }, 'nobody', []);
  expect(got).toMatchObject({ found: false, verdict: null, severity: null, change: null });
});

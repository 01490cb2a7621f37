import { expect, test } from 'vitest';

import { expandLink, parseLinkTemplate } from '../../../src/output/text/link-template.ts';

test('a template has a name and an address', () => {
  const url = 'https://grafana.example/d/x?var-service={service}&var-namespace={namespace}';
  expect(parseLinkTemplate(`Grafana=${url}`)).toEqual({ name: 'Grafana', url });
});

test.each([
  'https://grafana.example/',
  'Grafana=javascript:alert(1)',
  'Grafana=/relative',
  'Grafana=https://',
  'Grafana=https://x/{deployment}',
  'Grafana=https://x/{}',
])('%s is no template', (text) => {
  expect(parseLinkTemplate(text)).toBeUndefined();
});

test('values are encoded', () => {
  const template = { name: 'x', url: 'https://x/{namespace}/{service}?c={cluster}' };
  const values = { namespace: 'a/b', service: 'web"><b>', cluster: 'a&b' };
  expect(expandLink(template, values)).toBe('https://x/a%2Fb/web%22%3E%3Cb%3E?c=a%26b');
});

test('there is no link without a value that the template needs', () => {
  const template = { name: 'x', url: 'https://x/{cluster}/{node}' };
  expect(expandLink(template, { node: 'a', cluster: null })).toBeNull();
  expect(expandLink(template, { node: 'a', cluster: 'c' })).toBe('https://x/c/a');
});

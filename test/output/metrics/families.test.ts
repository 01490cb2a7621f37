import { describe, expect, test } from 'vitest';

import { families, processFamilies } from '../../../src/output/metrics/families.ts';
import { serviceFamilies } from '../../../src/output/metrics/service-families.ts';
import { metricsDocument } from '../../metrics-document.ts';

describe('names follow the rules of promtool check metrics', () => {
  test.each([...families, ...serviceFamilies])('$name', ({ name, type, help, unit, labels }) => {
    expect(name).toMatch(/^endpoint_auditor_[a-z]+(?:_[a-z]+)*$/);
    expect(name.endsWith('_total')).toBe(type === 'counter');
    expect(name).not.toMatch(/gauge|counter|histogram|summary/);
    expect(name).not.toMatch(/_(?:count|sum|bucket)$/);
    expect(name).not.toMatch(/milliseconds|minutes|kilobytes|percent/);
    if (unit !== 'none') expect(name).toMatch(new RegExp(`_${unit}(?:_|$)`));
    else expect(name).not.toMatch(/_(?:seconds|bytes|ratio)(?:_|$)/);
    expect(help).toMatch(/^[A-Z].*\.$/);
    for (const label of Object.keys(labels)) {
      expect(label).toMatch(/^[a-z]+$/);
      expect(['le', 'quantile', 'type', 'job', 'instance', 'pod', 'service']).not.toContain(label);
    }
  });
});

// `vitest run -u` writes the page anew.
test('docs/metrics.md is the catalogue', async () => {
  await expect(metricsDocument()).toMatchFileSnapshot('../../../docs/metrics.md');
});

test('the document names every metric and every label', () => {
  const text = metricsDocument();
  for (const { name } of [...families, ...serviceFamilies, ...processFamilies])
    expect(text).toContain(`\`${name}\``);
  for (const { labels } of [...families, ...serviceFamilies]) {
    for (const [label, values] of Object.entries(labels)) {
      expect(text).toContain(`| \`${label}\` `);
      if (values.length < 12) for (const value of values) expect(text).toContain(`\`${value}\``);
    }
  }
});

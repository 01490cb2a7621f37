import { describe, expect, test } from 'vitest';

import type { ExpositionFormat } from '../../../src/output/metrics/exposition.ts';
import {
  formatBound,
  formatHead,
  formatLabels,
  formatSeries,
  negotiateFormat,
} from '../../../src/output/metrics/exposition.ts';

describe('the format for an Accept header', () => {
  const open = 'application/openmetrics-text';
  const cases: [string | undefined, ExpositionFormat][] = [
    [undefined, 'text'],
    ['', 'text'],
    ['*/*', 'text'],
    ['text/plain', 'text'],
    ['application/json', 'text'],
    [open, 'openmetrics'],
    [`${open}; version=1.0.0; charset=utf-8`, 'openmetrics'],
    [`${open};version="1.0.0"`, 'openmetrics'],
    // No version that is written here.
    [`${open};version=0.0.1`, 'text'],
    [`${open};q=0`, 'text'],
    [`${open};q=0.2,text/plain;q=0.3`, 'text'],
    [`${open};q=0.2,*/*;q=0.3`, 'text'],
    [`text/plain;version=1.0.0;q=0.9,${open};q=0.5`, 'openmetrics'],
    // As Prometheus 2 and 3 ask.
    [
      `${open};version=1.0.0;q=0.5,${open};version=0.0.1;q=0.4,` +
        'text/plain;version=1.0.0;q=0.3,text/plain;version=0.0.4;q=0.2,*/*;q=0.1',
      'openmetrics',
    ],
    [
      `${open};version=1.0.0;escaping=allow-utf-8;q=0.5,${open};version=0.0.1;q=0.4,` +
        'text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,' +
        'text/plain;version=0.0.4;q=0.2,*/*;q=0.1',
      'openmetrics',
    ],
    ['text/plain;version=0.0.4;q=0.6,*/*;q=0.1', 'text'],
  ];
  test.each(cases)('%j: %s', (accept, want) => {
    expect(negotiateFormat(accept)).toBe(want);
  });
});

describe('a series', () => {
  test('without labels has no braces', () => {
    expect(formatSeries('a', '', 1)).toBe('a 1\n');
  });

  test('escapes the values of labels', () => {
    const labels = formatLabels({ a: 'x"y', b: 'back\\slash', c: 'line\nbreak', d: 'ünï{}=,' });
    expect(formatSeries('a', labels, 0.5)).toBe(
      'a{a="x\\"y",b="back\\\\slash",c="line\\nbreak",d="ünï{}=,"} 0.5\n',
    );
  });

  test.each([
    [Infinity, '+Inf'],
    [-Infinity, '-Inf'],
    [NaN, 'NaN'],
    [1e21, '1e+21'],
    [0, '0'],
  ])('of %d', (value, want) => {
    expect(formatSeries('a', '', value)).toBe(`a ${want}\n`);
  });
});

describe('OpenMetrics', () => {
  const counter = { name: 'bytes_sent_bytes_total', type: 'counter', help: 'Sent.' };

  test('names a counter without _total, and has a line for its unit', () => {
    expect(formatHead(counter, 'openmetrics', 'bytes')).toBe(
      '# HELP bytes_sent_bytes Sent.\n# TYPE bytes_sent_bytes counter\n' +
        '# UNIT bytes_sent_bytes bytes\n',
    );
    expect(formatHead(counter, 'text', 'bytes')).toBe(
      '# HELP bytes_sent_bytes_total Sent.\n# TYPE bytes_sent_bytes_total counter\n',
    );
  });

  test('has no unit line if the name does not end with the unit', () => {
    const gauge = { name: 'object_bytes_max', type: 'gauge', help: 'Most.' };
    expect(formatHead(gauge, 'openmetrics', 'bytes')).toBe(formatHead(gauge, 'text', 'bytes'));
  });

  test('has floats as bounds', () => {
    const bounds = [1, 0.5, 1024, Infinity];
    expect(bounds.map((bound) => formatBound(bound, 'openmetrics'))).toEqual([
      '1.0',
      '0.5',
      '1024.0',
      '+Inf',
    ]);
    expect(bounds.map((bound) => formatBound(bound, 'text'))).toEqual(['1', '0.5', '1024', '+Inf']);
  });
});

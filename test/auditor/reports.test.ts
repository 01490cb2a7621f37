// Reports: what is counted in one, and which times it tells.

import { describe, expect, test } from 'vitest';

import { reportOf } from '../../src/auditor/reports.ts';
import { added, auditorOf, end, header, report, service, synced } from '../entries.ts';

describe('a report', () => {
  test('of one namespace counts no other', () => {
    const { auditor } = auditorOf(0);
    const other = { ...service, metadata: { ...service.metadata, namespace: 'pay' } };
    const events = [added('services', service, 100), added('services', other, 100)];
    for (const entry of [header(100), ...events, ...synced(101), end(102)]) auditor.take(entry);
    expect(report(auditor)).toMatchObject({ services: 2 });
    const one = report(auditor, 'pay');
    expect(one.services).toBe(1);
    expect(one.verdicts.endpoints.different).toBe(1);
    expect(new Set(one.findings.map(({ namespace }) => namespace))).toEqual(new Set(['pay']));
  });

  test('of a dump tells no times, and one that never began is a mistake of the caller', () => {
    const { auditor } = auditorOf(0);
    const options = { kind: 'audit', sources: ['dump'], namespace: null, problems: [] } as const;
    expect(() => reportOf(auditor, options)).toThrow('The input ended before it began');
    for (const entry of [header(100), added('services', service, 100), ...synced(101), end(102)]) {
      auditor.take(entry);
    }
    const { findings, input } = reportOf(auditor, options);
    expect(input).toMatchObject({ from: null, sources: ['dump'] });
    expect(findings.map(({ since, openedAt }) => [since, openedAt])).toEqual([
      [null, null],
      [null, null],
    ]);
  });
});

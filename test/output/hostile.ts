// What a cluster may have named by somebody who wants it to be read as something else: texts,
// findings and reports for properties, and what a text for people may not hold.

import fc from 'fast-check';

import type { Finding } from '../../src/audit/finding/catalogue.ts';
import type { AuditReport } from '../../src/output/text/report.ts';
import { findingOf, moment, reportOf, stateOf } from './samples.ts';

/** Text as somebody would write it who wants it to be read as something else. */
export const hostileText = fc
  .array(
    fc.oneof(
      fc.constantFrom('\u001b[31m', '\u009b2J', '\r', '\n', '\t', '\u202e', '\u2028', '\u0000'),
      fc.constantFrom('<b>', '&amp;', '"', "'", ']]>', '<!--', '\ufffe', '\ud800', '\udc00', '😀'),
      fc.integer({ min: 0, max: 0xffff }).map((unit) => String.fromCharCode(unit)),
      fc.string({ unit: 'binary' }),
    ),
    { maxLength: 12 },
  )
  .map((parts) => parts.join(''));

export const hostileFinding: fc.Arbitrary<Finding> = fc
  .record({
    namespace: hostileText,
    service: hostileText,
    object: hostileText,
    field: hostileText,
    expected: fc.option(hostileText),
    actual: fc.option(hostileText),
    resolvedAt: fc.option(fc.constant(moment + 5)),
    severity: fc.constantFrom('critical', 'warning', 'info'),
    difference: fc.constantFrom('missing', 'unexpected', 'different'),
  })
  .map((more) => findingOf(more as Partial<Finding>));

export const hostileReport: fc.Arbitrary<AuditReport> = fc
  .tuple(fc.array(hostileFinding, { maxLength: 4 }), hostileText)
  .map(([findings, text]) =>
    reportOf(stateOf(), {
      findings,
      problems: [text],
      dropped: { [text]: 3 },
      input: { ...reportOf(stateOf()).input, sources: [text], release: text, verified: false },
    }),
  );

/** What no text for people may hold, newlines apart: what cannot be seen, and half characters. */
export const invisible = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/u;
/** Whether a text hides something; newlines are for the eye. */
export const hides = (text: string): boolean => invisible.test(text.replaceAll('\n', ''));

// Judges a Service of a store as a ledger does at its beginning, for tests of single judges.

import type { Difference } from '../../src/audit/finding/difference.ts';
import type { PendingDifference } from '../../src/audit/pending/pending.ts';
import { createPendingFindings } from '../../src/audit/pending/pending.ts';
import type { ServiceAuditor } from '../../src/audit/service/auditor.ts';
import { createServiceAuditor } from '../../src/audit/service/auditor.ts';
import type { AuditContext, ServiceState } from '../../src/audit/service/cache.ts';
import type { AnyObject, Resource } from '../../src/model/objects.ts';
import { resources } from '../../src/model/objects.ts';
import { contextOf, storeOf } from '../build.ts';

export interface Judged {
  readonly context: AuditContext;
  readonly serviceAuditor: ServiceAuditor;
  readonly record: ServiceState;
  /** Everything that stands at this Service, in the order of its units. */
  readonly items: readonly PendingDifference[];
}

/** Everything about the Service of this name in namespace shop. */
export function judged(
  objects: readonly AnyObject[],
  more: Partial<AuditContext> = {},
  known: readonly Resource[] = resources,
  name = 'web',
): Judged {
  const context = contextOf(storeOf(objects, known), more);
  const serviceAuditor = createServiceAuditor({
    context,
    settle: createPendingFindings({ window: 0, keep: 100 }),
  });
  serviceAuditor.begin(0);
  const audited = serviceAuditor.audited.get(`shop/${name}`);
  if (audited === undefined) throw new Error(`Nothing is known of ${name}`);
  const items = [...audited.items.values()].flat();
  return { context, serviceAuditor, record: audited.record, items };
}

/** A difference in a few words: code, severity as it is, and its cause if it has one. */
export function itemText({ difference, severity, cause }: PendingDifference): string {
  return [difference.code, severity, cause].filter((part) => part !== null).join(' ');
}

/** The differences at one output, in a few words. */
export function textsOf(of: Judged, output: PendingDifference['output']): string[] {
  return of.items.filter((item) => item.output === output).map(itemText);
}

export const codesOf = (found: readonly Difference[]): string[] => found.map(({ code }) => code);

// Judges a Service of a store as a ledger does at its beginning, for tests of single judges.

import type { Difference } from '../../src/audit/finding/difference.ts';
import type { Item } from '../../src/audit/pending/pending.ts';
import { createSettle } from '../../src/audit/pending/pending.ts';
import type { Ledger } from '../../src/audit/service/auditor.ts';
import { createLedger } from '../../src/audit/service/auditor.ts';
import type { Context, ServiceRecord } from '../../src/audit/service/cache.ts';
import type { AnyObject, Resource } from '../../src/model/objects.ts';
import { resources } from '../../src/model/objects.ts';
import { contextOf, storeOf } from '../build.ts';

export interface Judged {
  readonly context: Context;
  readonly ledger: Ledger;
  readonly record: ServiceRecord;
  /** Everything that stands at this Service, in the order of its units. */
  readonly items: readonly Item[];
}

/** Everything about the Service of this name in namespace shop. */
export function judged(
  objects: readonly AnyObject[],
  more: Partial<Context> = {},
  known: readonly Resource[] = resources,
  name = 'web',
): Judged {
  const context = contextOf(storeOf(objects, known), more);
  const ledger = createLedger({ context, settle: createSettle({ window: 0, keep: 100 }) });
  ledger.begin(0);
  const audited = ledger.audited.get(`shop/${name}`);
  if (audited === undefined) throw new Error(`Nothing is known of ${name}`);
  const items = [...audited.items.values()].flat();
  return { context, ledger, record: audited.record, items };
}

/** A difference in a few words: code, severity as it is, and its cause if it has one. */
export function itemText({ difference, severity, cause }: Item): string {
  return [difference.code, severity, cause].filter((part) => part !== null).join(' ');
}

/** The differences at one output, in a few words. */
export function textsOf(of: Judged, output: Item['output']): string[] {
  return of.items.filter((item) => item.output === output).map(itemText);
}

export const codesOf = (found: readonly Difference[]): string[] => found.map(({ code }) => code);

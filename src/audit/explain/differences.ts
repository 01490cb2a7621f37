// Turns differences into reasons and texts.

import { bySeverity, catalogue, type Finding, type Severity } from '../finding/catalogue.ts';
import { causes } from '../finding/causes.ts';
import type { ObjectChange } from '../service/object-changes.ts';
import type { ServiceDifference } from '../service/reconcile.ts';
import { counted, firstReasons, note, type Reason, reason, worstSeverity } from './explanation.ts';

/** Differences worst first, then oldest first. */
export const worstItemsFirst = (items: readonly ServiceDifference[]): ServiceDifference[] =>
  items.toSorted((a, b) => bySeverity(a, b) || a.since - b.since);

/** The worst severity of the differences that are findings; null without any. */
export const severityOf = (items: readonly ServiceDifference[]): Severity | null =>
  worstSeverity(items.map(({ openedAt, severity }) => (openedAt === null ? null : severity)));

/** One reason for each group of differences with equal code, object and cause, worst first. */
export function itemReasons(items: readonly ServiceDifference[]): Reason[] {
  const groups = Map.groupBy(worstItemsFirst(items), ({ difference, cause, proven, openedAt }) =>
    [difference.code, cause, proven, openedAt === null, difference.object].join(' '),
  );
  const countText = (rest: number): string => `${counted(rest, 'more kind')} of difference`;
  return firstReasons([...groups.values()], 5, groupReasons, countText);
}

function groupReasons(items: readonly ServiceDifference[]): Reason[] {
  const [first] = items;
  if (first === undefined) return [];
  const { difference, output, cause, openedAt, proven } = first;
  const { code, object, field } = difference;
  const { title, meaning, upstream } = catalogue[code];
  const sides = (item: ServiceDifference): Reason[] => sideNotes(item.difference);
  const countText = (rest: number): string => `${rest} more of the same kind`;
  const parts = [note(meaning), ...firstReasons(items, 3, sides, countText)];
  const changes = [...new Set(items.flatMap((item) => item.changes))];
  const countChanges = (rest: number): string => counted(rest, 'more change');
  parts.push(...firstReasons(changes, 4, changeNote, countChanges));
  if (cause !== null) {
    const text = `${proven ? 'cause' : 'likely cause'}: ${causes[cause].title} (${cause})`;
    parts.push(note(text, { source: causes[cause].upstream }));
  }
  const hope = output === 'input' ? 'too new to be a finding' : 'it may be on its way';
  const pending = openedAt === null ? `, pending: ${hope}` : '';
  const since = Math.min(...items.map((item) => item.since));
  const change = itemChange(first);
  const details = { object, field, source: upstream, change, since, parts };
  return [reason('no', `${title} (${code}${pending})`, details)];
}

/** A change that made a difference: `pod shop/web-1: label app changed from web to api`. */
function changeNote(changed: ObjectChange): Reason {
  const { kind, namespace, name, field, from, to } = changed;
  const key = namespace === '' ? name : `${namespace}/${name}`;
  const isWhole = field === 'metadata.uid';
  const label = field.replace(/^metadata\.(label|annotation)s /, '$1 ');
  const created = isWhole ? 'was created' : `${label} was set to ${to ?? ''}`;
  const gone = isWhole ? 'was deleted' : `${label} was removed (it was ${from ?? ''})`;
  const both = `${isWhole ? 'uid' : label} changed from ${from ?? ''} to ${to ?? ''}`;
  const text = from === null ? created : to === null ? gone : both;
  return note(`${kind.toLowerCase()} ${key}: ${text}`, {
    object: `${kind} ${key}`,
    field,
    changed,
  });
}

export const itemChange = ({ difference: { object, code }, cause }: ServiceDifference): string =>
  `${object}: ${cause === null ? catalogue[code].remedy : causes[cause].cure}`;

export const sideNotes = ({ expected, actual }: Pick<Finding, 'expected' | 'actual'>): Reason[] => [
  ...(expected === null ? [] : [note(`expected: ${expected}`)]),
  note(`found: ${actual ?? 'nothing'}`),
];

/** A difference in one clause, with its cause if it has one. */
export function itemText({ difference, cause, proven }: ServiceDifference): string {
  const { code, expected, actual } = difference;
  const got = actual ?? `missing is ${expected ?? 'all of it'}`;
  const why =
    cause === null ? '' : `. ${proven ? 'Cause' : 'Likely cause'}: ${causes[cause].title}`;
  return `${catalogue[code].title}: ${got}${why}`;
}

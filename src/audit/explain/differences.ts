// Turns differences into reasons and texts.

import {
  bySeverity,
  catalogue,
  type DifferenceDetail,
  type Finding,
  type Severity,
} from '../finding/catalogue.ts';
import { causes } from '../finding/causes.ts';
import { detailsOf } from '../finding/difference.ts';
import { remedyOf } from '../finding/remedies.ts';
import { suppressedText } from '../finding/suppressions.ts';
import { worstSeverity } from '../finding/verdicts.ts';
import type { ServiceAuditor } from '../service/auditor.ts';
import { type ObjectChange, objectName } from '../service/object-changes.ts';
import type { ServiceDifference } from '../service/reconcile.ts';
import { counted, firstReasons, note, type Reason, reason } from './explanation.ts';

/** The Service of differences. */
interface Owner {
  readonly namespace: string;
  readonly name: string;
}

/** Differences worst first, then oldest first. */
export const worstItemsFirst = (items: readonly ServiceDifference[]): ServiceDifference[] =>
  items.toSorted((a, b) => bySeverity(a, b) || a.since - b.since);

/**
 * The suppressed findings about a Service, without those of nodes. It reads no differences: a
 * finding computes them again each time.
 */
export const suppressedOf = ({ settle }: ServiceAuditor, { namespace, name }: Owner): Finding[] =>
  settle
    .open()
    .filter(
      (finding) =>
        finding.suppressed !== null &&
        finding.node === null &&
        finding.namespace === namespace &&
        finding.service === name,
    );

/** The worst severity of the differences that are unsuppressed findings; null without any. */
export const severityOf = (
  items: readonly ServiceDifference[],
  suppressed: readonly Finding[] = [],
): Severity | null =>
  worstSeverity(
    items.map(({ openedAt, severity, difference: { code } }) =>
      openedAt === null || suppressed.some((finding) => finding.code === code) ? null : severity,
    ),
  );

/** A suppressed finding, which does not count for the severity. */
export const suppressedNotes = ({ code, suppressed }: Finding): Reason[] =>
  suppressed === null ? [] : [note(`${code} is suppressed ${suppressedText(suppressed)}`)];

/** Notes about the suppressed findings of these differences. */
export const suppressedReasons = (
  items: readonly ServiceDifference[],
  suppressed: readonly Finding[],
): Reason[] =>
  suppressed
    .filter(({ code }) => items.some(({ difference }) => difference.code === code))
    .flatMap(suppressedNotes);

type ItemGroup = readonly [ServiceDifference, ...ServiceDifference[]];

/** The differences in groups of equal code, object and cause, worst first. */
function groupItems(items: readonly ServiceDifference[]): ItemGroup[] {
  const groups = Map.groupBy(worstItemsFirst(items), ({ difference, cause, proven, openedAt }) =>
    [difference.code, cause, proven, openedAt === null, difference.object].join(' '),
  );
  // Map.groupBy makes no empty group.
  return [...groups.values()] as unknown as ItemGroup[];
}

/** One reason for each group of differences, worst first. */
export function itemReasons(owner: Owner, items: readonly ServiceDifference[]): Reason[] {
  const countText = (rest: number): string => `${counted(rest, 'more kind')} of difference`;
  return firstReasons(groupItems(items), 5, (group) => groupReason(owner, group), countText);
}

/**
 * The reasons of groups of differences, and of findings of nodes, with numbers: `1. critical: …`.
 * Findings are before pending differences, and the worst first.
 */
export function numberedReasons(
  owner: Owner,
  items: readonly ServiceDifference[],
  onNodes: readonly Finding[],
): Reason[] {
  const problems = [
    ...groupItems(items).map((group) => ({ worst: group[0], found: groupReason(owner, group) })),
    ...onNodes.map((finding) => ({ worst: finding, found: nodeFindingReason(finding, true) })),
  ].sort(
    (a, b) =>
      Number(a.worst.openedAt === null) - Number(b.worst.openedAt === null) ||
      bySeverity(a.worst, b.worst) ||
      (a.found.since ?? 0) - (b.found.since ?? 0),
  );
  return firstReasons(
    [...problems.entries()],
    10,
    ([index, { worst, found }]): Reason => {
      const mark = worst.severity === 'info' ? 'note' : 'no';
      return { ...found, mark, text: `${index + 1}. ${worst.severity}: ${found.text}` };
    },
    (rest) => counted(rest, 'more finding'),
  );
}

/** Details of one reason; the others are counted. */
const mostDetails = 10;

/** The first details, and a note that counts the others. */
export function detailsPart(all: readonly DifferenceDetail[], most = mostDetails) {
  const more = all.length - most;
  const parts = more > 0 ? [note(`and ${counted(more, 'more difference')}`)] : [];
  return { differences: all.slice(0, most), parts };
}

function remedyPart(finding: Parameters<typeof remedyOf>[0]) {
  const { text, commands, managed } = remedyOf(finding);
  return { change: text, commands, managed };
}

/** `withSides`: what is expected and found, which traced packets show too. */
export function nodeFindingReason(finding: Finding, withSides: boolean): Reason {
  const { code, node, service, object, since } = finding;
  const { title, meaning, upstream } = catalogue[code];
  const start = `Node ${node ?? ''}`;
  const ports = object.replace(`${start}: `, '');
  // Of most Services of the node, the first are enough.
  const most = service === '' ? 3 : mostDetails;
  const { differences, parts: more } = detailsPart(finding.differences, most);
  const parts = [
    note(meaning),
    ...(service === '' ? [note(`it concerns the Service ports ${ports}`)] : []),
    ...(withSides ? more : []),
  ];
  return reason('no', `${title} (${code}, Node ${node ?? ''})`, {
    object: start,
    field: 'rules',
    source: upstream,
    ...remedyPart(finding),
    differences: withSides ? differences : [],
    since,
    parts,
  });
}

function groupReason(owner: Owner, items: ItemGroup): Reason {
  const [{ difference, output, cause, openedAt, proven }] = items;
  const { code, object, field } = difference;
  const { title, meaning, upstream } = catalogue[code];
  const all = items.flatMap((item) => item.details?.() ?? detailsOf(item.difference));
  const { differences, parts: more } = detailsPart(all);
  const parts = [note(meaning), ...more];
  const changes = [...new Set(items.flatMap((item) => item.changes))];
  const countChanges = (rest: number): string => counted(rest, 'more change');
  parts.push(...firstReasons(changes, 4, changeNote, countChanges));
  if (cause !== null) {
    const text = `${proven ? 'cause' : 'likely cause'}: ${causes[cause].title} (${cause})`;
    parts.push(note(text, { source: causes[cause].upstream }));
  }
  const hope = output === 'input' ? 'not yet a finding' : 'the controller may still write it';
  const pending = openedAt === null ? `, pending: ${hope}` : '';
  const since = Math.min(...items.map((item) => item.since));
  const { namespace, name: service } = owner;
  const found = { code, cause, namespace, service, node: null, differences: all };
  const rest = { ...remedyPart(found), differences, since, parts };
  return reason('no', `${title} (${code}${pending})`, { object, field, source: upstream, ...rest });
}

/** A change that made a difference: `pod shop/web-1: label app changed from web to api`. */
function changeNote(changed: ObjectChange): Reason {
  const { kind, field, from, to } = changed;
  const object = objectName(changed);
  const isWhole = field === 'metadata.uid';
  const label = field.replace(/^metadata\.(label|annotation)s /, '$1 ');
  const created = isWhole ? 'was created' : `${label} was set to ${to ?? ''}`;
  const gone = isWhole ? 'was deleted' : `${label} was removed (it was ${from ?? ''})`;
  const both = `${isWhole ? 'uid' : label} changed from ${from ?? ''} to ${to ?? ''}`;
  const text = from === null ? created : to === null ? gone : both;
  const name = object.slice(kind.length);
  return note(`${kind.toLowerCase()}${name}: ${text}`, { object, field, changed });
}

/** The text of the remedy, which the reason of the difference has too, with its commands. */
export const itemChange = ({ difference: { code }, cause }: ServiceDifference): string =>
  remedyOf({ code, cause, namespace: '', service: '', node: null, differences: [] }).text;

/** A difference in one clause, with its cause if it has one. */
export function itemText({ difference, cause, proven }: ServiceDifference): string {
  const { code, expected, actual } = difference;
  const got = actual ?? `missing: ${expected ?? 'the whole object'}`;
  const why =
    cause === null ? '' : `. ${proven ? 'Cause' : 'Likely cause'}: ${causes[cause].title}`;
  return `${catalogue[code].title}: ${got}${why}`;
}

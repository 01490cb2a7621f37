// Contains an explanation and its reasons: a tree of marked sentences, each with the object and
// field that decide it, the upstream code that reads them, and the smallest change that helps.

import type { Key } from '../../model/objects.ts';
import type { Finding, Severity } from '../finding/catalogue.ts';
import { bySeverity, catalogue, severities } from '../finding/catalogue.ts';
import { causes } from '../finding/causes.ts';
import type { UnknownReason, Verdict } from '../finding/verdicts.ts';
import type { ServiceDifference } from '../service/reconcile.ts';

/** The object of an explanation; a null port means all ports. */
export type ExplainTarget = Readonly<
  | { kind: 'service'; service: Key }
  | { kind: 'pod'; pod: Key }
  | { kind: 'pair'; pod: Key; service: Key }
  | { kind: 'address'; address: string }
  | { kind: 'node'; node: string; service: Key; port: string | null }
>;

export interface Explanation {
  readonly subject: ExplainTarget;
  /** Whether the target exists, or another object refers to it. */
  readonly found: boolean;
  /** The worst verdict on the outputs concerned; null if there is no output to compare. */
  readonly verdict: Verdict | null;
  /** The worst severity of the findings concerned; null if there is none. */
  readonly severity: Severity | null;
  /** One sentence. */
  readonly answer: string;
  readonly change: string | null;
  readonly reasons: readonly Reason[];
}

/** An explanation of an object that exists, without its target. */
export type ExplanationBody = Omit<Explanation, 'subject' | 'found'>;

/** yes: as traffic needs it; no: not so; note: worth knowing, decides nothing. */
export type ReasonMark = 'yes' | 'no' | 'unknown' | 'note';

export interface Reason {
  readonly mark: ReasonMark;
  readonly text: string;
  /** `Kind namespace/name` of the API object that decides, and its field. */
  readonly object: string | null;
  readonly field: string | null;
  readonly source: string | null;
  /** The smallest change that helps. */
  readonly change: string | null;
  /** Unix seconds on the input's clock; null if unknown. */
  readonly since: number | null;
  readonly parts: readonly Reason[];
}

const bare = { object: null, field: null, source: null, change: null, since: null, parts: [] };

export const reason = (mark: ReasonMark, text: string, rest: Partial<Reason> = {}): Reason => ({
  mark,
  text,
  ...bare,
  ...rest,
});

export const note = (text: string, rest: Partial<Reason> = {}): Reason =>
  reason('note', text, rest);

/** The reasons of the first items, and a note that counts the others. */
export function firstReasons<T>(
  items: readonly T[],
  most: number,
  describe: (item: T) => Reason | readonly Reason[],
  countText: (rest: number) => string,
): Reason[] {
  const rest = items.length - most;
  const reasons = items.slice(0, most).flatMap(describe);
  return rest > 0 ? [...reasons, note(`and ${countText(rest)}`)] : reasons;
}

/** `1 pod`, `2 pods`. */
export const counted = (count: number, noun: string, plural = `${noun}s`): string =>
  `${count} ${count === 1 ? noun : plural}`;

/** The first few names: `a, b, c and 4 more`. */
export function fewOf(names: readonly string[], few = 3): string {
  const rest = names.length - few;
  const first = names.slice(0, few).join(', ');
  return rest > 0 ? `${first} and ${rest} more` : first;
}

export const firstChange = (reasons: readonly Reason[]): string | null =>
  reasons.find(({ change }) => change !== null)?.change ?? null;

export const markOf = (verdict: Verdict): ReasonMark =>
  verdict === 'conform' ? 'yes' : verdict === 'unknown' ? 'unknown' : 'no';

const worstFirst: readonly Verdict[] = ['different', 'unknown', 'pending', 'conform'];

/** The worst verdict; `conform` without any. */
export const worstVerdict = (verdicts: readonly Verdict[]): Verdict =>
  worstFirst.find((verdict) => verdicts.includes(verdict)) ?? 'conform';

export const worstSeverity = (found: readonly (Severity | null)[]): Severity | null =>
  severities.find((severity) => found.includes(severity)) ?? null;

/** Differences worst first, then oldest first. */
export const worstItemsFirst = (items: readonly ServiceDifference[]): ServiceDifference[] =>
  items.toSorted((a, b) => bySeverity(a, b) || a.since - b.since);

/** The worst severity of the differences that are findings; null without any. */
export const severityOf = (items: readonly ServiceDifference[]): Severity | null =>
  worstSeverity(items.map(({ openedAt, severity }) => (openedAt === null ? null : severity)));

/** One reason for each group of differences with equal code, object and cause, worst first. */
export function itemReasons(items: readonly ServiceDifference[]): Reason[] {
  const groups = Map.groupBy(worstItemsFirst(items), ({ difference, cause, openedAt }) =>
    [difference.code, cause, openedAt === null, difference.object].join(' '),
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
  if (cause !== null) {
    const known = proven ? 'cause' : 'likely cause, as the state looks';
    const text = `${known}: ${causes[cause].title} (${cause})`;
    parts.push(note(text, { source: causes[cause].upstream }));
  }
  const hope = output === 'input' ? 'too new to be a finding' : 'it may be on its way';
  const pending = openedAt === null ? `, pending: ${hope}` : '';
  const since = Math.min(...items.map((item) => item.since));
  const change = itemChange(first);
  const details = { object, field, source: upstream, change, since, parts };
  return [reason('no', `${title} (${code}${pending})`, details)];
}

/** The change that resolves a difference. */
export const itemChange = ({ difference: { object, code }, cause }: ServiceDifference): string =>
  `${object}: ${cause === null ? catalogue[code].remedy : causes[cause].cure}`;

/** The two sides of a difference or a finding. */
export const sideNotes = ({ expected, actual }: Pick<Finding, 'expected' | 'actual'>): Reason[] => [
  ...(expected === null ? [] : [note(`expected: ${expected}`)]),
  note(`found: ${actual ?? 'nothing'}`),
];

/** A difference in one clause, with its cause if it has one. */
export function itemText({ difference, cause }: ServiceDifference): string {
  const { code, expected, actual } = difference;
  const got = actual ?? `missing is ${expected ?? 'all of it'}`;
  const why = cause === null ? '' : `. Cause: ${causes[cause].title}`;
  return `${catalogue[code].title}: ${got}${why}`;
}

export const unknownText: Readonly<Record<UnknownReason, string>> = {
  'pods-not-known': 'the input has no Pods',
  'nodes-not-known': 'the input has no Nodes',
  'endpoints-not-known': 'the input has no Endpoints',
  'endpointslices-not-known': 'the input has no EndpointSlices',
  'object-unreadable': 'an object that has a say in it could not be read',
  'input-stale': 'an input cannot be seen just now',
  'node-not-known': 'the input has no such Node',
  'proxy-mode-not-modelled': 'the mode of kube-proxy there is not modelled',
  'rules-not-known': 'the rules of the node are not known',
  'rules-not-whole': 'the dumps do not tell all rules of the node',
  'rules-not-understood': 'rules of the node are not understood',
  'agent-absent': 'no agent runs on the node',
  'agent-refused': 'the agent of the node did not answer as it must',
  'agent-stale': 'the agent of the node is not heard of',
};

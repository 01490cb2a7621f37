// What an explanation is made of: reasons in a tree, each with a mark, the object and field that
// decide it, the upstream code that says so, and the smallest change that would turn it. Steps of a
// chain (chain.ts) and differences that stand (standing.ts) both become reasons.

import type { Severity } from '../finding/catalogue.ts';
import { catalogue, isWorse } from '../finding/catalogue.ts';
import { causes } from '../finding/causes.ts';
import type { UnknownReason } from '../finding/verdicts.ts';
import type { PendingDifference } from '../pending/pending.ts';
import type { Condition } from './condition.ts';

/** yes: as it must be for traffic to come; no: not so; note: worth knowing, decides nothing. */
export type ReasonMark = 'yes' | 'no' | 'unknown' | 'note';

export interface Reason {
  readonly mark: ReasonMark;
  readonly text: string;
  /** `Kind namespace/name` of the API object that decides, and its field. */
  readonly object: string | null;
  readonly field: string | null;
  readonly source: string | null;
  /** The smallest change that would put it right. */
  readonly change: string | null;
  /** Since when it has been so, Unix seconds on the input's clock; null: not known. */
  readonly since: number | null;
  readonly parts: readonly Reason[];
}

const bare = { object: null, field: null, source: null, change: null, since: null, parts: [] };

export const reason = (mark: ReasonMark, text: string, more: Partial<Reason> = {}): Reason => ({
  mark,
  text,
  ...bare,
  ...more,
});

/** `1 pod`, `2 pods`. */
export const counted = (count: number, one: string, many = `${one}s`): string =>
  `${String(count)} ${count === 1 ? one : many}`;

/** The first few names of many: `a, b, c and 4 more`. */
export function fewOf(names: readonly string[], few = 3): string {
  const more = names.length - few;
  const first = names.slice(0, few).join(', ');
  return more > 0 ? `${first} and ${String(more)} more` : first;
}

export function conditionReason(step: Condition, since: number | null = null): Reason {
  const { passes, text, object, field, source, change } = step;
  const mark = passes === 'unknown' ? 'unknown' : passes ? 'yes' : 'no';
  return reason(mark, text, { object, field, source, change, since });
}

/** What a difference is about, in the words of the catalogue, and what explains it. */
export const itemReason = (item: PendingDifference): Reason => sameReason([item, []]);

const fewSides = 3;

/** Differences of one code, object and cause as one reason; the first speaks for the others. */
function sameReason([first, others]: readonly [
  PendingDifference,
  readonly PendingDifference[],
]): Reason {
  const { difference, output, cause, openedAt, proven } = first;
  const { code, object, field } = difference;
  const { title, meaning, remedy, upstream } = catalogue[code];
  const all = [first, ...others];
  const parts = [reason('note', meaning), ...all.slice(0, fewSides).flatMap(sides)];
  const more = all.length - fewSides;
  if (more > 0) parts.push(reason('note', `and ${String(more)} more of the same kind`));
  if (cause !== null) {
    const known = proven ? 'cause' : 'likely cause, as the state looks';
    const text = `${known}: ${causes[cause].title} (${cause})`;
    parts.push(reason('note', text, { source: causes[cause].upstream }));
  }
  const hope = output === 'input' ? 'too new to be a finding' : 'it may be on its way';
  const pending = openedAt === null ? `, pending: ${hope}` : '';
  return reason('no', `${title} (${code}${pending})`, {
    object,
    field,
    source: upstream,
    change: `${object}: ${cause === null ? remedy : causes[cause].cure}`,
    since: all.reduce((least, { since }) => Math.min(least, since), first.since),
    parts,
  });
}

/** What was expected, where something was, and what is there. */
function sides({ difference: { expected, actual } }: PendingDifference): Reason[] {
  const found = reason('note', `found: ${actual ?? 'nothing'}`);
  return expected === null ? [found] : [reason('note', `expected: ${expected}`), found];
}

/** The same in one clause, with the cause where one is known. */
export function itemText({ difference, cause }: PendingDifference): string {
  const { code, expected, actual } = difference;
  const got = actual ?? `missing is ${expected ?? 'all of it'}`;
  const why = cause === null ? '' : `. Cause: ${causes[cause].title}`;
  return `${catalogue[code].title}: ${got}${why}`;
}

const few = 5;

/** Differences worst first, those alike as one. */
export function itemReasons(items: readonly PendingDifference[]): Reason[] {
  const groups = new Map<string, [PendingDifference, PendingDifference[]]>();
  for (const item of inOrder(items)) {
    const { code, object } = item.difference;
    const key = `${code} ${String(item.cause)} ${String(item.openedAt === null)} ${object}`;
    const there = groups.get(key);
    if (there === undefined) groups.set(key, [item, []]);
    else there[1].push(item);
  }
  const reasons = [...groups.values()].slice(0, few).map(sameReason);
  const more = groups.size - few;
  if (more > 0) reasons.push(reason('note', `and ${counted(more, 'more kind')} of difference`));
  return reasons;
}

/** Worst first. */
export const inOrder = (items: readonly PendingDifference[]): PendingDifference[] =>
  [...items].sort(
    (a, b) =>
      Number(isWorse(b.severity, a.severity)) - Number(isWorse(a.severity, b.severity)) ||
      a.since - b.since,
  );

/** The worst severity of what has stood long enough to be a finding; null: nothing has. */
export function worstOf(items: readonly PendingDifference[]): Severity | null {
  return inOrder(items.filter(({ openedAt }) => openedAt !== null))[0]?.severity ?? null;
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

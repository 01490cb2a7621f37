// Contains an explanation and its reasons: a tree of marked sentences, each with the object and
// field that decide it, the upstream code that reads them, and the smallest change that helps.

import type { Key, ServicePort } from '../../model/objects.ts';
import { severities, type Severity } from '../finding/catalogue.ts';
import type { Verdict } from '../finding/verdicts.ts';
import type { ObjectChange } from '../service/object-changes.ts';

/** The object of an explanation; a null port means all ports. */
export type ExplainTarget = Readonly<
  | { kind: 'service'; service: Key }
  | { kind: 'pod'; pod: Key }
  | { kind: 'pair'; pod: Key; service: Key }
  | { kind: 'address'; address: string }
  /** A null port means all ports. */
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
  readonly answer: string;
  readonly change: string | null;
  readonly reasons: readonly Reason[];
}

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
  readonly change: string | null;
  /** Unix seconds on the input's clock; null if unknown. */
  readonly since: number | null;
  /** The change of an object that the text describes. */
  readonly changed: ObjectChange | null;
  readonly parts: readonly Reason[];
}

const bare = { object: null, field: null, source: null, change: null, since: null, parts: [] };

export function reason(mark: ReasonMark, text: string, rest: Partial<Reason> = {}): Reason {
  return { mark, text, ...bare, changed: null, ...rest };
}

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

export const firstChange = (reasons: readonly Reason[]): string | null =>
  reasons.find(({ change }) => change !== null)?.change ?? null;

export const markOf = (verdict: Verdict): ReasonMark =>
  verdict === 'conform' ? 'yes' : verdict === 'unknown' ? 'unknown' : 'no';

const worstFirst: readonly Verdict[] = ['different', 'unknown', 'pending', 'conform'];

/** The worst verdict; null without any. */
export const worstVerdict = (verdicts: readonly Verdict[]): Verdict | null =>
  worstFirst.find((verdict) => verdicts.includes(verdict)) ?? null;

export const worstSeverity = (found: readonly (Severity | null)[]): Severity | null =>
  severities.find((severity) => found.includes(severity)) ?? null;

/** `1 pod`, `2 pods`. */
export const counted = (count: number, noun: string, plural = `${noun}s`): string =>
  `${count} ${count === 1 ? noun : plural}`;

/** The first few names: `a, b, c and 4 more`. */
export function fewOf(names: readonly string[], few = 3): string {
  const rest = names.length - few;
  const first = names.slice(0, few).join(', ');
  return rest > 0 ? `${first} and ${rest} more` : first;
}

export const servicePortText = ({ name, port, protocol }: ServicePort): string =>
  `${name === '' ? '' : `${name} `}${port}/${protocol}`;

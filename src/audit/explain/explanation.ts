// Contains an explanation and its reasons: a tree of marked sentences, each with the object and
// field that decide it, the upstream code that reads them, and the smallest change that helps.

import { getOrInsert } from '../../model/collections.ts';
import type { Key, ServicePort } from '../../model/objects.ts';
import type { DifferenceDetail, Severity } from '../finding/catalogue.ts';
import { type Verdict, worstSeverity, worstVerdict } from '../finding/verdicts.ts';
import type { ObjectChange } from '../service/object-changes.ts';
import type { UnservedReason } from '../service/unserved.ts';

/** The object of an explanation; a null port means all ports. */
export type ExplainTarget = Readonly<
  | { kind: 'service'; service: Key }
  | { kind: 'pod'; pod: Key }
  | { kind: 'pair'; pod: Key; service: Key }
  | { kind: 'address'; address: string }
  /** Without a Service, the node as a whole; a null port means all ports. */
  | { kind: 'node'; node: string; service: Key | null; port: string | null }
>;

export interface Explanation {
  readonly subject: ExplainTarget;
  /** Whether the target exists, or another object refers to it. */
  readonly found: boolean;
  /** The worst verdict on the outputs concerned; null if there is no output to compare. */
  readonly verdict: Verdict | null;
  /** The worst severity of the findings concerned; null if there is none. */
  readonly severity: Severity | null;
  /** Why the Service cannot receive traffic; null if it can, or for another target. */
  readonly withoutEndpoints: UnservedReason | null;
  readonly answer: string;
  /** Each change, command and hint is in an explanation once: here, or in the first reason. */
  readonly change: string | null;
  /** Shell commands that do it; empty if there is none. */
  readonly commands: readonly string[];
  /** What to do on a managed control plane; null if the same. */
  readonly managed: string | null;
  readonly reasons: readonly Reason[];
}

/** Without a reason, another target than a Service is explained. */
export type ExplainResult = Omit<
  Explanation,
  'subject' | 'withoutEndpoints' | 'commands' | 'managed'
> &
  Partial<Pick<Explanation, 'withoutEndpoints'>>;

export type ExplanationBody = Omit<ExplainResult, 'found'>;

/** The result for an object that neither exists nor is mentioned by another one. */
export const notFound = (answer: string, reasons: readonly Reason[] = []): ExplainResult => ({
  found: false,
  verdict: null,
  severity: null,
  answer,
  change: null,
  reasons,
});

/** The worst verdict and severity; each is null without any. */
export const worstOf = (
  results: readonly Readonly<Pick<Explanation, 'verdict' | 'severity'>>[],
) => ({
  verdict: worstVerdict(results.flatMap(({ verdict }) => verdict ?? [])),
  severity: worstSeverity(results.map(({ severity }) => severity)),
});

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
  readonly commands: readonly string[];
  readonly managed: string | null;
  /** What differs, field by field. */
  readonly differences: readonly DifferenceDetail[];
  /** Unix seconds on the input's clock; null if unknown. */
  readonly since: number | null;
  /** The change of an object that the text describes. */
  readonly changed: ObjectChange | null;
  readonly parts: readonly Reason[];
}

const origin = { object: null, field: null, source: null };
const remedy = { change: null, commands: [], managed: null };
const bare = { ...origin, ...remedy, differences: [], since: null, changed: null, parts: [] };

export function reason(mark: ReasonMark, text: string, rest: Partial<Reason> = {}): Reason {
  return { mark, text, ...bare, ...rest };
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

interface FoundRemedy {
  readonly commands: Set<string>;
  managed: string | null;
}

const newRemedy = (): FoundRemedy => ({ commands: new Set(), managed: null });

/** By its text, what all reasons say about a change. */
function gatherRemedies(reasons: readonly Reason[], found = new Map<string, FoundRemedy>()) {
  for (const { change, commands, managed, parts } of reasons) {
    if (change !== null) {
      const known = getOrInsert(found, change, newRemedy);
      for (const command of commands) known.commands.add(command);
      known.managed ??= managed;
    }
    gatherRemedies(parts, found);
  }
  return found;
}

/**
 * The explanation with each change where it comes first, with the commands of all reasons for it,
 * and with each command once. `first` are commands that come before those of the answer.
 */
export function withRemediesOnce(
  explanation: Omit<Explanation, 'commands' | 'managed'>,
  first: readonly string[] = [],
): Explanation {
  const found = gatherRemedies(explanation.reasons);
  const printed = new Set<string>();
  const isNew = (text: string): boolean => !printed.has(text) && printed.add(text).has(text);
  const take = (change: string | null) => {
    if (change === null || !isNew(change)) return { change: null, commands: [], managed: null };
    const { commands = [], managed = null } = found.get(change) ?? {};
    const hint = managed !== null && isNew(managed) ? managed : null;
    return { change, commands: [...commands].filter(isNew), managed: hint };
  };
  const takeAll = (reasons: readonly Reason[]): Reason[] =>
    reasons.map((it) => ({ ...it, ...take(it.change), parts: takeAll(it.parts) }));
  for (const command of first) printed.add(command);
  const { commands, ...rest } = take(explanation.change);
  const answered = { ...explanation, ...rest, commands: [...first, ...commands] };
  return { ...answered, reasons: takeAll(explanation.reasons) };
}

export const firstChange = (reasons: readonly Reason[]): string | null =>
  reasons.find(({ change }) => change !== null)?.change ?? null;

export const markOf = (verdict: Verdict): ReasonMark =>
  verdict === 'conform' ? 'yes' : verdict === 'unknown' ? 'unknown' : 'no';

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

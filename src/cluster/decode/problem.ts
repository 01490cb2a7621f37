// What can be wrong with the input. A door never throws for content: what it cannot read becomes
// a Problem, for people, and says what of the cluster's state is Lost by it, for the audit, which
// must then call the verdicts that depend on it unknown.
//
// Messages are fixed texts, and everything that varies stands in the other fields, so problems can
// be counted by message. A file of garbage must not flood a log: a door reports the first few
// problems of each message and counts all of them.

import { getSystemErrorMap } from 'node:util';

import type { UnreadableObject, Resource } from '../../model/objects.ts';

export interface Problem {
  /** A path, or `stdin`. */
  readonly source: string;
  readonly line: number | null;
  /** The object as people name it: `Pod shop/web-1`. */
  readonly object: string | null;
  /** The field's path: `status.podIPs[1].ip`. */
  readonly field: string | null;
  /** What is there instead, as valueText writes it; null: nothing is. */
  readonly value: string | null;
  /** A fixed sentence without full stop: `Expected a list`. */
  readonly message: string;
  readonly lost: UnreadableObject | null;
}

export type OnProblem = (problem: Problem) => void;

const valueLimit = 80;

// Input must not forge lines or move a terminal's cursor.
// eslint-disable-next-line no-control-regex -- control characters are what it looks for
const unprintable = /[\u0000-\u001f\u007f-\u009f\u2028\u2029]/g;

/** A value as JSON, cut to 80 characters; null for a value that is absent. */
export function valueText(value: unknown): string | null {
  if (value === undefined) return null;
  // Only the beginning of a long string will be seen.
  const short = typeof value === 'string' ? value.slice(0, valueLimit) : value;
  let text = '(too deep to show)';
  try {
    text = JSON.stringify(short);
  } catch {
    // nested more deeply than JSON.stringify goes
  }
  return text.length > valueLimit ? `${text.slice(0, valueLimit - 1)}…` : text;
}

/** One line for people: `dump.json:12: Pod shop/web-1: status.podIPs: Expected a list: "x"`. */
export function problemText(problem: Problem): string {
  const { source, line, object, field, message, value } = problem;
  const place = line === null ? source : `${source}:${line}`;
  const parts = [place, object, field, message, value].filter((part) => part !== null);
  return parts.join(': ').replace(unprintable, '\uFFFD');
}

/**
 * What the operating system refused, for people: `dump.json: Cannot read: no such file or
 * directory`; null for errors of any other kind.
 */
export function systemErrorText(error: unknown): string | null {
  if (!isSystemError(error)) return null;
  const parts = [error.path, 'Cannot read', systemReason(error)];
  return parts.filter((part) => part !== undefined).join(': ');
}

/** The reason alone: `permission denied`. */
export function systemReason({ errno, code, message }: NodeJS.ErrnoException): string {
  const known = errno === undefined ? undefined : getSystemErrorMap().get(errno);
  return known?.[1] ?? code ?? message;
}

export function isSystemError(error: unknown): error is NodeJS.ErrnoException {
  return error instanceof Error && 'syscall' in error;
}

/** A problem of one source, with nothing but a message unless more is said. */
export function problemAt(
  source: string,
  line: number | null,
  message: string,
  more: Partial<Problem> = {},
): Problem {
  return { source, line, object: null, field: null, value: null, message, lost: null, ...more };
}

export interface BoundedProblems {
  readonly report: OnProblem;
  /** How many problems there were of each message, passed on or not. */
  readonly counts: ReadonlyMap<string, number>;
}

/** Passes on the first `limit` problems of each message, and counts all of them. */
export function boundedProblems(onProblem: OnProblem, limit = 20): BoundedProblems {
  const counts = new Map<string, number>();
  const report: OnProblem = (problem) => {
    const count = (counts.get(problem.message) ?? 0) + 1;
    counts.set(problem.message, count);
    if (count <= limit) onProblem(problem);
    else if (count === limit + 1) {
      onProblem({ ...problem, message: `${problem.message}, like more that are only counted` });
    }
  };
  return { report, counts };
}

const wordLimit = 1000;

/** Counts a word of the input; words beyond the first thousand distinct ones count as `…`. */
export function countWord(counts: Map<string, number>, word: string): void {
  const short = word.slice(0, valueLimit);
  const counted = counts.has(short) || counts.size < wordLimit ? short : '…';
  counts.set(counted, (counts.get(counted) ?? 0) + 1);
}
/** What is lost by an object of this resource that cannot be parsed, as its beginning tells. */

export function guessLost(resource: Resource, text: string): UnreadableObject {
  const [, name, namespace] = identityForm.exec(text) ?? [];
  const certain = name !== undefined && (resource === 'nodes') === (namespace === undefined);
  return {
    resource,
    namespace: certain ? (namespace ?? '') : null,
    name: certain ? name : null,
    labels: null,
  };
}
const identityForm =
  /"metadata":\{"name":"([^"\\]+)"(?:,"generateName":"[^"\\]*")?(?:,"namespace":"([^"\\]+)")?/;

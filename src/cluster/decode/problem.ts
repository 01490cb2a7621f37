// Problems of the input. A reader never throws for content: it reports a Problem, for people, whose
// `lost` names the objects that it could not read, for the audit. A message is a fixed text, so
// that problems can be counted by message; the other fields contain what varies.

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
  /** The value, as valueText writes it; null if the field is absent. */
  readonly value: string | null;
  /** A fixed sentence without full stop: `Expected a list`. */
  readonly message: string;
  readonly lost: UnreadableObject | null;
}

export type OnProblem = (problem: Problem) => void;

const valueLimit = 80;

const unprintable = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu;

/** One line. Input must not add lines, move the cursor of a terminal, or reorder what it shows. */
const printable = (text: string): string => text.replace(unprintable, '\uFFFD');

/** A value as JSON, cut to 80 characters; null for a value that is absent. */
export function valueText(value: unknown): string | null {
  if (value === undefined) return null;
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
  return printable(parts.join(': '));
}

/** `dump.json: Cannot read: no such file or directory`; null: no error of the operating system. */
export function systemErrorText(error: unknown): string | null {
  if (!isSystemError(error)) return null;
  const parts = [error.path, 'Cannot read', systemReason(error)];
  return parts.filter((part) => part !== undefined).join(': ');
}

/** Such as `permission denied`. */
export function systemReason({ errno, code, message }: NodeJS.ErrnoException): string {
  const known = errno === undefined ? undefined : getSystemErrorMap().get(errno);
  return known?.[1] ?? code ?? message;
}

export const isSystemError = (error: unknown): error is NodeJS.ErrnoException =>
  error instanceof Error && 'syscall' in error;

/** A problem of one source. */
export function problemAt(
  source: string,
  line: number | null,
  message: string,
  details: Partial<Problem> = {},
): Problem {
  return { source, line, object: null, field: null, value: null, message, lost: null, ...details };
}

/** Passes on the first `limit` problems of each message. */
export function boundedProblems(onProblem: OnProblem, limit = 20): OnProblem {
  const counts = new Map<string, number>();
  return (problem) => {
    const count = (counts.get(problem.message) ?? 0) + 1;
    counts.set(problem.message, count);
    if (count <= limit) onProblem(problem);
    else if (count === limit + 1) {
      onProblem({ ...problem, message: `${problem.message}, like more that are only counted` });
    }
  };
}

/** Words beyond the first thousand distinct ones count as `…`. */
export function countWord(counts: Map<string, number>, word: string): void {
  const short = word.slice(0, valueLimit);
  const counted = counts.has(short) || counts.size < 1000 ? short : '…';
  counts.set(counted, (counts.get(counted) ?? 0) + 1);
}

/** The unreadable object of this resource, as far as the beginning of its JSON names it. */
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

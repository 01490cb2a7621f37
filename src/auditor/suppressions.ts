// The suppressions of a file and of the annotations of Services. It reports those that are not
// valid, that expire within 7 days, and that have expired, each once.

import type { Suppressed } from '../audit/finding/catalogue.ts';
import {
  concernsFinding,
  isFault,
  nextStateAt,
  readAnnotation,
  stateAt,
  type Suppression,
  type SuppressionState,
  type SuppressionTarget,
} from '../audit/finding/suppressions.ts';
import {
  boundedProblems,
  type OnProblem,
  type Problem,
  problemAt,
  valueText,
} from '../cluster/decode/problem.ts';
import type { Change, Key, Service } from '../model/objects.ts';
import { annotation } from '../model/objects.ts';
import { isInNamespaces, isServiceInScope, type Scope } from '../model/scope.ts';

export interface SuppressionOptions {
  /** Of the file that the user names. */
  readonly suppressions: readonly Suppression[];
  /** The present time, Unix seconds: also for a recording, since people agreed on a date. */
  readonly today: () => number;
  readonly onProblem: OnProblem;
  /** Annotations of Services outside it count. Another shard reports what is wrong with them. */
  readonly scope: Scope;
}

export const noSuppressions = { suppressions: [], today: () => 0 } as const;

const messages: Readonly<Record<SuppressionState, string | null>> = {
  active: null,
  expiring: 'The suppression expires within 7 days',
  expired: 'The suppression has expired, so its findings count again',
};

export function createSuppressions({ suppressions, today, onProblem, scope }: SuppressionOptions) {
  const bounded = boundedProblems(onProblem);
  const annotated = new Map<Key, readonly Suppression[]>();
  const reported = new Map<Suppression, SuppressionState>();
  const byCode = Map.groupBy(suppressions, ({ code }) => code);
  let reviewAt = -Infinity;
  let revision = 0;
  /** Reports the suppressions whose state has changed. */
  const review = (now: number): number => {
    if (now < reviewAt) return revision;
    reviewAt = Infinity;
    for (const it of [...suppressions, ...[...annotated.values()].flat()]) {
      const state = stateAt(it, now);
      reviewAt = Math.min(reviewAt, nextStateAt(it, now));
      if (reported.get(it) === state) continue;
      reported.set(it, state);
      revision++;
      const message = messages[state];
      if (message !== null && isReported(it, scope)) onProblem(expiryProblem(it, message));
    }
    return revision;
  };
  const forget = (key: Key): void => {
    for (const it of annotated.get(key) ?? []) reported.delete(it);
    annotated.delete(key);
  };
  /** Also those that have expired. */
  const matching = (target: SuppressionTarget): readonly Suppression[] =>
    [
      ...(byCode.get(target.code) ?? []),
      ...(annotated.get(`${target.namespace}/${target.service}`) ?? []),
    ].filter((it) => concernsFinding(it, target));
  return {
    /** Reads the annotation of a Service that has changed. */
    apply({ before, after }: Change<'services'>): void {
      const text = after?.suppress ?? '';
      if (text === (before?.suppress ?? '')) return;
      forget((after ?? before)?.key ?? '');
      revision++;
      if (after === null || text === '') return;
      const found = annotatedOn(after, scope, onProblem);
      if (found.length > 0) annotated.set(after.key, found);
      reviewAt = -Infinity;
    },
    /** How a finding is suppressed now; `null` if it is not. */
    suppressedBy(finding: SuppressionTarget): Suppressed | null {
      if (suppressions.length === 0 && annotated.size === 0) return null;
      const now = today();
      review(now);
      const it = matching(finding).find((found) => stateAt(found, now) !== 'expired');
      if (it === undefined) return null;
      const { owner, reason, expires, source } = it;
      return { owner, reason, expires, source };
    },
    /** Whether a suppression has this code. */
    hasCode: (code: Suppression['code']): boolean =>
      byCode.has(code) || [...annotated.values()].flat().some((it) => it.code === code),
    /** Reports the suppressions that match none of all findings of a scope. */
    reportUnused(findings: readonly SuppressionTarget[], scope: Scope): void {
      const all = [...suppressions, ...[...annotated.values()].flat()];
      const unused = all.filter((it) => isUnused(it, findings, scope));
      for (const it of unused) bounded(unusedProblem(it));
    },
    /** Whether a suppression is about the finding, also one that has expired. */
    names: (finding: SuppressionTarget): boolean => matching(finding).length > 0,
    /** Reports what is due. The result changes when other findings may be suppressed. */
    review: (): number => review(today()),
  };
}

/** The suppressions of an annotation; its faults are reported. */
function annotatedOn(service: Service, scope: Scope, onProblem: OnProblem): Suppression[] {
  const { suppress, namespace, name } = service;
  return readAnnotation(suppress, namespace, name).flatMap((it) => {
    if (!isFault(it)) return it;
    const isOwn = isServiceInScope(scope, namespace, name);
    if (isOwn) onProblem(annotationProblem(service, it.field, it.message, it.value));
    return [];
  });
}

/** An annotation is reported by the shard of its Service, a rule of the file by all. */
const isReported = (it: Suppression, scope: Scope): boolean =>
  !isAnnotated(it) || isServiceInScope(scope, it.namespace, it.service);

function annotationProblem(
  service: Service,
  field: string | null,
  message: string,
  value: unknown,
): Problem {
  const place = `metadata.annotations[${annotation.suppress}]`;
  return problemAt('Suppression', null, message, {
    object: `Service ${service.key}`,
    field: field === null ? place : `${place} ${field}`,
    value: valueText(value),
  });
}

/** Whether it is about none of the findings, though its namespace was audited. */
const isUnused = (it: Suppression, findings: readonly SuppressionTarget[], scope: Scope): boolean =>
  (it.namespace === '*' || isInNamespaces(scope, it.namespace)) &&
  !findings.some((finding) => concernsFinding(it, finding));

const unusedProblem = (it: Suppression): Problem =>
  problemOf(it, null, 'The suppression matches no finding', isAnnotated(it) ? it.code : null);

const isAnnotated = ({ source }: Suppression): boolean => source.startsWith('Service ');

/** Path and line of `accepted.yaml:3`. */
function placeOf(source: string): readonly [string, number | null] {
  const [, path = source, line = null] = /^(.*):(\d+)$/s.exec(source) ?? [];
  return [path, line === null ? null : Number(line)];
}

const expiryProblem = (it: Suppression, message: string): Problem =>
  problemOf(it, 'expires', message, it.expires);

/** A problem at the line of the file, or with the annotation. */
function problemOf(
  it: Suppression,
  field: string | null,
  message: string,
  text: string | null,
): Problem {
  const value = text === null ? null : valueText(text);
  if (isAnnotated(it)) {
    const place = [`metadata.annotations[${annotation.suppress}]`, field ?? []].flat().join(' ');
    return problemAt('Suppression', null, message, { object: it.source, field: place, value });
  }
  return problemAt(...placeOf(it.source), message, { field, value });
}

// What proved the kind of an incident when it opened, as lines for people.

import { catalogue, type Finding } from '../finding/catalogue.ts';
import { causes } from '../finding/causes.ts';
import type { IncidentChange } from './field-managers.ts';
import { objectName } from '../service/object-changes.ts';
import { serviceOutputs } from '../service/verdict.ts';
import type { Claim, Evidence } from './classify.ts';

export interface EvidenceLine {
  readonly text: string;
  /** Unix seconds on the clock of the input; `null` if it is about no moment. */
  readonly at: number | null;
}

const counted = (count: number, what: string): string =>
  `${String(count)} ${what}${count === 1 ? '' : 's'}`;

/** `Node b: metadata.labels topology.kubernetes.io/zone changed from z2 to z3 by kubectl-label`. */
export function changeText(change: IncidentChange): string {
  return textOf(change) + (change.manager === null ? '' : ` by ${change.manager}`);
}

function textOf(change: IncidentChange): string {
  const { field, from, to } = change;
  const object = objectName(change);
  const isWhole = field === 'metadata.uid';
  if (from === null) return isWhole ? `${object} was created` : `${object}: ${field} set to ${to}`;
  if (to === null) return isWhole ? `${object} was deleted` : `${object}: ${field} was removed`;
  return `${object}: ${field} changed from ${from} to ${to}`;
}

/** The controllers for which Services wait: since when, their last write, and its lag. */
function controllerLines({ controllers }: Evidence): EvidenceLine[] {
  return serviceOutputs.flatMap((output): EvidenceLine[] => {
    const { waiting, since, wroteAt, writes, lag } = controllers[output];
    if (waiting === 0) return [];
    const controller = `the ${output} controller`;
    const late = lag === null ? '' : `, with a median lag of ${lag.toFixed(1)} s`;
    return [
      { text: `${counted(waiting, 'Service')} wait for ${controller}, the first since`, at: since },
      wroteAt === null
        ? { text: `${controller} has written nothing since the auditor began`, at: null }
        : { text: `the last write of ${controller}`, at: wroteAt },
      { text: `${counted(writes, 'write')} of ${controller} in the last minute${late}`, at: null },
    ];
  });
}

/** The evidence of a claim about a finding. */
export function evidenceLines(
  { kind }: Claim,
  finding: Pick<Finding, 'code' | 'cause' | 'causeProven' | 'since'>,
  evidence: Evidence,
): readonly EvidenceLine[] {
  const { code, cause, causeProven, since } = finding;
  const found: EvidenceLine = { text: catalogue[code].title, at: since };
  if (kind.startsWith('controller-')) return controllerLines(evidence);
  if (cause === null) return [found];
  const why = `${causeProven ? 'cause' : 'likely cause'}: ${causes[cause].title}`;
  return [found, { text: why, at: null }];
}

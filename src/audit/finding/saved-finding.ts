// The forms of findings that a checkpoint of a recording has, which may contain anything.

import {
  type Form,
  hasForms,
  isFlag,
  isListOf,
  isNumber,
  isOneOf,
  isText,
  orNull,
  recordOf,
} from '../../model/collections.ts';
import { catalogue, type Code, type Finding, severities } from './catalogue.ts';
import { type Cause, causes } from './causes.ts';

export const isCode = isOneOf(Object.keys(catalogue) as Code[]);
export const isCause = orNull(isOneOf(Object.keys(causes) as Cause[]));
export const isSeverity = isOneOf(severities);
export const isOutput = isOneOf(['endpoints', 'endpointslices', 'mirrored', 'node', 'input']);

const shown = { object: isText, field: isText, expected: orNull(isText), actual: orNull(isText) };

const place = { code: isCode, address: orNull(isText), pod: orNull(isText) };

/** The fields of a finding without what its differences show. */
export const findingHead = {
  code: isCode,
  severity: isSeverity,
  output: isOutput,
  namespace: isText,
  service: isText,
  node: orNull(isText),
  cause: isCause,
  causeProven: isFlag,
  since: isNumber,
  openedAt: isNumber,
  suppressed: orNull(hasForms({ owner: isText, reason: isText, expires: isText, source: isText })),
};

export type FindingHead = Pick<Finding, keyof typeof findingHead>;

const headNames = Object.keys(findingHead) as (keyof FindingHead)[];

export const headOf = (finding: FindingHead): FindingHead =>
  recordOf(headNames, (name) => finding[name]) as FindingHead;

const findingForms = {
  ...findingHead,
  ...shown,
  difference: isOneOf(['missing', 'unexpected', 'different']),
  differences: isListOf(hasForms({ ...place, ...shown })),
};

/** Whether a value is a finding, and whether it is a resolved one. */
export const isFinding = hasForms({ ...findingForms, resolvedAt: orNull(isNumber) });
export const isResolvedFinding: Form<Finding> = hasForms({ ...findingForms, resolvedAt: isNumber });

/** Whether a value is a difference with all that a finding shows of it. */
export const isDifference = hasForms({
  ...place,
  ...shown,
  subject: isText,
  fields: orNull(isListOf(isListOf(orNull(isText)))),
});

// Label selectors as kubectl's --selector takes them: `app=web,tier!=front,env in (a,b),!legacy`.
// It follows k8s.io/apimachinery@v0.36.3 pkg/labels/selector.go (Parse, Requirement.Matches).

import type { Labels } from './objects.ts';

type Operator = 'exists' | 'absent' | 'in' | 'notin' | 'gt' | 'lt';

interface Requirement {
  readonly key: string;
  readonly operator: Operator;
  readonly values: readonly string[];
}

export interface LabelSelector {
  /** As the user wrote it. */
  readonly text: string;
  /** All must hold; at least one. */
  readonly requirements: readonly Requirement[];
}

const name = '[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?';
const validKey = new RegExp(`^(?:[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?/)?${name}$`);
const validValue = new RegExp(`^(?:${name})?$`);

const signs: Readonly<Record<string, Operator>> = {
  '=': 'in',
  '==': 'in',
  '!=': 'notin',
  '>': 'gt',
  '<': 'lt',
};

/** The parts between commas that are in no parentheses. */
const splitParts = (text: string): string[] =>
  text.split(/,(?![^(]*\))/).map((part) => part.trim());

function readPart(part: string): Requirement | null {
  const [, not, only] = /^(!?)\s*([^\s=!<>()]+)$/.exec(part) ?? [];
  if (only !== undefined) {
    return { key: only, operator: not === '' ? 'exists' : 'absent', values: [] };
  }
  const [, key, word, list] = /^([^\s=!<>()]+)\s+(in|notin)\s*\(([^()]*)\)$/.exec(part) ?? [];
  if (key !== undefined && list !== undefined) {
    const values = list.split(',').map((value) => value.trim());
    return { key, operator: word === 'in' ? 'in' : 'notin', values };
  }
  const [, left, sign = '', right] =
    /^([^\s=!<>()]+)\s*(==?|!=|>|<)\s*([^\s=!<>()]*)$/.exec(part) ?? [];
  const operator = signs[sign];
  if (left === undefined || operator === undefined) return null;
  return { key: left, operator, values: [right ?? ''] };
}

/** Why a requirement is wrong; null if it is right. */
function faultOf({ key, operator, values }: Requirement): string | null {
  if (!validKey.test(key)) return `${JSON.stringify(key)} is not the key of a label`;
  const isOrder = operator === 'gt' || operator === 'lt';
  const wrong = values.find((value) => !(isOrder ? /^-?\d+$/ : validValue).test(value));
  if (wrong === undefined) return null;
  const kind = isOrder ? 'a whole number' : 'the value of a label';
  return `${JSON.stringify(wrong)} is not ${kind}`;
}

/** Throws an Error with the reason if the text is no selector. */
export function parseLabelSelector(text: string): LabelSelector {
  if (text.trim() === '') throw new Error('the selector is empty');
  const requirements = splitParts(text).map((part) => {
    const found = readPart(part);
    if (found === null) throw new Error(`${JSON.stringify(part)} is not a requirement`);
    const fault = faultOf(found);
    if (fault !== null) throw new Error(fault);
    return found;
  });
  return { text, requirements };
}

const whole = /^[+-]?\d+$/;

function holds({ key, operator, values }: Requirement, labels: Labels): boolean {
  const value = Object.hasOwn(labels, key) ? labels[key] : undefined;
  if (operator === 'exists') return value !== undefined;
  if (operator === 'absent') return value === undefined;
  // An object without the label matches: the API server reads != and notin in this way.
  if (operator === 'notin') return value === undefined || !values.includes(value);
  if (value === undefined) return false;
  if (operator === 'in') return values.includes(value);
  if (!whole.test(value)) return false;
  const [found, limit] = [BigInt(value.replace('+', '')), BigInt(values[0] ?? '0')];
  return operator === 'gt' ? found > limit : found < limit;
}

/** Whether labels meet every requirement. */
export const matchesLabels = ({ requirements }: LabelSelector, labels: Labels): boolean =>
  requirements.every((requirement) => holds(requirement, labels));

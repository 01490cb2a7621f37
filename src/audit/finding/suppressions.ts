// Suppressions: findings, or Services without usable endpoints, that are accepted until a date. A
// file or an annotation of a Service names their code and place, an owner, a reason and the date. A
// suppressed finding stays in every list, and does not fail the gate of CI or fire an alert.

import { editDistance } from '../../model/edit-distance.ts';
import { mostSuppressText } from '../../model/objects.ts';
import { catalogue, type Code, type Finding, type Suppressed } from './catalogue.ts';

/** The word for Services without usable endpoints, which are no findings. */
export const unservedWord = 'unserved';

export interface Suppression extends Suppressed {
  readonly code: Code | typeof unservedWord;
  /** Exact names; `*` for any. */
  readonly namespace: string;
  readonly service: string;
  readonly node: string;
  /** Unix seconds: the end of its time. */
  readonly until: number;
}

/** Why a suppression is not used. */
export interface SuppressionFault {
  /** `null` if the message names it. */
  readonly field: string | null;
  /** A sentence without a full stop. */
  readonly message: string;
  readonly value: unknown;
}

type Fields = Readonly<Record<string, unknown>>;

/** The longest text of a field, and the most suppressions of one annotation. */
const mostText = 500;
const mostEntries = 20;

const dateForm = /^\d{4}-\d\d-\d\d(T\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d))?$/;

/** The end of a date of RFC 3339, Unix seconds, UTC; `null` if the text is none. */
function endOf(text: string): number | null {
  const [, time] = dateForm.exec(text) ?? [null];
  if (time === null) return null;
  const start = Date.parse(time === undefined ? `${text}T00:00:00Z` : text) / 1000;
  const day = new Date(`${text.slice(0, 10)}T00:00:00Z`);
  // Date.parse takes February 30.
  if (Number.isNaN(start) || day.getUTCDate() !== Number(text.slice(8, 10))) return null;
  return time === undefined ? start + 86_400 : start;
}

const codes = [...Object.keys(catalogue), unservedWord];

const isCode = (text: string): boolean => codes.includes(text);

const known = ['code', 'namespace', 'service', 'node', 'owner', 'reason', 'expires'];
const required = ['code', 'owner', 'reason', 'expires'];

const fault = (field: string | null, message: string, value: unknown): SuppressionFault => ({
  field,
  message,
  value,
});

/** The most letters in which a mistyped code differs. */
const nearDistance = 4;

/** `Unknown code "slice-duplicated"; did you mean slice-duplicate?` */
export function unknownCodeText(text: string): string {
  const cut = text.slice(0, 80);
  const near = codes
    .map((code) => ({ code, distance: editDistance(cut, code) }))
    .sort((a, b) => a.distance - b.distance)[0];
  const hint =
    near === undefined || near.distance > nearDistance ? '' : `; did you mean ${near.code}?`;
  return `Unknown code ${JSON.stringify(cut)}${hint}`;
}

function faultOf(fields: Fields): SuppressionFault | null {
  const unknown = Object.keys(fields).find((name) => !known.includes(name));
  if (unknown !== undefined) return fault(unknown, 'Unknown field', fields[unknown]);
  for (const name of known) {
    const value = fields[name];
    if (value === undefined && !required.includes(name)) continue;
    if (value === undefined) return fault(null, `${name} is missing`, value);
    if (typeof value !== 'string' || value.trim() === '') {
      return fault(name, 'Expected a text', value);
    }
    if (value.length > mostText) return fault(name, `Is longer than ${mostText} characters`, value);
  }
  const { code, expires } = fields as Record<string, string>;
  if (!isCode(code ?? '')) return fault(null, unknownCodeText(code ?? ''), undefined);
  if (endOf(expires ?? '') === null) {
    return fault('expires', 'Expected a date such as 2026-12-31', expires);
  }
  return null;
}

/** The suppression of some fields, or why they are none. */
export function readSuppression(fields: Fields, source: string): Suppression | SuppressionFault {
  const wrong = faultOf(fields);
  if (wrong !== null) return wrong;
  const { code, owner, reason, expires, ...rest } = fields as Record<string, string>;
  const { namespace = '*', service = '*', node = '*' } = rest;
  const texts = { owner: owner ?? '', reason: reason ?? '', expires: expires ?? '' };
  const until = endOf(texts.expires) ?? 0;
  return { code: code as Suppression['code'], namespace, service, node, ...texts, until, source };
}

export const isFault = (it: Suppression | SuppressionFault): it is SuppressionFault =>
  'message' in it;

/**
 * Reads an annotation of a Service: entries of the form `CODE owner=TEXT expires=DATE reason=TEXT`,
 * each on its own line or after `;`. The reason is last and may have blanks.
 */
export function readAnnotation(
  text: string,
  namespace: string,
  service: string,
): (Suppression | SuppressionFault)[] {
  if (text.length > mostSuppressText) {
    return [fault(null, `Is longer than ${mostSuppressText} characters`, text)];
  }
  const entries = text.split(/[;\n]/).flatMap((entry) => entry.trim() || []);
  if (entries.length > mostEntries) {
    return [fault(null, `Has more than ${mostEntries} suppressions`, text)];
  }
  return entries.map((entry) => {
    const [code = '', ...words] = entry.split(/\s+/);
    const reasonAt = words.findIndex((word) => word.startsWith('reason='));
    const heads = reasonAt < 0 ? words : words.slice(0, reasonAt);
    const wrong = heads.find((word) => !/^(?:owner|expires|node)=./.test(word));
    if (wrong !== undefined) return fault(null, 'Expected owner=, expires= or reason=', entry);
    const fields = heads.map((word) => {
      const end = word.indexOf('=');
      return [word.slice(0, end), word.slice(end + 1)] as const;
    });
    const reason =
      reasonAt < 0 ? {} : { reason: words.slice(reasonAt).join(' ').slice('reason='.length) };
    return readSuppression(
      { code, namespace, service, ...Object.fromEntries(fields), ...reason },
      `Service ${namespace}/${service}`,
    );
  });
}

/** A finding, or a Service without usable endpoints. */
export interface SuppressionTarget extends Pick<Finding, 'namespace' | 'service' | 'node'> {
  readonly code: Suppression['code'];
}

const isOf = (pattern: string, name: string): boolean => pattern === '*' || pattern === name;

/** Whether the suppression is about the finding, whatever the time. */
export const concernsFinding = (it: Suppression, finding: SuppressionTarget): boolean =>
  it.code === finding.code &&
  isOf(it.namespace, finding.namespace) &&
  isOf(it.service, finding.service) &&
  isOf(it.node, finding.node ?? '');

/** Seconds before its end in which a suppression is expiring. */
const expiringFor = 7 * 86_400;

export type SuppressionState = 'active' | 'expiring' | 'expired';

export const stateAt = ({ until }: Suppression, now: number): SuppressionState =>
  now >= until ? 'expired' : now >= until - expiringFor ? 'expiring' : 'active';

/** When the state changes next, Unix seconds; Infinity: never. */
export const nextStateAt = ({ until }: Suppression, now: number): number =>
  [until - expiringFor, until].find((moment) => moment > now) ?? Infinity;

/** `until 2026-12-31 by team-shop: reason`. */
export const suppressedText = ({ owner, reason, expires }: Suppressed): string =>
  `until ${expires} by ${owner}: ${reason}`;

export const isUnsuppressed = ({ suppressed }: Pick<Finding, 'suppressed'>): boolean =>
  suppressed === null;

/** Compares findings: suppressed ones are last. */
export const suppressedLast = (
  a: Pick<Finding, 'suppressed'>,
  b: Pick<Finding, 'suppressed'>,
): number => Number(a.suppressed !== null) - Number(b.suppressed !== null);

// Parsers of the values of flags. Each throws an InvalidArgumentError that says what it expects.

import { isIP, isIPv6 } from 'node:net';

import { InvalidArgumentError, type Option } from 'commander';

import type { Moment } from '../../auditor/replay.ts';
import { type LabelSelector, parseLabelSelector } from '../../model/label-selector.ts';
import { parseDateTime } from '../../output/text/date-time.ts';
import { nameOf, releaseOf, releases } from '../../shadow/release.ts';
import { type GateFlags, gateFormats, parseIgnoreRule } from './gate.ts';

/** `read` returns `undefined` for a wrong value. Commander adds flag and value to the message. */
export const parser =
  <T>(expected: string, read: (text: string) => T | undefined) =>
  (text: string): T => {
    const value = read(text);
    if (value === undefined) throw new InvalidArgumentError(`Expected ${expected}.`);
    return value;
  };

const oneOf = <T extends string>(names: readonly T[]) =>
  parser(`one of ${names.join(', ')}`, (text) => names.find((name) => name === text));

export const formats: readonly GateFlags['output'][] = [
  ...(['table', 'wide', 'json', 'yaml'] as const),
  ...gateFormats,
];

export const parseFormat = oneOf(formats);

export const parseOutput = oneOf(['text', 'json']);

const decimal = /^\d+(?:\.\d+)?$/;

const unitSeconds: Readonly<Record<string, number>> = {
  ms: 0.001,
  s: 1,
  m: 60,
  h: 3600,
  d: 86_400,
};

/** Parses `30s`, `1m30s`, `500ms` or plain seconds; in seconds. */
export const parseDuration = parser('a duration such as 30s, 1m30s or 500ms', (text) => {
  if (decimal.test(text)) return Number(text);
  if (!/^(?:\d+(?:\.\d+)?(?:ms|s|m|h|d))+$/.test(text)) return undefined;
  const parts = Array.from(text.matchAll(/([\d.]+)([a-z]+)/g));
  return parts.reduce(
    (sum, [, value, unit]) => sum + Number(value) * (unitSeconds[unit ?? ''] ?? 0),
    0,
  );
});

/** Parses a factor over the recording's own speed; `max` is Infinity. */
export const parseSpeed = parser('a factor above 0, such as 1 or 20, or max', (text) => {
  if (text === 'max') return Infinity;
  return Number(text) > 0 && Number(text) !== Infinity ? Number(text) : undefined;
});

const timeForms = 'Unix seconds, RFC 3339 (2026-11-21T10:56:46Z) or a time of day (10:56)';

/** Parses a moment of a recording. */
export const parseTime = parser(timeForms, (text): Moment | undefined => {
  if (decimal.test(text)) return Number(text);
  const [, hours, minutes, seconds = 0] =
    /^([01]\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?$/.exec(text) ?? [];
  if (hours !== undefined) {
    return { ofDay: Number(hours) * 3600 + Number(minutes) * 60 + Number(seconds) };
  }
  const time = parseDateTime(text);
  return Number.isNaN(time) ? undefined : time;
});

const releaseNames = releases.map(nameOf).join(', ');

export const parseRelease = parser(
  `a release among ${releaseNames}`,
  (text) => releaseOf(text) ?? undefined,
);

export const parseCount = parser('a whole number above 0', (text) =>
  Number.isInteger(Number(text)) && Number(text) >= 1 ? Number(text) : undefined,
);

/** Parsers of several values: of one text with commas, or of a flag that is repeated. */
const listParsers = new Map<unknown, 'commas' | 'repeated'>();

/** How the command line names several values of an option; `null` if it has one. */
export const listForm = ({ parseArg }: Option): 'commas' | 'repeated' | null =>
  listParsers.get(parseArg) ?? null;

/** `emptyName` is how the message names an empty item. */
function parserOfList(what: string, isValid: (item: string) => boolean, emptyName = '""') {
  const parse = (text: string): readonly string[] => {
    const items = text.split(',').map((item) => item.trim());
    const wrong = items.find((item) => !isValid(item));
    if (wrong === undefined) return items;
    const shown = wrong === '' ? emptyName : JSON.stringify(wrong);
    throw new InvalidArgumentError(`Expected ${what} separated by commas, not ${shown}.`);
  };
  listParsers.set(parse, 'commas');
  return parse;
}

const dnsLabel = '[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?';
const isDnsLabel = (name: string): boolean => new RegExp(`^${dnsLabel}$`).test(name);

export const parseNames = parserOfList('namespaces', isDnsLabel, 'an empty name');

export const parseIPs = parserOfList('addresses', (address) => isIP(address) !== 0);

export const parseCIDRs = parserOfList('ranges such as 10.244.1.0/24', (range) => {
  const [, address = '', bits] = /^([^/]*)\/(\d{1,3})$/.exec(range) ?? [];
  const version = isIP(address);
  return version !== 0 && Number(bits) <= (version === 4 ? 32 : 128);
});

export const parseService = parser('a Service as NAMESPACE/NAME', (text) => {
  const [, namespace, name] = new RegExp(`^(${dnsLabel})/(${dnsLabel})$`).exec(text) ?? [];
  return namespace === undefined || name === undefined ? undefined : { namespace, name };
});

export type NodeFile = ReturnType<typeof parseNodeFile>;

/** Parses `NODE=FILE` or `FILE`, which applies to all nodes (`null`). */
export function parseNodeFile(text: string) {
  const [, node, path] = /^([a-z0-9][a-z0-9.-]*)=(.+)$/s.exec(text) ?? [];
  return { node: node ?? null, path: path ?? text };
}

export const parseRulesFile = parser('NODE=FILE', (text) => {
  const file = parseNodeFile(text);
  return file.node === null ? undefined : file;
});

/** Parses `i/n`: the i-th of n shards, from 0. */
export const parseShard = parser('i/n with i from 0 to n - 1, such as 0/3', (text) => {
  const [, ...numbers] = /^(\d{1,4})\/(\d{1,4})$/.exec(text) ?? [];
  const [index = 0, count = 0] = numbers.map(Number);
  return index < count ? { index, count } : undefined;
});

/** Parses a label selector as kubectl does. */
export function parseSelector(text: string): LabelSelector {
  try {
    return parseLabelSelector(text);
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw new InvalidArgumentError(`Expected a label selector such as app=web: ${why}.`);
  }
}

/** Codes are those of docs/findings.md. */
export const parseIgnore = parser('CODE or CODE:NAMESPACE/SERVICE of a finding', parseIgnoreRule);

/** Parses bytes: a number, or with a unit: `64Mi`, `1G`. */
export const parseSize = parser('a size such as 64Mi, 1G or 1000000', (text) => {
  const [, value, unit = ''] = /^(\d+(?:\.\d+)?)([kKMG]i?|)$/.exec(text) ?? [];
  const power = ['', 'K', 'M', 'G'].indexOf(unit.charAt(0).toUpperCase());
  const bytes = Math.round(Number(value) * (unit.endsWith('i') ? 1024 : 1000) ** power);
  return bytes >= 1 ? bytes : undefined;
});

/**
 * Parses `host:port`, `[::1]:port`, or `:port` for every address of the machine. An IPv6 address
 * needs no brackets, since the downward API of Kubernetes has none.
 */
export const parseAddress = parser('an address such as 127.0.0.1:9465 or :9465', (text) => {
  const [, ipv6, name = '', digits] = /^(?:\[([^\]]+)\]|(.*)):(\d+)$/.exec(text) ?? [];
  if (name.includes(':') && !isIPv6(name)) return undefined;
  const host = ipv6 ?? name;
  return Number(digits) <= 65_535 ? { host: host || null, port: Number(digits) } : undefined;
});

/** A parser of a flag that may be repeated. */
export function repeated<T>(parse: (text: string) => T) {
  const add = (text: string, before: readonly T[] = []): T[] => [...before, parse(text)];
  listParsers.set(add, 'repeated');
  return add;
}

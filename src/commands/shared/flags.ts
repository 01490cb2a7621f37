// Parsers of the values of flags. A wrong value throws an error that names the expected form; the
// caller (commander) adds the flag and the value.

import { isIP } from 'node:net';

import { InvalidArgumentError } from 'commander';

import type { Shard } from '../../model/scope.ts';
import type { ReportFormat } from '../../output/text/report.ts';
import type { Release } from '../../shadow/release.ts';
import { releaseOf, releases } from '../../shadow/release.ts';

export const formats: readonly ReportFormat[] = ['table', 'wide', 'json', 'yaml', 'junit'];

function invalid(text: string): never {
  throw new InvalidArgumentError(text);
}

/** A parser of a flag that can be repeated. */
export const repeated =
  <T>(parse: (text: string) => T) =>
  (text: string, before: readonly T[] = []): T[] => [...before, parse(text)];

const unitSeconds: Readonly<Record<string, number>> = { ms: 0.001, s: 1, m: 60, h: 3600 };

/** Parses `30s`, `1m30s`, `500ms` or plain seconds; in seconds. */
export function parseDuration(text: string): number {
  if (/^\d+(?:\.\d+)?$/.test(text)) return Number(text);
  if (!/^(?:\d+(?:\.\d+)?(?:ms|s|m|h))+$/.test(text)) {
    invalid('Expected a duration such as 30s, 1m30s or 500ms.');
  }
  let seconds = 0;
  for (const [, value, unit = ''] of text.matchAll(/([\d.]+)([a-z]+)/g)) {
    seconds += Number(value) * (unitSeconds[unit] ?? 0);
  }
  return seconds;
}

/** Parses a factor over the recording's own speed; `max` is Infinity. */
export function parseSpeed(text: string): number {
  if (text === 'max') return Infinity;
  const speed = Number(text);
  if (speed > 0 && speed !== Infinity) return speed;
  return invalid('Expected a factor above 0, such as 1 or 20, or max.');
}

/** Parses Unix seconds or RFC 3339; in Unix seconds. */
export function parseTime(text: string): number {
  if (/^\d+(?:\.\d+)?$/.test(text)) return Number(text);
  const time = /^\d{4}-\d\d-\d\dT/.test(text) ? Date.parse(text) / 1000 : Number.NaN;
  if (!Number.isNaN(time)) return time;
  return invalid('Expected Unix seconds or RFC 3339: 2026-11-21T10:56:46Z.');
}

export const parseFormat = (text: string): ReportFormat =>
  formats.find((format) => format === text) ?? invalid(`Expected one of ${formats.join(', ')}.`);

/** Parses the format of an explanation. */
export function parseOutput(text: string): 'text' | 'json' {
  return text === 'text' || text === 'json' ? text : invalid('Expected one of text, json.');
}

export function parseRelease(text: string): Release {
  const known = releases.map(({ minor }) => `1.${String(minor)}`).join(', ');
  return releaseOf(text) ?? invalid(`Expected a release among ${known}.`);
}

export function parseCount(text: string): number {
  const count = Number(text);
  if (Number.isInteger(count) && count >= 1) return count;
  return invalid('Expected a whole number above 0.');
}

/** Parses items separated by commas. `emptyName` is how the message names an empty item. */
function parseList(
  text: string,
  what: string,
  isValid: (item: string) => boolean,
  emptyName = '""',
): readonly string[] {
  const items = text.split(',').map((item) => item.trim());
  const wrong = items.find((item) => !isValid(item));
  if (wrong === undefined) return items;
  const shown = wrong === '' ? emptyName : JSON.stringify(wrong);
  return invalid(`Expected ${what} separated by commas, not ${shown}.`);
}

const dnsLabel = '[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?';
const isDnsLabel = (name: string): boolean => new RegExp(`^${dnsLabel}$`).test(name);

/** Parses namespaces separated by commas. */
export const parseNames = (text: string): readonly string[] =>
  parseList(text, 'namespaces', isDnsLabel, 'an empty name');

/** Parses IP addresses separated by commas. */
export const parseIPs = (text: string): readonly string[] =>
  parseList(text, 'addresses', (address) => isIP(address) !== 0);

/** Parses CIDRs separated by commas. */
export const parseCIDRs = (text: string): readonly string[] =>
  parseList(text, 'ranges such as 10.244.1.0/24', (range) => {
    const [, address = '', bits] = /^([^/]*)\/(\d{1,3})$/.exec(range) ?? [];
    const version = isIP(address);
    return version !== 0 && Number(bits) <= (version === 4 ? 32 : 128);
  });

/** Parses `NAMESPACE/NAME` of a Service. */
export function parseService(text: string): { namespace: string; name: string } {
  const [, namespace, name] = new RegExp(`^(${dnsLabel})/(${dnsLabel})$`).exec(text) ?? [];
  if (namespace !== undefined && name !== undefined) return { namespace, name };
  return invalid('Expected a Service as NAMESPACE/NAME.');
}

/** A file and its node; `null` for all nodes. */
export interface NodeFile {
  readonly node: string | null;
  readonly path: string;
}

/** Parses `NODE=FILE` or `FILE`, which applies to all nodes. */
export function parseNodeFile(text: string): NodeFile {
  const [, node, path] = /^([a-z0-9][a-z0-9.-]*)=(.+)$/s.exec(text) ?? [];
  return { node: node ?? null, path: path ?? text };
}

/** Parses `NODE=FILE`. */
export function parseRulesFile(text: string): NodeFile {
  const file = parseNodeFile(text);
  return file.node === null ? invalid('Expected NODE=FILE.') : file;
}

/** Parses `i/n`: the i-th of n shards, from 0. */
export function parseShard(text: string): Shard {
  const [, ...numbers] = /^(\d{1,4})\/(\d{1,4})$/.exec(text) ?? [];
  const [index = 0, count = 0] = numbers.map(Number);
  if (index < count) return { index, count };
  return invalid('Expected i/n with i from 0 to n - 1, such as 0/3.');
}

/** Parses bytes: a number, or with a unit: `64Mi`, `1G`. */
export function parseSize(text: string): number {
  const [, value, unit = ''] = /^(\d+(?:\.\d+)?)([kKMG]i?|)$/.exec(text) ?? [];
  const power = ['', 'K', 'M', 'G'].indexOf(unit.charAt(0).toUpperCase());
  const bytes = Math.round(Number(value) * (unit.endsWith('i') ? 1024 : 1000) ** power);
  if (bytes >= 1) return bytes;
  return invalid('Expected a size such as 64Mi, 1G or 1000000.');
}

/** Parses `host:port`, `[::1]:port`, or `:port` for every address of the machine. */
export function parseAddress(text: string): { host: string | null; port: number } {
  const [, ipv6, name = '', digits] = /^(?:\[([^\]]+)\]|([^:]*)):(\d+)$/.exec(text) ?? [];
  const port = Number(digits);
  const host = ipv6 ?? name;
  if (port <= 65_535) return { host: host === '' ? null : host, port };
  return invalid('Expected an address such as 127.0.0.1:9465 or :9465.');
}

/** The oldest version of Node that can load all modules. */
const oldestNode = [22, 19] as const;

/** Why this version of Node (`process.versions.node`) is too old; `null` if it is not. */
export function nodeProblem(found: string): string | null {
  const [major = 0, minor = 0] = found.split('.').map(Number);
  const [least, leastMinor] = oldestNode;
  if (major > least || (major === least && minor >= leastMinor)) return null;
  return `Needs Node ${oldestNode.join('.')} or later, and this is ${found}`;
}

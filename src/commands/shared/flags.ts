// What the command line says, checked: every value is parsed here, once, and a wrong one becomes
// one clear message that names the flag, the value and what would be right.

import { isIP } from 'node:net';

import { InvalidArgumentError } from 'commander';

import type { Shard } from '../../model/scope.ts';
import type { Release } from '../../shadow/release.ts';
import { releaseOf, releases } from '../../shadow/release.ts';

export const formats = ['table', 'wide', 'json', 'yaml', 'junit'] as const;

export type Format = (typeof formats)[number];

const unitSeconds = { ms: 0.001, s: 1, m: 60, h: 3600 } as const;

/** `30s`, `1m30s`, `500ms`, or plain seconds; in seconds. */
export function parseDuration(text: string): number {
  if (/^\d+(?:\.\d+)?$/.test(text)) return Number(text);
  if (!/^(?:\d+(?:\.\d+)?(?:ms|s|m|h))+$/.test(text)) {
    throw new InvalidArgumentError('Expected a duration such as 30s, 1m30s or 500ms.');
  }
  let seconds = 0;
  for (const { groups } of text.matchAll(/(?<value>\d+(?:\.\d+)?)(?<unit>ms|s|m|h)/g)) {
    const unit = groups?.unit as keyof typeof unitSeconds;
    seconds += Number(groups?.value) * unitSeconds[unit];
  }
  return seconds;
}

/** A factor over the recording's own speed; `max` is as fast as it goes. */
export function parseSpeed(text: string): number {
  if (text === 'max') return Infinity;
  const speed = Number(text);
  if (!(speed > 0) || speed === Infinity) {
    throw new InvalidArgumentError('Expected a factor above 0, such as 1 or 20, or max.');
  }
  return speed;
}

/** A moment: Unix seconds, or RFC 3339; in Unix seconds. */
export function parseTime(text: string): number {
  if (/^\d+(?:\.\d+)?$/.test(text)) return Number(text);
  const time = /^\d{4}-\d\d-\d\dT/.test(text) ? Date.parse(text) / 1000 : Number.NaN;
  if (Number.isNaN(time)) {
    throw new InvalidArgumentError('Expected Unix seconds or RFC 3339: 2026-11-21T10:56:46Z.');
  }
  return time;
}

export function parseFormat(text: string): Format {
  const format = formats.find((one) => one === text);
  if (format === undefined)
    throw new InvalidArgumentError(`Expected one of ${formats.join(', ')}.`);
  return format;
}

/** The formats of an explanation. */
export function parseOutput(text: string): 'text' | 'json' {
  if (text === 'text' || text === 'json') return text;
  throw new InvalidArgumentError('Expected one of text, json.');
}

export function parseRelease(text: string): Release {
  const release = releaseOf(text);
  if (release === null) {
    const known = releases.map(({ minor }) => `1.${String(minor)}`).join(', ');
    throw new InvalidArgumentError(`Expected a release among ${known}.`);
  }
  return release;
}

export function parseCount(text: string): number {
  const count = Number(text);
  if (!Number.isInteger(count) || count < 1) {
    throw new InvalidArgumentError('Expected a whole number above 0.');
  }
  return count;
}

/** Names separated by commas, each of them a DNS label, as namespaces have. */
export function parseNames(text: string): readonly string[] {
  const names = text.split(',').map((name) => name.trim());
  const wrong = names.find((name) => !/^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/.test(name));
  if (wrong !== undefined) {
    const what = wrong === '' ? 'an empty name' : JSON.stringify(wrong);
    throw new InvalidArgumentError(`Expected namespaces separated by commas, not ${what}.`);
  }
  return names;
}

/** `NAMESPACE/NAME` of a Service. */
export function parseService(text: string): { namespace: string; name: string } {
  const label = '[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?';
  const groups = new RegExp(`^(?<namespace>${label})/(?<name>${label})$`).exec(text)?.groups;
  const { namespace = '', name = '' } = groups ?? {};
  if (groups === undefined) {
    throw new InvalidArgumentError('Expected a Service as NAMESPACE/NAME.');
  }
  return { namespace, name };
}

/** `NODE=FILE`; without a node, the file is of all nodes. */
export function parseNodeFile(text: string): { node: string | null; path: string } {
  const [, node, path] = /^([a-z0-9][a-z0-9.-]*)=(.+)$/s.exec(text) ?? [];
  return { node: node ?? null, path: path ?? text };
}

/** Addresses separated by commas. */
export function parseIPs(text: string): readonly string[] {
  const addresses = text.split(',').map((address) => address.trim());
  const wrong = addresses.find((address) => isIP(address) === 0);
  if (wrong === undefined) return addresses;
  throw new InvalidArgumentError(
    `Expected addresses separated by commas, not ${JSON.stringify(wrong)}.`,
  );
}

/** Ranges separated by commas, each `address/bits`. */
export function parseCIDRs(text: string): readonly string[] {
  const ranges = text.split(',').map((range) => range.trim());
  const wrong = ranges.find((range) => {
    const [, address = '', bits] = /^([^/]*)\/(\d{1,3})$/.exec(range) ?? [];
    const version = isIP(address);
    return version === 0 || Number(bits) > (version === 4 ? 32 : 128);
  });
  if (wrong === undefined) return ranges;
  throw new InvalidArgumentError(
    `Expected ranges such as 10.244.1.0/24 separated by commas, not ${JSON.stringify(wrong)}.`,
  );
}

/** `i/n`: the i-th of n shards, from 0. */
export function parseShard(text: string): Shard {
  const groups = /^(?<index>\d{1,4})\/(?<count>\d{1,4})$/.exec(text)?.groups;
  const [index, count] = [Number(groups?.index), Number(groups?.count)];
  if (groups === undefined || index >= count) {
    throw new InvalidArgumentError('Expected i/n with i from 0 to n - 1, such as 0/3.');
  }
  return { index, count };
}

/** Bytes: a number, or with a unit: `64Mi`, `1G`. */
export function parseSize(text: string): number {
  const groups = /^(?<value>\d+(?:\.\d+)?)(?<unit>[kKMG]i?|)$/.exec(text)?.groups;
  const unit = groups?.unit ?? '';
  const power = ['', 'K', 'M', 'G'].indexOf(unit.charAt(0).toUpperCase());
  const bytes = Math.round(Number(groups?.value) * (unit.endsWith('i') ? 1024 : 1000) ** power);
  if (groups === undefined || bytes < 1) {
    throw new InvalidArgumentError('Expected a size such as 64Mi, 1G or 1000000.');
  }
  return bytes;
}

/** `host:port`, `[::1]:port` or `:port`, which is every address of the machine. */
export function parseAddress(text: string): { host: string | null; port: number } {
  const groups = /^(?:\[(?<six>[^\]]+)\]|(?<host>[^:]*)):(?<port>\d+)$/.exec(text)?.groups;
  const port = Number(groups?.port ?? Number.NaN);
  if (groups === undefined || port > 65_535) {
    throw new InvalidArgumentError('Expected an address such as 127.0.0.1:9465 or :9465.');
  }
  const host = groups.six ?? groups.host ?? '';
  return { host: host === '' ? null : host, port };
}

/** The oldest Node on which all that this needs can be loaded. */
const oldestNode = [22, 19] as const;

/** Why this Node cannot run the program, as `process.versions.node` names it; null: it can. */
export function nodeProblem(found: string): string | null {
  const [major = 0, minor = 0] = found.split('.').map(Number);
  const [least, leastMinor] = oldestNode;
  if (major > least || (major === least && minor >= leastMinor)) return null;
  return `Needs Node ${oldestNode.join('.')} or later, and this is ${found}`;
}

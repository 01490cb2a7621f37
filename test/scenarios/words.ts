// The words of a statement: its place, keys and values, and shorthand for many objects (names
// `web-{1..1050}`, addresses `10.1.0.1+`, values that take turns `{a,b,c}`).

import type { Api, StringMap } from './api.ts';
import type { Scenario } from './parse.ts';
import { ScenarioError } from './parse.ts';

/** The place of a statement, and which of the objects it names is meant. */
export interface Place {
  readonly scenario: Scenario;
  readonly api: Api;
  readonly line: number;
  /** Position among the names that one statement expands to. */
  readonly index: number;
}

export function fail(place: Place, message: string): never {
  throw new ScenarioError(place.scenario.file, place.line, message);
}

/** `shop/web` in its parts. */
export function splitKey(place: Place, key: string): { namespace: string; name: string } {
  const [namespace, name, more] = key.split('/');
  if (namespace === undefined || name === undefined || name === '' || more !== undefined) {
    fail(place, `Expected NAMESPACE/NAME: ${key}`);
  }
  return { namespace, name };
}

/** `key=value` at the first equals sign; a bare word has the value ''. */
export function splitWord(word: string): [string, string] {
  const equals = word.indexOf('=');
  return equals < 0 ? [word, ''] : [word.slice(0, equals), word.slice(equals + 1)];
}

/** Labels as `kubectl label` takes them: `key=value` sets, `key-` takes away. */
export function editMap(before: StringMap | undefined, text: string): StringMap {
  const map = { ...before };
  for (const part of text.split(',')) {
    const [key, value] = splitWord(part);
    if (!part.includes('=') && part.endsWith('-')) Reflect.deleteProperty(map, part.slice(0, -1));
    else map[key] = value;
  }
  return map;
}

const range = /\{(?<first>\d+)\.\.(?<last>\d+)\}/;
const choice = /\{(?<choices>[^{}]*,[^{}]*)\}/;

/** `web-{1..3}` and `web-{a,b}` are several names; a name without braces is itself. */
export function expandName(name: string): string[] {
  const choices = choice.exec(name)?.groups?.choices;
  if (choices !== undefined) return choices.split(',').map((one) => name.replace(choice, one));
  const match = range.exec(name);
  if (match?.groups === undefined) return [name];
  const first = Number(match.groups.first);
  const last = Number(match.groups.last);
  return Array.from({ length: last - first + 1 }, (_, index) =>
    name.replace(range, String(first + index)),
  );
}

/** `10.0.0.1+` is the address that many places further; without plus it is itself. */
export function addressAfter(text: string, index: number): string {
  if (!text.endsWith('+')) return text;
  const start = text.slice(0, -1);
  if (start.includes(':')) {
    const colon = start.lastIndexOf(':');
    const group = Number.parseInt(start.slice(colon + 1) || '0', 16) + index;
    return `${start.slice(0, colon)}:${group.toString(16)}`;
  }
  let value = start.split('.').reduce((sum, octet) => sum * 256 + Number(octet), 0) + index;
  const octets: number[] = [];
  for (let count = 0; count < 4; count++) {
    octets.unshift(value % 256);
    value = Math.floor(value / 256);
  }
  return octets.join('.');
}

/** `{a,b,c}` in a value takes turns; a value without braces is itself. */
export function pick(text: string, index: number): string {
  const choices = choice.exec(text)?.groups?.choices?.split(',');
  return choices === undefined ? text : text.replace(choice, choices[index % choices.length] ?? '');
}

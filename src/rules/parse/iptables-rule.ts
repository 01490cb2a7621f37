// The options of one rule of iptables-save, in parts: `-s -d -i -o -p` by themselves, and what
// matches (iptables-match.ts) and targets (iptables-target.ts) bring. Whatever cannot be read is
// unknown, with its text: nothing of a rule is ever dropped.
//
// Of half a million rules nearly all parts were read before. So what does not differ from rule to
// rule is shared, and which part comes next is guessed from what came the last time.

import { digitsAt, parseAddress, parseNetwork } from '../address.ts';
import type { Family, Match, Rule, Statement } from '../ruleset.ts';
import { matchesOf } from './iptables-match.ts';
import type { Option } from './iptables-option.ts';
import { targetOf } from './iptables-target.ts';

/** Where a rule is in the text: its line, and where its options begin. */
export interface RulePlace {
  readonly at: number;
  readonly options: number;
  readonly end: number;
  readonly line: number;
  readonly family: Family;
}

/** The parts of rules that were read in one dump. */
export interface PartCache {
  readonly parts: Map<string, Part>;
  latest: Part;
}

/** A part without quotes: rules have the same ones over and over, and share what it says. */
interface Part {
  readonly text: string;
  readonly statements: readonly Statement[];
  /** What came behind it the last time. */
  next: Part | null;
}

export const newMemory = (): PartCache => ({
  parts: new Map(),
  latest: { text: '', statements: [], next: null },
});

const mostKept = 4096;

interface Scanner {
  readonly text: string;
  readonly end: number;
  readonly family: Family;
  readonly memory: PartCache;
  at: number;
  /** Whether the last word was in quotes, and so is no option. */
  quoted: boolean;
}

/**
 * Reads the rule at this place. Never throws: what it cannot read is unknown. `memory` is of other
 * rules of the dump.
 */
export function parseRule(text: string, place: RulePlace, memory: PartCache = newMemory()): Rule {
  const scanner: Scanner = {
    text,
    end: place.end,
    family: place.family,
    memory,
    at: place.options,
    quoted: false,
  };
  const statements: Statement[] = [];
  while (skipSpaces(scanner)) readPart(scanner, statements);
  return { statements, text: text.slice(place.at, place.end), line: place.line };
}

function skipSpaces(scanner: Scanner): boolean {
  while (scanner.at < scanner.end && scanner.text.charCodeAt(scanner.at) === 32) scanner.at++;
  return scanner.at < scanner.end;
}

/** The next word, without its quotes; null at the end. */
function nextWord(scanner: Scanner): string | null {
  if (!skipSpaces(scanner)) return null;
  const { text, at, end } = scanner;
  scanner.quoted = text.charCodeAt(at) === 34;
  if (scanner.quoted) return quotedWord(scanner);
  const space = text.indexOf(' ', at);
  scanner.at = space < 0 || space > end ? end : space;
  return text.slice(at, scanner.at);
}

function quotedWord(scanner: Scanner): string {
  const { text, at, end } = scanner;
  const close = text.indexOf('"', at + 1);
  if (close < end && text.charCodeAt(close - 1) !== 92) {
    scanner.at = close + 1;
    return text.slice(at + 1, close);
  }
  let word = '';
  let next = at + 1;
  for (; next < end && text.charCodeAt(next) !== 34; next++) {
    if (text.charCodeAt(next) === 92) next++;
    word += text.charAt(next);
  }
  scanner.at = next + 1;
  return word;
}

/** One of `-s -d -i -o -p -m -j -g`, with all that belongs to it. */
function readPart(scanner: Scanner, statements: Statement[]): void {
  const part = differs(scanner) ? null : partAt(scanner);
  if (part === null) {
    readAnew(scanner, statements);
    return;
  }
  const { memory } = scanner;
  memory.latest.next = part;
  memory.latest = part;
  scanner.at += part.text.length;
  statements.push(...part.statements);
}

/** The code of the letter, where an option of one dash and one letter is; 0: none is. */
function optionAt(text: string, at: number): number {
  if (text.charCodeAt(at) !== 45) return 0;
  const after = text.charCodeAt(at + 2);
  // The end of a text has no code.
  return after === 32 || after === 10 || Number.isNaN(after) ? text.charCodeAt(at + 1) : 0;
}

/** What is longer is a translation, or a chain with a name of its own. */
const longestShared = '-j KUBE-MARK-MASQ'.length;

/** Whether it is an address, a comment or a long target: of these nearly each is another. */
function differs({ text, at, end }: Scanner): boolean {
  const from = text.charCodeAt(at) === 33 ? at + 2 : at;
  if (text.charCodeAt(from + 2) !== 32) return true;
  switch (optionAt(text, from)) {
    case 109: // m
      return text.startsWith('comment ', from + 3);
    case 103: // g
    case 106: // j
      return end - from > longestShared;
    case 105: // i
    case 111: // o
    case 112: // p
      return false;
    default:
      return true;
  }
}

/** The part that begins here, as it was read once; null: it has quotes, or too many are kept. */
function partAt(scanner: Scanner): Part | null {
  const { text, at, memory } = scanner;
  const { next } = memory.latest;
  if (next !== null && text.startsWith(next.text, at) && endsAt(scanner, at + next.text.length)) {
    return next;
  }
  const end = endOf(scanner);
  const own = text.slice(at, end);
  const known = memory.parts.get(own) ?? null;
  if (known !== null || own.includes('"') || memory.parts.size >= mostKept) return known;
  const statements: Statement[] = [];
  const alone = { ...scanner, end };
  while (skipSpaces(alone)) readAnew(alone, statements);
  const part = { text: own, statements, next: null };
  memory.parts.set(own, part);
  return part;
}

/** Where the part that begins here ends, if none of it is in quotes. */
function endOf(scanner: Scanner): number {
  const { text, at, end } = scanner;
  // Behind the beginning of its first word.
  let next = text.indexOf(' ', text.charCodeAt(at) === 33 ? at + 6 : at + 4);
  while (next >= 0 && !endsAt(scanner, next)) next = text.indexOf(' ', next + 1);
  return next < 0 || next > end ? end : next;
}

/** Whether a part ends here: another follows, of one dash and one letter, or nothing. */
function endsAt({ text, end }: Scanner, at: number): boolean {
  if (at >= end) return true;
  const next = text.charCodeAt(at + 1) === 33 ? at + 3 : at + 1;
  // Capital or small, but no digit: that is a negative number.
  const isPart = text.charCodeAt(next) === 45 && text.charCodeAt(next + 1) > 64;
  return isPart && text.charCodeAt(at) === 32;
}

function readAnew(scanner: Scanner, statements: Statement[]): void {
  const { text, at } = scanner;
  const negate = text.charCodeAt(at) === 33;
  const option = optionAt(text, negate ? at + 2 : at);
  scanner.at = negate ? at + 4 : at + 2;
  switch (option) {
    case 115: // s
    case 100: // d
      return void statements.push(addressMatch(scanner, option === 115, negate, at));
    case 112: // p
      return void statements.push(protocolMatch(scanner, negate, at));
    case 105: // i
    case 111: {
      // o
      const name = (nextWord(scanner) ?? '').replace(/\+$/, '*');
      const side = option === 105 ? 'in' : 'out';
      return void statements.push({ kind: 'interface', side, names: [name], negate });
    }
    case 109: // m
      readModule(scanner, statements, at);
      return;
    case 106: // j
    case 103: // g
      readTarget(scanner, statements, option === 103, at);
      return;
    case 102: // f
      return void statements.push(fragmentMatch(negate));
    default:
      scanner.at = negate ? at + 1 : at;
      nextWord(scanner);
      while (!atOption(scanner) && nextWord(scanner) !== null);
      statements.push({ kind: 'unknown', text: text.slice(at, scanner.at).trimEnd() });
  }
}

/** `-f` is for the fragments behind the first; `! -f` for all other packets. */
const fragmentMatch = (negate: boolean): Statement =>
  negate ? { kind: 'note', text: '! -f' } : { kind: 'never', text: '-f' };

/** Whether an option follows, or the end. */
function atOption(scanner: Scanner): boolean {
  if (!skipSpaces(scanner)) return true;
  const { text, at } = scanner;
  const code = text.charCodeAt(at);
  return (code === 45 || code === 33) && !/^[-!]?\d/.test(text.slice(at, at + 2));
}

/** Whether the next option is one of the rule itself: one dash and one letter. */
function atPart(scanner: Scanner): boolean {
  const { text } = scanner;
  let { at } = scanner;
  if (text.charCodeAt(at) === 33) at += 2;
  return text.charCodeAt(at) === 45 && text.charCodeAt(at + 1) !== 45;
}

function addressMatch(scanner: Scanner, isSource: boolean, negate: boolean, at: number): Match {
  skipSpaces(scanner);
  const from = scanner.at;
  nextWord(scanner);
  const range = parseNetwork(scanner.text, from, scanner.at);
  if (range === null) return { kind: 'unknown', text: scanner.text.slice(at, scanner.at) };
  const field = isSource ? 'source' : 'destination';
  return { kind: 'field', field, mask: null, ranges: [range], negate };
}

/** Numbers of IANA; iptables prints the names of /etc/protocols, or the number. */
export const protocolNumbers: Readonly<Record<string, number>> = {
  icmp: 1,
  igmp: 2,
  ipencap: 4,
  tcp: 6,
  udp: 17,
  dccp: 33,
  ipv6: 41,
  gre: 47,
  esp: 50,
  ah: 51,
  icmpv6: 58,
  'ipv6-icmp': 58,
  ospf: 89,
  vrrp: 112,
  sctp: 132,
  udplite: 136,
};

function protocolMatch(scanner: Scanner, negate: boolean, at: number): Match {
  const name = nextWord(scanner) ?? '';
  const number = protocolNumbers[name] ?? (/^\d{1,3}$/.test(name) ? Number(name) : null);
  if (number === null) return { kind: 'unknown', text: scanner.text.slice(at, scanner.at) };
  const ranges = [{ low: number, high: number }];
  return { kind: 'field', field: 'protocol', mask: null, ranges, negate };
}

function readModule(scanner: Scanner, statements: Statement[], at: number): void {
  const module = nextWord(scanner) ?? '';
  if (module === 'comment' && scanner.text.startsWith(' --comment ', scanner.at)) {
    scanner.at += 11;
    nextWord(scanner);
    statements.push({ kind: 'note', text: scanner.text.slice(at, scanner.at) });
    return;
  }
  const options = readOptions(scanner);
  const text = scanner.text.slice(at, scanner.at).trimEnd();
  for (const statement of matchesOf(module, options, text)) statements.push(statement);
}

function readOptions(scanner: Scanner): Option[] {
  const options: Option[] = [];
  while (skipSpaces(scanner) && !atPart(scanner)) {
    const first = nextWord(scanner) ?? '';
    const negate = first === '!' && !scanner.quoted;
    const name = negate ? (nextWord(scanner) ?? '') : first;
    const values: string[] = [];
    while (!atOption(scanner)) values.push(nextWord(scanner) ?? '');
    options.push({ name, negate, values });
  }
  return options;
}

function readTarget(scanner: Scanner, statements: Statement[], goto: boolean, at: number): void {
  const translation = simpleTranslation(scanner, at);
  if (translation !== null) {
    statements.push(translation);
    return;
  }
  const target = nextWord(scanner) ?? '';
  if (!skipSpaces(scanner)) {
    statements.push(targetOf(target, [], { goto, text: '', family: scanner.family }));
    return;
  }
  const options = readOptions(scanner);
  const text = scanner.text.slice(at, scanner.at).trimEnd();
  statements.push(targetOf(target, options, { goto, text, family: scanner.family }));
}

const toDestination = '-j DNAT --to-destination ';

/** The one form of DNAT that a node has by the thousands: to one address and one port. */
function simpleTranslation(scanner: Scanner, at: number): Statement | null {
  const { text, end } = scanner;
  if (!text.startsWith(toDestination, at)) return null;
  const from = at + toDestination.length;
  const colon = text.indexOf(':', from);
  if (colon < 0 || colon >= end || text.charCodeAt(from) === 91) return null;
  const address = parseAddress(text, from, colon);
  const port = digitsAt(text, colon + 1, end);
  if (typeof address !== 'number' || port === null || port > 65535) return null;
  scanner.at = end;
  const addresses = { low: address, high: address };
  const to = { addresses, ports: { low: port, high: port }, random: false };
  return { kind: 'dnat', to, text: text.slice(at, end) };
}

// The options of one rule of iptables-save. Which options a match or a target has, and how it
// prints them, is in the extensions of iptables 1.8 (extensions/libxt_*.c and libipt_*.c).
//
// Matches of modules that are not listed here become `unknown` with their text; so does an option
// of a listed module that this file does not know, and a value that it cannot read. A target that
// is not listed is an unknown verdict. Nothing of a rule is ever dropped.

import { parseAddress, parseNetwork } from './address.ts';
import { targetOf } from './iptables-target.ts';
import type { Family, Match, Range, Rule, Statement } from './ruleset.ts';

/** Where a rule is in the text: its line, and where its options begin. */
export interface Place {
  readonly at: number;
  readonly options: number;
  readonly end: number;
  readonly line: number;
  readonly family: Family;
}

/** `[!] --name values`. */
export interface Option {
  readonly name: string;
  readonly negate: boolean;
  readonly values: readonly string[];
}

interface Scanner {
  readonly text: string;
  readonly end: number;
  readonly family: Family;
  at: number;
  /** Whether the last word was in quotes, and so is no option. */
  quoted: boolean;
}

/** Reads the rule at this place. Never throws: what it cannot read is unknown. */
export function parseRule(text: string, place: Place): Rule {
  const scanner: Scanner = {
    text,
    end: place.end,
    family: place.family,
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
  const { text, at } = scanner;
  const negate = text.charCodeAt(at) === 33;
  if (negate) {
    scanner.at++;
    skipSpaces(scanner);
  }
  const option = nextWord(scanner) ?? '';
  switch (option) {
    case '-s':
    case '-d':
      return void statements.push(addressMatch(scanner, option, negate, at));
    case '-p':
      return void statements.push(protocolMatch(scanner, negate, at));
    case '-i':
    case '-o': {
      const name = (nextWord(scanner) ?? '').replace(/\+$/, '*');
      const side = option === '-i' ? 'in' : 'out';
      return void statements.push({ kind: 'interface', side, names: [name], negate });
    }
    case '-m': {
      readModule(scanner, statements, at);
      return;
    }
    case '-j':
    case '-g': {
      readTarget(scanner, statements, option === '-g', at);
      return;
    }
    case '-f':
      return void statements.push(fragmentMatch(negate));
    default:
      while (!atOption(scanner) && nextWord(scanner) !== null);
      statements.push({ kind: 'unknown', text: text.slice(at, scanner.at) });
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

function addressMatch(scanner: Scanner, option: string, negate: boolean, at: number): Match {
  skipSpaces(scanner);
  const from = scanner.at;
  nextWord(scanner);
  const range = parseNetwork(scanner.text, from, scanner.at);
  if (range === null) return { kind: 'unknown', text: scanner.text.slice(at, scanner.at) };
  const field = option === '-s' ? 'source' : 'destination';
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

/** Rules ask for the same few protocols: they share the answer. */
const protocolMatches = new Map<string, Match>();

function protocolMatch(scanner: Scanner, negate: boolean, at: number): Match {
  const name = nextWord(scanner) ?? '';
  const key = negate ? `!${name}` : name;
  const known = protocolMatches.get(key);
  if (known !== undefined) return known;
  const number = protocolNumbers[name] ?? (/^\d{1,3}$/.test(name) ? Number(name) : null);
  if (number === null) return { kind: 'unknown', text: scanner.text.slice(at, scanner.at) };
  const ranges = [{ low: number, high: number }];
  const match: Match = { kind: 'field', field: 'protocol', mask: null, ranges, negate };
  protocolMatches.set(key, match);
  return match;
}

function readModule(scanner: Scanner, statements: Statement[], at: number): void {
  const module = nextWord(scanner) ?? '';
  if (module === 'comment' && scanner.text.startsWith(' --comment ', scanner.at)) {
    scanner.at += 11;
    nextWord(scanner);
    statements.push({ kind: 'note', text: scanner.text.slice(at, scanner.at) });
    return;
  }
  const end = plainEnd(scanner);
  const plain = end === null ? null : scanner.text.slice(at, end);
  const known = plain === null ? undefined : readBefore.get(plain);
  if (known !== undefined && end !== null) {
    scanner.at = end;
    for (const statement of known) statements.push(statement);
    return;
  }
  const options = readOptions(scanner);
  const text = scanner.text.slice(at, scanner.at).trimEnd();
  const read = modules[module]?.(options, text) ?? [{ kind: 'unknown', text }];
  if (plain !== null && readBefore.size < mostKept) readBefore.set(plain, read);
  for (const statement of read) statements.push(statement);
}

/** Rules ask for the same ports and shares over and over: what was read is shared. */
const readBefore = new Map<string, readonly Statement[]>();
const mostKept = 4096;

/** Where a module's options end; null: they have quotes, and must be read to know. */
function plainEnd({ text, at, end }: Scanner): number | null {
  for (let next = at; next < end; next++) {
    const code = text.charCodeAt(next);
    if (code === 34) return null;
    if (code !== 32) continue;
    const after = text.charCodeAt(next + 1) === 33 ? next + 3 : next + 1;
    if (text.charCodeAt(after) === 45 && text.charCodeAt(after + 1) !== 45) return next;
  }
  return end;
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
  const target = nextWord(scanner) ?? '';
  if (!skipSpaces(scanner)) {
    statements.push(bareTarget(target, goto, scanner.family));
    return;
  }
  const simple = simpleTranslation(scanner, target, at);
  if (simple !== null) {
    statements.push(simple);
    return;
  }
  const options = readOptions(scanner);
  const text = scanner.text.slice(at, scanner.at).trimEnd();
  statements.push(targetOf(target, options, { goto, text, family: scanner.family }));
}

const bareTargets = new Map<string, Statement>();

/** Rules share the few short targets; long names are those of chains, each asked for once. */
function bareTarget(target: string, goto: boolean, family: Family): Statement {
  if (goto || target.length > 16) return targetOf(target, [], { goto, text: '', family });
  const known = bareTargets.get(target);
  if (known !== undefined) return known;
  const read = targetOf(target, [], { goto, text: '', family });
  bareTargets.set(target, read);
  return read;
}

const toDestination = '--to-destination ';

/** The one form of DNAT that a node has by the thousands: to one address and one port. */
function simpleTranslation(scanner: Scanner, target: string, at: number): Statement | null {
  const { text, end } = scanner;
  if (target !== 'DNAT' || !text.startsWith(toDestination, scanner.at)) return null;
  const from = scanner.at + toDestination.length;
  const colon = text.indexOf(':', from);
  if (colon < 0 || colon >= end || text.charCodeAt(from) === 91) return null;
  const address = parseAddress(text, from, colon);
  let port = 0;
  for (let digits = colon + 1; digits < end; digits++) {
    const digit = text.charCodeAt(digits) - 48;
    if (digit < 0 || digit > 9) return null;
    port = port * 10 + digit;
  }
  if (typeof address !== 'number' || port > 65535 || colon + 1 === end) return null;
  scanner.at = end;
  const addresses = { low: address, high: address };
  const to = { addresses, ports: { low: port, high: port }, random: false };
  return { kind: 'dnat', to, text: text.slice(at, end) };
}

type Reader = (options: readonly Option[], text: string) => Statement[];

/** Reads option by option; what `read` does not know is unknown, with module and option. */
function eachOption(module: string, read: (option: Option) => Statement | null): Reader {
  return (options) =>
    options.map(
      (option) => read(option) ?? { kind: 'unknown', text: `-m ${module} ${printOption(option)}` },
    );
}

const printOption = ({ name, negate, values }: Option): string =>
  [...(negate ? ['!'] : []), name, ...values].join(' ');

const always =
  (kind: 'note' | 'never'): Reader =>
  (_options, text) => [{ kind, text }];

/** Modules that are modelled. One that only counts or explains holds for every packet. */
const modules: Readonly<Record<string, Reader>> = {
  comment: always('note'),
  nfacct: always('note'),
  // Headers that the first packet does not have; and conntrack puts fragments together first.
  frag: always('never'),
  rt: always('never'),
  hbh: always('never'),
  dst: always('never'),
  ah: always('never'),
  esp: always('never'),
  mh: always('never'),
  icmp: always('never'),
  icmp6: always('never'),
  igmp: always('never'),
  tcp: eachOption('tcp', portOrFlags),
  udp: eachOption('udp', portOrFlags),
  udplite: eachOption('udplite', portOrFlags),
  sctp: eachOption('sctp', portOrFlags),
  dccp: eachOption('dccp', portOrFlags),
  multiport: eachOption('multiport', ({ name, negate, values }) => {
    const field = { '--dports': 'destination port', '--sports': 'source port' } as const;
    if (name !== '--dports' && name !== '--sports') return null;
    const ranges = portRanges(values[0] ?? '');
    return ranges && { kind: 'field', field: field[name], mask: null, ranges, negate };
  }),
  iprange: eachOption('iprange', ({ name, negate, values }) => {
    if (name !== '--src-range' && name !== '--dst-range') return null;
    const range = parseNetwork(values[0] ?? '');
    const field = name === '--src-range' ? 'source' : 'destination';
    return range && { kind: 'field', field, mask: null, ranges: [range], negate };
  }),
  conntrack: eachOption('conntrack', conntrackMatch),
  state: eachOption('state', ({ name, negate, values }) =>
    name === '--state' ? stateMatch(values, negate) : null,
  ),
  mark: eachOption('mark', (option) => markMatch(option, 'mark')),
  connmark: eachOption('connmark', (option) => markMatch(option, 'connection mark')),
  addrtype: (options, text) => {
    const known = options.every(({ name }) => name === '--src-type' || name === '--dst-type');
    if (!known) return [{ kind: 'unknown', text }];
    return options.map(({ name, negate, values }) => ({
      kind: 'address type',
      side: name === '--src-type' ? 'source' : 'destination',
      types: (values[0] ?? '').toLowerCase().split(','),
      negate,
    }));
  },
  ttl: eachOption('ttl', hops),
  hl: eachOption('hl', hops),
  statistic,
  recent,
};

/** An ordinary packet has more than two hops left; how many more is unknown. */
function hops({ name, negate, values }: Option): Statement | null {
  const most = { '--ttl-lt': 3, '--hl-lt': 3, '--ttl-eq': 2, '--hl-eq': 2 }[name] ?? -1;
  const isNever = !negate && Number(values[0] ?? Number.NaN) <= most;
  const module = name.slice(2, -3);
  return isNever ? { kind: 'never', text: `-m ${module} ${name} ${values.join(' ')}` } : null;
}

function portOrFlags({ name, negate, values }: Option): Match | null {
  switch (name) {
    case '--dport':
    case '--sport': {
      const [port = ''] = values;
      const ranges = portRanges(port);
      const field = name === '--dport' ? 'destination port' : 'source port';
      return ranges && { kind: 'field', field, mask: null, ranges, negate };
    }
    case '--tcp-flags': {
      const [mask, set] = values.map((names) => flagsOf(names));
      if (mask === undefined || set === undefined || mask === null || set === null) return null;
      return { kind: 'field', field: 'tcp flags', mask, ranges: [{ low: set, high: set }], negate };
    }
    default:
      return null;
  }
}

/** `80`, `8000:8010`, or several of them behind commas. */
function portRanges(text: string): Range<number>[] | null {
  const ranges: Range<number>[] = [];
  for (const part of text.split(',')) {
    const [low = Number.NaN, high = low] = part.split(':').map(Number);
    if (!(low >= 0 && high <= 65535)) return null;
    ranges.push({ low, high });
  }
  return ranges;
}

const flagBits = { FIN: 1, SYN: 2, RST: 4, PSH: 8, ACK: 16, URG: 32, ALL: 63, NONE: 0 };

function flagsOf(names: string): number | null {
  let bits = 0;
  for (const name of names.split(',')) {
    if (!Object.hasOwn(flagBits, name)) return null;
    bits |= flagBits[name as keyof typeof flagBits];
  }
  return bits;
}

/** What an entry holds of the first packet's own direction; of the reply's nothing is known. */
function conntrackMatch({ name, negate, values }: Option): Match | null {
  const [value = ''] = values;
  switch (name) {
    case '--ctstate':
    case '--ctdir':
      return stateMatch(values, negate);
    case '--ctorigdst': {
      const range = parseNetwork(value);
      const field = 'original destination';
      return range && { kind: 'field', field, mask: null, ranges: [range], negate };
    }
    case '--ctorigdstport': {
      const ranges = portRanges(value);
      const field = 'original destination port';
      return ranges && { kind: 'field', field, mask: null, ranges, negate };
    }
    default:
      return null;
  }
}

const stateMatch = (values: readonly string[], negate: boolean): Match => ({
  kind: 'state',
  states: (values[0] ?? '').toLowerCase().split(','),
  negate,
});

function markMatch({ name, negate, values }: Option, field: 'mark' | 'connection mark') {
  const [value, mask = 0xffffffff] = (values[0] ?? '').split('/').map(Number);
  if (name !== '--mark' || value === undefined || Number.isNaN(value + mask)) return null;
  const ranges = [{ low: value, high: value }];
  const whole = mask === 0xffffffff ? null : mask;
  return { kind: 'field', field, mask: whole, ranges, negate } satisfies Match;
}

/** libxt_statistic: `--mode random [!] --probability P`, `--mode nth [!] --every N --packet P`. */
function statistic(options: readonly Option[], text: string): Statement[] {
  const value = (name: string): number =>
    Number(options.find((option) => option.name === name)?.values[0] ?? Number.NaN);
  const negate = options.some((option) => option.negate);
  const probability = value('--probability');
  const every = value('--every');
  const share = Number.isNaN(probability) ? 1 / every : probability;
  if (!(share >= 0 && share <= 1)) return [{ kind: 'unknown', text }];
  return [
    {
      kind: 'random',
      probability: negate ? 1 - share : share,
      every: Number.isNaN(every) ? null : every,
    },
  ];
}

/**
 * libxt_recent. Only the plain question "was this source seen within so many seconds" is modelled:
 * it is how kube-proxy keeps a client with its endpoint.
 */
function recent(options: readonly Option[], text: string): Statement[] {
  const option = (name: string): Option | undefined =>
    options.find((option) => option.name === name);
  const name = option('--name')?.values[0] ?? 'DEFAULT';
  const bySource = option('--rdest') === undefined;
  if (option('--set') !== undefined && bySource && option('--set')?.negate === false) {
    return [{ kind: 'remember', name, text }];
  }
  const check = option('--rcheck') ?? option('--update');
  const counts = option('--hitcount') !== undefined || option('--rttl') !== undefined;
  if (check === undefined || counts || !bySource) return [{ kind: 'unknown', text }];
  const seconds = option('--seconds')?.values[0];
  return [
    {
      kind: 'remembered',
      name,
      seconds: seconds === undefined ? null : Number(seconds),
      negate: check.negate,
      text,
    },
  ];
}

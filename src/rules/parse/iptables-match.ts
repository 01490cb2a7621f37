// Parses the matches of iptables-save: `-m MODULE OPTIONS`, and options without a module. The
// options are those of iptables 1.8 (extensions/libxt_*.c, libipt_*.c and libip6t_*.c).
//
// A module, option or value that this file does not model becomes `unknown` with its text.

import { parseNetwork, type Range } from '../../model/ip.ts';
import { fieldMatch, type Match, only, type PacketField, type Statement } from '../ruleset.ts';

/** `[!] --name values`. */
export interface Option {
  readonly name: string;
  readonly negate: boolean;
  readonly values: readonly string[];
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

const flagNames = ['fin', 'syn', 'rst', 'psh', 'ack', 'urg', 'ecn', 'cwr'];

/** Bits of TCP's flags, and iptables' words for the first six of them. */
export const tcpFlags: Readonly<Record<string, number>> = {
  ...Object.fromEntries(flagNames.map((name, at) => [name, 1 << at])),
  all: 63,
  none: 0,
};

/** Modules that only count or explain: they hold for every packet. */
const note = /^(?:comment|nfacct)$/;

/** They ask for headers that no first packet has; and conntrack puts fragments together first. */
const absent = /^(?:frag|rt|hbh|dst|ah|esp|mh|icmp|icmp6|igmp)$/;

const plain =
  /^(?:tcp|udp|udplite|sctp|dccp|multiport|iprange|conntrack|state|(?:conn)?mark|ttl|hl)$/;

/** What the options of a module ask for; `text` is all of it, as it is written. */
export function matchesOf(module: string, options: readonly Option[], text: string): Statement[] {
  if (note.test(module)) return [{ kind: 'note', text }];
  if (absent.test(module)) return [{ kind: 'never', text }];
  if (!plain.test(module)) return modules[module]?.(options, text) ?? [{ kind: 'unknown', text }];
  return options.map((option) => {
    const { name, negate, values } = option;
    const written = [...(negate ? ['!'] : []), name, ...values].join(' ');
    return matchOf(option, `-m ${module} ${written}`);
  });
}

/** What one option asks for; unknown, with this text, if it is not modelled. */
export const matchOf = (option: Option, text: string): Match =>
  optionReaders[option.name]?.(option, text) ?? { kind: 'unknown', text };

type OptionReader = (option: Option, text: string) => Match | null;

const readAddress =
  (field: PacketField): OptionReader =>
  ({ negate, values: [value = ''] }) => {
    const range = parseNetwork(value);
    return range && fieldMatch(field, [range], negate);
  };

/** `80`, `8000:8010`, or several of them behind commas. */
const readPorts =
  (field: PacketField): OptionReader =>
  ({ negate, values: [value = ''] }) => {
    const parts = value.split(',');
    const ranges = parts.flatMap((part) => portRange(part, ':') ?? []);
    return ranges.length < parts.length ? null : fieldMatch(field, ranges, negate);
  };

/** The range of ports in a text; null if it is none. */
export function portRange(text: string, separator: ':' | '-'): Range<number> | null {
  const [low = Number.NaN, high = low] = text.split(separator).map(Number);
  return low >= 0 && high <= 65535 ? { low, high } : null;
}

const readInterface =
  (side: 'in' | 'out'): OptionReader =>
  ({ negate, values: [name = ''] }) => ({
    kind: 'interface',
    side,
    names: [name.replace(/\+$/, '*')],
    negate,
  });

const readStates: OptionReader = ({ negate, values: [value = ''] }) => ({
  kind: 'state',
  states: value.toLowerCase().split(','),
  negate,
});

/** An ordinary packet has more than two hops left; how many more is unknown. */
const readHops =
  (most: number): OptionReader =>
  ({ negate, values }, text) =>
    !negate && Number(values[0] ?? Number.NaN) <= most ? { kind: 'never', text } : null;

const optionReaders: Readonly<Record<string, OptionReader>> = {
  '-s': readAddress('source'),
  '-d': readAddress('destination'),
  '-i': readInterface('in'),
  '-o': readInterface('out'),
  '-p': ({ negate, values: [name = ''] }) => {
    const number = protocolNumbers[name] ?? (/^\d{1,3}$/.test(name) ? Number(name) : null);
    return number === null ? null : fieldMatch('protocol', [only(number)], negate);
  },
  '--sport': readPorts('source port'),
  '--sports': readPorts('source port'),
  '--dport': readPorts('destination port'),
  '--dports': readPorts('destination port'),
  '--src-range': readAddress('source'),
  '--dst-range': readAddress('destination'),
  '--tcp-flags': ({ negate, values }) => {
    const [mask, set] = [flagsOf(values[0]), flagsOf(values[1])];
    if (mask === null || set === null) return null;
    return fieldMatch('tcp flags', [only(set)], negate, mask);
  },
  '--state': readStates,
  '--ctstate': readStates,
  '--ctdir': readStates,
  // Of the first packet's own direction; of the reply's nothing is known.
  '--ctorigdst': readAddress('original destination'),
  '--ctorigdstport': readPorts('original destination port'),
  '--mark': ({ negate, values }, text) => {
    const [value, mask = 0xffffffff] = (values[0] ?? '').split('/').map(Number);
    if (value === undefined || Number.isNaN(value + mask)) return null;
    const field = text.startsWith('-m mark') ? 'mark' : 'connection mark';
    return fieldMatch(field, [only(value)], negate, mask === 0xffffffff ? null : mask);
  },
  '--ttl-lt': readHops(3),
  '--ttl-eq': readHops(2),
  '--hl-lt': readHops(3),
  '--hl-eq': readHops(2),
};

/** The bits of these flags; null if one of them is none. */
function flagsOf(names = ''): number | null {
  const bits = names.split(',').map((name) => tcpFlags[name.toLowerCase()]);
  return bits.includes(undefined) ? null : bits.reduce<number>((all, bit = 0) => all | bit, 0);
}

type ModuleReader = (options: readonly Option[], text: string) => Statement[];

const modules: Readonly<Record<string, ModuleReader>> = {
  addrtype: (options, text) => {
    const isKnown = options.every(({ name }) => name === '--src-type' || name === '--dst-type');
    if (!isKnown) return [{ kind: 'unknown', text }];
    return options.map(({ name, negate, values }) => ({
      kind: 'address type',
      side: name === '--src-type' ? 'source' : 'destination',
      types: (values[0] ?? '').toLowerCase().split(','),
      negate,
    }));
  },
  // The walked packets come in where their answers leave: no sender forges its address.
  rpfilter: (options, text) => {
    const isInverse = options.some(({ name }) => name === '--invert');
    return [{ kind: isInverse ? 'never' : 'note', text }];
  },
  // `--mode random [!] --probability P`, `--mode nth [!] --every N --packet P`.
  statistic: (options, text) => {
    const byName = optionsByName(options);
    const number = (name: string): number => Number(byName.get(name)?.values[0] ?? Number.NaN);
    const every = number('--every');
    const share = Number.isNaN(number('--probability')) ? 1 / every : number('--probability');
    if (!(share >= 0 && share <= 1)) return [{ kind: 'unknown', text }];
    const probability = options.some(({ negate }) => negate) ? 1 - share : share;
    return [{ kind: 'random', probability, every: Number.isNaN(every) ? null : every }];
  },
  // Only the plain question "was this source seen within N seconds" is modelled: it is how
  // kube-proxy keeps a client with its endpoint.
  recent: (options, text) => {
    const byName = optionsByName(options);
    const name = byName.get('--name')?.values[0] ?? 'DEFAULT';
    const bySource = !byName.has('--rdest');
    if (byName.get('--set')?.negate === false && bySource)
      return [{ kind: 'remember', name, text }];
    const check = byName.get('--rcheck') ?? byName.get('--update');
    const counts = byName.has('--hitcount') || byName.has('--rttl');
    if (check === undefined || counts || !bySource) return [{ kind: 'unknown', text }];
    const value = byName.get('--seconds')?.values[0];
    const seconds = value === undefined ? null : Number(value);
    return [{ kind: 'remembered', name, seconds, negate: check.negate, text }];
  },
};

const optionsByName = (options: readonly Option[]): ReadonlyMap<string, Option> =>
  new Map(options.map((option) => [option.name, option]));

// Parses the matches of iptables-save: `-m MODULE OPTIONS`. The options of each module are those of
// iptables 1.8 (extensions/libxt_*.c, libipt_*.c and libip6t_*.c).
//
// A module, option or value that this file does not model becomes `unknown` with its text.

import { parseNetwork } from '../address.ts';
import type { Match, Range, Statement } from '../ruleset.ts';
import type { Option } from './iptables-option.ts';

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

/** What the options of a module ask for; `text` is all of it, as it is written. */
export const matchesOf = (module: string, options: readonly Option[], text: string): Statement[] =>
  modules[module]?.(options, text) ?? [{ kind: 'unknown', text }];

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
  // The walked packets come in where their answers leave: no sender forges its address.
  rpfilter: (options, text) => {
    const isInverse = options.some(({ name }) => name === '--invert');
    return [{ kind: isInverse ? 'never' : 'note', text }];
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
 * libxt_recent. Only the plain question "was this source seen within N seconds" is modelled:
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

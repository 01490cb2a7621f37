// What tests do with rule sets. One function writes a rule set as iptables-save does, from what was
// read, so that a mistake of the reader shows. The other walks packets: those with the same rule
// set and node share one walk, so that later ones use what earlier ones have found.

import type { Range } from '../../src/model/ip.ts';
import { formatAddress } from '../../src/model/ip.ts';
import type { Packet } from '../../src/model/proxy-config.ts';
import type { Rule, RuleSet, Statement } from '../../src/rules/ruleset.ts';
import { rulesOf } from '../../src/rules/ruleset.ts';
import type { NodeContext, PacketState } from '../../src/rules/walk/walk-state.ts';
import type { PacketOutcome } from '../../src/rules/walk/walk.ts';
import { createWalk } from '../../src/rules/walk/walk.ts';

const walks = new WeakMap<RuleSet, WeakMap<NodeContext, ReturnType<typeof createWalk>>>();

export function walk(ruleset: RuleSet, node: NodeContext, packet: Packet): PacketOutcome {
  const byNode = walks.get(ruleset) ?? new WeakMap<NodeContext, ReturnType<typeof createWalk>>();
  walks.set(ruleset, byNode);
  const known = byNode.get(node) ?? createWalk(ruleset, node);
  byNode.set(node, known);
  return known(packet);
}

/** The whole dump. */
export function printIptables(ruleset: RuleSet): string {
  return ruleset.tables
    .map((table) => {
      const chains = [...table.chains.values()];
      const lines = chains.map(
        ({ name, base }) => `:${name} ${base === null ? '-' : base.policy.toUpperCase()} [0:0]`,
      );
      const rules = chains.flatMap((chain) =>
        rulesOf(chain).map((rule) => `-A ${chain.name}${printRule(rule)}`),
      );
      return `*${table.name}\n${[...lines, ...rules].join('\n')}\nCOMMIT\n`;
    })
    .join('');
}

const printRule = ({ statements }: Rule): string =>
  statements.map((statement) => ` ${printStatement(statement)}`).join('');

const hex = (value: number): string => `0x${value.toString(16)}`;

const printRange = ({ low, high }: Range): string =>
  low === high ? formatAddress(low) : `${formatAddress(low)}-${formatAddress(high)}`;

const printPorts = (ranges: readonly Range[], between: string): string =>
  ranges.map(({ low, high }) => (low === high ? `${low}` : `${low}${between}${high}`)).join(',');

function printStatement(statement: Statement): string {
  const not = 'negate' in statement && statement.negate ? '! ' : '';
  if ('text' in statement) return statement.text;
  switch (statement.kind) {
    case 'field':
      return printField(statement, not);
    case 'interface':
      return `${not}-${statement.side[0]} ${(statement.names[0] ?? '').replace(/\*$/, '+')}`;
    case 'state':
      return `-m conntrack ${not}--ctstate ${statement.states.join(',').toUpperCase()}`;
    case 'address type': {
      const side = statement.side === 'source' ? 'src' : 'dst';
      return `-m addrtype ${not}--${side}-type ${statement.types.join(',').toUpperCase()}`;
    }
    case 'random':
      return statement.every === null
        ? `-m statistic --mode random --probability ${statement.probability}`
        : `-m statistic --mode nth --every ${statement.every} --packet 0`;
    case 'set mark': {
      const target = statement.field === 'mark' ? 'MARK' : 'CONNMARK';
      return `-j ${target} --set-xmark ${hex(statement.flip)}/${hex(~statement.keep >>> 0)}`;
    }
    case 'copy mark': {
      const { direction, packetMask, connectionMask } = statement;
      const masks = `--nfmask ${hex(packetMask)} --ctmask ${hex(connectionMask)}`;
      return `-j CONNMARK --${direction}-mark ${masks}`;
    }
    case 'jump':
    case 'goto':
      return `-${statement.kind[0]} ${statement.chain}`;
    case 'accept':
    case 'drop':
    case 'return':
    case 'notrack':
      return `-j ${statement.kind.toUpperCase()}`;
    default:
      throw new Error(`iptables has no ${statement.kind}`);
  }
}

type FieldMatch = Extract<Statement, { kind: 'field' }>;

function printField({ field, mask, ranges, negate }: FieldMatch, not: string): string {
  const [first] = ranges;
  if (first === undefined) throw new Error('iptables has no match without a value');
  switch (field) {
    case 'source':
    case 'destination': {
      const side = field === 'source' ? 'src' : 'dst';
      return `-m iprange ${not}--${side}-range ${printRange(first)}`;
    }
    case 'protocol':
      return `${not}-p ${first.low}`;
    case 'source port':
    case 'destination port': {
      const side = field === 'source port' ? 'sports' : 'dports';
      return `-m multiport ${not}--${side} ${printPorts(ranges, ':')}`;
    }
    case 'mark':
    case 'connection mark': {
      const module = field === 'mark' ? 'mark' : 'connmark';
      const whole = mask ?? 0xffffffff;
      return `-m ${module} ${negate ? '! ' : ''}--mark ${hex(Number(first.low))}/${hex(whole)}`;
    }
    case 'tcp flags':
      return `-m tcp ${not}--tcp-flags ${flagNames(mask ?? 63)} ${flagNames(Number(first.low))}`;
    case 'original destination':
      return `-m conntrack ${not}--ctorigdst ${printRange(first)}`;
    case 'original destination port':
      return `-m conntrack ${not}--ctorigdstport ${printPorts(ranges, ':')}`;
    case 'nfproto':
      throw new Error('iptables has no nfproto');
  }
}

function flagNames(bits: number): string {
  const names = ['FIN', 'SYN', 'RST', 'PSH', 'ACK', 'URG'].filter((_, at) => bits & (1 << at));
  return names.length === 0 ? 'NONE' : names.join(',');
}

// A packet's state for tests: the first of a TCP connection from a pod, before any rule.

export const stateOf = (changes: Partial<PacketState> = {}): PacketState => ({
  family: 'ip',
  from: 'pod',
  source: 0x0a000001,
  protocol: 6,
  localAddresses: [],
  interfaces: null,
  interfacesTo: () => null,
  original: { address: 0x0a600001, port: 80 },
  hook: 'prerouting',
  destination: 0x0a600001,
  destinationPort: 80,
  toNode: null,
  in: 'veth1',
  out: '',
  mark: { value: 0, known: 0xffffffff },
  connectionMark: { value: 0, known: 0xffffffff },
  entry: 'new',
  translated: false,
  sourceTranslated: false,
  goal: null,
  rewritten: false,
  masqueraded: false,
  remembered: null,
  affinity: null,
  trace: null,
  questions: null,
  stations: [],
  station: 0,
  nat: null,
  natNext: 0,
  tally: new Map(),
  weight: 1,
  ...changes,
});

// The rules of a node as both parsers produce them and the walk reads them. A rule is a list of
// statements in the order in which the kernel evaluates them, matches first. A statement that a
// parser does not model is `unknown` with its text: never left out, never assumed to match.
//
// Left out: families arp, bridge and netdev (no Service traffic of a node passes them), counters,
// handles, and the times of a set's elements.

import type { Address, Range } from '../model/ip.ts';

export type Family = 'ip' | 'ip6';
export const familyOf = (address: Address): Family => (typeof address === 'number' ? 'ip' : 'ip6');

export const hooks = ['prerouting', 'input', 'forward', 'output', 'postrouting'] as const;
export type Hook = (typeof hooks)[number];

export interface RuleSet {
  readonly tables: readonly Table[];
  /** Other rules of the node that the dump omits or has in another form. */
  readonly lacks: readonly Lack[];
  /** Families whose rules may be those of iptables-legacy. */
  readonly legacy: readonly Family[];
}

export interface Lack {
  /** What is lacking (`lackText`): the table, or base chains, or where its rules send packets. */
  readonly kind: 'table' | 'chains' | 'legacy' | 'targets';
  readonly family: Family;
  readonly table: string;
}

export interface Table {
  readonly family: Family | 'inet';
  readonly name: string;
  readonly source: 'iptables' | 'nft' | 'bpf';
  readonly chains: Chains;
  readonly sets: ReadonlyMap<string, ElementSet>;
}

export interface Chains {
  bases(): readonly Chain[];
  readonly get: (name: string) => Chain | undefined;
  values(named?: RegExp): Iterable<Chain>;
}

export interface Base {
  readonly hook: Hook;
  readonly priority: number;
  readonly type: 'filter' | 'nat' | 'route';
  readonly policy: 'accept' | 'drop';
  /** Place in the order of creation within the table: of equal priority, the last runs first. */
  readonly created: number;
}

export interface Chain {
  readonly name: string;
  readonly base: Base | null;
  /** Parses the rules; `rulesOf` caches them. */
  readonly read: (chain: Chain) => readonly Rule[];
  /** Where the chain sends packets, if the reader knows that without parsing its rules. */
  readonly target: DnatTarget | null;
  /** null until they are read. */
  rules: readonly Rule[] | null;
  index: unknown;
}

export interface Rule {
  readonly statements: readonly Statement[];
  /** The rule as the dump has it. */
  readonly text: string;
}

export interface DnatTarget {
  readonly address: Address;
  readonly port: number;
  /** null: all protocols. */
  readonly protocol: number | null;
  /** The source that other rules match; null: none. */
  readonly except: Address | null;
}

export const only = <T>(value: T): Range<T> => ({ low: value, high: value });

/** A match of a field; `mask` null: of all its bits. */
export const fieldMatch = (
  field: PacketField,
  ranges: readonly Range[],
  negate = false,
  mask: number | null = null,
): Match => ({ kind: 'field', field, mask, ranges, negate });

/** The chains of a table that has them as objects. */
export const chainsOf = (byName: ReadonlyMap<string, Chain>): Chains => ({
  bases: () => [...byName.values()].filter(({ base }) => base !== null),
  get: (name) => byName.get(name),
  values: (named = /^/) => [...byName.values()].filter(({ name }) => named.test(name)),
});

const readNothing = (): readonly Rule[] => [];

/** A chain without rules. */
export const emptyChain = (name: string, base: Base | null = null): Chain => {
  const parts = { target: null, rules: null, index: null };
  return { name, base, read: readNothing, ...parts };
};

/** A chain's rules. They are read when they are first asked for. */
export const rulesOf = (chain: Chain): readonly Rule[] => (chain.rules ??= chain.read(chain));

export type PacketField =
  | 'source'
  | 'destination'
  | 'source port'
  | 'destination port'
  /** Where conntrack saw it go to before anything was translated. */
  | 'original destination'
  | 'original destination port'
  /** Protocol number: tcp 6, udp 17, sctp 132. */
  | 'protocol'
  /** 2: IPv4, 10: IPv6. */
  | 'nfproto'
  | 'mark'
  | 'connection mark'
  /** fin 1, syn 2, rst 4, psh 8, ack 16, urg 32, ecn 64, cwr 128. */
  | 'tcp flags';

export type LookupKey =
  | Readonly<{ kind: 'fields'; fields: readonly (PacketField | 'in' | 'out' | 'state')[] }>
  /** A number from offset to offset + modulus - 1, each as probable as the other. */
  | Readonly<{ kind: 'numgen'; modulus: number; offset: number }>
  | Readonly<{ kind: 'unknown'; text: string }>;

export type Component = Range | string;

export interface Element {
  readonly key: readonly Component[];
  readonly verdict: Action | null;
  /** Of maps: address and port, or what else the map yields. */
  readonly data: readonly (Address | string)[] | null;
}

export interface ElementSet {
  readonly name: string;
  readonly elements: readonly Element[];
  /** Rules may add elements, or they vanish by themselves: the dump shows one moment. */
  readonly dynamic: boolean;
  readonly timeoutSeconds: number | null;
  index: unknown;
}

export type Match =
  | {
      readonly kind: 'field';
      readonly field: PacketField;
      /** The bits to look at; null: all. */
      readonly mask: number | null;
      readonly ranges: readonly Range[];
      readonly negate: boolean;
    }
  /** Names may end in `*`: any that begins so. */
  | Readonly<{ kind: 'interface'; side: 'in' | 'out'; names: readonly string[]; negate: boolean }>
  /** Conntrack's states and bits of status, in lower case, and the two of iptables: dnat, snat. */
  | Readonly<{ kind: 'state'; states: readonly string[]; negate: boolean }>
  /** Upstream's words, in lower case: local, unicast, broadcast, multicast, anycast. */
  | {
      readonly kind: 'address type';
      readonly side: 'source' | 'destination';
      readonly types: readonly string[];
      readonly negate: boolean;
    }
  /** Holds in this share of connections; `every` is set where it counts instead of drawing. */
  | Readonly<{ kind: 'random'; probability: number; every: number | null }>
  /** The source is remembered under this name, for this many seconds. */
  | {
      readonly kind: 'remembered';
      readonly name: string;
      readonly seconds: number | null;
      readonly negate: boolean;
      readonly text: string;
    }
  | Readonly<{ kind: 'lookup'; key: LookupKey; set: ElementSet; negate: boolean }>
  /** What the first packet of a TCP, UDP or SCTP connection never has. */
  | Readonly<{ kind: 'never'; text: string }>
  | Readonly<{ kind: 'unknown'; text: string }>;

/** What changes the outcome of the packet or its metadata. `note` changes nothing. */
export type Action =
  | Readonly<{ kind: 'note'; text: string }>
  /** The mark becomes (mark & keep) ^ flip. */
  | Readonly<{ kind: 'set mark'; field: 'mark' | 'connection mark'; keep: number; flip: number }>
  /** `save` copies the mark to the connection mark under the masks, `restore` the other way. */
  | {
      readonly kind: 'copy mark';
      readonly direction: 'save' | 'restore';
      readonly packetMask: number;
      readonly connectionMask: number;
    }
  /** Of both marks these bits can be anything afterwards. */
  | Readonly<{ kind: 'unknown mark'; bits: number; text: string }>
  | Readonly<{ kind: 'remember'; name: string; text: string }>
  | Readonly<{ kind: 'notrack' }>
  | Readonly<{ kind: 'accept' | 'drop' | 'return' }>
  | Readonly<{ kind: 'reject'; text: string }>
  /** `endpoint`: the chain, where the walk found that it has a target. */
  | { readonly kind: 'jump' | 'goto'; readonly chain: string; endpoint?: Chain | undefined }
  /** null: the dump does not show it. */
  | Readonly<{ kind: 'dnat'; to: Translation | null; text: string }>
  | Readonly<{ kind: 'dnat by map'; key: LookupKey; set: ElementSet }>
  | Readonly<{ kind: 'redirect'; ports: Range<number> | null; text: string }>
  /** Address by address into another network of the same size. */
  | Readonly<{ kind: 'netmap'; to: Range; text: string }>
  | Readonly<{ kind: 'snat'; to: Translation | null; text: string }>
  | Readonly<{ kind: 'masquerade'; random: boolean; text: string }>
  | Readonly<{ kind: 'verdict map'; key: LookupKey; set: ElementSet }>
  /** A verdict or a change that is not modelled: anything may follow. */
  | Readonly<{ kind: 'unknown verdict'; text: string }>;

/** null: unchanged; an address range of more than one is one of them. */
export interface Translation {
  readonly addresses: Range | null;
  readonly ports: Range<number> | null;
  readonly random: boolean;
}

export type Statement = Match | Action;

/**
 * One rule set of several dumps of a node: both families, both backends. A table that both iptables
 * and nft show is taken from iptables, except chains that it cannot show: nft hides some matches.
 */
export function mergeRuleSets(rulesets: readonly RuleSet[]): RuleSet {
  const all = rulesets.flatMap((ruleset) => ruleset.tables);
  const said = rulesets.flatMap((ruleset) => ruleset.lacks);
  const legacy = rulesets.flatMap((ruleset) => ruleset.legacy);
  const listed = new Set(all.filter(({ source }) => source === 'nft').map(nameOf));
  const lacking = (table: Table, kind: Lack['kind']): boolean =>
    said.some((lack) => lack.kind === kind && lackName(lack) === nameOf(table));
  const own = new Map(
    all.filter(({ source }) => source === 'iptables').map((table) => [nameOf(table), table]),
  );
  const tables = all.flatMap((table) => {
    const shown = table.source === 'nft' ? own.get(nameOf(table)) : undefined;
    // What iptables shows of this name is another backend's.
    if (shown === undefined || lacking(table, 'table')) return [table];
    return lacking(table, 'chains') ? [hiddenIn(table, shown)] : [];
  });
  const lacks = said.filter((lack) =>
    lack.kind === 'legacy' ? !legacy.includes(lack.family) : !listed.has(lackName(lack)),
  );
  return { tables, lacks: [...lacks, ...targetsLacking(tables)], legacy };
}

const nameOf = ({ family, name }: Pick<Table, 'family' | 'name'>): string => `${family} ${name}`;

const lackName = ({ family, table: name }: Lack): string => nameOf({ family, name });

function hiddenIn(table: Table, shown: Table): Table {
  const places = new Set(shown.chains.bases().map(placeOf));
  const hidden = table.chains.bases().filter((chain) => !places.has(placeOf(chain)));
  const chains = chainsOf(new Map(hidden.map((chain) => [chain.name, chain])));
  return { ...table, chains: { ...chains, get: table.chains.get } };
}

const placeOf = ({ name, base }: Chain): string => `${name} ${base?.hook} ${base?.priority}`;

/** Not where kube-proxy has a table of its own: then another mode left these chains. */
function targetsLacking(tables: readonly Table[]): Lack[] {
  const listed = tables.filter(({ source }) => source === 'nft');
  return listed.flatMap(({ family, name: table, chains }): Lack[] => {
    if (table !== 'nat' || family === 'inet') return [];
    if (listed.some((table) => table.family === family && table.name === 'kube-proxy')) return [];
    for (const chain of chains.values(/^KUBE-SEP-/)) {
      if (rulesOf(chain).some(hidesTarget)) return [{ kind: 'targets', family, table }];
    }
    return [];
  });
}

const hidesTarget = ({ statements }: Rule): boolean =>
  statements.some(
    (statement) =>
      (statement.kind === 'unknown verdict' ||
        (statement.kind === 'dnat' && statement.to === null)) &&
      statement.text.startsWith('{"xt"'),
  );

/** What is lacking, for people, and by what it would not be. */
export function lackText({ kind, family, table: name }: Lack): string {
  const program = family === 'ip' ? 'iptables' : 'ip6tables';
  const table = `table ${family} ${name}`;
  switch (kind) {
    case 'table':
      return `${program}-nft-save does not show ${table}: nft -j list ruleset does`;
    case 'chains':
      return `${program}-nft-save does not show all chains of ${table}: nft -j list ruleset does`;
    case 'legacy':
      return `There are tables of ${program}-legacy: ${program}-legacy-save shows them`;
    case 'targets':
      return (
        `nft -j list ruleset does not tell where ${table} sends packets: ` +
        `${program}-nft-save does where it can show it`
      );
  }
}

/** The dump cannot be read. Names its line (of one line: the object of the list) and text. */
export class DumpError extends SyntaxError {
  readonly line: number;

  constructor(problem: string, line: number, text: string) {
    super(`Line ${line}: ${problem}: ${text.slice(0, 200)}`);
    this.name = 'DumpError';
    this.line = line;
  }
}

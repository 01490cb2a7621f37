// Aggregates the packet differences of one node into findings, one for each cause. A difference at
// most of the Service ports that could show it is a finding about the node: its rules are gone,
// packets do not reach them, or a part that all of them share is broken. Several Services in an
// earlier state mean stale rules. The rest becomes one finding for each Service port, with the
// worst code of the port.

import type { ProxiedPort } from '../../shadow/service-port.ts';
import type { Code, Severity } from '../finding/catalogue.ts';
import { catalogue, isWorse } from '../finding/catalogue.ts';

/** One difference between the expected and the actual outcome of a packet. */
export interface PacketDifference {
  readonly code: Code;
  /** null if no Service has the frontend. */
  readonly port: ProxiedPort | null;
  readonly frontend: string;
  /** Distinguishes differences of one frontend and origin; not shown. */
  readonly subject: string;
  readonly kind: string;
  readonly family: 'IPv4' | 'IPv6';
  readonly origin: string;
  readonly expected: string;
  readonly actual: string;
  /** The rule that causes it; null if none does, or several do. */
  readonly rule: string | null;
  /** No rule translated the packet: it did not reach the rules of its Service. */
  readonly untranslated: boolean;
  /** Traffic does not suffer. */
  readonly harmless: boolean;
}

/** The number of tested Service ports by coverage group. */
export type Coverage = ReadonlyMap<string, number>;

/** The group of differences that share a part of the rules. */
export const coverageGroup = (code: Code, kind: string, family: string): string =>
  `${code} ${kind} ${family}`;

/** A finding about one node, before the settle window. */
export interface NodeFinding {
  readonly code: Code;
  readonly severity: Severity;
  readonly node: string;
  /** '' if it is about the node and not about one Service. */
  readonly namespace: string;
  readonly service: string;
  /** `namespace/name:port`; '' as above. */
  readonly port: string;
  /** Address, port and protocol, and the origin of the packets. */
  readonly object: string;
  readonly expected: string;
  readonly actual: string;
  /** null if no single rule causes it. */
  readonly rule: string | null;
  /** About the node, not about one Service port or one frontend without a Service. */
  readonly nodeWide: boolean;
  readonly differences: readonly PacketDifference[];
}

export type TranslationCounts = Readonly<Record<'IPv4' | 'IPv6', number>>;

/** A node-wide difference needs this many ports, and this share of the tested ones. */
const most = { ports: 3, share: 0.5 };

/** This many Services in an earlier state are one stale node. */
const staleServices = 4;

/** From worst to least. */
const order: readonly Code[] = [
  'node-foreign-rule',
  'node-frontend-missing',
  'node-frontend-blocked',
  'node-endpoint-unexpected',
  'node-policy-different',
  'node-masquerade-missing',
  'node-endpoint-missing',
  'node-reject-missing',
  'node-masquerade-unexpected',
  'node-share-different',
  'node-affinity-different',
  'node-endpoint-blocked',
  'node-frontend-unexpected',
  'node-unlike-others',
];

/** A packet to a frontend that is not served passes untranslated, or a stray rule rejects it. */
const unserved: readonly Code[] = ['node-frontend-missing', 'node-frontend-blocked'];

/** Other programs cause these; they keep their code when most Services have them. */
const foreign: readonly Code[] = ['node-foreign-rule', 'node-endpoint-blocked'];

/** Differences that rules of an earlier state show. */
const stale: readonly Code[] = [
  ...unserved,
  'node-frontend-unexpected',
  'node-endpoint-missing',
  'node-endpoint-unexpected',
  'node-policy-different',
  'node-reject-missing',
];

/** Findings of nodes without rules, or with rules that no packet reaches. */
export const rulesGoneCodes: ReadonlySet<Code> = new Set([
  'node-rules-flushed',
  'node-rules-unreachable',
]);

/**
 * Findings of one node, worst first. `translated` counts the frontends that its rules translate.
 */
export function aggregateFindings(
  node: string,
  differences: readonly PacketDifference[],
  coverage: Coverage,
  translated: TranslationCounts,
): NodeFinding[] {
  const [outliers, known] = partition(differences, ({ code }) => code === 'node-unlike-others');
  const wideGroups = wideGroupsOf(known, coverage);
  const [wide, single] = partition(known, (it) => !it.harmless && wideGroups.has(groupOf(it)));
  const findings: NodeFinding[] = [];
  if (outliers.length > 0) findings.push(nodeFinding(node, 'node-unlike-others', outliers));
  if (wide.length > 0) {
    findings.push(nodeFinding(node, wideCode(wide, coverage, translated), wide));
  }
  const isGone = findings.some(({ code }) => rulesGoneCodes.has(code));
  const [harmless, real] = partition(isGone ? [] : unexplained(single, wide), (it) => it.harmless);
  if (isStale(real)) findings.push(staleFinding(node, real));
  else findings.push(...portFindings(node, real));
  findings.push(...portFindings(node, harmless));
  return findings.sort(
    (a, b) => Number(isWorse(b.severity, a.severity)) - Number(isWorse(a.severity, b.severity)),
  );
}

/** Differences whose code and port no node-wide difference has. */
function unexplained(
  single: readonly PacketDifference[],
  wide: readonly PacketDifference[],
): readonly PacketDifference[] {
  const codes = new Set(wide.map(({ code }) => code));
  if (unserved.some((code) => codes.has(code))) for (const code of unserved) codes.add(code);
  const ports = new Set(wide.map(portName));
  return single.filter((it) => !codes.has(it.code) && !ports.has(portName(it)));
}

const groupOf = ({ code, kind, family }: PacketDifference): string =>
  coverageGroup(code, kind, family);

const partition = <T>(list: readonly T[], matches: (item: T) => boolean): [T[], T[]] => [
  list.filter(matches),
  list.filter((item) => !matches(item)),
];

const portName = ({ port }: PacketDifference): string => port?.name ?? '';

/** Identifies a difference from one dump to the next. */
export const differenceKey = ({ frontend, origin, subject }: PacketDifference): string =>
  `${frontend} ${origin} ${subject}`;

/** Groups in which most of the tested ports differ. */
function wideGroupsOf(
  differences: readonly PacketDifference[],
  coverage: Coverage,
): ReadonlySet<string> {
  const real = differences.filter(({ port, harmless }) => port !== null && !harmless);
  const wide = [...Map.groupBy(real, groupOf)].filter(([group, list]) => {
    const { size } = new Set(list.map((it) => `${portName(it)} ${it.port?.protocol ?? ''}`));
    return size >= most.ports && size >= most.share * (coverage.get(group) ?? 0);
  });
  return new Set(wide.map(([group]) => group));
}

/** The code of differences at most of the Service ports. */
function wideCode(
  differences: readonly PacketDifference[],
  coverage: Coverage,
  translated: TranslationCounts,
): Code {
  const { code } = worst(differences);
  if (foreign.includes(code)) return code;
  const lost = differences.find(
    (it) => it.untranslated && it.kind === 'cluster IP' && unserved.includes(it.code),
  );
  if (lost === undefined) return 'node-rules-different';
  const all = coverage.get(coverageGroup('node-frontend-missing', lost.kind, lost.family)) ?? 0;
  return translated[lost.family] < all / 10 ? 'node-rules-flushed' : 'node-rules-unreachable';
}

function worst(differences: readonly PacketDifference[]): PacketDifference {
  const [first, ...others] = differences;
  if (first === undefined) throw new Error('No difference to choose from');
  const rank = ({ code }: PacketDifference): number => order.indexOf(code);
  return others.reduce((least, it) => (rank(it) < rank(least) ? it : least), first);
}

/** Whether enough Services differ as rules of an earlier state do, so that they have one cause. */
function isStale(differences: readonly PacketDifference[]): boolean {
  const services = differences
    .filter(({ code }) => stale.includes(code))
    .map(({ port, frontend }) => (port === null ? frontend : `${port.namespace}/${port.service}`));
  return new Set(services).size >= staleServices;
}

/** The finding of rules that are no longer updated. */
export const staleFinding = (node: string, differences: readonly PacketDifference[]): NodeFinding =>
  nodeFinding(node, 'node-rules-stale', differences);

function nodeFinding(
  node: string,
  code: Code,
  differences: readonly PacketDifference[],
): NodeFinding {
  const { frontend, origin, expected, actual, rule } = worst(differences);
  const names = [...new Set(differences.map((it) => portName(it) || it.frontend))].sort();
  const rest = names.length > 5 ? ` and ${names.length - 5} more` : '';
  return {
    ...{ code, severity: catalogue[code].severity, node, namespace: '', service: '', port: '' },
    object: `Node ${node}: ${names.slice(0, 5).join(', ')}${rest}`,
    expected: `${frontend} from ${origin}: ${expected}`,
    ...{ actual, rule, nodeWide: true, differences },
  };
}

const portFindings = (node: string, differences: readonly PacketDifference[]): NodeFinding[] =>
  [...Map.groupBy(differences, (it) => portName(it) || it.frontend).values()].map((list) =>
    portFinding(node, list),
  );

/** The finding of one Service port; at least one difference. */
export function portFinding(node: string, differences: readonly PacketDifference[]): NodeFinding {
  const { code, port, frontend, origin, expected, actual, rule, harmless } = worst(differences);
  const others = new Set(differences.map((it) => `${it.frontend} from ${it.origin}`)).size - 1;
  const rest = others === 0 ? '' : ` and ${others} more way${others === 1 ? '' : 's'}`;
  return {
    ...{ code, severity: harmless ? 'info' : catalogue[code].severity, node },
    namespace: port?.namespace ?? '',
    service: port?.service ?? '',
    port: port?.name ?? '',
    object: `${frontend} from ${origin}${rest}`,
    ...{ expected, actual, rule, nodeWide: false, differences },
  };
}

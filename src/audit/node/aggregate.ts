// Aggregates the packet differences of one node into findings: about the node, if most of the ports
// that could show one do, or several Services are in an earlier state; else one for each port.

import type { RuleFrontend } from '../../rules/report/frontends.ts';
import type { ProxiedPort } from '../../shadow/service-port.ts';
import type { Code, Severity } from '../finding/catalogue.ts';
import { bySeverity, catalogue } from '../finding/catalogue.ts';
import { difference } from '../finding/difference.ts';

export interface PacketDifference {
  readonly code: Code;
  /** null if no Service has the frontend. */
  readonly port: ProxiedPort | null;
  readonly frontend: string;
  /** Identifies it from one dump to the next. Its last word is the endpoint if it is about one. */
  readonly key: string;
  readonly kind: string;
  /** '' if it does not depend on the origin of packets. */
  readonly origin: string;
  readonly expected: string;
  readonly actual: string;
  /** The rule that causes it; null if none does, or several do. */
  readonly rule: string | null;
  /** The packet did not reach the rules of its Service. */
  readonly untranslated?: boolean;
  readonly harmless: boolean;
}

export type PacketDifferences = readonly PacketDifference[];

export type Coverage = ReadonlyMap<string, number>;

/** A property of a packet's outcome, and the codes of differences that show it. */
export type CoveredProperty =
  'endpoints' | 'stopped' | 'masqueraded' | 'not masqueraded' | 'affinity';

const properties: Readonly<Partial<Record<Code, CoveredProperty>>> = {
  'node-reject-missing': 'stopped',
  'node-masquerade-missing': 'masqueraded',
  'node-masquerade-unexpected': 'not masqueraded',
  'node-affinity-different': 'affinity',
};

const isIPv6 = ({ frontend }: PacketDifference): boolean => frontend.startsWith('[');

const groupOf = (it: PacketDifference): string =>
  `${properties[it.code] ?? 'endpoints'} ${it.kind} ${isIPv6(it) ? 'IPv6' : 'IPv4'}`;

const worstFirst: readonly Code[] = [
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
  'node-backends-both',
  'node-unlike-others',
];

const separate: readonly Code[] = ['node-backends-both', 'node-unlike-others'];

/** A packet to a frontend that is not served passes untranslated, or a stray rule rejects it. */
const unserved: readonly Code[] = ['node-frontend-missing', 'node-frontend-blocked'];

const stale: readonly Code[] = [
  ...unserved,
  'node-frontend-unexpected',
  'node-endpoint-missing',
  'node-endpoint-unexpected',
  'node-policy-different',
  'node-reject-missing',
];

/** Whether the node has no rules, or rules that no packet reaches. */
export const areRulesGone = (findings: readonly NodeFinding[]): boolean =>
  findings.some(({ id }) => id === 'node-rules-flushed' || id === 'node-rules-unreachable');

/** Findings of one node, worst first. `frontends` are those of its rules. */
export function aggregateFindings(
  node: string,
  differences: PacketDifferences,
  coverage: Coverage,
  frontends: readonly RuleFrontend[],
): NodeFinding[] {
  const [apart, known] = partition(differences, ({ code }) => separate.includes(code));
  const wideGroups = wideGroupsOf(known, coverage);
  const [wide, single] = partition(known, (it) => !it.harmless && wideGroups.has(groupOf(it)));
  const findings = [...Map.groupBy(apart, ({ code }) => code)].map(([code, list]) =>
    nodeFinding(node, code, list),
  );
  if (wide.length > 0) findings.push(nodeFinding(node, wideCode(wide, coverage, frontends), wide));
  const isGone = areRulesGone(findings);
  const [harmless, real] = partition(isGone ? [] : unexplained(single, wide), (it) => it.harmless);
  if (isStale(real)) findings.push(nodeFinding(node, 'node-rules-stale', real));
  else findings.push(...portFindings(real));
  findings.push(...portFindings(harmless));
  return findings.sort(bySeverity);
}

function unexplained(single: PacketDifferences, wide: PacketDifferences): PacketDifferences {
  const codes = new Set(wide.map(({ code }) => code));
  if (unserved.some((code) => codes.has(code))) for (const code of unserved) codes.add(code);
  const ports = new Set(wide.map(({ port }) => port?.name));
  return single.filter(({ code, port }) => !codes.has(code) && !ports.has(port?.name));
}

const partition = <T>(list: readonly T[], matches: (item: T) => boolean): [T[], T[]] => [
  list.filter(matches),
  list.filter((item) => !matches(item)),
];

const placeOf = ({ port, frontend }: PacketDifference): string => port?.name ?? frontend;

function wideGroupsOf(differences: PacketDifferences, coverage: Coverage): Set<string> {
  const real = differences.filter(({ port, harmless }) => port !== null && !harmless);
  const wide = [...Map.groupBy(real, groupOf)].filter(([group, list]) => {
    const { size } = new Set(list.map((it) => `${placeOf(it)} ${it.port?.protocol ?? ''}`));
    // Some ports, and half of the tested ones.
    return size >= 3 && size >= 0.5 * (coverage.get(group) ?? 0);
  });
  return new Set(wide.map(([group]) => group));
}

function wideCode(
  differences: PacketDifferences,
  coverage: Coverage,
  frontends: readonly RuleFrontend[],
): Code {
  const { code } = worst(differences);
  if (code === 'node-foreign-rule' || code === 'node-endpoint-blocked') return code;
  const lost = differences.find(
    (it) => it.untranslated && it.kind === 'cluster IP' && unserved.includes(it.code),
  );
  if (lost === undefined) return 'node-rules-different';
  const family = isIPv6(lost) ? 'ip6' : 'ip';
  const translated = frontends.filter((it) => it.family === family && it.translators > 0).length;
  const isFlushed = translated < (coverage.get(groupOf(lost)) ?? 0) / 10;
  return isFlushed ? 'node-rules-flushed' : 'node-rules-unreachable';
}

function worst(differences: PacketDifferences): PacketDifference {
  const rank = ({ code }: PacketDifference): number => worstFirst.indexOf(code);
  const [first] = differences.toSorted((a, b) => rank(a) - rank(b));
  if (first === undefined) throw new Error('No difference to choose from');
  return first;
}

function isStale(differences: PacketDifferences): boolean {
  const services = differences
    .filter(({ code }) => stale.includes(code))
    .map(({ port, frontend }) => (port === null ? frontend : `${port.namespace}/${port.service}`));
  // Of fewer than 4 Services in an earlier state, each is a finding of its own.
  return new Set(services).size >= 4;
}

export function nodeFinding(node: string, code: Code, differences: PacketDifferences): NodeFinding {
  const first = worst(differences);
  const { frontend, origin, expected } = first;
  const names = [...new Set(differences.map(placeOf))].sort();
  const rest = names.length > 5 ? ` and ${names.length - 5} more` : '';
  const object = `Node ${node}: ${names.slice(0, 5).join(', ')}${rest}`;
  const wanted = origin === '' ? expected : `${frontend} from ${origin}: ${expected}`;
  return {
    ...findingOf({ ...first, code, expected: wanted, harmless: false }, object),
    id: code,
    namespace: '',
    service: '',
    nodeWide: true,
    differences,
  };
}

const portFindings = (differences: PacketDifferences): NodeFinding[] =>
  [...Map.groupBy(differences, placeOf).values()].map(portFinding);

export type NodeFinding = ReturnType<typeof portFinding>;

export function portFinding(differences: PacketDifferences) {
  const first = worst(differences);
  const { port, frontend, origin } = first;
  const others = new Set(differences.map((it) => `${it.frontend} from ${it.origin}`)).size - 1;
  const rest = others === 0 ? '' : ` and ${others} more way${others === 1 ? '' : 's'}`;
  const object = `${port === null ? '' : `${port.name} at `}${frontend} from ${origin}${rest}`;
  return {
    ...findingOf(first, object),
    /** The same while the finding is open: its code if it is node-wide, else port or frontend. */
    id: placeOf(first),
    /** Both are '' if it is about the node, or about a frontend without a Service. */
    namespace: port?.namespace ?? '',
    service: port?.service ?? '',
    nodeWide: false,
    differences,
  };
}

function findingOf({ code, expected, actual, rule, harmless }: PacketDifference, object: string) {
  const found = rule === null ? actual : `${actual} by ${rule}`;
  const severity: Severity = harmless ? 'info' : catalogue[code].severity;
  return { difference: difference(code, object, fieldOf(code), expected, found), severity };
}

function fieldOf(code: Code): string {
  if (code.startsWith('node-masquerade')) return 'masquerade';
  if (code === 'node-affinity-different') return 'affinity';
  if (code === 'node-share-different') return 'share';
  const isOfEndpoints = code.startsWith('node-endpoint') || code === 'node-policy-different';
  return isOfEndpoints ? 'endpoints' : 'fate';
}

// From the differences of one node to its findings: one cause, one finding. What is wrong for most
// of the Service ports that could show it is wrong with the node: its rules are gone, packets do
// not come to them, or what all of them share is broken. Several Services that differ each in the
// way of a sound but older state mean rules that are no longer kept up to date. What remains is one
// finding for each Service port, under the worst of its codes.

import type { ProxiedPort } from '../../shadow/service-port.ts';
import type { Code, Severity } from '../finding/catalogue.ts';
import { catalogue, isWorse } from '../finding/catalogue.ts';

/** How one Service port fared at one kind of its frontends. */
export interface PacketDifference {
  readonly code: Code;
  /** null: of no Service. */
  readonly port: ProxiedPort | null;
  readonly frontend: string;
  /** Tells differences at one frontend, from one origin, apart; not shown. */
  readonly subject: string;
  readonly kind: string;
  readonly family: 'IPv4' | 'IPv6';
  readonly origin: string;
  readonly expected: string;
  readonly actual: string;
  /** The rule of somebody else, or of kube-proxy, that makes it so; null: none, or many. */
  readonly rule: string | null;
  /** No rule translated the packet: it did not come to those of its Service. */
  readonly untranslated: boolean;
  /** Nobody suffers from it. */
  readonly harmless: boolean;
}

/** How much could have been found, and was asked for: the whole of which findings are a part. */
export type Coverage = ReadonlyMap<string, { readonly size: number }>;

/** What shares one part of the rules: differences of one group have one cause if many have it. */
export function coverageGroup(code: Code, kind: string, family: string): string {
  return `${code} ${kind} ${family}`;
}

/** A finding about one node as its rules stand; whether it has stood for long is not said here. */
export interface NodeFinding {
  readonly code: Code;
  readonly severity: Severity;
  readonly node: string;
  /** '' where it concerns the node and not one Service. */
  readonly namespace: string;
  readonly service: string;
  /** `namespace/name:port`; '' as above. */
  readonly port: string;
  /** What was asked for: address, port and protocol, and from where. */
  readonly object: string;
  readonly expected: string;
  readonly actual: string;
  /** The rule that does it, where one is to blame. */
  readonly rule: string | null;
  /** About the node and not one Service port, or one frontend that no Service claims. */
  readonly nodeWide: boolean;
  /** What was rolled up. */
  readonly differences: readonly PacketDifference[];
}

export type TranslationCounts = Readonly<Record<'IPv4' | 'IPv6', number>>;

/** Fewer than these are not most of anything. */
const most = { ports: 3, share: 0.5 };

/** So many Services with an old state are not so many accidents. */
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

/**
 * Findings of one node, worst first. `claims` counts what its rules translate, by address family.
 */
export function aggregateFindings(
  node: string,
  differences: readonly PacketDifference[],
  asked: Coverage,
  claims: TranslationCounts,
): NodeFinding[] {
  const [unlike, known] = parted(differences, ({ code }) => code === 'node-unlike-others');
  const wide = wideGroups(known, asked);
  const [common, own] = parted(known, (one) => !one.harmless && wide.has(keyOf(one)));
  const findings: NodeFinding[] = [];
  if (unlike.length > 0) findings.push(nodeFinding(node, 'node-unlike-others', unlike));
  if (common.length > 0) findings.push(wideFinding(node, common, asked, claims));
  const rest = unexplained(
    own,
    common,
    findings.some(({ code }) => rulesGoneCodes.has(code)),
  );
  const [harmless, real] = parted(rest, (one) => one.harmless);
  if (isStale(real)) findings.push(staleFinding(node, real));
  else findings.push(...byPort(real).map((list) => portFinding(node, list)));
  findings.push(...byPort(harmless).map((list) => portFinding(node, list)));
  return findings.sort(
    (a, b) => Number(isWorse(b.severity, a.severity)) - Number(isWorse(a.severity, b.severity)),
  );
}

/** What is left when that which is wrong for most explains all that it may explain. */
function unexplained(
  own: readonly PacketDifference[],
  common: readonly PacketDifference[],
  isGone: boolean,
): readonly PacketDifference[] {
  if (isGone) return [];
  const codes = new Set(common.map(({ code }) => code));
  if (unserved.some((code) => codes.has(code))) for (const code of unserved) codes.add(code);
  const ports = new Set(common.map(portName));
  return own.filter((one) => !codes.has(one.code) && !ports.has(portName(one)));
}

/** A frontend that is not served goes on untouched, or to what stops strays. */
const unserved: readonly Code[] = ['node-frontend-missing', 'node-frontend-blocked'];

/** What other programs do at many Services is told as that. */
const ofOthers: readonly Code[] = ['node-foreign-rule', 'node-endpoint-blocked'];

/** Findings after which there are no rules, or none that packets come to. */
export const rulesGoneCodes: ReadonlySet<Code> = new Set([
  'node-rules-flushed',
  'node-rules-unreachable',
]);

const keyOf = ({ code, kind, family }: PacketDifference): string =>
  coverageGroup(code, kind, family);

function parted<T>(list: readonly T[], is: (one: T) => boolean): [T[], T[]] {
  return [list.filter(is), list.filter((one) => !is(one))];
}

const portName = ({ port }: PacketDifference): string => (port === null ? '' : port.name);

/** What is one difference from one dump to the next, whatever else is wrong beside it. */
export const differenceKey = ({ frontend, origin, subject }: PacketDifference): string =>
  `${frontend} ${origin} ${subject}`;

/** Groups in which most of those that were asked differ. */
function wideGroups(differences: readonly PacketDifference[], asked: Coverage): Set<string> {
  const found = new Map<string, Set<string>>();
  for (const one of differences) {
    if (one.port === null || one.harmless) continue;
    const names = found.get(keyOf(one)) ?? new Set();
    found.set(keyOf(one), names.add(`${one.port.name} ${one.port.protocol}`));
  }
  const wide = [...found].filter(([key, names]) => {
    const all = asked.get(key)?.size ?? 0;
    return names.size >= most.ports && names.size >= most.share * all;
  });
  return new Set(wide.map(([key]) => key));
}

function wideFinding(
  node: string,
  differences: readonly PacketDifference[],
  asked: Coverage,
  claims: TranslationCounts,
): NodeFinding {
  const lost = differences.find(
    ({ code, untranslated, kind }) =>
      untranslated && kind === 'cluster IP' && unserved.includes(code),
  );
  const first = worst(differences);
  if (ofOthers.includes(first.code)) return nodeFinding(node, first.code, differences);
  if (lost === undefined) return nodeFinding(node, 'node-rules-different', differences);
  const all = asked.get(coverageGroup('node-frontend-missing', lost.kind, lost.family))?.size ?? 0;
  const flushed = claims[lost.family] < all / 10;
  return nodeFinding(node, flushed ? 'node-rules-flushed' : 'node-rules-unreachable', differences);
}

function worst(differences: readonly PacketDifference[]): PacketDifference {
  const [first, ...others] = differences;
  if (first === undefined) throw new Error('No difference to choose from');
  const rank = ({ code }: PacketDifference): number => order.indexOf(code);
  return others.reduce((least, one) => (rank(one) < rank(least) ? one : least), first);
}

/** Differences as old rules show them, at so many Services that they have one cause. */
function isStale(differences: readonly PacketDifference[]): boolean {
  const old: ReadonlySet<Code> = new Set([
    'node-frontend-missing',
    'node-frontend-blocked',
    'node-frontend-unexpected',
    'node-endpoint-missing',
    'node-endpoint-unexpected',
    'node-policy-different',
    'node-reject-missing',
  ]);
  const services = new Set(
    differences
      .filter(({ code }) => old.has(code))
      .map(({ port, frontend }) =>
        port === null ? frontend : `${port.namespace}/${port.service}`,
      ),
  );
  return services.size >= staleServices;
}

/** These differences are those of rules that are kept up to date no longer. */
export const staleFinding = (node: string, differences: readonly PacketDifference[]): NodeFinding =>
  nodeFinding(node, 'node-rules-stale', differences);

function nodeFinding(
  node: string,
  code: Code,
  differences: readonly PacketDifference[],
): NodeFinding {
  const first = worst(differences);
  const names = [...new Set(differences.map((one) => portName(one) || one.frontend))].sort();
  const more = names.length > 5 ? ` and ${names.length - 5} more` : '';
  return {
    code,
    severity: catalogue[code].severity,
    node,
    namespace: '',
    service: '',
    port: '',
    object: `Node ${node}: ${names.slice(0, 5).join(', ')}${more}`,
    expected: `${first.frontend} from ${first.origin}: ${first.expected}`,
    actual: first.actual,
    rule: first.rule,
    nodeWide: true,
    differences: differences,
  };
}

/** Differences by Service port; of no Service, by frontend. */
function byPort(differences: readonly PacketDifference[]): PacketDifference[][] {
  const found = new Map<string, PacketDifference[]>();
  for (const one of differences) {
    const key = portName(one) || one.frontend;
    const known = found.get(key);
    if (known === undefined) found.set(key, [one]);
    else known.push(one);
  }
  return [...found.values()];
}

/** The finding of one Service port; at least one difference. */
export function portFinding(node: string, differences: readonly PacketDifference[]): NodeFinding {
  const first = worst(differences);
  const { code, port, frontend, origin, expected, actual, harmless } = first;
  const others = new Set(differences.map((one) => `${one.frontend} from ${one.origin}`)).size - 1;
  const more = others === 0 ? '' : ` and ${others} more way${others === 1 ? '' : 's'}`;
  return {
    code,
    severity: harmless ? 'info' : catalogue[code].severity,
    node,
    namespace: port?.namespace ?? '',
    service: port?.service ?? '',
    port: port?.name ?? '',
    object: `${frontend} from ${origin}${more}`,
    expected,
    actual,
    rule: first.rule,
    nodeWide: false,
    differences: differences,
  };
}

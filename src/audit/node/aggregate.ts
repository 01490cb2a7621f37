// Aggregates the packet differences of one node into findings: about the node, if most of the ports
// that could show one do, or several Services are in an earlier state; else one for each Service
// and code (docs/decisions/0029-one-finding-per-code-and-cause.md).

import { ipOf } from '../../model/ip.ts';
import type { RuleFrontend } from '../../rules/report/frontends.ts';
import {
  bySeverity,
  catalogue,
  type Code,
  type DifferenceDetail,
  type Severity,
  staleCodes,
} from '../finding/catalogue.ts';
import { difference } from '../finding/difference.ts';
import { familyOf, nodeWideEffects, packetClassOf, placeOf } from './node-wide.ts';
import type { Coverage, PacketDifference, PacketDifferences } from './packet-difference.ts';

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
  const isNodeWide = nodeWideEffects(known, coverage);
  const [wide, single] = partition(known, (it) => !it.harmless && isNodeWide(it));
  const findings = [...Map.groupBy(apart, ({ code }) => code)].map(([code, list]) =>
    nodeFinding(node, code, list),
  );
  if (wide.length > 0) findings.push(nodeFinding(node, wideCode(wide, coverage, frontends), wide));
  const [harmless, real] = partition(single, (it) => it.harmless);
  // Beside a fault of the node, differences of several Services may have several causes.
  const areStale = wide.length === 0 && isStale(real);
  if (areStale) findings.push(nodeFinding(node, 'node-rules-stale', real));
  const ports = new Set(wide.map(({ port }) => port?.name));
  const quiet = harmless.filter(({ port }) => !ports.has(port?.name));
  findings.push(...portFindings(areStale ? quiet : [...real, ...quiet]));
  return findings.sort(bySeverity);
}

export const partition = <T>(list: readonly T[], matches: (item: T) => boolean): [T[], T[]] => [
  list.filter(matches),
  list.filter((item) => !matches(item)),
];

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
  const family = familyOf(lost) === 'IPv6' ? 'ip6' : 'ip';
  const translated = frontends.filter((it) => it.family === family && it.translators > 0).length;
  const tested = coverage.get(packetClassOf(lost, 'endpoints')) ?? 0;
  const isFlushed = translated < tested / 10;
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
    .filter(({ code }) => staleCodes.has(code))
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

export const severityOf = ({ code, harmless }: PacketDifference): Severity =>
  harmless ? 'info' : catalogue[code].severity;

const ownerOf = ({ port }: PacketDifference): string =>
  port === null ? '' : `${port.namespace}/${port.service}`;

const packetOf = ({ frontend, origin, harmless }: PacketDifference): string =>
  `${frontend} ${origin} ${String(harmless)}`;

/** Codes, each with those that follow from it for the same packet. */
const consequences: readonly [code: Code, implied: readonly Code[]][] = [
  ['node-foreign-rule', [...unserved, 'node-endpoint-missing', 'node-reject-missing']],
  ['node-endpoint-unexpected', ['node-reject-missing']],
  ['node-policy-different', ['node-reject-missing']],
];

/** One finding for each Service and code, and for each code of frontends without a Service. */
export function portFindings(differences: PacketDifferences): NodeFinding[] {
  const found = new Set(differences.map((it) => `${it.code} ${packetOf(it)}`));
  const codeFor = (it: PacketDifference): Code =>
    consequences.find(
      ([code, implied]) => implied.includes(it.code) && found.has(`${code} ${packetOf(it)}`),
    )?.[0] ?? it.code;
  return [...Map.groupBy(differences, (it) => `${ownerOf(it)} ${codeFor(it)}`)].map(portFinding);
}

export type NodeFinding = ReturnType<typeof portFinding>;

function portFinding([id, differences]: readonly [id: string, PacketDifferences]) {
  const harmful = differences.filter(({ harmless }) => !harmless);
  const first = worst(harmful.length > 0 ? harmful : differences);
  const { port, frontend, origin } = first;
  const others = new Set(differences.map((it) => `${it.frontend} from ${it.origin}`)).size - 1;
  const rest = others === 0 ? '' : ` and ${others} more way${others === 1 ? '' : 's'}`;
  const object = `${port === null ? '' : `${port.name} at `}${frontend} from ${origin}${rest}`;
  return {
    ...findingOf(first, object),
    /** The same while the finding is open: its code if it is node-wide, else Service and code. */
    id,
    /** Both are '' if it is about the node, or about frontends without a Service. */
    namespace: port?.namespace ?? '',
    service: port?.service ?? '',
    nodeWide: false,
    differences,
  };
}

function findingOf(packet: PacketDifference, object: string) {
  const { code, expected, actual, rule } = packet;
  const found = rule === null ? actual : `${actual} by ${rule}`;
  const severity = severityOf(packet);
  return { difference: difference(code, object, fieldOf(code), expected, found), severity };
}

/**
 * The details of packet differences. An endpoint that receives nothing is left out if no packet is
 * forwarded. `podAt` returns `null` if no pod has the address.
 */
export function packetDetails(
  node: string,
  differences: PacketDifferences,
  podAt: (ip: string) => string | null,
): DifferenceDetail[] {
  const placeOfPackets = ({ port, frontend, origin }: PacketDifference): string =>
    (port === null ? '' : `${port.name} at `) +
    (origin === '' ? frontend : `${frontend} from ${origin}`);
  const whole = new Set(differences.filter((it) => it.endpoint === null).map(placeOfPackets));
  const isLost = (it: PacketDifference): boolean =>
    it.sides?.[1] === null && whole.has(placeOfPackets(it));
  return differences.flatMap((it) => {
    const { code, endpoint, sides, expected, actual, rule } = it;
    const got = rule === null ? actual : `${actual} by ${rule}`;
    const [wanted, found] = sides ?? [expected, got];
    const detail = {
      code,
      address: endpoint,
      pod: endpoint === null ? null : podAt(ipOf(endpoint)),
      field: placeOfPackets(it),
      expected: wanted,
      actual: found,
      object: `Node ${node}`,
    };
    return isLost(it) ? [] : [detail];
  });
}

function fieldOf(code: Code): string {
  if (code.startsWith('node-masquerade')) return 'masquerade';
  if (code === 'node-affinity-different') return 'affinity';
  if (code === 'node-share-different') return 'share';
  const isOfEndpoints = code.startsWith('node-endpoint') || code === 'node-policy-different';
  return isOfEndpoints ? 'endpoints' : 'fate';
}

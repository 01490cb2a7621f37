// What a node does with a Service: what kube-proxy must do with packets to each of its ports, what
// the rules that stand there do, and which rules decide it, as the node prints them. Where the
// rules are not known, what is expected is told all the same, as kube-proxy's defaults have it.
//
// Verdicts are those of the audit (nodes.ts), which waits before it believes a dump; what is walked
// shows the rules as they were last seen.

import { canonicalIP, ipOf, joinHostPort } from '../../model/ip.ts';
import type { Key, Node, Service, Listers } from '../../model/objects.ts';
import { defaultProxyConfig } from '../../model/proxy-config.ts';
import { expectedForwarding, slicesByService } from '../../shadow/forwarding.ts';
import type { Finding } from '../finding/catalogue.ts';
import { catalogue, isWorse } from '../finding/catalogue.ts';
import type { Verdict } from '../finding/verdicts.ts';
import type { PacketTrace } from '../node/audit-node.ts';
import { fateText } from '../node/compare-packet.ts';
import { probesOf, probeSender } from '../node/probes.ts';
import type { NodeVerdict } from '../node/verdicts.ts';
import type { ServiceAuditor } from '../service/auditor.ts';
import type { VerdictInput } from '../service/verdict.ts';
import type { Explanation } from './explanation.ts';
import { worstVerdict } from './pod-in-service.ts';
import type { Reason } from './reason.ts';
import { counted, fewOf, reason, unknownText } from './reason.ts';

/** What is known of the rules of nodes. */
export interface NodeLookup {
  /** null: nothing is told of that node. */
  verdicts(node: string): readonly NodeVerdict[] | null;
  /** Packets of a Service port through its rules; null: these are not known. */
  walked(node: string, service: Key, port: string): readonly PacketTrace[] | null;
}

/** Nothing is known of any node. */
export const noNodeLookup: NodeLookup = { verdicts: () => null, walked: () => null };

interface Asked {
  readonly node: string;
  readonly service: Key;
  readonly port: string | null;
}

type Explained = Omit<Explanation, 'subject' | 'found'>;

/** Explains a Service that exists on a Node that may; `port` is the name of one of its ports. */
export function explainNode(
  context: VerdictInput,
  serviceAuditor: ServiceAuditor,
  asked: Asked,
  look: NodeLookup,
): Explained {
  const { node: name, service: key, port } = asked;
  const { listers } = context;
  const [service, node] = [listers.services.get(key), listers.nodes.get(name)];
  const what = `Service ${key}${port === null ? '' : `:${port}`}`;
  const names = service === undefined ? [] : namesOf(service, port);
  if (names.length === 0 || service === undefined) {
    const ports = service?.ports.map((one) => one.name || String(one.port)).join(', ') ?? '';
    const answer = `${what} has no such port; ports: ${ports || 'none'}`;
    return { verdict: null, severity: null, answer, change: null, reasons: [] };
  }
  const verdicts = verdictsOf(look.verdicts(name), names);
  const walked = names.map((one) => {
    const packets = look.walked(name, key, one);
    return { port: one, alike: packets === null ? null : alikeOf(listers, packets) };
  });
  const unknown = whyUnknown(look.verdicts(name), verdicts);
  const findings = findingsAt(serviceAuditor, name, key);
  const [worst] = findings;
  const verdict = verdicts.length === 0 ? 'unknown' : worstVerdict(verdicts.map((v) => v.verdict));
  const reasons = [
    ...walked.flatMap(({ port: of, alike }) =>
      alike === null
        ? expectedReasons(context, serviceAuditor, service, node, of)
        : packetReasons(of, alike, port !== null),
    ),
    ...findings.map((one) =>
      findingReason(
        one,
        walked.some(({ alike }) => alike !== null),
      ),
    ),
  ];
  const [wrong = ''] = walked.flatMap(({ alike }) => alike ?? []).flatMap((one) => one.wrong);
  if (unknown !== null) reasons.unshift(reason('unknown', unknown, { object: `Node ${name}` }));
  return {
    verdict,
    severity: worst?.severity ?? null,
    answer: `${answerOf(what, name, verdict, unknown, worst)}${wrong === '' ? '' : `: ${wrong}`}`,
    change: worst === undefined ? null : catalogue[worst.code].remedy,
    reasons,
  };
}

/** Names of Service ports as forwarding has them. */
function namesOf({ key, ports }: Service, port: string | null): string[] {
  return ports
    .filter((one) => port === null || one.name === port || String(one.port) === port)
    .map(({ name }) => (name === '' ? key : `${key}:${name}`));
}

const verdictsOf = (
  verdicts: readonly NodeVerdict[] | null,
  names: readonly string[],
): NodeVerdict[] =>
  (verdicts ?? []).filter(({ port }) => port === '' || names.includes(port.split(' ')[0] ?? ''));

function whyUnknown(
  all: readonly NodeVerdict[] | null,
  own: readonly NodeVerdict[],
): string | null {
  if (all === null) return unknownText['rules-not-known'];
  const found = own.find(({ verdict }) => verdict === 'unknown');
  if (found !== undefined && found.reason !== null) return unknownText[found.reason];
  return own.length === 0 ? 'nothing is to be forwarded for it there' : null;
}

/** What stands about the Service at the node, or about all of the node; worst first. */
function findingsAt({ settle }: ServiceAuditor, node: string, service: Key): Finding[] {
  return settle
    .open()
    .filter((one) => one.node === node)
    .filter((one) => one.service === '' || `${one.namespace}/${one.service}` === service)
    .sort(
      (a, b) => Number(isWorse(b.severity, a.severity)) - Number(isWorse(a.severity, b.severity)),
    );
}

/** `isWalked`: packets of the Service were, and say what is expected and found. */
function findingReason(finding: Finding, isWalked: boolean): Reason {
  const { code, node, service, object, expected, actual, since } = finding;
  const { title, meaning, remedy, upstream } = catalogue[code];
  const parts = [reason('note', meaning)];
  const start = `Node ${node ?? ''}`;
  if (service === '') {
    const ports = object.startsWith(`${start}: `) ? object.slice(start.length + 2) : object;
    parts.push(reason('note', `it concerns Service ports ${ports}`));
  }
  if (!isWalked) {
    if (expected !== null) parts.push(reason('note', `expected: ${expected}`));
    parts.push(reason('note', `found: ${actual ?? 'nothing'}`));
  }
  return reason('no', `${title} (${code})`, {
    object: start,
    field: 'rules',
    source: upstream,
    change: remedy,
    since,
    parts,
  });
}

/** Rules of one packet in a tree that is to be read at once. */
const mostRules = 8;
/** Endpoints that are named one by one. */
const mostNamed = 5;

const marks = { conform: 'yes', different: 'no', unknown: 'unknown' } as const;

/** Packets to one frontend with which the same is wrong; the first speaks for the others. */
interface Alike {
  readonly first: PacketTrace;
  readonly origins: Set<string>;
  readonly wrong: readonly string[];
}

/** Packets by frontend and what is wrong with them, those that differ first. */
function alikeOf(listers: Listers, packets: readonly PacketTrace[]): Alike[] {
  const groups = new Map<string, Alike>();
  for (const packet of packets) {
    const { kind, frontend, verdict, origin, unknown } = packet;
    const wrong = verdict === 'conform' ? [] : wrongOf(listers, packet);
    // Where no endpoint is missed or met in error, what the fate itself is tells them apart.
    const fate = verdict === 'different' && wrong.length === 0 ? packet.actual : '';
    const key = [kind, frontend, verdict, fate, ...wrong, ...unknown].join('\n');
    const there = groups.get(key);
    if (there === undefined) groups.set(key, { first: packet, origins: new Set([origin]), wrong });
    else there.origins.add(origin);
  }
  const rank = ({ first }: Alike): number => (first.verdict === 'conform' ? 1 : 0);
  return [...groups.values()].sort((a, b) => rank(a) - rank(b));
}

/** Which endpoints a packet does not come to, and to which it comes in error. */
function wrongOf(listers: Listers, { wanted, allowed, got }: PacketTrace): string[] {
  const missed = wanted.filter((one) => !got.includes(one));
  const stray = got.filter((one) => !allowed.includes(one));
  const named = (endpoints: readonly string[]): string =>
    fewOf(
      endpoints.map((endpoint) => `${endpoint} ${ownerOf(listers, endpoint)}`),
      mostNamed,
    );
  const none = missed.length > 1 && missed.length === wanted.length;
  return [
    ...(none ? [`it comes to none of its ${String(wanted.length)} endpoints`] : []),
    ...(missed.length > 0 && !none ? [`it never comes to ${named(missed)}`] : []),
    ...(stray.length > 0 ? [`it comes to what is no endpoint: ${named(stray)}`] : []),
  ];
}

/** Whose an `ip:port` is, for people. */
function ownerOf(listers: Listers, endpoint: string): string {
  const [pod] = listers.podsAt(canonicalIP(ipOf(endpoint)));
  return pod === undefined ? '(of no pod)' : `(Pod ${pod.key})`;
}

/** `isFull`: rules are told where all is as it must be, too. */
function packetReasons(port: string, alike: readonly Alike[], isFull: boolean): Reason[] {
  if (alike.length === 0) return [reason('note', `${port} is not served there`)];
  const quiet = !isFull || alike.some(({ first }) => first.verdict !== 'conform');
  return alike.map(({ first, origins, wrong }) => {
    const { kind, frontend, verdict, expected, actual, unknown } = first;
    const text = `${port} at ${frontend} (${kind}), from ${[...origins].join(', ')}: ${verdict}`;
    if (verdict === 'conform' && quiet) return reason('yes', text);
    const parts = [
      ...wrong.map((one) => reason('no', one)),
      reason('note', `expected: ${expected}`),
      ...(verdict === 'conform' ? [] : [reason('note', `found: ${actual}`)]),
      ...unknown.map((one) => reason('unknown', one)),
      ...rulesReasons(first, origins.size),
    ];
    return reason(marks[verdict], text, { parts });
  });
}

/** The rules that a packet met; `origins`: from how many places packets are alike. */
function rulesReasons({ rules, origin }: PacketTrace, origins: number): Reason[] {
  if (rules.length === 0) return [];
  const met = rules.slice(0, mostRules).map((rule) => reason('note', rule));
  const more = rules.length - met.length;
  if (more > 0) {
    met.push(reason('note', `and ${String(more)} more rules, which the page of the node shows`));
  }
  const from = origins > 1 ? `, from ${origin}` : '';
  return [reason('note', `rules met${from}: ${counted(rules.length, 'rule')}`, { parts: met })];
}

/** What must be forwarded where nobody knows what is; kube-proxy's mode and flags are guessed. */
function expectedReasons(
  { release }: VerdictInput,
  serviceAuditor: ServiceAuditor,
  service: Service,
  node: Node | undefined,
  name: string,
): Reason[] {
  if (node === undefined) return [];
  const config = defaultProxyConfig('iptables', node.kubeletMinor ?? release.minor);
  const slices = slicesByService(serviceAuditor.audited.get(service.key)?.record.slices ?? []);
  const forwarding = expectedForwarding([service], slices, node, config, node.addresses);
  const sender = probeSender(forwarding, node);
  return forwarding.frontends
    .filter(({ port }) => port.name === name)
    .flatMap((frontend) => {
      const [probe] = probesOf(sender, frontend);
      if (probe === undefined) return [];
      const { outcomes: fates } = forwarding.expect(probe.packet);
      const at = `${joinHostPort(frontend.address, frontend.dport)}/${frontend.protocol}`;
      const text = `${name} at ${at} (${frontend.kind}), from ${probe.origin}, is expected to `;
      const source = 'pkg/proxy/iptables/proxier.go syncProxyRules';
      return [reason('note', `${text}go to: ${fates.map(fateText).join(' or ')}`, { source })];
    });
}

function answerOf(
  what: string,
  node: string,
  verdict: Verdict,
  unknown: string | null,
  worst: Finding | undefined,
): string {
  const at = `Node ${node}`;
  if (verdict === 'unknown') {
    return `What ${at} does with ${what} cannot be told: ${unknown ?? 'nothing is known of it'}`;
  }
  if (verdict === 'conform') return `${at} forwards ${what} as it must`;
  if (worst === undefined)
    return `${at} does not forward ${what} as it must, as its rules last were`;
  return `${at} does not forward ${what} as it must: ${catalogue[worst.code].title}`;
}

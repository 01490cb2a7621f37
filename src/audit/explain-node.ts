// What a node does with a Service: what kube-proxy must do with packets to each of its ports, what
// the rules that stand there do, and which rules decide it, as the node prints them. Where the
// rules are not known, what is expected is told all the same, as kube-proxy's defaults have it.
//
// Verdicts are those of the audit (nodes.ts), which waits before it believes a dump; what is walked
// shows the rules as they were last seen.

import type { Key, Node, Service } from '../model/objects.ts';
import { defaultProxyConfig } from '../model/proxy.ts';
import { expectedForwarding, slicesByService } from '../shadow/forwarding.ts';
import type { Explanation } from './explain.ts';
import { worstVerdict } from './explain-pair.ts';
import type { Finding } from './findings.ts';
import { catalogue, isWorse } from './findings.ts';
import type { Ledger } from './ledger.ts';
import { fateText } from './node.ts';
import type { NodeVerdict } from './port-verdicts.ts';
import { probesOf, senderOf } from './probes.ts';
import type { Reason } from './reason.ts';
import { counted, reason, unknownText } from './reason.ts';
import type { Sight, Verdict } from './verdict.ts';
import type { WalkedPort } from './walked.ts';

/** What is known of the rules of nodes. */
export interface NodeLook {
  /** null: nothing is told of that node. */
  verdicts(node: string): readonly NodeVerdict[] | null;
  /** Packets of a Service port through its rules; null: these are not known. */
  walked(node: string, service: Key, port: string): readonly WalkedPort[] | null;
}

/** Nothing is known of any node. */
export const noLook: NodeLook = { verdicts: () => null, walked: () => null };

interface Asked {
  readonly node: string;
  readonly service: Key;
  readonly port: string | null;
}

type Explained = Omit<Explanation, 'subject' | 'found'>;

/** Explains a Service that exists on a Node that may; `port` is the name of one of its ports. */
export function explainNode(
  context: Sight,
  ledger: Ledger,
  asked: Asked,
  look: NodeLook,
): Explained {
  const { node: name, service: key, port } = asked;
  const { snapshot } = context;
  const [service, node] = [snapshot.services.get(key), snapshot.nodes.get(name)];
  const what = `Service ${key}${port === null ? '' : `:${port}`}`;
  const names = service === undefined ? [] : namesOf(service, port);
  if (names.length === 0 || service === undefined) {
    const ports = service?.ports.map((one) => one.name || String(one.port)).join(', ') ?? '';
    const answer = `${what} has no such port; ports: ${ports || 'none'}`;
    return { verdict: null, severity: null, answer, change: null, reasons: [] };
  }
  const verdicts = verdictsOf(look.verdicts(name), names);
  const walked = names.map((one) => ({ port: one, packets: look.walked(name, key, one) }));
  const unknown = whyUnknown(look.verdicts(name), verdicts);
  const findings = findingsAt(ledger, name, key);
  const [worst] = findings;
  const verdict = verdicts.length === 0 ? 'unknown' : worstVerdict(verdicts.map((v) => v.verdict));
  const reasons = [
    ...walked.flatMap(({ port: of, packets }) =>
      packets === null
        ? expectedReasons(context, service, node, of)
        : packetReasons(of, packets, port !== null),
    ),
    ...findings.map(findingReason),
  ];
  if (unknown !== null) reasons.unshift(reason('unknown', unknown, { object: `Node ${name}` }));
  return {
    verdict,
    severity: worst?.severity ?? null,
    answer: answerOf(what, name, verdict, unknown, worst),
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
function findingsAt({ settle }: Ledger, node: string, service: Key): Finding[] {
  return settle
    .open()
    .filter((one) => one.node === node)
    .filter((one) => one.service === '' || `${one.namespace}/${one.service}` === service)
    .sort(
      (a, b) => Number(isWorse(b.severity, a.severity)) - Number(isWorse(a.severity, b.severity)),
    );
}

function findingReason({ code, object, expected, actual, since }: Finding): Reason {
  const { title, remedy, upstream } = catalogue[code];
  const sides = [
    ...(expected === null ? [] : [reason('note', `expected: ${expected}`)]),
    reason('note', `found: ${actual ?? 'nothing'}`),
  ];
  return reason('no', `${title} (${code})`, {
    object,
    field: 'rules',
    source: upstream,
    change: remedy,
    since,
    parts: sides,
  });
}

/** Rules of one packet in a tree that is to be read at once. */
const mostRules = 8;

const marks = { conform: 'yes', different: 'no', unknown: 'unknown' } as const;

/** `isFull`: rules are told where all is as it must be, too. */
function packetReasons(port: string, packets: readonly WalkedPort[], isFull: boolean): Reason[] {
  if (packets.length === 0) return [reason('note', `${port} is not served there`)];
  return packets.map(({ kind, frontend, origin, verdict, expected, actual, rules, unknown }) => {
    const parts = [
      reason('note', `expected: ${expected}`),
      ...(verdict === 'conform' ? [] : [reason('note', `found: ${actual}`)]),
      ...unknown.map((text) => reason('unknown', text)),
    ];
    const met = rules.slice(0, mostRules).map((rule) => reason('note', rule));
    const more = rules.length - met.length;
    if (more > 0) {
      met.push(reason('note', `and ${String(more)} more rules, which the page of the node shows`));
    }
    if ((isFull || verdict !== 'conform') && met.length > 0) {
      parts.push(reason('note', `rules met: ${counted(rules.length, 'rule')}`, { parts: met }));
    }
    const text = `${port} at ${frontend} (${kind}), from ${origin}: ${verdict}`;
    return reason(marks[verdict], text, { parts });
  });
}

/** What must be forwarded where nobody knows what is; kube-proxy's mode and flags are guessed. */
function expectedReasons(
  { snapshot, release }: Sight,
  service: Service,
  node: Node | undefined,
  name: string,
): Reason[] {
  if (node === undefined) return [];
  const own = [...snapshot.slices.values()].filter(
    ({ namespace }) => namespace === service.namespace,
  );
  const config = defaultProxyConfig('iptables', release.minor);
  const slices = slicesByService(own);
  const forwarding = expectedForwarding([service], slices, node, config, node.addresses);
  const sender = senderOf(forwarding, node);
  return forwarding.frontends
    .filter(({ port }) => port.name === name)
    .flatMap((frontend) => {
      const [probe] = probesOf(sender, frontend);
      if (probe === undefined) return [];
      const { fates } = forwarding.expect(probe.packet);
      const at = `${frontend.address}:${String(frontend.dport)}/${frontend.protocol}`;
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

// Explains what kube-proxy must do on a node with packets to a Service, and what the rules do.
// Without rules, it explains what kube-proxy with default flags must do.

import { canonicalIP, ipOf, joinHostPort } from '../../model/ip.ts';
import type { Key, Listers, Service } from '../../model/objects.ts';
import { defaultProxyConfig } from '../../model/proxy-config.ts';
import { expectedForwarding, slicesByService } from '../../shadow/forwarding.ts';
import { bySeverity, catalogue, type Finding } from '../finding/catalogue.ts';
import { unknownText } from '../finding/verdicts.ts';
import type { PacketTrace } from '../node/audit-node.ts';
import { expectedText } from '../node/compare-packet.ts';
import type { NodeVerdict } from '../node/node-state.ts';
import { probeSender, probesOf } from '../node/probes.ts';
import type { ServiceAuditor } from '../service/auditor.ts';
import type { VerdictInput } from '../service/verdict.ts';
import { sideNotes } from './differences.ts';
import type { ExplainTarget, ExplanationBody, Reason } from './explanation.ts';
import { counted, fewOf, firstReasons, markOf, note, reason, worstVerdict } from './explanation.ts';

export interface NodeLookup {
  /** null if nothing is known of the node. */
  verdicts(node: string): readonly NodeVerdict[] | null;
  /** Packets to a Service port, walked through the rules; null if these are unknown. */
  walked(node: string, service: Key, port: string): readonly PacketTrace[] | null;
}

/** Explains an existing Service on a node. */
export function explainNode(
  context: VerdictInput,
  serviceAuditor: ServiceAuditor,
  { node: name, service: key, port }: Extract<ExplainTarget, { kind: 'node' }>,
  lookup: NodeLookup | null,
): ExplanationBody {
  const service = context.listers.services.get(key);
  const what = `Service ${key}${port === null ? '' : `:${port}`}`;
  const names = service === undefined ? [] : portNames(service, port);
  if (names.length === 0 || service === undefined) {
    const ports = (service?.ports ?? []).map((known) => known.name || known.port).join(', ');
    const answer = `${what} has no such port; ports: ${ports || 'none'}`;
    return { verdict: null, severity: null, answer, change: null, reasons: [] };
  }
  const all = lookup?.verdicts(name) ?? null;
  const verdicts = (all ?? []).filter(
    (item) => item.port === '' || names.includes(item.port.split(' ')[0] ?? ''),
  );
  const walked = names.map((portName) => {
    const packets = lookup?.walked(name, key, portName);
    return { portName, groups: packets ? groupPackets(context.listers, packets) : null };
  });
  const isWalked = walked.some(({ groups }) => groups !== null);
  const unknown = whyUnknown(all, verdicts);
  const findings = findingsAt(serviceAuditor, name, key);
  const [worst] = findings;
  const verdict = worstVerdict(verdicts.map((item) => item.verdict)) ?? 'unknown';
  const wrong = walked.flatMap(({ groups }) => groups ?? []).flatMap((group) => group.wrong)[0];
  return {
    verdict,
    severity: worst?.severity ?? null,
    answer: answerOf(what, name, verdict, unknown, worst) + (wrong ? `: ${wrong}` : ''),
    change: worst === undefined ? null : catalogue[worst.code].remedy,
    reasons: [
      ...(unknown === null ? [] : [reason('unknown', unknown, { object: `Node ${name}` })]),
      ...walked.flatMap(({ portName, groups }) =>
        groups === null
          ? expectedReasons(context, serviceAuditor, service, name, portName)
          : packetReasons(portName, groups, port !== null),
      ),
      ...findings.map((finding) => findingReason(finding, isWalked)),
    ],
  };
}

const portNames = ({ key, ports }: Service, port: string | null): string[] =>
  ports
    .filter((known) => port === null || known.name === port || String(known.port) === port)
    .map(({ name }) => (name === '' ? key : `${key}:${name}`));

function whyUnknown(
  all: readonly NodeVerdict[] | null,
  verdicts: readonly NodeVerdict[],
): string | null {
  if (all === null) return unknownText['rules-not-known'];
  const found = verdicts.find(({ verdict }) => verdict === 'unknown')?.reason ?? null;
  if (found !== null) return unknownText[found];
  return verdicts.length === 0 ? 'nothing is to be forwarded for it there' : null;
}

const findingsAt = ({ settle }: ServiceAuditor, node: string, key: Key): Finding[] =>
  settle
    .open()
    .filter((finding) => finding.node === node)
    .filter(({ service, namespace }) => service === '' || `${namespace}/${service}` === key)
    .sort(bySeverity);

/** `isWalked`: the reasons of packets already contain what is expected and found. */
function findingReason(finding: Finding, isWalked: boolean): Reason {
  const { code, node, service, object, since } = finding;
  const { title, meaning, remedy, upstream } = catalogue[code];
  const start = `Node ${node ?? ''}`;
  const ports = object.replace(`${start}: `, '');
  const parts = [
    note(meaning),
    ...(service === '' ? [note(`it concerns Service ports ${ports}`)] : []),
    ...(isWalked ? [] : sideNotes(finding)),
  ];
  const details = { object: start, field: 'rules', source: upstream, change: remedy, since, parts };
  return reason('no', `${title} (${code})`, details);
}

type PacketGroup = ReturnType<typeof groupPackets>[number];

function groupPackets(listers: Listers, packets: readonly PacketTrace[]) {
  const isConform = ({ verdict }: PacketTrace): number => Number(verdict === 'conform');
  const compared = packets
    .toSorted((a, b) => isConform(a) - isConform(b))
    .map((first) => ({ first, wrong: wrongEndpoints(listers, first) }));
  const groups = Map.groupBy(compared, ({ first, wrong }) => {
    const { kind, frontend, verdict, unknown, actual } = first;
    const outcome = verdict === 'different' && wrong.length === 0 ? actual : '';
    return [kind, frontend, verdict, outcome, ...wrong, ...unknown].join('\n');
  });
  return [...groups.values()].flatMap((group) => {
    const origins = [...new Set(group.map(({ first }) => first.origin))];
    return group.slice(0, 1).map((packet) => ({ ...packet, origins }));
  });
}

function wrongEndpoints(listers: Listers, packet: PacketTrace): string[] {
  const { verdict, wanted, allowed, got } = packet;
  if (verdict === 'conform') return [];
  const missed = wanted.filter((endpoint) => !got.includes(endpoint));
  const stray = got.filter((endpoint) => !allowed.includes(endpoint));
  const named = (endpoints: readonly string[]): string => {
    const texts = endpoints.map((endpoint) => {
      const [pod] = listers.podsAt(canonicalIP(ipOf(endpoint)));
      return `${endpoint} ${pod === undefined ? '(of no pod)' : `(Pod ${pod.key})`}`;
    });
    return fewOf(texts, 5);
  };
  const isNone = missed.length > 1 && missed.length === wanted.length;
  const some = missed.length === 0 ? [] : [`it never comes to ${named(missed)}`];
  return [
    ...(isNone ? [`it comes to none of its ${wanted.length} endpoints`] : some),
    ...(stray.length > 0 ? [`it comes to what is no endpoint: ${named(stray)}`] : []),
  ];
}

/** `isFull`: the rules of conform packets are shown if no packet differs. */
function packetReasons(port: string, groups: readonly PacketGroup[], isFull: boolean): Reason[] {
  if (groups.length === 0) return [note(`${port} is not served there`)];
  const isBrief = !isFull || groups.some(({ first }) => first.verdict !== 'conform');
  return groups.map(({ first, origins, wrong }) => {
    const { kind, frontend, verdict, expected, actual, unknown } = first;
    const text = `${port} at ${frontend} (${kind}), from ${origins.join(', ')}: ${verdict}`;
    if (verdict === 'conform' && isBrief) return reason('yes', text);
    const parts = [
      ...wrong.map((problem) => reason('no', problem)),
      note(`expected: ${expected}`),
      ...(verdict === 'conform' ? [] : [note(`found: ${actual}`)]),
      ...unknown.map((rule) => reason('unknown', rule)),
      ...rulesReasons(first, origins.length),
    ];
    return reason(markOf(verdict), text, { parts });
  });
}

function rulesReasons({ rules, origin }: PacketTrace, origins: number): Reason[] {
  if (rules.length === 0) return [];
  const countText = (rest: number): string =>
    `${rest} more rules, which the page of the node shows`;
  const parts = firstReasons(rules, 8, (rule) => note(rule), countText);
  const from = origins > 1 ? `, from ${origin}` : '';
  return [note(`rules met${from}: ${counted(rules.length, 'rule')}`, { parts })];
}

function expectedReasons(
  { release, listers }: VerdictInput,
  { audited }: ServiceAuditor,
  service: Service,
  nodeName: string,
  portName: string,
): Reason[] {
  const node = listers.nodes.get(nodeName);
  if (node === undefined) return [];
  const config = defaultProxyConfig('iptables', node.kubeletMinor ?? release.minor);
  const slices = slicesByService(audited.get(service.key)?.record.slices ?? []);
  const forwarding = expectedForwarding([service], slices, node, config, node.addresses);
  const sender = probeSender(forwarding, node);
  const frontends = forwarding.frontends.filter(({ port }) => port.name === portName);
  return frontends.flatMap((frontend) => {
    const { address, dport, protocol, kind } = frontend;
    const [probe] = probesOf(sender, frontend);
    if (probe === undefined) return [];
    const outcomes = forwarding.expect(probe.packet).outcomes.map(expectedText).join(' or ');
    const text =
      `${portName} at ${joinHostPort(address, dport)}/${protocol} (${kind}), ` +
      `from ${probe.origin}, is expected to go to: ${outcomes}`;
    return [note(text, { source: 'pkg/proxy/iptables/proxier.go syncProxyRules' })];
  });
}

function answerOf(
  what: string,
  node: string,
  verdict: NodeVerdict['verdict'],
  unknown: string | null,
  worst: Finding | undefined,
): string {
  if (verdict === 'unknown') {
    const why = unknown ?? 'nothing is known of it';
    return `What Node ${node} does with ${what} cannot be told: ${why}`;
  }
  if (verdict === 'conform') return `Node ${node} forwards ${what} as it must`;
  const why = worst ? `: ${catalogue[worst.code].title}` : ', as its rules last were';
  return `Node ${node} does not forward ${what} as it must${why}`;
}

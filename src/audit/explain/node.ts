// Explains what kube-proxy should do on a node with packets to a Service, and what the rules do.
// Without rules, it explains what kube-proxy with default flags should do.

import { canonicalIP, ipOf, joinHostPort } from '../../model/ip.ts';
import type { Key, Listers, Service } from '../../model/objects.ts';
import { defaultProxyConfig, type ProxyConfig } from '../../model/proxy-config.ts';
import { isHeadless } from '../../shadow/endpoints.ts';
import { expectedForwarding, slicesByService } from '../../shadow/forwarding.ts';
import { bySeverity, catalogue, type Finding, type Severity } from '../finding/catalogue.ts';
import { suppressedLast } from '../finding/suppressions.ts';
import { unknownText, verdictWords, worstVerdict } from '../finding/verdicts.ts';
import { packetDetails } from '../node/aggregate.ts';
import type { PacketTrace } from '../node/audit-node.ts';
import { expectedText } from '../node/compare-packet.ts';
import type { NodeVerdict } from '../node/node-state.ts';
import { probeSender, probesOf } from '../node/probes.ts';
import type { ServiceAuditor } from '../service/auditor.ts';
import type { VerdictInput } from '../service/verdict.ts';
import { detailsPart, nodeFindingReason, suppressedNotes } from './differences.ts';
import type { ExplainResult, Reason } from './explanation.ts';
import { counted, fewOf, firstReasons, markOf, note, notFound, reason } from './explanation.ts';

export interface NodeLookup {
  /** Of the nodes whose rules are known. */
  readonly verdicts: ReadonlyMap<string, readonly NodeVerdict[]>;
  /** Packets to a Service port, traced through the rules; null if these are unknown. */
  walked(node: string, service: Key, port: string): readonly PacketTrace[] | null;
  /** The age of its rules in seconds, and how kube-proxy is configured; null if unknown. */
  reading(node: string): { readonly age: number | null; readonly proxy: ProxyConfig | null };
}

/** Explains an existing Service on a node. */
export function explainNode(
  context: VerdictInput,
  serviceAuditor: ServiceAuditor,
  { node: name, service: key, port }: { node: string; service: Key; port: string | null },
  lookup: NodeLookup | null,
): ExplainResult {
  const service = context.listers.services.get(key);
  const what = `Service ${key}${port === null ? '' : `:${port}`}`;
  const names = service === undefined ? [] : portNames(service, port);
  const isUnknown = port !== null && names.length === 0;
  const findings = findingsAt(serviceAuditor, name, key);
  // Rules may be left from before it was so.
  const isLeft = findings.some((finding) => finding.service !== '');
  const nothing = service === undefined || isLeft ? null : whyNothing(service);
  if (nothing !== null && !isUnknown) {
    const answer = `Nodes forward nothing for ${what}: ${nothing}`;
    return { ...notFound(answer), found: true };
  }
  if (names.length === 0 || service === undefined) {
    const ports = (service?.ports ?? []).map((known) => known.name || known.port).join(', ');
    return notFound(`${what} has no such port; ports: ${ports || 'none'}`);
  }
  const all = lookup?.verdicts.get(name) ?? null;
  const verdicts = (all ?? []).filter(
    (item) => item.port === '' || names.includes(item.port.split(' ')[0] ?? ''),
  );
  const walked = names.map((portName) => {
    const packets = lookup?.walked(name, key, portName);
    return { portName, groups: packets ? groupPackets(context.listers, packets) : null };
  });
  const isWalked = walked.some(({ groups }) => groups !== null);
  const unknown = whyUnknown(all, verdicts);
  const [worst] = findings;
  const verdict = worstVerdict(verdicts.map((item) => item.verdict)) ?? 'unknown';
  const wrong = walked.flatMap(({ groups }) => groups ?? []).flatMap((group) => group.wrong)[0];
  return {
    found: true,
    verdict,
    severity: severityOfWorst(worst),
    answer: answerOf(what, name, verdict, unknown, worst) + (wrong ? `: ${wrong}` : ''),
    change: worst === undefined ? null : catalogue[worst.code].remedy,
    reasons: [
      ...(unknown === null ? [] : [reason('unknown', unknown, { object: `Node ${name}` })]),
      ...walked.flatMap(({ portName, groups }) =>
        groups === null
          ? expectedReasons(context, serviceAuditor, service, name, portName)
          : packetReasons(context, name, portName, groups, port !== null),
      ),
      ...findings.flatMap((finding) => [
        nodeFindingReason(finding, !isWalked),
        ...suppressedNotes(finding),
      ]),
    ],
  };
}

/** Why no kube-proxy has rules for a Service (shadow/service-port.ts); null if it has. */
function whyNothing(service: Service): string | null {
  if (service.type === 'ExternalName') return 'it is an alias in DNS (ExternalName)';
  return isHeadless(service) ? 'it is headless, so clients connect to its pods' : null;
}

const portNames = ({ key, ports }: Service, port: string | null): string[] =>
  ports
    .filter((known) => port === null || known.name === port || String(known.port) === port)
    .map(({ name }) => (name === '' ? key : `${key}:${name}`));

/** Why the forwarding is unknown, or '' for nothing to forward; null if it is known. */
export function whyUnknown(
  all: readonly NodeVerdict[] | null,
  verdicts: readonly NodeVerdict[],
): string | null {
  if (all === null) return unknownText['rules-not-known'];
  const found = verdicts.find(({ verdict }) => verdict === 'unknown')?.reason ?? null;
  if (found !== null) return unknownText[found];
  return verdicts.length === 0 ? 'the node forwards nothing for it' : null;
}

/** The open findings on a node, of all Services or about one: worst first, suppressed ones last. */
export const findingsAt = ({ settle }: ServiceAuditor, node: string, key: Key | null): Finding[] =>
  settle
    .open()
    .filter((finding) => finding.node === node)
    .filter(
      ({ service, namespace }) =>
        key === null || service === '' || `${namespace}/${service}` === key,
    )
    .sort((a, b) => suppressedLast(a, b) || bySeverity(a, b));

/** The severity of the worst of such findings; null if all are suppressed. */
export const severityOfWorst = (worst: Finding | undefined): Severity | null =>
  worst === undefined || worst.suppressed !== null ? null : worst.severity;

export type PacketGroup = ReturnType<typeof groupPackets>[number];

/** Groups packets with equal outcomes, those that differ first, with their wrong endpoints. */
export function groupPackets(listers: Listers, packets: readonly PacketTrace[]) {
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
      return `${endpoint} ${pod === undefined ? '(no pod has it)' : `(Pod ${pod.key})`}`;
    });
    return fewOf(texts, 5);
  };
  const isNone = missed.length > 1 && missed.length === wanted.length;
  const some = missed.length === 0 ? [] : [`connections never reach ${named(missed)}`];
  return [
    ...(isNone ? [`connections reach none of its ${wanted.length} endpoints`] : some),
    ...(stray.length > 0
      ? [`connections reach an address that is not an endpoint: ${named(stray)}`]
      : []),
  ];
}

/** `isFull`: the rules of conform packets are shown if no packet differs. */
function packetReasons(
  { listers }: VerdictInput,
  node: string,
  port: string,
  groups: readonly PacketGroup[],
  isFull: boolean,
): Reason[] {
  if (groups.length === 0) return [note(`the node should serve no address of ${port}`)];
  const isBrief = !isFull || groups.some(({ first }) => first.verdict !== 'conform');
  return groups.map(({ first, origins, wrong }) => {
    const { kind, frontend, verdict, expected, actual, unknown } = first;
    const podAt = (ip: string): string | null => listers.podsAt(canonicalIP(ip))[0]?.key ?? null;
    // The text of the reason names the place.
    const details = packetDetails(node, first.differences, podAt).map((detail) => {
      return { ...detail, field: 'outcome' };
    });
    const { differences, parts: more } = detailsPart(details);
    const from = `${port} at ${frontend} (${kind}), from ${origins.join(', ')}`;
    const text = `${from}: ${verdictWords[verdict]}`;
    if (verdict === 'conform' && isBrief) return reason('yes', text);
    const parts = [
      ...wrong.map((problem) => reason('no', problem)),
      ...more,
      ...(verdict === 'different' ? [] : [note(`expected: ${expected}`)]),
      ...(verdict === 'unknown' ? [note(`found: ${actual}`)] : []),
      ...unknown.map((rule) => reason('unknown', rule)),
      ...rulesReasons(first, origins.length),
    ];
    return reason(markOf(verdict), text, { differences, parts });
  });
}

function rulesReasons({ rules, origin }: PacketTrace, origins: number): Reason[] {
  if (rules.length === 0) return [];
  const countText = (rest: number): string =>
    `${counted(rest, 'more rule')}, which the page of the node shows`;
  const parts = firstReasons(rules, 8, (rule) => note(rule), countText);
  const from = origins > 1 ? `, from ${origin}` : '';
  return [note(`rules that the packet matches${from}: ${rules.length}`, { parts })];
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
    const why = unknown ?? 'nothing is known of its rules';
    return `It is unknown how Node ${node} forwards ${what}: ${why}`;
  }
  if (verdict === 'conform') return `Node ${node} forwards ${what} correctly`;
  const why = worst ? `: ${catalogue[worst.code].title}` : ', by the last rules that were read';
  return `Node ${node} does not forward ${what} correctly${why}`;
}

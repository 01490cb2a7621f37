// Audits one node: walks probe packets through its rules and lists where the outcomes differ. The
// packets go to every frontend that kube-proxy must serve, and to frontends of the rules and node
// ports that no Service has, for which its rules must do nothing.

import { ipOf, joinHostPort, parseNetwork } from '../../model/ip.ts';
import type { Packet } from '../../model/proxy-config.ts';
import { runToEnd, type Steps } from '../../model/run-to-end.ts';
import type { RuleFrontend } from '../../rules/report/frontends.ts';
import type { OutcomeShare, PacketOutcome } from '../../rules/walk/walk.ts';
import type { Forwarding, Frontend } from '../../shadow/forwarding.ts';
import type { ProxiedPort } from '../../shadow/service-port.ts';
import type { Code } from '../finding/catalogue.ts';
import type { Coverage, PacketDifference, PacketDifferences } from './packet-difference.ts';
import type { Deviation } from './compare-packet.ts';
import {
  allowedMasquerade,
  checkedClusterIPs,
  comparePacket,
  expectedText,
  hasAny,
  isForeignRuleAbout,
  isKubernetesRule,
  listText,
  onlyValue,
  outcomeText,
  policyRule,
  rounding,
  sidesOf,
} from './compare-packet.ts';
import { effectsOn, isForeign, isTranslated } from './node-wide.ts';
import { addImpact, impactOfNode, impactOfPacket, type ImpactSums } from './packet-impact.ts';
import type { NodeInput } from './observation.ts';
import type { Probe } from './probes.ts';
import { coverageOf, probeSender, probesOf, rangeProbes, strayProbes } from './probes.ts';

const newProgress = ({ forwarding, node, rules }: NodeInput) => ({
  ...probeSender(forwarding, node, rules.sourceRangesAt),
  rules,
  mode: forwarding.config.mode,
  mayMasquerade: allowedMasquerade(forwarding, node),
  isCheckedClusterIP: checkedClusterIPs(forwarding, node),
  differences: [] as PacketDifference[],
  /** Keys of Service ports. */
  unknown: new Set<string>(),
  doubtful: new Set<Frontend>(),
  impacts: new Map() as ImpactSums,
});

type Progress = ReturnType<typeof newProgress>;

/** What the rules do otherwise than an earlier state of some Services expected. */
export function differencesFrom(earlier: NodeInput): PacketDifferences {
  const progress = newProgress(earlier);
  runToEnd(probeFrontends(progress, false));
  return progress.differences;
}

/** Whether the rules do what an earlier state expected; unknown counts as no. */
export function isServedAsExpected(earlier: NodeInput): boolean {
  const progress = newProgress(earlier);
  const { unknown, differences } = progress;
  const steps = probeFrontends(progress, false);
  while (steps.next().done !== true) {
    if (unknown.size > 0 || differences.some(({ harmless }) => !harmless)) return false;
  }
  return true;
}

/** The coverage is empty without differences. */
export type NodeAudit = ReturnType<typeof auditNode>;

/** Audits a node without interruption; the cost grows with the number of frontends. */
export const auditNode = (input: NodeInput) => runToEnd(auditNodeInSteps(input));

export function* auditNodeInSteps(input: NodeInput) {
  const progress = newProgress(input);
  const { differences, unknown, doubtful } = progress;
  yield* probeFrontends(progress, true);
  yield* probeUnexpected(progress);
  probeBackends(progress);
  const coverage: Coverage = differences.length === 0 ? new Map() : yield* coverageOf(progress);
  const impact = impactOfNode(progress.impacts, progress);
  return { differences, coverage, unknown, doubtful, impact };
}

function* probeFrontends(progress: Progress, isCurrent: boolean): Steps {
  const { forwarding, rules } = progress;
  for (const frontend of forwarding.frontends) {
    yield;
    if (rules.isKnownToServe?.(forwarding, frontend) === true) continue;
    // No digest covers source ranges.
    const probes = rules.report?.isKnownToServe(forwarding, frontend, isCurrent)
      ? rangeProbes(progress, frontend)
      : [...probesOf(progress, frontend), ...strayProbes(progress, frontend)];
    for (const probe of probes) {
      probeFrontend(progress, frontend, probe);
      yield;
    }
  }
}

type TestedPacket = NonNullable<ReturnType<typeof testPacket>>;

/** Walks a packet and compares its outcome; null if the agent has not walked it. */
function testPacket(progress: Progress, { packet, origin }: Probe) {
  const { outcomes: expected } = progress.forwarding.expect(packet);
  const outcome = progress.rules.walk(packet);
  if (outcome === null) return null;
  const texts = () => ({
    frontend: `${joinHostPort(packet.dst, packet.dport)}/${packet.protocol}`,
    origin,
    expected: expected.map(expectedText).join(' or '),
    actual: outcomeText(outcome),
  });
  const comparison = comparePacket(expected, outcome, packet, progress);
  return { packet, expected, outcome, texts, ...comparison };
}

function probeFrontend(progress: Progress, frontend: Frontend, probe: Probe): void {
  const { port } = frontend;
  const tested = testPacket(progress, probe);
  if (tested === null || tested.verdict === 'unknown') progress.unknown.add(port.key);
  if (tested?.verdict === 'unknown') progress.doubtful.add(frontend);
  if (tested === null) return;
  const found = differencesOf(frontend, tested);
  progress.differences.push(...found);
  const isHarmed = found.some((it) => !it.harmless && !it.properties.includes('stray'));
  if (isHarmed && tested.want !== null) {
    addImpact(progress.impacts, port, impactOfPacket(tested.want, tested.outcome));
  }
}

/** None if the outcome is as expected, or unknown. */
function differencesOf(frontend: Frontend, tested: TestedPacket): PacketDifference[] {
  const { port, kind } = frontend;
  if (tested.verdict !== 'different') return [];
  const { packet, want, outcome, deviations } = tested;
  const texts = tested.texts();
  const isLocal = isAnsweredByNode(tested);
  const policies = policyEffects(tested);
  const isStray = packet.dport !== frontend.dport || packet.protocol !== frontend.protocol;
  const effectOf = effectsOn(want, outcome, deviations);
  return deviations.map((deviation) => {
    const { endpoint, step } = deviation;
    const policy = policies?.kinds.has(deviation.kind) === true ? policies : null;
    const isIntended = policy?.isIntended ?? isHarmless(deviation, frontend, tested);
    const { effect, properties } = effectOf(deviation);
    return {
      ...texts,
      code: policy ? 'node-endpoint-blocked' : codeOf(deviation, tested, port),
      key: [texts.frontend, texts.origin, deviation.kind, endpoint ?? []].flat().join(' '),
      port,
      kind,
      endpoint,
      sides: sidesOf(deviation, want, outcome),
      effect: policy?.rule ?? effect,
      properties: isStray ? ['stray'] : properties,
      rule: step?.rule.text ?? policy?.rule ?? null,
      untranslated: isUnreachable(outcome) && !isTranslated(outcome),
      harmless: isLocal || isIntended,
    };
  });
}

/** Whether a rule for the node itself disables conntrack, as with NodeLocal DNSCache. */
function isAnsweredByNode({ packet, outcome }: TestedPacket): boolean {
  const { destinations, pass, drop, reject } = outcome;
  if (destinations.size > 0 || !isPassed(outcome, drop, reject)) return false;
  const steps = pass.trace().filter((step) => isForeignRuleAbout(step, packet.dst));
  return steps.some(
    (step) => hasAny(step, ['notrack']) && onlyValue(step, 'destination port') === packet.dport,
  );
}

const isPassed = ({ pass, unknown }: PacketOutcome, ...stops: readonly OutcomeShare[]): boolean =>
  pass.probability > 0 && (unknown.length > 0 || stops.every((stop) => stop.probability === 0));

/**
 * If another program accepts packets to a node port without endpoints, the kernel refuses them. If
 * another program translates packets, it decides how endpoints reach themselves.
 */
function isHarmless(deviation: Deviation, frontend: Frontend, tested: TestedPacket): boolean {
  const { kind, endpoint, step } = deviation;
  const { packet, outcome } = tested;
  if (kind === 'not rejected') {
    if (frontend.kind !== 'node port' || !isPassed(outcome, outcome.drop)) return false;
    const steps = outcome.pass.trace().filter((it) => hasAny(it, ['accept', 'goto']));
    return !steps.every(isKubernetesRule);
  }
  if (kind !== 'not masqueraded' || step === null || isKubernetesRule(step)) return false;
  return ipOf(endpoint ?? '') === packet.src;
}

/** The deviations that network policies cause; null if another cause is possible. */
function policyEffects({ expected, outcome }: TestedPacket) {
  const { destinations, pass, reject, drop } = outcome;
  const stops = [reject, drop].filter(({ probability }) => probability > 0);
  const want = expected.find(({ kind }) => kind === 'endpoints');
  if (want?.kind !== 'endpoints' || pass.probability > 0) return null;
  const { endpoints } = want;
  const ips = new Set([...endpoints.keys()].map(ipOf));
  const steps = stops.flatMap((stop) => policyRule(stop, ips) ?? []);
  const [first] = steps;
  if (first === undefined || steps.length < stops.length) return null;
  const isEven = [...destinations].every(
    ([endpoint, { probability }]) =>
      endpoints.has(endpoint) && Math.abs(probability - 1 / endpoints.size) < rounding,
  );
  return {
    kinds: new Set<string>(isEven ? ['reject', 'drop', 'missing'] : ['reject', 'drop']),
    rule: first.rule.text,
    // Chains of kube-router and Calico for network policies.
    isIntended: steps.every(({ chain }) => /^(?:KUBE-(?:ROUTER|POD-FW|NWPLCY)|cali)-/.test(chain)),
  };
}

const codes: Readonly<Partial<Record<Deviation['kind'], Code>>> = {
  shadowed: 'node-foreign-rule',
  share: 'node-share-different',
  'not masqueraded': 'node-masquerade-missing',
  affinity: 'node-affinity-different',
  'not rejected': 'node-reject-missing',
  'not dropped': 'node-reject-missing',
  masqueraded: 'node-masquerade-unexpected',
};

function codeOf(deviation: Deviation, { expected, outcome }: TestedPacket, port: ProxiedPort) {
  const { kind, endpoint } = deviation;
  if (isForeign(deviation)) return 'node-foreign-rule';
  if (kind === 'unexpected') {
    const listed = (port.usable() ?? []).flatMap(({ all }) => all.map(({ text }) => text));
    return listed.includes(endpoint ?? '') ? 'node-policy-different' : 'node-endpoint-unexpected';
  }
  const isStop =
    isUnreachable(outcome) || (kind !== 'missing' && expected.some((it) => it.kind === 'pass'));
  const stopped =
    outcome.pass.probability > 0.5 ? 'node-frontend-missing' : 'node-frontend-blocked';
  return codes[kind] ?? (isStop ? stopped : 'node-endpoint-missing');
}

const isUnreachable = ({ destinations, pass, drop, reject }: PacketOutcome): boolean =>
  destinations.size === 0 ||
  pass.probability + drop.probability + reject.probability >= 1 - rounding;

/** Finds frontends that two tables translate. The dump does not show which table is first. */
function probeBackends({ forwarding, rules, differences }: Progress): void {
  const places = rules.frontends.flatMap((it) => {
    if (it.address === null || it.translators < 2) return [];
    const { frontend } = forwarding.expect(packetTo(it.address, it));
    const place = `${joinHostPort(it.address, it.port)}/${it.protocol}`;
    return frontend === null ? [] : `${frontend.port.name} at ${place}`;
  });
  if (places.length === 0) return;
  differences.push({
    code: 'node-backends-both',
    port: null,
    frontend: listText(places),
    key: 'several tables',
    kind: 'none',
    endpoint: null,
    sides: null,
    origin: '',
    effect: '',
    properties: [],
    expected: 'one table',
    actual: 'several tables',
    rule: null,
    harmless: false,
  });
}

function* probeUnexpected(progress: Progress): Steps {
  const { forwarding, rules, sources } = progress;
  const { node } = forwarding;
  const isExpected = (dst: string, frontend: RuleFrontend): boolean =>
    forwarding.expect(packetTo(dst, frontend)).frontend !== null;
  const candidates: (readonly [RuleFrontend, string])[] = [];
  for (const frontend of rules.frontends) {
    const dst = frontend.address ?? node.nodeIP[familyOf(frontend)];
    if (!isExpected(dst, frontend)) candidates.push([frontend, dst]);
    yield;
  }
  // One rule decides which addresses have node ports, so one port for each family is enough.
  for (const family of ['IPv4', 'IPv6'] as const) {
    let frontend: RuleFrontend | undefined;
    for (const one of rules.frontends) {
      const isOfNode = one.address === null && familyOf(one) === family;
      if (isOfNode && isExpected(node.nodeIP[family], one)) frontend = one;
      if (frontend !== undefined) break;
      yield;
    }
    if (frontend === undefined) continue;
    const local = rules.localAddresses.filter((ip) => ip.includes(':') === (family === 'IPv6'));
    for (const dst of [...local, sources[family].outside]) {
      if (!node.servesNodePorts(dst) || !node.isLocal(dst)) candidates.push([frontend, dst]);
    }
  }
  for (const [frontend, dst] of candidates) {
    probeUnserved(progress, frontend, dst);
    yield;
  }
}

const packetTo = (dst: string, { protocol, port: dport }: RuleFrontend): Packet => {
  return { from: 'outside', src: '', dst, protocol, dport };
};

function probeUnserved(progress: Progress, frontend: RuleFrontend, dst: string): void {
  const { forwarding, sources, differences } = progress;
  const { pod, outside } = sources[familyOf(frontend)];
  const origins = [
    ['pod', pod, 'a pod of the node'],
    ['outside', outside, 'outside the cluster'],
    ['node', forwarding.node.nodeIP[familyOf(frontend)], 'the node itself'],
  ] as const;
  for (const [from, src, origin] of origins) {
    if (src === null) continue;
    const packet = { ...packetTo(dst, frontend), from, src };
    // Cilium serves node ports at all addresses of the node, but not from outside.
    const isCilium = forwarding.config.mode === 'cilium';
    if (isCilium && forwarding.expect(packet).frontend !== null) continue;
    const tested = testPacket(progress, { packet, origin });
    if (tested === null || tested.outcome.unknown.length > 0) continue;
    const own = tested.deviations.find(({ step }) => step !== null && isKubernetesRule(step))?.step;
    if (!own) continue;
    const [destination = null] = tested.outcome.destinations.values();
    const ofClusterIP = forwarding.ports.find(({ clusterIP }) => clusterIP === dst);
    const texts = tested.texts();
    differences.push({
      ...texts,
      code: 'node-frontend-unexpected',
      port: ofClusterIP ?? (destination && portInRange(forwarding, frontend, destination)),
      key: `${texts.frontend} ${origin} claim`,
      kind: 'none',
      endpoint: null,
      sides: null,
      effect: 'claim',
      properties: ['endpoints'],
      rule: own.rule.text,
      harmless: destination === null,
    });
    return;
  }
}

/** The only Service port that a rule for a range of addresses includes; null if several are. */
function portInRange({ ports }: Forwarding, frontend: RuleFrontend, { trace }: OutcomeShare) {
  const statements = trace().flatMap(({ rule }) => rule.statements);
  const ranges = statements.flatMap((it) =>
    it.kind === 'field' && it.field === 'destination' && !it.negate ? it.ranges : [],
  );
  const [port = null, ...others] = ports.filter(({ clusterIP, port, protocol }) => {
    if (port !== frontend.port || protocol !== frontend.protocol) return false;
    const ip = parseNetwork(clusterIP)?.low;
    return ip !== undefined && ranges.some(({ low, high }) => low <= ip && ip <= high);
  });
  return others.length === 0 ? port : null;
}

const familyOf = ({ family }: RuleFrontend): 'IPv4' | 'IPv6' => (family === 'ip' ? 'IPv4' : 'IPv6');

export type PacketTrace = ReturnType<typeof tracePackets>[number];

/** Walks the packets of the port of that name; none if the node does not serve it. */
export function tracePackets(input: NodeInput, name: string) {
  const progress = newProgress(input);
  const frontends = input.forwarding.frontends.filter(({ port }) => port.name === name);
  return frontends.flatMap((frontend) =>
    probesOf(progress, frontend).flatMap((probe) => {
      const tested = testPacket(progress, probe);
      if (tested === null) return [];
      const { expected, outcome, verdict } = tested;
      const sets = expected.map((it) => new Map(it.kind === 'endpoints' ? it.endpoints : []));
      const allowed = [...new Set(sets.flatMap((set) => [...set.keys()]))];
      const reached = [...outcome.destinations].filter(([, { probability }]) => probability > 0);
      return {
        kind: frontend.kind,
        ...tested.texts(),
        verdict,
        /** Endpoints, `ip:port`, that every right outcome has, and that one of them has. */
        wanted: allowed.filter((endpoint) => sets.every((set) => set.has(endpoint))),
        allowed,
        got: reached.map(([endpoint]) => endpoint),
        differences: differencesOf(frontend, tested),
        rules: decidingRules(outcome),
        /** Rules that decide about it and that the walk could not evaluate. */
        unknown: outcome.unknown.map(({ reason, rule }) => `${reason}: ${rule}`),
      };
    }),
  );
}

function decidingRules({ destinations, reject, drop, pass }: PacketOutcome): string[] {
  const ends = [...destinations.values(), reject, drop, pass];
  const steps = ends.flatMap((end) => (end.probability === 0 ? [] : end.trace()));
  const texts = steps.map(({ rule, base }) =>
    base.table.source === 'iptables' ? `-t ${base.table.name} ${rule.text}` : rule.text,
  );
  const rules = [...new Set(texts)];
  const more = rules.length - 40;
  return more > 0 ? [...rules.slice(0, 40), `and ${more} more`] : rules;
}

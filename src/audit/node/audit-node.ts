// One node: every frontend that kube-proxy must serve there is asked for from everywhere that makes
// a difference, by walking packets through the rules that stand, and so is everything that the
// rules answer for and no Service claims. What differs is rolled up into findings (rollup.ts).
//
// Not evidence: names of chains, comments, and rules that no packet meets. Whose a rule is, and
// what others may do, foreign.ts says.

import { canonicalIP, ipOf, joinHostPort } from '../../model/ip.ts';
import type { RuleFrontend } from '../../rules/report/frontends.ts';
import { frontendsInRules } from '../../rules/report/frontends.ts';
import type { RuleSet } from '../../rules/ruleset.ts';
import type { TraceStep } from '../../rules/walk/match.ts';
import type { NodeContext, PacketOutcome } from '../../rules/walk/walk.ts';
import { walk } from '../../rules/walk/walk.ts';
import type { ExpectedOutcome, Frontend } from '../../shadow/forwarding.ts';
import type { ProxiedPort } from '../../shadow/service-port.ts';
import type { Code } from '../finding/catalogue.ts';
import { catalogue } from '../finding/catalogue.ts';
import type { Coverage, TranslationCounts, NodeFinding, PacketDifference } from './aggregate.ts';
import { aggregateFindings } from './aggregate.ts';
import type { PacketComparison, AttributedDeviation, RuleOwnership } from './compare-packet.ts';
import {
  comparePacket,
  describePacket,
  listText,
  rounding,
  translation,
} from './compare-packet.ts';
import {
  allowedMasquerade,
  findUnexpectedFrontends,
  isForeignRuleAbout,
  isKnownPolicyChain,
  isKubernetesRule,
  onlyValue,
  policyRule,
} from './foreign-rules.ts';
import type { NodeInput, NodeBehavior } from './node-behavior.ts';
import type { Probe } from './probes.ts';
import {
  addToCoverage,
  countTranslated,
  addServedToCoverage,
  proxiedPortKey,
  probesOf,
  rangeProbes,
  probeSender,
  strayProbes,
} from './probes.ts';

/** Rules that are at hand: all that stands on the node, of both backends. */
export const behaviorOfRules = (ruleset: RuleSet, context: NodeContext): NodeBehavior => ({
  frontends: frontendsInRules(ruleset),
  localAddresses: context.localAddresses,
  walk: (packet) => walk(ruleset, context, packet),
  missingPackets: () => [],
  isKnownToServe: () => false,
  digest: null,
  digestsAt: () => null,
});

/** What was seen at one moment, before it is rolled up. */
export interface NodeAudit {
  readonly differences: readonly PacketDifference[];
  readonly coverage: Coverage;
  readonly translated: TranslationCounts;
  /** Findings that need no rolling up. */
  readonly others: readonly NodeFinding[];
  /** Names of the Service ports of which something is unknown, and their frontends. */
  readonly unknown: ReadonlySet<string>;
  readonly doubtful: ReadonlySet<Frontend>;
}

export interface NodeAuditSummary {
  /** Worst first. */
  readonly findings: readonly NodeFinding[];
  /** Service ports by verdict. */
  readonly conform: number;
  readonly different: number;
  readonly unknown: number;
}

interface Audit {
  readonly input: NodeInput;
  readonly view: RuleOwnership;
  readonly differences: PacketDifference[];
  readonly asked: Map<string, Set<string>>;
  /** Names of the Service ports of which something is unknown. */
  readonly unknown: Set<string>;
  readonly doubtful: Set<Frontend>;
}

/** Judges one node; pure, and as expensive as its frontends are many. */
export function summarizeNode(input: NodeInput): NodeAuditSummary {
  const { forwarding, node } = input;
  const seen = auditNode(input);
  const { differences, coverage: asked, translated: claims } = seen;
  const findings = [...aggregateFindings(node.name, differences, asked, claims), ...seen.others];
  const names = new Set(forwarding.ports.map(proxiedPortKey));
  const bad = differences.filter(({ harmless }) => !harmless);
  const different = new Set(bad.flatMap(({ port }) => (port === null ? [] : proxiedPortKey(port))));
  const unknown = [...seen.unknown].filter((name) => !different.has(name)).length;
  const conform = names.size - different.size - unknown;
  return { findings, conform, different: different.size, unknown };
}

/** Whether the rules do for these Services what once was expected; unknown counts as no. */
export function isServedAsExpected(input: NodeInput): boolean {
  const audit = newAudit(input);
  const steps = asking(audit, false);
  while (steps.next().done !== true) {
    if (audit.unknown.size > 0 || audit.differences.some(({ harmless }) => !harmless)) return false;
  }
  return true;
}

/** Asks for all frontends, and for all that the rules answer for. */
export function auditNode(input: NodeInput): NodeAudit {
  const steps = auditNodeInSteps(input);
  for (;;) {
    const step = steps.next();
    if (step.done === true) return step.value;
  }
}

/** The same in small steps. */
export function* auditNodeInSteps(input: NodeInput): Generator<undefined, NodeAudit> {
  const audit = newAudit(input);
  yield* asking(audit, true);
  const { frontends: claims } = input.rules;
  audit.differences.push(...(yield* findUnexpectedFrontends(input, audit.view)));
  const { differences, asked, unknown, doubtful } = audit;
  const others = splitFinding(audit, claims);
  return {
    differences,
    coverage: asked,
    unknown,
    doubtful,
    translated: countTranslated(claims),
    others,
  };
}

/** What is known of rules of others on the node, for a comparison. */
const viewOf = ({ forwarding, node }: NodeInput): RuleOwnership => ({
  isAllowed: allowedMasquerade(forwarding, node),
  isAbout: isForeignRuleAbout,
  // In another mode its rules are left over.
  isOwn: (step) =>
    isKubernetesRule(step) &&
    (forwarding.config.mode === 'nftables') === (step.base.table.name === 'kube-proxy'),
});

const newAudit = (input: NodeInput): Audit => ({
  input,
  view: viewOf(input),
  differences: [],
  asked: new Map(),
  unknown: new Set(),
  doubtful: new Set(),
});

/** Asks packet by packet, so that one may stop. */
function* asking(audit: Audit, isNow: boolean): Generator<undefined> {
  const { forwarding, node, rules } = audit.input;
  const sender = probeSender(forwarding, node);
  const strays = forwarding.config.mode === 'nftables';
  for (const frontend of forwarding.frontends) {
    const isServed = rules.isKnownToServe(forwarding, frontend, isNow);
    const all = probesOf(sender, frontend);
    if (isServed) addServedToCoverage(audit.asked, forwarding, frontend, all);
    const probes = isServed ? rangeProbes(sender, frontend) : all;
    for (const probe of probes) {
      ask(audit, frontend, probe);
      yield;
    }
    yield;
    if (!strays || isServed || frontend.kind !== 'cluster IP') continue;
    for (const probe of strayProbes(sender, frontend)) {
      ask(audit, frontend, probe);
      yield;
    }
  }
}

const unasked: PacketComparison = { verdict: 'unknown', deviants: [] };

function ask(audit: Audit, frontend: Frontend, probe: Probe): void {
  const { forwarding, rules } = audit.input;
  const { outcomes: fates } = forwarding.expect(probe.packet);
  const outcome = rules.walk(probe.packet);
  const { port } = frontend;
  addToCoverage(audit.asked, fates, frontend);
  const { verdict, deviants } =
    outcome === null ? unasked : comparePacket(fates, outcome, audit.view, probe.packet);
  if (verdict === 'unknown') {
    audit.unknown.add(proxiedPortKey(port));
    // Where nobody has walked the packet no rule is to blame, and neighbours tell nothing.
    if (outcome !== null) audit.doubtful.add(frontend);
  }
  if (verdict !== 'different' || outcome === null) return;
  const texts = describePacket(probe, fates, outcome);
  const isLocal = isAnsweredHere(probe, outcome);
  const policed = policedIn(fates, outcome);
  for (const deviant of deviants) {
    const policy = policed?.kinds.has(deviant.deviation.kind) === true ? policed : null;
    const code = policy ? 'node-endpoint-blocked' : codeOf(deviant, fates, outcome, port);
    const isMeant =
      policy === null ? isHarmless(deviant, frontend, probe, outcome) : policy.isMeant;
    audit.differences.push({
      ...texts,
      code,
      port,
      subject: subjectOf(deviant),
      kind: frontend.kind,
      family: port.family,
      rule: deviant.step?.rule.text ?? policy?.rule ?? null,
      untranslated: isNothing(outcome) && !isTranslated(outcome),
      harmless: isLocal || isMeant,
    });
  }
}

/**
 * Whether somebody wants the packet to come to the node itself, as NodeLocal DNSCache does: it
 * binds the cluster IP there, and a rule for just this address and port keeps conntrack, and so
 * kube-proxy, from it. Whether a process listens, no rule tells.
 */
function isAnsweredHere({ packet }: Probe, outcome: PacketOutcome): boolean {
  const { destinations, pass, reject } = outcome;
  if (destinations.size > 0 || !isPassed(outcome) || isStopped(outcome, reject)) return false;
  return pass
    .trace()
    .some(
      (step) =>
        step.rule.statements.some(({ kind }) => kind === 'notrack') &&
        isForeignRuleAbout(step, packet.dst) &&
        onlyValue(step, 'destination port') === packet.dport,
    );
}

/** Whether packets pass, and none is known to be dropped. */
const isPassed = (outcome: PacketOutcome): boolean =>
  outcome.pass.probability > 0 && !isStopped(outcome, outcome.drop);

const isStopped = ({ unknown }: PacketOutcome, { probability }: PacketOutcome['drop']): boolean =>
  probability > 0 && unknown.length === 0;

/**
 * Two differences that nobody suffers from. A node port without endpoints that others let by, as
 * most hosts accept all from themselves, comes to the node, where nothing listens, and is refused
 * all the same. And where another program translates, how endpoints meet themselves is its own
 * affair.
 */
function isHarmless(
  { deviation, step }: AttributedDeviation,
  { kind }: Frontend,
  { packet }: Probe,
  outcome: PacketOutcome,
): boolean {
  if (deviation.kind === 'not stopped') {
    const isRefused = kind === 'node port' && deviation.want === 'reject' && isPassed(outcome);
    return isRefused && outcome.pass.trace().some(isLetBy);
  }
  if (deviation.kind !== 'not masqueraded' || step === null || isKubernetesRule(step)) return false;
  return ipOf(deviation.endpoint) === packet.src;
}

/** What accepts it, or sends it for good into a chain that ends. */
const isLetBy = (step: TraceStep): boolean =>
  !isKubernetesRule(step) &&
  step.rule.statements.some(({ kind }) => kind === 'accept' || kind === 'goto');

const subjectOf = ({ deviation }: AttributedDeviation): string =>
  'endpoint' in deviation ? `${deviation.kind} ${deviation.endpoint}` : deviation.kind;

/** Whether a difference is about one of these addresses, or about no single one. */
export function isAt({ subject }: PacketDifference, addresses: readonly string[]): boolean {
  const endpoint = subject.slice(subject.lastIndexOf(' ') + 1);
  if (!endpoint.includes(':')) return true;
  const ip = canonicalIP(ipOf(endpoint));
  return addresses.some((address) => canonicalIP(address) === ip);
}

/** What network policies, and nothing else, do to the packets of a frontend. */
interface Policed {
  readonly kinds: ReadonlySet<AttributedDeviation['deviation']['kind']>;
  readonly rule: string;
  readonly isMeant: boolean;
}

/**
 * Deviations that come of rules about endpoints, so far as can be seen: all that is stopped was
 * sent to an endpoint first. Endpoints are not missing where the others get no more than their
 * share. null: none do.
 */
function policedIn(
  fates: readonly ExpectedOutcome[],
  { destinations, pass, reject, drop }: PacketOutcome,
): Policed | null {
  const stops = [reject, drop].filter(({ probability }) => probability > 0);
  const fate = fates.find((one) => one.kind === 'endpoints');
  if (fate === undefined || pass.probability > 0) return null;
  const { endpoints } = fate;
  const ips = new Set([...endpoints.keys()].map(ipOf));
  const found = stops.map((stop) => policyRule(stop, ips));
  const [first] = found;
  if (first === undefined || first === null || found.includes(null)) return null;
  const isEven = [...destinations].every(
    ([endpoint, { probability }]) =>
      endpoints.has(endpoint) && Math.abs(probability - 1 / endpoints.size) < rounding,
  );
  return {
    kinds: new Set(isEven ? ['reject', 'drop', 'missing'] : ['reject', 'drop']),
    rule: first.rule.text,
    isMeant: found.every((step) => step !== null && isKnownPolicyChain(step)),
  };
}

const certain = 1 - rounding;

function codeOf(
  { deviation, step }: AttributedDeviation,
  fates: readonly ExpectedOutcome[],
  outcome: PacketOutcome,
  port: ProxiedPort,
): Code {
  const foreign = step !== null && !isKubernetesRule(step);
  switch (deviation.kind) {
    case 'shadowed':
      return 'node-foreign-rule';
    case 'missing':
      return isNothing(outcome) ? stopCode(outcome) : 'node-endpoint-missing';
    case 'unexpected':
      if (foreign) return 'node-foreign-rule';
      return isEndpoint(port, deviation.endpoint)
        ? 'node-policy-different'
        : 'node-endpoint-unexpected';
    case 'pass':
    case 'reject':
    case 'drop':
      if (foreign) return 'node-foreign-rule';
      return isNothing(outcome) || fates.some(({ kind }) => kind === 'pass')
        ? stopCode(outcome)
        : 'node-endpoint-missing';
    case 'not stopped':
      return foreign ? 'node-foreign-rule' : 'node-reject-missing';
    case 'share':
      return 'node-share-different';
    case 'not masqueraded':
      return 'node-masquerade-missing';
    case 'masqueraded':
      return foreign ? 'node-foreign-rule' : 'node-masquerade-unexpected';
    case 'affinity':
      return 'node-affinity-different';
  }
}

/** No packet comes to any destination. */
const isNothing = ({ destinations, pass, drop, reject }: PacketOutcome): boolean =>
  destinations.size === 0 || pass.probability + drop.probability + reject.probability >= certain;

/** Some rule sent the packet to a destination, whatever came of it then. */
const isTranslated = ({ pass, drop, reject }: PacketOutcome): boolean =>
  [pass, drop, reject].some((fate) => fate.probability > 0 && translation(fate) !== null);

const stopCode = ({ pass }: PacketOutcome): Code =>
  pass.probability > 0.5 ? 'node-frontend-missing' : 'node-frontend-blocked';

const isEndpoint = ({ usable }: ProxiedPort, endpoint: string): boolean =>
  (usable ?? []).some(({ all }) => all.some(({ text }) => text === endpoint));

/**
 * Two tables that translate for one frontend: rules of two backends or modes. Which of them runs
 * first, no dump tells, so what they do differently is unknown.
 */
function splitFinding({ input }: Audit, claims: readonly RuleFrontend[]): NodeFinding[] {
  const { forwarding, node } = input;
  const twice = claims.filter(({ address, translators }) => address !== null && translators > 1);
  const texts = twice.flatMap(({ address, protocol, port }) => {
    const packet = { from: 'outside', src: '', dst: address ?? '', protocol, dport: port } as const;
    const { frontend } = forwarding.expect(packet);
    const place = joinHostPort(packet.dst, port);
    return frontend === null ? [] : `${frontend.port.name} at ${place}/${protocol}`;
  });
  if (texts.length === 0) return [];
  const code = 'node-backends-both';
  return [
    {
      code,
      severity: catalogue[code].severity,
      node: node.name,
      namespace: '',
      service: '',
      port: '',
      object: `Node ${node.name}: ${listText(texts)}`,
      expected: 'one table',
      actual: 'several tables',
      rule: null,
      nodeWide: true,
      differences: [],
    },
  ];
}

// One Service port on one node, packet by packet: what should come of each, what the rules that
// stand do with it, and which rules it met on its ways, as the node prints them. The packets and
// the comparison are those of the audit (node.ts), so that both say the same.
//
// Left out: how long it has been so; a walk is of the rules as they were last seen.

/** What becomes of one packet. */
export interface PacketTrace {
  readonly kind: string;
  /** `10.96.0.1:80/tcp` */
  readonly frontend: string;
  /** Where the packet comes from, for people. */
  readonly origin: string;
  readonly verdict: 'conform' | 'different' | 'unknown';
  readonly expected: string;
  readonly actual: string;
  /** Endpoints, `ip:port`, to which it must be able to come, may come, and does come. */
  readonly wanted: readonly string[];
  readonly allowed: readonly string[];
  readonly got: readonly string[];
  /** Rules that decided on any of its ways, in their order, each once. */
  readonly rules: readonly string[];
  /** Rules on which the outcome depends and that are not understood. */
  readonly unknown: readonly string[];
}

const mostRules = 40;

/** Walks the packets of the port of that name; none: it is not served there. */
export function tracePackets(input: NodeInput, name: string): PacketTrace[] {
  const { forwarding, node, rules } = input;
  const sender = probeSender(forwarding, node);
  const view = viewOf(input);
  return forwarding.frontends
    .filter(({ port }) => port.name === name)
    .flatMap((frontend) =>
      probesOf(sender, frontend).flatMap((probe) => {
        const { outcomes: fates } = forwarding.expect(probe.packet);
        const outcome = rules.walk(probe.packet);
        if (outcome === null) return [];
        const { verdict } = comparePacket(fates, outcome, view, probe.packet);
        return {
          kind: frontend.kind,
          ...describePacket(probe, fates, outcome),
          verdict,
          ...endpointsOf(fates),
          got: [...outcome.destinations]
            .filter(([, { probability }]) => probability > 0)
            .map(([endpoint]) => endpoint),
          rules: rulesMet(outcome),
          unknown: outcome.unknown.map(({ reason, rule }) => `${reason}: ${rule}`),
        };
      }),
    );
}

/** Of several fates any is right: a must is what all of them have, a may what one has. */
function endpointsOf(fates: readonly ExpectedOutcome[]): Pick<PacketTrace, 'wanted' | 'allowed'> {
  const sets = fates.map((fate) => new Set(fate.kind === 'endpoints' ? fate.endpoints.keys() : []));
  const allowed = [...new Set(sets.flatMap((set) => [...set]))];
  return { allowed, wanted: allowed.filter((one) => sets.every((set) => set.has(one))) };
}

const lineOf = ({ rule, base }: TraceStep): string =>
  base.table.source === 'nft' ? rule.text : `-t ${base.table.name} ${rule.text}`;

function rulesMet({ destinations, reject, drop, pass }: PacketOutcome): string[] {
  const met = new Set<string>();
  for (const fate of [...destinations.values(), reject, drop, pass]) {
    if (fate.probability === 0) continue;
    for (const step of fate.trace()) met.add(lineOf(step));
  }
  const rules = [...met];
  const more = rules.length - mostRules;
  return more > 0 ? [...rules.slice(0, mostRules), `and ${more} more`] : rules;
}

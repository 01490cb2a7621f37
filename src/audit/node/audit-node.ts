// Audits one node: walks probe packets through its rules, for every frontend that kube-proxy must
// serve and for every other frontend of the rules, and lists where the outcomes differ. Also traces
// the packets of one Service port for people, with the same probes and the same comparison.
//
// Names of chains, comments, and rules that no packet reaches are no evidence. Which rules belong
// to kube-proxy, and what other programs may do, is in foreign-rules.ts.
//
// Left out of a trace: since when it is so. It shows the rules as they were last read.

import { ipOf, joinHostPort } from '../../model/ip.ts';
import type { Steps } from '../../model/run-to-end.ts';
import { runToEnd } from '../../model/run-to-end.ts';
import type { TraceStep } from '../../rules/walk/match.ts';
import type { OutcomeShare, PacketOutcome } from '../../rules/walk/walk.ts';
import type { ExpectedOutcome, Frontend } from '../../shadow/forwarding.ts';
import type { ProxiedPort } from '../../shadow/service-port.ts';
import type { Code } from '../finding/catalogue.ts';
import type { Coverage, PacketDifference, PacketDifferences } from './aggregate.ts';
import type { Deviation } from './compare-packet.ts';
import {
  comparePacket,
  describePacket,
  listText,
  rounding,
  translationStep,
} from './compare-packet.ts';
import {
  findUnexpectedFrontends,
  isForeignRuleAbout,
  isKnownPolicyChain,
  isKubernetesRule,
  onlyValue,
  ownershipOn,
  policyRule,
} from './foreign-rules.ts';
import type { NodeInput } from './observation.ts';
import type { Probe } from './probes.ts';
import {
  coverageOf,
  probeSender,
  probesOf,
  proxiedPortKey,
  rangeProbes,
  strayProbes,
} from './probes.ts';

export interface NodeAudit {
  readonly differences: PacketDifferences;
  /** Empty without differences. */
  readonly coverage: Coverage;
  /** Keys of Service ports with a packet whose outcome is unknown. */
  readonly unknown: ReadonlySet<string>;
  /** Frontends with a rule that the walk could not evaluate. */
  readonly doubtful: ReadonlySet<Frontend>;
}

const newProgress = (input: NodeInput) => ({
  input,
  ownership: ownershipOn(input),
  sender: probeSender(input.forwarding, input.node),
  differences: [] as PacketDifference[],
  unknown: new Set<string>(),
  doubtful: new Set<Frontend>(),
});

type Progress = ReturnType<typeof newProgress>;

/** Whether the rules do what an earlier state expected; unknown counts as no. */
export function isServedAsExpected(input: NodeInput): boolean {
  const progress = newProgress(input);
  const steps = probeFrontends(progress, false);
  while (steps.next().done !== true) {
    const { unknown, differences } = progress;
    if (unknown.size > 0 || differences.some(({ harmless }) => !harmless)) return false;
  }
  return true;
}

/** Audits a node without interruption; the cost grows with the number of frontends. */
export const auditNode = (input: NodeInput, isCurrent = true): NodeAudit =>
  runToEnd(auditNodeInSteps(input, isCurrent));

/** `isCurrent`: the expectation is the current one and not an earlier one. */
export function* auditNodeInSteps(input: NodeInput, isCurrent = true): Steps<NodeAudit> {
  const progress = newProgress(input);
  const { ownership, sender, unknown, doubtful } = progress;
  yield* probeFrontends(progress, isCurrent);
  const unexpected = yield* findUnexpectedFrontends(input, ownership, sender);
  const differences = [...progress.differences, ...unexpected, ...severalBackends(input)];
  const coverage = differences.length === 0 ? new Map<string, number>() : coverageOf(sender);
  return { differences, coverage, unknown, doubtful };
}

function* probeFrontends(progress: Progress, isCurrent: boolean): Steps {
  const { sender } = progress;
  const { forwarding, rules } = progress.input;
  for (const frontend of forwarding.frontends) {
    // No digest covers source ranges.
    const probes = rules.report?.isKnownToServe(forwarding, frontend, isCurrent)
      ? rangeProbes(sender, frontend)
      : [...probesOf(sender, frontend), ...strayProbes(sender, frontend)];
    for (const probe of probes) {
      testPacket(progress, frontend, probe);
      yield;
    }
    yield;
  }
}

function testPacket(progress: Progress, frontend: Frontend, probe: Probe): void {
  const { forwarding, rules } = progress.input;
  const { packet } = probe;
  const { port, kind } = frontend;
  const { outcomes } = forwarding.expect(packet);
  const outcome = rules.walk(packet);
  if (outcome === null) {
    progress.unknown.add(proxiedPortKey(port));
    return;
  }
  const { verdict, deviations } = comparePacket(outcomes, outcome, progress.ownership, packet);
  if (verdict === 'unknown') {
    progress.unknown.add(proxiedPortKey(port));
    progress.doubtful.add(frontend);
  }
  if (verdict !== 'different') return;
  const texts = describePacket(probe, outcomes, outcome);
  const isLocal = isAnsweredByNode(probe, outcome);
  const policies = policyEffects(outcomes, outcome);
  for (const deviation of deviations) {
    const { endpoint, step } = deviation;
    const policy = policies?.kinds.has(deviation.kind) === true ? policies : null;
    const isIntended = policy?.isIntended ?? isHarmless(deviation, frontend, probe, outcome);
    progress.differences.push({
      ...texts,
      code: policy ? 'node-endpoint-blocked' : codeOf(deviation, outcomes, outcome, port),
      subject: endpoint === null ? deviation.kind : `${deviation.kind} ${endpoint}`,
      port,
      kind,
      family: port.family,
      rule: step?.rule.text ?? policy?.rule ?? null,
      untranslated: isUnreachable(outcome) && !isTranslated(outcome),
      harmless: isLocal || isIntended,
    });
  }
}

/**
 * Whether the packet is meant for the node itself, as with NodeLocal DNSCache. That binds the
 * cluster IP on the node, and a rule for this address and port disables conntrack and thereby
 * kube-proxy. No rule shows whether a process listens.
 */
function isAnsweredByNode({ packet }: Probe, outcome: PacketOutcome): boolean {
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

/** Whether packets pass and none is known to be dropped. */
const isPassed = (outcome: PacketOutcome): boolean =>
  outcome.pass.probability > 0 && !isStopped(outcome, outcome.drop);

const isStopped = ({ unknown }: PacketOutcome, { probability }: OutcomeShare): boolean =>
  probability > 0 && unknown.length === 0;

/**
 * Two differences are harmless. If another program accepts packets to a node port without
 * endpoints, as most hosts accept their own packets, they reach the node, where nothing listens and
 * the kernel refuses them. If another program translates packets, it decides how endpoints reach
 * themselves.
 */
function isHarmless(
  { kind, endpoint, step }: Deviation,
  frontend: Frontend,
  { packet }: Probe,
  outcome: PacketOutcome,
): boolean {
  if (kind === 'not rejected') {
    const isRefused = frontend.kind === 'node port' && isPassed(outcome);
    return isRefused && outcome.pass.trace().some(isAcceptedByOthers);
  }
  if (kind !== 'not masqueraded' || step === null || isKubernetesRule(step)) return false;
  return ipOf(endpoint ?? '') === packet.src;
}

const isAcceptedByOthers = (step: TraceStep): boolean =>
  !isKubernetesRule(step) &&
  step.rule.statements.some(({ kind }) => kind === 'accept' || kind === 'goto');

/**
 * The deviations that network policies cause, if nothing else stops packets: every stopped packet
 * was sent to an endpoint first. An endpoint is not missing if the others get only their share.
 * null if another cause is possible.
 */
function policyEffects(
  outcomes: readonly ExpectedOutcome[],
  { destinations, pass, reject, drop }: PacketOutcome,
) {
  const stops = [reject, drop].filter(({ probability }) => probability > 0);
  const expected = outcomes.find(({ kind }) => kind === 'endpoints');
  if (expected?.kind !== 'endpoints' || pass.probability > 0) return null;
  const { endpoints } = expected;
  const ips = new Set([...endpoints.keys()].map(ipOf));
  const steps = stops.map((stop) => policyRule(stop, ips)).filter((step) => step !== null);
  const [first] = steps;
  if (first === undefined || steps.length < stops.length) return null;
  const isEven = [...destinations].every(
    ([endpoint, { probability }]) =>
      endpoints.has(endpoint) && Math.abs(probability - 1 / endpoints.size) < rounding,
  );
  return {
    kinds: new Set<string>(isEven ? ['reject', 'drop', 'missing'] : ['reject', 'drop']),
    rule: first.rule.text,
    isIntended: steps.every(isKnownPolicyChain),
  };
}

const codes: Readonly<Partial<Record<Deviation['kind'], Code>>> = {
  shadowed: 'node-foreign-rule',
  share: 'node-share-different',
  'not masqueraded': 'node-masquerade-missing',
  affinity: 'node-affinity-different',
};

/** Codes of deviations that no rule of another program causes. */
const ownCodes: typeof codes = {
  'not rejected': 'node-reject-missing',
  'not dropped': 'node-reject-missing',
  masqueraded: 'node-masquerade-unexpected',
};

function codeOf(
  { kind, endpoint, step }: Deviation,
  outcomes: readonly ExpectedOutcome[],
  outcome: PacketOutcome,
  { usable }: ProxiedPort,
): Code {
  const code = codes[kind];
  if (code !== undefined) return code;
  const isForeign = kind !== 'missing' && step !== null && !isKubernetesRule(step);
  if (isForeign) return 'node-foreign-rule';
  if (kind === 'unexpected') {
    const isListed = (usable ?? []).some(({ all }) => all.some(({ text }) => text === endpoint));
    return isListed ? 'node-policy-different' : 'node-endpoint-unexpected';
  }
  const isStop =
    isUnreachable(outcome) || (kind !== 'missing' && outcomes.some((it) => it.kind === 'pass'));
  const stopped =
    outcome.pass.probability > 0.5 ? 'node-frontend-missing' : 'node-frontend-blocked';
  return ownCodes[kind] ?? (isStop ? stopped : 'node-endpoint-missing');
}

/** No packet reaches any destination. */
const isUnreachable = ({ destinations, pass, drop, reject }: PacketOutcome): boolean =>
  destinations.size === 0 ||
  pass.probability + drop.probability + reject.probability >= 1 - rounding;

/** A rule sent the packet to a destination, even if another stopped it later. */
const isTranslated = ({ pass, drop, reject }: PacketOutcome): boolean =>
  [pass, drop, reject].some((end) => end.probability > 0 && translationStep(end) !== null);

/**
 * Finds frontends that two tables translate, such as rules of two backends or modes. The dump does
 * not show which table is first, so the outcome of packets is unknown where they differ.
 */
function severalBackends({ forwarding, rules }: NodeInput): PacketDifference[] {
  const places = rules.frontends.flatMap(({ address, protocol, port, translators }) => {
    if (address === null || translators < 2) return [];
    const packet = { from: 'outside', src: '', dst: address, protocol, dport: port } as const;
    const { frontend } = forwarding.expect(packet);
    const place = joinHostPort(address, port);
    return frontend === null ? [] : `${frontend.port.name} at ${place}/${protocol}`;
  });
  if (places.length === 0) return [];
  return [
    {
      code: 'node-backends-both',
      port: null,
      frontend: listText(places),
      subject: 'several tables',
      kind: 'none',
      family: 'IPv4',
      origin: '',
      expected: 'one table',
      actual: 'several tables',
      rule: null,
      untranslated: false,
      harmless: false,
    },
  ];
}

const maxTracedRules = 40;

/** What the rules do with one packet, compared with what kube-proxy should do. */
export type PacketTrace = ReturnType<typeof tracePackets>[number];

/** Walks the packets of the port of that name; none if the node does not serve it. */
export function tracePackets(input: NodeInput, name: string) {
  const { forwarding, node, rules } = input;
  const sender = probeSender(forwarding, node);
  const ownership = ownershipOn(input);
  const frontends = forwarding.frontends.filter(({ port }) => port.name === name);
  return frontends.flatMap((frontend) =>
    probesOf(sender, frontend).flatMap((probe) => {
      const { outcomes } = forwarding.expect(probe.packet);
      const outcome = rules.walk(probe.packet);
      if (outcome === null) return [];
      const { verdict } = comparePacket(outcomes, outcome, ownership, probe.packet);
      const sets = outcomes.map(
        (it) => new Set(it.kind === 'endpoints' ? it.endpoints.keys() : []),
      );
      const allowed = [...new Set(sets.flatMap((set) => [...set]))];
      const reached = [...outcome.destinations].filter(([, { probability }]) => probability > 0);
      return {
        kind: frontend.kind,
        ...describePacket(probe, outcomes, outcome),
        verdict,
        /** Endpoints, `ip:port`, that every right outcome has, and that one of them has. */
        wanted: allowed.filter((endpoint) => sets.every((set) => set.has(endpoint))),
        allowed,
        /** Endpoints that the packet reaches. */
        got: reached.map(([endpoint]) => endpoint),
        /** Rules that decided about it, in their order, each once. */
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
    base.table.source === 'nft' ? rule.text : `-t ${base.table.name} ${rule.text}`,
  );
  const rules = [...new Set(texts)];
  const more = rules.length - maxTracedRules;
  return more > 0 ? [...rules.slice(0, maxTracedRules), `and ${more} more`] : rules;
}

// Why is this pod not in my Service? Explains a Service, a pod, both together, or an address, from
// what the ledger holds: what is expected and why, what stands, what differs, what explains the
// difference, and the smallest change that would put it right.
//
// Nothing is decided here. What is expected the shadows say (chain.ts), what differs the audit says
// (items of the ledger), so an explanation cannot disagree with a finding. The work is bounded by
// one Service, one namespace for near misses, and a look at every Service for an address.

import { canonicalIP, parseIP } from '../../model/ip.ts';
import type { Key, Pod, Service } from '../../model/objects.ts';
import { selects } from '../../model/selector.ts';
import type { Severity } from '../finding/catalogue.ts';
import { isWorse } from '../finding/catalogue.ts';
import type { Verdict } from '../finding/verdicts.ts';
import { legal } from '../finding/verdicts.ts';
import type { PendingDifference } from '../pending/pending.ts';
import type { ServiceAuditor } from '../service/auditor.ts';
import type { AuditContext } from '../service/cache.ts';
import type { ServiceAudit } from '../service/reconcile.ts';
import type { VerdictInput } from '../service/verdict.ts';
import { verdictOf, serviceOutputs } from '../service/verdict.ts';
import { entryStates, stateWords } from './condition.ts';
import { missedLabelText } from './conditions.ts';
import type { Explanation, ExplainTarget } from './explanation.ts';
import { missing, notFound } from './missing-target.ts';
import { isNear, servicesNear } from './near-miss.ts';
import type { NodeLookup } from './node.ts';
import { explainNode, noNodeLookup } from './node.ts';
import { servicesListing, entriesMatching } from './observed.ts';
import type { PairExplanation } from './pod-in-service.ts';
import { anyUnknown, explainPair, verdictOn, worstVerdict } from './pod-in-service.ts';
import type { Reason } from './reason.ts';
import { counted, fewOf, itemReasons, reason, unknownText, worstOf } from './reason.ts';
import { explainService } from './service.ts';

/**
 * Explains what is asked about; `context` is that of the ledger, as it is seen just now, and `look`
 * what is known of the rules of nodes.
 */
export function explain(
  context: VerdictInput,
  serviceAuditor: ServiceAuditor,
  subject: ExplainTarget,
  look: NodeLookup = noNodeLookup,
): Explanation {
  if (subject.kind === 'node') return explainAtNode(context, serviceAuditor, subject, look);
  const explanation = explained(context, serviceAuditor, subject);
  const { verdict, reasons, change } = explanation;
  const isWrong = verdict === 'different' || verdict === 'pending';
  const others = isWrong ? unexplained(serviceAuditor) : [];
  if (others.length < 2) return explanation;
  const text =
    `${counted(others.length, 'Service')} differ and no known cause explains it ` +
    `(${fewOf(others)}): look whether kube-controller-manager runs and has a leader`;
  const note = reason('note', text, {
    change: 'kubectl -n kube-system get lease kube-controller-manager',
  });
  // Where the controllers do not run, no change of this Service helps.
  const own = concerned(subject, reasons).some((key) => others.includes(key));
  const first =
    `see first whether kube-controller-manager runs: ${String(others.length)} Services differ ` +
    `alike. If it does: ${change ?? ''}`;
  return {
    ...explanation,
    change: own && change !== null ? first : change,
    reasons: [...reasons, note],
  };
}

/** The Services that an explanation is about. */
function concerned(subject: ExplainTarget, reasons: readonly Reason[]): string[] {
  if (subject.kind === 'service' || subject.kind === 'pair') return [subject.service];
  return reasons.flatMap(({ object }) =>
    object?.startsWith('Service ') === true ? [object.slice('Service '.length)] : [],
  );
}

function explained(
  context: VerdictInput,
  serviceAuditor: ServiceAuditor,
  subject: Exclude<ExplainTarget, { kind: 'node' }>,
): Explanation {
  switch (subject.kind) {
    case 'service':
      return explainOneService(context, serviceAuditor, subject);
    case 'pod':
      return explainPod(context, serviceAuditor, subject);
    case 'pair':
      return explainBoth(context, serviceAuditor, subject);
    case 'address':
      return explainAddress(context, serviceAuditor, subject);
  }
}

/** Services that differ and nothing known explains it: of several, the controllers may not run. */
function unexplained(serviceAuditor: ServiceAuditor): Key[] {
  const differing: Key[] = [];
  for (const { items, record } of serviceAuditor.audited.values()) {
    if (items.size === 0) continue;
    const bare = [...items.values()]
      .flat()
      .some(
        ({ output, cause, difference }) =>
          output !== 'input' && cause === null && !legal.has(difference.code),
      );
    if (bare) differing.push(record.key);
  }
  return differing.sort();
}

function explainAtNode(
  context: VerdictInput,
  serviceAuditor: ServiceAuditor,
  subject: Extract<ExplainTarget, { kind: 'node' }>,
  look: NodeLookup,
): Explanation {
  const { node, service: key } = subject;
  if (!serviceAuditor.audited.has(key)) return missing(context, subject, 'Service', key);
  if (context.listers.knows('nodes') && !context.listers.nodes.has(node)) {
    const others = [...context.listers.nodes.keys()].filter((other) => isNear(other, node));
    const near = others.length === 0 ? [] : [reason('note', `there is ${fewOf(others.sort())}`)];
    return notFound(subject, `Node ${node} does not exist`, near);
  }
  return { subject, found: true, ...explainNode(context, serviceAuditor, subject, look) };
}

function explainOneService(
  context: VerdictInput,
  serviceAuditor: ServiceAuditor,
  subject: Extract<ExplainTarget, { kind: 'service' }>,
): Explanation {
  const of = serviceAuditor.audited.get(subject.service);
  if (of === undefined) return missing(context, subject, 'Service', subject.service);
  const { answer, change, verdicts, severity, reasons } = explainService(context, of);
  const judged = Object.values(verdicts).filter((verdict) => verdict !== null);
  const verdict = judged.length === 0 ? null : worstVerdict(judged);
  return { subject, found: true, verdict, severity, answer, change, reasons };
}

/** The tree of one pair: what was asked, what stands, what is besides. */
function pairReasons(
  { conditions: steps, entries: stands, others: besides }: PairExplanation,
  all: boolean,
): Reason[] {
  const asked = all ? steps : steps.filter(({ mark }) => mark !== 'yes');
  return [...asked, ...stands, ...besides];
}

function explainBoth(
  context: VerdictInput,
  serviceAuditor: ServiceAuditor,
  subject: Extract<ExplainTarget, { kind: 'pair' }>,
): Explanation {
  const pod = context.listers.pods.get(subject.pod);
  const of = serviceAuditor.audited.get(subject.service);
  if (pod === undefined) return lostPod(context, serviceAuditor, subject, subject.pod);
  const pair = of === undefined ? null : explainPair(context, of, pod);
  if (pair === null) return missing(context, subject, 'Service', subject.service);
  const { answer, change, verdict, severity } = pair;
  return {
    subject,
    found: true,
    verdict,
    severity,
    answer,
    change,
    reasons: pairReasons(pair, true),
  };
}

/** A pod that does not exist may still be listed: the Services that name it are told. */
function lostPod(
  context: VerdictInput,
  serviceAuditor: ServiceAuditor,
  subject: ExplainTarget,
  key: Key,
): Explanation {
  const naming: Reason[] = [];
  let severity: Severity | null = null;
  const verdicts: Verdict[] = [];
  for (const of of serviceAuditor.audited.values()) {
    if (!key.startsWith(`${of.record.namespace}/`)) continue;
    const stands = entriesMatching(context.listers, of.record, (_, pod) => pod === key);
    if (stands.length === 0) continue;
    const items = itemsAt(of, new Set(stands.map(({ address }) => address)));
    severity = worse(severity, worstOf(items));
    verdicts.push(verdictAmong(context, of, items));
    const entries = stands.map(({ object, text }) =>
      reason('note', `${object}: ${text}`, { object }),
    );
    const text = `Service ${of.record.key} still lists it`;
    const parts = [...entries, ...itemReasons(items)];
    naming.push(reason('no', text, { object: `Service ${of.record.key}`, parts }));
  }
  if (naming.length === 0) return missing(context, subject, 'Pod', key);
  const services = counted(naming.length, 'Service');
  const answer = `Pod ${key} does not exist, but is still listed in ${services}`;
  const change = naming[0]?.parts.find((part) => part.change !== null)?.change ?? null;
  return {
    subject,
    found: true,
    verdict: worstVerdict(verdicts),
    severity,
    answer,
    change,
    reasons: naming,
  };
}

const worse = (a: Severity | null, b: Severity | null): Severity | null =>
  a === null ? b : b === null ? a : isWorse(b, a) ? b : a;

const itemsAt = ({ items }: ServiceAudit, addresses: ReadonlySet<string>) =>
  [...items].flatMap(([unit, there]) => (addresses.has(unit.split(' ')[1] ?? '') ? there : []));

/** The worst verdict on some of the differences of a Service, over the outputs that it has. */
function verdictAmong(
  context: VerdictInput,
  of: ServiceAudit,
  items: readonly PendingDifference[],
): Verdict {
  const judged = serviceOutputs.filter((output) => verdictOf(context.listers, of, output) !== null);
  return worstVerdict(judged.map((output) => verdictOn(context, of, items, output)));
}

const mostServices = 20;

function explainPod(
  context: VerdictInput,
  serviceAuditor: ServiceAuditor,
  subject: Extract<ExplainTarget, { kind: 'pod' }>,
): Explanation {
  const { listers } = context;
  const pod = listers.pods.get(subject.pod);
  if (pod === undefined) return lostPod(context, serviceAuditor, subject, subject.pod);
  const keys = new Set(listers.servicesSelecting(pod.namespace, pod.labels).map(({ key }) => key));
  const listing = servicesListing(
    listers,
    serviceAuditor.audited.values(),
    pod.ips.map(canonicalIP),
  );
  for (const { record } of listing) if (record.namespace === pod.namespace) keys.add(record.key);
  const pairs = [...keys]
    .sort()
    .slice(0, mostServices)
    .flatMap((key) => pairOf(context, serviceAuditor, key, pod));
  const reasons = pairs.map((pair) => pairReason(pair));
  if (keys.size > mostServices) {
    reasons.push(reason('note', `and ${counted(keys.size - mostServices, 'more Service')}`));
  }
  const selecting = pairs.filter(({ conditions: steps }) => !steps.some(isUnselected));
  if (selecting.length === 0) reasons.push(...nearReasons(context, pod));
  reasons.push(podReason(pod), ...sharedReasons(context, pod));
  const { answer, change } = podAnswer(context, pod, pairs, selecting);
  const severity = pairs.reduce<Severity | null>(
    (worst, pair) => worse(worst, pair.severity),
    null,
  );
  const verdict = pairs.length === 0 ? null : worstVerdict(pairs.map((pair) => pair.verdict));
  return { subject, found: true, verdict, severity, answer, change, reasons };
}

const isUnselected = ({ mark, field }: Reason): boolean =>
  mark === 'no' && (field?.startsWith('metadata.labels') === true || field === 'spec.selector');

function pairOf(
  context: VerdictInput,
  serviceAuditor: ServiceAuditor,
  key: Key,
  pod: Pod,
): PairExplanation[] {
  const of = serviceAuditor.audited.get(key);
  const pair = of === undefined ? null : explainPair(context, of, pod);
  return pair === null ? [] : [pair];
}

function pairReason(pair: PairExplanation): Reason {
  const { verdict, decides, service } = pair;
  const mark =
    verdict === 'unknown' ? 'unknown' : verdict === 'conform' && decides === null ? 'yes' : 'no';
  const text = `Service ${service}: ${verdict}: ${standingOf(pair)}`;
  return reason(mark, text, { object: `Service ${service}`, parts: pairReasons(pair, false) });
}

/** How the pod must stand in the slices, in short. */
function standingOf({ places }: PairExplanation): string {
  const expected = places.filter(({ place }) => place !== 'endpoints').map((one) => one.expected);
  const best = entryStates.findLast((one) => expected.includes(one)) ?? 'absent';
  return `it must be ${stateWords[best]}`;
}

function podAnswer(
  context: AuditContext,
  pod: Pod,
  pairs: readonly PairExplanation[],
  selecting: readonly PairExplanation[],
): { answer: string; change: string | null } {
  const name = `Pod ${pod.key}`;
  const wrong = pairs.find(({ verdict }) => verdict === 'different');
  const [only] = selecting;
  if (wrong !== undefined) return { answer: wrong.answer, change: wrong.change };
  if (selecting.length === 1 && only !== undefined)
    return { answer: only.answer, change: only.change };
  if (only === undefined) {
    const { nearest } = servicesNear(context.listers, pod);
    const [first] = nearest;
    const near =
      first === undefined
        ? ''
        : `; closest: ${nearText(first.service, first.missed.map(missedLabelText))}`;
    return {
      answer: `${name} is in no Service: no selector matches its labels${near}`,
      change: null,
    };
  }
  const serving = selecting.filter(({ decides }) => decides === null);
  const others = selecting.filter(({ decides }) => decides !== null);
  const shown = fewOf(serving.map(({ service }) => service));
  const [other] = others;
  const [start, end] = [
    serving.length === 0 ? '' : `${name} is in ${shown} and gets their traffic`,
    other === undefined ? '' : other.answer,
  ];
  return {
    answer: [start, end].filter((text) => text !== '').join('; '),
    change: other?.change ?? null,
  };
}

const nearText = ({ key }: Service, missed: readonly string[]): string =>
  `Service ${key} (${missed.length === 0 ? 'in another namespace' : missed.join('; ')})`;

function nearReasons({ listers }: AuditContext, pod: Pod): Reason[] {
  const { nearest, more } = servicesNear(listers, pod);
  const reasons = nearest.map(({ service, missed, otherNamespace }) => {
    const why = otherNamespace
      ? 'would select it, but a Service selects pods of its own namespace only'
      : `nearly selects it: ${missed.map(missedLabelText).join('; ')}`;
    const labels = missed.map(({ key, want }) => `${key}=${want}`).join(',');
    return reason('note', `Service ${service.key} ${why}`, {
      object: `Service ${service.key}`,
      field: 'spec.selector',
      change: otherNamespace ? null : `label the pod ${labels}, or change the selector`,
    });
  });
  if (more > 0) reasons.push(reason('note', `and ${counted(more, 'more Service')}`));
  const others = [...listers.services.values()].filter(
    ({ namespace, selector }) => namespace === pod.namespace && selector !== null,
  );
  if (nearest.length === 0) {
    const names = others.map(({ name }) => name).sort();
    const count = counted(names.length, 'Service');
    const text = `no selector of ${count} in namespace ${pod.namespace} comes near its labels`;
    reasons.push(reason('note', names.length === 0 ? text : `${text}: ${fewOf(names, 5)}`));
  }
  return reasons;
}

/** What the controllers see of the pod. */
function podReason(pod: Pod): Reason {
  const labels = Object.entries(pod.labels).map(([key, value]) => `${key}=${value}`);
  const facts = [
    pod.node === '' ? 'bound to no Node' : `on Node ${pod.node}`,
    pod.ips.length === 0 ? 'no address' : pod.ips.join(', '),
    pod.terminal ? 'finished' : pod.deleting ? 'being deleted' : pod.ready ? 'Ready' : 'not Ready',
    `ports named: ${pod.ports.map(({ name }) => name).join(', ') || 'none'}`,
    `labels ${fewOf(labels, 8)}`,
  ];
  return reason('note', `the pod: ${facts.join('; ')}`, {
    object: `Pod ${pod.key}`,
  });
}

function sharedReasons({ listers }: AuditContext, pod: Pod): Reason[] {
  return pod.ips.flatMap((ip) => {
    const others = listers.podsAt(canonicalIP(ip)).filter((other) => other !== pod);
    if (others.length === 0) return [];
    const names = fewOf(others.map(({ key }) => key).sort());
    const host = pod.hostNetwork ? ' (the host network of the Node)' : '';
    return [
      reason('note', `its address ${ip} is also that of ${names}${host}`, {
        object: `Pod ${pod.key}`,
      }),
    ];
  });
}

function explainAddress(
  context: VerdictInput,
  serviceAuditor: ServiceAuditor,
  subject: Extract<ExplainTarget, { kind: 'address' }>,
): Explanation {
  const ip = parseIP(subject.address)?.text;
  if (ip === undefined) return notFound(subject, `${subject.address} is no IP address`, []);
  const { listers } = context;
  const pods = [...listers.podsAt(ip)].sort((a, b) => (a.key < b.key ? -1 : 1));
  const listing = servicesListing(listers, serviceAuditor.audited.values(), [ip]);
  const fronts = [...listers.services.values()].filter(
    ({ clusterIP }) => canonicalIP(clusterIP) === ip,
  );
  const reasons: Reason[] = fronts.map(({ key }) =>
    reason('note', `it is the cluster IP of Service ${key}`, {
      object: `Service ${key}`,
      field: 'spec.clusterIP',
    }),
  );
  reasons.push(
    ...pods.map((pod) =>
      reason('note', `it is an address of Pod ${pod.key}`, { parts: [podReason(pod)] }),
    ),
  );
  const verdicts: Verdict[] = [];
  let severity: Severity | null = null;
  for (const of of listing) {
    const items = itemsAt(of, new Set([ip]));
    severity = worse(severity, worstOf(items));
    verdicts.push(verdictAmong(context, of, items));
    reasons.push(listingReason(context, of, ip));
  }
  const change =
    reasons.flatMap(({ parts }) => parts).find((part) => part.change !== null)?.change ?? null;
  const found = pods.length + listing.length + fronts.length > 0;
  const verdict = verdicts.length === 0 ? null : worstVerdict(verdicts);
  const answer = addressAnswer(ip, pods, listing, fronts);
  return { subject, found, verdict, severity, answer, change, reasons };
}

function listingReason(context: VerdictInput, of: ServiceAudit, ip: string): Reason {
  const stands = entriesMatching(context.listers, of.record, (address) => address === ip);
  const items = itemsAt(of, new Set([ip]));
  const parts = [
    ...stands.map(({ object, text, pod }) => {
      const named = pod === null ? ', of no pod' : `, of Pod ${pod}`;
      return reason('note', `${object}: ${text}${named}`, { object });
    }),
    ...itemReasons(items),
  ];
  const unknown = anyUnknown(context, of);
  const mark = items.length > 0 ? 'no' : unknown === null ? 'yes' : 'unknown';
  const doubt = unknown === null ? '' : `; not all can be judged: ${unknownText[unknown]}`;
  return reason(mark, `Service ${of.record.key} lists it${doubt}`, {
    object: `Service ${of.record.key}`,
    parts,
  });
}

function addressAnswer(
  ip: string,
  pods: readonly Pod[],
  listing: readonly ServiceAudit[],
  fronts: readonly Service[],
): string {
  const services = listing.map(({ record }) => record.key);
  const listed = services.length === 0 ? 'no Service lists it' : `listed by ${fewOf(services)}`;
  const [front] = fronts;
  if (front !== undefined) return `${ip} is the cluster IP of Service ${front.key}`;
  if (pods.length === 0) {
    return services.length === 0
      ? `${ip} is unknown: no pod has it and no Service lists it`
      : `${ip} belongs to no pod, and yet it is ${listed}`;
  }
  const unselected = listing.filter(({ record }) =>
    pods.every(
      (pod) =>
        pod.namespace !== record.namespace ||
        !selects(record.service?.selector ?? null, pod.labels),
    ),
  );
  const stray =
    unselected.length === 0
      ? ''
      : `; ${fewOf(unselected.map(({ record }) => record.key))} do not select it`;
  const owners = pods.map(({ key }) => key);
  const living =
    pods.length > 1
      ? `${String(pods.length)} pods have ${ip}: ${fewOf(owners)}`
      : `${ip} is of Pod ${owners[0] ?? ''}`;
  return `${living}; ${listed}${stray}`;
}

// Explains a Service, a pod, both together, an address, or a Service on a node. The differences are
// those of the audit, so an explanation agrees with the findings.

import { canonicalIP, parseIP } from '../../model/ip.ts';
import type { Key, Pod } from '../../model/objects.ts';
import { selects } from '../../model/selector.ts';
import { legal } from '../finding/verdicts.ts';
import type { ServiceAuditor } from '../service/auditor.ts';
import type { AuditContext } from '../service/cache.ts';
import type { ServiceAudit, ServiceDifference } from '../service/reconcile.ts';
import { serviceOutputs, type VerdictInput, verdictOf, verdictOn } from '../service/verdict.ts';
import { stateWords } from './conditions.ts';
import { itemReasons, severityOf } from './differences.ts';
import type { ExplainTarget, Explanation, Reason, ReasonMark } from './explanation.ts';
import {
  counted,
  fewOf,
  firstChange,
  firstReasons,
  note,
  reason,
  worstSeverity,
  worstVerdict,
} from './explanation.ts';
import { isNear, missedLabelText, servicesNear, wantedLabels } from './near-miss.ts';
import { explainNode, type NodeLookup } from './node.ts';
import type { EntryFilter, ObservedEntry, PairExplanation } from './pod-in-service.ts';
import {
  doubtText,
  entryNote,
  explainPair,
  observedEntries,
  servicesListing,
} from './pod-in-service.ts';
import { explainService } from './service.ts';

type Result = Omit<Explanation, 'subject'>;

const serviceReason = (mark: ReasonMark, key: Key, text: string, rest: Partial<Reason>): Reason =>
  reason(mark, `Service ${key}${text}`, { object: `Service ${key}`, ...rest });

/** Explains a target in the current state of the Service auditor and of the rules of nodes. */
export function explain(
  context: VerdictInput,
  auditor: ServiceAuditor,
  target: ExplainTarget,
  lookup: NodeLookup | null = null,
): Explanation {
  const explanation = { subject: target, ...explainTarget(context, auditor, target, lookup) };
  return target.kind === 'node' ? explanation : withControllerHint(auditor, explanation);
}

function explainTarget(
  context: VerdictInput,
  auditor: ServiceAuditor,
  target: ExplainTarget,
  lookup: NodeLookup | null,
): Result {
  if (target.kind === 'address') return explainAddress(context, auditor, target.address);
  if ('pod' in target) {
    const pod = context.listers.pods.get(target.pod);
    if (pod === undefined) return explainMissingPod(context, auditor, target.pod);
    if (target.kind === 'pod') return explainPod(context, auditor, pod);
    const audited = auditor.audited.get(target.service);
    const pair = audited && explainPair(context, audited, pod);
    if (!pair) return missing(context, 'Service', target.service);
    const { verdict, severity, answer, change, reasons } = pair;
    return { found: true, verdict, severity, answer, change, reasons };
  }
  const audited = auditor.audited.get(target.service);
  if (audited === undefined) return missing(context, 'Service', target.service);
  if (target.kind === 'service') return { found: true, ...explainService(context, audited) };
  const body = explainNode(context, auditor, target, lookup);
  return missingNode(context, target.node) ?? { found: true, ...body };
}

/** If several Services differ without a known cause, no controller may run. */
function withControllerHint({ audited }: ServiceAuditor, explanation: Explanation): Explanation {
  const { subject, verdict, reasons, change } = explanation;
  if (verdict !== 'different' && verdict !== 'pending') return explanation;
  const isUnexplained = ({ output, cause, difference }: ServiceDifference): boolean =>
    output !== 'input' && cause === null && !legal.has(difference.code);
  const unexplained = [...audited.values()].filter(({ items }) =>
    [...items.values()].some((found) => found.some(isUnexplained)),
  );
  const others = unexplained.map(({ record }) => record.key).sort();
  if (others.length < 2) return explanation;
  const text =
    `${counted(others.length, 'Service')} differ and no known cause explains it ` +
    `(${fewOf(others)}): look whether kube-controller-manager runs and has a leader`;
  const hint = note(text, { change: 'kubectl -n kube-system get lease kube-controller-manager' });
  const objects =
    'service' in subject ? [`Service ${subject.service}`] : reasons.map(({ object }) => object);
  const isConcerned = others.some((key) => objects.includes(`Service ${key}`));
  const first =
    `see first whether kube-controller-manager runs: ${others.length} Services differ ` +
    `alike. If it does: ${change ?? ''}`;
  return {
    ...explanation,
    change: isConcerned && change !== null ? first : change,
    reasons: [...reasons, hint],
  };
}

const notFound = (answer: string, reasons: readonly Reason[] = []): Result => ({
  found: false,
  verdict: null,
  severity: null,
  answer,
  change: null,
  reasons,
});

const thereIs = (names: readonly string[]): Reason[] =>
  names.length === 0 ? [] : [note(`there is ${fewOf(names.toSorted())}`)];

function meantKeys(namespace: string, name: string, keys: Iterable<Key>): Key[] {
  const all = [...keys];
  const elsewhere = all.filter((key) => key.endsWith(`/${name}`));
  const near = all.filter((key) => isNear(key.slice(key.indexOf('/') + 1), name));
  const here = near.filter((key) => key.startsWith(`${namespace}/`));
  return [elsewhere, here, near].find((list) => list.length > 0) ?? [];
}

/** The explanation of an object that does not exist; namespace `*` means any namespace. */
function missing({ listers }: AuditContext, kind: 'Service' | 'Pod', key: Key): Result {
  const resource = kind === 'Pod' ? 'pods' : 'services';
  if (!listers.knows(resource)) {
    return notFound(`${kind} ${key} is not known: the input has no ${kind}s`);
  }
  const [namespace = '', name = ''] = key.split('/');
  const reasons = thereIs(meantKeys(namespace, name, listers[resource].keys()));
  if (namespace === '*') {
    return notFound(`${kind} ${name} does not exist in any namespace`, reasons);
  }
  if (![...listers.services.values()].some((service) => service.namespace === namespace)) {
    reasons.push(note(`there is no Service in namespace ${namespace}`));
  }
  return notFound(`${kind} ${key} does not exist`, reasons);
}

function missingNode({ listers }: AuditContext, node: string): Result | null {
  if (!listers.knows('nodes') || listers.nodes.has(node)) return null;
  const near = [...listers.nodes.keys()].filter((other) => isNear(other, node));
  return notFound(`Node ${node} does not exist`, thereIs(near));
}

function listingOf(context: VerdictInput, audited: ServiceAudit, filter: EntryFilter) {
  const { listers } = context;
  const entries = observedEntries(listers, audited.record, filter);
  const addresses = new Set(entries.map(({ address }) => address));
  const items = [...audited.items].flatMap(([unit, found]) =>
    addresses.has(unit.split(' ')[1] ?? '') ? found : [],
  );
  const verdicts = serviceOutputs
    .filter((output) => verdictOf(listers, audited, output) !== null)
    .map((output) => verdictOn(audited, items, output, context.stale));
  const { key } = audited.record;
  const verdict = worstVerdict(verdicts) ?? 'conform';
  return { audited, key, entries, items, verdict, severity: severityOf(items) };
}

type Listing = ReturnType<typeof listingOf>;

function listingReason(
  { key, entries, items }: Listing,
  mark: ReasonMark,
  text: string,
  endOf: (entry: ObservedEntry) => string = () => '',
): Reason {
  const parts = [...entries.map((entry) => entryNote(entry, endOf(entry))), ...itemReasons(items)];
  return serviceReason(mark, key, ` ${text}`, { parts });
}

const worstOf = (assessed: readonly Pick<Listing, 'verdict' | 'severity'>[]) => ({
  verdict: worstVerdict(assessed.map(({ verdict }) => verdict)),
  severity: worstSeverity(assessed.map(({ severity }) => severity)),
});

function explainMissingPod(context: VerdictInput, auditor: ServiceAuditor, key: Key): Result {
  const listings = [...auditor.audited.values()]
    .filter(({ record }) => key.startsWith(`${record.namespace}/`))
    .map((audited) => listingOf(context, audited, (_, pod) => pod === key))
    .filter(({ entries }) => entries.length > 0);
  if (listings.length === 0) return missing(context, 'Pod', key);
  const reasons = listings.map((listing) => listingReason(listing, 'no', 'still lists it'));
  const services = counted(listings.length, 'Service');
  const answer = `Pod ${key} does not exist, but is still listed in ${services}`;
  const change = firstChange(reasons[0]?.parts ?? []);
  return { found: true, ...worstOf(listings), answer, change, reasons };
}

function explainAddress(context: VerdictInput, auditor: ServiceAuditor, address: string): Result {
  const ip = parseIP(address)?.text;
  if (ip === undefined) return notFound(`${address} is no IP address`);
  const { listers } = context;
  const pods = listers.podsAt(ip).toSorted((a, b) => (a.key < b.key ? -1 : 1));
  const listings = servicesListing(listers, auditor.audited.values(), [ip]).map((audited) =>
    listingOf(context, audited, (other) => other === ip),
  );
  const fronts = [...listers.services.values()]
    .filter(({ clusterIP }) => canonicalIP(clusterIP) === ip)
    .map(({ key }) => `Service ${key}`);
  const reasons = [
    ...fronts.map((object) =>
      note(`it is the cluster IP of ${object}`, { object, field: 'spec.clusterIP' }),
    ),
    ...pods.map((pod) => note(`it is an address of Pod ${pod.key}`, { parts: [podReason(pod)] })),
    ...listings.map((listing) => {
      const doubt = doubtText(context, listing.audited);
      const mark = listing.items.length > 0 ? 'no' : doubt === '' ? 'yes' : 'unknown';
      const endOf = ({ pod }: ObservedEntry): string =>
        pod === null ? ', of no pod' : `, of Pod ${pod}`;
      return listingReason(listing, mark, `lists it${doubt}`, endOf);
    }),
  ];
  return {
    found: reasons.length > 0,
    ...worstOf(listings),
    answer: addressAnswer(ip, pods, listings, fronts),
    change: firstChange(reasons.flatMap(({ parts }) => parts)),
    reasons,
  };
}

function addressAnswer(
  ip: string,
  pods: readonly Pod[],
  listings: readonly Listing[],
  [front]: readonly string[],
): string {
  if (front !== undefined) return `${ip} is the cluster IP of ${front}`;
  const keys = listings.map(({ key }) => key);
  const listed = keys.length === 0 ? 'no Service lists it' : `listed by ${fewOf(keys)}`;
  if (pods.length === 0) {
    return keys.length === 0
      ? `${ip} is unknown: no pod has it and no Service lists it`
      : `${ip} belongs to no pod, and yet it is ${listed}`;
  }
  const isSelecting = ({ audited: { record } }: Listing): boolean =>
    pods.some(
      ({ namespace, labels }) =>
        namespace === record.namespace && selects(record.service?.selector ?? null, labels),
    );
  const strays = listings.filter((listing) => !isSelecting(listing)).map(({ key }) => key);
  const owners = fewOf(pods.map(({ key }) => key));
  const start =
    pods.length > 1 ? `${pods.length} pods have ${ip}: ${owners}` : `${ip} is of Pod ${owners}`;
  const end = strays.length === 0 ? '' : `; ${fewOf(strays)} do not select it`;
  return `${start}; ${listed}${end}`;
}

function explainPod(context: VerdictInput, { audited }: ServiceAuditor, pod: Pod): Result {
  const { listers } = context;
  const listing = servicesListing(listers, audited.values(), pod.ips.map(canonicalIP))
    .map(({ record }) => record)
    .filter(({ namespace }) => namespace === pod.namespace);
  const selectors = listers.servicesSelecting(pod.namespace, pod.labels);
  const keys = [...new Set([...selectors, ...listing].map(({ key }) => key))].sort();
  const pairs = keys.slice(0, 20).flatMap((key) => {
    const service = audited.get(key);
    return (service && explainPair(context, service, pod)) ?? [];
  });
  const rest = keys.length - 20;
  const selecting = pairs.filter(({ selected }) => selected);
  const { answer, change } = podAnswer(context, pod, pairs, selecting);
  const reasons = [
    ...pairs.map(pairReason),
    ...(rest > 0 ? [note(`and ${counted(rest, 'more Service')}`)] : []),
    ...(selecting.length === 0 ? nearReasons(context, pod) : []),
    podReason(pod),
    ...sharedReasons(context, pod),
  ];
  return { found: true, ...worstOf(pairs), answer, change, reasons };
}

function pairReason({ verdict, decides, service, state, brief }: PairExplanation): Reason {
  const isServing = verdict === 'conform' && decides === null;
  const mark = verdict === 'unknown' ? 'unknown' : isServing ? 'yes' : 'no';
  const text = `: ${verdict}: it must be ${stateWords[state]}`;
  return serviceReason(mark, service, text, { parts: brief });
}

function podAnswer(
  { listers }: AuditContext,
  pod: Pod,
  pairs: readonly PairExplanation[],
  selecting: readonly PairExplanation[],
): Pick<Result, 'answer' | 'change'> {
  const name = `Pod ${pod.key}`;
  const [only, second] = selecting;
  const wrong = pairs.find(({ verdict }) => verdict === 'different');
  if (wrong !== undefined) return wrong;
  if (only === undefined) {
    const [first] = servicesNear(listers, pod);
    const missed = (first?.missed ?? []).map(missedLabelText).join('; ') || 'in another namespace';
    const near = first === undefined ? '' : `; closest: Service ${first.service.key} (${missed})`;
    const answer = `${name} is in no Service: no selector matches its labels${near}`;
    return { answer, change: null };
  }
  if (second === undefined) return only;
  const serving = selecting.filter(({ decides }) => decides === null);
  const other = selecting.find(({ decides }) => decides !== null);
  const shown = fewOf(serving.map(({ service }) => service));
  const start = serving.length === 0 ? [] : [`${name} is in ${shown} and gets their traffic`];
  const answer = [...start, other?.answer ?? []].flat().join('; ');
  return { answer, change: other?.change ?? null };
}

function nearReasons({ listers }: AuditContext, pod: Pod): Reason[] {
  const services = servicesNear(listers, pod);
  if (services.length === 0) {
    const names = [...listers.services.values()]
      .filter(({ namespace, selector }) => namespace === pod.namespace && selector !== null)
      .map(({ name }) => name)
      .sort();
    const count = counted(names.length, 'Service');
    const text = `no selector of ${count} in namespace ${pod.namespace} comes near its labels`;
    return [note(names.length === 0 ? text : `${text}: ${fewOf(names, 5)}`)];
  }
  const describe = ({ service, missed }: (typeof services)[number]): Reason => {
    const isElsewhere = missed.length === 0;
    const why = isElsewhere
      ? 'would select it, but a Service selects pods of its own namespace only'
      : `nearly selects it: ${missed.map(missedLabelText).join('; ')}`;
    const change = `label the pod ${wantedLabels(missed)}, or change the selector`;
    const details = { field: 'spec.selector', change: isElsewhere ? null : change };
    return serviceReason('note', service.key, ` ${why}`, details);
  };
  return firstReasons(services, 5, describe, (rest) => counted(rest, 'more Service'));
}

function podReason(pod: Pod): Reason {
  const labels = Object.entries(pod.labels).map(([key, value]) => `${key}=${value}`);
  const facts = [
    pod.node === '' ? 'bound to no Node' : `on Node ${pod.node}`,
    pod.ips.join(', ') || 'no address',
    podPhase(pod),
    `ports named: ${pod.ports.map(({ name }) => name).join(', ') || 'none'}`,
    `labels ${fewOf(labels, 8)}`,
  ];
  return note(`the pod: ${facts.join('; ')}`, { object: `Pod ${pod.key}` });
}

export const podPhase = ({ terminal, deleting, ready }: Pod): string =>
  terminal ? 'finished' : deleting ? 'being deleted' : ready ? 'Ready' : 'not Ready';

const sharedReasons = ({ listers }: AuditContext, pod: Pod): Reason[] =>
  pod.ips.flatMap((ip) => {
    const others = listers.podsAt(canonicalIP(ip)).filter((other) => other !== pod);
    if (others.length === 0) return [];
    const names = fewOf(others.map(({ key }) => key).sort());
    const host = pod.hostNetwork ? ' (the host network of the Node)' : '';
    const text = `its address ${ip} is also that of ${names}${host}`;
    return [note(text, { object: `Pod ${pod.key}` })];
  });

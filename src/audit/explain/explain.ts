// Explains a Service, a pod, both together, an address, or a Service on a node: what is expected
// and why, what exists, what differs, the cause of the difference, and the smallest change that
// helps. The desired state comes from the shadows and the differences from the audit, so an
// explanation agrees with the findings.

import { canonicalIP, parseIP } from '../../model/ip.ts';
import type { Key, Pod, Service } from '../../model/objects.ts';
import { selects } from '../../model/selector.ts';
import type { Verdict } from '../finding/verdicts.ts';
import { legal } from '../finding/verdicts.ts';
import type { ServiceAuditor } from '../service/auditor.ts';
import type { AuditContext } from '../service/cache.ts';
import type { ServiceAudit } from '../service/reconcile.ts';
import type { VerdictInput } from '../service/verdict.ts';
import { serviceOutputs, verdictOf } from '../service/verdict.ts';
import { stateWords } from './conditions.ts';
import type { ExplainTarget, Explanation, ExplanationBody, Reason } from './explanation.ts';
import {
  counted,
  fewOf,
  firstChange,
  itemReasons,
  note,
  reason,
  severityOf,
  unknownText,
  worstSeverity,
  worstVerdict,
} from './explanation.ts';
import { isNear, missedLabelText, servicesNear, wantedLabels } from './near-miss.ts';
import type { NodeLookup } from './node.ts';
import { explainNode, noNodeLookup } from './node.ts';
import { observedEntries, servicesListing } from './observed.ts';
import type { PairExplanation } from './pod-in-service.ts';
import { anyUnknown, explainPair, verdictOn } from './pod-in-service.ts';
import { explainService } from './service.ts';

type Result = Omit<Explanation, 'subject'>;

/** Explains a target in the current state of the Service auditor and of the rules of nodes. */
export function explain(
  context: VerdictInput,
  auditor: ServiceAuditor,
  target: ExplainTarget,
  lookup: NodeLookup = noNodeLookup,
): Explanation {
  const explanation = { subject: target, ...explainTarget(context, auditor, target, lookup) };
  return target.kind === 'node' ? explanation : withControllerHint(auditor, explanation);
}

function explainTarget(
  context: VerdictInput,
  auditor: ServiceAuditor,
  target: ExplainTarget,
  lookup: NodeLookup,
): Result {
  if (target.kind === 'address') return explainAddress(context, auditor, target.address);
  const pod = 'pod' in target ? context.listers.pods.get(target.pod) : undefined;
  if ('pod' in target && pod === undefined) return explainMissingPod(context, auditor, target.pod);
  if (target.kind === 'pod' && pod !== undefined) return explainPod(context, auditor, pod);
  if (target.kind === 'pod') return missing(context, 'Pod', target.pod);
  const audited = auditor.audited.get(target.service);
  if (audited === undefined) return missing(context, 'Service', target.service);
  if (target.kind === 'service') return { found: true, ...explainService(context, audited) };
  if (target.kind === 'node') {
    return (
      missingNode(context, target.node) ?? {
        found: true,
        ...explainNode(context, auditor, target, lookup),
      }
    );
  }
  const pair = pod === undefined ? null : explainPair(context, audited, pod);
  if (pair === null) return missing(context, 'Service', target.service);
  const { verdict, severity, answer, change } = pair;
  return { found: true, verdict, severity, answer, change, reasons: pairReasons(pair, true) };
}

/** If several Services differ without a known cause, no controller may run. */
function withControllerHint(auditor: ServiceAuditor, explanation: Explanation): Explanation {
  const { subject, verdict, reasons, change } = explanation;
  if (verdict !== 'different' && verdict !== 'pending') return explanation;
  const others = unexplained(auditor);
  if (others.length < 2) return explanation;
  const text =
    `${counted(others.length, 'Service')} differ and no known cause explains it ` +
    `(${fewOf(others)}): look whether kube-controller-manager runs and has a leader`;
  const hint = note(text, { change: 'kubectl -n kube-system get lease kube-controller-manager' });
  const services =
    'service' in subject
      ? [subject.service]
      : reasons.flatMap(({ object }) => object?.match(/^Service (.*)/)?.[1] ?? []);
  const first =
    `see first whether kube-controller-manager runs: ${others.length} Services differ ` +
    `alike. If it does: ${change ?? ''}`;
  const isConcerned = services.some((key) => others.includes(key));
  return {
    ...explanation,
    change: isConcerned && change !== null ? first : change,
    reasons: [...reasons, hint],
  };
}

/** The Services with a difference without a known cause. */
const unexplained = ({ audited }: ServiceAuditor): Key[] =>
  [...audited.values()]
    .filter(({ items }) =>
      [...items.values()]
        .flat()
        .some(
          ({ output, cause, difference }) =>
            output !== 'input' && cause === null && !legal.has(difference.code),
        ),
    )
    .map(({ record }) => record.key)
    .sort();

// --- objects that do not exist ---

const notFound = (answer: string, reasons: readonly Reason[]): Result => ({
  found: false,
  verdict: null,
  severity: null,
  answer,
  change: null,
  reasons,
});

/** Keys that may be meant: of that name in another namespace, or spelled nearly the same. */
function meantKeys(key: Key, keys: Iterable<Key>): Reason[] {
  const [namespace = '', name = ''] = key.split('/');
  const all = [...keys].map((known) => ({ known, name: known.slice(known.indexOf('/') + 1) }));
  const near = all.filter((item) => isNear(item.name, name)).map(({ known }) => known);
  const isHere = (known: Key): boolean => known.startsWith(`${namespace}/`);
  const found = [
    all.filter((item) => item.name === name).map(({ known }) => known),
    near.filter(isHere),
    near.filter((known) => !isHere(known)),
  ].find((list) => list.length > 0);
  return found === undefined ? [] : [note(`there is ${fewOf(found.sort())}`)];
}

/** The explanation of an object that does not exist; namespace `*` means any namespace. */
function missing({ listers }: AuditContext, kind: 'Service' | 'Pod', key: Key): Result {
  const resource = kind === 'Pod' ? 'pods' : 'services';
  if (!listers.knows(resource)) {
    return notFound(`${kind} ${key} is not known: the input has no ${kind}s`, []);
  }
  const reasons = meantKeys(key, listers[resource].keys());
  const [namespace = '', name = ''] = key.split('/');
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
  const near = [...listers.nodes.keys()].filter((other) => isNear(other, node)).sort();
  const reasons = near.length === 0 ? [] : [note(`there is ${fewOf(near)}`)];
  return notFound(`Node ${node} does not exist`, reasons);
}

// --- entries at addresses ---

/** The entries of one Service that name a pod or have an address, with their differences. */
function listingOf(
  context: VerdictInput,
  audited: ServiceAudit,
  filter: Parameters<typeof observedEntries>[2],
) {
  const entries = observedEntries(context.listers, audited.record, filter);
  const addresses = new Set(entries.map(({ address }) => address));
  const items = [...audited.items].flatMap(([unit, found]) =>
    addresses.has(unit.split(' ')[1] ?? '') ? found : [],
  );
  const outputs = serviceOutputs.filter(
    (output) => verdictOf(context.listers, audited, output) !== null,
  );
  const verdict = worstVerdict(outputs.map((output) => verdictOn(context, audited, items, output)));
  const { key } = audited.record;
  return { audited, key, entries, items, verdict, severity: severityOf(items) };
}

interface Assessed {
  readonly verdict: Verdict;
  readonly severity: ExplanationBody['severity'];
}

const worstOf = (assessed: readonly Assessed[]): Pick<ExplanationBody, 'verdict' | 'severity'> => ({
  verdict: assessed.length === 0 ? null : worstVerdict(assessed.map(({ verdict }) => verdict)),
  severity: worstSeverity(assessed.map(({ severity }) => severity)),
});

/** A pod that does not exist; Services may still list it. */
function explainMissingPod(context: VerdictInput, auditor: ServiceAuditor, key: Key): Result {
  const listings = [...auditor.audited.values()]
    .filter(({ record }) => key.startsWith(`${record.namespace}/`))
    .map((audited) => listingOf(context, audited, (_, pod) => pod === key))
    .filter(({ entries }) => entries.length > 0);
  if (listings.length === 0) return missing(context, 'Pod', key);
  const reasons = listings.map(({ key: service, entries, items }) => {
    const parts = [
      ...entries.map(({ object, text }) => note(`${object}: ${text}`, { object })),
      ...itemReasons(items),
    ];
    const object = `Service ${service}`;
    return reason('no', `${object} still lists it`, { object, parts });
  });
  const services = counted(listings.length, 'Service');
  const answer = `Pod ${key} does not exist, but is still listed in ${services}`;
  const change = firstChange(reasons[0]?.parts ?? []);
  return { found: true, ...worstOf(listings), answer, change, reasons };
}

function explainAddress(context: VerdictInput, auditor: ServiceAuditor, address: string): Result {
  const ip = parseIP(address)?.text;
  if (ip === undefined) return notFound(`${address} is no IP address`, []);
  const { listers } = context;
  const pods = [...listers.podsAt(ip)].sort((a, b) => (a.key < b.key ? -1 : 1));
  const listing = servicesListing(listers, auditor.audited.values(), [ip]);
  const fronts = [...listers.services.values()].filter(
    ({ clusterIP }) => canonicalIP(clusterIP) === ip,
  );
  const listings = listing.map((audited) => listingOf(context, audited, (other) => other === ip));
  const reasons = [
    ...fronts.map(({ key }) => {
      const object = `Service ${key}`;
      return note(`it is the cluster IP of ${object}`, { object, field: 'spec.clusterIP' });
    }),
    ...pods.map((pod) => note(`it is an address of Pod ${pod.key}`, { parts: [podReason(pod)] })),
    ...listings.map((found) => listingReason(context, found)),
  ];
  return {
    found: pods.length + listing.length + fronts.length > 0,
    ...worstOf(listings),
    answer: addressAnswer(ip, pods, listing, fronts),
    change: firstChange(reasons.flatMap(({ parts }) => parts)),
    reasons,
  };
}

function listingReason(
  context: VerdictInput,
  { audited, entries, items, key }: ReturnType<typeof listingOf>,
): Reason {
  const parts = [
    ...entries.map(({ object, text, pod }) => {
      const named = pod === null ? 'of no pod' : `of Pod ${pod}`;
      return note(`${object}: ${text}, ${named}`, { object });
    }),
    ...itemReasons(items),
  ];
  const unknown = anyUnknown(context, audited);
  const mark = items.length > 0 ? 'no' : unknown === null ? 'yes' : 'unknown';
  const doubt = unknown === null ? '' : `; not all can be judged: ${unknownText[unknown]}`;
  const object = `Service ${key}`;
  return reason(mark, `${object} lists it${doubt}`, { object, parts });
}

function addressAnswer(
  ip: string,
  pods: readonly Pod[],
  listing: readonly ServiceAudit[],
  fronts: readonly Service[],
): string {
  const [front] = fronts;
  if (front !== undefined) return `${ip} is the cluster IP of Service ${front.key}`;
  const keys = listing.map(({ record }) => record.key);
  const listed = keys.length === 0 ? 'no Service lists it' : `listed by ${fewOf(keys)}`;
  if (pods.length === 0) {
    return keys.length === 0
      ? `${ip} is unknown: no pod has it and no Service lists it`
      : `${ip} belongs to no pod, and yet it is ${listed}`;
  }
  const unselected = listing.filter(({ record: { namespace, service } }) =>
    pods.every(
      (pod) => pod.namespace !== namespace || !selects(service?.selector ?? null, pod.labels),
    ),
  );
  const strays = fewOf(unselected.map(({ record }) => record.key));
  const owners = pods.map(({ key }) => key);
  const start =
    pods.length > 1
      ? `${pods.length} pods have ${ip}: ${fewOf(owners)}`
      : `${ip} is of Pod ${owners[0] ?? ''}`;
  return `${start}; ${listed}${strays === '' ? '' : `; ${strays} do not select it`}`;
}

// --- pods ---

/** The reasons of a pair; without `all`, only the conditions that do not pass. */
const pairReasons = ({ conditions, entries, others }: PairExplanation, all: boolean): Reason[] => [
  ...conditions.filter(({ mark }) => all || mark !== 'yes'),
  ...entries,
  ...others,
];

const mostServices = 20;

function explainPod(context: VerdictInput, auditor: ServiceAuditor, pod: Pod): Result {
  const { listers } = context;
  const { audited } = auditor;
  const listing = servicesListing(listers, audited.values(), pod.ips.map(canonicalIP));
  const keys = new Set([
    ...listers.servicesSelecting(pod.namespace, pod.labels).map(({ key }) => key),
    ...listing.filter(({ record }) => record.namespace === pod.namespace).map((s) => s.record.key),
  ]);
  const pairs = [...keys]
    .sort()
    .slice(0, mostServices)
    .flatMap((key) => {
      const service = audited.get(key);
      return service === undefined ? [] : (explainPair(context, service, pod) ?? []);
    });
  const rest = keys.size - mostServices;
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

function pairReason(pair: PairExplanation): Reason {
  const { verdict, decides, service, state } = pair;
  const isServing = verdict === 'conform' && decides === null;
  const object = `Service ${service}`;
  return reason(
    verdict === 'unknown' ? 'unknown' : isServing ? 'yes' : 'no',
    `${object}: ${verdict}: it must be ${stateWords[state]}`,
    { object, parts: pairReasons(pair, false) },
  );
}

function podAnswer(
  { listers }: AuditContext,
  pod: Pod,
  pairs: readonly PairExplanation[],
  selecting: readonly PairExplanation[],
): { answer: string; change: string | null } {
  const name = `Pod ${pod.key}`;
  const [only] = selecting;
  const wrong = pairs.find(({ verdict }) => verdict === 'different');
  if (wrong !== undefined) return wrong;
  if (only === undefined) {
    const [first] = servicesNear(listers, pod).nearest;
    const missed = (first?.missed ?? []).map(missedLabelText).join('; ') || 'in another namespace';
    const near = first === undefined ? '' : `; closest: Service ${first.service.key} (${missed})`;
    return {
      answer: `${name} is in no Service: no selector matches its labels${near}`,
      change: null,
    };
  }
  if (selecting.length === 1) return only;
  const serving = selecting.filter(({ decides }) => decides === null);
  const other = selecting.find(({ decides }) => decides !== null);
  const shown = fewOf(serving.map(({ service }) => service));
  const texts = [
    ...(serving.length === 0 ? [] : [`${name} is in ${shown} and gets their traffic`]),
    ...(other === undefined ? [] : [other.answer]),
  ];
  return { answer: texts.join('; '), change: other?.change ?? null };
}

/** The Services that nearly select a pod. */
function nearReasons({ listers }: AuditContext, pod: Pod): Reason[] {
  const { nearest, more } = servicesNear(listers, pod);
  if (nearest.length === 0) {
    const names = [...listers.services.values()]
      .filter(({ namespace, selector }) => namespace === pod.namespace && selector !== null)
      .map(({ name }) => name)
      .sort();
    const count = counted(names.length, 'Service');
    const text = `no selector of ${count} in namespace ${pod.namespace} comes near its labels`;
    return [note(names.length === 0 ? text : `${text}: ${fewOf(names, 5)}`)];
  }
  const reasons = nearest.map(({ service, missed, otherNamespace }) => {
    const object = `Service ${service.key}`;
    const why = otherNamespace
      ? 'would select it, but a Service selects pods of its own namespace only'
      : `nearly selects it: ${missed.map(missedLabelText).join('; ')}`;
    const change = `label the pod ${wantedLabels(missed)}, or change the selector`;
    return note(`${object} ${why}`, {
      object,
      field: 'spec.selector',
      change: otherNamespace ? null : change,
    });
  });
  return more > 0 ? [...reasons, note(`and ${counted(more, 'more Service')}`)] : reasons;
}

/** The fields of the pod that the controllers read. */
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

/** The other pods with an address of the pod. */
const sharedReasons = ({ listers }: AuditContext, pod: Pod): Reason[] =>
  pod.ips.flatMap((ip) => {
    const others = listers.podsAt(canonicalIP(ip)).filter((other) => other !== pod);
    if (others.length === 0) return [];
    const names = fewOf(others.map(({ key }) => key).sort());
    const host = pod.hostNetwork ? ' (the host network of the Node)' : '';
    const text = `its address ${ip} is also that of ${names}${host}`;
    return [note(text, { object: `Pod ${pod.key}` })];
  });

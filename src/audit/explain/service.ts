// Explains one Service: the findings of all its outputs, its pods and their desired states, near
// misses if it selects none, why it cannot receive traffic, and the verdict of each output.

import type { Key, Listers, Pod, Service } from '../../model/objects.ts';
import { annotation, label, portText } from '../../model/objects.ts';
import { selectorText } from '../../model/selector.ts';
import { isSelected } from '../../shadow/endpoints.ts';
import { addressTypesOf } from '../../shadow/endpointslice.ts';
import { hintMode, whyNoHints } from '../../shadow/hints.ts';
import { isMirrored } from '../../shadow/mirroring.ts';
import { addressesOf } from '../../shadow/pod.ts';
import { catalogue, type Finding, isWorse } from '../finding/catalogue.ts';
import { legal, unknownText, verdictWords, worstVerdict } from '../finding/verdicts.ts';
import { fillOf } from '../measure/endpoint-counts.ts';
import { indexHealth, serviceOfPort } from '../node/service-health.ts';
import type { ServiceAuditor } from '../service/auditor.ts';
import type { AuditContext, ServiceState } from '../service/cache.ts';
import { nodeOf, podsOf, slicesOf } from '../service/cache.ts';
import { countHints } from '../service/endpointslices.ts';
import type { ServiceOutput } from '../service/enqueue.ts';
import { type ServiceAudit, type ServiceDifference, unitAddress } from '../service/reconcile.ts';
import { type UnservedReason, unservedReason } from '../service/unserved.ts';
import type { VerdictInput } from '../service/verdict.ts';
import { noStaleResources, serviceOutputs, unknownReason, verdictOf } from '../service/verdict.ts';
import type { Conditions } from './conditions.ts';
import { decidingCondition, evaluateConditions, stateWords } from './conditions.ts';
import {
  itemChange,
  itemText,
  numberedReasons,
  suppressedNotes,
  worstItemsFirst,
} from './differences.ts';
import type { ExplanationBody, Reason } from './explanation.ts';
import {
  counted,
  fewOf,
  firstChange,
  firstReasons,
  markOf,
  note,
  reason,
  servicePortText,
} from './explanation.ts';
import type { NodeLookup } from './node.ts';
import { missedLabelText, namespacesMatching, podsNear, wantedLabels } from './near-miss.ts';
import { doubtText, managerText, observedEntries } from './pod-in-service.ts';

/**
 * Explains a Service, or the objects that are left under its name, with the findings of all its
 * outputs: those of its input and of nodes too. A null `lookup` knows the rules of no node.
 */
export function explainService(
  context: VerdictInput,
  { settle }: ServiceAuditor,
  audited: ServiceAudit,
  lookup: NodeLookup | null,
): ExplanationBody {
  const { listers, stale = noStaleResources } = context;
  const { record } = audited;
  const { service, key } = record;
  const items = [...audited.items.values()].flat();
  const nodes = lookup?.verdicts ?? null;
  const index = indexHealth(settle.open(), nodes, stale);
  const verdicts = serviceOutputs.map((output) => verdictOf(listers, audited, output, stale));
  const { verdict, severity } = index.healthOf(key, verdicts);
  const findings = index.findingsOf(key);
  const onNodes = findings.filter(({ node }) => node !== null);
  const pods = service === null ? null : podsReason(context, record, service);
  const withoutEndpoints = unservedReason(context, audited);
  const missing = reason('no', `there is no Service ${key}`);
  return {
    verdict,
    severity,
    withoutEndpoints,
    ...answerOf(context, audited, [pods, withoutEndpoints], [worstItem(items), onNodes[0]]),
    reasons: [
      numberedReasons(record, items, onNodes),
      findings.flatMap(suppressedNotes),
      service === null ? missing : kindReason(service),
      pods ?? [],
      serviceOutputs.flatMap((output) => outputReason(context, audited, output) ?? []),
      nodesReason(key, nodes) ?? [],
      foreignReasons(context, record),
    ].flat(),
  };
}

/** The worst difference that the answer names; undefined if all are information, or legal. */
const worstItem = (items: readonly ServiceDifference[]): ServiceDifference | undefined =>
  worstItemsFirst(items).find(
    ({ severity, difference }) => severity !== 'info' && !legal.has(difference.code),
  );

function answerOf(
  context: VerdictInput,
  audited: ServiceAudit,
  [pods, unserved]: readonly [Reason | null, UnservedReason | null],
  [item, finding]: readonly [ServiceDifference | undefined, Finding | undefined],
): Pick<ExplanationBody, 'answer' | 'change'> {
  const answer = `Service ${audited.record.key} ${stateText(audited.record, pods, unserved)}`;
  if (finding !== undefined && (item === undefined || isWorse(finding.severity, item.severity))) {
    const { title, remedy } = catalogue[finding.code];
    return { answer: `${answer}. But on Node ${finding.node ?? ''}: ${title}`, change: remedy };
  }
  if (item !== undefined) {
    return { answer: `${answer}. But: ${itemText(item)}`, change: itemChange(item) };
  }
  const doubt = pods === null ? '' : doubtText(context, audited);
  return { answer: answer + doubt, change: firstChange(pods?.parts ?? []) ?? pods?.change ?? null };
}

/** What the nodes with known rules do with a Service; null if it has no port on any of them. */
function nodesReason(key: Key, nodes: NodeLookup['verdicts'] | null): Reason | null {
  const found = [...(nodes ?? [])].flatMap(([node, ports]) => {
    const ofService = ports.filter(({ port }) => port === '' || serviceOfPort(port) === key);
    const verdict = worstVerdict(ofService.map((port) => port.verdict));
    return verdict === null ? [] : [{ node, verdict }];
  });
  if (found.length === 0) return null;
  const byVerdict = Map.groupBy(found, ({ verdict }) => verdict);
  const others = (['different', 'pending', 'unknown'] as const).flatMap((verdict) => {
    const names = (byVerdict.get(verdict) ?? []).map(({ node }) => node).sort();
    return names.length === 0 ? [] : `${verdictWords[verdict]} on ${fewOf(names)}`;
  });
  const good = byVerdict.get('conform')?.length ?? 0;
  const verb = found.length === 1 ? 'forwards' : 'forward';
  const text = `${good} of ${counted(found.length, 'node')} ${verb} it correctly`;
  const worst = worstVerdict([...byVerdict.keys()]) ?? 'conform';
  return reason(markOf(worst), ['Nodes: ' + text, ...others].join('; '));
}

function stateText(
  { service, endpoints, members }: ServiceState,
  pods: Reason | null,
  unserved: UnservedReason | null,
): string {
  if (service === null) return 'does not exist';
  if (service.type === 'ExternalName') {
    return 'is an alias in DNS (ExternalName) and has no endpoints';
  }
  if (service.selector === null) {
    const isCopied = isMirrored(service, endpoints);
    const end = isCopied ? ', and its Endpoints are mirrored into EndpointSlices' : '';
    return `has no selector, so the controllers add no pods to it${end}`;
  }
  if (pods === null || pods.mark === 'unknown') return 'cannot be explained without its pods';
  if (members.size === 0) {
    const [closest] = pods.parts;
    const end = closest === undefined ? '' : `; closest: ${closest.text}`;
    return `selects no pod: ${pods.text}${end}`;
  }
  const first = pods.parts.find(({ mark }) => mark === 'no')?.text;
  if (pods.mark === 'no') {
    // Terminating pods, and endpoints of another client, may still receive traffic.
    const lack = unserved === null ? 'pod that is ready for' : 'endpoint that can receive';
    return `has no ${lack} traffic: ${first ?? pods.text}`;
  }
  return `has endpoints: ${pods.text}${first === undefined ? '' : `; ${first}`}`;
}

function kindReason(service: Service): Reason {
  const object = `Service ${service.key}`;
  if (service.type === 'ExternalName') {
    const text =
      'it is of type ExternalName, an alias in DNS: no controller writes endpoints for it';
    return note(text, { object, field: 'spec.type' });
  }
  if (service.selector === null) {
    const text = 'it has no selector, so another client must write its Endpoints or EndpointSlices';
    return note(text, { object, field: 'spec.selector' });
  }
  const ports = service.ports.map(
    (port) => `${servicePortText(port)} to ${port.targetPort || port.port}`,
  );
  const facts = [
    `type ${service.type}`,
    service.clusterIP === 'None' ? ', headless' : '',
    `, selects ${selectorText(service.selector)}`,
    `, ${addressTypesOf(service).join(' and ')}, ports ${ports.join(', ') || 'none'}`,
    service.publishNotReadyAddresses
      ? '; it publishes pods that are not ready (publishNotReadyAddresses)'
      : '',
    service.deleting ? '; it is terminating' : '',
  ];
  return reason('yes', facts.join(''), { object, field: 'spec' });
}

/** The selected pods in groups that are equal in all that decides, largest first. */
function groupPods(listers: Listers, record: ServiceState, service: Service): Pod[][] {
  const { members, kinds } = record;
  const types = addressTypesOf(service);
  const groups = Map.groupBy(podsOf(listers, record), (pod) => {
    const { terminal, deleting, ready, ips, node } = pod;
    const kind = members.get(pod.key);
    const isLeftOut = terminal || kind?.stranded === true;
    const listed = isLeftOut ? [] : types.filter((type) => addressesOf(pod, type).length > 0);
    const facts = [terminal, deleting, ready, ips.length, node === ''];
    return [kind === undefined ? -1 : kinds.indexOf(kind), ...facts, ...listed].join(' ');
  });
  return [...groups.values()].sort((a, b) => b.length - a.length);
}

/** What pods without a port of the Service do. */
const portlessText = (count: number): string =>
  count === 1
    ? 'receives no traffic, since it has no port of the Service'
    : 'receive no traffic, since they have no port of the Service';

function groupReason(pods: readonly Pod[], { conditions, expected, state }: Conditions): Reason {
  // The first condition that keeps the group from being ready, in slices first.
  const deciding = [...expected].map((entry) => decidingCondition(conditions, entry));
  const why = [...deciding.slice(1), deciding[0]].find((condition) => condition)?.reason.text;
  const others =
    state === 'no-ports' ? portlessText(pods.length) : `should be ${stateWords[state]}`;
  const must = state === 'ready' ? 'ready' : others;
  const names = fewOf(pods.map(({ name }) => name).sort());
  const text = `${counted(pods.length, 'pod')} ${must}${why ? `: ${why}` : ''} (${names})`;
  const object = pods.length === 1 ? `Pod ${pods[0]?.key ?? ''}` : 'Pods';
  const failed = conditions.find((condition) => condition.reason.mark === 'no')?.reason;
  const { field = null, source = null, change = null } = failed ?? {};
  return reason(state === 'ready' ? 'yes' : 'no', text, { object, field, source, change });
}

function podsReason(context: AuditContext, record: ServiceState, service: Service): Reason | null {
  if (!isSelected(service)) return null;
  if (!context.listers.knows('pods')) {
    return reason('unknown', `Pods: ${unknownText['pods-not-known']}`);
  }
  if (record.members.size === 0) {
    return noPodsReason(service, nearReasons(context, service));
  }
  const { listers, release } = context;
  let ready = 0;
  const parts = groupPods(listers, record, service).flatMap((pods) => {
    const [pod] = pods;
    if (pod === undefined) return [];
    const evaluated = evaluateConditions({ service, pod, node: nodeOf(listers, pod) }, release);
    if (['ready', 'fewer-ports'].includes(evaluated.state)) ready += pods.length;
    return groupReason(pods, evaluated);
  });
  const all = [...podsOf(listers, record)].filter((pod) => pod.ready && !pod.deleting).length;
  const rest = all === ready ? '' : `, but ${ready} can receive traffic`;
  const pods = counted(record.members.size, 'pod');
  const text = `it selects ${pods}, ${all} of them ready${rest}`;
  return reason(ready > 0 ? 'yes' : 'no', text, { parts });
}

function nearReason({ missed, count, pod, near }: ReturnType<typeof podsNear>[number]): Reason {
  const texts = missed.map(missedLabelText).join('; ');
  const got = missed.map(({ key, got: value }) => `${key}=${value ?? ''}`).join(',');
  const isComplete = missed.every(({ got: value }) => value !== null);
  const selector = isComplete ? `, or let the Service select ${got}` : '';
  return note(`${counted(count, 'pod')} such as ${pod.name}: ${texts}`, {
    object: `Pod ${pod.key}`,
    field: `metadata.labels ${missed.map(({ key }) => key).join(', ')}`,
    // Pods of another workload must not be added to a Service by its advice.
    change: near ? `label them ${wantedLabels(missed)}${selector}` : null,
  });
}

/** The pods that come closest to the selector, and namespaces with pods that it matches. */
function nearReasons({ listers }: AuditContext, service: Service): Reason[] {
  const groups = podsNear(listers, service);
  const countText = (rest: number): string => `${counted(rest, 'more group')} of pods`;
  const reasons = firstReasons(groups, 5, nearReason, countText);
  // This scans every pod of the cluster; a near miss needs no other guess.
  const isFound = groups.some(({ near }) => near);
  const elsewhere = isFound ? [] : namespacesMatching(listers, service);
  if (elsewhere.length === 0) return reasons;
  const where = elsewhere.join(', ');
  const text =
    `pods with these labels are in namespace ${where}, but a Service selects pods of its own ` +
    'namespace only';
  return [...reasons, note(text, { field: 'metadata.namespace' })];
}

function noPodsReason(service: Service, parts: readonly Reason[] = []): Reason {
  const selector = selectorText(service.selector ?? {});
  return reason('no', `no pod in namespace ${service.namespace} has the labels ${selector}`, {
    object: `Service ${service.key}`,
    field: 'spec.selector',
    source: 'pkg/controller/endpoint/endpoints_controller.go syncService',
    change: 'check that the workload exists and is not scaled to zero, then compare the labels',
    parts,
  });
}

/** Why a Service cannot receive traffic, in one clause, with the nearest miss of its selector. */
export function unservedDetail(
  context: AuditContext,
  { record }: ServiceAudit,
  why: UnservedReason,
): string {
  const { service } = record;
  if (service === null) return 'the Service does not exist';
  if (why === 'no_selector_no_endpoints') {
    return 'it has no selector, and no EndpointSlice of it has a ready endpoint for its ports';
  }
  if (why === 'selector_matches_nothing') {
    const { text } = noPodsReason(service);
    const [closest] = podsNear(context.listers, service);
    return closest?.near === true
      ? `${text}; closest: ${nearReason(closest).text}`
      : `${text}: the workload is scaled to zero, or the selector is wrong`;
  }
  const pods = podsReason(context, record, service);
  if (why === 'ready_pods_not_listed') {
    return `${pods?.text ?? ''}, but no EndpointSlice lists them as ready`;
  }
  return pods?.parts.find(({ mark }) => mark === 'no')?.text ?? pods?.text ?? '';
}

export const outputNames: Readonly<Record<ServiceOutput, string>> = {
  endpoints: 'Endpoints',
  endpointslices: 'EndpointSlices',
  mirrored: 'Mirrored EndpointSlices',
};

const sliceReconciler = 'k8s.io/endpointslice reconciler.go';

function outputReason(
  context: VerdictInput,
  audited: ServiceAudit,
  output: ServiceOutput,
): Reason | null {
  const { record } = audited;
  const verdict = verdictOf(context.listers, audited, output, context.stale);
  const name = outputNames[output];
  if (verdict === null) {
    return output === 'mirrored' ? note(`${name}: none, ${whyNotMirrored(record)}`) : null;
  }
  const unknown = unknownReason(audited, output, context.stale);
  const why = verdict === 'unknown' && unknown !== null ? ` (${unknownText[unknown]})` : '';
  const text = `${name}: ${verdictWords[verdict]}${why}: ${sizeText(context, record, output)}`;
  const parts = [
    ...deletedPods(context, audited, output),
    ...(output === 'endpointslices' ? sliceReasons(context, record) : []),
  ];
  return reason(markOf(verdict), text, { parts });
}

function deletedPods(context: AuditContext, audit: ServiceAudit, output: ServiceOutput): Reason[] {
  const { listers } = context;
  const { record, items } = audit;
  if (!listers.knows('pods')) return [];
  const addresses = [...items]
    .filter(([, found]) => found.some((item) => item.output === output))
    .flatMap(([unit]) => unitAddress(unit) ?? []);
  const wrong = new Set(addresses.slice(0, 20));
  const isGone = (address: string, pod: string | null): boolean =>
    wrong.has(address) && pod !== null && !listers.pods.has(pod);
  const pods = observedEntries(listers, record, isGone).flatMap(({ place, pod }) =>
    (place === 'endpoints') === (output === 'endpoints') ? (pod ?? []) : [],
  );
  const gone = [...new Set(pods)].sort();
  const start = gone.length === 1 ? 'this pod does' : 'these pods do';
  return gone.length === 0 ? [] : [note(`${start} not exist any more: ${fewOf(gone)}`)];
}

/** Hints, and more slices than needed, which the controller never packs again. */
function sliceReasons(context: AuditContext, record: ServiceState): Reason[] {
  const hint = hintText(context, record);
  const source = `${sliceReconciler} reconcileByAddressType`;
  const reasons = hint === null ? [] : [note(hint, { source })];
  const found = slicesOf(context.listers, record, 'controller');
  const { slices, minimum } = fillOf(found, context.maxEndpointsPerSlice);
  if (slices === minimum) return reasons;
  const text =
    `${counted(slices, 'slice')}, but ${minimum} would be enough: the controller does not repack ` +
    'slices when pods are deleted; traffic is not affected';
  return [...reasons, note(text, { source: sliceReconciler })];
}

function sizeText({ listers }: AuditContext, record: ServiceState, output: ServiceOutput): string {
  if (output === 'endpoints') {
    if (record.endpoints === null) return 'the object does not exist';
    const all = record.endpoints.subsets.flatMap(({ addresses }) => addresses);
    if (all.length === 0) return 'no addresses';
    const ready = all.filter((address) => address.ready).length;
    return `${ready} ready of ${counted(all.length, 'address', 'addresses')}`;
  }
  const slices = slicesOf(listers, record, output === 'mirrored' ? 'mirror' : 'controller');
  const endpoints = slices.flatMap((slice) => slice.endpoints);
  const count = counted(slices.length, 'slice');
  if (endpoints.length === 0) return `${count}, no endpoints`;
  const ready = endpoints.filter((endpoint) => endpoint.ready !== false).length;
  const ports = new Set(slices.flatMap((slice) => slice.ports.map(portText)));
  const all = counted(endpoints.length, 'endpoint');
  return `${count}, ${ready} ready of ${all}, ${[...ports].join(', ') || 'no ports'}`;
}

/** endpointslicemirroring_controller.go syncEndpoints. */
function whyNotMirrored({ service, endpoints }: ServiceState): string {
  if (service === null) return 'since there is no Service';
  if (service.selector !== null) return 'since the Service has a selector';
  if (endpoints === null) return 'since there are no Endpoints to mirror';
  if (endpoints.labels[label.skipMirror] === 'true') return `since ${label.skipMirror} is set`;
  if (Object.hasOwn(endpoints.annotations, annotation.leader)) {
    return 'since the Endpoints serve leader election';
  }
  return 'since there is nothing to mirror';
}

function hintText({ listers, release }: AuditContext, record: ServiceState): string | null {
  const { service } = record;
  if (service === null || !isSelected(service)) return null;
  const mode = hintMode(service, release);
  const distribution = service.trafficDistribution;
  if (mode === 'none') {
    return distribution === null
      ? null
      : `no hints: 1.${release.minor} does not support trafficDistribution ${distribution}`;
  }
  if (mode !== 'auto') {
    const to = mode === 'node' ? 'its own Node' : 'its own zone';
    return `hints: every ready endpoint for ${to} (trafficDistribution ${String(distribution)})`;
  }
  const { ready, zones } = countHints(slicesOf(listers, record, 'controller'));
  if (zones.size > 0) return `hints for ${[...zones].sort().join(', ')}`;
  const why = whyNoHints(listers.zoneCapacity, ready) ?? 'the controller adds them at a later sync';
  return `no hints although topology-mode is Auto: ${why}`;
}

function foreignReasons({ listers }: AuditContext, record: ServiceState): Reason[] {
  const slices = slicesOf(listers, record, 'foreign');
  return slices.slice(0, 5).map((slice) => {
    const count = counted(slice.endpoints.length, 'endpoint');
    const object = `EndpointSlice ${slice.key}`;
    return note(`${object}, ${managerText('foreign', slice)}: ${count}, not compared`, { object });
  });
}

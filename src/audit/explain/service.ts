// One Service as a whole: what makes the controllers write for it, which pods it selects and how
// each kind of them stands, the pods that it nearly selects where it selects none, the verdict on
// each output with what differs.
//
// Pods that are alike in all that decides are one group, explained by one of them, so that a
// Service with thousands of pods is explained as fast as one with ten.

import type { Pod, Service } from '../../model/objects.ts';
import { annotation, label, portText } from '../../model/objects.ts';
import { selectorText } from '../../model/selector.ts';
import { isSelected } from '../../shadow/endpoints.ts';
import { addressTypesOf } from '../../shadow/endpointslice.ts';
import { hintMode, whyNoHints } from '../../shadow/hints.ts';
import { isMirrored } from '../../shadow/mirroring.ts';
import type { Severity } from '../finding/catalogue.ts';
import type { Verdict } from '../finding/verdicts.ts';
import { legal } from '../finding/verdicts.ts';
import { fillGroups, surplusOf } from '../measure/fill.ts';
import type { PendingDifference } from '../pending/pending.ts';
import type { AuditContext, ServiceState } from '../service/cache.ts';
import { nodeOf, slicesOf } from '../service/cache.ts';
import { countHints } from '../service/endpointslices.ts';
import type { ServiceOutput } from '../service/enqueue.ts';
import type { ServiceAudit } from '../service/reconcile.ts';
import type { VerdictInput } from '../service/verdict.ts';
import { unknownReason, verdictOf, serviceOutputs } from '../service/verdict.ts';
import type { EntryState } from './condition.ts';
import { stateWords } from './condition.ts';
import type { Conditions } from './conditions.ts';
import {
  evaluateConditions,
  concludedState,
  decidingCondition,
  missedLabelText,
} from './conditions.ts';
import { namespacesMatching, podsNear } from './near-miss.ts';
import { managerText, entriesAt } from './observed.ts';
import { anyUnknown } from './pod-in-service.ts';
import type { Reason } from './reason.ts';
import {
  counted,
  fewOf,
  inOrder,
  itemReason,
  itemReasons,
  itemText,
  reason,
  unknownText,
  worstOf,
} from './reason.ts';

export interface ServiceExplanation {
  readonly service: string;
  readonly answer: string;
  readonly change: string | null;
  readonly verdicts: Readonly<Record<ServiceOutput, Verdict | null>>;
  readonly severity: Severity | null;
  readonly reasons: readonly Reason[];
}

/** Selected pods that are alike in all that decides. */
interface Group {
  readonly chain: Conditions;
  readonly standing: EntryState;
  readonly pods: Pod[];
}

/** The selected pods in groups of the same outcome for the same reason, largest first. */
function groupsOf(
  { listers, release }: AuditContext,
  record: ServiceState,
  service: Service,
): Group[] {
  const ids = new Map<object, number>();
  const groups = new Map<string, Pod[]>();
  for (const [index, pod] of record.members.entries()) {
    const kind = record.memberKinds[index];
    if (kind === undefined) continue;
    const id = ids.get(kind) ?? ids.size;
    ids.set(kind, id);
    const state = [pod.terminal, pod.deleting, pod.ready, pod.ips.length, pod.node === ''];
    const name = `${String(id)} ${state.join(' ')}`;
    const there = groups.get(name);
    if (there === undefined) groups.set(name, [pod]);
    else there.push(pod);
  }
  return [...groups.values()]
    .flatMap((pods) => {
      const [pod] = pods;
      if (pod === undefined) return [];
      const chain = evaluateConditions({ service, pod, node: nodeOf(listers, pod) }, release);
      return [{ chain, standing: standingInSlices(chain), pods }];
    })
    .sort((a, b) => b.pods.length - a.pods.length);
}

/** What the chain concludes for slices, by the best of them. */
function standingInSlices(chain: Conditions): EntryState {
  const order: readonly EntryState[] = ['ready', 'fewer-ports', 'not-ready', 'no-ports', 'absent'];
  const there = chain.expected.filter(({ place }) => place !== 'endpoints');
  const concluded = there.map(({ place }) => concludedState(chain, place));
  return order.find((one) => concluded.includes(one)) ?? 'absent';
}

/** The first reason why a group is not ready everywhere. */
function decidingOf({ chain }: Group): string {
  const places = chain.expected.map(({ place }) => place);
  const slices = places.filter((place) => place !== 'endpoints');
  for (const place of [...slices, 'endpoints' as const]) {
    const step = decidingCondition(chain, place);
    if (step !== null) return step.text;
  }
  return '';
}

function groupReason(group: Group): Reason {
  const { pods, standing, chain } = group;
  const text = decidingOf(group);
  const why = text === '' ? '' : `: ${text}`;
  const mark = standing === 'ready' ? 'yes' : 'no';
  // What is expected of them: how they stand, the outputs below say.
  const must = standing === 'ready' ? 'ready' : `must be ${stateWords[standing]}`;
  const names = fewOf(pods.map(({ name }) => name).sort());
  const steps = chain.conditions.filter(({ passes }) => passes === false);
  return reason(mark, `${counted(pods.length, 'pod')} ${must}${why} (${names})`, {
    object: pods.length === 1 ? `Pod ${pods[0]?.key ?? ''}` : 'Pods',
    field: steps[0]?.field ?? null,
    source: steps[0]?.source ?? null,
    change: steps[0]?.change ?? null,
  });
}

function podsReason(context: AuditContext, record: ServiceState, service: Service): Reason | null {
  if (!isSelected(service)) return null;
  const { listers } = context;
  if (!listers.knows('pods')) return reason('unknown', `Pods: ${unknownText['pods-not-known']}`);
  if (record.members.length === 0) return nobodyReason(context, service);
  const groups = groupsOf(context, record, service);
  const ready = countOf(groups, 'ready') + countOf(groups, 'fewer-ports');
  const selected = counted(record.members.length, 'pod');
  const text = `it selects ${selected}, ${String(ready)} of them ready`;
  return reason(ready > 0 ? 'yes' : 'no', text, { parts: groups.map(groupReason) });
}

const countOf = (groups: readonly Group[], standing: EntryState): number =>
  groups.reduce((sum, group) => sum + (group.standing === standing ? group.pods.length : 0), 0);

/** A selector that nothing matches, and what comes closest to it. */
function nobodyReason({ listers }: AuditContext, service: Service): Reason {
  const { nearest, more } = podsNear(listers, service);
  const parts = nearest.map(({ missed, count, pod, near }) => {
    const meant = near ? ': perhaps what is meant' : '';
    const which = `${counted(count, 'pod')} such as ${pod.name}`;
    const text = `${which}: ${missed.map(missedLabelText).join('; ')}${meant}`;
    const labels = missed.map(({ key, want }) => `${key}=${want}`).join(',');
    const got = missed.map(({ key, got }) => (got === null ? null : `${key}=${got}`));
    const keep = got.every((pair) => pair !== null);
    const selector = keep ? `, or let the Service select ${got.join(',')}` : '';
    return reason('note', text, {
      object: `Pod ${pod.key}`,
      field: `metadata.labels ${missed.map(({ key }) => key).join(', ')}`,
      change: `${near ? '' : 'if these are meant, '}label them ${labels}${selector}`,
    });
  });
  if (more > 0) parts.push(reason('note', `and ${counted(more, 'more group')} of pods`));
  // That is a look at every pod of the cluster, and who has found the slip needs no other guess.
  const isFound = nearest.some(({ near }) => near);
  const elsewhere = isFound ? [] : namespacesMatching(listers, service);
  if (elsewhere.length > 0) {
    const where = elsewhere.join(', ');
    const text = `pods with these labels are in namespace ${where}, where it does not look`;
    parts.push(reason('note', text, { object: null, field: 'metadata.namespace' }));
  }
  const selector = selectorText(service.selector ?? {});
  return reason('no', `no pod in namespace ${service.namespace} has the labels ${selector}`, {
    object: `Service ${service.key}`,
    field: 'spec.selector',
    source: 'pkg/controller/endpoint/endpoints_controller.go syncService',
    parts,
  });
}

function kindReason(service: Service): Reason {
  const object = `Service ${service.key}`;
  if (service.type === 'ExternalName') {
    const text =
      'it is of type ExternalName, an alias in DNS: no controller writes endpoints for it';
    return reason('note', text, { object, field: 'spec.type' });
  }
  if (service.selector === null) {
    const text =
      'it has no selector, so no pod is in it by itself: whoever made it writes its Endpoints';
    return reason('note', text, { object, field: 'spec.selector' });
  }
  const ports = service.ports.map(({ name, port, targetPort, protocol }) => {
    const target = targetPort === 0 ? port : targetPort;
    return `${name === '' ? '' : `${name} `}${String(port)}/${protocol} to ${String(target)}`;
  });
  const headless = service.clusterIP === 'None' ? ', headless' : '';
  const published = service.publishNotReadyAddresses
    ? '; pods that are not ready are published as ready (publishNotReadyAddresses)'
    : '';
  const end = `${published}${service.deleting ? '; it is being deleted' : ''}`;
  const text =
    `type ${service.type}${headless}, selects ${selectorText(service.selector)}, ` +
    `${addressTypesOf(service).join(' and ')}, ports ${ports.join(', ') || 'none'}${end}`;
  return reason('yes', text, { object, field: 'spec' });
}

/** Outputs for people. */
export const outputNames: Readonly<Record<ServiceOutput, string>> = {
  endpoints: 'Endpoints',
  endpointslices: 'EndpointSlices',
  mirrored: 'Mirrored EndpointSlices',
};

function outputReason(
  context: VerdictInput,
  of: ServiceAudit,
  output: ServiceOutput,
): Reason | null {
  const { listers, stale } = context;
  const verdict = verdictOf(listers, of, output, stale);
  const items = allItems(of).filter((item) => item.output === output);
  const what = whatStands(context, of.record, output);
  const name = outputNames[output];
  if (verdict === null) {
    if (output !== 'mirrored') return null;
    return reason('note', `${name}: none, ${whyNotMirrored(of.record)}`);
  }
  const unknown = unknownReason(of, output, stale);
  const why = verdict === 'unknown' && unknown !== null ? `, since ${unknownText[unknown]}` : '';
  const mark = verdict === 'conform' ? 'yes' : verdict === 'unknown' ? 'unknown' : 'no';
  const parts = [...itemReasons(items), ...goneReasons(context, of, output)];
  if (output === 'endpointslices') {
    parts.push(...hintReasons(context, of.record), ...surplusReasons(context, of.record));
  }
  return reason(mark, `${name}: ${verdict}${why}: ${what}`, { parts });
}

/** Pods that wrong entries name and that are not there. */
function goneReasons(
  { listers }: AuditContext,
  { record, items }: ServiceAudit,
  output: ServiceOutput,
): Reason[] {
  if (!listers.knows('pods')) return [];
  const units = [...items].filter(([, there]) => there.some((one) => one.output === output));
  const named = units
    .flatMap(([unit]) => unit.split(' ')[1] ?? [])
    .slice(0, mostLookedAt)
    .flatMap((address) => entriesAt(listers, record, address))
    .filter(({ place }) => (place === 'endpoints') === (output === 'endpoints'))
    .flatMap(({ pod }) => (pod === null || listers.pods.has(pod) ? [] : [pod]));
  const gone = [...new Set(named)].sort();
  return gone.length === 0 ? [] : [reason('note', `there is no Pod ${fewOf(gone)} any more`)];
}

/** Addresses of which it is looked up whom they name. */
const mostLookedAt = 20;

/** More slices than needed: the controller fills those that have room, and never packs anew. */
function surplusReasons(context: AuditContext, record: ServiceState): Reason[] {
  const { listers, maxEndpointsPerSlice: max } = context;
  const groups = fillGroups(slicesOf(listers, record, 'controller'), max);
  const [slices, surplus] = [
    groups.reduce((sum, group) => sum + group.slices, 0),
    groups.reduce((sum, group) => sum + surplusOf(group), 0),
  ];
  if (surplus === 0) return [];
  const text =
    `${counted(slices, 'slice')} where ${String(slices - surplus)} would hold all: slices are ` +
    'not packed anew when pods go, which is legal and costs no traffic';
  return [reason('note', text, { source: 'k8s.io/endpointslice reconciler.go' })];
}

/** What an output holds, in numbers. */
function whatStands(
  { listers }: AuditContext,
  record: ServiceState,
  output: ServiceOutput,
): string {
  if (output === 'endpoints') {
    const { endpoints } = record;
    if (endpoints === null) return 'the object does not exist';
    const ready = endpoints.subsets.reduce((sum, { readyCount }) => sum + readyCount, 0);
    const all = endpoints.subsets.reduce((sum, { addresses }) => sum + addresses.length, 0);
    return all === 0
      ? 'no addresses'
      : `${String(ready)} ready of ${counted(all, 'address', 'addresses')}`;
  }
  const slices = slicesOf(listers, record, output === 'mirrored' ? 'mirror' : 'controller');
  const endpoints = slices.flatMap((slice) => slice.endpoints);
  const ready = endpoints.filter((one) => one.ready !== false).length;
  const ports = new Set(slices.flatMap((slice) => slice.ports.map(portText)));
  const on =
    endpoints.length === 0 ? '' : ports.size === 0 ? ', no ports' : `, ${[...ports].join(', ')}`;
  if (endpoints.length === 0) return `${counted(slices.length, 'slice')}, no endpoints`;
  const all = counted(endpoints.length, 'endpoint');
  return `${counted(slices.length, 'slice')}, ${String(ready)} ready of ${all}${on}`;
}

/** Why nothing is mirrored. endpointslicemirroring_controller.go syncEndpoints. */
function whyNotMirrored({ service, endpoints }: ServiceState): string {
  if (service !== null && service.selector !== null) return 'since the Service has a selector';
  if (endpoints === null) return 'since there are no Endpoints to mirror';
  if (endpoints.labels[label.skipMirror] === 'true') return `since ${label.skipMirror} is set`;
  if (Object.hasOwn(endpoints.annotations, annotation.leader)) {
    return 'since the Endpoints serve leader election';
  }
  return 'since nothing must be mirrored';
}

function hintReasons({ listers, release }: AuditContext, record: ServiceState): Reason[] {
  const { service } = record;
  if (service === null || !isSelected(service)) return [];
  const mode = hintMode(service, release);
  const source = 'k8s.io/endpointslice reconciler.go reconcileByAddressType';
  if (mode === 'none') {
    const wanted = service.trafficDistribution;
    if (wanted === null) return [];
    const by = `1.${String(release.minor)}`;
    const text = `no hints: trafficDistribution ${wanted} is not served by ${by}`;
    return [reason('note', text, { source })];
  }
  if (mode !== 'auto') {
    const to = mode === 'node' ? 'its own Node' : 'its own zone';
    const by = `trafficDistribution ${String(service.trafficDistribution)}`;
    const text = `hints: every ready endpoint for ${to} (${by})`;
    return [reason('note', text, { source })];
  }
  const slices = slicesOf(listers, record, 'controller');
  const { ready, zones } = countHints(slices);
  if (zones.size > 0)
    return [reason('note', `hints for ${[...zones].sort().join(', ')}`, { source })];
  const why = whyNoHints(listers.zoneCapacity, ready) ?? 'they come back at a later sync';
  return [reason('note', `no hints although topology-mode is Auto: ${why}`, { source })];
}

const allItems = ({ items }: ServiceAudit): PendingDifference[] => [...items.values()].flat();

function foreignReasons({ listers }: AuditContext, record: ServiceState): Reason[] {
  return slicesOf(listers, record, 'foreign')
    .slice(0, 5)
    .map((slice) => {
      const count = counted(slice.endpoints.length, 'endpoint');
      const object = `EndpointSlice ${slice.key}`;
      return reason('note', `${object}, ${managerText('foreign', slice)}: ${count}, not judged`, {
        object,
      });
    });
}

/** What is true of the input; where nobody suffers it is worth knowing and no more. */
function inputReason(items: readonly PendingDifference[]): Reason | null {
  const input = items.filter(({ output }) => output === 'input');
  if (input.length === 0) return null;
  const parts = itemReasons(input);
  return input.some(({ severity }) => severity !== 'info')
    ? reason('no', 'Trouble that no controller can put right', { parts })
    : reason('note', 'Worth knowing', { parts });
}

/** Explains the Service that `of` is about, or what is left under its name. */
export function explainService(context: VerdictInput, of: ServiceAudit): ServiceExplanation {
  const { listers, stale } = context;
  const { record } = of;
  const { service } = record;
  const items = allItems(of);
  const verdicts = { endpoints: null, endpointslices: null, mirrored: null } as Record<
    ServiceOutput,
    Verdict | null
  >;
  for (const output of serviceOutputs) verdicts[output] = verdictOf(listers, of, output, stale);
  const pods = service === null ? null : podsReason(context, record, service);
  const reasons = [
    service === null ? reason('no', `there is no Service ${record.key}`) : kindReason(service),
    pods,
    ...serviceOutputs.map((output) => outputReason(context, of, output)),
    inputReason(items),
    ...foreignReasons(context, record),
  ].filter((one) => one !== null);
  const { answer, change } = answerOf(context, of, pods, items);
  return { service: record.key, answer, change, verdicts, severity: worstOf(items), reasons };
}

function answerOf(
  context: VerdictInput,
  of: ServiceAudit,
  pods: Reason | null,
  items: readonly PendingDifference[],
): { answer: string; change: string | null } {
  const { record } = of;
  const { service } = record;
  const name = `Service ${record.key}`;
  const loud = inOrder(items).filter(
    ({ severity, difference }) => severity !== 'info' && !legal.has(difference.code),
  );
  const [worst] = loud;
  const state = service === null ? 'does not exist' : stateOf(record, service, pods);
  if (worst === undefined) {
    const unknown = anyUnknown(context, of);
    const doubt =
      unknown === null || pods === null ? '' : `; not all can be judged: ${unknownText[unknown]}`;
    return { answer: `${name} ${state}${doubt}`, change: changeOf(pods) };
  }
  const answer = `${name} ${state}. But: ${itemText(worst)}`;
  return { answer, change: itemReason(worst).change };
}

function stateOf(record: ServiceState, service: Service, pods: Reason | null): string {
  if (service.type === 'ExternalName')
    return 'is an alias in DNS (ExternalName) and has no endpoints';
  if (service.selector === null) {
    const mirrored = isMirrored(service, record.endpoints);
    const end = mirrored ? ', and its Endpoints are mirrored into EndpointSlices' : '';
    return `has no selector: no pod is in it by itself${end}`;
  }
  if (pods === null || pods.mark === 'unknown') return 'cannot be explained without its pods';
  if (record.members.length === 0) {
    const [closest] = pods.parts;
    const nearest = closest === undefined ? '' : `; closest: ${closest.text}`;
    return `selects nothing: ${pods.text}${nearest}`;
  }
  const [first] = pods.parts.filter(({ mark }) => mark === 'no');
  if (pods.mark === 'no') return `has no endpoint that gets traffic: ${first?.text ?? pods.text}`;
  const others = first === undefined ? '' : `; ${first.text}`;
  return `has endpoints: ${pods.text}${others}`;
}

/** What would help most where nothing differs but traffic does not come. */
function changeOf(pods: Reason | null): string | null {
  return pods?.parts.find(({ change }) => change !== null)?.change ?? null;
}

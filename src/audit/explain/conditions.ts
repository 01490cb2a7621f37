// Why one pod is expected in one Service, or is not: every question that the controllers ask, in
// the order in which a person would ask them, each with its answer, the field that decides it, and
// the smallest change that would turn it.
//
// The shadows decide and this file only tells. What is expected comes from shadow/endpoints.ts and
// shadow/endpointslice.ts, and a step fails by the same predicates (isSelected, selects, findPort,
// isStranded, primaryFamily, addressTypesOf). A change can be made, so that it can be held against
// the shadow: with all failing steps mended the pod is ready everywhere, with all but one it is
// not. Endpoints and the slices of each address type are places of their own, since one and the
// same fact (a deletion, a missing Node, a port that is not there) means another thing to each.
//
// Left out, since no controller reads it and so nothing is held of it: which phase exactly, which
// container or readiness gate keeps a pod from being ready, ports that containers do not name.

import { parseIP } from '../../model/ip.ts';
import type { Node, Pod } from '../../model/objects.ts';
import { selectorText } from '../../model/selector.ts';
import { primaryFamily } from '../../shadow/endpoints.ts';
import { addressTypesOf, isStranded } from '../../shadow/endpointslice.ts';
import type { Release } from '../../shadow/release.ts';
import type {
  ExpectedEntry,
  PodAndService,
  ListingPlace,
  ConditionQuestion,
  EntryState,
  Condition,
} from './condition.ts';
import {
  endpointsController,
  everywhere,
  failing,
  listing,
  objectOf,
  expectedEntries,
  passing,
  podOf,
  reconciler,
  sliceUtils,
  entryStates,
} from './condition.ts';
import type { MissedPair } from './near-miss.ts';
import { missedPairs } from './near-miss.ts';
import { portConditions } from './port-conditions.ts';

export interface Conditions {
  readonly conditions: readonly Condition[];
  readonly expected: readonly ExpectedEntry[];
}

function typeStep({ service }: PodAndService): Condition {
  const question: ConditionQuestion = {
    name: 'type',
    object: objectOf(service),
    field: 'spec.type',
    source: `${endpointsController} syncService`,
  };
  if (service.type !== 'ExternalName') {
    return passing(question, `the Service is of type ${service.type}`);
  }
  return failing(
    question,
    'the Service is of type ExternalName: it is an alias in DNS and has no endpoints',
    {
      effects: everywhere(service, 'absent'),
      change: 'make it a Service of type ClusterIP',
      fix: (pair) => ({ ...pair, service: { ...pair.service, type: 'ClusterIP' } }),
    },
  );
}

/** Labels by which a new selector would take the pod; those that people select by come first. */
function selectorFor(pod: Pod): Record<string, string> {
  const usual = ['app.kubernetes.io/name', 'app', 'k8s-app'];
  const keys = [
    ...usual.filter((key) => Object.hasOwn(pod.labels, key)),
    ...Object.keys(pod.labels),
  ];
  const key = keys[0];
  return key === undefined ? { app: pod.name } : { [key]: pod.labels[key] ?? '' };
}

function selectorStep({ service, pod }: PodAndService): Condition {
  const { selector } = service;
  const question: ConditionQuestion = {
    name: 'selector',
    object: objectOf(service),
    field: 'spec.selector',
    source: `${endpointsController} syncService`,
  };
  if (selector !== null && Object.keys(selector).length > 0) {
    return passing(question, `it selects pods by ${selectorText(selector)}`);
  }
  const wanted = selectorFor(pod);
  return failing(
    question,
    'the Service has no selector: no pod is in it unless somebody else writes so',
    {
      effects: everywhere(service, 'absent'),
      change: `give the Service a selector, such as ${selectorText(wanted)}`,
      fix: (pair) => ({
        ...pair,
        service: { ...pair.service, selector: wanted },
        pod: { ...pair.pod, labels: { ...pair.pod.labels, ...wanted } },
      }),
    },
  );
}

function namespaceStep({ service, pod }: PodAndService): Condition {
  const question: ConditionQuestion = {
    name: 'namespace',
    object: podOf(pod),
    field: 'metadata.namespace',
    source: `${endpointsController} syncService`,
  };
  if (service.namespace === pod.namespace) {
    return passing(question, `both are in namespace ${pod.namespace}`);
  }
  return failing(
    question,
    `the pod is in namespace ${pod.namespace}, the Service in ${service.namespace}: a Service ` +
      'selects pods of its own namespace only',
    {
      effects: everywhere(service, 'absent'),
      change: `create the pod in namespace ${service.namespace}, or a Service in ${pod.namespace}`,
      fix: (pair) => ({ ...pair, pod: { ...pair.pod, namespace: pair.service.namespace } }),
    },
  );
}

/** `label app is "thumb", the selector wants "thumbnail"`. */
export function missedLabelText({ key, want, got, nearKey }: MissedPair): string {
  if (got !== null) return `label ${key} is "${got}", the selector wants "${want}"`;
  const meant = nearKey === null ? '' : ` (but one of key ${nearKey})`;
  return `there is no label ${key}${meant}, the selector wants ${key}="${want}"`;
}

function labelStep({ service, pod }: PodAndService): Condition {
  const question: ConditionQuestion = {
    name: 'labels',
    object: podOf(pod),
    field: 'metadata.labels',
    source: 'k8s.io/apimachinery pkg/labels Set.AsSelectorPreValidated',
  };
  const selector = service.selector ?? {};
  const missed = missedPairs(selector, pod.labels);
  if (missed.length === 0) return passing(question, 'the pod has all labels that it selects by');
  const wanted = Object.fromEntries(missed.map(({ key, want }) => [key, want]));
  const labels = selectorText(wanted);
  return failing(
    { ...question, field: `metadata.labels ${missed.map(({ key }) => key).join(', ')}` },
    missed.map(missedLabelText).join('; '),
    {
      effects: everywhere(service, 'absent'),
      change: `label the pod ${labels} (in its template, if it has one), or change the selector`,
      fix: (pair) => ({
        ...pair,
        pod: { ...pair.pod, labels: { ...pair.pod.labels, ...wanted } },
      }),
    },
  );
}

function phaseStep({ service, pod }: PodAndService): Condition {
  const question: ConditionQuestion = {
    name: 'phase',
    object: podOf(pod),
    field: 'status.phase',
    source: listing,
  };
  if (!pod.terminal) return passing(question, 'the pod has not finished');
  return failing(
    question,
    'the pod has finished (phase Succeeded or Failed): nothing runs at its address any more',
    {
      effects: everywhere(service, 'absent'),
      change: 'delete the pod, so that a new one takes its place: a finished one never runs again',
      fix: (pair) => ({ ...pair, pod: { ...pair.pod, terminal: false } }),
    },
  );
}

type Family = 'IPv4' | 'IPv6';

const exampleOf: Readonly<Record<Family, string>> = { IPv4: '192.0.2.1', IPv6: '2001:db8::1' };

const familyOfEndpoints = ({ service, pod }: PodAndService): Family =>
  primaryFamily(service, pod) === 'IPv6' ? 'IPv6' : 'IPv4';

/** The families that count, the one of the Endpoints first. */
function familiesOf(pair: PodAndService): Family[] {
  const families = new Set<Family>([familyOfEndpoints(pair)]);
  for (const type of addressTypesOf(pair.service)) if (type !== 'FQDN') families.add(type);
  return [...families];
}

function addressSteps(pair: PodAndService): Condition[] {
  const { service, pod } = pair;
  const object = podOf(pod);
  const question: ConditionQuestion = {
    name: 'address',
    object,
    field: 'status.podIPs',
    source: listing,
  };
  const families = familiesOf(pair);
  if (pod.ips.length === 0) {
    const why =
      pod.node === ''
        ? 'it is not bound to a Node yet'
        : `the kubelet of ${pod.node} has reported none yet`;
    return [
      failing(question, `the pod has no address: ${why}`, {
        effects: everywhere(service, 'absent'),
        change:
          pod.node === ''
            ? 'let the scheduler bind the pod; its events say what keeps it'
            : 'let the pod start; its events say what keeps it',
        fix: (now) => ({
          ...now,
          pod: { ...now.pod, ips: families.map((family) => exampleOf[family]) },
        }),
      }),
    ];
  }
  const primary = familyOfEndpoints(pair);
  const steps = families.map((family) => familyStep(pair, family, family === primary));
  return [passing(question, `its addresses are ${pod.ips.join(', ')}`), ...steps];
}

function familyStep(
  { service, pod }: PodAndService,
  family: Family,
  isPrimary: boolean,
): Condition {
  const question: ConditionQuestion = {
    name: 'family',
    object: podOf(pod),
    field: 'status.podIPs',
    source: isPrimary
      ? `${endpointsController} podToEndpointAddressForService`
      : `${sliceUtils} getEndpointAddresses`,
  };
  const ip = pod.ips.find((text) => parseIP(text)?.family === family);
  const what = service.ipFamilies.length > 1 ? `, one of the Service's families` : '';
  if (ip !== undefined) return passing(question, `${ip} is ${family}${what}`);
  const effects = new Map<ListingPlace, EntryState>();
  if (isPrimary) effects.set('endpoints', 'absent');
  if (addressTypesOf(service).includes(family)) effects.set(family, 'absent');
  const families = service.ipFamilies.join(', ');
  return failing(
    question,
    `the pod has no ${family} address (it has ${pod.ips.join(', ')}), ` +
      `the Service wants ${families === '' ? 'both families' : families}`,
    {
      effects,
      change: `give the pod an ${family} address, or drop ${family} from the Service`,
      fix: (pair) => ({
        ...pair,
        pod: { ...pair.pod, ips: [...pair.pod.ips, exampleOf[family]] },
      }),
    },
  );
}

function nodeStep({ service, pod, node }: PodAndService): Condition {
  const question: ConditionQuestion = {
    name: 'node',
    object: podOf(pod),
    field: 'spec.nodeName',
    source: reconciler,
  };
  const name = pod.node === '' ? 'the Node' : `Node ${pod.node}`;
  if (node === undefined) {
    const text = `whether ${name} exists is not known: the input has no Nodes`;
    return { ...passing(question, text), passes: 'unknown' };
  }
  if (node !== null) {
    return passing(question, `${name} exists${node.zone === '' ? '' : `, in zone ${node.zone}`}`);
  }
  const missing = pod.node === '' ? 'it is bound to no Node' : `${name} does not exist`;
  if (!isStranded(service, node)) {
    return passing(question, `${missing}, but not ready addresses are published all the same`);
  }
  const frozen = pod.node === '' && pod.ips.length > 0;
  return failing(
    question,
    `${missing}: EndpointSlices leave it out, and the controller tries again and again` +
      (frozen ? '; Endpoints with it are refused by the API server, so they freeze' : ''),
    {
      effects: new Map(addressTypesOf(service).map((type) => [type, 'absent'])),
      change:
        pod.node === ''
          ? 'let the scheduler bind the pod, or delete it'
          : `bring ${name} back, or delete the pod`,
      fix: (pair) => ({ ...pair, ...bound(pair.pod) }),
    },
  );
}

/** The pod on a Node that exists. */
function bound(pod: Pod): { pod: Pod; node: Node } {
  const name = pod.node === '' ? 'a-node' : pod.node;
  const { uid, created } = pod;
  const meta = {
    key: name,
    namespace: '',
    name,
    uid,
    resourceVersion: '',
    labels: {},
    created,
    deleting: false,
  };
  const state = { zone: '', ready: true, controlPlane: false, cpuMillis: 0 };
  const hosts = { addresses: [], externalIPs: [], podCIDRs: [], kubeletMinor: null };
  const node = { ...meta, ...state, ...hosts };
  return { pod: { ...pod, node: name }, node };
}

function deletionStep({ service, pod }: PodAndService): Condition {
  const question: ConditionQuestion = {
    name: 'deletion',
    object: podOf(pod),
    field: 'metadata.deletionTimestamp',
    source: listing,
  };
  if (!pod.deleting) return passing(question, 'it is not being deleted');
  if (service.publishNotReadyAddresses) {
    return passing(question, 'it is being deleted, but not ready addresses are published');
  }
  const effects = everywhere(service, 'not-ready');
  effects.set('endpoints', 'absent');
  return failing(
    question,
    'it is being deleted: Endpoints drop it at once, EndpointSlices show it terminating',
    {
      effects,
      change: 'none: a deletion cannot be taken back; the pod that replaces it will be listed',
      fix: (pair) => ({ ...pair, pod: { ...pair.pod, deleting: false } }),
    },
  );
}

function readyStep({ service, pod }: PodAndService): Condition {
  const question: ConditionQuestion = {
    name: 'readiness',
    object: podOf(pod),
    field: 'status.conditions Ready',
    source: `${sliceUtils} podToEndpoint`,
  };
  if (pod.ready) return passing(question, 'its condition Ready is True');
  if (service.publishNotReadyAddresses) {
    return passing(question, 'it is not ready, but not ready addresses are published');
  }
  return failing(question, 'condition Ready is not True, so no traffic is to come', {
    effects: everywhere(service, 'not-ready'),
    change:
      'make the pod ready: kubectl describe pod names the readiness probe or readiness gate that ' +
      'fails',
    fix: (pair) => ({ ...pair, pod: { ...pair.pod, ready: true } }),
  });
}

/** Asks everything that decides whether and how the pod is listed. */
export function evaluateConditions(pair: PodAndService, release: Release): Conditions {
  const { service } = pair;
  const type = typeStep(pair);
  const selector = selectorStep(pair);
  const hasSelector = service.selector !== null && Object.keys(service.selector).length > 0;
  const steps = [
    type,
    selector,
    namespaceStep(pair),
    ...(hasSelector ? [labelStep(pair)] : []),
    phaseStep(pair),
    ...addressSteps(pair),
    nodeStep(pair),
    deletionStep(pair),
    ...portConditions(pair, release),
    readyStep(pair),
  ];
  return { conditions: steps, expected: expectedEntries(pair, release) };
}

/** The worst standing that any step leads to at a place: what the chain concludes. */
export function concludedState({ conditions: steps }: Conditions, place: ListingPlace): EntryState {
  return (
    entryStates.find((one) => steps.some(({ effects }) => effects.get(place) === one)) ?? 'ready'
  );
}

/** The step that decides at a place: the first of those that lead to the worst; null: none. */
export function decidingCondition(chain: Conditions, place: ListingPlace): Condition | null {
  const worst = concludedState(chain, place);
  return chain.conditions.find(({ effects }) => effects.get(place) === worst) ?? null;
}

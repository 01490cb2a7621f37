// What the comparisons of all outputs have in common: pairs of entries, fields, labels and texts.

import { isOfUid } from '../../model/equality.ts';
import type { Endpoint, EndpointSlice, Labels, ObjectRef, Pod, Port } from '../../model/objects.ts';
import { label, portText } from '../../model/objects.ts';
import { equalLabels } from '../../model/selector.ts';
import type { Code } from '../finding/catalogue.ts';
import { type ComparedField, type Difference, difference } from '../finding/difference.ts';
import type { AddressEntries, SlicedEndpoint } from './address-index.ts';

/**
 * Pairs entries by score, then by position: a wrong targetRef is one difference and not two.
 * `unexpected` gets an entry that has no pair, and its index in the list of all of them.
 */
export function comparePairs<E, A>(
  expected: readonly E[],
  actual: readonly A[],
  score: (expected: E, actual: A) => number,
  compare: (expected: E, actual: A | null) => Difference[],
  unexpected: (actual: A, index: number, unpaired: readonly A[]) => Difference,
): Difference[] {
  const [only] = expected;
  // Nearly always there is one pod and one entry to compare.
  if (only !== undefined && expected.length === 1 && actual.length < 2) {
    return compare(only, actual[0] ?? null);
  }
  const found: Difference[] = [];
  const left = [...actual];
  const unmatched = expected.filter((want) => {
    const scores = left.map((got) => score(want, got));
    const best = Math.max(0, ...scores);
    const [got] = best === 0 ? [] : left.splice(scores.indexOf(best), 1);
    if (got !== undefined) found.push(...compare(want, got));
    return got === undefined;
  });
  for (const want of unmatched) found.push(...compare(want, left.shift() ?? null));
  return [...found, ...left.map(unexpected)];
}

/** The difference between the fields of one entry; none if all are equal. */
export function compareFields(
  code: Code,
  object: string,
  name: string,
  fields: readonly ComparedField[],
  extra: Partial<Difference>,
): Difference[] {
  const differing = fields.filter(([, expected, actual]) => expected !== actual);
  if (differing.length === 0) return [];
  const names = differing.map(([field]) => field).join(', ');
  const text = (side: 1 | 2): string =>
    `${name}: ${differing.map((field) => `${field[0]} ${field[side] ?? 'absent'}`).join(', ')}`;
  const all = { ...extra, fields: differing };
  return [difference(code, object, names, text(1), text(2), all)];
}

export function targetField(pod: Pod, target: ObjectRef | null): ComparedField {
  const text = (kind: string, ref: { namespace: string; name: string }, uid: string): string =>
    `${kind} ${ref.namespace}/${ref.name} (uid ${uid})`;
  const uid = target !== null && isOfUid(target.uid, pod) ? pod.uid : (target?.uid ?? '');
  const actual = target === null ? null : text(target.kind, target, uid);
  return ['targetRef', text('Pod', pod, pod.uid), actual];
}

/** The selected pod that an entry at an address refers to, if the pod has that address. */
export const referredPod = ({ members }: AddressEntries, target: ObjectRef | null) =>
  members.find((pod) => isOfUid(target?.uid, pod) && pod.name === target?.name);

const labelsText = (labels: Labels, keys: readonly string[]): string =>
  keys
    .map((key) => (Object.hasOwn(labels, key) ? `${key}=${labels[key] ?? ''}` : `${key} absent`))
    .join(', ');

/** The keys in which two label maps differ. */
export function differingKeys(a: Labels, b: Labels): string[] {
  const keys = new Set([...Object.keys(a), ...Object.keys(b)]);
  return [...keys].filter(
    (key) => Object.hasOwn(a, key) !== Object.hasOwn(b, key) || a[key] !== b[key],
  );
}

/** The difference between two label maps; none if they are equal. */
export function compareLabels(
  code: 'endpoints-labels-different' | 'slice-labels-different' | 'mirror-labels-different',
  object: string,
  want: Labels,
  got: Labels,
  extra: Partial<Difference> = {},
): Difference[] {
  if (equalLabels(want, got)) return [];
  const keys = differingKeys(want, got);
  // Only the mirroring controller compares the headless label like all others.
  const isKept = keys.join() === label.headless && code !== 'mirror-labels-different';
  const [field, cause] = [`metadata.labels ${keys.join(', ')}`, 'headless-label-kept'] as const;
  const valueOf = (labels: Labels, key: string): string | null =>
    Object.hasOwn(labels, key) ? (labels[key] ?? '') : null;
  const fields = keys.map((key): ComparedField => {
    return [`metadata.labels[${key}]`, valueOf(want, key), valueOf(got, key)];
  });
  const all = { ...(isKept ? { cause } : {}), fields, ...extra };
  return [difference(code, object, field, labelsText(want, keys), labelsText(got, keys), all)];
}

export const portsText = (ports: readonly Port[]): string =>
  ports.map(portText).join(', ') || 'no ports';

export const readyText = (ready: boolean): string => (ready ? 'ready' : 'not ready');

export const targetText = (target: ObjectRef | null): string =>
  target === null ? 'no target' : `${target.kind.toLowerCase()} ${target.name}`;

/** The readiness and the ports of an entry. */
export const stateText = (ready: boolean, ports: readonly Port[]): string =>
  `${readyText(ready)}, ${portsText(ports)}`;

interface ListedEntry {
  readonly address: string;
  readonly whose: string;
  readonly state: string;
  readonly pod: string | null;
}

/** The difference of an entry that exists on one side only; `whose` names its pod or target. */
export function entryDifference(
  code: Code,
  object: string,
  field: string,
  side: 'missing' | 'unexpected',
  { address, whose, state, ...extra }: ListedEntry & Partial<Difference>,
): Difference {
  const text = `${address} of ${whose}, ${state}`;
  const [expected, actual] = side === 'missing' ? [text, null] : [null, text];
  const entry: ComparedField = [field, expected && state, actual && state];
  return difference(code, object, field, expected, actual, { address, fields: [entry], ...extra });
}

/** The pod that an entry names; `null` if its target is no pod. */
export const targetPod = (target: ObjectRef | null): string | null =>
  target?.kind === 'Pod' ? `${target.namespace}/${target.name}` : null;

/** The object of a difference in a slice. */
export const sliceObject = (slice: EndpointSlice): string => `EndpointSlice ${slice.key}`;

/** The ready condition as clients read it: absent means ready. */
export const isReady = (endpoint: Endpoint): boolean => endpoint.ready !== false;

/** An endpoint of a slice with its target, readiness and ports. */
export function endpointText(endpoint: Endpoint, { ports }: EndpointSlice): string {
  const state = stateText(isReady(endpoint), ports);
  return `${endpoint.addresses.join(', ')} of ${targetText(endpoint.target)}, ${state}`;
}

/** An endpoint that is in a slice and should not be. */
export const unexpectedEntry = (
  code: Code,
  { slice, endpoint }: SlicedEndpoint,
  extra: Partial<Pick<Difference, 'subject' | 'severity' | 'likelyCause'>>,
): Difference =>
  entryDifference(code, sliceObject(slice), 'endpoints', 'unexpected', {
    address: endpoint.addresses.join(', '),
    whose: targetText(endpoint.target),
    state: stateText(isReady(endpoint), slice.ports),
    pod: targetPod(endpoint.target),
    ...extra,
  });

/** The owners of a slice as the API names them. */
export const ownersText = ({ owners }: EndpointSlice): string =>
  owners.map(({ kind, name, uid }) => `${kind} ${name} (uid ${uid})`).join(', ') || 'none';

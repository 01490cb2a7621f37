// What the comparisons of all outputs have in common: pairs of entries, fields, labels and texts.

import { isOfUid } from '../../model/equality.ts';
import type { Endpoint, EndpointSlice, Labels, ObjectRef, Pod, Port } from '../../model/objects.ts';
import { label, portText } from '../../model/objects.ts';
import { equalLabels } from '../../model/selector.ts';
import type { Code } from '../finding/catalogue.ts';
import { type Difference, difference } from '../finding/difference.ts';
import type { AddressEntries } from './address-index.ts';

/** Pairs entries by score, then by position: a wrong targetRef is one difference and not two. */
export function comparePairs<E, A>(
  expected: readonly E[],
  actual: readonly A[],
  score: (expected: E, actual: A) => number,
  compare: (expected: E, actual: A | null) => Difference[],
  unexpected: (actual: A) => Difference,
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

/** The values are `null` if the field is absent. */
export type ComparedField = readonly [name: string, expected: string | null, actual: string | null];

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
  return [difference(code, object, names, text(1), text(2), extra)];
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
  const all = isKept ? { cause, ...extra } : extra;
  return [difference(code, object, field, labelsText(want, keys), labelsText(got, keys), all)];
}

export const portsText = (ports: readonly Port[]): string =>
  ports.map(portText).join(', ') || 'no ports';

export const readyText = (ready: boolean): string => (ready ? 'ready' : 'not ready');

export const targetText = (target: ObjectRef | null): string =>
  target === null ? 'no target' : `${target.kind.toLowerCase()} ${target.name}`;

/** The text of an entry: its addresses, whose they are, its readiness and its ports. */
export const entryText = (
  ips: string,
  whose: string,
  ready: boolean,
  ports: readonly Port[],
): string => `${ips} of ${whose}, ${readyText(ready)}, ${portsText(ports)}`;

/** The object of a difference in a slice. */
export const sliceObject = (slice: EndpointSlice): string => `EndpointSlice ${slice.key}`;

/** The ready condition as clients read it: absent means ready. */
export const isReady = (endpoint: Endpoint): boolean => endpoint.ready !== false;

/** An endpoint of a slice with its target, readiness and ports. */
export const endpointText = (endpoint: Endpoint, { ports }: EndpointSlice): string =>
  entryText(endpoint.addresses.join(', '), targetText(endpoint.target), isReady(endpoint), ports);

/** The owners of a slice as the API names them. */
export const ownersText = ({ owners }: EndpointSlice): string =>
  owners.map(({ kind, name, uid }) => `${kind} ${name} (uid ${uid})`).join(', ') || 'none';

// Compares the expected with the actual entries of one Service at one address. Nearly always there
// is one pod and one entry to compare.
//
// Entries are paired by the pod that they refer to, then by position, so that a wrong targetRef is
// one difference and not two. The texts name the address, the pod and the fields as in the API.

import { equalPorts, equalRefs, isOfUid } from '../../model/equality.ts';
import type { Endpoint, EndpointAddress, EndpointSlice, Port } from '../../model/objects.ts';
import { portKey, portText } from '../../model/objects.ts';
import type { ExpectedAddress } from '../../shadow/endpoints.ts';
import type { ExpectedEndpoint } from '../../shadow/endpointslice.ts';
import type { HintMode } from '../../shadow/hints.ts';
import { expectedHints } from '../../shadow/hints.ts';
import type { Release } from '../../shadow/release.ts';
import type { Code, Severity } from '../finding/catalogue.ts';
import type { Cause } from '../finding/causes.ts';
import type { Difference } from '../finding/difference.ts';
import { difference } from '../finding/difference.ts';
import type { SlicedEndpoint } from './address-index.ts';

/** Why an entry without a selected pod may still exist, and what traffic suffers from it. */
export interface Leftover {
  readonly cause: Cause | null;
  /** `null` for the severity of the catalogue. */
  readonly severity: Severity | null;
}

/**
 * Compares entries in pairs, by the highest score and then by position. `compare` gets `null` for
 * the actual entry of a missing one, and for the expected entry of an unexpected one.
 */
function comparePairs<E, A>(
  expected: readonly E[],
  actual: readonly A[],
  score: (expected: E, actual: A) => number,
  compare: (expected: E | null, actual: A | null) => Difference[],
): Difference[] {
  if (expected.length < 2 && actual.length < 2) {
    const [want = null, got = null] = [expected[0], actual[0]];
    return want === null && got === null ? [] : compare(want, got);
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
  for (const got of left) found.push(...compare(null, got));
  return found;
}

/** A field with its expected and its actual value, `null` if it is absent. */
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

export const portsText = (ports: readonly Port[]): string =>
  ports.length === 0 ? 'no ports' : ports.map(portText).join(', ');

export const readyText = (ready: boolean): string => (ready ? 'ready' : 'not ready');

const targetText = (target: EndpointAddress['target']): string =>
  target === null ? 'no target' : `${target.kind.toLowerCase()} ${target.name}`;

function targetField(
  pod: ExpectedAddress['pod'],
  target: EndpointAddress['target'],
): ComparedField {
  const text = (kind: string, ref: { namespace: string; name: string }, uid: string): string =>
    `${kind} ${ref.namespace}/${ref.name} (uid ${uid})`;
  const uid = target !== null && isOfUid(target.uid, pod) ? pod.uid : (target?.uid ?? '');
  const actual = target === null ? null : text(target.kind, target, uid);
  return ['targetRef', text('Pod', pod, pod.uid), actual];
}

// Endpoints

/** The text of an entry: its addresses, whose they are, its readiness and its ports. */
const entryText = (ips: string, whose: string, ready: boolean, ports: readonly Port[]): string =>
  `${ips} of ${whose}, ${readyText(ready)}, ${portsText(ports)}`;

function scoreAddress({ pod }: ExpectedAddress, { target }: EndpointAddress): number {
  if (target?.name !== pod.name) return 0;
  return target.uid === pod.uid ? 2 : 1;
}

/**
 * Compares the Endpoints at one address. If they are `truncated`, addresses may be absent or listed
 * under some of their ports only. `leftover` explains an unexpected address.
 */
export function compareAddress(
  object: string,
  expected: readonly ExpectedAddress[],
  actual: readonly EndpointAddress[],
  truncated: boolean,
  leftover: (listed: EndpointAddress) => Leftover,
): Difference[] {
  return comparePairs(expected, actual, scoreAddress, (want, got) => {
    if (want !== null && got !== null) return compareListed(object, want, got, truncated);
    if (want !== null) {
      const more = { subject: want.pod.name, quiet: !want.ready };
      const text = entryText(want.ip, `pod ${want.pod.name}`, want.ready, want.ports);
      const code = 'endpoints-address-missing';
      return truncated ? [] : [difference(code, object, 'subsets', text, null, more)];
    }
    if (got === null) return [];
    const { cause: likelyCause, severity } = leftover(got);
    const more = { subject: got.target?.uid ?? '', likelyCause, severity };
    const text = entryText(got.ip, targetText(got.target), got.ready, got.ports);
    return [difference('endpoints-address-unexpected', object, 'subsets', null, text, more)];
  });
}

/**
 * The ports of an Endpoints address as repacking compares them: duplicates count once, except those
 * with an appProtocol, which the controller compares by pointer.
 */
function packedPorts(ports: readonly Port[]): string[] {
  const keys = ports.map(portKey);
  return keys
    .filter((key, index) => ports[index]?.appProtocol !== null || keys.indexOf(key) === index)
    .sort();
}

/** The fast path: nearly every entry is as expected. */
const isListedAs = (want: ExpectedAddress, got: EndpointAddress): boolean =>
  want.ready === got.ready &&
  want.node === got.node &&
  want.hostname === got.hostname &&
  equalRefs(got.target, want.pod.ref) &&
  equalPorts(want.ports, got.ports);

function compareListed(
  object: string,
  want: ExpectedAddress,
  got: EndpointAddress,
  truncated: boolean,
): Difference[] {
  if (isListedAs(want, got)) return [];
  const found: Difference[] = [];
  const more = { subject: want.pod.name };
  const name = `${want.ip} of pod ${want.pod.name}`;
  if (want.ready !== got.ready) {
    const field = `subsets.${want.ready ? 'notReadyAddresses' : 'addresses'}`;
    const texts = [`${name} ${readyText(want.ready)}`, `${name} ${readyText(got.ready)}`] as const;
    found.push(difference('endpoints-readiness-different', object, field, ...texts, more));
  }
  const [wantPorts, gotPorts] = [packedPorts(want.ports), packedPorts(got.ports)];
  const isPart = truncated && gotPorts.every((key) => wantPorts.includes(key));
  if (!isPart && wantPorts.join() !== gotPorts.join()) {
    const [e, a] = [`${name}: ${portsText(want.ports)}`, `${name}: ${portsText(got.ports)}`];
    found.push(difference('endpoints-ports-different', object, 'subsets.ports', e, a, more));
  }
  const fields: ComparedField[] = [
    targetField(want.pod, got.target),
    ['nodeName', want.node, got.node],
    ['hostname', want.hostname, got.hostname],
  ];
  return [...found, ...compareFields('endpoints-address-different', object, name, fields, more)];
}

// EndpointSlices

/** The object of a difference in a slice. */
export const sliceObject = (slice: EndpointSlice): string => `EndpointSlice ${slice.key}`;

/** The ready condition as clients read it: absent means ready. */
export const isReady = (endpoint: Endpoint): boolean => endpoint.ready !== false;

/** An endpoint of a slice with its target, readiness and ports. */
export const endpointText = (endpoint: Endpoint, slice: EndpointSlice): string =>
  entryText(
    endpoint.addresses.join(', '),
    targetText(endpoint.target),
    isReady(endpoint),
    slice.ports,
  );

/** The owners of a slice as the API names them. */
export const ownersText = ({ owners }: EndpointSlice): string =>
  owners.map(({ kind, name, uid }) => `${kind} ${name} (uid ${uid})`).join(', ') || 'none';

type Conditions = Pick<Endpoint, 'ready' | 'serving' | 'terminating'>;

const conditionsText = (conditions: Conditions): string =>
  (['ready', 'serving', 'terminating'] as const)
    .map((name) => `${name} ${String(conditions[name] ?? 'absent')}`)
    .join(', ');

const equalConditions = (a: Conditions, b: Conditions): boolean =>
  a.ready === b.ready && a.serving === b.serving && a.terminating === b.terminating;

/** How well an entry fits a pod: by the name of the pod, then by ports, uid and conditions. */
function scoreEndpoint(want: ExpectedEndpoint, { slice, endpoint }: SlicedEndpoint): number {
  if (endpoint.target?.name !== want.pod.name) return 0;
  let score = 1;
  if (slice.portMap === want.portMap) score += 8;
  if (endpoint.target.uid === want.pod.uid) score += 4;
  if (endpoint.ready === want.ready && endpoint.serving === want.serving) score += 2;
  return score;
}

/**
 * Compares the controller's slices at one address. `service` is the object of a missing endpoint.
 * `leftover` explains an unexpected one.
 */
export function compareEndpoint(
  service: string,
  expected: readonly ExpectedEndpoint[],
  actual: readonly SlicedEndpoint[],
  mode: HintMode,
  release: Release,
  leftover: (entry: SlicedEndpoint) => Leftover,
): Difference[] {
  return comparePairs(expected, actual, scoreEndpoint, (want, got) => {
    if (want !== null && got !== null) return compareSliced(want, got, mode, release);
    if (want !== null) {
      const { addresses, pod, ready, ports } = want;
      const more = { subject: pod.name, quiet: !ready };
      const text = entryText(addresses.join(', '), `pod ${pod.name}`, ready, ports);
      return [difference('slice-endpoint-missing', service, 'endpoints', text, null, more)];
    }
    if (got === null) return [];
    const twin = actual.find((other) => other !== got && isTwin(other, got));
    return [twin === undefined ? unexpectedEndpoint(got, leftover(got)) : duplicate(got, twin)];
  });
}

const isTwin = (a: SlicedEndpoint, b: SlicedEndpoint): boolean =>
  a.slice.portMap === b.slice.portMap && a.endpoint.target?.uid === b.endpoint.target?.uid;

function duplicate(got: SlicedEndpoint, twin: SlicedEndpoint): Difference {
  const text = ({ endpoint, slice }: SlicedEndpoint): string =>
    `${endpoint.addresses.join(', ')} of ${targetText(endpoint.target)} in ${slice.name}: ` +
    conditionsText(endpoint);
  const isSame = equalConditions(got.endpoint, twin.endpoint);
  const code = isSame ? 'slice-duplicate' : 'slice-duplicate-conflicting';
  const more = { subject: got.slice.name };
  return difference(code, sliceObject(got.slice), 'endpoints', text(twin), text(got), more);
}

function unexpectedEndpoint(entry: SlicedEndpoint, leftover: Leftover): Difference {
  const { slice, endpoint } = entry;
  const text = endpointText(endpoint, slice);
  return difference('slice-endpoint-unexpected', sliceObject(slice), 'endpoints', null, text, {
    subject: `${slice.name} ${endpoint.target?.uid ?? ''}`,
    likelyCause: leftover.cause,
    severity: leftover.severity ?? (isReady(endpoint) ? null : 'warning'),
  });
}

const hasDuplicates = (names: readonly string[]): boolean =>
  names.length > 1 && new Set(names).size < names.length;

/** The fast path, hints left out. */
const isSlicedAs = (want: ExpectedEndpoint, { slice, endpoint }: SlicedEndpoint): boolean =>
  equalConditions(endpoint, want) &&
  slice.portMap === want.portMap &&
  endpoint.node === want.node &&
  (want.zone === undefined || endpoint.zone === want.zone) &&
  endpoint.hostname === want.hostname &&
  !hasDuplicates(endpoint.addresses) &&
  equalRefs(endpoint.target, want.pod.ref);

function compareSliced(
  want: ExpectedEndpoint,
  got: SlicedEndpoint,
  mode: HintMode,
  release: Release,
): Difference[] {
  const hints = mode === 'auto' ? [] : compareHints(want, got, mode, release);
  if (isSlicedAs(want, got)) return hints;
  const { slice, endpoint } = got;
  const object = sliceObject(slice);
  const name = nameOf(want);
  const more = { subject: want.pod.name };
  const found: Difference[] = [];
  if (!equalConditions(endpoint, want)) {
    const [e, a] = [want, endpoint].map((side) => `${name}: ${conditionsText(side)}`);
    const severity = isReady(endpoint) && !want.ready ? 'critical' : null;
    const code = 'slice-conditions-different';
    const all = { ...more, severity } as const;
    found.push(difference(code, object, 'endpoints.conditions', e ?? '', a ?? '', all));
  }
  if (slice.portMap !== want.portMap) {
    const [e, a] = [`${name}: ${portsText(want.ports)}`, `${name}: ${portsText(slice.ports)}`];
    found.push(difference('slice-ports-different', object, 'ports', e, a, more));
  }
  const addresses = want.addresses.join(', ');
  // Another address is a difference at that address; this one reports duplicates.
  const listed = hasDuplicates(endpoint.addresses) ? endpoint.addresses.join(', ') : addresses;
  const fields: ComparedField[] = [
    targetField(want.pod, endpoint.target),
    ['nodeName', want.node, endpoint.node],
    ['zone', want.zone === undefined ? endpoint.zone : want.zone, endpoint.zone],
    ['addresses', addresses, listed],
    ['hostname', want.hostname, endpoint.hostname],
  ];
  const onlyZone = fields.every(([field, e, a]) => e === a || field === 'zone');
  const rest = compareFields('slice-endpoint-different', object, name, fields, {
    ...more,
    // Without hints nothing reads the zone of an endpoint.
    quiet: onlyZone && mode === 'none',
    likelyCause: onlyZone ? 'node-change-unnoticed' : null,
  });
  return [...found, ...rest, ...hints];
}

const nameOf = ({ addresses, pod }: ExpectedEndpoint): string =>
  `${addresses.join(', ')} of pod ${pod.name}`;

const listText = (names: readonly string[] | null): string =>
  names === null || names.length === 0 ? 'none' : names.join(', ');

const hintsText = ({ forZones, forNodes }: Pick<Endpoint, 'forZones' | 'forNodes'>): string =>
  `forZones ${listText(forZones)}, forNodes ${listText(forNodes)}`;

/** Hints repeat a zone and a Node: those that are expected, or those that the endpoint states. */
function compareHints(
  want: ExpectedEndpoint,
  { slice, endpoint }: SlicedEndpoint,
  mode: 'none' | 'zone' | 'node',
  release: Release,
): Difference[] {
  const { forZones, forNodes } = endpoint;
  if (mode === 'none' && (forZones ?? []).length + (forNodes ?? []).length === 0) return [];
  const { ready, node, zone = endpoint.zone } = want;
  const expected = hintsText(expectedHints(mode, { ...endpoint, ready, node, zone }, release));
  const actual = hintsText(endpoint);
  if (actual === expected || actual === hintsText(expectedHints(mode, endpoint, release)))
    return [];
  const name = nameOf(want);
  // Neither the controller nor kube-proxy reads hints of endpoints that are not ready.
  const severity = endpoint.ready === true || mode === 'none' ? null : 'info';
  const [e, a] = [`${name}: ${expected}`, `${name}: ${actual}`];
  const more = { subject: name, severity } as const;
  const code = 'slice-hints-different';
  return [difference(code, sliceObject(slice), 'endpoints.hints', e, a, more)];
}

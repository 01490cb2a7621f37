// Expected against actual at one address of one Service: what is missing, unexpected or different.
// One address is the unit of comparison, because that is what traffic goes to and what changes one
// at a time; in nearly all cases there is one pod and one entry to compare.
//
// Entries are paired by the pod they refer to; what stays unpaired on both sides is paired as it
// comes, so that a wrong targetRef is one difference and not two. Texts are for people: they name
// the address, the pod, and the fields that differ as the API writes them.

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

/** Why an entry may still stand although no selected pod has it, and what traffic suffers by it. */
export interface Leftover {
  readonly cause: Cause | null;
  /** null: as in the catalogue. */
  readonly severity: Severity | null;
}

/** Pairs by key first, then by position; the rest is alone. */
function pair<E, A>(
  expected: readonly E[],
  actual: readonly A[],
  match: (expected: E, actual: A) => number,
): { pairs: [E, A][]; missing: E[]; unexpected: A[] } {
  const [oneExpected, oneActual] = [expected[0], actual[0]];
  if (expected.length === 1 && actual.length === 1 && oneExpected && oneActual) {
    return { pairs: [[oneExpected, oneActual]], missing: [], unexpected: [] };
  }
  const pairs: [E, A][] = [];
  const missing: E[] = [];
  const left = [...actual];
  const unmatched: E[] = [];
  for (const one of expected) {
    let best = -1;
    let score = 0;
    for (const [index, other] of left.entries()) {
      const now = match(one, other);
      if (now > score) [best, score] = [index, now];
    }
    const found = best < 0 ? undefined : left.splice(best, 1)[0];
    if (found === undefined) unmatched.push(one);
    else pairs.push([one, found]);
  }
  for (const one of unmatched) {
    const other = left.shift();
    if (other === undefined) missing.push(one);
    else pairs.push([one, other]);
  }
  return { pairs, missing, unexpected: left };
}

const portsText = (ports: readonly Port[]): string =>
  ports.length === 0 ? 'no ports' : ports.map(portText).join(', ');

/**
 * The ports of an Endpoints address as repacking compares them: what stands twice is taken once,
 * but not with an appProtocol, which is told apart by pointer.
 */
function packedPorts(ports: readonly Port[]): string[] {
  const keys = ports.map(portKey);
  return keys
    .filter((key, index) => ports[index]?.appProtocol !== null || keys.indexOf(key) === index)
    .sort();
}

const yes = (value: boolean | null): string => (value === null ? 'absent' : String(value));

/** Collects the fields in which two sides differ, with what each of them says. */
interface Fields {
  readonly names: string[];
  readonly expected: string[];
  readonly actual: string[];
}

const noFields = (): Fields => ({ names: [], expected: [], actual: [] });

function check(fields: Fields, name: string, expected: string | null, actual: string | null): void {
  if (expected === actual) return;
  fields.names.push(name);
  fields.expected.push(`${name} ${expected ?? 'absent'}`);
  fields.actual.push(`${name} ${actual ?? 'absent'}`);
}

function checkTarget(
  fields: Fields,
  pod: { namespace: string; name: string; uid: string },
  target: EndpointAddress['target'],
): void {
  const text = (of: { namespace: string; name: string; uid: string }): string =>
    `Pod ${of.namespace}/${of.name} (uid ${of.uid})`;
  const told = target !== null && isOfUid(target.uid, pod) ? { ...target, uid: pod.uid } : target;
  const actual = told === null ? null : text(told).replace(/^Pod/, () => told.kind);
  check(fields, 'targetRef', text(pod), actual);
}

// Endpoints

/** An address as it stands in one Endpoints object, over all its subsets. */
export type ListedAddress = EndpointAddress;

const addressText = (expected: ExpectedAddress): string =>
  `${expected.ip} of pod ${expected.pod.name}, ${expected.ready ? 'ready' : 'not ready'}, ` +
  portsText(expected.ports);

const listedText = (listed: ListedAddress): string =>
  `${listed.ip} of ${targetText(listed.target)}, ` +
  `${listed.ready ? 'ready' : 'not ready'}, ${portsText(listed.ports)}`;

function targetText(target: EndpointAddress['target']): string {
  return target === null ? 'no target' : `${target.kind.toLowerCase()} ${target.name}`;
}

function matchAddress(expected: ExpectedAddress, listed: ListedAddress): number {
  const target = listed.target;
  if (target?.name !== expected.pod.name) return 0;
  return target.uid === expected.pod.uid ? 2 : 1;
}

/**
 * Endpoints at one address. `truncated`: addresses may be absent, or stand under some of their
 * ports only. `gone` says of an unexpected address why it might still stand there.
 */
export function compareAddress(
  object: string,
  expected: readonly ExpectedAddress[],
  actual: readonly ListedAddress[],
  truncated: boolean,
  gone: (listed: ListedAddress) => Leftover,
): Difference[] {
  const found: Difference[] = [];
  const { pairs, missing, unexpected } = pair(expected, actual, matchAddress);
  for (const [want, got] of pairs) compareListed(found, object, want, got, truncated);
  if (!truncated) {
    for (const want of missing) {
      const more = { subject: want.pod.name, quiet: !want.ready };
      found.push(
        difference('endpoints-address-missing', object, 'subsets', addressText(want), null, more),
      );
    }
  }
  for (const got of unexpected) {
    const { cause, severity } = gone(got);
    found.push(
      difference('endpoints-address-unexpected', object, 'subsets', null, listedText(got), {
        subject: got.target?.uid ?? '',
        likelyCause: cause,
        severity,
      }),
    );
  }
  return found;
}

const isTarget = (target: EndpointAddress['target'], pod: ExpectedAddress['pod']): boolean =>
  equalRefs(target, pod.ref);

/** What nearly every entry is, and quickly told: all as expected. */
function isListedAs(want: ExpectedAddress, got: ListedAddress): boolean {
  return (
    want.ready === got.ready &&
    want.node === got.node &&
    want.hostname === got.hostname &&
    isTarget(got.target, want.pod) &&
    equalPorts(want.ports, got.ports)
  );
}

function isSlicedAs(want: ExpectedEndpoint, { slice, endpoint }: SlicedEndpoint): boolean {
  return (
    endpoint.ready === want.ready &&
    endpoint.serving === want.serving &&
    endpoint.terminating === want.terminating &&
    slice.portMap === want.portMap &&
    endpoint.node === want.node &&
    (want.zone === undefined || endpoint.zone === want.zone) &&
    endpoint.hostname === want.hostname &&
    !isTwice(endpoint.addresses) &&
    isTarget(endpoint.target, want.pod)
  );
}

const isTwice = (names: readonly string[]): boolean =>
  names.length > 1 && new Set(names).size < names.length;

const isNone = (names: readonly string[] | null): boolean => names === null || names.length === 0;

function compareListed(
  found: Difference[],
  object: string,
  want: ExpectedAddress,
  got: ListedAddress,
  truncated: boolean,
): void {
  if (isListedAs(want, got)) return;
  const more = { subject: want.pod.name };
  const name = `${want.ip} of pod ${want.pod.name}`;
  if (want.ready !== got.ready) {
    const text = (ready: boolean): string => `${name} ${ready ? 'ready' : 'not ready'}`;
    const field = want.ready ? 'notReadyAddresses' : 'addresses';
    found.push(
      difference(
        'endpoints-readiness-different',
        object,
        `subsets.${field}`,
        text(want.ready),
        text(got.ready),
        more,
      ),
    );
  }
  const [wantPorts, gotPorts] = [packedPorts(want.ports), packedPorts(got.ports)];
  const within = truncated && gotPorts.every((key) => wantPorts.includes(key));
  if (!within && wantPorts.join() !== gotPorts.join()) {
    const [e, a] = [want.ports, got.ports].map((ports) => `${name}: ${portsText(ports)}`);
    found.push(
      difference('endpoints-ports-different', object, 'subsets.ports', e ?? '', a ?? '', more),
    );
  }
  const fields = noFields();
  checkTarget(fields, want.pod, got.target);
  check(fields, 'nodeName', want.node, got.node);
  check(fields, 'hostname', want.hostname, got.hostname);
  pushFields(found, 'endpoints-address-different', object, name, fields, more);
}

function pushFields(
  found: Difference[],
  code: Code,
  object: string,
  name: string,
  fields: Fields,
  more: Partial<Difference>,
): void {
  if (fields.names.length === 0) return;
  found.push(
    difference(
      code,
      object,
      fields.names.join(', '),
      `${name}: ${fields.expected.join(', ')}`,
      `${name}: ${fields.actual.join(', ')}`,
      more,
    ),
  );
}

// EndpointSlices

/** An endpoint as it stands in one slice. */
export interface SlicedEndpoint {
  readonly slice: EndpointSlice;
  readonly endpoint: Endpoint;
}

export const sliceObject = (slice: EndpointSlice): string => `EndpointSlice ${slice.key}`;

/** ready as consumers take it: absent means ready. */
export const isReady = (endpoint: Endpoint): boolean => endpoint.ready !== false;

export const endpointText = (endpoint: Endpoint, slice: EndpointSlice): string =>
  `${endpoint.addresses.join(', ')} of ${targetText(endpoint.target)}, ` +
  `${isReady(endpoint) ? 'ready' : 'not ready'}, ${portsText(slice.ports)}`;

const wantedText = (want: ExpectedEndpoint): string =>
  `${want.addresses.join(', ')} of pod ${want.pod.name}, ${want.ready ? 'ready' : 'not ready'}, ` +
  portsText(want.ports);

const conditionsText = (
  ready: boolean | null,
  serving: boolean | null,
  end: boolean | null,
): string => `ready ${yes(ready)}, serving ${yes(serving)}, terminating ${yes(end)}`;

/** How well a slice entry fits a pod: the pod by name, then ports, uid and conditions. */
function matchEndpoint(want: ExpectedEndpoint, { slice, endpoint }: SlicedEndpoint): number {
  if (endpoint.target?.name !== want.pod.name) return 0;
  let score = 1;
  if (slice.portMap === want.portMap) score += 8;
  if (endpoint.target.uid === want.pod.uid) score += 4;
  if (endpoint.ready === want.ready && endpoint.serving === want.serving) score += 2;
  return score;
}

/**
 * The slices of the controller at one address. `gone` as in compareAddress. `where` is the object
 * to name where no slice has the endpoint.
 */
export function compareEndpoint(
  where: string,
  expected: readonly ExpectedEndpoint[],
  actual: readonly SlicedEndpoint[],
  mode: HintMode,
  release: Release,
  gone: (entry: SlicedEndpoint) => Leftover,
): Difference[] {
  const found: Difference[] = [];
  const { pairs, missing, unexpected } = pair(expected, actual, matchEndpoint);
  for (const [want, got] of pairs) compareSliced(found, want, got, mode, release);
  for (const want of missing) {
    const more = { subject: want.pod.name, quiet: !want.ready };
    found.push(
      difference('slice-endpoint-missing', where, 'endpoints', wantedText(want), null, more),
    );
  }
  for (const got of unexpected) {
    const twin = actual.find((other) => other !== got && isTwin(other, got));
    found.push(twin === undefined ? strayEndpoint(got, gone(got)) : duplicate(got, twin));
  }
  return found;
}

const isTwin = (a: SlicedEndpoint, b: SlicedEndpoint): boolean =>
  a.slice.portMap === b.slice.portMap && a.endpoint.target?.uid === b.endpoint.target?.uid;

function duplicate(got: SlicedEndpoint, twin: SlicedEndpoint): Difference {
  const text = ({ endpoint, slice }: SlicedEndpoint): string =>
    `${endpoint.addresses.join(', ')} of ${targetText(endpoint.target)} in ${slice.name}: ` +
    conditionsText(endpoint.ready, endpoint.serving, endpoint.terminating);
  const same =
    got.endpoint.ready === twin.endpoint.ready &&
    got.endpoint.serving === twin.endpoint.serving &&
    got.endpoint.terminating === twin.endpoint.terminating;
  const code = same ? 'slice-duplicate' : 'slice-duplicate-conflicting';
  return difference(code, sliceObject(got.slice), 'endpoints', text(twin), text(got), {
    subject: got.slice.name,
  });
}

function strayEndpoint(
  { slice, endpoint }: SlicedEndpoint,
  { cause, severity }: Leftover,
): Difference {
  const usual = isReady(endpoint) ? null : 'warning';
  const text = endpointText(endpoint, slice);
  return difference('slice-endpoint-unexpected', sliceObject(slice), 'endpoints', null, text, {
    subject: `${slice.name} ${endpoint.target?.uid ?? ''}`,
    likelyCause: cause,
    severity: severity ?? usual,
  });
}

function compareSliced(
  found: Difference[],
  want: ExpectedEndpoint,
  { slice, endpoint }: SlicedEndpoint,
  mode: HintMode,
  release: Release,
): void {
  const unhinted = mode === 'none' && isNone(endpoint.forZones) && isNone(endpoint.forNodes);
  if ((unhinted || mode === 'auto') && isSlicedAs(want, { slice, endpoint })) return;
  const object = sliceObject(slice);
  const name = `${want.addresses.join(', ')} of pod ${want.pod.name}`;
  const more = { subject: want.pod.name };
  const { ready, serving, terminating } = endpoint;
  if (ready !== want.ready || serving !== want.serving || terminating !== want.terminating) {
    const [e, a] = [
      conditionsText(want.ready, want.serving, want.terminating),
      conditionsText(ready, serving, terminating),
    ];
    const astray = isReady(endpoint) && !want.ready;
    found.push(
      difference(
        'slice-conditions-different',
        object,
        'endpoints.conditions',
        `${name}: ${e}`,
        `${name}: ${a}`,
        { ...more, severity: astray ? 'critical' : null },
      ),
    );
  }
  if (slice.portMap !== want.portMap) {
    const [e, a] = [want.ports, slice.ports].map((ports) => `${name}: ${portsText(ports)}`);
    found.push(difference('slice-ports-different', object, 'ports', e ?? '', a ?? '', more));
  }
  const fields = noFields();
  checkTarget(fields, want.pod, endpoint.target);
  check(fields, 'nodeName', want.node, endpoint.node);
  if (want.zone !== undefined) check(fields, 'zone', want.zone, endpoint.zone);
  // A further address is a difference there; one that stands twice is told here.
  if (isTwice(endpoint.addresses)) {
    check(fields, 'addresses', want.addresses.join(', '), endpoint.addresses.join(', '));
  }
  check(fields, 'hostname', want.hostname, endpoint.hostname);
  const onlyZone = fields.names.length === 1 && fields.names[0] === 'zone';
  pushFields(found, 'slice-endpoint-different', object, name, fields, {
    ...more,
    // Without hints nothing reads the zone of an endpoint.
    quiet: onlyZone && mode === 'none',
    likelyCause: onlyZone ? 'node-change-unnoticed' : null,
  });
  if (mode !== 'auto') compareHints(found, object, name, want, endpoint, mode, release);
}

const listText = (names: readonly string[] | null): string =>
  names === null || names.length === 0 ? 'none' : names.join(', ');

const hintsText = (forZones: readonly string[] | null, nodes: readonly string[] | null): string =>
  `forZones ${listText(forZones)}, forNodes ${listText(nodes)}`;

/** Hints repeat a zone and a Node: those that are meant, or those that the endpoint says. */
function compareHints(
  found: Difference[],
  object: string,
  name: string,
  wanted: ExpectedEndpoint,
  endpoint: Endpoint,
  mode: 'none' | 'zone' | 'node',
  release: Release,
): void {
  const { ready, node, zone = endpoint.zone } = wanted;
  const [own, meant] = [endpoint, { ...endpoint, ready, node, zone }].map((of) => {
    const { forZones, forNodes } = expectedHints(mode, of, release);
    return hintsText(forZones, forNodes);
  });
  const a = hintsText(endpoint.forZones, endpoint.forNodes);
  if (a === own || a === meant) return;
  found.push(
    difference(
      'slice-hints-different',
      object,
      'endpoints.hints',
      `${name}: ${meant ?? ''}`,
      `${name}: ${a}`,
      // Nothing reads hints of endpoints that are not ready, and the controller does not either.
      { subject: name, severity: endpoint.ready === true || mode === 'none' ? null : 'info' },
    ),
  );
}

// Whether parts of objects are equal, field by field; for label maps see selector.ts.

import type { Endpoint, EndpointAddress, EndpointSlice, Node, ObjectRef, Port } from './objects.ts';

/** In their order. */
export function equalTexts(a: readonly string[] | null, b: readonly string[] | null): boolean {
  if (a === b) return true;
  if (a?.length !== b?.length || a === null || b === null) return false;
  return a.every((text, index) => text === b[index]);
}

/** Whether a reference may mean an object of this uid: a dump may hold objects without theirs. */
export const isOfUid = (uid: string | undefined, object: { readonly uid: string }): boolean =>
  object.uid === '' || uid === object.uid;

/** Whether two references mean the same object. */
export function equalRefs(a: ObjectRef | null, b: ObjectRef | null): boolean {
  if (a === b) return true;
  return (
    a?.uid === b?.uid && a?.name === b?.name && a?.namespace === b?.namespace && a?.kind === b?.kind
  );
}

/** In their order. */
export function equalLists<T extends object>(
  a: readonly T[],
  b: readonly T[],
  equal: (a: T, b: T) => boolean,
): boolean {
  if (a === b) return true;
  if (a.length !== b.length) return false;
  return a.every((item, index) => {
    const other = b[index];
    return other !== undefined && equal(item, other);
  });
}

const isSamePort = (a: Port, b: Port): boolean =>
  a.port === b.port &&
  a.name === b.name &&
  a.protocol === b.protocol &&
  a.appProtocol === b.appProtocol;

/** In their order; as portKey. */
export const equalPorts = (a: readonly Port[], b: readonly Port[]): boolean =>
  equalLists(a, b, isSamePort);

const ownerFields = ['uid', 'kind', 'name', 'apiVersion', 'controller'] as const;

export const equalOwners = (a: EndpointSlice['owners'], b: EndpointSlice['owners']): boolean =>
  equalLists(a, b, (x, y) => ownerFields.every((field) => x[field] === y[field]));

/** Without regard to their IPs. */
export function equalAddresses(a: EndpointAddress, b: EndpointAddress): boolean {
  if (a === b) return true;
  return (
    a.ready === b.ready &&
    a.node === b.node &&
    a.hostname === b.hostname &&
    equalRefs(a.target, b.target) &&
    equalPorts(a.ports, b.ports)
  );
}

export function equalEndpoints(a: Endpoint, b: Endpoint): boolean {
  if (a === b) return true;
  return (
    a.ready === b.ready &&
    a.serving === b.serving &&
    a.terminating === b.terminating &&
    a.node === b.node &&
    a.zone === b.zone &&
    a.hostname === b.hostname &&
    equalRefs(a.target, b.target) &&
    equalTexts(a.addresses, b.addresses) &&
    equalTexts(a.forZones, b.forZones) &&
    equalTexts(a.forNodes, b.forNodes)
  );
}

export const isSameToHints = (a: Node | null, b: Node | null): boolean =>
  (['zone', 'ready', 'cpuMillis', 'controlPlane'] as const).every((it) => a?.[it] === b?.[it]);

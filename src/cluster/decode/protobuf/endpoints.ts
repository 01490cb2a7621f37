// Protobuf by hand: Endpoints and EndpointSlices, which hold every address once each.
//
// Messages: Endpoints and its parts of k8s.io/api@v0.36.3 core/v1, EndpointSlice and its parts of
// discovery/v1 (generated.proto). What is read is what project.ts reads.

import type {
  Endpoint,
  EndpointAddress,
  Endpoints,
  EndpointSlice,
  EndpointSubset,
  ObjectRef,
  Port,
} from '../../../model/objects.ts';
import type { SliceMeta } from '../build-objects.ts';
import { endpointSliceOf, endpointsOf, subsetOf } from '../build-objects.ts';
import { internList, internWord } from '../intern.ts';
import { addressTypes } from '../json-objects.ts';
import {
  bits,
  noItems,
  pass,
  readMeta,
  readName,
  readRef,
  readWord,
  unexpected,
} from './metadata.ts';
import type { Cursor } from './wire.ts';
import { readBool, readEnd, readInt32, readTag, readText, tagOf, varintTagOf } from './wire.ts';

// --- Endpoints ---

/**
 * The message Endpoints from the cursor to `end`, of `bytes` bytes; throws WrongType where
 * it is not as expected.
 */
export function readEndpoints(cursor: Cursor, end: number, at: number, bytes: number): Endpoints {
  let meta: SliceMeta | null = null;
  const subsets: EndpointSubset[] = [];
  while (cursor.at < end) {
    const tag = readTag(cursor, end);
    if (tag === tagOf(1) && meta === null) meta = readMeta(cursor, readEnd(cursor, end), true);
    else if (tag === tagOf(2)) subsets.push(readSubset(cursor, readEnd(cursor, end)));
    else pass(cursor, tag, end, bits(1, 2));
  }
  if (meta === null) throw unexpected();
  return endpointsOf(meta, at, meta.annotations, exact(subsets), bytes);
}

/** The same items in a list of exact size, since pushing reserves room for more. */
function exact<T>(items: T[]): readonly T[] {
  return items.length === 0 ? noItems : items.slice();
}

/** The ports follow the addresses, which have them; so they are read first. */
function readSubset(cursor: Cursor, end: number): EndpointSubset {
  const from = cursor.at;
  const ports = readPorts(cursor, end, 3, subsetPort);
  cursor.at = from;
  const ready: EndpointAddress[] = [];
  const notReady: EndpointAddress[] = [];
  while (cursor.at < end) {
    const tag = readTag(cursor, end);
    if (tag === tagOf(1)) ready.push(readAddress(cursor, readEnd(cursor, end), true, ports));
    else if (tag === tagOf(2)) {
      notReady.push(readAddress(cursor, readEnd(cursor, end), false, ports));
    } else if (tag === tagOf(3)) cursor.at = readEnd(cursor, end);
    else pass(cursor, tag, end, bits(1, 2, 3));
  }
  return subsetOf(ports, exact(ready), exact(notReady));
}

/** All fields of this number, which are ports; everything else is passed over. */
function readPorts(
  cursor: Cursor,
  end: number,
  field: number,
  read: (cursor: Cursor, end: number) => Port,
): readonly Port[] {
  const ports: Port[] = [];
  while (cursor.at < end) {
    const tag = readTag(cursor, end);
    if (tag === tagOf(field)) ports.push(read(cursor, readEnd(cursor, end)));
    else pass(cursor, tag, end, bits(field));
  }
  return internList(ports);
}

function subsetPort(cursor: Cursor, end: number): Port {
  let [name, protocol] = ['', ''];
  let port = 0;
  let appProtocol: string | null = null;
  while (cursor.at < end) {
    const tag = readTag(cursor, end);
    if (tag === tagOf(1)) name = readWord(cursor, end);
    else if (tag === varintTagOf(2)) port = readInt32(cursor, end);
    else if (tag === tagOf(3)) protocol = readWord(cursor, end);
    else if (tag === tagOf(4)) appProtocol = readWord(cursor, end);
    else pass(cursor, tag, end, bits(1, 2, 3, 4));
  }
  return { name, protocol: protocol || 'TCP', port, appProtocol };
}

function readAddress(
  cursor: Cursor,
  end: number,
  ready: boolean,
  ports: readonly Port[],
): EndpointAddress {
  let [ip, hostname] = ['', ''];
  let node: string | null = null;
  let target: ObjectRef | null = null;
  while (cursor.at < end) {
    const tag = readTag(cursor, end);
    if (tag === tagOf(1)) ip = readText(cursor, end);
    else if (tag === tagOf(2) && target === null) target = readRef(cursor, readEnd(cursor, end));
    else if (tag === tagOf(3)) hostname = readText(cursor, end);
    else if (tag === tagOf(4)) node = readWord(cursor, end);
    else pass(cursor, tag, end, bits(1, 2, 3, 4));
  }
  return { ip, ready, ports, node, hostname, target };
}

// --- EndpointSlices ---

/** The message EndpointSlice, as readEndpoints. */
export function readEndpointSlice(
  cursor: Cursor,
  end: number,
  at: number,
  bytes: number,
): EndpointSlice {
  const from = cursor.at;
  let meta: SliceMeta | null = null;
  let addressType = '';
  const endpoints: Endpoint[] = [];
  while (cursor.at < end) {
    const tag = readTag(cursor, end);
    if (tag === tagOf(1) && meta === null) meta = readMeta(cursor, readEnd(cursor, end), true);
    else if (tag === tagOf(2)) endpoints.push(readEndpoint(cursor, readEnd(cursor, end)));
    else if (tag === tagOf(3)) cursor.at = readEnd(cursor, end);
    else if (tag === tagOf(4)) addressType = readWord(cursor, end);
    else pass(cursor, tag, end, bits(1, 2, 3, 4));
  }
  const type = addressTypes.find((type) => type === addressType);
  if (meta === null || type === undefined) throw unexpected();
  cursor.at = from;
  const ports = readPorts(cursor, end, 3, slicePort);
  return endpointSliceOf(meta, at, type, ports, exact(endpoints), bytes);
}

function slicePort(cursor: Cursor, end: number): Port {
  let name: string | null = null;
  let protocol = '';
  let port: number | null = null;
  let appProtocol: string | null = null;
  while (cursor.at < end) {
    const tag = readTag(cursor, end);
    if (tag === tagOf(1)) name = readWord(cursor, end);
    else if (tag === tagOf(2)) protocol = readWord(cursor, end);
    else if (tag === varintTagOf(3)) port = readInt32(cursor, end);
    else if (tag === tagOf(4)) appProtocol = readWord(cursor, end);
    else pass(cursor, tag, end, bits(1, 2, 3, 4));
  }
  return { name, protocol: protocol || 'TCP', port, appProtocol };
}

/** What is put together while an endpoint is read. */
interface EndpointParts extends Record<'ready' | 'serving' | 'terminating', boolean | null> {
  forZones: string[] | null;
  forNodes: string[] | null;
}

const endpointFields = bits(1, 2, 3, 4, 6, 7, 8);

function readEndpoint(cursor: Cursor, end: number): Endpoint {
  let addresses: string[] | null = null;
  let hostname: string | null = null;
  let node: string | null = null;
  let zone: string | null = null;
  let target: ObjectRef | null = null;
  const parts: EndpointParts = {
    ready: null,
    serving: null,
    terminating: null,
    forZones: null,
    forNodes: null,
  };
  while (cursor.at < end) {
    const tag = readTag(cursor, end);
    switch (tag) {
      case tagOf(1): {
        const address = readText(cursor, end);
        if (addresses === null) addresses = [address];
        else addresses.push(address);
        break;
      }
      case tagOf(2):
        readConditions(parts, cursor, readEnd(cursor, end));
        break;
      case tagOf(3):
        hostname = readText(cursor, end);
        break;
      case tagOf(4):
        if (target !== null) throw unexpected();
        target = readRef(cursor, readEnd(cursor, end));
        break;
      case tagOf(6):
        node = readWord(cursor, end);
        break;
      case tagOf(7):
        zone = readWord(cursor, end);
        break;
      case tagOf(8):
        readHints(parts, cursor, readEnd(cursor, end));
        break;
      default:
        pass(cursor, tag, end, endpointFields);
    }
  }
  const { ready, serving, terminating, forZones, forNodes } = parts;
  return {
    addresses: addresses ?? noItems,
    ready,
    serving,
    terminating,
    hostname,
    node,
    zone,
    target,
    forZones,
    forNodes,
  };
}

function readConditions(parts: EndpointParts, cursor: Cursor, end: number): void {
  while (cursor.at < end) {
    const tag = readTag(cursor, end);
    if (tag === varintTagOf(1)) parts.ready = readBool(cursor, end);
    else if (tag === varintTagOf(2)) parts.serving = readBool(cursor, end);
    else if (tag === varintTagOf(3)) parts.terminating = readBool(cursor, end);
    else pass(cursor, tag, end, bits(1, 2, 3));
  }
}

function readHints(parts: EndpointParts, cursor: Cursor, end: number): void {
  while (cursor.at < end) {
    const tag = readTag(cursor, end);
    if (tag === tagOf(1)) (parts.forZones ??= []).push(hintOf(cursor, readEnd(cursor, end)));
    else if (tag === tagOf(2)) (parts.forNodes ??= []).push(hintOf(cursor, readEnd(cursor, end)));
    else pass(cursor, tag, end, bits(1, 2));
  }
}

const hintOf = (cursor: Cursor, end: number): string => internWord(readName(cursor, end));

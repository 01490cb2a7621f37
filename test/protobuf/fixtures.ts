// What Go wrote (main.go): answers of an API server in JSON and the same in protobuf.

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';

import { readEnd, readTag } from '../../src/cluster/decode/protobuf/wire.ts';
import type { Resource } from '../../src/model/objects.ts';
import { resources } from '../../src/model/objects.ts';

export type Raw = Record<string, unknown>;

/** A page of a list, or a frame of a watch. */
export interface Answer {
  /** null: a Status. */
  readonly resource: Resource | null;
  readonly json: Raw;
  readonly protobuf: Buffer;
  /** The items of a page, as JSON; null for a frame. */
  readonly items: readonly Raw[] | null;
}

/** A message of an object, out of its envelopes, with the JSON of the same object. */
export interface Message {
  readonly resource: Resource;
  readonly json: Raw;
  readonly bytes: Buffer;
}

/** The fields of this number, which contain bytes. */
function parts(bytes: Buffer, number: number): Buffer[] {
  const found: Buffer[] = [];
  const cursor = { bytes, at: 0 };
  while (cursor.at < bytes.length) {
    const tag = readTag(cursor, bytes.length);
    const end = readEnd(cursor, bytes.length);
    if (tag >>> 3 === number) found.push(bytes.subarray(cursor.at, end));
    cursor.at = end;
  }
  return found;
}

function part(bytes: Buffer, number: number): Buffer {
  const [found] = parts(bytes, number);
  if (found === undefined) throw new Error(`Expected a field ${number}`);
  return found;
}

/** The length of the message of each item of a page. */
export function itemSizes({ protobuf }: Answer): number[] {
  return parts(part(protobuf.subarray(prefixLength), 2), 2).map(({ length }) => length);
}

const prefixLength = 4;

/** The objects of all frames with a change. */
export function messages(of: readonly Answer[]): Message[] {
  return of.flatMap(({ resource, json, protobuf, items }) => {
    if (resource === null || items !== null || json.type === 'BOOKMARK') return [];
    const event = protobuf.subarray(4);
    const object = part(part(event, 2), 1).subarray(prefixLength);
    return [{ resource, json: json.object as Raw, bytes: part(object, 2) }];
  });
}

const names = ['Node', 'Service', 'Pod', 'Endpoints', 'EndpointSlice'];

/** All answers in the order in which they were written. */
export function answers(): Answer[] {
  const bytes = gunzipSync(readFileSync(join(import.meta.dirname, 'objects.bin.gz')));
  const found: Answer[] = [];
  let at = 0;
  const next = (): Buffer => {
    const from = at + 4;
    at = from + bytes.readUInt32BE(at);
    return bytes.subarray(from, at);
  };
  while (at < bytes.length) {
    const json = JSON.parse(next().toString()) as Raw;
    const isFrame = json.type !== undefined;
    const of = (isFrame ? json.object : json) as Raw;
    const kind = String(of.kind);
    const index = names.findIndex((name) => kind === name || kind === `${name}List`);
    const items = isFrame ? null : ((json.items ?? []) as Raw[]);
    found.push({ resource: resources[index] ?? null, json, protobuf: next(), items });
  }
  return found;
}

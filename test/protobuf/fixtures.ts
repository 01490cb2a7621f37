// What Go wrote (main.go): answers of an API server in JSON and the same in protobuf.

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';

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

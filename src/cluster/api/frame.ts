// The types of a decoded watch or list response: frames, statuses and the codec that reads them.

/** What a Status object says. */

import type { Key, Pod, Resource, UnreadableObject, WatchEvent } from '../../model/objects.ts';
import type { Projection } from '../decode/json-objects.ts';
import type { Bytes } from '../decode/line-reader.ts';

export interface ApiStatus {
  readonly code: number;
  readonly reason: string;
  readonly message: string;
  /** Seconds; null: it names none. */
  readonly retryAfter: number | null;
  /** Reasons of the causes in its details. */
  readonly causes: readonly string[];
}

export interface Codec {
  /** The media type without parameters. */
  readonly mediaType: string;
  watch(body: Bytes, reading: DecodeContext): AsyncIterable<Iterable<Frame>>;
  list(body: Bytes, reading: DecodeContext): AsyncIterable<Iterable<Frame>>;
  /** The Status that is the body of a refusal with this code; null: it is none. */
  status(body: Uint8Array, code: number): ApiStatus | null;
}

export type Frame =
  | {
      readonly kind: 'object';
      /** `added` for the items of a list. */
      readonly type: WatchEvent['type'];
      readonly projection: Projection<Resource>;
      /** metadata.resourceVersion, also of a change that cannot be projected; '': none. */
      readonly version: string;
      /** The object as it came, where it was asked for. */
      readonly raw?: unknown;
    }
  | {
      readonly kind: 'bookmark';
      readonly version: string;
      /** It ends the initial events of a watch that was to send them. */
      readonly initialEnd: boolean;
    }
  /** The end of a list page; `next` is its continue token, '' after the last page. */
  | { readonly kind: 'page'; readonly version: string; readonly next: string }
  | { readonly kind: 'status'; readonly status: ApiStatus }
  | {
      readonly kind: 'bad';
      /** A fixed sentence, and the beginning of what it is about. */
      readonly message: string;
      readonly value: string | null;
      readonly lost: UnreadableObject;
      /** The body ended within this frame. */
      readonly cut: boolean;
    };
/** What is known while a body is read. */
export interface DecodeContext {
  readonly resource: Resource;
  /** Arrival of the chunk that is decoded, Unix seconds. */
  readonly now: () => number;
  readonly previousPod: (key: Key) => Pod | undefined;
  /** Whether frames carry the raw object, which only JSON has. */
  readonly raw: boolean;
}

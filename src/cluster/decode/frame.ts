// The decoded frames of a watch or list response, in JSON or protobuf
// (k8s.io/apimachinery@v0.36.3 pkg/apis/meta/v1/types.go).

import type { Key, Pod, Resource, UnreadableObject, WatchEvent } from '../../model/objects.ts';
import { type Fields, isFields } from './json-fields.ts';
import { type Projection, resourceOfKind } from './json-objects.ts';
import type { Bytes } from './line-reader.ts';

/** Bytes of an object, which an API server limits to 1.5 MiB by default; longer ones are lost. */
export const frameLimit = 16 * 1024 * 1024;

export type ApiStatus = ReturnType<typeof readStatus>;

/** Decodes the responses of one media type, in lazy batches as they arrive. */
export interface Codec {
  /** Without parameters. */
  readonly mediaType: string;
  watch(body: Bytes, context: DecodeContext): AsyncIterable<Iterable<Frame>>;
  list(body: Bytes, context: DecodeContext): AsyncIterable<Iterable<Frame>>;
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
  /** The end of a list page, or what shows that it is no list of the resource. */
  | {
      readonly kind: 'page';
      readonly isOther: boolean;
      readonly version: string;
      /** The continue token, '' after the last page. */
      readonly next: string;
    }
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

export interface DecodeContext {
  readonly resource: Resource;
  /** Arrival of the chunk that is decoded, Unix seconds. */
  readonly now: () => number;
  readonly previousPod: (key: Key) => Pod | undefined;
  /** Whether frames carry the raw object, which only JSON has. */
  readonly raw: boolean;
}

/** Reads a Status object; of other content only the code is known. */
export function readStatus(value: unknown, code: number) {
  const status = isFields(value) ? value : {};
  const details = isFields(status.details) ? status.details : {};
  const { retryAfterSeconds: seconds } = details;
  const causes = Array.isArray(details.causes) ? (details.causes as unknown[]) : [];
  return {
    code: typeof status.code === 'number' && status.code !== 0 ? status.code : code,
    reason: textOf(status.reason),
    message: textOf(status.message),
    /** Seconds; null: it names none. */
    retryAfter: typeof seconds === 'number' && seconds > 0 ? seconds : null,
    causes: causes.filter(isFields).map(({ reason }) => textOf(reason)),
  };
}

/** The frame of a bookmark, which may end the initial events. */
export function bookmarkFrame(object: unknown): Frame {
  const { annotations } = metadataOf(object);
  const initialEnd = isFields(annotations) && annotations['k8s.io/initial-events-end'] === 'true';
  return { kind: 'bookmark', version: versionOf(object), initialEnd };
}

/** What is no list of the resource. */
export const otherFrame: Frame = { kind: 'page', isOther: true, version: '', next: '' };

/** The frame that ends a page of a list; null: it has no version and no kind, and so is no list. */
export function pageFrame(list: unknown, resource: Resource): Frame | null {
  if (!isFields(list)) return null;
  const version = versionOf(list);
  const isOther = !isOf(resource, list, 'List');
  if (version === '' && !isOther) return null;
  return { kind: 'page', isOther, version, next: textOf(metadataOf(list).continue) };
}

/** The kind that an object or a list names; '' if it names none. */
export const kindOf = (raw: unknown): string => (isFields(raw) ? textOf(raw.kind) : '');

/** Whether an object, or with the suffix `List` a list, is of the resource or names no kind. */
export function isOf(resource: Resource, raw: Fields, suffix = ''): boolean {
  const kind = kindOf(raw);
  if (kind === '') return true;
  const ofObject = kind.slice(0, kind.length - suffix.length);
  return kind.endsWith(suffix) && resourceOfKind(raw.apiVersion, ofObject) === resource;
}

/** The resourceVersion of a raw object or list; '' if it has none. */
export const versionOf = (raw: unknown): string => textOf(metadataOf(raw).resourceVersion);

const metadataOf = (raw: unknown): Fields =>
  isFields(raw) && isFields(raw.metadata) ? raw.metadata : {};

const textOf = (value: unknown): string => (typeof value === 'string' ? value : '');

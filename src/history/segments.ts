// The segments of a folder: their names, their order, and which of them the limits remove.
//
// A name is `00000012-1795258544085.segment`: the number and the time of the checkpoint in
// milliseconds. The number gives the order, since a clock may be set back. A checkpoint that is
// being written has the ending `.partial`.

import type { HistoryFiles, StoredFile } from './files.ts';

export interface Segment extends StoredFile {
  /** From 1. */
  readonly number: number;
  /** The time of its checkpoint, Unix seconds. */
  readonly start: number;
}

const form = /^(\d{8})-(\d{1,15})\.segment$/;

export const partialEnding = '.partial';

/** The name of a segment whose checkpoint has this time. */
export const segmentName = (number: number, start: number): string =>
  `${String(number).padStart(8, '0')}-${Math.max(0, Math.round(start * 1000))}.segment`;

/** Whether a file is a segment, or a checkpoint that is being written for one. */
export const isSegment = (name: string): boolean => form.test(name);
export const isPartial = (name: string): boolean =>
  name.endsWith(partialEnding) && isSegment(name.slice(0, -partialEnding.length));

/** The segments of a folder, oldest first. */
export async function listSegments(files: Pick<HistoryFiles, 'list'>): Promise<Segment[]> {
  const found = (await files.list()).flatMap((file): Segment[] => {
    const [, number, start] = form.exec(file.name) ?? [];
    if (number === undefined) return [];
    return [{ ...file, number: Number(number), start: Number(start) / 1000 }];
  });
  return found.sort((a, b) => a.number - b.number);
}

export interface HistoryLimits {
  /** Bytes of all segments and of the search index. */
  readonly size: number;
  /** Seconds of recorded time. */
  readonly age: number;
}

/**
 * The changes of a segment have at most this part of the size and of the age, so that few segments
 * remove little. With a small checkpoint, the whole segment has.
 */
const parts = 8;

/** The most bytes of the search index, which is one part beside the segments. */
export const indexLimit = (size: number): number => size / parts;
const mostSegment = { bytes: 64 * 1024 * 1024, seconds: 3600 };

/** The most bytes of a segment with a small checkpoint, and its seconds. */
const segmentLimits = ({ size, age }: HistoryLimits) => ({
  bytes: Math.min(size / parts, mostSegment.bytes),
  seconds: Math.min(age / parts, mostSegment.seconds),
});

/** The most bytes of changes if the checkpoint is small: a moment audits them in about a second. */
const mostChanges = 128 * 1024;

/** Bytes of a checkpoint for one of the changes after it: it opens faster than as many changes. */
const checkpointShare = 6;

/**
 * The bytes of changes after which the next segment begins, so that a moment has few to audit.
 * Above a large checkpoint they stop at the limit of a segment, since `expiredSegments` keeps no
 * more space for them.
 */
export const changesLimit = (checkpoint: number, segment: number): number =>
  Math.max(
    Math.min(checkpoint / checkpointShare, segment),
    Math.min(mostChanges, segment - checkpoint),
  );

/** Changes that come fast: their most bytes, and the part of the time that checkpoints may take. */
const storm = { bytes: 256 * 1024 * 1024, share: 0.05 };

/** An open segment. */
export interface SegmentState {
  readonly start: number;
  bytes: number;
  /** The bytes of its checkpoint, and the seconds until it was complete. */
  base: number;
  baseSeconds: number;
}

/**
 * Whether the next segment must begin. If thousands of objects change each second, the time that
 * the checkpoint has taken decides, until the space for changes is full.
 */
export function isSegmentDue(
  { start, bytes, base, baseSeconds }: Readonly<SegmentState>,
  limits: HistoryLimits,
  now: number,
): boolean {
  const most = segmentLimits(limits);
  const [age, changes] = [now - start, bytes - base];
  if (age >= most.seconds || changes >= Math.min(limits.size / parts, storm.bytes)) return true;
  if (changes < changesLimit(base, most.bytes)) return false;
  // The clock may have been set back.
  return age < 0 || age * storm.share >= baseSeconds;
}

/**
 * The oldest segments that the limits remove; never the newest one. Age is recorded time: neither a
 * pause nor a clock that is set forward removes anything.
 */
export function expiredSegments(
  segments: readonly Segment[],
  limits: HistoryLimits,
  now: number,
): readonly Segment[] {
  const longest = 2 * segmentLimits(limits).seconds;
  // The newest one grows by one part until this is called again, and the index may have one.
  const most = limits.size - (2 * limits.size) / parts;
  let bytes = 0;
  let seconds = 0;
  let end = now;
  const expired: Segment[] = [];
  for (const segment of segments.toReversed()) {
    bytes += segment.bytes;
    const isOver = bytes > most || seconds > limits.age;
    if (segment !== segments.at(-1) && (isOver || expired.length > 0)) expired.unshift(segment);
    seconds += Math.min(Math.max(0, end - segment.start), longest);
    end = segment.start;
  }
  return expired;
}

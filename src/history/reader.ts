// Reads a history as a recording: the lines from the checkpoint before a moment up to that moment.
// What is damaged or missing is skipped, and a problem says which time is affected.

import { parseJson } from '../cluster/decode/json-text.ts';
import { errorText, type HistoryFiles } from './files.ts';
import { framesIn, linesOf, lossText, type SegmentFrame, type SegmentPart } from './frame.ts';
import { listSegments, type Segment } from './segments.ts';

/** The lines of a history. */
export interface HistoryLines {
  /** The name of the first segment. */
  readonly name: string;
  /** The first line: the header of the checkpoint. */
  readonly header: unknown;
  readonly bytes: AsyncIterable<Uint8Array>;
}

/** Called with what is damaged or missing, for people. */
export type OnLoss = (segment: string, message: string) => void;

/**
 * Seconds without a line from which on the recorder did not run: it writes one every 10 s, and one
 * before the next segment begins.
 */
const longestSilence = { within: 15, before: 2 };

/** The history has other moments than the one that was asked for; the text is for people. */
export class UnknownMoment extends Error {}

/** A segment, and whether all of it is read, or only its live frames. */
interface Step {
  readonly segment: Segment;
  /** `null`: it is read when it has its turn. */
  readonly data: Uint8Array | null;
  readonly isWhole: boolean;
}

/**
 * Finds the lines up to a moment in Unix seconds: they begin with the last whole checkpoint before
 * it, or before `from`. Throws an Error for people if there is none: UnknownMoment if the history
 * begins later.
 */
export async function openHistory(
  files: Pick<HistoryFiles, 'list' | 'read'>,
  until: number,
  onLoss: OnLoss,
  from = until,
): Promise<HistoryLines> {
  const segments = await listSegments(files);
  if (segments.length === 0) throw new Error('The folder has no history');
  const before = segments.filter(({ start }) => start <= until);
  const since = Math.max(from, segments[0]?.start ?? 0);
  const steps: Step[] = [];
  for (const segment of before.toReversed()) {
    if (segment.start > since) {
      steps.unshift({ segment, data: null, isWhole: false });
      continue;
    }
    const data = await readSegment(files, segment.name, (message) => onLoss(segment.name, message));
    if (data === null) continue;
    const isWhole = await hasWholeCheckpoint(data, segment, onLoss);
    // Many may be damaged: only the one with the checkpoint is kept in memory.
    steps.unshift({ segment, data: isWhole ? data : null, isWhole });
    if (isWhole) break;
  }
  // Without a whole checkpoint, nothing is known.
  const used = steps.find(({ isWhole }) => isWhole);
  if (used === undefined) {
    if (before.length > 0) throw new Error('No checkpoint before that moment is whole');
    const [oldest] = segments;
    const begin = new Date((oldest?.start ?? 0) * 1000).toISOString();
    throw new UnknownMoment(`The history begins at ${begin}`);
  }
  const last = steps.at(-1) ?? used;
  const isFollowed = segments.some(({ number }) => number > last.segment.number);
  const header = await headerOf(used);
  return {
    name: used.segment.name,
    header,
    bytes: linesBefore(files, steps, [until, isFollowed], onLoss),
  };
}

/** `null` if it cannot be read, which is reported. */
const readSegment = (
  files: Pick<HistoryFiles, 'read'>,
  name: string,
  onError: (message: string) => void,
): Promise<Uint8Array | null> =>
  files.read(name).catch((error: unknown) => {
    onError(errorText(error));
    return null;
  });

/** The first line of a segment with a whole checkpoint; `null` if it cannot be read. */
async function headerOf({ data, segment }: Step): Promise<unknown> {
  const [first] = data === null ? [] : framesIn(data, segment.number);
  if (first === undefined || !('frame' in first)) return null;
  try {
    const lines = Buffer.from(await linesOf(first.frame)).toString();
    return parseJson(lines.split('\n', 1)[0] ?? '');
  } catch {
    return null;
  }
}

/**
 * The time of the last whole frame, Unix seconds. Throws an Error for people without segments that
 * can be read.
 */
export async function latestMoment(
  files: Pick<HistoryFiles, 'list' | 'read'>,
  onLoss: OnLoss = () => undefined,
): Promise<number> {
  for (const { name, number } of (await listSegments(files)).toReversed()) {
    const data = await readSegment(files, name, (message) => onLoss(name, message));
    const parts = data === null ? [] : [...framesIn(data, number)];
    const last = parts.findLast((part) => 'frame' in part && part.frame.kind !== 'notes');
    if (last !== undefined && 'frame' in last) return last.frame.at;
  }
  throw new Error('The folder has no history');
}

/** The parts of a time span in which a recorder ran: each has a checkpoint at or before it. */
export async function spansBetween(
  files: Pick<HistoryFiles, 'list' | 'read'>,
  from: number,
  to: number,
) {
  const segments = await listSegments(files);
  const latest = await latestMoment(files);
  const firsts = segments.filter(
    ({ number }, index) => number !== (segments[index - 1]?.number ?? -1) + 1,
  );
  return firsts.flatMap(({ start }, index) => {
    // Nothing is known of the time before the checkpoint of the next recorder.
    const next = firsts[index + 1];
    const end = next === undefined ? latest : next.start - 0.001;
    const span = { from: Math.max(from, start), to: Math.min(to, end) };
    return span.from < span.to ? [span] : [];
  });
}

/** Whether every frame of the checkpoint is whole, up to the live frame that follows it. */
async function hasWholeCheckpoint(
  data: Uint8Array,
  { name, number }: Segment,
  onLoss: OnLoss,
): Promise<boolean> {
  const parts = unpackAhead(framesIn(data, number), ({ kind }) => kind !== 'live');
  for (const { part, unpacked } of parts) {
    if ('frame' in part && part.frame.kind === 'live') return true;
    if ('lost' in part) {
      // The recorder syncs a checkpoint and its end before it names the file.
      onLoss(name, `${lossText(part)} in its checkpoint`);
      return false;
    }
    try {
      await unpacked;
    } catch (error) {
      onLoss(name, `Its checkpoint cannot be decompressed: ${String(error)}`);
      return false;
    }
  }
  onLoss(name, 'The end of its checkpoint is missing');
  return false;
}

/**
 * Parts of a segment with their lines, `null` if they are not wanted. While one is used, another
 * thread decompresses the lines of the next.
 */
function* unpackAhead(parts: Iterable<SegmentPart>, isWanted: (frame: SegmentFrame) => boolean) {
  let next: { part: SegmentPart; unpacked: Promise<Uint8Array> | null } | null = null;
  for (const part of parts) {
    const unpacked = 'frame' in part && isWanted(part.frame) ? linesOf(part.frame) : null;
    // An error is for the reader of the part, which may not read it.
    unpacked?.catch(() => undefined);
    if (next !== null) yield next;
    next = { part, unpacked };
  }
  if (next !== null) yield next;
}

async function* linesBefore(
  files: Pick<HistoryFiles, 'read'>,
  steps: readonly Step[],
  [until, isFollowed]: readonly [number, boolean],
  onLoss: OnLoss,
): AsyncGenerator<Uint8Array> {
  let latest = -Infinity;
  let number = steps[0]?.segment.number ?? 0;
  for (const { segment, data, isWhole } of steps) {
    const loss = (message: string): void => {
      const from = latest === -Infinity ? '' : ` after ${new Date(latest * 1000).toISOString()}`;
      onLoss(segment.name, `${message}${from}: changes may be missing`);
    };
    if (segment.number > number + 1) loss('What came before is missing');
    number = segment.number;
    const read = data ?? (await readSegment(files, segment.name, loss));
    if (read === null) continue;
    // The segment before has shown what comes before its live frames.
    const isWanted = ({ kind }: SegmentFrame) => kind === 'live' || (isWhole && kind !== 'notes');
    for (const { part, unpacked } of unpackAhead(framesIn(read, segment.number), isWanted)) {
      if ('lost' in part) {
        loss(lossText(part));
        continue;
      }
      if (unpacked === null) continue;
      const { frame } = part;
      if (frame.at - latest > longestSilence.within && latest !== -Infinity && latest < until) {
        loss(`Nothing was recorded until ${new Date(frame.at * 1000).toISOString()}`);
      }
      // The frame after the moment may have lines before it.
      const isPast = frame.at > until;
      const lines = await unpacked.catch((error: unknown) => {
        loss(`A frame cannot be decompressed (${errorText(error)})`);
        return null;
      });
      latest = frame.at;
      if (lines !== null) yield lines;
      if (isPast) return;
    }
  }
  const silence = isFollowed ? longestSilence.before : longestSilence.within;
  if (until !== Infinity && until - latest > silence) {
    onLoss(
      steps.at(-1)?.segment.name ?? '',
      `Nothing was recorded from ${new Date(latest * 1000).toISOString()} to that moment`,
    );
  }
}

// The recorder: writes the lines of a live auditor to the segments of a folder.
//
//   lines ──► buffer ──each second──► zstd ──► frame ──► append, sync
//
// A segment begins with a checkpoint, which is written beside the segment before it and gets its
// name when it is complete. Meanwhile lines go to both. A failure of the disk ends the segment. The
// recorder then drops lines, counts them, and begins again with a checkpoint after a pause. No
// failure reaches the auditor.

import { type AppendFile, errorText, type HistoryFiles } from './files.ts';
import {
  createFrame,
  encodeFrame,
  formatVersion,
  framesIn,
  type FrameKind,
  headerLength,
  type SegmentFrame,
} from './frame.ts';
import type { HistoryLimits, SegmentState } from './segments.ts';
import {
  expiredSegments,
  isPartial,
  isSegment,
  isSegmentDue,
  listSegments,
  partialEnding,
  segmentName,
} from './segments.ts';

/** The state of an auditor at one moment: lines, a part at a time. Unchanged by later events. */
export interface CheckpointLines {
  /** Unix seconds. */
  readonly at: number;
  /** After an empty one, other work of the process may run. */
  readonly parts: Iterable<string>;
}

export interface HistoryOptions {
  readonly files: HistoryFiles;
  readonly limits: HistoryLimits;
  /** Unix seconds; never decreases. */
  readonly now: () => number;
  /** A line that has only the time. */
  readonly clock: () => { readonly line: string; readonly at: number };
  /** The state of the auditor now; `null` if it has not begun. */
  readonly checkpoint: () => CheckpointLines | null;
  /** A note of all that is open now, with which each segment begins; `null` without notes. */
  readonly openNote?: () => string | null;
  /** Lets other work of the process run. */
  readonly pause: () => Promise<void>;
  /** Called with why nothing is recorded, and with `null` when recording goes on. */
  readonly onTrouble: (reason: string | null) => void;
}

/** Seconds: between two writes of lines, of lines that show that nothing changed, and of tries. */
const spans = { write: 1, quiet: 10, retry: 30 };

/** The most characters that wait, of lines and of notes; a frame with more bytes is written. */
const most = { waiting: 32 * 1024 * 1024, notes: 4 * 1024 * 1024, frame: 512 * 1024 };

/** A segment that is open, or a checkpoint that is being written. */
interface OpenSegment extends SegmentState {
  readonly file: AppendFile;
  readonly number: number;
  frames: number;
}

/** Lines that are not written yet, their characters, and the time of the last one. */
type Waiting = ReturnType<typeof nothing>;

const nothing = () => ({ texts: [] as string[], length: 0, at: 0 });

type State = ReturnType<typeof createState>;

const createState = (options: HistoryOptions) => ({
  options,
  segment: null as OpenSegment | null,
  waiting: nothing(),
  /** Notes that are not written yet. They wait for a segment. */
  notes: nothing(),
  /** The lines since the snapshot of a checkpoint that is being written; `null` without one. */
  since: null as Waiting | null,
  /** Whether the disk failed, or lines were lost: the next segment begins after `retryAt`. */
  retryAt: null as number | null,
  trouble: null as string | null,
  writtenAt: -Infinity,
  isWriting: false,
  isClosed: false,
  /**
   * The lines of one frame: one is written at a time. A buffer of its own for each frame of a
   * checkpoint would wait for the garbage collector.
   */
  buffer: Buffer.allocUnsafeSlow(4 * most.frame),
  stored: { bytes: 0, segments: 0, oldest: null as number | null },
  counts: { lines: 0, droppedLines: 0, failures: 0, removedSegments: 0 },
});

export function createHistoryRecorder(options: HistoryOptions) {
  const state = createState(options);
  return {
    /**
     * Takes a line with its newline, which is made only if it is recorded; `at` is its time, Unix
     * seconds.
     */
    note(lineOf: () => string, at: number): void {
      if (state.isClosed) return;
      const isRecording = state.segment !== null || state.since !== null;
      if (!isRecording) {
        // What comes before the first checkpoint is in it.
        if (state.retryAt !== null) state.counts.droppedLines++;
        return;
      }
      const line = lineOf();
      if (state.segment !== null) add(state.waiting, line, at);
      if (state.since !== null) add(state.since, line, at);
      const length = Math.max(state.waiting.length, state.since?.length ?? 0);
      if (length > most.waiting) giveUp(state, 'The disk is too slow: too many changes wait');
    },
    /** Takes a note with its newline. Never throws. */
    remark(note: string, at: number): void {
      if (state.isClosed) return;
      if (state.notes.length + note.length <= most.notes) add(state.notes, note, at);
      else state.counts.droppedLines++;
    },
    /** Writes what waits, and begins the next segment if it is time. Called each second. */
    work: () => work(state),
    /** Writes the rest. */
    async close(): Promise<void> {
      if (state.isClosed) return;
      while (state.isWriting) await state.options.pause();
      await work(state, true);
      state.isClosed = true;
      await state.segment?.file.close().catch(() => undefined);
      state.segment = null;
    },
    counts: state.counts,
    stored: state.stored,
    /** Why nothing is recorded; `null` if all is well. */
    trouble: () => state.trouble,
    /** Until when all is on the disk, Unix seconds; `null` before the first checkpoint. */
    writtenAt: () => (state.writtenAt === -Infinity ? null : state.writtenAt),
  };
}

function add(waiting: Waiting, line: string, at: number): void {
  waiting.texts.push(line);
  waiting.length += line.length;
  waiting.at = at;
}

/** Ends the segment after a failure. What waits is lost, and counted. */
function giveUp(state: State, reason: string): void {
  const { segment, waiting, since, counts, options } = state;
  counts.failures++;
  counts.droppedLines += Math.max(waiting.texts.length, since?.texts.length ?? 0);
  void segment?.file.close().catch(() => undefined);
  Object.assign(state, { segment: null, waiting: nothing(), since: null });
  state.retryAt = options.now() + spans.retry;
  reportTrouble(state, reason);
}

/** Reports why nothing is recorded, once until the reason changes. */
export function reportTrouble(
  state: { trouble: string | null; readonly options: Pick<HistoryOptions, 'onTrouble'> },
  reason: string | null,
): void {
  if (state.trouble === reason) return;
  state.trouble = reason;
  state.options.onTrouble(reason);
}

async function work(state: State, isLast = false): Promise<void> {
  if (state.isWriting || state.isClosed) return;
  state.isWriting = true;
  try {
    await writeWaiting(state, isLast);
    if (!isLast && isDue(state)) await beginSegment(state);
  } catch (error) {
    giveUp(state, errorText(error));
    if (isFull(error)) await removeOldest(state).catch(() => undefined);
  } finally {
    state.isWriting = false;
  }
}

/** Whether a segment must begin: there is none, or it has reached a limit. */
function isDue({ segment, options, retryAt }: State): boolean {
  const now = options.now();
  if (segment === null) return retryAt === null || now >= retryAt;
  return isSegmentDue(segment, options.limits, now);
}

async function writeWaiting(state: State, isLast: boolean): Promise<void> {
  const { segment, options } = state;
  if (segment === null) return;
  const now = options.now();
  const isQuiet = state.waiting.texts.length === 0;
  // A line with only the time proves that nothing changed until then.
  if (isQuiet && (isLast || now - state.writtenAt >= spans.quiet)) {
    addClock(state.waiting, options);
  }
  const { waiting } = state;
  if (waiting.texts.length === 0 && state.notes.texts.length === 0) return;
  state.waiting = nothing();
  if (waiting.texts.length > 0) await appendLines(state, segment, 'live', waiting);
  await appendNotes(state, segment);
  if (state.segment !== segment) return;
  await segment.file.sync();
  if (waiting.texts.length > 0) state.writtenAt = waiting.at;
  state.counts.lines += waiting.texts.length;
}

/** Appends the notes that wait, after the lines that they are about. */
async function appendNotes(state: State, segment: OpenSegment): Promise<void> {
  const { notes } = state;
  if (notes.texts.length === 0 || state.segment !== segment) return;
  state.notes = nothing();
  try {
    await appendLines(state, segment, 'notes', notes);
  } catch (error) {
    state.counts.droppedLines += notes.texts.length;
    throw error;
  }
}

function addClock(waiting: Waiting, { clock }: HistoryOptions): void {
  const { line, at } = clock();
  add(waiting, line, at);
}

/** The bytes that any characters of this length may have in UTF-8. */
const mostBytes = ({ length }: string): number => 3 * length;

/** The lines as bytes, in the buffer if it is large enough for any characters. */
function bytesOf(buffer: Buffer, texts: readonly string[]): Uint8Array {
  const bytes = texts.reduce((sum, text) => sum + mostBytes(text), 0);
  if (bytes > buffer.length) return Buffer.from(texts.join(''));
  const end = texts.reduce((at, text) => at + buffer.write(text, at), 0);
  return buffer.subarray(0, end);
}

const appendLines = (
  state: State,
  segment: OpenSegment,
  kind: FrameKind,
  { texts, at }: Pick<Waiting, 'texts' | 'at'>,
): Promise<void> => appendFrame(state, segment, { kind, at }, bytesOf(state.buffer, texts));

async function appendFrame(
  state: State,
  segment: OpenSegment,
  { kind, at }: Pick<SegmentFrame, 'kind' | 'at'>,
  plain: Uint8Array,
): Promise<void> {
  const { number, frames } = segment;
  const frame = await createFrame({ kind, segment: number, number: frames, at }, plain);
  const bytes = encodeFrame(frame);
  segment.frames++;
  await segment.file.append(bytes);
  segment.bytes += bytes.length;
  state.stored.bytes += bytes.length;
}

/** Writes a checkpoint and makes it the open segment. Rejects if the disk fails. */
async function beginSegment(state: State): Promise<void> {
  const { options } = state;
  const { files } = options;
  const checkpoint = options.checkpoint();
  if (checkpoint === null) return;
  state.since = nothing();
  // Consecutive numbers say that no change is missing between two segments.
  const step = state.segment === null ? 2 : 1;
  const segments = await listSegments(files);
  await refuseNewer(state, segments.at(-1)?.name);
  const number = (segments.at(-1)?.number ?? 0) + step;
  const name = segmentName(number, checkpoint.at);
  // The recorder would never find it again, and so never remove it.
  if (!isSegment(name)) throw new Error(`No number follows ${segments.at(-1)?.name}: remove it`);
  const partial = name + partialEnding;
  await removeLeftovers(files);
  const file = await files.create(partial);
  const begun = options.now();
  const next = { file, number, start: checkpoint.at, bytes: 0, frames: 0, base: 0, baseSeconds: 0 };
  try {
    await writeCheckpoint(state, next, checkpoint);
    next.baseSeconds = options.now() - begun;
    if (!(await switchTo(state, next))) throw new Error('Given up');
    await files.rename(partial, name);
  } catch (error) {
    await file.close().catch(() => undefined);
    await files.remove(partial).catch(() => undefined);
    if (state.retryAt === null || state.segment !== null) throw error;
    return;
  }
  state.writtenAt = Math.max(state.writtenAt, next.start);
  state.retryAt = null;
  reportTrouble(state, null);
  await removeExpired(state);
}

async function removeLeftovers(files: HistoryFiles): Promise<void> {
  for (const { name } of await files.list()) {
    if (isPartial(name)) await files.remove(name);
  }
}

/** From now on lines go to the next segment only; false if the recorder has given up meanwhile. */
async function switchTo(state: State, next: OpenSegment): Promise<boolean> {
  const { segment, waiting, since, options } = state;
  if (since === null) return false;
  // The segment before shows that nothing else changed until the checkpoint was complete.
  addClock(waiting, options);
  const complete = nothing();
  addClock(complete, options);
  const open = options.openNote?.() ?? null;
  const { notes } = state;
  state.notes = nothing();
  Object.assign(state, { segment: next, waiting: nothing(), since: null });
  if (since.texts.length > 0) await appendLines(state, next, 'overlap', since);
  // A live frame shows that the checkpoint before it is complete.
  await appendLines(state, next, 'live', complete);
  if (notes.texts.length > 0) await appendLines(state, segment ?? next, 'notes', notes);
  if (open !== null) await appendLines(state, next, 'notes', { texts: [open], at: complete.at });
  if (segment !== null) {
    await appendLines(state, segment, 'live', waiting);
    await segment.file.sync();
    await segment.file.close();
  }
  await next.file.sync();
  state.counts.lines += since.texts.length;
  return state.segment === next;
}

async function writeCheckpoint(
  state: State,
  next: OpenSegment,
  { at, parts }: CheckpointLines,
): Promise<void> {
  const { buffer } = state;
  let end = 0;
  const append = async (plain: Uint8Array): Promise<void> => {
    await appendFrame(state, next, { kind: 'checkpoint', at }, plain);
    end = 0;
  };
  // Texts of a frame that waited for its end would be garbage of the old generation.
  for (const part of parts) {
    if (part === '') await state.options.pause();
    const isTight = end > 0 && mostBytes(part) > buffer.length - end;
    if (isTight) await append(buffer.subarray(0, end));
    const isLarge = mostBytes(part) > buffer.length;
    if (!isLarge) end += buffer.write(part, end);
    if (!isLarge && end < most.frame) continue;
    await append(isLarge ? Buffer.from(part) : buffer.subarray(0, end));
    // The lines of the segment before must reach the disk in time, too.
    await writeWaiting(state, false);
    await state.options.pause();
  }
  await append(buffer.subarray(0, end));
  next.base = next.bytes;
}

/** Rejects if a newer version of the program has written to the folder. */
async function refuseNewer({ options }: State, newest: string | undefined): Promise<void> {
  if (newest === undefined) return;
  const [part] = framesIn(await options.files.read(newest, headerLength), 0);
  if (part === undefined || !('lost' in part) || part.lost !== 'newer') return;
  throw new Error(
    `A newer version of the program wrote ${newest}: this one knows format ${formatVersion}`,
  );
}

const isFull = (error: unknown): boolean =>
  ['ENOSPC', 'EDQUOT'].includes((error as NodeJS.ErrnoException).code ?? '');

/** On a full disk, the next checkpoint needs space. The newest segment stays. */
async function removeOldest({ options: { files }, counts }: State): Promise<void> {
  await removeLeftovers(files);
  const [oldest, ...others] = await listSegments(files);
  if (oldest === undefined || others.length === 0) return;
  await files.remove(oldest.name);
  counts.removedSegments++;
}

async function removeExpired(state: State): Promise<void> {
  const { files, limits, now } = state.options;
  const segments = await listSegments(files);
  const expired = expiredSegments(segments, limits, now());
  for (const { name } of expired) {
    await files.remove(name);
    state.counts.removedSegments++;
  }
  const kept = segments.slice(expired.length);
  const bytes = kept.reduce((sum, segment) => sum + segment.bytes, 0);
  Object.assign(state.stored, { bytes, segments: kept.length, oldest: kept[0]?.start ?? null });
}

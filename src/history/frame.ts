// The frames of a segment. A frame is a header of 40 bytes and a payload: lines of a recording,
// compressed with zstd. Numbers are little-endian.
//
//   0  magic "EPAH"        4  format version     6  kind
//   8  segment number     12  frame number      16  bytes of the payload
//  20  bytes of the lines 24  time of the last line, Unix seconds (float64)
//  32  CRC-32 of the payload                    36  CRC-32 of the 36 bytes before
//
// The numbers show frames that are missing, and frames that another segment has left on the disk.

import { promisify } from 'node:util';
import zlib, { crc32 } from 'node:zlib';

import { areLinesShort } from '../cluster/decode/line-reader.ts';

/** The version of the format. No release has had another one, so no other is read. */
export const formatVersion = 5;

const magic = 0x48415045; // "EPAH"
export const headerLength = 40;

/** The most bytes of lines in one frame: the recorder writes far fewer. */
const mostPlainBytes = 128 * 1024 * 1024;

/**
 * - checkpoint: the state at the start of the segment
 * - overlap: changes while the checkpoint was written, which the segment before has too
 * - live: changes that no other segment has
 * - notes: what the auditor found (notes.ts); no lines of a recording
 */
export type FrameKind = (typeof kinds)[number];

const kinds = ['checkpoint', 'overlap', 'live', 'notes'] as const;

export interface SegmentFrame {
  readonly kind: FrameKind;
  readonly segment: number;
  /** From 0. */
  readonly number: number;
  readonly plainBytes: number;
  readonly at: number;
  readonly payload: Uint8Array;
}

// Looked up in each call, since an old Node lacks them, and must still print that it is too old.
const compress = (bytes: Uint8Array, options: zlib.ZstdOptions): Promise<Buffer> =>
  promisify<Uint8Array, zlib.ZstdOptions, Buffer>(zlib.zstdCompress)(bytes, options);
const decompress = (bytes: Uint8Array, options: zlib.ZstdOptions): Promise<Buffer> =>
  promisify<Uint8Array, zlib.ZstdOptions, Buffer>(zlib.zstdDecompress)(bytes, options);

/**
 * The fastest level packs the large frames of checkpoints as well as the default does, with a part
 * of its time and memory. It packs the small frames of changes a little worse.
 */
const levelOf = (kind: FrameKind): number => (kind === 'checkpoint' ? 1 : 3);

/**
 * The bytes of lines for one byte of a piece: most frames are one piece when they are packed, since
 * each piece is a trip to another thread. Larger pieces would wait for the garbage collector.
 */
const packedPart = 8;

/** A frame of lines; another thread compresses them. They must not change meanwhile. */
export async function createFrame(
  { kind, segment, number, at }: Omit<SegmentFrame, 'payload' | 'plainBytes'>,
  plain: Uint8Array,
): Promise<SegmentFrame> {
  const payload = await compress(plain, {
    params: { [zlib.constants.ZSTD_c_compressionLevel]: levelOf(kind) },
    chunkSize: Math.max(1024, Math.ceil(plain.length / packedPart)),
  });
  return { kind, segment, number, at, plainBytes: plain.length, payload };
}

/** The bytes of a frame in its segment. */
export function encodeFrame(frame: SegmentFrame): Buffer {
  const { kind, segment, number, at, plainBytes, payload } = frame;
  const header = Buffer.alloc(headerLength);
  header.writeUInt32LE(magic, 0);
  header.writeUInt16LE(formatVersion, 4);
  header.writeUInt16LE(kinds.indexOf(kind), 6);
  header.writeUInt32LE(segment, 8);
  header.writeUInt32LE(number, 12);
  header.writeUInt32LE(payload.length, 16);
  header.writeUInt32LE(plainBytes, 20);
  header.writeDoubleLE(at, 24);
  header.writeUInt32LE(crc32(payload), 32);
  header.writeUInt32LE(crc32(header.subarray(0, 36)), 36);
  return Buffer.concat([header, payload]);
}

/** The most bytes of a piece that is decompressed at once: nearly all frames are one piece. */
const mostPiece = 1024 * 1024;

/** Frames of at most this many bytes of lines need less time than another thread for them. */
const smallFrame = 64 * 1024;

/** Lines of a recorder are longer, so only frames of fewer bytes may have short ones. */
const mayBeShort = 1024;

/**
 * The lines of a frame. Rejects if the payload is no zstd data of the promised length, or if its
 * lines are so short that no recorder wrote them: each would need as much time as many bytes.
 */
export async function linesOf({ payload, plainBytes }: SegmentFrame): Promise<Uint8Array> {
  // A header may promise more than there is. zlib takes no pieces of fewer than 64 bytes.
  const chunkSize = Math.min(Math.max(plainBytes + 1, 64), mostPiece);
  const limit = { maxOutputLength: plainBytes + 1, chunkSize };
  const isSmall = plainBytes <= smallFrame;
  const plain = isSmall
    ? zlib.zstdDecompressSync(payload, limit)
    : await decompress(payload, limit);
  if (plain.length !== plainBytes) throw new Error('Another length than the header says');
  if (plainBytes > mayBeShort && areLinesShort(plain)) throw new Error('Its lines are too short');
  return plain;
}

/** What is at one place of a segment; `newer`: of a newer version, whose form is unknown. */
type Found = { readonly frame: SegmentFrame; readonly end: number } | 'damaged' | 'newer' | 'older';

/** Bytes of payloads that may still be checked. Headers can claim the same ones again and again. */
interface Budget {
  bytes: number;
}

/** Each byte is checked about twice, and more often only after damage. */
const mostChecks = 8;

/** Seconds: the latest time that a Date can have. */
const latestTime = 8.64e12;

/** From this many bytes of lines on, frames with more than a multiple of their size are refused. */
const inflation = { from: 16 * 1024 * 1024, most: 200 };

function frameAt(bytes: Buffer, start: number, budget: Budget): Found {
  if (bytes.length - start < headerLength || bytes.readUInt32LE(start) !== magic) return 'damaged';
  const header = bytes.subarray(start, start + headerLength);
  // Before anything in it is believed: a damaged version must not look like a newer one.
  if (crc32(header.subarray(0, 36)) !== header.readUInt32LE(36)) return 'damaged';
  const version = header.readUInt16LE(4);
  if (version !== formatVersion) return version > formatVersion ? 'newer' : 'older';
  const end = start + headerLength + header.readUInt32LE(16);
  const payload = bytes.subarray(start + headerLength, end);
  const plainBytes = header.readUInt32LE(20);
  const at = header.readDoubleLE(24);
  const isKnown = plainBytes <= mostPlainBytes && Math.abs(at) <= latestTime;
  const isWhole = end <= bytes.length && isKnown;
  if (isWhole) budget.bytes -= payload.length;
  if (!isWhole || budget.bytes < 0 || crc32(payload) !== header.readUInt32LE(32)) return 'damaged';
  const kind = kinds[header.readUInt16LE(6)] ?? 'live';
  const [segment, number] = [header.readUInt32LE(8), header.readUInt32LE(12)];
  return { frame: { kind, segment, number, plainBytes, at, payload }, end };
}

/** What a segment contains, in order: frames, and places without the frames that they had. */
export type SegmentPart =
  | { readonly frame: SegmentFrame }
  | {
      /** `cut`: the end of the file, which a crash or a recorder at work leaves incomplete. */
      readonly lost: 'damaged' | 'missing' | 'newer' | 'older' | 'cut';
      readonly bytes: number;
    };

/** A part that is lost, for people. */
export const lossText = ({
  lost,
  bytes,
}: Extract<SegmentPart, { readonly lost: string }>): string => {
  if (lost === 'newer' || lost === 'older') {
    return `Another, ${lost} version wrote it (this one knows format ${formatVersion})`;
  }
  return lost === 'missing' ? 'Frames are missing' : `${bytes} bytes are damaged`;
};

/** Reads the frames of a segment. After a damaged place, it goes on with the next whole frame. */
export function* framesIn(data: Uint8Array, segment: number): Generator<SegmentPart> {
  const bytes = Buffer.from(data.buffer, data.byteOffset, data.byteLength);
  const budget = { bytes: mostChecks * bytes.length };
  let next = 0;
  let plain = 0;
  for (let start = 0; start < bytes.length;) {
    const found = frameAt(bytes, start, budget);
    if (found === 'newer' || found === 'older') {
      yield { lost: found, bytes: bytes.length - start };
      return;
    }
    if (found === 'damaged' || found.frame.segment !== segment || found.frame.number < next) {
      const end = nextFrame(bytes, start + 1, [segment, next], budget);
      yield { lost: end === bytes.length ? 'cut' : 'damaged', bytes: end - start };
      start = end;
      continue;
    }
    plain += found.frame.plainBytes;
    if (plain > Math.max(inflation.from, inflation.most * found.end)) {
      yield { lost: 'damaged', bytes: bytes.length - start };
      return;
    }
    if (found.frame.number > next) yield { lost: 'missing', bytes: 0 };
    yield { frame: found.frame };
    next = found.frame.number + 1;
    start = found.end;
  }
}

/** Where the next whole frame begins, else the end. */
function nextFrame(
  bytes: Buffer,
  from: number,
  [segment, least]: readonly [number, number],
  budget: Budget,
): number {
  const mark = Buffer.from('EPAH');
  for (let at = bytes.indexOf(mark, from); at >= 0; at = bytes.indexOf(mark, at + 1)) {
    const found = frameAt(bytes, at, budget);
    if (typeof found === 'string') continue;
    if (found.frame.segment === segment && found.frame.number >= least) return at;
  }
  return bytes.length;
}

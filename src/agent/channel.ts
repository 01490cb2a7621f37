// What an agent (run.ts) and the process that reads for it (reading.ts) say to each other: messages
// over the channel of child processes, and over a pipe beside it what an agent holds: a message is
// there three times on its way.

import type { Readable } from 'node:stream';

import type { Packet } from '../model/proxy-config.ts';
import type { EncodedOutcomes } from '../rules/report/outcome-json.ts';
import type { ProgramLimits, RulesProgram } from './collect.ts';
import type { FrontendDetail, NodeFacts } from './report.ts';

/** What is known of the node before its rules are, and how they are asked for. */
export interface NodeSettings {
  /** Name of the Node object; default: the host's. */
  readonly node?: string;
  readonly nodeIPs: readonly string[];
  readonly podCIDRs: readonly string[];
  /** The text of kube-proxy's configuration file, and where it is from; null: not given. */
  readonly proxyConfig: { readonly source: string; readonly text: string } | null;
  readonly limits: ProgramLimits;
  /** What is run; default: all. */
  readonly programs?: readonly RulesProgram[];
}

/** The dumps of a round; their packed bytes follow each other. */
export interface PackedRules {
  readonly dumps: readonly { readonly program: RulesProgram; readonly size: number }[];
  readonly place: NodeFacts;
}

/** What comes of a round; over the pipe come the report as JSON and the packed dumps. */
export interface RoundResult {
  /** Bytes of both. */
  readonly reportSize: number;
  readonly packedSize: number;
  /** A text that is the same while the report is. */
  readonly etag: string;
  readonly frontends: number;
  /** null if the rules of the node are unknown. */
  readonly packed: PackedRules | null;
  /** A hash of the rules (fingerprint.ts); null if the rules of the node are unknown. */
  readonly fingerprint: string | null;
  readonly spent: RoundCost;
}

/** What a round has cost. */
export interface RoundCost {
  /** Bytes of the dumps. */
  readonly bytes: number;
  /** Seconds that the programs took, and of CPU that the process has taken. */
  readonly collecting: number;
  readonly cpu: number;
}

/**
 * What is said first: make a round, where the last fingerprint was this one; say why there was
 * none; or read what was packed.
 */
export type RoundOrder =
  | { readonly kind: 'collect'; readonly settings: NodeSettings; readonly last: string | null }
  | { readonly kind: 'unread'; readonly settings: NodeSettings; readonly problem: string }
  | { readonly kind: 'unpack'; readonly packed: PackedRules; readonly packedSize: number };

export type ReaderQuestion =
  | { readonly kind: 'details'; readonly key: string }
  | { readonly kind: 'outcomes'; readonly packets: readonly Packet[] };

/** By the kind of the question; null: it is not known. */
export type ReaderAnswer = readonly FrontendDetail[] | EncodedOutcomes | null;

/** What comes back, answers in the order of the questions; `cpu`: seconds since the last one. */
export type ReaderReply =
  | { readonly kind: 'read'; readonly reading: RoundResult }
  /** All is as it was in the last round. */
  | { readonly kind: 'same'; readonly spent: RoundCost }
  | { readonly kind: 'answer'; readonly answer: ReaderAnswer; readonly cpu: number };

/** The file descriptor of the pipe. */
export const pipe = 4;

/** Reads a number of bytes of a stream into one buffer. Rejects if the stream ends before. */
export async function gather(stream: Readable, size: number): Promise<Buffer> {
  const whole = Buffer.allocUnsafeSlow(size);
  let at = 0;
  if (size === 0) return whole;
  for await (const chunk of stream.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
    at += chunk.copy(whole, at);
    if (at === size) return whole;
  }
  throw new Error(`the pipe ended after ${String(at)} of ${String(size)} bytes`);
}

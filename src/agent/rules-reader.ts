// One round of the agent in a process of its own. It reads the rules of the node, walks packets
// through them, and answers questions about details for a while. Then it exits, which frees many
// times the memory that an idle agent needs. If this process reaches its memory limit, the agent
// continues and the node is unknown.
//
// The agent (schedule.ts) sends requests over the channel of child processes. Each gets one reply,
// in their order.

import { createHash } from 'node:crypto';
import zlib from 'node:zlib';

import type { Packet } from '../model/proxy-config.ts';
import type { EncodedOutcomes } from '../rules/report/outcome-json.ts';
import { lackText } from '../rules/ruleset.ts';
import type { CollectedDump, CollectedRules, ProgramLimits } from './collect.ts';
import { collect, fingerprintOf } from './collect.ts';
import type { NodeFacts, NodeIdentity } from './node-facts.ts';
import { readNodeFacts } from './node-facts.ts';
import type { FrontendDetail, NodeRuleSet, ProxyConfigFile } from './report.ts';
import { createReport, detailsOf, outcomesOf, readDumps } from './report.ts';

export interface NodeSettings extends NodeIdentity {
  readonly proxyConfig: ProxyConfigFile | null;
  readonly limits: ProgramLimits;
}

/** The compressed dumps of a round. */
export interface PackedRules {
  readonly dumps: readonly CollectedDump[];
  readonly facts: NodeFacts;
}

export interface RoundResult {
  /** The report as JSON. */
  readonly text: Buffer;
  /** The same text while the report is the same. */
  readonly etag: string;
  readonly frontends: number;
  /** `null` if the rules of the node are unknown, as is the fingerprint. */
  readonly packed: PackedRules | null;
  readonly fingerprint: string | null;
}

export interface RoundReply {
  /** `null` if the rules are as in the last round. */
  readonly result: RoundResult | null;
  /** Bytes of the dumps. */
  readonly bytes: number;
  /** Seconds that the programs took. */
  readonly collecting: number;
}

/** The first request is `round` or `unpack`; the others are about its rules. */
export type ReaderRequest =
  | {
      readonly kind: 'round';
      readonly settings: NodeSettings;
      /** The fingerprint of the last round; `null` if this round must parse the rules. */
      readonly last: string | null;
      /** Why the rules are unknown; `null` if they must be collected. */
      readonly problem: string | null;
    }
  | { readonly kind: 'unpack'; readonly packed: PackedRules }
  | { readonly kind: 'details'; readonly key: string }
  | { readonly kind: 'outcomes'; readonly packets: readonly Packet[] };

/** `null` if the rules are unknown, or no rule serves the frontend. */
type ReaderAnswer = RoundReply | readonly FrontendDetail[] | EncodedOutcomes | null;

export interface ReaderReply {
  readonly answer: ReaderAnswer;
  /** CPU seconds of this process since its last reply. */
  readonly cpu: number;
}

/** Random names of chains recur after megabytes, so the window has 64 MiB. */
const compression: zlib.ZstdOptions = {
  params: {
    [zlib.constants.ZSTD_c_compressionLevel]: 2,
    [zlib.constants.ZSTD_c_windowLog]: 26,
    [zlib.constants.ZSTD_c_hashLog]: 22,
  },
};

const pack = ({ program, bytes }: CollectedDump): CollectedDump => ({
  program,
  bytes: zlib.zstdCompressSync(bytes, compression),
});

const unpack = ({ program, bytes }: CollectedDump): CollectedDump => ({
  program,
  bytes: zlib.zstdDecompressSync(bytes),
});

interface KnownRules {
  /** `null` if the rules of the node are unknown. */
  readonly rules: NodeRuleSet | null;
  readonly facts: NodeFacts;
}

async function makeRound(
  request: ReaderRequest & { readonly kind: 'round' },
): Promise<KnownRules & { readonly reply: RoundReply }> {
  const { last, problem, settings } = request;
  const facts = await readNodeFacts(settings);
  const begun = performance.now();
  const collected =
    problem === null
      ? await collect(settings.limits)
      : { dumps: [], states: {}, problems: [problem] };
  const collecting = (performance.now() - begun) / 1000;
  const bytes = collected.dumps.reduce((sum, dump) => sum + dump.bytes.length, 0);
  const fingerprint = fingerprintOf(collected, facts);
  if (fingerprint !== null && fingerprint === last) {
    return { reply: { result: null, bytes, collecting }, rules: null, facts };
  }
  const { rules, problems } = parseRules(collected);
  const report = createReport(settings.proxyConfig, facts, { ...collected, problems }, rules);
  const text = Buffer.from(`${JSON.stringify(report)}\n`);
  const result: RoundResult = {
    text,
    etag: `"${createHash('sha256').update(text).digest('base64url').slice(0, 22)}"`,
    frontends: Object.keys(report.frontends).length,
    packed: rules === null ? null : { dumps: collected.dumps.map(pack), facts },
    fingerprint: rules === null ? null : fingerprint,
  };
  return { reply: { result, bytes, collecting }, rules, facts };
}

function parseRules({ dumps, problems }: CollectedRules): {
  readonly rules: NodeRuleSet | null;
  /** Why the rules are unknown; empty if they are known. */
  readonly problems: readonly string[];
} {
  if (problems.length > 0) return { rules: null, problems };
  try {
    const rules = readDumps(dumps);
    const lacks = new Set(rules.ruleset.lacks.map(lackText));
    return { rules: lacks.size === 0 ? rules : null, problems: [...lacks] };
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    return { rules: null, problems: [error.message] };
  }
}

/** Answers the requests of the process that started this one, until that disconnects. */
function serve(): void {
  let known: KnownRules | null = null;
  const answerTo = async (request: ReaderRequest): Promise<ReaderAnswer> => {
    if (request.kind === 'round') {
      const { reply, ...read } = await makeRound(request);
      known = read;
      return reply;
    }
    if (request.kind === 'unpack') {
      const { dumps, facts } = request.packed;
      known = { rules: readDumps(dumps.map(unpack)), facts };
      return null;
    }
    const { rules = null, facts } = known ?? {};
    if (rules === null || facts === undefined) return null;
    return request.kind === 'details'
      ? detailsOf(rules, facts, request.key)
      : outcomesOf(rules, facts, request.packets);
  };
  let replied: Promise<unknown> = Promise.resolve();
  let spent = 0;
  process.on('message', (request: ReaderRequest) => {
    replied = replied.then(async () => {
      const answer = await answerTo(request);
      const { user, system } = process.cpuUsage();
      const cpu = (user + system) / 1e6 - spent;
      spent += cpu;
      process.send?.({ answer, cpu } satisfies ReaderReply);
    });
  });
  process.on('disconnect', () => process.exit(0));
}

if (process.argv[1] === import.meta.filename) serve();

// One round of the agent in a process of its own: reads the rules of the node, answers questions
// for a while and exits, which frees many times the memory that an idle agent needs. If this
// process reaches its memory limit, the agent continues and the node is unknown.
//
// The agent (schedule.ts) sends requests over the channel of child processes, each with one reply.

import { createHash } from 'node:crypto';
import zlib from 'node:zlib';

import type { Packet } from '../model/proxy-config.ts';
import { type EncodedOutcomes, encodeOutcomes } from '../rules/report/outcome-json.ts';
import type { CollectedRules, ProgramLimits } from './collect.ts';
import { collect, fingerprintOf, nothingCollected } from './collect.ts';
import { collectFrom } from './collector.ts';
import { type NodeFacts, type NodeIdentity, readNodeFacts } from './node-facts.ts';
import type { FrontendDetail, NodeRuleSet } from './report.ts';
import { createReport, detailsOf, parseRules, readDumps, walkerAt } from './report.ts';

export interface NodeSettings extends NodeIdentity {
  /** The text of kube-proxy's configuration file, and its path. */
  readonly proxyConfig: Parameters<typeof createReport>[0];
  readonly limits: ProgramLimits;
  /** The socket of the process that runs the programs; without it, this one does. */
  readonly collector?: string;
}

export type RoundReply = Awaited<ReturnType<typeof makeRound>>;

/** First `round` or `unpack`. */
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

export interface ReaderReply {
  /** `null` if the rules are unknown, or no rule serves the frontend. */
  readonly answer: RoundReply | readonly FrontendDetail[] | EncodedOutcomes | null;
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

type PackedRules = Pick<CollectedRules, 'dumps'> & { readonly facts: NodeFacts };

const recoded = (dumps: CollectedRules['dumps'], recode: (bytes: Buffer) => Buffer) =>
  dumps.map(({ program, bytes }) => ({ program, bytes: recode(bytes) }));

/** `null` if the rules of the node are unknown. */
let known: { readonly rules: NodeRuleSet; readonly facts: NodeFacts } | null = null;

function collectFor({ collector, limits }: NodeSettings): Promise<CollectedRules> {
  return collector === undefined ? collect(limits) : collectFrom(collector);
}

async function makeRound(settings: NodeSettings, last: string | null, problem: string | null) {
  const facts = await readNodeFacts(settings);
  const collected = problem === null ? await collectFor(settings) : nothingCollected(problem);
  const { seconds: collecting } = collected;
  const bytes = collected.dumps.reduce((sum, dump) => sum + dump.bytes.length, 0);
  const fingerprint = fingerprintOf(collected, facts);
  if (fingerprint !== null && fingerprint === last) return { result: null, bytes, collecting };
  const isKnown = collected.problems.length === 0;
  const { rules, problems } = isKnown
    ? parseRules(collected.dumps, facts)
    : { rules: null, ...collected };
  known = rules && { rules, facts };
  const report = createReport(settings.proxyConfig, facts, { ...collected, problems }, rules);
  const text = Buffer.from(`${JSON.stringify(report)}\n`);
  const pack = (dump: Buffer): Buffer => zlib.zstdCompressSync(dump, compression);
  const packed = rules && { dumps: recoded(collected.dumps, pack), facts };
  const result = {
    text,
    etag: `"${createHash('sha256').update(text).digest('base64url').slice(0, 22)}"`,
    frontends: Object.keys(report.frontends).length,
    /** `null` if the rules of the node are unknown, as is the fingerprint. */
    packed,
    fingerprint: rules && fingerprint,
  };
  return { result, bytes, collecting };
}

async function answerTo(request: ReaderRequest): Promise<ReaderReply['answer']> {
  if (request.kind === 'round') {
    return makeRound(request.settings, request.last, request.problem);
  }
  if (request.kind === 'unpack') {
    const { dumps, facts } = request.packed;
    const unpack = (bytes: Buffer): Buffer => zlib.zstdDecompressSync(bytes);
    known = { rules: readDumps(recoded(dumps, unpack)), facts };
    return null;
  }
  if (known === null) return null;
  const { rules, facts } = known;
  return request.kind === 'details'
    ? detailsOf(rules, facts, request.key)
    : encodeOutcomes(request.packets.map(walkerAt(rules, facts)));
}

/** Answers the requests of the process that started this one, until that disconnects. */
function serve(): void {
  let replied = Promise.resolve();
  let before: NodeJS.CpuUsage | undefined;
  process.on('message', (request: ReaderRequest) => {
    replied = replied.then(async () => {
      const answer = await answerTo(request);
      const { user, system } = process.cpuUsage(before);
      before = process.cpuUsage();
      process.send?.({ answer, cpu: (user + system) / 1e6 } satisfies ReaderReply);
    });
  });
  process.on('disconnect', () => process.exit(0));
}

if (process.argv[1] === import.meta.filename) serve();

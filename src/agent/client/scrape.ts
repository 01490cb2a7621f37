// One scrape of one agent: its report, and the outcomes of packets if the auditor needs more than
// the report. The answers describe the start of the agent's round, or a later moment. The result
// has the earliest possible start.

import type { Packet } from '../../model/proxy-config.ts';
import { packetText } from '../../rules/report/digest.ts';
import { decodeOutcomes, fieldsOf, InvalidReport } from '../../rules/report/outcome-json.ts';
import type { PacketOutcome } from '../../rules/walk/walk.ts';
import type { AgentAddress } from './agents.ts';
import type { AgentAnswer, AgentClient, Asked } from './client.ts';
import type { AgentReport } from './report.ts';
import { readReport } from './report.ts';

/** A report with its moment. */
export interface RulesSighting {
  readonly report: AgentReport;
  readonly etag: string;
  /** Another text for each round. */
  readonly round: string;
  /** Unix seconds. */
  readonly seenAt: number;
  /** Seconds from the round to the next. */
  readonly lasting: number;
  /** When the next report should be there. */
  readonly nextAt: number;
}

export type ScrapeResult =
  | { readonly kind: 'seen'; readonly sight: RulesSighting }
  /** No round is over yet. */
  | { readonly kind: 'early' }
  | { readonly kind: 'refused' | 'silent'; readonly why: string };

export interface Scrape {
  readonly asker: AgentClient;
  readonly address: AgentAddress;
  readonly signal: AbortSignal;
  readonly now: () => number;
}

/** Asks for the report; `before` is the last that was read. */
export async function visit(
  { asker, address, signal, now }: Scrape,
  before: RulesSighting | null,
): Promise<ScrapeResult> {
  const sent = now();
  const known: Record<string, string> = before === null ? {} : { 'if-none-match': before.etag };
  const asked = await asker.ask(address, { path: '/v1/report', headers: known, signal });
  if (asked.kind !== 'answer') return asked;
  const { answer } = asked;
  if (answer.status === 503) return { kind: 'early' };
  const report = reportOf(answer, before);
  if (typeof report === 'string') return { kind: 'refused', why: report };
  return { kind: 'seen', sight: sightOf(answer, report, sent, before) };
}

/** The report; a text: why there is none. */
function reportOf(
  { status, body }: AgentAnswer,
  before: RulesSighting | null,
): AgentReport | string {
  if (status === 304 && before !== null) return before.report;
  if (status !== 200) return `status ${status}: ${body.trim().slice(0, 200)}`;
  return attempt(() => readReport(JSON.parse(body)));
}

function attempt<T>(work: () => T): T | string {
  try {
    return work();
  } catch (error) {
    if (error instanceof InvalidReport || error instanceof SyntaxError) return error.message;
    throw error;
  }
}

/** Ages come in whole seconds. */
const grain = 1;

function sightOf(
  { headers }: AgentAnswer,
  report: AgentReport,
  sent: number,
  before: RulesSighting | null,
): RulesSighting {
  const { etag = '', age } = headers;
  const round = String(headers.round ?? '');
  const lasting = Number(/max-age=(\d+)/.exec(headers['cache-control'] ?? '')?.[1] ?? 30);
  const cost = Number(/dur=(\d+)/.exec(String(headers['server-timing'] ?? ''))?.[1] ?? 0) / 1000;
  const old = Number(age ?? 0);
  const isSame = before !== null && before.round === round && round !== '';
  return {
    report,
    etag,
    round,
    seenAt: isSame ? before.seenAt : sent - old - grain,
    lasting,
    nextAt: sent + Math.max(0, lasting - old) + cost,
  };
}

/** Characters of one request. */
const longest = 11_000;

/** Packets that are asked for in one visit: those of a few thousand frontends. */
const mostPackets = 32_768;

/**
 * What becomes of packets, by their text; a text: why it is not known, `another round` where the
 * agent has begun one since.
 */
export async function outcomesOf(
  { asker, address, signal }: Scrape,
  packets: readonly Packet[],
  round: string,
): Promise<ReadonlyMap<string, PacketOutcome> | string> {
  const found = new Map<string, PacketOutcome>();
  for (const batch of batches(packets.slice(0, mostPackets).map(packetText))) {
    const path = `/v1/packets?${batch.map((text) => `p=${quoted(text)}`).join('&')}`;
    const asked = await asker.ask(address, { path, headers: {}, signal });
    const outcomes = heard(asked, round);
    if (typeof outcomes === 'string') return outcomes;
    if (outcomes.length !== batch.length) return 'another number of outcomes than of packets';
    for (const [at, text] of batch.entries()) {
      const outcome = outcomes[at];
      if (outcome !== undefined) found.set(text, outcome);
    }
  }
  return found;
}

function heard(asked: Asked, round: string): readonly PacketOutcome[] | string {
  if (asked.kind !== 'answer') return asked.why;
  const { status, body } = asked.answer;
  if (status !== 200) return `status ${status}: ${body.trim().slice(0, 200)}`;
  return attempt(() => {
    const raw = fieldsOf(JSON.parse(body), 'outcomes');
    return raw.round === round ? decodeOutcomes(raw) : 'another round';
  });
}

const quoted = (text: string): string =>
  encodeURIComponent(text).replaceAll('%2C', ',').replaceAll('%3A', ':');

function* batches(texts: readonly string[]): Generator<string[]> {
  let [batch, size]: [string[], number] = [[], 0];
  for (const text of texts) {
    if (size + text.length + 3 > longest) {
      yield batch;
      [batch, size] = [[], 0];
    }
    batch.push(text);
    size += text.length + 3;
  }
  if (batch.length > 0) yield batch;
}

// One scrape of one agent: its report, and the outcomes of packets if the auditor needs more than
// the report. The answers describe the start of the agent's round, or a later moment. The result
// has the earliest possible start.

import type { Packet } from '../../model/proxy-config.ts';
import { packetText } from '../../rules/report/digest.ts';
import { decodeOutcomes, fieldsOf, InvalidReport } from '../../rules/report/outcome-json.ts';
import type { PacketOutcome } from '../../rules/walk/walk.ts';
import type { AgentAddress, AgentClient, HttpAnswer, NoAnswer } from './client.ts';
import { statusText } from './client.ts';
import type { AgentReport } from './report.ts';
import { readReport } from './report.ts';

/** A report and its times, in Unix seconds. */
export interface ScrapedReport {
  readonly kind: 'seen';
  readonly report: AgentReport;
  readonly etag: string;
  /** A different text for each round. */
  readonly round: string;
  readonly seenAt: number;
  /** Seconds from the round to the next. */
  readonly lasting: number;
  /** When the next report should be available. */
  readonly nextAt: number;
}

/** `early`: the first round is not complete. */
export type ScrapeResult = ScrapedReport | { readonly kind: 'early' } | NoAnswer;

export interface Scrape {
  readonly client: AgentClient;
  readonly address: AgentAddress;
  readonly signal: AbortSignal;
  readonly now: () => number;
}

/** Requests the report; `before` is the last one from this agent. */
export async function scrapeReport(
  { client, address, signal, now }: Scrape,
  before: ScrapedReport | null,
): Promise<ScrapeResult> {
  const sent = now();
  const headers: Record<string, string> = before === null ? {} : { 'if-none-match': before.etag };
  const answer = await client.ask(address, { path: '/v1/report', headers, signal });
  if (answer.kind !== 'answer') return answer;
  if (answer.status === 503) return { kind: 'early' };
  const report =
    answer.status === 304 && before !== null ? before.report : readBody(answer, readReport);
  if (typeof report === 'string') return { kind: 'refused', why: report };
  const { etag = '', age, round: name = '' } = answer.headers;
  const numberIn = (header: string, pattern: RegExp, usual: number): number =>
    Number(pattern.exec(String(answer.headers[header] ?? ''))?.[1] ?? usual);
  const lasting = numberIn('cache-control', /max-age=(\d+)/, 30);
  const cost = numberIn('server-timing', /dur=(\d+)/, 0) / 1000;
  const round = String(name);
  const isSame = round !== '' && before?.round === round;
  return {
    kind: 'seen',
    report,
    etag,
    round,
    // The age is rounded down to a second.
    seenAt: isSame ? before.seenAt : sent - Number(age ?? 0) - 1,
    lasting,
    nextAt: sent + Math.max(0, lasting - Number(age ?? 0)) + cost,
  };
}

/** Decodes the JSON of an answer. Returns a text if that is impossible: why. */
function readBody<T>(answer: HttpAnswer, read: (raw: unknown) => T): T | string {
  if (answer.status !== 200) return statusText(answer);
  try {
    return read(JSON.parse(answer.body));
  } catch (error) {
    if (error instanceof InvalidReport || error instanceof SyntaxError) return error.message;
    throw error;
  }
}

/** Characters of the packets in one request, and at most one packet more (agent/server.ts). */
const batchSize = 11_000;

/** The largest number of packets in one scrape: those of a few thousand frontends. */
const mostPackets = 32_768;

/**
 * Requests the outcomes of packets, by the text of the packet. Returns a text if they are unknown:
 * why, or `another round` if the agent has begun one since.
 */
export async function scrapeOutcomes(
  { client, address, signal }: Scrape,
  packets: readonly Packet[],
  round: string,
): Promise<ReadonlyMap<string, PacketOutcome> | string> {
  const found = new Map<string, PacketOutcome>();
  const texts = packets.slice(0, mostPackets).map(packetText);
  let size = 0;
  const batches = Map.groupBy(texts, (text) => {
    size += text.length + 3;
    return Math.floor(size / batchSize);
  });
  for (const batch of batches.values()) {
    const path = `/v1/packets?${batch.map((text) => `p=${quoted(text)}`).join('&')}`;
    const answer = await client.ask(address, { path, headers: {}, signal });
    if (answer.kind !== 'answer') return answer.why;
    const outcomes = readBody(answer, (raw) =>
      fieldsOf(raw, 'outcomes').round === round ? decodeOutcomes(raw) : 'another round',
    );
    if (typeof outcomes === 'string') return outcomes;
    if (outcomes.length !== batch.length) return 'another number of outcomes than of packets';
    for (const [index, outcome] of outcomes.entries()) found.set(batch[index] ?? '', outcome);
  }
  return found;
}

const quoted = (text: string): string =>
  encodeURIComponent(text).replaceAll('%2C', ',').replaceAll('%3A', ':');

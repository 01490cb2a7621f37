// Asks an agent over HTTP for its report, and for outcomes of packets if the report is not enough.
//
// Each agent has one connection, which stays open between two rounds. Requests use a client
// certificate, a bearer token, or neither, as configured (agent/server.ts). All agents present
// certificates for the name of their Service, because their addresses change.

import { Agent, request } from 'undici';

import type { Packet } from '../../model/proxy-config.ts';
import { packetText } from '../../rules/report/digest.ts';
import { decodeOutcomes, fieldsOf, InvalidReport } from '../../rules/report/outcome-json.ts';
import type { PacketOutcome } from '../../rules/walk/walk.ts';
import { type AgentReport, readReport } from './report.ts';

export interface AgentCredentials {
  readonly token: string | null;
  /** PEM, and the name in the agents' certificates; `null` for plain HTTP. */
  readonly tls: Readonly<Record<'ca' | 'cert' | 'key' | 'servername', string | undefined>> | null;
}

/** `refused`: the agent rejects the request. `silent`: no answer arrives. */
export interface NoAnswer {
  readonly kind: 'refused' | 'silent';
  readonly why: string;
}

interface AgentRequest {
  /** `ip:port`. */
  readonly address: string;
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly signal: AbortSignal;
}

export type AgentClient = ReturnType<typeof createAgentClient>;

/** Codes of errors by which one side rejects the certificate of the other. */
const untrusted = /^ERR_(?:TLS|SSL)|CERT|SELF_SIGNED|UNABLE_TO_|^EPROTO$|HOSTNAME/;

export function createAgentClient(
  { token, tls }: AgentCredentials,
  /** In seconds. A report of 10,000 frontends is half a megabyte. */
  { deadline, maxBytes } = { deadline: 10, maxBytes: 16 * 1024 * 1024 },
) {
  const connect = { ...tls, minVersion: 'TLSv1.2' } as const;
  const dispatcher = new Agent({ connections: 1, maxResponseSize: maxBytes, connect });
  const authorization = token === null ? {} : { authorization: `Bearer ${token}` };
  let bytes = 0;
  return {
    /** Never rejects. */
    async ask({ address, path, headers, signal }: AgentRequest) {
      if (token !== null && tls === null && !/^(?:\[::1\]|127\.)/.test(address)) {
        return refused('a token is not sent beyond loopback without TLS');
      }
      try {
        const response = await request(`${tls === null ? 'http' : 'https'}://${address}${path}`, {
          dispatcher,
          headers: { ...headers, ...authorization },
          signal: AbortSignal.any([signal, AbortSignal.timeout(deadline * 1000)]),
        });
        const body = await response.body.text();
        bytes += Buffer.byteLength(body);
        const answer = { status: response.statusCode, headers: response.headers, body };
        if (answer.status === 401 || answer.status === 403) return refused(statusText(answer));
        return { kind: 'answer', ...answer } as const;
      } catch (error) {
        const { code = '', name, message } = error as NodeJS.ErrnoException;
        if (code === 'UND_ERR_RES_EXCEEDED_MAX_SIZE') {
          return refused(`answered more than ${maxBytes} bytes`);
        }
        if (untrusted.test(code)) return refused(message);
        const isLate = name === 'TimeoutError' || name === 'AbortError';
        const why = isLate ? `no answer within ${deadline} s` : message;
        return { kind: 'silent', why } as const;
      }
    },
    /** Bytes of all answers. */
    bytes: () => bytes,
  };
}

export const refused = (why: string) => ({ kind: 'refused', why }) as const;

const statusText = ({ status, body }: { status: number; body: string }): string =>
  `status ${status}: ${body.trim().slice(0, 200)}`;

/** Where and how an agent is asked. */
export interface Scrape extends Pick<AgentRequest, 'address' | 'signal'> {
  readonly client: AgentClient;
  /** Unix seconds. */
  readonly now: () => number;
}

/** Times are Unix seconds. */
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

/** Requests the report. `before`: the agent's last one. `early`: no round is complete. */
export async function scrapeReport(
  { client, now, ...where }: Scrape,
  before: ScrapedReport | null,
): Promise<ScrapedReport | { readonly kind: 'early' } | NoAnswer> {
  const sent = now();
  const headers: Record<string, string> = before === null ? {} : { 'if-none-match': before.etag };
  const answer = await client.ask({ ...where, path: '/v1/report', headers });
  if (answer.kind !== 'answer') return answer;
  if (answer.status === 503) return { kind: 'early' };
  const report =
    answer.status === 304 && before !== null ? before.report : readBody(answer, readReport);
  if (typeof report === 'string') return refused(report);
  const header = (name: string): string => String(answer.headers[name] ?? '');
  const numberIn = (name: string, pattern: RegExp, usual: number): number =>
    Number(pattern.exec(header(name))?.[1] ?? usual);
  const [etag, round] = [header('etag'), header('round')];
  const age = numberIn('age', /^(\d+)$/, 0);
  const lasting = numberIn('cache-control', /max-age=(\d+)/, 30);
  const cost = numberIn('server-timing', /dur=(\d+)/, 0) / 1000;
  const isSame = round !== '' && before?.round === round;
  // The age is rounded down to a second.
  const seenAt = isSame ? before.seenAt : sent - age - 1;
  const nextAt = sent + Math.max(0, lasting - age) + cost;
  return { kind: 'seen', report, etag, round, seenAt, lasting, nextAt };
}

/** Decodes the JSON of an answer. Returns a text if that is impossible: why. */
function readBody<T>(
  answer: { status: number; body: string },
  read: (raw: unknown) => T,
): T | string {
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

/** By the text of the packet. Returns why they are unknown; `another round` if one has begun. */
export async function scrapeOutcomes(
  { client, address, signal }: Scrape,
  packets: readonly Packet[],
  round: string,
): Promise<ReadonlyMap<string, PacketOutcome> | string> {
  const found = new Map<string, PacketOutcome>();
  let size = 0;
  const batches = Map.groupBy(packets.slice(0, mostPackets).map(packetText), (text) => {
    size += text.length + 3;
    return Math.floor(size / batchSize);
  });
  for (const batch of batches.values()) {
    const query = batch.map((text) => `p=${encodeURIComponent(text)}`).join('&');
    const path = `/v1/packets?${query.replaceAll('%2C', ',').replaceAll('%3A', ':')}`;
    const answer = await client.ask({ address, path, headers: {}, signal });
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

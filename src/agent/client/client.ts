// Asks an agent over HTTP for its report, and for outcomes of packets if the report is not enough.
//
// Each agent has one connection, which stays open between two rounds. Requests use a client
// certificate, a bearer token, or neither, as configured (agent/server.ts). All agents present
// certificates for the name of their Service, because their addresses change.

import type { Readable } from 'node:stream';
import { finished } from 'node:stream/promises';

import { Agent, request } from 'undici';

import type { Packet } from '../../model/proxy-config.ts';
import { packetText } from '../../rules/report/digest.ts';
import type { Steps } from '../../model/run-to-end.ts';
import {
  checkJson,
  decodeOutcomes,
  fieldsOf,
  InvalidReport,
  TooManyValues,
} from '../../rules/report/outcome-json.ts';
import type { PacketOutcome } from '../../rules/walk/walk.ts';
import { identityHeader, type NoAnswer, type VerifyNode } from './identity.ts';
import { type AgentReport, readReport } from './report.ts';

export interface AgentCredentials {
  readonly token: string | null;
  /** PEM, and the name in the agents' certificates; `null` for plain HTTP. */
  readonly tls: Readonly<Record<'ca' | 'cert' | 'key' | 'servername', string | undefined>> | null;
}

interface AgentRequest {
  /** The node whose agent must answer. */
  readonly node: string;
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
  /** Read before each request, since certificates and tokens are replaced while it runs. */
  credentials: () => AgentCredentials,
  /** In seconds. A report of 10,000 frontends is half a megabyte. */
  { deadline, maxBytes } = { deadline: 10, maxBytes: 2 * 1024 * 1024 },
  /** Checks which node's agent answers; `null` if certificates are all that is checked. */
  verify: VerifyNode | null = null,
) {
  let known: AgentCredentials | null = null;
  let dispatcher = new Agent();
  const connected = (): AgentCredentials => {
    const current = credentials();
    if (current === known) return current;
    known = current;
    // Requests that run end on the old connections.
    void dispatcher.close();
    const connect = { ...current.tls, minVersion: 'TLSv1.2' } as const;
    dispatcher = new Agent({ connections: 1, maxResponseSize: maxBytes, connect });
    return current;
  };
  let bytes = 0;
  return {
    /** Never rejects. */
    async ask({ node, address, path, headers, signal }: AgentRequest) {
      const { token, tls } = connected();
      const authorization = token === null ? {} : { authorization: `Bearer ${token}` };
      if (token !== null && tls === null && !/^(?:\[::1\]|127\.)/.test(address)) {
        return refused('a token is not sent beyond loopback without TLS');
      }
      try {
        const response = await request(`${tls === null ? 'http' : 'https'}://${address}${path}`, {
          dispatcher,
          headers: { ...headers, ...authorization },
          signal: AbortSignal.any([signal, AbortSignal.timeout(deadline * 1000)]),
        });
        const body = await textOf(response.body);
        bytes += Buffer.byteLength(body);
        const answer = { status: response.statusCode, headers: response.headers, body };
        if (answer.status === 401 || answer.status === 403) return refused(statusText(answer));
        const shown = String(answer.headers[identityHeader] ?? '');
        const failure = verify === null ? null : await verify(node, shown);
        return failure ?? ({ kind: 'answer', ...answer } as const);
      } catch (error) {
        const { code = '', name, message } = error as NodeJS.ErrnoException;
        if (code === 'UND_ERR_RES_EXCEEDED_MAX_SIZE') {
          return refused(`answered more than ${maxBytes} bytes`, 'too long');
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

/** The text of a body. A list of chunks of one byte would need 130 times the memory of the text. */
async function textOf(body: Readable): Promise<string> {
  let text = Buffer.alloc(0);
  let length = 0;
  body.on('data', (chunk: Uint8Array) => {
    const end = length + chunk.length;
    if (end > text.length) text = Buffer.concat([text], 2 * end);
    text.set(chunk, length);
    length = end;
  });
  await finished(body);
  return text.toString('utf8', 0, length);
}

export const refused = (why: string, garbage?: NoAnswer['garbage']): NoAnswer => ({
  kind: 'refused',
  why,
  ...(garbage === undefined ? {} : { garbage }),
});

const statusText = ({ status, body }: { status: number; body: string }): string =>
  `status ${status}: ${body.trim().slice(0, 200)}`;

/** Where and how an agent is asked. */
export interface Scrape extends Pick<AgentRequest, 'node' | 'address' | 'signal'> {
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
  const isSameReport = answer.status === 304 && before !== null;
  if (answer.status !== 200 && !isSameReport) return refused(statusText(answer));
  const report = isSameReport ? before.report : await readBody(answer.body, readReport);
  if (report instanceof Unread) return report.answer;
  const header = (name: string): string => String(answer.headers[name] ?? '');
  const numberIn = (name: string, pattern: RegExp, usual: number): number =>
    Number(pattern.exec(header(name))?.[1] ?? usual);
  const [etag, round] = [header('etag'), header('round')];
  if (!/^\d{0,9}$/.test(header('age'))) return refused('its Age is no number', 'malformed');
  const age = Number(header('age'));
  const { least, most } = lastingLimits;
  const lasting = Math.min(most, Math.max(least, numberIn('cache-control', /max-age=(\d+)/, 30)));
  const cost = Math.min(longestPause, numberIn('server-timing', /dur=(\d+)/, 0) / 1000);
  const isSame = round !== '' && before?.round === round;
  // The age is rounded down to a second.
  const seenAt = isSame ? before.seenAt : sent - age - 1;
  const nextAt = sent + Math.min(longestPause, Math.max(0, lasting - age)) + cost;
  return { kind: 'seen', report, etag, round, seenAt, lasting, nextAt };
}

/** Seconds that an agent may claim to need from one round to the next, or for one round. */
const lastingLimits = { least: 1, most: 3600 };

/** Seconds after which an agent is asked again even if it claims that there is nothing new. */
const longestPause = 60;

/** Milliseconds for which answers are decoded before other work has its turn. */
const sliceMs = 5;

/** How the agent failed whose answer cannot be decoded. */
class Unread {
  readonly answer: NoAnswer;

  constructor(answer: NoAnswer) {
    this.answer = answer;
  }
}

function* decodeBody<T>(body: string, read: (raw: unknown) => Steps<T>): Steps<T> {
  yield* checkJson(body);
  const raw: unknown = JSON.parse(body);
  yield;
  return yield* read(raw);
}

/** Decodes the JSON of an answer. */
async function readBody<T>(body: string, read: (raw: unknown) => Steps<T>): Promise<T | Unread> {
  try {
    const steps = decodeBody(body, read);
    for (let ends = performance.now() + sliceMs; ;) {
      const step = steps.next();
      if (step.done === true) return step.value;
      if (performance.now() < ends) continue;
      await new Promise((resolve) => setImmediate(resolve));
      ends = performance.now() + sliceMs;
    }
  } catch (error) {
    const isExpected = error instanceof InvalidReport || error instanceof SyntaxError;
    // A defect of the decoder must not end the audit of all other nodes.
    const why = isExpected ? error.message : `unexpected error: ${String(error)}`;
    return new Unread(refused(why, error instanceof TooManyValues ? 'too long' : 'malformed'));
  }
}

/** Characters of the packets in one request, and at most one packet more (agent/server.ts). */
const batchSize = 11_000;

/** The largest number of packets in one scrape: those of a few thousand frontends. */
const mostPackets = 32_768;

/**
 * Characters of all outcomes of one scrape: 1,000 of each of 32,768 packets. Objects need a few
 * times as much memory.
 */
const mostCharacters = 32 * 1024 * 1024;

export interface ScrapedOutcomes {
  /** By the text of the packet; of many or long outcomes, only the first. */
  readonly outcomes: ReadonlyMap<string, PacketOutcome>;
  /** Why the others are missing; `null` if all are there. */
  readonly lack: string | null;
}

/** Returns how the agent failed; `another round` if one has begun. */
export async function scrapeOutcomes(
  { client, node, address, signal }: Scrape,
  packets: readonly Packet[],
  round: string,
): Promise<ScrapedOutcomes | NoAnswer | 'another round'> {
  const found = new Map<string, PacketOutcome>();
  let size = 0;
  let characters = 0;
  let answered = 0;
  const texts = packets.slice(0, mostPackets).map(packetText);
  const batches = Map.groupBy(texts, (text) => {
    size += text.length + 3;
    return Math.floor(size / batchSize);
  });
  const left = [...batches.values()].reverse();
  for (let batch = left.pop(); batch !== undefined; batch = left.pop()) {
    const query = batch.map((text) => `p=${encodeURIComponent(text)}`).join('&');
    const path = `/v1/packets?${query.replaceAll('%2C', ',').replaceAll('%3A', ':')}`;
    const answer = await client.ask({ node, address, path, headers: {}, signal });
    if (answer.kind === 'answer') {
      if (answer.status !== 200) return refused(statusText(answer));
      characters += answer.body.length;
      if (characters > mostCharacters) break;
    }
    const outcomes =
      answer.kind === 'answer'
        ? await readBody(answer.body, (raw) => outcomesOf(raw, round))
        : new Unread(answer);
    if (outcomes === 'another round') return outcomes;
    if (outcomes instanceof Unread) {
      // Packets to thousands of endpoints have long outcomes.
      if (outcomes.answer.garbage !== 'too long' || batch.length === 1) return outcomes.answer;
      const half = batch.length >> 1;
      left.push(batch.slice(half), batch.slice(0, half));
      continue;
    }
    if (outcomes.length !== batch.length) {
      return refused('another number of outcomes than of packets', 'malformed');
    }
    answered += batch.length;
    for (const [index, outcome] of outcomes.entries()) found.set(batch[index] ?? '', outcome);
  }
  const lack = answered === packets.length ? null : lackText(answered, packets.length);
  return { outcomes: found, lack };
}

const lackText = (answered: number, asked: number): string =>
  `${asked - answered} of ${asked} packets are unknown: a round has at most ` +
  `${mostPackets}, and their outcomes have at most ${mostCharacters} characters`;

function* outcomesOf(
  raw: unknown,
  round: string,
): Steps<readonly PacketOutcome[] | 'another round'> {
  if (fieldsOf(raw, 'outcomes').round !== round) return 'another round';
  return yield* decodeOutcomes(raw);
}

// The `lag` command: prints how long outputs took to follow their input, and the worst cases, of a
// recording or of a running server. Exit codes: 0 (a long lag is no finding), 2 without a report.

import { createAuditor } from '../auditor/auditor.ts';
import { replay } from '../auditor/replay.ts';
import { createLagReport, type LagReport, renderLag } from '../output/text/lag.ts';
import { recordingOf } from './replay.ts';
import { problemLog } from './shared/console.ts';
import type { AuditFlags, InputFlags } from './shared/options.ts';
import { auditorOptions, inputsOf } from './shared/options.ts';
import { UsageError } from './shared/process.ts';
import { textOf } from './shared/remote.ts';

export interface LagOptions extends AuditFlags, InputFlags {
  readonly server?: string;
  readonly output: 'table' | 'json';
}

/** The timeout of a request to the server. */
const deadlineMs = 10_000;

/** Prints the report of a recording, which the options or `files` name, or of a server. */
export async function lag(options: LagOptions, files: readonly string[] = []): Promise<0> {
  const { server, output } = options;
  const inputs = inputsOf(options, files);
  if (inputs.length + (server === undefined ? 0 : 1) !== 1) {
    throw new UsageError('Expected one recording, as FILE or --input FILE, or --server URL');
  }
  const report =
    server === undefined ? await ofRecording(inputs[0] ?? '', options) : await ofServer(server);
  process.stdout.write(renderLag(report, output));
  return 0;
}

async function ofRecording(file: string, options: AuditFlags): Promise<LagReport> {
  const { onProblem } = problemLog();
  const auditor = createAuditor(auditorOptions(options, onProblem));
  const entries = await recordingOf(file, auditor, onProblem);
  await replay(auditor, entries, { speed: Infinity, until: null });
  if ((auditor.serviceAuditor()?.audited.size ?? 0) > 0) return createLagReport(auditor);
  throw new Error(`${file}: Nothing was measured: the recording has no Service`);
}

async function ofServer(server: string): Promise<LagReport> {
  if (!URL.canParse(server) || !/^https?:$/.test(new URL(server).protocol)) {
    throw new Error(`Expected a URL such as http://127.0.0.1:9465: ${server}`);
  }
  const url = new URL('/api/v1/lag', server);
  try {
    const response = await fetch(url, { signal: AbortSignal.timeout(deadlineMs) });
    if (!response.ok) throw new Error(`it answers ${String(response.status)}`);
    const document: unknown = JSON.parse(await textOf(response));
    if (isLagReport(document)) return document;
    throw new Error('its answer is no lag document of this format');
  } catch (error) {
    throw new Error(`${url.href}: ${reasonOf(error)}`, { cause: error });
  }
}

function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  if (error.name === 'TimeoutError') return `no answer within ${String(deadlineMs / 1000)} s`;
  if (error instanceof SyntaxError) return 'its answer is no JSON';
  return error.cause instanceof Error ? error.cause.message : error.message;
}

type Fields = Readonly<Record<string, unknown>>;

const isFields = (value: unknown): value is Fields => typeof value === 'object' && value !== null;

/** Whether every item of a list has these texts, and these numbers, which may be null. */
const isListOf = (list: unknown, texts: readonly string[], numbers: readonly string[]): boolean =>
  Array.isArray(list) &&
  list.every(
    (item: unknown) =>
      isFields(item) &&
      texts.every((name) => typeof item[name] === 'string') &&
      numbers.every((name) => item[name] === null || typeof item[name] === 'number'),
  );

function isLagReport(document: unknown): document is LagReport {
  if (!isFields(document) || document.format !== 1) return false;
  const { distributions, journeys, triggerTimes, worst } = document;
  if (!isFields(journeys) || !isFields(worst) || !isFields(triggerTimes)) return false;
  const { begun, ended } = journeys;
  if (!isFields(begun) || !isFields(ended)) return false;
  const { endpoints, endpointslices } = triggerTimes;
  const sample = ['namespace', 'service', 'operation'];
  return (
    [begun.add, begun.remove, begun.update, endpoints, endpointslices].every(isFields) &&
    isListOf([journeys], [], ['open', 'oldestBegun']) &&
    isListOf(distributions, ['lag', 'output'], ['count', 'p50', 'p99', 'max']) &&
    isListOf(worst.convergence, [...sample, 'output'], ['seconds', 'at']) &&
    isListOf(worst.journeys, [...sample, 'pod', 'quality'], ['seconds', 'begun']) &&
    (worst.journeys as readonly Fields[]).every(({ stages }) => isListOf(stages, ['stage'], ['at']))
  );
}

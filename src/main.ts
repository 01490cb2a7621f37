#!/usr/bin/env node
// The command line: argv → a command, and the only place that exits. Commands are wired here from
// the doors (cluster/), the loop (serve.ts) and the outputs (output/).
//
// Exit codes: 0 conform, 1 a finding above information stands (audit) or was opened (replay), 2
// something could not be judged, or bad usage; 2 overrides 1.

import { createReadStream, existsSync } from 'node:fs';
import { stat } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';

import { Command, CommanderError, Option } from 'commander';

import type { Finding } from './audit/findings.ts';
import { readDump } from './cluster/dump.ts';
import { isKwokRecording, readKwok } from './cluster/kwok.ts';
import type { Problem } from './cluster/problem.ts';
import { problemText } from './cluster/problem.ts';
import type { RecordingEntry } from './cluster/recording.ts';
import { readRecording } from './cluster/recording.ts';
import { addExplain } from './commands/explain.ts';
import type { Format } from './config.ts';
import {
  formats,
  parseAddress,
  parseCount,
  parseDuration,
  parseFormat,
  parseRelease,
  parseSpeed,
  parseTime,
  version,
} from './config.ts';
import { createApp, listen } from './output/http.ts';
import type { Pod } from './model/objects.ts';
import type { Report } from './output/report.ts';
import { findingLine, renderReport } from './output/report.ts';
import type { Auditor } from './serve.ts';
import { createAuditor, replay, reportOf, statusOf } from './serve.ts';
import { defaultMaxEndpointsPerSlice } from './shadow/endpointslice.ts';
import type { Release } from './shadow/release.ts';
import { releaseOf } from './shadow/release.ts';

/** Options that audit and replay share. */
interface Common {
  readonly output: Format;
  readonly namespace?: string;
  readonly kubernetesVersion?: Release;
  readonly settle: number;
  readonly maxEndpointsPerSlice: number;
}

interface Replayed extends Common {
  readonly speed: number;
  readonly until?: number;
}

interface Served {
  readonly recording?: string;
  readonly listen: { host: string | null; port: number };
  readonly speed: number;
  readonly settle: number;
  readonly once?: boolean;
}

const colour = process.stdout.isTTY && (process.env.NO_COLOR ?? '') === '';

function fail(text: string): void {
  process.stderr.write(`endpoint-auditor: ${text}\n`);
}

/** Problems go to stderr as they are met; the report keeps the first of them. */
function problemLog(): { problems: string[]; onProblem: (problem: Problem) => void } {
  const problems: string[] = [];
  return {
    problems,
    onProblem(problem) {
      const text = problemText(problem);
      problems.push(text);
      fail(text);
    },
  };
}

/** Says on a terminal how far a long input has been read. */
function progress(what: string): { count: (at: number | null) => void; done: () => void } {
  let entries = 0;
  let shown = performance.now() + 1000;
  let visible = false;
  return {
    count(at) {
      entries++;
      if (!process.stderr.isTTY || entries % 1000 !== 0 || performance.now() < shown) return;
      shown = performance.now() + 200;
      visible = true;
      const moment = at === null ? '' : `, ${new Date(at * 1000).toISOString()}`;
      process.stderr.write(`\r\u001b[K${what}: ${entries.toLocaleString('en')} read${moment}`);
    },
    done() {
      if (visible) process.stderr.write('\r\u001b[K');
    },
  };
}

const terminalWidth = (): number => (process.stdout.isTTY ? process.stdout.columns : 120);

function print(report: Report, format: Format): void {
  const text = renderReport(report, format, { colour, width: terminalWidth() });
  process.stdout.write(text.endsWith('\n') ? text : `${text}\n`);
}

const isLoud = ({ severity }: Finding): boolean => severity !== 'info';

function exitCodeOf(report: Report): 0 | 1 | 2 {
  if (Object.values(report.unknown).some((count) => count > 0)) return 2;
  // Nothing was judged: a name that is mistyped must not look like a cluster that conforms.
  if (report.services === 0 && report.foreign === 0) return 2;
  return report.findings.some(isLoud) ? 1 : 0;
}

/** The entries of a recording, of our own or of kwok. */
async function recordingOf(
  path: string,
  auditor: Auditor,
  onProblem: (problem: Problem) => void,
): Promise<AsyncIterable<RecordingEntry>> {
  const previousPod = (key: string): Pod | undefined => auditor.previousPod(key);
  const bytes = () => (path === '-' ? process.stdin : createReadStream(path));
  if (path !== '-') {
    await stat(path);
    if (/\.ya?ml(?:\.gz)?$/.test(path) && (await isKwokRecording(bytes()))) {
      return readKwok({ name: path, open: bytes }, onProblem, { previousPod });
    }
  }
  const name = path === '-' ? 'stdin' : path;
  return readRecording({ name, bytes: bytes() }, onProblem, { previousPod });
}

async function audit(paths: readonly string[], options: Common): Promise<number> {
  const { problems, onProblem } = problemLog();
  const auditor = createAuditor({
    // A dump is one moment: there is nothing to wait for.
    settle: 0,
    release: options.kubernetesVersion ?? null,
    maxEndpointsPerSlice: options.maxEndpointsPerSlice,
  });
  const reading = progress(paths.join(', '));
  for await (const entry of readDump(paths, onProblem)) {
    reading.count(null);
    auditor.take(entry);
  }
  reading.done();
  if (!auditor.store.snapshot.knows('services')) {
    fail(`No Services in ${paths.join(', ')}: nothing to audit (a recording is for replay)`);
    return 2;
  }
  const report = reportOf(auditor, {
    kind: 'audit',
    sources: paths,
    namespace: options.namespace ?? null,
    problems,
  });
  print(report, options.output);
  return exitCodeOf(report);
}

async function replayFile(path: string, options: Replayed): Promise<number> {
  const { problems, onProblem } = problemLog();
  const live = options.output === 'table' || options.output === 'wide';
  const wanted = ({ namespace }: Finding): boolean =>
    options.namespace === undefined || namespace === options.namespace;
  const say = (finding: Finding): void => {
    if (live && wanted(finding)) process.stdout.write(`${findingLine(finding, colour)}\n`);
  };
  const auditor = createAuditor({
    settle: options.settle,
    release: options.kubernetesVersion ?? null,
    maxEndpointsPerSlice: options.maxEndpointsPerSlice,
    onOpen: say,
    onResolve: say,
  });
  const reading = progress(path);
  const entries = counted(await recordingOf(path, auditor, onProblem), auditor, (at) => {
    reading.count(at);
  });
  await replay(auditor, entries, { speed: options.speed, until: options.until ?? null });
  reading.done();
  sayIfUnknown(auditor);
  if (live) process.stdout.write('\n');
  const report = reportOf(auditor, {
    kind: 'replay',
    sources: [path],
    namespace: options.namespace ?? null,
    problems,
  });
  print(report, options.output);
  return exitCodeOf(report);
}

/** A release that is not known is judged as the newest that is, which must be said. */
function sayIfUnknown(auditor: Auditor): void {
  const named = auditor.kubernetes();
  if (named === null || releaseOf(named) !== null) return;
  const minor = String(auditor.release().minor);
  fail(`Kubernetes ${named} is not known; judged as 1.${minor} (see --kubernetes-version)`);
}

async function* counted(
  entries: AsyncIterable<RecordingEntry>,
  auditor: Auditor,
  count: (at: number | null) => void,
): AsyncGenerator<RecordingEntry> {
  for await (const entry of entries) {
    count(auditor.now());
    yield entry;
  }
}

/** The recording that comes with the program: beside the bundle, or among the test data. */
function embeddedRecording(): string {
  const beside = fileURLToPath(new URL('./shop.ndjson.gz', import.meta.url));
  if (existsSync(beside)) return beside;
  return fileURLToPath(new URL('../test/recordings/shop.ndjson.gz', import.meta.url));
}

/** Replays a recording at its speed, says what it finds, and serves it until it is stopped. */
async function serve(options: Served): Promise<number> {
  const { onProblem } = problemLog();
  const path = options.recording ?? embeddedRecording();
  const say = (finding: Finding): void =>
    void process.stdout.write(`${findingLine(finding, colour)}\n`);
  const auditor = createAuditor({
    settle: options.settle,
    release: null,
    maxEndpointsPerSlice: defaultMaxEndpointsPerSlice,
    onOpen: say,
    onResolve: say,
  });
  const entries = await recordingOf(path, auditor, onProblem);
  const stop = new AbortController();
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => stop.abort());
  const app = createApp(() => statusOf(auditor, path));
  const server = await listen(app, options.listen);
  const host = options.listen.host ?? '127.0.0.1';
  const speed =
    options.speed === Infinity ? 'full speed' : `${String(options.speed)} times its speed`;
  process.stdout.write(`Replaying ${path} at ${speed}\n`);
  process.stdout.write(`Serving http://${host}:${String(server.port)}/ and /metrics\n`);
  try {
    await replay(auditor, entries, { speed: options.speed, until: null, signal: stop.signal });
    const ended = reportOf(auditor, {
      kind: 'replay',
      sources: [path],
      namespace: null,
      problems: [],
    });
    if (!stop.signal.aborted) {
      process.stdout.write('\n');
      print(
        { ...ended, findings: ended.findings.filter(({ resolvedAt }) => resolvedAt === null) },
        'table',
      );
    }
    if (options.once !== true && !stop.signal.aborted) {
      process.stdout.write('\nThe recording has ended; serving until stopped (Ctrl-C)\n');
      await new Promise((resolve) => stop.signal.addEventListener('abort', resolve));
    }
  } finally {
    await server.close();
  }
  return 0;
}

const settleOption = (): Option =>
  new Option('--settle <duration>', 'how long a difference may stand before it is a finding')
    .argParser(parseDuration)
    .default(30, '30s');

const speedOption = (fallback: number, text: string): Option =>
  new Option('--speed <factor>', "a factor over the recording's own speed, or max")
    .argParser(parseSpeed)
    .default(fallback, text);

function withCommon(command: Command): Command {
  return command
    .addOption(
      new Option('-o, --output <format>', `one of ${formats.join(', ')}`)
        .argParser(parseFormat)
        .default('table'),
    )
    .option('-n, --namespace <name>', 'report this namespace only')
    .addOption(new Option('-A, --all-namespaces', 'report every namespace (the default)'))
    .addOption(
      new Option(
        '--kubernetes-version <version>',
        'release of the control plane (default: as the input says, else the newest known)',
      ).argParser(parseRelease),
    )
    .addOption(
      new Option('--max-endpoints-per-slice <count>', 'the same flag of kube-controller-manager')
        .argParser(parseCount)
        .default(defaultMaxEndpointsPerSlice),
    )
    .addOption(settleOption());
}

function programOf(run: (work: Promise<number>) => void): Command {
  const program = new Command('endpoint-auditor')
    .description("Audits what Kubernetes' endpoints and EndpointSlice controllers wrote")
    .version(version)
    .exitOverride()
    .showHelpAfterError('(see --help)');
  withCommon(program.command('audit'))
    .description('judge a dump: files, directories or - of JSON or YAML, must-gather trees')
    .argument('<path...>')
    .action((paths: string[], options: Common) => {
      run(audit(paths, options));
    });
  withCommon(program.command('replay'))
    .description('judge a recording, or a kwok snapshot recording, from its beginning to its end')
    .argument('<file>', 'the recording, plain or gzip; - for stdin')
    .addOption(speedOption(Infinity, 'max'))
    .addOption(
      new Option('--until <time>', 'stop there: Unix seconds or RFC 3339').argParser(parseTime),
    )
    .action((file: string, options: Replayed) => {
      run(replayFile(file, options));
    });
  const listenOption = new Option('--listen <address>', 'where to serve the page and /metrics')
    .argParser(parseAddress)
    .default({ host: '127.0.0.1', port: 9465 }, '127.0.0.1:9465');
  program
    .command('serve')
    .description('replay a recording in its own time, and serve what it shows')
    .option('--recording <file>', 'the recording (default: the one that comes with the program)')
    .addOption(listenOption)
    .addOption(speedOption(20, '20'))
    .addOption(settleOption())
    .option('--once', 'end with the recording')
    .action((options: Served) => {
      run(serve(options));
    });
  const { onProblem } = problemLog();
  addExplain(program, { run, fail, onProblem, recordingOf, colour, width: terminalWidth() });
  return program;
}

async function main(argv: readonly string[]): Promise<number> {
  let work: Promise<number> = Promise.resolve(0);
  try {
    programOf((started) => {
      work = started;
    }).parse(argv);
    return await work;
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : 2;
    fail(error instanceof Error ? error.message : String(error));
    return 2;
  }
}

// A pipe that is closed early (head, less) is no error.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code === 'EPIPE') process.exit(0);
  throw error;
});

process.exitCode = await main(process.argv);

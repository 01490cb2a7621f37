#!/usr/bin/env -S node --max-semi-space-size=4 --heap-growing-percent=40
// The command line: defines the commands and their flags, and sets the exit code. Each command is a
// file in commands/, which is loaded when it runs, so that an agent does not load the server.
//
// Exit codes: 0 conform, 1 a finding above information is open (audit) or was opened (replay), 2 an
// output is unknown, or bad usage; 2 overrides 1. Commands that are stopped exit with 0.
//
// The flags in the first line keep garbage small beside the live heap. Without them, the program
// needs half as much memory again (docs/performance.md).

import { basename } from 'node:path';

import { Argument, Command, CommanderError, type Option } from 'commander';

import { systemErrorText } from './cluster/decode/problem.ts';
import type { AgentOptions } from './commands/agent.ts';
import type { AuditOptions } from './commands/audit.ts';
import { completionScript, completionsOf, type Shell, shells } from './commands/complete.ts';
import type { ExplainOptions } from './commands/explain.ts';
import type { LagOptions } from './commands/lag.ts';
import type { RecordOptions } from './commands/record.ts';
import type { ReplayOptions } from './commands/replay.ts';
import type { ServeOptions } from './commands/serve.ts';
import {
  addFlags,
  flag,
  listenFlag,
  parseDuration,
  parseOutput,
  parseSize,
  parseSpeed,
  parseTime,
  refuseLive,
} from './commands/shared/options.ts';
import { nodeProblem } from './commands/shared/process.ts';
import { version } from './model/program-version.ts';

// Plugins of kubectl have other names.
const invoked = basename(process.argv[1] ?? '');

const programName = invoked.startsWith('kubectl-') ? 'kubectl audit-endpoints' : 'endpoint-auditor';

const speedFlag = (speed: number, text: string): Option =>
  flag('--speed <factor>', "a factor over the recording's own speed, or max", parseSpeed).default(
    speed,
    text,
  );

/** Resolves to the exit code. */
let work: Promise<number> = Promise.resolve(0);

function run(started: Promise<number>): void {
  work = started;
}

function createProgram(): Command {
  const program = new Command(programName)
    .description("Audits what Kubernetes' endpoints and EndpointSlice controllers wrote")
    .version(version)
    .exitOverride()
    .showHelpAfterError('(see --help)');
  addAudits(program);
  addQueries(program);
  addServers(program);
  // kubectl calls the program under another name (main).
  program
    .command('completion')
    .description('print a script that completes commands and flags in a shell')
    .addArgument(new Argument('<shell>', 'which').choices(shells))
    .action((shell: Shell) => {
      process.stdout.write(completionScript(shell, 'endpoint-auditor'));
    });
  program
    .command('__complete', { hidden: true })
    .argument('[words...]')
    .allowUnknownOption()
    .action((words: string[]) => {
      process.stdout.write([...completionsOf(program, words), ''].join('\n'));
    });
  return program;
}

function addAudits(program: Command): void {
  addFlags(program.command('audit'), 'report', 'audit', 'cluster', 'rules', 'agents')
    .description('judge a live cluster once, or a dump of one')
    .argument('[path...]', 'the dump: files, directories or - of JSON or YAML, must-gather trees')
    .action((paths: string[], options: AuditOptions, command: Command) => {
      if (paths.length > 0) refuseLive(command, 'a dump, which is one moment', ['settle']);
      run(
        import('./commands/audit.ts').then(({ auditLive, auditDump }) =>
          paths.length === 0 ? auditLive(options) : auditDump(paths, options),
        ),
      );
    });
  addFlags(program.command('replay'), 'report', 'audit')
    .description('judge a recording, or a kwok snapshot recording, from its beginning to its end')
    .argument('<file>', 'the recording, plain or gzip; - for stdin')
    .addOption(speedFlag(Infinity, 'max'))
    .option('--until <time>', 'stop there: Unix seconds or RFC 3339', parseTime)
    .action((file: string, options: ReplayOptions) => {
      run(import('./commands/replay.ts').then(({ replayFile }) => replayFile(file, options)));
    });
  addFlags(program.command('record'), 'cluster')
    .description('write what a live cluster delivers to a file that replay reads')
    .argument('<file>', 'the recording; compressed if it ends in .gz')
    .option('--max-size <size>', 'begin the next file after so many bytes: 64Mi', parseSize)
    .option('--max-age <duration>', 'begin the next file after that time: 1h', parseDuration)
    .option('--redact', 'replace names and labels by hashes, and leave out what is not judged')
    .action((file: string, options: RecordOptions) => {
      run(import('./commands/record.ts').then(({ record }) => record(file, options)));
    });
}

/** Flags that have no effect with --server, which has its own values. */
const serverFlags = ['settle', 'kubernetesVersion', 'maxEndpointsPerSlice', 'proxyConfig'];

function addQueries(program: Command): void {
  addFlags(program.command('explain'), 'audit', 'cluster', 'rules')
    .description('say why a pod is, or is not, in a Service, and what a node does with one')
    .argument(
      '<subject...>',
      'service/NAME, pod/NAME, pod/NAME service/NAME, ip/ADDRESS or node/NAME service/NAME:PORT',
    )
    .option('--input <path...>', 'a dump, as audit reads it (default: the cluster)')
    .option('--recording <file>', 'a recording, as replay reads it')
    .option('--server <url>', 'a server that runs: its address, as serve prints it')
    .option('--at <time>', 'its moment: Unix seconds or RFC 3339', parseTime)
    .option('-n, --namespace <name>', 'the namespace of what is asked about (default: any)')
    .option('-A, --all-namespaces', 'look in every namespace (the default)')
    .option('-o, --output <format>', 'text or json', parseOutput, 'text')
    .action((words: string[], options: ExplainOptions, command: Command) => {
      if (options.recording !== undefined) refuseLive(command, '--recording', []);
      if (options.input !== undefined) refuseLive(command, '--input', ['settle']);
      if (options.server !== undefined) refuseLive(command, '--server', serverFlags);
      run(
        import('./commands/explain.ts').then(({ explainSubject }) =>
          explainSubject(words, options),
        ),
      );
    });
  addFlags(program.command('lag'), 'audit')
    .description('say how long outputs took to follow their input, and what took longest')
    .option('--recording <file>', 'of a recording, as replay reads it')
    .option('--server <url>', 'of a running server: http://127.0.0.1:9465')
    .addOption(
      flag('-o, --output <format>', 'table or json').choices(['table', 'json']).default('table'),
    )
    .action((options: LagOptions, command: Command) => {
      if (options.server !== undefined) refuseLive(command, '--server', serverFlags);
      run(import('./commands/lag.ts').then(({ lag }) => lag(options)));
    });
}

/** Commands that run until they are stopped. */
function addServers(program: Command): void {
  addFlags(program.command('serve'), 'audit', 'cluster', 'shard', 'metrics', 'agents')
    .description('audit a live cluster, or replay a recording, and serve what is found')
    .option('--recording [file]', 'replay this instead (without a file: the one of the program)')
    .addOption(listenFlag('where to serve the page and /metrics', 9465))
    .addOption(speedFlag(20, '20'))
    .option('--once', 'end with the recording')
    .action((options: ServeOptions, command: Command) => {
      if (options.recording !== undefined) refuseLive(command, '--recording', []);
      run(import('./commands/serve.ts').then(({ serve }) => serve(options)));
    });
  addFlags(program.command('agent'), 'agent')
    .description('walk the rules of the node that it runs on, and answer the auditor')
    .action((options: AgentOptions) => {
      run(import('./commands/agent.ts').then(({ becomeAgent }) => becomeAgent(options)));
    });
}

async function main(argv: readonly string[]): Promise<number> {
  const problem = nodeProblem(process.versions.node);
  if (problem !== null) {
    process.stderr.write(`endpoint-auditor: ${problem}\n`);
    return 2;
  }
  try {
    const program = createProgram();
    if (invoked.startsWith('kubectl_complete-')) {
      // The last line is the default directive of cobra.
      process.stdout.write([...completionsOf(program, argv.slice(2)), ':0', ''].join('\n'));
      return 0;
    }
    program.parse(argv);
    return await work;
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : 2;
    const text = systemErrorText(error) ?? (error instanceof Error ? error.message : String(error));
    process.stderr.write(`endpoint-auditor: ${text}\n`);
    return 2;
  }
}

// Programs such as head close the pipe early, which is not an error.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code === 'EPIPE') process.exit(0);
  throw error;
});

process.exitCode = await main(process.argv);

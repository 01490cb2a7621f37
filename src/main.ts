#!/usr/bin/env -S node --max-semi-space-size=4 --heap-growing-percent=40
// The command line: defines the commands and their flags, and sets the exit code. Each command is a
// file in commands/, which is loaded when it runs, so that an agent does not load the server.
//
// Exit codes: `exitTexts`. 2 overrides 1; 64 is EX_USAGE of sysexits.h.
//
// The flags in the first line keep garbage small beside the live heap. Without them, the program
// needs half as much memory again (docs/performance.md).

import { basename } from 'node:path';

import { Argument, Command, CommanderError, type Option } from 'commander';

import { systemErrorText } from './cluster/decode/problem.ts';
import type { AgentOptions } from './commands/agent.ts';
import type { AuditOptions } from './commands/audit.ts';
import type { BundleOptions } from './commands/bundle.ts';
import { completionScript, completionsOf, type Shell, shells } from './commands/complete.ts';
import type { DiffOptions } from './commands/diff.ts';
import type { ExplainOptions } from './commands/explain.ts';
import type { IncidentsOptions } from './commands/incidents.ts';
import type { LagOptions } from './commands/lag.ts';
import type { RecordOptions } from './commands/record.ts';
import type { ReplayOptions } from './commands/replay.ts';
import type { ServeOptions } from './commands/serve.ts';
import {
  parseAddress,
  parseDuration,
  parseOutput,
  parseSize,
  parseSpeed,
  parseTime,
} from './commands/shared/flag-values.ts';
import {
  addFlags,
  flag,
  listenFlag,
  deprecated,
  inputsOf,
  onlyInput,
  refuseFlags,
  refuseLive,
} from './commands/shared/options.ts';
import { fail } from './commands/shared/console.ts';
import { exitCodes, nodeProblem, UsageError } from './commands/shared/process.ts';
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
    // The same prefix as for errors that commands find.
    .configureOutput({
      outputError: (text, write) => write(text.replace(/^error: /, 'endpoint-auditor: ')),
    })
    .showHelpAfterError('(see --help)')
    .addHelpText('after', `\n${exitTexts.audit}`);
  program.commandsGroup('Audit once:');
  addAudits(program);
  addBundle(program);
  program.commandsGroup('Ask:');
  addQueries(program);
  program.commandsGroup('Run until stopped:');
  addServers(program);
  program.commandsGroup('Other commands:').helpCommand(true);
  const configured = program.commands.filter(({ options }) => options.length > 0);
  for (const command of configured) {
    command.option('--config <file>', 'values of flags as YAML (docs/configuration.md)');
  }
  program.hook('preAction', async (_, command) => {
    const { config } = command.opts<{ config?: string }>();
    if (config === undefined) return;
    const { applyConfigFile } = await import('./commands/shared/config-file.ts');
    applyConfigFile(config, configured, command);
  });
  // kubectl calls the program under another name (main).
  program
    .command('completion')
    .description('print a script that completes commands and flags in a shell')
    .addArgument(new Argument('<shell>', 'which').choices(shells))
    .action((shell: Shell) => {
      process.stdout.write(completionScript(shell, 'endpoint-auditor'));
    });
  // A process of serve (commands/history-reader.ts).
  program.command('__history', { hidden: true }).action(() => {
    run(import('./commands/history-reader.ts').then(({ answerParent }) => answerParent()));
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

/** What the exit codes of commands mean. */
const exitTexts = {
  audit: `Exit codes:
  0   nothing fails the gate: no finding reaches --fail-on (by default warning)
  1   a finding fails the gate
  2   no verdict: no input, or something is unknown
  64  bad usage`,
  explain: `Exit codes:
  0   controllers and kube-proxy wrote what they should, or findings are only info
  1   an open finding of severity warning or critical concerns it
  2   no verdict: the subject does not exist, or something is unknown
  64  bad usage`,
  lag: `Exit codes:
  0   the report is complete; a long lag is no error
  2   nothing was measured
  64  bad usage`,
  incidents: `Exit codes:
  0   the list is complete; an incident is no error
  2   nothing was recorded
  64  bad usage`,
  diff: `Exit codes:
  0   nothing is different
  1   something is different
  2   a moment or the Service is not known
  64  bad usage`,
  bundle: `Exit codes:
  0   the bundle is complete
  2   the Service, the incident or the time is not known
  64  bad usage`,
  untilStopped: `Exit codes:
  0   stopped by a signal, or the input has ended
  2   an error ended it
  64  bad usage`,
} as const;

/** The end of the help of a command: examples, each a command line with its purpose. */
function examples(
  command: Command,
  exits: keyof typeof exitTexts,
  ...lines: (readonly [line: string, purpose: string])[]
): void {
  const shown = lines.map(([line, purpose]) => `  # ${purpose}\n  ${programName} ${line}\n`);
  command.addHelpText('after', `\nExamples:\n${shown.join('\n')}\n${exitTexts[exits]}`);
}

/** The options of commands that list findings. */
const audited = ['suppressions', 'audit', 'input'] as const;

function addBundle(program: Command): void {
  const bundle = addFlags(program.command('bundle'), 'range', 'redaction', 'audit', 'input')
    .description('write what a Service or an incident needs to a recording of its own')
    .argument('<subject>', 'service/NAME or the name of an incident')
    .option('--history <folder>', 'the history that serve has recorded; or --input RECORDING')
    .option('-n, --namespace <name>', 'the namespace of the Service (default: any)')
    .action((subject: string, options: BundleOptions, command: Command) => {
      isHistory(command, options, inputsOf(options));
      run(import('./commands/bundle.ts').then(({ bundle }) => bundle(subject, options)));
    });
  examples(
    bundle,
    'bundle',
    [
      'bundle service/web -n shop --history /var/lib/history --from 02:00 --to 03:00 > web.ndjson',
      'write a recording that "replay web.ndjson" and "serve --input web.ndjson" read',
    ],
    ['bundle service/web --input shop.gz --redact > web.ndjson', 'write it without names'],
  );
}

function addAudits(program: Command): void {
  const audit = addFlags(program.command('audit'), 'report', 'name', 'gate', ...audited, 'cluster')
    .description('audit a live cluster once, or a dump of one')
    .argument('[path...]', 'the dump: files, directories, archives or - of JSON or YAML')
    .action((paths: string[], options: AuditOptions, command: Command) => {
      const inputs = inputsOf(options, paths);
      if (inputs.length > 0) {
        refuseLive(command, 'a dump');
        if (options.at === undefined) {
          refuseFlags(command, 'a dump, which shows one moment', ['settle']);
        }
      } else if (options.history === undefined) refuseFlags(command, 'a live cluster', ['at']);
      run(
        import('./commands/audit.ts').then(({ auditLive, auditDump, auditMoment }) => {
          if (isHistory(command, options, inputs)) return auditMoment(options.history, options);
          return inputs.length === 0 ? auditLive(options) : auditDump(inputs, options);
        }),
      );
    });
  examples(
    addFlags(audit, 'moment', 'rules', 'agents'),
    'audit',
    ['audit', 'audit the cluster of the current context'],
    ['audit -n shop', 'report one namespace'],
    ['audit --history /var/lib/history --at 02:13', 'report what was open then'],
    ['audit dump.yaml', 'audit what "kubectl get nodes,svc,po,ep,endpointslices -A -o yaml" wrote'],
    ['audit must-gather.tar.gz --no-endpoints', 'audit only the EndpointSlices of an archive'],
    ['audit dump.json -o github --baseline main.json', 'annotate a pull request with new findings'],
  );
  const replay = addFlags(program.command('replay'), 'report', 'name', 'gate', ...audited)
    .description('audit a recording, or a kwok snapshot recording, from beginning to end')
    .argument('[file]', 'the recording, plain or gzip; - for stdin')
    .addOption(speedFlag(Infinity, 'max'))
    .option('--until <time>', 'stop there: Unix seconds, RFC 3339 or HH:MM', parseTime)
    .action((file: string | undefined, options: ReplayOptions) => {
      const input = onlyInput(options, file === undefined ? [] : [file]);
      run(import('./commands/replay.ts').then(({ replayFile }) => replayFile(input, options)));
    });
  examples(replay, 'audit', ['replay recording.ndjson.gz -o json', 'print the report as JSON']);
  const record = addFlags(program.command('record'), 'cluster', 'redaction', 'log')
    .description('record what a live cluster delivers, for replay')
    .argument('<file>', 'the recording; compressed if it ends in .gz')
    .option('--no-endpoints', 'do not record Endpoints')
    .option('--max-size <size>', 'begin the next file after this many bytes: 64Mi', parseSize)
    .option('--max-age <duration>', 'begin the next file after this time: 1h', parseDuration)
    .action((file: string, options: RecordOptions) => {
      run(import('./commands/record.ts').then(({ record }) => record(file, options)));
    });
  examples(record, 'untilStopped', [
    'record shop.ndjson.gz --max-age 1h',
    'begin a new file every hour',
  ]);
}

/** Flags that have no effect on a history, which has the values of serve. */
const historyFlags = ['settle', 'kubernetesVersion', 'maxEndpointsPerSlice', 'endpoints', 'rules'];

/** Whether the input is a history. Ends with an error for flags or inputs that exclude it. */
function isHistory<T extends { readonly history?: string }>(
  command: Command,
  options: T,
  inputs: readonly string[],
): options is T & { readonly history: string } {
  if (options.history === undefined) return false;
  refuseLive(command, '--history');
  refuseFlags(command, '--history', historyFlags);
  if (inputs.length > 0) command.error('error: --history excludes other inputs');
  return true;
}

/** Flags that have no effect with --server, which has its own values. */
const serverFlags = [
  'settle',
  'suppressions',
  'kubernetesVersion',
  'maxEndpointsPerSlice',
  'proxyConfig',
  'endpoints',
];

function addQueries(program: Command): void {
  const explain = addFlags(program.command('explain'), ...audited, 'cluster', 'rules')
    .description('explain why a pod is, or is not, in a Service, and what a node does with one')
    .argument(
      '[subject...]',
      'service/NAME, pod/NAME, pod/NAME service/NAME, ip/ADDRESS, node/NAME or ' +
        'node/NAME service/NAME:PORT; for a whole namespace, use audit -n NAME',
    )
    .usage('[options] <subject...>')
    .option('--server <url>', 'ask a running server: the address that serve prints')
    .option('-n, --namespace <name>', 'the namespace of the subject (default: any)')
    .option('-A, --all-namespaces', 'look in every namespace (the default)')
    .option('-o, --output <format>', 'text or json', parseOutput, 'text')
    .action((words: string[], options: ExplainOptions, command: Command) => {
      if (inputsOf(options).length > 0) refuseLive(command, '--input');
      isHistory(command, options, inputsOf(options));
      if (options.server !== undefined) {
        refuseLive(command, '--server');
        refuseFlags(command, '--server', serverFlags);
      }
      run(
        import('./commands/explain.ts').then(({ explainSubject }) =>
          explainSubject(words, options),
        ),
      );
    });
  examples(
    addFlags(explain, 'moment', 'recording'),
    'explain',
    ['explain pod/web-1 service/web -n shop', 'why is the pod not in the Service?'],
    ['explain --input dump.yaml ip/10.1.0.12', 'who has this address?'],
    ['explain service/web --input recording.gz --at 2026-11-21T10:57:00Z', 'at that moment'],
  );
  addPast(program);
  const lag = addFlags(program.command('lag'), 'audit', 'input')
    .description('report how long outputs took to follow their input, and the slowest')
    .argument('[file]', 'the recording, plain or gzip; - for stdin')
    .option('--server <url>', 'ask a running server: http://127.0.0.1:9465')
    .option('--history <folder>', 'the history that serve has recorded')
    .option('--from <time>', 'only what was measured from then on', parseTime)
    .option('--to <time>', 'only what was measured until then', parseTime)
    .addOption(
      flag('-o, --output <format>', 'table or json').choices(['table', 'json']).default('table'),
    )
    .action((file: string | undefined, options: LagOptions, command: Command) => {
      if (options.server !== undefined) {
        refuseFlags(command, '--server', [...serverFlags, 'from', 'to']);
      }
      const files = file === undefined ? [] : [file];
      isHistory(command, options, inputsOf(options, files));
      run(import('./commands/lag.ts').then(({ lag }) => lag(options, files)));
    });
  examples(addFlags(lag, 'recording'), 'lag', [
    'lag recording.ndjson.gz',
    'the lag in a recording',
  ]);
}

/** Questions about the past. */
function addPast(program: Command): void {
  const incidents = addFlags(program.command('incidents'), 'audit', 'suppressions', 'input')
    .description('list the incidents of a history or of a recording')
    .argument('[file]', 'the recording, plain or gzip; - for stdin')
    .option('--history <folder>', 'the history that serve has recorded')
    .addOption(
      flag(
        '--since <duration>',
        'that were open in this time before its end',
        parseDuration,
      ).default(86_400, '24h'),
    )
    .option('-o, --output <format>', 'text or json', parseOutput, 'text')
    .action((file: string | undefined, options: IncidentsOptions, command: Command) => {
      const files = file === undefined ? [] : [file];
      isHistory(command, options, inputsOf(options, files));
      run(
        import('./commands/incidents.ts').then(({ printIncidents }) =>
          printIncidents(options, files),
        ),
      );
    });
  examples(incidents, 'incidents', [
    'incidents --history /var/lib/history --since 7d',
    'what was wrong?',
  ]);
  const diff = addFlags(program.command('diff'), 'audit', 'suppressions', 'input')
    .description('print what is different about a Service at two moments')
    .argument('<service>', 'service/NAME')
    .option('--history <folder>', 'the history that serve has recorded')
    .option('--from <time>', 'the first moment: Unix seconds, RFC 3339 or HH:MM', parseTime)
    .option('--to <time>', 'the second one (default: the end)', parseTime)
    .option('-n, --namespace <name>', 'the namespace of the Service (default: any)')
    .option('-o, --output <format>', 'text or json', parseOutput, 'text')
    .action((word: string, options: DiffOptions, command: Command) => {
      isHistory(command, options, inputsOf(options));
      run(import('./commands/diff.ts').then(({ printDiff }) => printDiff(word, options)));
    });
  examples(diff, 'diff', [
    'diff service/web -n shop --history /var/lib/history --from 02:10 --to 02:13',
    'what has changed?',
  ]);
}

/** Commands that run until they are stopped. */
function addServers(program: Command): void {
  const serve = addFlags(program.command('serve'), ...audited, 'cluster', 'shard')
    .description('audit a live cluster, or replay a recording, and serve the findings')
    .option('--demo', 'replay the recording that comes with the program')
    .addOption(listenFlag('address of the page and /metrics', 9465))
    .option('--metrics-listen <address>', 'address of /metrics apart from the page', parseAddress)
    .option('--web.config.file <file>', 'TLS and logins, as the exporters of Prometheus have them')
    .addOption(speedFlag(20, '20'))
    .option('--once', 'exit at the end of the recording')
    .addOption(deprecated(flag('--recording [file]', 'use --input FILE, or --demo')))
    .action((options: ServeOptions, command: Command) => {
      const isDemo = options.demo === true || options.recording === true;
      if (isDemo || inputsOf(options).length > 0) {
        refuseLive(command, 'a recording');
        refuseFlags(command, 'a recording', ['history', 'historySize', 'historyAge']);
      }
      run(import('./commands/serve.ts').then(({ serve }) => serve(options)));
    });
  examples(
    addFlags(serve, 'history', 'access', 'metrics', 'agents', 'events', 'name', 'page', 'log'),
    'untilStopped',
    ['serve', 'audit the cluster of the current context, page at http://127.0.0.1:9465/'],
    ['serve --demo', 'look around with the recording that comes with the program'],
  );
  const agent = addFlags(program.command('agent'), 'agent', 'log')
    .description('evaluate the rules of the node that it runs on, and serve reports about them')
    .action((options: AgentOptions) => {
      run(import('./commands/agent.ts').then(({ becomeAgent }) => becomeAgent(options)));
    });
  examples(
    agent,
    'untilStopped',
    ['agent', 'serve reports about this node at http://127.0.0.1:9466/'],
    [
      'agent --listen :9466 --token-file token --tls-cert tls.crt --tls-key tls.key',
      'let an auditor on another machine ask for them',
    ],
  );
}

async function main(argv: readonly string[]): Promise<number> {
  const problem = nodeProblem(process.versions.node);
  if (problem !== null) {
    process.stderr.write(`endpoint-auditor: ${problem}\n`);
    return exitCodes.unknown;
  }
  try {
    const program = createProgram();
    if (invoked.startsWith('kubectl_complete-')) {
      // The last line is the default directive of cobra.
      process.stdout.write([...completionsOf(program, argv.slice(2)), ':0', ''].join('\n'));
      return 0;
    }
    await program.parseAsync(argv);
    return await work;
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : exitCodes.usage;
    const text = systemErrorText(error) ?? (error instanceof Error ? error.message : String(error));
    if (!(error instanceof UsageError)) {
      fail(text);
      return exitCodes.unknown;
    }
    // A file of the user may have several errors, one a line.
    for (const line of text.split('\n')) fail(line);
    return exitCodes.usage;
  }
}

// Programs such as head close the pipe early. A command that has written all of its output sets its
// exit code in this turn. Otherwise, the rest is unknown.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code !== 'EPIPE') throw error;
  setImmediate(() => process.exit(process.exitCode ?? exitCodes.unknown));
});

// Not by await, which a single-file executable does not have.
void main(process.argv).then((code) => {
  process.exitCode = code;
});

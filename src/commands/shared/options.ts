// The flags that several commands share, and the options that the auditor makes of them. Each flag
// is defined once.

import { Command, Option } from 'commander';

import type { AuditorOptions } from '../../auditor/auditor.ts';
import type { OnProblem } from '../../cluster/decode/problem.ts';
import type { Scope, Shard } from '../../model/scope.ts';
import { wholeCluster } from '../../model/scope.ts';
import type { PerServiceOptions } from '../../output/metrics/service-rows.ts';
import { perServiceModes } from '../../output/metrics/service-rows.ts';
import type { ReportFormat } from '../../output/text/report.ts';
import { defaultMaxEndpointsPerSlice } from '../../shadow/endpointslice.ts';
import type { Release } from '../../shadow/release.ts';
import {
  formats,
  parseAddress,
  parseCIDRs,
  parseCount,
  parseDuration,
  parseFormat,
  parseIPs,
  parseNames,
  parseRelease,
  parseService,
  parseShard,
  parseSize,
} from './flags.ts';

/** Parameters of the audit. */
export interface AuditFlags {
  readonly kubernetesVersion?: Release;
  readonly maxEndpointsPerSlice: number;
  readonly settle: number;
}

/** Form of a report. */
export interface ReportFlags {
  readonly output: ReportFormat;
  readonly namespace?: string;
}

/** A live cluster, and the part of it to audit. */
export interface ClusterFlags {
  readonly kubeconfig?: string;
  readonly context?: string;
  readonly namespaces?: readonly string[];
  readonly excludeNamespaces?: readonly string[];
  readonly shard?: Shard;
  readonly endpoints: boolean;
}

/** The node agents, and the credentials for them. */
export interface AgentsFlags {
  readonly agents?: ReturnType<typeof parseService>;
  readonly agentsTokenFile?: string;
  readonly agentsCa?: string;
  readonly agentsCert?: string;
  readonly agentsKey?: string;
  readonly agentsServerName?: string;
}

/** Services with their own series. */
export interface MetricsFlags {
  readonly 'metrics.perService': PerServiceOptions['mode'];
  readonly 'metrics.maxServices': number;
}

export const perServiceOf = (options: MetricsFlags): PerServiceOptions => ({
  mode: options['metrics.perService'],
  max: options['metrics.maxServices'],
});

export const scopeOf = ({ namespaces, excludeNamespaces, shard }: ClusterFlags): Scope => ({
  namespaces: namespaces ?? null,
  excluded: excludeNamespaces ?? [],
  shard: shard ?? null,
});

const ignore = (): void => undefined;

/** The options of an auditor of a recording or a dump that prints no findings as they open. */
export const auditorOptions = (
  { settle, kubernetesVersion, maxEndpointsPerSlice }: AuditFlags,
  onProblem: OnProblem,
): AuditorOptions => ({
  settle,
  release: kubernetesVersion ?? null,
  maxEndpointsPerSlice,
  scope: wholeCluster,
  live: false,
  onOpen: ignore,
  onResolve: ignore,
  onJourney: ignore,
  onProblem,
});

export function withAuditFlags(command: Command): Command {
  return command
    .option(
      '--kubernetes-version <version>',
      'release of the control plane (default: as the input says, else the newest known)',
      parseRelease,
    )
    .option(
      '--max-endpoints-per-slice <count>',
      'the same flag of kube-controller-manager',
      parseCount,
      defaultMaxEndpointsPerSlice,
    )
    .addOption(
      new Option('--settle <duration>', 'how long a difference may stand before it is a finding')
        .argParser(parseDuration)
        .default(30, '30s'),
    );
}

export function withReportFlags(command: Command): Command {
  return command
    .option('-o, --output <format>', `one of ${formats.join(', ')}`, parseFormat, 'table')
    .option('-n, --namespace <name>', 'report this namespace only')
    .addOption(
      new Option('-A, --all-namespaces', 'report every namespace (the default)').conflicts(
        'namespace',
      ),
    );
}

export function withClusterFlags(command: Command): Command {
  return command
    .option('--kubeconfig <file>', 'the kubeconfig file (default: as kubectl finds it)')
    .option('--context <name>', 'the context of it (default: the current one)')
    .option('--namespaces <names>', 'only these, separated by commas', parseNames)
    .option('--exclude-namespaces <names>', 'all but these, separated by commas', parseNames)
    .option('--no-endpoints', 'do not watch Endpoints: only EndpointSlices are judged');
}

export function withShardFlag(command: Command): Command {
  const text = 'only every n-th Service, the i-th from 0, by a hash';
  return command.option('--shard <i/n>', text, parseShard);
}

export function withAgentsFlags(command: Command): Command {
  return command
    .option(
      '--agents <namespace/name>',
      'audit the nodes, too: the headless Service of their agents',
      parseService,
    )
    .option('--agents-token-file <file>', 'the token that the agents ask for')
    .option('--agents-ca <file>', 'who signs the certificates of the agents, PEM')
    .option('--agents-cert <file>', 'our certificate for the agents, PEM')
    .option('--agents-key <file>', 'its key, PEM')
    .option(
      '--agents-server-name <name>',
      "the name in the agents' certificates (default: NAME.NAMESPACE.svc)",
    );
}

const liveFlags = new Set(
  withShardFlag(withAgentsFlags(withClusterFlags(new Command()))).options.map((option) =>
    option.attributeName(),
  ),
);

/**
 * Rejects the flags of a live cluster, and those in `others`, when the command reads `instead`. A
 * flag without an effect must not look as if it had one.
 */
export function refuseLive(command: Command, instead: string, others: readonly string[]): void {
  for (const option of command.options) {
    const name = option.attributeName();
    if (!liveFlags.has(name) && !others.includes(name)) continue;
    if (command.getOptionValueSource(name) !== 'cli') continue;
    command.error(`error: option '${option.flags}' is of no use with ${instead}`);
  }
}

/** The flags of the node agent. */
export function withAgentCommandFlags(command: Command): Command {
  return command
    .addOption(
      new Option('--listen <address>', 'where to answer')
        .argParser(parseAddress)
        .default({ host: '127.0.0.1', port: 9466 }, '127.0.0.1:9466'),
    )
    .option('--node <name>', 'name of the Node object (default: the name of the host)')
    .option(
      '--node-ips <addresses>',
      'its addresses (default: the first of each family)',
      parseIPs,
      [],
    )
    .option('--pod-cidrs <ranges>', 'the ranges of its pods', parseCIDRs, [])
    .option('--proxy-config <file>', "kube-proxy's configuration file, to be sent along")
    .addOption(
      new Option('--interval <duration>', 'the least time between two rounds')
        .argParser(parseDuration)
        .default(30, '30s'),
    )
    .addOption(
      new Option('--deadline <duration>', 'how long each program may take')
        .argParser(parseDuration)
        .default(60, '60s'),
    )
    .addOption(
      new Option('--max-size <size>', 'how much each program may print')
        .argParser(parseSize)
        .default(512 * 1024 * 1024, '512Mi'),
    )
    .option('--token-file <file>', 'the token that who asks must have')
    .option('--tls-cert <file>', 'certificate, PEM')
    .option('--tls-key <file>', 'its key, PEM')
    .option('--client-ca <file>', 'who asks must have a certificate of this authority, PEM');
}

export function withMetricsFlags(command: Command): Command {
  return command
    .addOption(
      new Option('--metrics.per-service <which>', 'Services that have series of their own')
        .choices(perServiceModes)
        .default('findings'),
    )
    .option(
      '--metrics.max-services <count>',
      'at most so many Services have them',
      parseCount,
      1000,
    );
}

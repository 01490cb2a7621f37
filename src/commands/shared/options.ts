// The flags that several commands share, and the options that the auditor makes of them. Each flag
// is defined once.

import type { Command } from 'commander';
import { Option } from 'commander';

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
  parseNodeFile,
  parseRelease,
  parseRulesFile,
  parseService,
  parseShard,
  parseSize,
  repeated,
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

/** A flag of a command. `parse` gets the text, and the value of the same flag before it. */
export function flag<T>(
  flags: string,
  description: string,
  parse?: (text: string, before?: T) => T,
): Option {
  const option = new Option(flags, description);
  return parse === undefined ? option : option.argParser(parse);
}

const duration = (flags: string, description: string, seconds: number): Option =>
  flag(flags, description, parseDuration).default(seconds, `${seconds}s`);

const flagGroups = {
  audit: [
    flag(
      '--kubernetes-version <version>',
      'release of the control plane (default: as the input says, else the newest known)',
      parseRelease,
    ),
    flag(
      '--max-endpoints-per-slice <count>',
      'the same flag of kube-controller-manager',
      parseCount,
    ).default(defaultMaxEndpointsPerSlice),
    duration('--settle <duration>', 'how long a difference may stand before it is a finding', 30),
  ],
  report: [
    flag('-o, --output <format>', `one of ${formats.join(', ')}`, parseFormat).default('table'),
    flag('-n, --namespace <name>', 'report this namespace only'),
    flag('-A, --all-namespaces', 'report every namespace (the default)').conflicts('namespace'),
  ],
  cluster: [
    flag('--kubeconfig <file>', 'the kubeconfig file (default: as kubectl finds it)'),
    flag('--context <name>', 'the context of it (default: the current one)'),
    flag('--namespaces <names>', 'only these, separated by commas', parseNames),
    flag('--exclude-namespaces <names>', 'all but these, separated by commas', parseNames),
    flag('--no-endpoints', 'do not watch Endpoints: only EndpointSlices are judged'),
  ],
  shard: [flag('--shard <i/n>', 'only every n-th Service, the i-th from 0, by a hash', parseShard)],
  rules: [
    flag(
      '--rules <node=file>',
      'what iptables-save or nft -j list ruleset says there',
      repeated(parseRulesFile),
    ),
    flag(
      '--proxy-config <node=file>',
      'the KubeProxyConfiguration; without node, of all',
      repeated(parseNodeFile),
    ),
  ],
  agents: [
    flag(
      '--agents <namespace/name>',
      'audit the nodes, too: the headless Service of their agents',
      parseService,
    ),
    flag('--agents-token-file <file>', 'the token that the agents ask for'),
    flag('--agents-ca <file>', 'who signs the certificates of the agents, PEM'),
    flag('--agents-cert <file>', 'our certificate for the agents, PEM'),
    flag('--agents-key <file>', 'its key, PEM'),
    flag(
      '--agents-server-name <name>',
      "the name in the agents' certificates (default: NAME.NAMESPACE.svc)",
    ),
  ],
  metrics: [
    flag('--metrics.per-service <which>', 'Services that have series of their own')
      .choices(perServiceModes)
      .default('findings'),
    flag(
      '--metrics.max-services <count>',
      'at most so many Services have them',
      parseCount,
    ).default(1000),
  ],
  agent: [
    flag('--listen <address>', 'where to answer', parseAddress).default(
      { host: '127.0.0.1', port: 9466 },
      '127.0.0.1:9466',
    ),
    flag('--node <name>', 'name of the Node object (default: the name of the host)'),
    flag(
      '--node-ips <addresses>',
      'its addresses (default: the first of each family)',
      parseIPs,
    ).default([]),
    flag('--pod-cidrs <ranges>', 'the ranges of its pods', parseCIDRs).default([]),
    flag('--proxy-config <file>', "kube-proxy's configuration file, to be sent along"),
    duration('--interval <duration>', 'the least time between two rounds', 30),
    duration('--deadline <duration>', 'how long each program may take', 60),
    flag('--max-size <size>', 'how much each program may print', parseSize).default(
      2 ** 29,
      '512Mi',
    ),
    flag('--token-file <file>', 'the token that who asks must have'),
    flag('--tls-cert <file>', 'certificate, PEM'),
    flag('--tls-key <file>', 'its key, PEM'),
    flag('--client-ca <file>', 'who asks must have a certificate of this authority, PEM'),
  ],
};

/** Adds groups of flags to a command, in their order in the help. */
export function addFlags(
  command: Command,
  ...groups: readonly (keyof typeof flagGroups)[]
): Command {
  for (const group of groups) for (const option of flagGroups[group]) command.addOption(option);
  return command;
}

const liveFlags = new Set(
  [...flagGroups.cluster, ...flagGroups.shard, ...flagGroups.agents].map((option) =>
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

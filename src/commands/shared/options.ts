// The flags that several commands share, and the auditor's options.

import { type Command, Option } from 'commander';

import { severities } from '../../audit/finding/catalogue.ts';
import { unservedWord } from '../../audit/finding/suppressions.ts';
import type { AuditorOptions } from '../../auditor/auditor.ts';
import type { OnProblem } from '../../cluster/decode/problem.ts';
import { createRedactor, type Redactor } from '../../cluster/files/redactor.ts';
import type { LabelSelector } from '../../model/label-selector.ts';
import { dataplaneChoices } from '../../model/proxy-config.ts';
import { listedNamespaces, type Scope, wholeCluster } from '../../model/scope.ts';
import { perServiceModes, type PerServiceOptions } from '../../output/metrics/service-rows.ts';
import { failLevels } from '../../output/text/gate.ts';
import { parseLinkTemplate } from '../../output/text/link-template.ts';
import { defaultMaxEndpointsPerSlice } from '../../shadow/endpointslice.ts';
import type { Release } from '../../shadow/release.ts';
import {
  formats,
  type NodeFile,
  parseAddress,
  parseCIDRs,
  parseCount,
  parseDuration,
  parseFormat,
  parseIgnore,
  parseIPs,
  parseNames,
  parseNodeFile,
  parser,
  parseRelease,
  parseRulesFile,
  parseSelector,
  parseService,
  parseShard,
  parseSize,
  parseTime,
  repeated,
} from './flag-values.ts';
import { type GateFlags, parseFailOn } from './gate.ts';
import { UsageError } from './process.ts';
import { readSuppressions } from './suppressions.ts';

export interface AuditFlags {
  readonly kubernetesVersion?: Release;
  readonly maxEndpointsPerSlice: number;
  readonly settle: number;
  readonly endpoints: boolean;
  /** A file. */
  readonly suppressions?: string;
}

export interface InputFlags {
  readonly input?: readonly string[];
  /** Deprecated: the same as one --input; `true` for the recording of the program (serve). */
  readonly recording?: string | true;
}

export interface ReportFlags extends GateFlags {
  readonly namespace?: string;
  readonly selector?: LabelSelector;
  readonly clusterName?: string;
}

export interface ClusterFlags {
  readonly kubeconfig?: string;
  readonly context?: string;
  readonly cluster?: string;
  readonly user?: string;
  readonly as?: string;
  readonly asGroup?: readonly string[];
  readonly namespaces?: readonly string[];
  readonly excludeNamespaces?: readonly string[];
  readonly shard?: ReturnType<typeof parseShard>;
  readonly endpoints: boolean;
  /** Seconds; 0: no limit. */
  readonly requestTimeout?: number;
}

export interface AgentsFlags {
  readonly agents?: ReturnType<typeof parseService>;
  readonly agentsTokenFile?: string;
  readonly agentsServiceAccount?: ReturnType<typeof parseService>;
  readonly agentsCa?: string;
  readonly agentsCert?: string;
  readonly agentsKey?: string;
  readonly agentsServerName?: string;
}

/** Files of the rules of nodes, and of their KubeProxyConfigurations. */
export interface RulesFlags {
  readonly rules?: readonly NodeFile[];
  readonly proxyConfig?: readonly NodeFile[];
}

export interface RedactionFlags {
  readonly redact?: boolean;
  readonly redactPorts?: boolean;
  readonly redactIps?: boolean;
}

/** A redactor for one file; `null` if no flag wants one. */
export function redactorOf({ redact, redactPorts, redactIps }: RedactionFlags): Redactor | null {
  const [ports, ips] = [redactPorts === true, redactIps === true];
  return redact === true || ports || ips ? createRedactor({ ports, ips }) : null;
}

export interface MetricsFlags {
  readonly metricsPerService: PerServiceOptions['mode'];
  readonly metricsMaxServices: number;
  /** Deprecated names of the same. */
  readonly 'metrics.perService'?: PerServiceOptions['mode'];
  readonly 'metrics.maxServices'?: number;
}

export const perServiceOf = (options: MetricsFlags): PerServiceOptions => ({
  mode: options['metrics.perService'] ?? options.metricsPerService,
  max: options['metrics.maxServices'] ?? options.metricsMaxServices,
});

/** The files that a command names in either way; empty if it names none. */
export const inputsOf = (
  { input = [], recording }: InputFlags,
  paths: readonly string[] = [],
): readonly string[] => [...paths, ...input, ...(typeof recording === 'string' ? [recording] : [])];

/** The only input of a command. Throws a UsageError if there is another number of them. */
export function onlyInput(
  flags: InputFlags,
  paths: readonly string[] = [],
  expected = 'exactly one recording: FILE or --input FILE',
): string {
  const [first, ...others] = inputsOf(flags, paths);
  if (first !== undefined && others.length === 0) return first;
  throw new UsageError(`Expected ${expected}`);
}

/** Each has up to four watches. */
const mostNamespaces = 100;

/** Throws a UsageError if the flags name no namespace, or too many to watch each by itself. */
export function scopeOf(flags: ClusterFlags & Pick<AgentsFlags, 'agents'>): Scope {
  const scope = {
    namespaces: flags.namespaces ?? null,
    excluded: flags.excludeNamespaces ?? [],
    shard: flags.shard ?? null,
    endpoints: flags.endpoints,
    agents: flags.agents !== undefined,
  };
  const listed = listedNamespaces(scope);
  if (listed?.length === 0) throw new UsageError('--exclude-namespaces leaves no --namespaces');
  if (listed !== null && listed.length > mostNamespaces) {
    throw new UsageError(
      `--namespaces: at most ${mostNamespaces}, found ${listed.length} (see --exclude-namespaces)`,
    );
  }
  return scope;
}

const ignore = (): void => undefined;

/** The options of an auditor of a recording or a dump that prints no findings as they open. */
export const auditorOptions = (
  { settle, kubernetesVersion, maxEndpointsPerSlice, endpoints, suppressions }: AuditFlags,
  onProblem: OnProblem,
): AuditorOptions => ({
  settle,
  release: kubernetesVersion ?? null,
  maxEndpointsPerSlice,
  scope: { ...wholeCluster, endpoints },
  live: false,
  suppressions: suppressions === undefined ? [] : readSuppressions(suppressions),
  today: () => Date.now() / 1000,
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

/** The flag of a server's address, on loopback by default. */
export const listenFlag = (description: string, port: number): Option =>
  flag('--listen <address>', description, parseAddress).default(
    { host: '127.0.0.1', port },
    `127.0.0.1:${port}`,
  );

const deprecatedGroup = 'Deprecated options:';

/** Options of a name that another one replaces. They work for one release. */
export const deprecated = (option: Option): Option => option.helpGroup(deprecatedGroup);

export const isDeprecated = ({ helpGroupHeading }: Option): boolean =>
  helpGroupHeading === deprecatedGroup;

const repeatedText = repeated((text) => text);

const momentText =
  'a moment of a history or a recording: Unix seconds, RFC 3339 or HH:MM (default: its end)';

const failOnText =
  'exit with 1 for a finding of this severity or worse; unserved: for a Service without ' +
  'usable endpoints too';

const optionGroups = {
  report: [
    flag('-o, --output <format>', `one of ${formats.join(', ')}`, parseFormat).default('table'),
    flag('-n, --namespace <name>', 'report only this namespace'),
    flag('-A, --all-namespaces', 'report every namespace (the default)').conflicts('namespace'),
    flag(
      '-l, --selector <selector>',
      'report only Services with these labels: app=web,tier!=test',
      parseSelector,
    ),
  ],
  audit: [
    flag(
      '--kubernetes-version <version>',
      'release of the control plane (default: from the input, else the newest known)',
      parseRelease,
    ),
    flag(
      '--max-endpoints-per-slice <count>',
      'the same flag of kube-controller-manager',
      parseCount,
    ).default(defaultMaxEndpointsPerSlice),
    duration('--settle <duration>', 'how long a difference must last to be a finding', 30),
    flag('--no-endpoints', 'audit only EndpointSlices: ignore Endpoints and mirrored slices'),
  ],
  gate: [
    flag('--fail-on <level>', failOnText)
      .choices([...failLevels, ...severities.map((level) => `${level},${unservedWord}`)])
      .argParser(parser(`a severity, unserved, or both: critical,unserved`, parseFailOn))
      .default(parseFailOn('warning'), 'warning'),
    flag(
      '--ignore <code[:namespace/service]>',
      'accept these findings; repeat it for more',
      repeated(parseIgnore),
    ),
    flag('--baseline <file>', 'accept the findings of an earlier report (-o json)'),
  ],
  input: [flag('--input <file>', 'a dump or a recording; repeat it for more files', repeatedText)],
  recording: [deprecated(flag('--recording <file>', 'use --input'))],
  cluster: [
    flag('--kubeconfig <file>', 'the kubeconfig file (default: as for kubectl)'),
    flag('--context <name>', 'the context to use (default: the current one)'),
    flag('--cluster <name>', 'the cluster of the kubeconfig to use'),
    flag('--user <name>', 'the user of the kubeconfig to use'),
    flag('--as <name>', 'the user to impersonate'),
    flag('--as-group <name>', 'a group to impersonate; repeat it for more', repeatedText),
    flag(
      '--request-timeout <duration>',
      'give up after this time without an answer of the API server; 0: never (default: 10s)',
      parseDuration,
    ),
    flag('--namespaces <names>', 'only these, separated by commas', parseNames),
    flag('--exclude-namespaces <names>', 'all but these, separated by commas', parseNames),
  ],
  shard: [flag('--shard <i/n>', 'only every n-th Service, the i-th from 0, by a hash', parseShard)],
  access: [
    flag(
      '--auth-filter',
      'answer requests whose bearer token the API server accepts, and that may get ' +
        '/metrics or /endpoint-auditor (the page and the API)',
    ),
  ],
  rules: [
    flag(
      '--rules <node=file>',
      'output of iptables-save or nft -j list ruleset on the node',
      repeated(parseRulesFile),
    ),
    flag(
      '--proxy-config <node=file>',
      'its KubeProxyConfiguration; without node: of all nodes',
      repeated(parseNodeFile),
    ),
  ],
  agents: [
    flag(
      '--agents <namespace/name>',
      'headless Service of the node agents, to audit nodes too',
      parseService,
    ),
    flag('--agents-token-file <file>', 'the token that the agents require'),
    flag('--agents-ca <file>', 'CA of the certificates of the agents, PEM'),
    flag('--agents-cert <file>', 'client certificate for the agents, PEM'),
    flag('--agents-key <file>', 'its key, PEM'),
    flag(
      '--agents-service-account <namespace/name>',
      "accept only agents with a token of this ServiceAccount for a pod of the agent's node",
      parseService,
    ),
    flag(
      '--agents-server-name <name>',
      "name in the agents' certificates (default: NAME.NAMESPACE.svc)",
    ),
  ],
  events: [
    flag('--events', 'write Kubernetes Events on Services that incidents affect (see permissions)'),
  ],
  metrics: [
    flag('--metrics-per-service <which>', 'which Services have series of their own')
      .choices(perServiceModes)
      .default('findings'),
    flag('--metrics-max-services <count>', 'the most Services that have them', parseCount).default(
      1000,
    ),
    deprecated(flag('--metrics.per-service <which>', 'use --metrics-per-service')).choices(
      perServiceModes,
    ),
    deprecated(flag('--metrics.max-services <count>', 'use --metrics-max-services', parseCount)),
  ],
  suppressions: [
    flag('--suppressions <file>', 'YAML list of findings that are accepted until a date'),
  ],
  log: [
    flag('--log-format <format>', 'the form of log lines on stderr')
      .choices(['text', 'json'])
      .default('text'),
  ],
  name: [flag('--cluster-name <name>', 'name of the cluster, shown in reports and on pages')],
  page: [
    flag(
      '--link-template <name=url>',
      'link to another program, with {cluster}, {namespace}, {service}, {node}, {pod} or {metric}',
      repeated(
        parser('NAME=URL with http or https, and known fields in braces', parseLinkTemplate),
      ),
    ),
  ],
  history: [
    flag('--history <folder>', 'keep a history in this folder'),
    flag('--history-size <size>', 'how much it may store (default: 2Gi)', parseSize),
    flag('--history-age <duration>', 'how long it goes back (default: 7d)', parseDuration),
  ],
  moment: [
    flag('--history <folder>', 'audit a moment of a history that serve has recorded'),
    flag('--at <time>', momentText, parseTime),
  ],
  range: [
    flag('--from <time>', 'where to begin: Unix seconds, RFC 3339 or HH:MM', parseTime),
    flag('--to <time>', 'where to end', parseTime),
  ],
  redaction: [
    flag('--redact', 'replace names and labels by hashes, and leave out what is not audited'),
    flag('--redact-ports', 'redact, also the names of ports'),
    flag('--redact-ips', 'redact, also IP addresses; shared prefixes of addresses remain visible'),
  ],
  agent: [
    listenFlag('address to serve reports at', 9466),
    flag('--node <name>', 'name of the Node object (default: the host name)'),
    flag('--node-ips <addresses>', 'IP addresses of the node', parseIPs).default(
      [],
      'the first of each family',
    ),
    flag('--pod-cidrs <ranges>', 'pod CIDRs of the node', parseCIDRs).default([], 'none'),
    flag('--proxy-config <file>', 'configuration file of kube-proxy, to send along'),
    flag('--dataplane <which>', 'what forwards on the node; auto: what has left rules or maps')
      .choices(dataplaneChoices)
      .default('auto'),
    duration('--interval <duration>', 'the least time between two rounds', 30),
    duration('--deadline <duration>', 'how long each program may take', 60),
    flag('--max-size <size>', 'how much each program may print', parseSize).default(
      2 ** 29,
      '512Mi',
    ),
    flag('--collector <socket>', 'the agent with --collect-at that runs the programs'),
    flag('--collect-at <socket>', 'only run the programs, for the agent with --collector'),
    flag('--token-file <file>', 'the token that clients must send'),
    flag('--tls-cert <file>', 'certificate, PEM'),
    flag('--tls-key <file>', 'its key, PEM'),
    flag('--client-ca <file>', 'CA of the certificates that clients must have, PEM'),
    flag('--identity-token-file <file>', 'ServiceAccount token that proves the node to clients'),
  ],
};

type OptionGroup = keyof typeof optionGroups;

const groupHeadings: Readonly<Partial<Record<OptionGroup, string>>> = {
  input: 'Input options:',
  report: 'Report options:',
  audit: 'Audit options:',
  gate: 'Gate options (CI):',
  cluster: 'Cluster options:',
  shard: 'Cluster options:',
  rules: 'Node rules options:',
  agents: 'Node agent options:',
  history: 'History options:',
  moment: 'History options:',
  metrics: 'Metrics options:',
  redaction: 'Redaction options:',
};

const liveOptions = new Set([
  ...optionGroups.cluster,
  ...optionGroups.shard,
  ...optionGroups.access,
  ...optionGroups.agents,
  ...optionGroups.events,
]);

/** Adds groups of flags to a command, in their order in the help. */
export function addFlags(command: Command, ...groups: OptionGroup[]): Command {
  for (const group of groups) {
    command.optionsGroup(groupHeadings[group] ?? 'Options:');
    for (const option of optionGroups[group]) command.addOption(option);
  }
  return command.optionsGroup('Options:');
}

/** Ends with an error if a command reads `input`, and a flag applies only to a live cluster. */
export function refuseLive(command: Command, input: string): void {
  refuse(
    command,
    (option) => liveOptions.has(option),
    (flags) => `option '${flags}' applies only to a live cluster, not to ${input}`,
  );
}

/** Ends with an error if one of these flags is set, which have no effect on `input`. */
export function refuseFlags(command: Command, input: string, names: readonly string[]): void {
  refuse(
    command,
    (option) => names.includes(option.attributeName()),
    (flags) => `option '${flags}' has no effect on ${input}`,
  );
}

function refuse(
  command: Command,
  isRefused: (option: Option) => boolean,
  text: (flags: string) => string,
): void {
  for (const option of command.options) {
    const isSet = command.getOptionValueSource(option.attributeName()) === 'cli';
    if (isSet && isRefused(option)) command.error(`error: ${text(option.flags)}`);
  }
}

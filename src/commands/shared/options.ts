// The flags that several commands share, the parsers of their values, and the auditor's options.

import { isIP } from 'node:net';

import { type Command, InvalidArgumentError, Option } from 'commander';

import { severities } from '../../audit/finding/catalogue.ts';
import type { AuditorOptions } from '../../auditor/auditor.ts';
import type { OnProblem } from '../../cluster/decode/problem.ts';
import { listedNamespaces, type Scope, wholeCluster } from '../../model/scope.ts';
import { perServiceModes, type PerServiceOptions } from '../../output/metrics/service-rows.ts';
import { failLevels, unservedWord } from '../../output/text/gate.ts';
import { parseLinkTemplate } from '../../output/text/link-template.ts';
import { defaultMaxEndpointsPerSlice } from '../../shadow/endpointslice.ts';
import { nameOf, type Release, releaseOf, releases } from '../../shadow/release.ts';
import { type GateFlags, gateFormats, parseFailOn, parseIgnoreRule } from './gate.ts';
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
export function onlyInput(flags: InputFlags, paths: readonly string[] = []): string {
  const [first, ...others] = inputsOf(flags, paths);
  if (first !== undefined && others.length === 0) return first;
  throw new UsageError('Expected exactly one recording: FILE or --input FILE');
}

/** Each has up to four watches. */
const mostNamespaces = 100;

/** Throws a UsageError if the flags name no namespace, or too many to watch each by itself. */
export function scopeOf(flags: ClusterFlags): Scope {
  const scope = {
    namespaces: flags.namespaces ?? null,
    excluded: flags.excludeNamespaces ?? [],
    shard: flags.shard ?? null,
    endpoints: flags.endpoints,
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

/** `read` returns `undefined` for a wrong value. Commander adds flag and value to the message. */
const parser =
  <T>(expected: string, read: (text: string) => T | undefined) =>
  (text: string): T => {
    const value = read(text);
    if (value === undefined) throw new InvalidArgumentError(`Expected ${expected}.`);
    return value;
  };

const oneOf = <T extends string>(names: readonly T[]) =>
  parser(`one of ${names.join(', ')}`, (text) => names.find((name) => name === text));

const formats: readonly GateFlags['output'][] = [
  ...(['table', 'wide', 'json', 'yaml'] as const),
  ...gateFormats,
];

export const parseFormat = oneOf(formats);

export const parseOutput = oneOf(['text', 'json']);

const decimal = /^\d+(?:\.\d+)?$/;

const unitSeconds: Readonly<Record<string, number>> = { ms: 0.001, s: 1, m: 60, h: 3600 };

/** Parses `30s`, `1m30s`, `500ms` or plain seconds; in seconds. */
export const parseDuration = parser('a duration such as 30s, 1m30s or 500ms', (text) => {
  if (decimal.test(text)) return Number(text);
  if (!/^(?:\d+(?:\.\d+)?(?:ms|s|m|h))+$/.test(text)) return undefined;
  const parts = Array.from(text.matchAll(/([\d.]+)([a-z]+)/g));
  return parts.reduce(
    (sum, [, value, unit]) => sum + Number(value) * (unitSeconds[unit ?? ''] ?? 0),
    0,
  );
});

/** Parses a factor over the recording's own speed; `max` is Infinity. */
export const parseSpeed = parser('a factor above 0, such as 1 or 20, or max', (text) => {
  if (text === 'max') return Infinity;
  return Number(text) > 0 && Number(text) !== Infinity ? Number(text) : undefined;
});

/** Parses Unix seconds or RFC 3339; in Unix seconds. */
export const parseTime = parser('Unix seconds or RFC 3339: 2026-11-21T10:56:46Z', (text) => {
  if (decimal.test(text)) return Number(text);
  const time = /^\d{4}-\d\d-\d\dT/.test(text) ? Date.parse(text) / 1000 : Number.NaN;
  return Number.isNaN(time) ? undefined : time;
});

const releaseNames = releases.map(nameOf).join(', ');

export const parseRelease = parser(
  `a release among ${releaseNames}`,
  (text) => releaseOf(text) ?? undefined,
);

export const parseCount = parser('a whole number above 0', (text) =>
  Number.isInteger(Number(text)) && Number(text) >= 1 ? Number(text) : undefined,
);

/** Parsers of several values: of one text with commas, or of a flag that is repeated. */
const listParsers = new Map<unknown, 'commas' | 'repeated'>();

/** How the command line names several values of an option; `null` if it has one. */
export const listForm = ({ parseArg }: Option): 'commas' | 'repeated' | null =>
  listParsers.get(parseArg) ?? null;

/** `emptyName` is how the message names an empty item. */
function parserOfList(what: string, isValid: (item: string) => boolean, emptyName = '""') {
  const parse = (text: string): readonly string[] => {
    const items = text.split(',').map((item) => item.trim());
    const wrong = items.find((item) => !isValid(item));
    if (wrong === undefined) return items;
    const shown = wrong === '' ? emptyName : JSON.stringify(wrong);
    throw new InvalidArgumentError(`Expected ${what} separated by commas, not ${shown}.`);
  };
  listParsers.set(parse, 'commas');
  return parse;
}

const dnsLabel = '[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?';
const isDnsLabel = (name: string): boolean => new RegExp(`^${dnsLabel}$`).test(name);

export const parseNames = parserOfList('namespaces', isDnsLabel, 'an empty name');

export const parseIPs = parserOfList('addresses', (address) => isIP(address) !== 0);

export const parseCIDRs = parserOfList('ranges such as 10.244.1.0/24', (range) => {
  const [, address = '', bits] = /^([^/]*)\/(\d{1,3})$/.exec(range) ?? [];
  const version = isIP(address);
  return version !== 0 && Number(bits) <= (version === 4 ? 32 : 128);
});

export const parseService = parser('a Service as NAMESPACE/NAME', (text) => {
  const [, namespace, name] = new RegExp(`^(${dnsLabel})/(${dnsLabel})$`).exec(text) ?? [];
  return namespace === undefined || name === undefined ? undefined : { namespace, name };
});

export type NodeFile = ReturnType<typeof parseNodeFile>;

/** Parses `NODE=FILE` or `FILE`, which applies to all nodes (`null`). */
export function parseNodeFile(text: string) {
  const [, node, path] = /^([a-z0-9][a-z0-9.-]*)=(.+)$/s.exec(text) ?? [];
  return { node: node ?? null, path: path ?? text };
}

export const parseRulesFile = parser('NODE=FILE', (text) => {
  const file = parseNodeFile(text);
  return file.node === null ? undefined : file;
});

/** Parses `i/n`: the i-th of n shards, from 0. */
export const parseShard = parser('i/n with i from 0 to n - 1, such as 0/3', (text) => {
  const [, ...numbers] = /^(\d{1,4})\/(\d{1,4})$/.exec(text) ?? [];
  const [index = 0, count = 0] = numbers.map(Number);
  return index < count ? { index, count } : undefined;
});

/** Codes are those of docs/findings.md. */
const parseIgnore = parser('CODE or CODE:NAMESPACE/SERVICE of a finding', parseIgnoreRule);

/** Parses bytes: a number, or with a unit: `64Mi`, `1G`. */
export const parseSize = parser('a size such as 64Mi, 1G or 1000000', (text) => {
  const [, value, unit = ''] = /^(\d+(?:\.\d+)?)([kKMG]i?|)$/.exec(text) ?? [];
  const power = ['', 'K', 'M', 'G'].indexOf(unit.charAt(0).toUpperCase());
  const bytes = Math.round(Number(value) * (unit.endsWith('i') ? 1024 : 1000) ** power);
  return bytes >= 1 ? bytes : undefined;
});

/** Parses `host:port`, `[::1]:port`, or `:port` for every address of the machine. */
export const parseAddress = parser('an address such as 127.0.0.1:9465 or :9465', (text) => {
  const [, ipv6, name = '', digits] = /^(?:\[([^\]]+)\]|([^:]*)):(\d+)$/.exec(text) ?? [];
  const host = ipv6 ?? name;
  return Number(digits) <= 65_535 ? { host: host || null, port: Number(digits) } : undefined;
});

function repeated<T>(parse: (text: string) => T) {
  const add = (text: string, before: readonly T[] = []): T[] => [...before, parse(text)];
  listParsers.set(add, 'repeated');
  return add;
}

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

const failOnText =
  'exit with 1 for a finding of this severity or worse; unserved: for a Service without ' +
  'usable endpoints too';

const optionGroups = {
  report: [
    flag('-o, --output <format>', `one of ${formats.join(', ')}`, parseFormat).default('table'),
    flag('-n, --namespace <name>', 'report only this namespace'),
    flag('-A, --all-namespaces', 'report every namespace (the default)').conflicts('namespace'),
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
      '--agents-server-name <name>',
      "name in the agents' certificates (default: NAME.NAMESPACE.svc)",
    ),
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
      'link to another program, with {cluster}, {namespace}, {service}, {node} or {pod}',
      repeated(
        parser('NAME=URL with http or https, and known fields in braces', parseLinkTemplate),
      ),
    ),
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
    duration('--interval <duration>', 'the least time between two rounds', 30),
    duration('--deadline <duration>', 'how long each program may take', 60),
    flag('--max-size <size>', 'how much each program may print', parseSize).default(
      2 ** 29,
      '512Mi',
    ),
    flag('--token-file <file>', 'the token that clients must send'),
    flag('--tls-cert <file>', 'certificate, PEM'),
    flag('--tls-key <file>', 'its key, PEM'),
    flag('--client-ca <file>', 'CA of the certificates that clients must have, PEM'),
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
  metrics: 'Metrics options:',
};

const liveOptions = new Set([
  ...optionGroups.cluster,
  ...optionGroups.shard,
  ...optionGroups.agents,
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

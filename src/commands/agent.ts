// The `agent` command: evaluates the rules of its node and serves the results to the auditor. It
// needs the node's network namespace and CAP_NET_ADMIN, and CAP_NET_RAW for iptables-legacy. For
// the maps of Cilium it needs root, and CAP_BPF up to Linux 5.18.
//
// With --collect-at it only runs the programs, and with --collector it needs no capability. So in a
// pod of two containers, the one that listens on the network of the node has no rights on it.
//
// The agent is idle most of the time, on every node. The process of the command line, which loads
// more, therefore executes another program (agent-main.ts).

import { once } from 'node:events';
import { existsSync, readFileSync } from 'node:fs';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { isSea } from 'node:sea';

import { defaultLimits, type ProgramLimits } from '../agent/collect.ts';
import { createCollector } from '../agent/collector.ts';
import { nodeArguments } from '../agent/node-arguments.ts';
import { createAgent } from '../agent/schedule.ts';
import { type Access, createAgentServer } from '../agent/server.ts';
import type { DataplaneChoice } from '../model/proxy-config.ts';
import { checkPem } from '../output/http/pem.ts';
import type { LogFormat } from './shared/log.ts';
import type { parseAddress } from './shared/flag-values.ts';
import { stopSignal, UsageError } from './shared/process.ts';

export interface AgentOptions {
  readonly listen: ReturnType<typeof parseAddress>;
  readonly node?: string;
  readonly nodeIps: readonly string[];
  readonly podCidrs: readonly string[];
  readonly proxyConfig?: string;
  readonly interval: number;
  readonly deadline: number;
  readonly maxSize: number;
  readonly dataplane?: DataplaneChoice;
  readonly collector?: string;
  readonly collectAt?: string;
  readonly tokenFile?: string;
  readonly identityTokenFile?: string;
  readonly tlsCert?: string;
  readonly tlsKey?: string;
  readonly clientCa?: string;
  readonly logFormat?: LogFormat;
}

/** No code runs often enough to be compiled, and there is hardly any garbage. */
const flags = [
  ...['--max-semi-space-size=1', '--no-opt', '--no-maglev', '--no-sparkplug', '--expose-gc'],
];

/** Replaces this process by the agent. Throws on platforms without execve, which have no rules. */
export function becomeAgent(options: AgentOptions): never {
  if (options.collectAt === undefined) accessOf(options);
  if (process.execve === undefined) throw new Error(`There are no rules on ${process.platform}`);
  const name = import.meta.filename.endsWith('.ts') ? '../agent-main.ts' : 'agent.cjs';
  const program = join(import.meta.dirname, name);
  if (!isSea() && !existsSync(program)) {
    throw new Error(`${program} is missing: the agent needs the *.cjs files of dist beside it`);
  }
  const args = [process.execPath, ...nodeArguments(flags), program, JSON.stringify(options)];
  // Freed memory returns to the kernel instead of leaving holes in the heap (mallopt(3)).
  const environment = { ...process.env, MALLOC_MMAP_THRESHOLD_: '4096' };
  return process.execve(process.execPath, args, environment);
}

/** Runs the agent until it is stopped. */
export async function agent(options: AgentOptions, stop = stopSignal()): Promise<number> {
  const { deadline, maxSize, dataplane = 'auto' } = options;
  const { collector, collectAt, logFormat = 'text' } = options;
  const limits = { ...defaultLimits, deadlineSeconds: deadline, maxBytes: maxSize, dataplane };
  if (collectAt !== undefined) {
    if (collector !== undefined) throw new UsageError('--collector excludes --collect-at');
    return collectUntil(stop.signal, collectAt, limits);
  }
  const access = accessOf(options);
  const { node, nodeIps, podCidrs, proxyConfig, interval, listen } = options;
  const running = createAgent({
    ...(node === undefined ? {} : { node }),
    nodeIPs: nodeIps,
    podCIDRs: podCidrs,
    proxyConfig:
      proxyConfig === undefined ? null : { source: proxyConfig, text: read(proxyConfig) },
    interval,
    onProblem: (text) => void logProblem(logFormat, text),
    limits,
    ...(collector === undefined ? {} : { collector }),
  });
  const { server, renew } = createAgentServer(running, access);
  server.listen(listen.port, listen.host ?? undefined);
  await once(server, 'listening');
  // It begins only now: a timer would keep the process alive if the port is in use.
  const renewing = setInterval(() => {
    renewAccess(options, renew);
  }, renewalMs);
  const { port } = server.address() as AddressInfo;
  process.stdout.write(`Listening on ${listen.host ?? '*'}:${port}\n`);
  try {
    await running.run(stop.signal);
  } finally {
    clearInterval(renewing);
    server.close();
    server.closeAllConnections();
  }
  return 0;
}

/** Runs the programs for another agent. Rejects if they hang, so that the container restarts. */
async function collectUntil(
  stop: AbortSignal,
  path: string,
  limits: ProgramLimits,
): Promise<number> {
  const collector = createCollector(limits);
  await collector.listen(path);
  process.stdout.write(`Collecting at ${path}\n`);
  if (stop.aborted) collector.close();
  stop.addEventListener('abort', collector.close);
  await collector.closed;
  return 0;
}

/** Between two looks for another token or certificate; the kubelet replaces files in minutes. */
const renewalMs = 30_000;

let renewalProblem = '';

/** Reads the files again. While they cannot be read, what was read before stays valid. */
function renewAccess(options: AgentOptions, renew: (access: Access) => void): void {
  try {
    renew(accessOf(options));
    renewalProblem = '';
  } catch (error) {
    const text = error instanceof Error ? error.message : String(error);
    if (text !== renewalProblem) void logProblem(options.logFormat ?? 'text', text);
    renewalProblem = text;
  }
}

/** Loads the log with its first line, since its 4 MiB would be on every node. */
export async function logProblem(format: LogFormat, text: string): Promise<void> {
  const { createLog } = await import('./shared/log.ts');
  createLog(format)('error', text);
}

const read = (path: string): string => readFileSync(path, 'utf8');

/** Throws an Error for people if any client on the network could read the reports. */
function accessOf(options: AgentOptions): Access {
  const { tokenFile, identityTokenFile, tlsCert, tlsKey, clientCa, listen } = options;
  const { host } = listen;
  const isLoopback = host !== null && /^(?:::1|localhost|127\..*)$/.test(host);
  if ((tlsCert === undefined) !== (tlsKey === undefined)) {
    throw new UsageError('--tls-cert and --tls-key belong together');
  }
  if (clientCa !== undefined && tlsCert === undefined) {
    throw new UsageError('--client-ca needs --tls-cert and --tls-key');
  }
  if (identityTokenFile !== undefined && clientCa === undefined) {
    throw new UsageError('--identity-token-file needs --client-ca');
  }
  const identity = identityTokenFile === undefined ? null : read(identityTokenFile).trim();
  const token = tokenFile === undefined ? null : read(tokenFile).trim();
  if (token === '') throw new Error(`${String(tokenFile)}: The token is empty`);
  // The token becomes a header.
  if (identity !== null && !/^[!-~]+$/.test(identity)) {
    throw new Error(
      `${String(identityTokenFile)}: The token is empty or has other characters than tokens`,
    );
  }
  if (token === null && clientCa === undefined && !isLoopback) {
    throw new UsageError('Listening beyond loopback needs --token-file or --client-ca');
  }
  if (token !== null && tlsCert === undefined && !isLoopback) {
    throw new UsageError('A token beyond loopback needs --tls-cert and --tls-key');
  }
  if (tlsCert === undefined || tlsKey === undefined) return { token, identity, tls: null };
  const cert = checkPem('certificate', read(tlsCert), `--tls-cert ${tlsCert}`);
  const key = checkPem('private key', read(tlsKey), `--tls-key ${tlsKey}`);
  if (clientCa === undefined) return { token, identity, tls: { cert, key } };
  const ca = checkPem('certificate', read(clientCa), `--client-ca ${clientCa}`);
  return { token, identity, tls: { cert, key, ca } };
}

// Runs the credential plugin of a kubeconfig user (k8s.io/client-go@v0.36.3
// plugin/pkg/client/auth/exec/exec.go). ExecAuth of @kubernetes/client-node has no time limit, and
// leaves a plugin that hangs behind. Here a plugin leads a process group, which is killed.

import { spawn } from 'node:child_process';
import { resolve } from 'node:path';

import { type Fields, isFields } from '../../decode/json-fields.ts';
import { MissingCredentials } from './failure.ts';

interface PluginCredentials {
  readonly token: string | null;
  readonly cert: string | null;
  readonly key: string | null;
  /** Unix milliseconds; Infinity if they do not expire. */
  readonly expiresAt: number;
}

/** Seconds that a plugin may take. Upstream has no limit; a person may have to log in. */
const pluginSeconds = 60;

const maxBytes = 1024 * 1024;

/**
 * A plugin and its last credentials. `exec` is the field of the user, `info` the value of
 * KUBERNETES_EXEC_INFO, and `folder` that of the kubeconfig, to which a relative path refers. The
 * signal ends a plugin that runs.
 */
export function createExecPlugin(exec: Fields, info: string, folder: string, signal: AbortSignal) {
  let last: PluginCredentials | null = null;
  let running: Promise<PluginCredentials> | null = null;
  const run = async (): Promise<PluginCredentials> => {
    try {
      return (last = readCredential(await runPlugin(exec, info, folder, signal)));
    } finally {
      running = null;
    }
  };
  return {
    /** One run serves all requests. Rejects with MissingCredentials. */
    credentials: async (): Promise<PluginCredentials> =>
      last !== null && last.expiresAt > Date.now() ? last : (running ??= run()),
    /** The program that is running; `null` if it is not. */
    running: () => (running === null ? null : textOf(exec.command)),
  };
}

const textOf = (value: unknown): string | null =>
  typeof value === 'string' && value !== '' ? value : null;

function runPlugin(
  exec: Fields,
  info: string,
  folder: string,
  signal: AbortSignal,
): Promise<string> {
  const name = textOf(exec.command);
  if (name === null) throw new MissingCredentials('exec', 'the exec plugin has no command');
  // As upstream: a path with a separator is relative to the kubeconfig.
  const command = /[/\\]/.test(name) ? resolve(folder, name) : name;
  const args = Array.isArray(exec.args) ? exec.args.map(String) : [];
  const given = Array.isArray(exec.env) ? (exec.env as unknown[]).filter(isFields) : [];
  const variables = given.map(({ name, value }) => [String(name), String(value)] as const);
  const env = {
    ...process.env,
    ...Object.fromEntries(variables),
    KUBERNETES_EXEC_INFO: info,
  };
  const { promise, resolve: done, reject } = Promise.withResolvers<string>();
  const fail = (why: string, advice: string | null = null): void => {
    reject(new MissingCredentials('exec', `the exec plugin ${name} ${why}`, advice));
  };
  const child = spawn(command, args, { env, detached: true, stdio: ['ignore', 'pipe', 'pipe'] });
  const texts = { out: '', err: '' };
  const kill = (why: string): void => {
    fail(why);
    try {
      if (child.pid !== undefined) process.kill(-child.pid, 'SIGKILL');
    } catch {
      // All its processes have ended.
    }
    child.stdout.destroy();
    child.stderr.destroy();
  };
  const onAbort = (): void => kill('was stopped');
  const timer = setTimeout(
    () => kill(`did not answer within ${pluginSeconds} s`),
    pluginSeconds * 1000,
  );
  const collect = (into: 'out' | 'err') => (text: string) => {
    if (texts[into].length < maxBytes) texts[into] += text;
  };
  child.stdout.setEncoding('utf8').on('data', collect('out'));
  child.stderr.setEncoding('utf8').on('data', collect('err'));
  child.once('error', ({ code, message }: NodeJS.ErrnoException) => {
    if (code === 'ENOENT') fail('is not installed', textOf(exec.installHint));
    else fail(`cannot run: ${message}`);
  });
  child.once('close', (code, ended) => {
    clearTimeout(timer);
    signal.removeEventListener('abort', onAbort);
    if (code === 0) done(texts.out);
    else fail(`failed (${code === null ? String(ended) : `exit code ${code}`})${said(texts.err)}`);
  });
  signal.addEventListener('abort', onAbort);
  if (signal.aborted) onAbort();
  return promise;
}

/** The end of what a plugin wrote, where programs put their errors. */
function said(text: string): string {
  const last = text.trim().split('\n').at(-1)?.trim() ?? '';
  return last === '' ? '' : `: ${last.slice(0, 160)}`;
}

function readCredential(text: string): PluginCredentials {
  let credential: unknown;
  try {
    credential = JSON.parse(text);
  } catch {
    throw new MissingCredentials('exec', 'the exec plugin did not print JSON');
  }
  const status = isFields(credential) && isFields(credential.status) ? credential.status : {};
  const token = textOf(status.token);
  const cert = textOf(status.clientCertificateData);
  const key = textOf(status.clientKeyData);
  if (token === null && cert === null) {
    throw new MissingCredentials('exec', 'the exec plugin printed no token and no certificate');
  }
  const until = Date.parse(textOf(status.expirationTimestamp) ?? '');
  return { token, cert, key, expiresAt: Number.isNaN(until) ? Infinity : until };
}

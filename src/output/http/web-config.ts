// TLS and logins of the web server, from a file as the exporters of Prometheus have it
// (--web.config.file, github.com/prometheus/exporter-toolkit docs/web-configuration.md, v0.14.0).
//
//   tls_server_config:
//     cert_file: tls.crt              # relative to the directory of the file
//     key_file: tls.key
//     client_auth_type: RequireAndVerifyClientCert
//     client_ca_file: ca.crt
//     min_version: TLS13
//   basic_auth_users:
//     prometheus: $2y$10$…            # bcrypt, as `htpasswd -nBC 10 "" | tr -d ':\n'` prints it
//
// The file and those that it names are read again from time to time. Logins, TLS and client
// certificates are not given up by that: a file that was emptied changes nothing. The probes need
// neither a login nor a client certificate, since the kubelet has none. Left out:
// http_server_config, rate_limit, cipher suites, and client authentication that verifies nothing.

import { createHash } from 'node:crypto';
import { readFileSync, statSync } from 'node:fs';
import type { IncomingMessage } from 'node:http';
import { dirname, resolve } from 'node:path';
import { TLSSocket } from 'node:tls';

import { compare } from 'bcryptjs';

import { parseYaml } from '../../cluster/decode/yaml-text.ts';
import { setLatest } from '../../model/collections.ts';
import { checkPem } from './pem.ts';

export type WebConfig = ReturnType<typeof readWebConfig>;

type Fields = Readonly<Record<string, unknown>>;

const tlsVersions = { TLS12: 'TLSv1.2', TLS13: 'TLSv1.3' } as const;
const clientAuthTypes = ['NoClientCert', 'RequireAndVerifyClientCert'] as const;

function fieldsOf(value: unknown, name: string, known: readonly string[] | null): Fields {
  if (value === undefined || value === null) return {};
  if (typeof value !== 'object' || Array.isArray(value)) throw new Error(`${name}: not an object`);
  const odd = Object.keys(value).find((key) => known?.includes(key) === false);
  if (odd !== undefined) {
    throw new Error(`${name}: ${odd} is not supported; these are: ${known?.join(', ') ?? ''}`);
  }
  return value as Fields;
}

function textOf(fields: Fields, name: string): string | undefined {
  const value = fields[name];
  if (value === undefined || typeof value === 'string') return value;
  throw new Error(`${name}: not a text`);
}

function choiceOf<T extends string>(fields: Fields, name: string, choices: readonly T[]) {
  const value = textOf(fields, name);
  const found = choices.find((choice) => choice === value);
  if (value === undefined || found !== undefined) return found;
  throw new Error(`${name}: expected one of ${choices.join(', ')}`);
}

/** The parser needs minutes and GiB for larger files. */
const mostBytes = 1_000_000;

function textIn(path: string): string {
  if (statSync(path).size > mostBytes) throw new Error(`Is larger than ${mostBytes} bytes`);
  return readFileSync(path, 'utf8');
}

function readTls(value: unknown, folder: string) {
  const known = ['cert_file', 'key_file', 'client_ca_file', 'client_auth_type', 'min_version'];
  const fields = fieldsOf(value, 'tls_server_config', known);
  if (Object.keys(fields).length === 0) return null;
  const read = (name: string, kind: Parameters<typeof checkPem>[0]): string | undefined => {
    const path = textOf(fields, name);
    return path === undefined
      ? path
      : checkPem(kind, textIn(resolve(folder, path)), `${name} ${path}`);
  };
  const cert = read('cert_file', 'certificate');
  const key = read('key_file', 'private key');
  const ca = read('client_ca_file', 'certificate');
  if (cert === undefined || key === undefined) {
    throw new Error('tls_server_config: cert_file and key_file are missing');
  }
  const versions = Object.keys(tlsVersions) as (keyof typeof tlsVersions)[];
  const version = choiceOf(fields, 'min_version', versions) ?? 'TLS12';
  const isRequired = choiceOf(fields, 'client_auth_type', clientAuthTypes) === clientAuthTypes[1];
  if (isRequired !== (ca !== undefined)) {
    throw new Error(`client_ca_file belongs to client_auth_type: ${clientAuthTypes[1]}`);
  }
  const minVersion = tlsVersions[version];
  return { cert, key, minVersion, ...(ca === undefined ? {} : { ca }) };
}

/** Reads a configuration. Throws an Error for people. */
export function readWebConfig(path: string) {
  try {
    const all = ['tls_server_config', 'basic_auth_users'];
    const fields = fieldsOf(parseYaml(textIn(path)), 'The file', all);
    const users = new Map<string, string>();
    const given = fieldsOf(fields.basic_auth_users, 'basic_auth_users', null);
    for (const [name, hash] of Object.entries(given)) {
      if (typeof hash !== 'string' || !/^\$2[aby]\$\d\d\$[./A-Za-z0-9]{53}$/.test(hash)) {
        throw new Error(`basic_auth_users: the password of ${name} is no bcrypt hash`);
      }
      users.set(name, hash);
    }
    const tls = readTls(fields.tls_server_config, dirname(path));
    // Exporters serve everyone then. Here an emptied file must not open the server.
    if (tls === null && users.size === 0) throw new Error(`Has none of ${all.join(', ')}`);
    return { tls, users };
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error);
    throw new Error(`${path}: ${message.split('\n', 1)[0] ?? ''}`, { cause: error });
  }
}

/** Seconds between two looks for changed files. */
const renewalSeconds = 10;

/** What a configuration requires of clients. */
const demandsOf = ({ tls, users }: WebConfig): readonly string[] => [
  ...(users.size > 0 ? ['basic_auth_users'] : []),
  ...(tls === null ? [] : ['tls_server_config']),
  ...(tls?.ca === undefined ? [] : ['client_ca_file']),
];

/**
 * Reads a configuration again from time to time. One that cannot be read changes nothing, nor does
 * one that has lost logins, TLS or client certificates, since a file may be read half written. A
 * server without TLS cannot turn it on while it runs.
 */
export function watchWebConfig(
  path: string,
  onChange: (config: WebConfig) => void,
  onError: (text: string) => void,
): () => void {
  let last = readWebConfig(path);
  let problem = '';
  const timer = setInterval(() => {
    try {
      const config = readWebConfig(path);
      const found = demandsOf(config);
      const lost = demandsOf(last).find((demand) => !found.includes(demand));
      if (lost !== undefined)
        throw new Error(`${path}: ${lost} is gone; only a restart removes it`);
      if (last.tls === null && config.tls !== null)
        throw new Error(`${path}: tls_server_config is new; only a restart turns TLS on`);
      if (textOfConfig(config) !== textOfConfig(last)) onChange(config);
      last = config;
      problem = '';
    } catch (error) {
      const text = error instanceof Error ? error.message : String(error);
      if (text !== problem) onError(text);
      problem = text;
    }
  }, renewalSeconds * 1000).unref();
  return () => clearInterval(timer);
}

const textOfConfig = ({ tls, users }: WebConfig) => JSON.stringify([tls, [...users]]);

/** Of a password that is not in use, so that an unknown user takes as long as a known one. */
const otherHash = '$2b$10$N9qo8uLOickgx2ZMRZoMyeIjZAgcfl7p92ldGxad68LJZdL17lhWy';

/** How many right and how many wrong logins are known, and how many may wait for a comparison. */
const loginLimits = { known: 100, waiting: 64, ofClient: 8 };

/** `busy`: too many logins wait to be compared. */
type Access = 'allowed' | 'refused' | 'busy';

/**
 * Compares a password once for all requests that have it at one time. That costs 50 ms of CPU, so
 * one comparison runs at a time. A client with random passwords can neither take all places nor
 * remove the results of right logins.
 */
function createLogins() {
  const [right, wrong] = [new Map<string, Access>(), new Map<string, Access>()];
  const running = new Map<string, { readonly client: string; readonly result: Promise<Access> }>();
  let last: Promise<unknown> = Promise.resolve();
  const isFull = (client: string): boolean => {
    if (running.size >= loginLimits.waiting) return true;
    const own = [...running.values()].filter((it) => it.client === client);
    return own.length >= loginLimits.ofClient;
  };
  const compareNext = async (key: string, password: string, hash: string | undefined) => {
    const comparing = last.then(() => compare(password, hash ?? otherHash));
    last = comparing.catch(() => undefined);
    try {
      const isRight = (await comparing) && hash !== undefined;
      const result = isRight ? 'allowed' : 'refused';
      setLatest(isRight ? right : wrong, key, result, loginLimits.known);
      return result;
    } finally {
      running.delete(key);
    }
  };
  return (password: string, hash: string | undefined, key: string, client: string) => {
    const known = right.get(key) ?? wrong.get(key) ?? running.get(key)?.result;
    if (known !== undefined) return known;
    if (isFull(client)) return 'busy';
    const result = compareNext(key, password, hash);
    running.set(key, { client, result });
    return result;
  };
}

/** A check of logins, and of client certificates where they are required. */
export function createAccessCheck() {
  const accessOf = createLogins();
  return async ({ tls, users }: WebConfig, request: IncomingMessage): Promise<Access> => {
    const { socket, headers } = request;
    const isSigned = tls?.ca === undefined || (socket instanceof TLSSocket && socket.authorized);
    if (!isSigned) return 'refused';
    if (users.size === 0) return 'allowed';
    const [, encoded = ''] = /^Basic +([A-Za-z0-9+/=]+)$/i.exec(headers.authorization ?? '') ?? [];
    const [, name = '', password = ''] =
      /^([^:]*):(.*)$/s.exec(Buffer.from(encoded, 'base64').toString()) ?? [];
    const hash = users.get(name);
    if (encoded === '' || Buffer.byteLength(password) > 72) return 'refused';
    const texts = JSON.stringify([name, password, hash]);
    const key = createHash('sha256').update(texts).digest('base64');
    return accessOf(password, hash, key, socket.remoteAddress ?? '');
  };
}

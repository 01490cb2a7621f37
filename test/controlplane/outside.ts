// The auditor outside the nodes: the program in a namespace of its own, with agents to ask, and
// what it serves. Its keys are made here: one authority for the agents' certificate and for its
// own.

import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { request } from 'node:http';
import { join } from 'node:path';

import type { Account } from './account.ts';
import { program } from './auditor.ts';
import type { Running, Space } from './netns.ts';
import { script } from './netns.ts';

/** The Service of the agents. */
export const agents = { namespace: 'auditor', name: 'agents' } as const;

export interface Keys {
  readonly ca: string;
  readonly cert: string;
  readonly key: string;
  readonly file: (name: string) => string;
}

/** An authority, a certificate for all agents, and one for the auditor. */
export function writeKeys(folder: string): Keys {
  const openssl = (...args: readonly string[]): void => {
    execFileSync('openssl', args, { cwd: folder, stdio: 'pipe' });
  };
  const ec = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2'];
  const own = ['-keyout', 'agents-ca.key', '-out', 'agents-ca.crt'];
  openssl('req', '-x509', ...ec, '-subj', '/CN=agents-ca', ...own);
  const dns = `subjectAltName=DNS:${agents.name}.${agents.namespace}.svc`;
  const of = { agent: dns, client: 'extendedKeyUsage=clientAuth' };
  for (const [name, extension] of Object.entries(of)) {
    openssl(
      ...['req', '-x509', ...ec, '-subj', `/CN=${name}`],
      ...['-CA', 'agents-ca.crt', '-CAkey', 'agents-ca.key', '-addext', extension],
      ...['-addext', 'basicConstraints=critical,CA:FALSE'],
      ...['-keyout', `${name}.key`, '-out', `${name}.crt`],
    );
  }
  const file = (name: string): string => join(folder, name);
  const read = (name: string): string => readFileSync(file(name), 'utf8');
  return { ca: read('agents-ca.crt'), cert: read('agent.crt'), key: read('agent.key'), file };
}

/** A finding about a node. */
export interface NodeFound {
  readonly code: string;
  readonly severity: string;
  readonly output: string;
  readonly node: string | null;
  readonly namespace: string;
  readonly service: string;
  readonly openedAt: number;
  readonly resolvedAt: number | null;
}

export interface Outside {
  /** Those about nodes, above information. */
  readonly findings: () => Promise<{ standing: NodeFound[]; resolved: NodeFound[] }>;
  readonly get: (path: string) => Promise<string>;
  /** Where it serves, over the file system. */
  readonly socket: string;
  readonly running: Running;
}

function ask(socketPath: string, path: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const asked = request({ socketPath, path, timeout: 10_000, agent: false }, (response) => {
      let text = '';
      response.setEncoding('utf8');
      response.on('data', (part: string) => (text += part));
      response.on('end', () => {
        resolve(text);
      });
    });
    asked.on('error', reject);
    asked.on('timeout', () => asked.destroy(new Error(`${path}: no answer`)));
    asked.end();
  });
}

export interface OutsideOptions {
  readonly space: Space;
  readonly folder: string;
  readonly keys: Keys;
  readonly token: string;
  readonly account: Account;
  /** Seconds. */
  readonly settle: number;
}

/** Starts the bridge to the space and the auditor in it. */
export function startOutside(options: OutsideOptions): Outside & { readonly bridge: Running } {
  const { space, folder, keys, token, account, settle } = options;
  const socket = join(folder, 'auditor.sock');
  const carried = [`127.0.0.1:6443=${join(folder, 'api.sock')}`, `${socket}=127.0.0.1:9465`];
  const command = [process.execPath, script('bridge.ts'), ...carried];
  const bridge = space.start(command, join(folder, 'bridge.log'));
  writeFileSync(join(folder, 'agents-token'), token);
  const args = ['serve', '--kubeconfig', account.kubeconfig, '--settle', `${settle}s`];
  const asking = [
    ...['--agents', `${agents.namespace}/${agents.name}`],
    ...['--agents-token-file', join(folder, 'agents-token')],
    ...['--agents-ca', keys.file('agents-ca.crt')],
    ...['--agents-cert', keys.file('client.crt'), '--agents-key', keys.file('client.key')],
  ];
  const all = [process.execPath, program, ...args, ...asking, '--listen', '127.0.0.1:9465'];
  const running = space.start(all, join(folder, 'auditor-nodes.log'));
  return {
    running,
    bridge,
    socket,
    get: (path) => ask(socket, path),
    async findings() {
      const text = await ask(socket, '/api/v1/findings');
      const { standing, resolved } = JSON.parse(text) as {
        standing: NodeFound[];
        resolved: NodeFound[];
      };
      const isLoud = ({ output, severity }: NodeFound): boolean =>
        output === 'node' && severity !== 'info';
      return { standing: standing.filter(isLoud), resolved: resolved.filter(isLoud) };
    },
  };
}

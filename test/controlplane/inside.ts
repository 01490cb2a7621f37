// Programs that run inside of a network namespace: `inside.ts carry LISTEN=TARGET…` and
// `inside.ts agent SETTINGS`.

import type { Server, Socket } from 'node:net';
import { connect, createServer } from 'node:net';
import { appendFileSync, readFileSync } from 'node:fs';
import { zstdDecompressSync } from 'node:zlib';

import { defaultLimits, type ProgramLimits } from '../../src/agent/collect.ts';
import type { ScheduledAgent } from '../../src/agent/schedule.ts';
import { createAgent } from '../../src/agent/schedule.ts';
import type { Access } from '../../src/agent/server.ts';
import { createAgentServer } from '../../src/agent/server.ts';

// Carries connections between network namespaces: run inside of one, it listens at each `LISTEN`
// and connects to its `TARGET`, given as LISTEN=TARGET. Each is `host:port` or the path of a socket
// in the file system, which all namespaces share: so nothing has to be routed between them.

type Place = { readonly path: string } | { readonly host: string; readonly port: number };

function placeOf(text: string): Place {
  if (text.startsWith('/')) return { path: text };
  const colon = text.lastIndexOf(':');
  return { host: text.slice(0, colon), port: Number(text.slice(colon + 1)) };
}

/** Begins to carry; resolves when it listens. */
export function carry(from: string, to: string): Promise<Server> {
  const target = placeOf(to);
  const server = createServer((near) => {
    const far = connect(target);
    const join = (one: Socket, other: Socket): void => {
      one.pipe(other);
      one.on('error', () => other.destroy());
      // Not before the last bytes are sent.
      one.on('close', () => other.destroySoon());
    };
    join(near, far);
    join(far, near);
  });
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(placeOf(from), () => {
      resolve(server);
    });
  });
}

/** Carries connections of every `LISTEN=TARGET`, and says so when it listens everywhere. */
async function carryAll(pairs: readonly string[]): Promise<void> {
  for (const text of pairs) {
    const [from = '', to = ''] = text.split('=');
    await carry(from, to);
  }
  process.stdout.write('carrying\n');
}

// The agent of a node with a shorter rest between rounds than it would have, so that a test need
// not wait for minutes; it is the same in all else. Its settings are one JSON document.

export interface QuickAgent {
  readonly node: string;
  readonly nodeIPs: readonly string[];
  readonly podCIDRs: readonly string[];
  /** A file, if there is a kube-proxy. */
  readonly proxyConfig?: string;
  readonly dataplane?: ProgramLimits['dataplane'];
  /** A file for the rules of each round, as lines of a recording. */
  readonly rounds: string;
  readonly interval: number;
  readonly share: number;
  readonly host: string;
  readonly port: number;
  readonly access: Access;
}

/** Writes the rules of each new round; `seenAt` is when its report could be read. */
function createRoundLog({ node, rounds }: QuickAgent, { report }: ScheduledAgent): () => void {
  let round = '';
  const texts = new Map<string, string>();
  return () => {
    const published = report();
    if (published === null || published.round === round || published.packed === null) return;
    round = published.round;
    const now = performance.now() / 1000;
    const seenAt = Date.now() / 1000;
    const at = Math.round((seenAt - now + published.at) * 1000) / 1000;
    for (const { program, bytes } of published.packed.dumps) {
      const { name: tool, family } = program;
      const text = zstdDecompressSync(bytes).toString();
      const rules = texts.get(tool) === text ? { unchanged: true } : { text };
      texts.set(tool, text);
      const line = { kind: 'node-rules', at, seenAt, node, tool };
      const whole = { ...line, family: family === 'ip' ? 'IPv4' : 'IPv6', ...rules };
      appendFileSync(rounds, `${JSON.stringify(whole)}\n`);
    }
  };
}

async function runAgent(settings: string): Promise<void> {
  const given = JSON.parse(settings) as QuickAgent;
  const { proxyConfig: source, dataplane = 'auto', host, port, access, ...others } = given;
  const proxyConfig = source === undefined ? null : { source, text: readFileSync(source, 'utf8') };
  const limits = { ...defaultLimits, dataplane };
  const onProblem = (text: string): void => void process.stderr.write(`${text}\n`);
  const agent = createAgent({ ...others, proxyConfig, limits, onProblem });
  createAgentServer(agent, access).server.listen(port, host);
  setInterval(createRoundLog(given, agent), 100);
  // For the test, which must know how long to wait.
  setInterval(() => {
    const { last, pause } = agent.cost();
    process.stdout.write(`${JSON.stringify({ last, pause })}\n`);
  }, 1000);
  await agent.run(new AbortController().signal);
}

if (import.meta.main) {
  const [, , kind, ...words] = process.argv;
  if (kind === 'carry') await carryAll(words);
  else await runAgent(words[0] ?? '{}');
}

// The collector: a process that only runs the programs that need NET_ADMIN, and hands their output
// to the agent over a Unix socket. It takes no input: each connection is a request. So the process
// that others on the network can reach needs no capability.
//
// The answer is a line of JSON, which has the number of bytes of each dump, and then the dumps.

import { once } from 'node:events';
import { chmodSync, rmSync } from 'node:fs';
import { connect, createServer, type Socket } from 'node:net';
import { buffer } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';

import { collect, deadlineOf, nothingCollected } from './collect.ts';
import type { CollectedDump, CollectedRules, ProgramLimits } from './collect.ts';

/** The line of JSON of an answer. */
interface Header extends Omit<CollectedRules, 'dumps'> {
  readonly dumps: readonly (Omit<CollectedDump, 'bytes'> & { readonly bytes: number })[];
}

/** Connections at one time; the agent has one. Each is served after the one before it. */
const mostConnections = 4;

/** How long an agent may read nothing of its answer. */
const idleMs = 10_000;

/** Owner and group of the socket may connect: the agent has another user, and the same group. */
const socketMode = 0o660;

/** A collector that does not listen yet. `closed` rejects if the programs hang. */
export function createCollector(limits: ProgramLimits) {
  const server = createServer();
  server.maxConnections = mostConnections;
  const seconds = deadlineOf(limits);
  const onHang = () =>
    server.emit('error', new Error(`The programs did not end within ${seconds} s`));
  const closed = once(server, 'close');
  // The error of a socket that cannot be created is that of `listen`.
  closed.catch(() => undefined);
  let last = Promise.resolve();
  server.on('connection', (socket) => {
    // An agent that has ended needs no answer.
    socket.on('error', () => undefined);
    // Input is thrown away. Unread, it would hide the end of the connection.
    socket.resume();
    const ended = new Promise((resolve) => socket.once('close', resolve));
    last = last.then(async () => {
      if (socket.destroyed) return;
      const late = setTimeout(onHang, seconds * 1000);
      const rules = await collect(limits);
      clearTimeout(late);
      send(socket, rules);
      await ended;
      globalThis.gc?.({ type: 'major', flavor: 'last-resort' });
    });
  });
  return {
    async listen(path: string): Promise<void> {
      // Of a collector that was killed.
      rmSync(path, { force: true });
      server.listen(path);
      await once(server, 'listening');
      chmodSync(path, socketMode);
    },
    close: () => void server.close(),
    closed,
  };
}

function send(socket: Socket, { dumps, ...rules }: CollectedRules): void {
  const sizes = dumps.map(({ program, bytes }) => ({ program, bytes: bytes.length }));
  socket.write(`${JSON.stringify({ ...rules, dumps: sizes } satisfies Header)}\n`);
  for (const { bytes } of dumps) socket.write(bytes);
  socket.setTimeout(idleMs, () => socket.destroy());
  socket.end();
}

/** The collector may begin after the agent. */
const patience = { tries: 20, pauseMs: 500 };

/** What the collector at a socket collects now. Never rejects: the problem is in the result. */
export async function collectFrom(path: string, { tries, pauseMs } = patience) {
  for (let left = tries - 1; ; left--) {
    try {
      return readAnswer(await buffer(connect(path)));
    } catch (error) {
      const { code = '', message } = error as NodeJS.ErrnoException;
      const isThere = code !== 'ENOENT' && code !== 'ECONNREFUSED';
      if (isThere || left <= 0) return nothingCollected(`the collector did not answer: ${message}`);
      await sleep(pauseMs);
    }
  }
}

/** Throws an Error if the answer is cut off. */
function readAnswer(answer: Buffer): CollectedRules {
  const end = answer.indexOf('\n');
  if (end < 0) throw new Error('the answer is empty');
  const { dumps, ...rules } = JSON.parse(answer.toString('utf8', 0, end)) as Header;
  let at = end + 1;
  const read = dumps.map(({ program, bytes }) => {
    at += bytes;
    return { program, bytes: answer.subarray(at - bytes, at) };
  });
  if (at !== answer.length) throw new Error(`the answer has ${answer.length} bytes, not ${at}`);
  return { dumps: read, ...rules };
}

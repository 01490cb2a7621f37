// Carries connections between network namespaces: run inside of one, it listens at each `LISTEN`
// and connects to its `TARGET`, given as LISTEN=TARGET. Each is `host:port` or the path of a socket
// in the file system, which all namespaces share: so nothing has to be routed between them.

import type { Server, Socket } from 'node:net';
import { connect, createServer } from 'node:net';

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
      one.on('close', () => other.destroy());
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

if (import.meta.filename === process.argv[1]) {
  for (const text of process.argv.slice(2)) {
    const [from = '', to = ''] = text.split('=');
    await carry(from, to);
  }
  process.stdout.write('carrying\n');
}

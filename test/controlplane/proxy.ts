// A connection between the auditor and the API server that can be cut, or blocked so that nothing
// comes through and neither side notices, as when a packet filter forgets a connection. All others
// reach the API server by themselves: what the auditor does not see goes on.

import { once } from 'node:events';
import type { AddressInfo, Socket } from 'node:net';
import { connect, createServer } from 'node:net';

export interface Proxy {
  /** `https://127.0.0.1:1234`. */
  readonly server: string;
  /** Resets all connections. */
  readonly cut: () => void;
  /** Holds all that is said on connections, old and new, until `release`. */
  readonly hold: () => void;
  readonly release: () => void;
  readonly close: () => void;
}

export async function startProxy(server: string): Promise<Proxy> {
  const port = Number(new URL(server).port);
  const sockets = new Set<Socket>();
  let held = false;
  const keep = (socket: Socket, other: Socket): void => {
    sockets.add(socket);
    socket.on('data', (bytes) => {
      if (!other.write(bytes)) socket.pause();
    });
    other.on('drain', () => {
      if (!held) socket.resume();
    });
    if (held) socket.pause();
    socket.on('end', () => other.end());
    socket.on('error', () => other.destroy());
    socket.on('close', () => {
      sockets.delete(socket);
      other.destroy();
    });
  };
  const listener = createServer((near) => {
    const far = connect(port, '127.0.0.1');
    keep(near, far);
    keep(far, near);
  });
  listener.listen(0, '127.0.0.1');
  await once(listener, 'listening');
  const cut = (): void => {
    for (const socket of sockets) socket.resetAndDestroy();
  };
  return {
    server: `https://127.0.0.1:${(listener.address() as AddressInfo).port}`,
    cut,
    hold: () => {
      held = true;
      for (const socket of sockets) socket.pause();
    },
    release: () => {
      held = false;
      for (const socket of sockets) socket.resume();
    },
    close: () => {
      cut();
      listener.close();
    },
  };
}

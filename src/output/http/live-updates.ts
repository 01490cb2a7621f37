// Live updates of open pages, as server-sent events. Each second a page gets the input's clock,
// whether it moves, and a revision: a text that changes if the page would look different. A page
// with an old revision loads itself again (page/browser/). So the server renders only open pages.

import type { IncomingMessage, ServerResponse } from 'node:http';

import { createChannel, createSession } from 'better-sse';

export interface LiveUpdate {
  readonly revision: string;
  /** The input's clock, formatted. */
  readonly moment: string;
}

export interface LiveUpdates {
  /** Sends events until the request is closed; false if too many pages are open. */
  follow(request: IncomingMessage, response: ServerResponse): Promise<boolean>;
  /** Ends all responses. */
  close(): void;
}

const everyMs = 1000;

/** The maximum number of open pages. */
const maxSessions = 200;

/** Calls `read` once a second while a page is open. */
export function createLiveUpdates(read: () => LiveUpdate): LiveUpdates {
  const channel = createChannel();
  const open = new Set<ServerResponse>();
  let timer: NodeJS.Timeout | null = null;
  let last: LiveUpdate | null = null;
  const broadcast = (): void => {
    const now = read();
    const moving = now.moment !== last?.moment;
    last = now;
    channel.broadcast({ ...now, moving }, 'beat');
  };
  const leave = (response: ServerResponse): void => {
    open.delete(response);
    if (open.size > 0 || timer === null) return;
    clearInterval(timer);
    timer = null;
  };
  return {
    async follow(request, response) {
      if (open.size >= maxSessions) return false;
      open.add(response);
      response.once('close', () => {
        leave(response);
      });
      const session = await createSession(request, response, { keepAlive: null });
      if (!session.isConnected) return true;
      channel.register(session);
      session.push({ ...read(), moving: true }, 'beat');
      timer ??= setInterval(broadcast, everyMs).unref();
      return true;
    },
    close() {
      for (const response of open) response.end();
    },
  };
}

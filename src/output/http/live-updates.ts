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

/** The maximum number of open pages. */
const maxSessions = 200;

/** Calls `read` once a second while a page is open. */
export function createLiveUpdates(read: () => LiveUpdate) {
  const channel = createChannel();
  const open = new Set<ServerResponse>();
  let timer: NodeJS.Timeout | undefined;
  let last: LiveUpdate | null = null;
  const broadcast = (): void => {
    const now = read();
    channel.broadcast({ ...now, moving: now.moment !== last?.moment }, 'beat');
    last = now;
  };
  return {
    /** Sends events until the request is closed; false if too many pages are open. */
    async follow(request: IncomingMessage, response: ServerResponse): Promise<boolean> {
      if (open.size >= maxSessions) return false;
      open.add(response);
      response.once('close', () => {
        open.delete(response);
        if (open.size > 0) return;
        clearInterval(timer);
        timer = undefined;
      });
      const session = await createSession(request, response, { keepAlive: null });
      if (!session.isConnected) return true;
      channel.register(session);
      session.push({ ...read(), moving: true }, 'beat');
      timer ??= setInterval(broadcast, 1000).unref();
      return true;
    },
    /** Ends all responses. */
    close: (): void => {
      for (const response of open) response.end();
    },
  };
}

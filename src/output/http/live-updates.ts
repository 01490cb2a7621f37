// Server-sent events: once a second, every page that is open is told the input's clock, whether it
// moves, and a revision: another text whenever a page made now would look otherwise. A page that
// is behind asks for itself again (page/browser/), so that nothing is sent that nobody looks at,
// and nothing is done while no page is open.

import type { IncomingMessage, ServerResponse } from 'node:http';

import { createChannel, createSession } from 'better-sse';

/** What is told. */
export interface LiveUpdate {
  readonly revision: string;
  /** The input's clock, for people. */
  readonly moment: string;
}

export interface LiveUpdates {
  /** Answers a request with events until it is closed; false: there are too many already. */
  follow(request: IncomingMessage, response: ServerResponse): Promise<boolean>;
  /** Ends all, for good. */
  close(): void;
}

const everyMs = 1000;

/** Pages that may be open at one time. */
const mostSessions = 200;

/** `look` is asked once a second while a page is open. */
export function createLiveUpdates(look: () => LiveUpdate): LiveUpdates {
  const channel = createChannel();
  const open = new Set<ServerResponse>();
  let timer: NodeJS.Timeout | null = null;
  let last: LiveUpdate | null = null;
  const beat = (): void => {
    const now = look();
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
      if (open.size >= mostSessions) return false;
      open.add(response);
      response.once('close', () => {
        leave(response);
      });
      const session = await createSession(request, response, { keepAlive: null });
      if (!session.isConnected) return true;
      channel.register(session);
      session.push({ ...look(), moving: true }, 'beat');
      timer ??= setInterval(beat, everyMs).unref();
      return true;
    },
    close() {
      for (const response of open) response.end();
    },
  };
}

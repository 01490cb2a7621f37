// Who may read: by logins and client certificates (web-config.ts), and by tokens that the API
// server reviews (--auth-filter), as pkg/metrics/filters of sigs.k8s.io/controller-runtime@v0.23.3
// does it. If both are on, either is enough.
//
// The API server answers requests for /api and other paths of every account. So permission for them
// must not give access to the page: a review asks for a path of its own.

import type { NextFunction, Request, Response } from 'express';

import { sendLine } from './admission.ts';
import { createAccessCheck, type WebConfig } from './web-config.ts';

/** `unauthenticated`: the token is not valid. `unavailable`: the API server cannot review. */
export interface ReviewedAccess {
  readonly kind: 'allowed' | 'unauthenticated' | 'forbidden' | 'unavailable';
  /** For people; empty if it is allowed. */
  readonly why: string;
}

/**
 * Whether the owner of a token may get a path that is no resource. The address of the client limits
 * how many reviews it may cause. Never rejects.
 */
export type ReviewAccess = (token: string, path: string, client: string) => Promise<ReviewedAccess>;

/** The paths of reviews: of the metrics, and of the page and the API. */
const reviewPaths = { metrics: '/metrics', page: '/endpoint-auditor' } as const;

const statuses = { forbidden: 403, unavailable: 503 } as const;

/** Refuses requests without the access that the configuration requires. */
export function requireAccess(config: () => WebConfig, review: ReviewAccess | null) {
  const check = createAccessCheck();
  const refuse = (response: Response, users: WebConfig['users'], why: string): void => {
    const schemes = [
      ...(users.size > 0 ? ['Basic realm="endpoint-auditor"'] : []),
      ...(review === null ? [] : ['Bearer']),
    ];
    if (schemes.length > 0) response.set('WWW-Authenticate', schemes);
    sendLine(response, 401, why);
  };
  return async (request: Request, response: Response, next: NextFunction): Promise<void> => {
    const { tls, users } = config();
    const isOpen = tls === null && users.size === 0 && review === null;
    // Without a wait, the page is made in the same turn of the event loop.
    if (isOpen) {
      next();
      return;
    }
    const [, token] = /^Bearer +(\S+)$/i.exec(request.headers.authorization ?? '') ?? [];
    const isReviewed = review !== null && (token !== undefined || users.size === 0);
    // A review replaces the login, not the client certificate.
    const login = { tls, users: isReviewed ? noUsers : users };
    const access = await check(login, request);
    if (access === 'busy') {
      sendLine(response.set('Retry-After', '5'), 503, 'Too many logins at one time');
      return;
    }
    if (access === 'refused') {
      refuse(response, users, 'Unauthorized');
      return;
    }
    if (!isReviewed) {
      next();
      return;
    }
    // Express ignores case and the last slash.
    const isMetrics = /^\/metrics\/?$/i.test(request.path);
    const path = isMetrics ? reviewPaths.metrics : reviewPaths.page;
    const client = request.socket.remoteAddress ?? '';
    const { kind, why } = token === undefined ? noToken : await review(token, path, client);
    if (kind === 'allowed') next();
    else if (kind === 'unauthenticated') refuse(response, users, `Unauthorized: ${why}`);
    else {
      if (kind === 'unavailable') response.set('Retry-After', '5');
      const name = kind === 'forbidden' ? 'Forbidden' : 'Unavailable';
      sendLine(response, statuses[kind], `${name}: ${why}`);
    }
  };
}

const noUsers: WebConfig['users'] = new Map();

const noToken: ReviewedAccess = { kind: 'unauthenticated', why: 'a bearer token is missing' };

// skeleton

/** One GET request. */
export interface ApiRequest {
  /** `/api/v1/pods`. */
  readonly path: string;
  readonly query: Readonly<Record<string, string>>;
  readonly accept: string;
  /** Ends the request and its body, whenever it is aborted. */
  readonly signal: AbortSignal;
}

export interface ApiAnswer {
  readonly status: number;
  /** Names in lower case. */
  readonly headers: Readonly<Record<string, string | undefined>>;
  /** Throws when the connection is lost before the body is complete. */
  readonly body: AsyncIterable<Uint8Array>;
}

/** Sends one request; rejects when no answer comes. */
export type Ask = (request: ApiRequest) => Promise<ApiAnswer>;

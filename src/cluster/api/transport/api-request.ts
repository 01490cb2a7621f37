// The types of a request to the API server and of its answer.

export interface ApiAnswer {
  readonly status: number;
  /** content-type and retry-after. */
  readonly headers: Readonly<Record<string, string | undefined>>;
  /** Throws when the connection is lost before the body is complete. */
  readonly body: Body;
}

/** One GET request. */
export interface ApiRequest {
  /** `/api/v1/pods`. */
  readonly path: string;
  readonly query: Readonly<Record<string, string>>;
  readonly accept: string;
  /** Ends the request and its body, whenever it is aborted. */
  readonly signal: AbortSignal;
}

/** Sends one request; rejects when no answer comes. */
export type Ask = (request: ApiRequest) => Promise<ApiAnswer>;
export interface Body extends AsyncIterable<Uint8Array> {
  /** Whether another chunk has arrived already; absent if that is unknown. */
  readonly hasMore?: () => boolean;
}

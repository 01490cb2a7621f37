// Client of a running server: requests an explanation over HTTP. The server has already listed the
// cluster, so it answers at once.

import type { ExplainDocument } from '../../output/text/explain.ts';

/** Milliseconds to wait for an answer. */
const timeoutMs = 10_000;

const isDocument = (value: unknown): value is ExplainDocument =>
  typeof value === 'object' &&
  value !== null &&
  'format' in value &&
  value.format === 1 &&
  'kind' in value &&
  value.kind === 'explain';

/** The explanation; a text for people if there is none. */
export async function askServer(
  server: string,
  words: readonly string[],
  namespace: string | null,
): Promise<ExplainDocument | string> {
  const base = server.includes('://') ? server : `http://${server}`;
  if (!URL.canParse(base)) return `--server: expected a URL: ${server}`;
  const url = new URL('api/v1/explain', base.endsWith('/') ? base : `${base}/`);
  for (const word of words) url.searchParams.append('subject', word);
  if (namespace !== null) url.searchParams.set('namespace', namespace);
  let answer: unknown;
  try {
    const response = await fetch(url, { signal: AbortSignal.timeout(timeoutMs) });
    answer = await response.json();
    if (isDocument(answer)) return answer;
    if (typeof answer === 'object' && answer !== null && 'error' in answer) {
      return `${server}: ${String(answer.error)}`;
    }
    const status = String(response.status);
    return `${server} answers ${status}, but not with an explanation: is it serve?`;
  } catch (error) {
    const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
    const why = cause instanceof Error ? cause.message : String(cause);
    return `${server} gives no explanation: ${why}`;
  }
}

// Answers of a running server. It may be any program, so the length of what it sends is bounded.

/** The largest answer that is read. */
const maxBytes = 16 * 1024 * 1024;

/** The body of an answer. Throws an Error for people if it is too long. */
export async function textOf({ body }: Response, most = maxBytes): Promise<string> {
  const pieces: Uint8Array[] = [];
  let bytes = 0;
  for await (const piece of (body ?? []) as AsyncIterable<Uint8Array>) {
    bytes += piece.length;
    if (bytes > most) throw new Error(`its answer is longer than ${String(most)} bytes`);
    pieces.push(piece);
  }
  return Buffer.concat(pieces).toString('utf8');
}

/** The bytes in chunks of these lengths, over and over. */
export async function* chunks(bytes: Uint8Array, lengths: readonly number[] = [1000]) {
  await Promise.resolve();
  for (let start = 0, index = 0; start < bytes.length; index++) {
    const length = Math.max(lengths[index % lengths.length] ?? 1, 1);
    yield bytes.subarray(start, start + length);
    start += length;
  }
}

/** The items of all batches. */
export async function all<T>(batches: AsyncIterable<T[]>): Promise<T[]> {
  const result: T[] = [];
  for await (const batch of batches) result.push(...batch);
  return result;
}

// Sets values of a map that forgets the oldest ones.

/** Sets a value as the latest one, and deletes the oldest if there are more than `most`. */
export function setLatest<K, V>(map: Map<K, V>, key: K, value: V, most: number): void {
  map.delete(key);
  map.set(key, value);
  const [oldest] = map.keys();
  if (map.size > most && oldest !== undefined) map.delete(oldest);
}

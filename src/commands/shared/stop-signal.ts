// How commands that go on are stopped.

/** Is aborted by the first SIGINT or SIGTERM; the second ends the process as usual. */
export function stopSignal(): AbortController {
  const stop = new AbortController();
  const signals = ['SIGINT', 'SIGTERM'] as const;
  const end = (): void => {
    for (const signal of signals) process.off(signal, end);
    stop.abort();
  };
  for (const signal of signals) process.on(signal, end);
  return stop;
}

// Turns of the event loop for the work of answers: one piece of work in each turn, however many
// clients ask. Otherwise each of 64 answers would compute for a while between two probes.

/** Milliseconds for which an answer is computed before other work has its turn. */
const sliceMs = 4;

const waiting: (() => void)[] = [];

function runNext(): void {
  const next = waiting.shift();
  if (waiting.length > 0) setImmediate(runNext);
  next?.();
}

/** Resolves in a turn of the event loop that no other answer has. */
export function awaitTurn(): Promise<void> {
  return new Promise((resolve) => {
    if (waiting.push(resolve) === 1) setImmediate(runNext);
  });
}

/** Returns a function that lets other work run, at most once per slice. */
export function createPause(): () => Promise<void> {
  let ends = performance.now() + sliceMs;
  return async () => {
    if (performance.now() < ends) return;
    await awaitTurn();
    ends = performance.now() + sliceMs;
  };
}

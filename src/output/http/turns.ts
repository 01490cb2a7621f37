// Turns of the event loop for the work of answers: at most one piece of it in a turn, however many
// clients ask. Otherwise each of 64 answers would compute for a while between two probes.
//
// libuv accepts one connection in a turn (since 1.45). So turns without such work follow each piece
// of it: else a probe would wait behind a thousand new connections for as many pieces.

/** Milliseconds for which an answer is computed before other work has its turn. */
const sliceMs = 4;

/** The most turns between two pieces of work, which other work may use for `sliceMs`. */
const turnsBetween = 32;

/** Milliseconds that other work may use while each turn accepts a connection. */
const crowdMs = 200;

let isAccepting = false;

/** Notes that this turn has accepted a connection: behind it there may be many, and a probe. */
export function noteConnection(): void {
  isAccepting = true;
}

const waiting: (() => void)[] = [];

function runNext(): void {
  waiting.shift()?.();
  // What the piece does begins in a microtask, before the next turn.
  setImmediate(passTurns, turnsBetween, null);
}

function passTurns(left: number, since: number | null): void {
  const begun = since ?? performance.now();
  const spent = performance.now() - begun;
  const isCrowd = isAccepting && spent < crowdMs;
  isAccepting = false;
  const isOther = isCrowd || (left > 0 && spent < sliceMs);
  if (isOther) setImmediate(passTurns, isCrowd ? left : left - 1, begun);
  else if (waiting.length > 0) runNext();
  else isRunning = false;
}

let isRunning = false;

/** Resolves in a turn of the event loop that no other answer has. */
export function awaitTurn(): Promise<void> {
  return new Promise((resolve) => {
    waiting.push(resolve);
    if (isRunning) return;
    isRunning = true;
    setImmediate(runNext);
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

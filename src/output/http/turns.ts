// Turns of the event loop for the work of answers: at most one piece of it in a turn, however many
// clients ask. Otherwise each of 64 answers would compute for a while between two probes.
//
// libuv accepts one connection in a turn (since 1.45). So turns without such work follow each piece
// of it: else a probe would wait behind a thousand new connections for as many pieces.

/** Milliseconds for which an answer is computed before other work has its turn. */
const sliceMs = 4;

/** The most turns between two pieces of work, which other work may use for `sliceMs`. */
const turnsBetween = 32;

/**
 * How long answers wait while each turn accepts a connection: milliseconds at one time,
 * milliseconds in succession, and the share of all time. Without the share, a client that opens
 * connections all the time would keep answers out.
 */
const crowd = { once: 200, most: 1000, share: 0.1 };

/** Milliseconds for which answers may wait, computed at this time. */
let credit = { left: crowd.most, at: 0 };

let isAccepting = false;

/** Whether answers wait longer since connections are accepted. */
let isCrowded = false;

/** Notes that this turn has accepted a connection: behind it there may be many, and a probe. */
export function noteConnection(): void {
  isAccepting = true;
}

/** `isOver`: whether no client waits for the answer any more. */
const waiting: { readonly begin: () => void; readonly isOver: () => boolean }[] = [];

function runNext(): void {
  // Requests whose clients have left get no turn: one client could leave thousands of them.
  const place = waiting.findIndex(({ isOver }) => !isOver());
  const taken = waiting.splice(0, place < 0 ? waiting.length : place + 1);
  if (place >= 0) taken.at(-1)?.begin();
  // What the piece does begins in a microtask, before the next turn.
  setImmediate(passTurns, turnsBetween, null);
}

function passTurns(left: number, since: number | null): void {
  const now = performance.now();
  const spent = now - (since ?? now);
  const isCrowd = isAccepting && spent < Math.min(crowd.once, credit.left);
  isAccepting = false;
  if (isCrowd) isCrowded ||= spent >= sliceMs;
  if (isCrowd || (left > 0 && spent < sliceMs)) {
    setImmediate(passTurns, isCrowd ? left : left - 1, since ?? now);
    return;
  }
  const earned = Math.min(credit.left + crowd.share * (now - credit.at), crowd.most);
  credit = { left: earned - (isCrowded ? spent : 0), at: now };
  isCrowded = false;
  if (waiting.length > 0) runNext();
  else isRunning = false;
}

let isRunning = false;

/** Resolves in a turn of the event loop that no other answer has; never if it is over by then. */
export function awaitTurn(isOver = () => false): Promise<void> {
  return new Promise((resolve) => {
    waiting.push({ begin: resolve, isOver });
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

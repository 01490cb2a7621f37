// The body of an answer that is written while it is read.

export interface Stream extends AsyncIterable<Uint8Array> {
  write(chunk: Uint8Array): void;
  end(): void;
  fail(error: Error): void;
  /** The reader has gone, or the stream has ended. */
  readonly closed: boolean;
  /** Calls back once the stream is closed by either side. */
  onClose(call: () => void): void;
}

interface State {
  readonly chunks: Uint8Array[];
  readonly calls: (() => void)[];
  ended: boolean;
  closed: boolean;
  error: Error | null;
  wake: (() => void) | null;
}

function close(state: State): void {
  if (state.closed) return;
  state.closed = true;
  for (const call of state.calls) call();
}

function finish(state: State, error: Error | null): void {
  if (state.ended) return;
  state.ended = true;
  state.error = error;
  close(state);
  state.wake?.();
}

async function* read(state: State): AsyncGenerator<Uint8Array> {
  try {
    while (true) {
      const chunk = state.chunks.shift();
      if (chunk !== undefined) {
        yield chunk;
        continue;
      }
      if (state.error !== null) throw state.error;
      if (state.ended) return;
      await new Promise<void>((resolve) => (state.wake = resolve));
      state.wake = null;
    }
  } finally {
    finish(state, null);
  }
}

/** A stream; when the signal is aborted its reader gets an error. */
export function createStream(signal: AbortSignal): Stream {
  const state: State = {
    chunks: [],
    calls: [],
    ended: false,
    closed: false,
    error: null,
    wake: null,
  };
  const abort = () => finish(state, new Error('aborted'));
  signal.addEventListener('abort', abort);
  state.calls.push(() => signal.removeEventListener('abort', abort));
  return {
    [Symbol.asyncIterator]: () => read(state),
    write(chunk) {
      if (state.ended) return;
      state.chunks.push(chunk);
      state.wake?.();
    },
    end: () => finish(state, null),
    fail: (error) => finish(state, error),
    get closed() {
      return state.closed;
    },
    onClose: (call) => void state.calls.push(call),
  };
}

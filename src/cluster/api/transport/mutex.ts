// Lets one through at a time, in the order of asking.

export interface Gate {
  /** Resolves when it is the caller's turn, with what ends it; calling that again does nothing. */
  enter(): Promise<() => void>;
}

export function createGate(): Gate {
  let last = Promise.resolve();
  return {
    async enter() {
      const before = last;
      let leave: () => void = () => undefined;
      last = new Promise((resolve) => (leave = resolve));
      await before;
      return leave;
    },
  };
}

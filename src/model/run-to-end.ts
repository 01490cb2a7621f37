// Work that is divided into steps: it can be interrupted after each of them.

export type Steps<T = void> = Generator<undefined, T>;

/** Runs all steps without interruption and returns the result. */
export function runToEnd<T>(steps: Steps<T>): T {
  for (;;) {
    const step = steps.next();
    if (step.done === true) return step.value;
  }
}

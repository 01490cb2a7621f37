// Runs work that is divided into steps.

/** Work that can be interrupted after every step. */
export type Steps = Generator<undefined, void>;

/** Runs all steps without interruption. */
export function runToEnd(steps: Steps): void {
  while (steps.next().done !== true);
}

// What the parts of the end-to-end test say: a line for every check, and how many passed.

export interface Tally {
  passed: number;
  failed: number;
}

export function say(line: string): void {
  process.stdout.write(`${line}\n`);
}

/** Counts a check and prints its line; `wrong` is what is wrong with it, a line each. */
export function report(tally: Tally, title: string, wrong: readonly string[]): void {
  if (wrong.length === 0) tally.passed++;
  else tally.failed++;
  say(`${wrong.length === 0 ? 'ok  ' : 'FAIL'} ${title}`);
  for (const line of wrong) say(`     ${line}`);
}

export const secondsSince = (begun: number): number => (performance.now() - begun) / 1000;

export const textOfError = (error: unknown): string =>
  error instanceof Error ? (error.stack ?? error.message) : String(error);

// The signs of life of a reflector. Every step of it has a limit: a request, a pause, its turn to
// list. A reflector that shows no sign of life for longer hangs, whatever the API server does.

/** Seconds beyond the limit of a step, for a machine under load. */
const grace = 60;

export function createHeartbeat(monotonic: () => number) {
  let step = 'its first request';
  let limit = (): number => 0;
  let at = monotonic();
  return {
    /** Begins a step, which shows a sign of life within `seconds`. */
    begin(name: string, seconds: () => number): void {
      [step, limit, at] = [name, seconds, monotonic()];
    },
    /** Notes a sign of life. */
    beat(): void {
      at = monotonic();
    },
    /** What it waits for in vain, for people; `null` if it is alive. */
    overdue(): string | null {
      const seconds = monotonic() - at;
      return seconds <= limit() + grace ? null : `${step} for ${Math.round(seconds)} s`;
    },
  };
}

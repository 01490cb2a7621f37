// What a command prints while a test runs it in this process.

import { vi } from 'vitest';

export interface Printed {
  readonly out: () => string;
  readonly err: () => string;
}

/** Collects what is written from now on, until mocks are restored. */
export function printed(): Printed {
  const texts = { out: '', err: '' };
  const collect = (stream: NodeJS.WriteStream, name: 'out' | 'err'): void => {
    vi.spyOn(stream, 'write').mockImplementation((chunk) => {
      texts[name] += String(chunk);
      return true;
    });
  };
  collect(process.stdout, 'out');
  collect(process.stderr, 'err');
  return { out: () => texts.out, err: () => texts.err };
}

/** What the options of every command on a cluster are when none is given. */
export const usual = {
  settle: 0.3,
  maxEndpointsPerSlice: 100,
  endpoints: true,
  output: 'json',
  'metrics.perService': 'findings',
  'metrics.maxServices': 1000,
} as const;

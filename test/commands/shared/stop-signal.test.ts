import { expect, test } from 'vitest';

import { stopSignal } from '../../../src/commands/shared/stop-signal.ts';

test.each(['SIGTERM', 'SIGINT'] as const)('%s stops', (signal) => {
  const before = process.listenerCount(signal);
  const stop = stopSignal();
  process.emit(signal);
  expect(stop.signal.aborted).toBe(true);
  expect(process.listenerCount(signal)).toBe(before);
});

import { mkdtempSync, rmSync } from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import { defineConfig } from 'vitest/config';

// Tests create their temporary files in one folder, which is removed when the run ends.
const temporary = mkdtempSync(join(tmpdir(), 'endpoint-auditor-test-'));
process.env.TMPDIR = temporary;
// Programs that tests start share compiled modules: to compile them costs two thirds of a start.
process.env.NODE_COMPILE_CACHE ??= join(temporary, 'compiled');
process.once('exit', () => {
  rmSync(temporary, { recursive: true, force: true });
});

/** Slow suites by the ends of their file names; `npm test` leaves them out. */
const slow = {
  // Starts the program many times.
  cli: 'test/**/*.cli.test.ts',
  // Compares all that was recorded of real clusters and nodes, or replays whole recordings.
  recorded: 'test/**/*.recorded.test.ts',
};

export default defineConfig({
  test: {
    pool: 'threads',
    // By default vitest leaves one core idle, and some tests wait.
    maxWorkers: availableParallelism() + 1,
    // Both limits only end tests that hang: a loaded machine may be many times slower.
    testTimeout: 300_000,
    hookTimeout: 300_000,
    expect: { poll: { timeout: 120_000, interval: 20 } },
    teardownTimeout: 10_000,
    projects: [
      {
        extends: true,
        test: {
          name: 'unit',
          include: ['test/**/*.test.ts'],
          exclude: Object.values(slow),
          // Files share the modules of their worker: to load them for each cost a third of it.
          isolate: false,
          // Node runs TypeScript itself. Vite would transform each file, and make calls between
          // files slower. Only Vite can replace modules.
          experimental: { viteModuleRunner: false, nodeLoader: false },
        },
      },
      ...Object.entries(slow).map(([name, pattern]) => ({
        extends: true as const,
        test: { name, include: [pattern] },
      })),
    ],
  },
});

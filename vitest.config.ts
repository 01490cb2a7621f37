import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    pool: 'threads',
    // By default vitest leaves one core idle.
    maxWorkers: '100%',
    // Both limits only end tests that hang: a loaded machine may be many times slower.
    testTimeout: 300_000,
    hookTimeout: 300_000,
    expect: { poll: { timeout: 120_000, interval: 20 } },
    teardownTimeout: 10_000,
  },
});

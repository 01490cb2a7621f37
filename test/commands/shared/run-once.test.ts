import { afterEach, expect, test, vi } from 'vitest';

import { isSettled, auditOnce } from '../../../src/commands/shared/run-once.ts';
import { virtualClock } from '../../apiserver/clock.ts';
import { emptySlice, liveCluster, rawSlice } from '../../clusters.ts';
import { printed, usual } from '../printed.ts';

afterEach(() => {
  vi.restoreAllMocks();
});

const ignore = (): undefined => undefined;

test('ends as soon as whoever asks has seen enough', async () => {
  const { cluster } = liveCluster(emptySlice);
  let looks = 0;
  const auditor = await auditOnce({ ...usual, settle: 3600 }, cluster, ignore, () => ++looks > 1);
  expect(auditor?.serviceAuditor()?.audited.has('shop/web')).toBe(true);
  expect(auditor === null ? null : isSettled(auditor)).toBe(false);
});

test('is settled when nothing differs any more', async () => {
  const { cluster } = liveCluster();
  const auditor = await auditOnce(usual, cluster, ignore, isSettled);
  expect(auditor === null ? null : auditor.nextAt()).toBeNull();
});

test('says why nothing can be read', async () => {
  const clock = virtualClock();
  const { cluster, server } = liveCluster(rawSlice, clock);
  for (const verb of ['list', 'watch']) server.faults.forbidden.add(`${verb} services`);
  const { err } = printed();
  const audited = auditOnce(usual, cluster, ignore, isSettled);
  await clock.runUntil(clock.now() + 120);
  expect(await audited).toBeNull();
  expect(err()).toContain('No Services could be read from https://fake.example');
});

// What every part of the live test has: the control plane, those who act on it, and the auditor.

import { setTimeout as sleep } from 'node:timers/promises';

import type { Account } from './account.ts';
import type { Auditor, Found } from './auditor.ts';
import type { Tally } from './checks.ts';
import { secondsSince } from './checks.ts';
import type { Client } from './client.ts';
import type { ControlPlane } from './controlplane.ts';
import type { Proxy } from './proxy.ts';

export interface Stage {
  readonly plane: ControlPlane;
  readonly client: Client;
  /** Between the auditor and the API server. */
  readonly proxy: Proxy;
  readonly account: Account;
  readonly auditor: Auditor;
  /** Seconds of the settle window. */
  readonly settle: number;
  readonly tally: Tally;
}

/** Findings above information that were opened at a time or later, in Unix seconds. */
export async function loudSince({ findings }: Auditor, from: number): Promise<Found[]> {
  const { standing, resolved } = await findings();
  return [...standing, ...resolved].filter(({ openedAt }) => openedAt >= from);
}

/** A finding in one line, with its times. */
export const textOf = (found: Found): string => JSON.stringify(found);

/** Waits until something is so; returns the seconds it took, null when it was too late. */
export async function awaitSoon(
  isSo: () => boolean | Promise<boolean>,
  seconds: number,
): Promise<number | null> {
  const begun = performance.now();
  for (;;) {
    if (await isSo()) return secondsSince(begun);
    if (secondsSince(begun) > seconds) return null;
    await sleep(50);
  }
}

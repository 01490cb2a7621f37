// Disturbances: what is between the auditor and the truth goes, and comes back. Nothing may be
// found by that, the auditor must see all again soon, and must have counted what happened.
//
// Where only the auditor is cut off, the cluster goes on changing. Where the API server or etcd is
// gone nothing can change, and the controllers, which come back at their own pace, have
// nothing to be late with.

import { setTimeout as sleep } from 'node:timers/promises';

import { report } from './checks.ts';
import { startChurn } from './churn.ts';
import type { Fleet } from './fleet.ts';
import type { Stage } from './stage.ts';
import { awaitSoon, loudSince, textOf } from './stage.ts';

/** Changes a second while the auditor is cut off. */
const rate = 20;

/**
 * Seconds until the auditor must see all again. As upstream's do, its watches wait longer after
 * every failure within two minutes, 30 s and as much again by chance at most.
 */
const within = 75;

interface Disturbance {
  readonly title: string;
  readonly happen: (stage: Stage) => Promise<void>;
  /** Whether the cluster changes meanwhile. */
  readonly churns: boolean;
  /** What must have been counted: the family, and its labels. */
  readonly counted: readonly (readonly [string, Readonly<Record<string, string>>])[];
}

const reconnects: Disturbance['counted'] = [['watch_reconnects_total', {}]];

const isReachable = async ({ client }: Stage): Promise<boolean> => {
  try {
    await client.call('GET', '/readyz');
    return true;
  } catch (error) {
    // What /readyz answers is no JSON.
    return error instanceof SyntaxError;
  }
};

const refused = ['watch_refusals_total', { reason: 'unauthorised' }] as const;

const lateToken: Disturbance = {
  title: 'the token is not replaced before it has been refused',
  async happen({ account, proxy, auditor }) {
    await account.revoke('second');
    await sleep(11_000);
    const before = await auditor.metric(...refused);
    proxy.cut();
    // After the failures of before, its watches may wait for a while until they try again.
    await awaitSoon(async () => (await auditor.metric(...refused)) > before, within);
    await sleep(5000);
    account.write(await account.newToken('third'));
  },
  churns: true,
  counted: [refused],
};

const disturbances = (long: boolean): readonly Disturbance[] => [
  {
    title: 'the watches are cut twice',
    async happen({ proxy }) {
      for (let count = 0; count < 2; count++) {
        proxy.cut();
        await sleep(2000);
      }
    },
    churns: true,
    counted: reconnects,
  },
  {
    title: `nothing comes through for ${long ? 50 : 15} s`,
    async happen({ proxy }) {
      proxy.hold();
      await sleep((long ? 50 : 15) * 1000);
      proxy.release();
    },
    churns: true,
    counted: [],
  },
  {
    title: 'the token is replaced, and the old one is no longer valid',
    async happen({ account, proxy }) {
      account.write(await account.newToken('second'));
      await account.revoke('first');
      // The API server believes in a token that was valid for ten seconds more.
      await sleep(11_000);
      proxy.cut();
    },
    churns: true,
    counted: reconnects,
  },
  // What costs time and is not much else than what was there before.
  ...(long ? [lateToken] : []),
  {
    title: 'the API server is gone for 10 s',
    async happen({ plane }) {
      await plane.killApiserver();
      await sleep(10_000);
      await plane.startApiserver();
    },
    churns: false,
    counted: reconnects,
  },
  {
    title: 'etcd is restarted',
    async happen(stage) {
      await stage.plane.restartEtcd();
      await awaitSoon(() => isReachable(stage), 60);
    },
    churns: false,
    counted: [],
  },
];

const synced = { state: 'synced' };

/** Whether every watch is open and up to date. */
async function seesAll({ auditor }: Stage): Promise<boolean> {
  return (await auditor.metric('watch_state', synced)) === 5;
}

async function countedIn({ auditor }: Stage, { counted }: Disturbance): Promise<readonly number[]> {
  return Promise.all(counted.map(([name, labels]) => auditor.metric(name, labels)));
}

/** Every second, whether it is ready: it may only cease to be when it has not seen for a minute. */
function watchReadiness({ auditor }: Stage, wrong: string[]): () => void {
  const look = async (): Promise<void> => {
    const why = await auditor.notReady();
    const unseen = [...(why ?? '').matchAll(/not seen for (\d+) s/g)].map(([, text]) =>
      Number(text),
    );
    if (why !== null && !(Math.max(...unseen) >= 60)) wrong.push(`not ready: ${why}`);
  };
  const timer = setInterval(() => {
    look().catch((error: unknown) => wrong.push(String(error)));
  }, 1000);
  return () => {
    clearInterval(timer);
  };
}

async function check(stage: Stage, fleet: Fleet, one: Disturbance, seed: number): Promise<void> {
  const { client, auditor, tally, settle } = stage;
  const from = Date.now() / 1000;
  const before = await countedIn(stage, one);
  const wrong: string[] = [];
  const stopWatching = watchReadiness(stage, wrong);
  const churn = one.churns ? startChurn({ client, fleet, rate, seed }) : null;
  await one.happen(stage);
  const hasCounted = async (): Promise<boolean> => {
    const now = await countedIn(stage, one);
    return now.every((count, index) => count > (before[index] ?? 0));
  };
  const took = await awaitSoon(async () => (await hasCounted()) && (await seesAll(stage)), within);
  await churn?.stop();
  const error = churn?.error() ?? null;
  if (error !== null) wrong.push(String(error.stack));
  // Long enough for whatever is wrong to be found.
  await sleep((settle + 2) * 1000);
  stopWatching();
  if (!(await hasCounted())) wrong.push('it has not been counted');
  if (took === null) wrong.push(`not all is seen again after ${within} s`);
  const unknown = await auditor.metric('outputs', { verdict: 'unknown' });
  if (unknown !== 0) wrong.push(`${unknown} outputs unknown`);
  wrong.push(...(await loudSince(auditor, from)).map(textOf));
  const seen = took === null ? '' : `, all is seen again after ${took.toFixed(1)} s`;
  report(tally, `${one.title}: no finding${seen}`, wrong);
}

/** `long`: as long as may be, where the others save time. */
export async function disturb(stage: Stage, fleet: Fleet, long: boolean): Promise<void> {
  for (const [index, one] of disturbances(long).entries()) {
    await check(stage, fleet, one, index + 2);
  }
}

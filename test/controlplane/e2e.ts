// The end-to-end test: `npm run e2e`. Runs the auditor against real control planes, on dumps
// (dumps.ts) and live (live.ts, lags.ts), prints a line for every check and last how many passed.
//
//   --churn 10m      how long the live cluster changes (60s)
//   --version V      only this control plane (several times)
//   --part dumps     only this part: dumps, live, lags or nodes, which needs root (several times)
//   --keep FOLDER    keeps the dumps, whose names are then printed
//
// Without --version: everything on the newest, and a short live test on the others.

import { parseArgs } from 'node:util';

import { parseDuration } from '../../src/commands/shared/flags.ts';
import type { Tally } from './checks.ts';
import { report, say, secondsSince, textOfError } from './checks.ts';
import type { ControlPlane, Options, Version } from './controlplane.ts';
import { newestVersion, startControlPlane, versions } from './controlplane.ts';
import { testDumps } from './dumps.ts';
import { testLags } from './lags.ts';
import { liveFlags, testLive } from './live.ts';
import { testNodes, whyNoNamespaces } from './nodes.ts';

const tally: Tally = { passed: 0, failed: 0 };

/** Starts a control plane, which is torn down whatever happens. */
async function within(
  options: Options & { readonly version: Version },
  what: string,
  test: (plane: ControlPlane) => Promise<void>,
): Promise<void> {
  const begun = performance.now();
  const name = `${options.version}, ${what}`;
  say(`     ${name}: starting; what is not built yet is built first, which takes minutes`);
  let plane: ControlPlane | null = null;
  try {
    plane = await startControlPlane(options);
    say(`     ${name}: up after ${secondsSince(begun).toFixed(1)} s`);
    await test(plane);
  } catch (error) {
    report(tally, name, [textOfError(error)]);
  } finally {
    await plane?.stop();
  }
  say(`     ${name}: done after ${secondsSince(begun).toFixed(1)} s`);
}

const { values } = parseArgs({
  options: {
    churn: { type: 'string', default: '60s' },
    version: { type: 'string', multiple: true },
    part: { type: 'string', multiple: true },
    keep: { type: 'string' },
  },
});

function usage(message: string): never {
  process.stderr.write(`${message}\n`);
  process.exit(2);
}

const wanted = values.version?.map((name) => {
  const version = versions.find((one) => one === name);
  return version ?? usage(`--version ${name}: expected ${versions.join(' or ')}`);
});
const parts = ['dumps', 'live', 'lags', 'nodes'];
const unknown = values.part?.find((part) => !parts.includes(part));
if (unknown !== undefined) usage(`--part ${unknown}: expected ${parts.join(', ')}`);
const isWanted = (part: string): boolean => values.part?.includes(part) ?? true;
const churn = parseDuration(values.churn);

/** What is run of a version, one after the other. */
async function testVersion(version: Version, short: boolean): Promise<void> {
  if (isWanted('live')) {
    const options = { churn: short ? Math.min(churn, 10) : churn, short };
    await within({ version, ...liveFlags }, 'live', (plane) => testLive(plane, options, tally));
  }
  if (isWanted('lags') && !short) {
    await within({ version, ...liveFlags }, 'lags', (plane) => testLags(plane, tally));
  }
  if (isWanted('nodes') && version === newestVersion) {
    const why = whyNoNamespaces();
    if (why === null || process.env.NETNS_TESTS === 'required') {
      await within({ version }, 'nodes', (plane) => testNodes(plane, churn, tally));
    } else say(`     Left out: nodes (${why})`);
  }
  if (isWanted('dumps') && !short) {
    await within({ version }, 'dumps', (plane) => testDumps(plane, values.keep ?? null, tally));
  }
}

for (const version of wanted ?? versions) {
  await testVersion(version, wanted === undefined && version !== newestVersion);
}
say(`${tally.passed} passed, ${tally.failed} failed`);
process.exitCode = tally.failed === 0 ? 0 : 1;

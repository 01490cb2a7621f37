// A server of ten thousand Services that are made up, for what the pages cost when a cluster is
// large: `node test/page/fleet.ts`. It prints its port, changes pods all the time, and on each line
// that it reads prints two figures since the line before, in milliseconds: the most that one answer
// cost, and the longest turn of its loop, whatever was done in it.

import { auditorDefaults } from '../build.ts';
import { createInterface } from 'node:readline';

import express from 'express';

import { createAuditor } from '../../src/auditor/auditor.ts';
import { createQueries } from '../../src/auditor/queries.ts';
import type { Pod } from '../../src/model/objects.ts';
import { resources } from '../../src/model/objects.ts';
import { createApp, listen } from '../../src/output/http/server.ts';
import { createFleet, eventOf, rawObjects } from '../bench/generate.ts';

const begun = 1_795_260_000;

const fleet = createFleet({
  nodes: 500,
  namespaces: 100,
  sizes: [
    { services: 1, pods: 5000 },
    { services: 9999, pods: 3 },
  ],
});
const auditor = createAuditor({ ...auditorDefaults, settle: 1 });
auditor.take({ kind: 'header', at: begun, kubernetes: 'v1.36.3', resources });
for (const resource of resources) {
  let index = 0;
  for (const raw of rawObjects(fleet, resource)) {
    // Every fiftieth Service lacks its Endpoints, so that there is something to find.
    if (resource === 'endpoints' && index++ % 50 === 0) continue;
    const event = eventOf(auditor.store, resource, 'added', raw, 1000, begun);
    auditor.take({ kind: 'event', event });
  }
  auditor.take({ kind: 'synced', resource, at: begun });
}

let now = begun;
const clock = (at: number): void => {
  auditor.take({ kind: 'clock', at });
};
clock((now += 5));

const pods = [...auditor.store.listers.pods.values()];
let next = 0;
let version = 10_000_000;

/** One pod changes its readiness, and no controller writes for it. */
function change(): void {
  const before: Pod | undefined = auditor.store.listers.pods.get(pods[next]?.key ?? '');
  next = (next + 997) % pods.length;
  if (before === undefined) return;
  const object = { ...before, ready: !before.ready, resourceVersion: String(version++) };
  auditor.take({ kind: 'event', event: { resource: 'pods', type: 'modified', object, at: now } });
}

function cpuMillis(): number {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1000;
}

// An answer is made in one go, so that the processor's time for it is how long it holds the loop,
// however busy the machine is with other things.
let longest = 0;
const app = express();
app.use((_request, _response, next) => {
  const before = cpuMillis();
  next();
  longest = Math.max(longest, cpuMillis() - before);
});
const web = createApp(createQueries(auditor, 'fleet'));
app.use(web.express);
const server = await listen({ ...web, express: app }, { host: '127.0.0.1', port: 0 });
setInterval(() => {
  clock((now += 0.05));
  change();
}, 50);
process.stdout.write(`${String(server.port)}\n`);
// As test/bench/turns.ts does it for the program.
let [looked, turn] = [cpuMillis(), 0];
setInterval(() => {
  const now = cpuMillis();
  turn = Math.max(turn, now - looked);
  looked = now;
}, 5);
createInterface({ input: process.stdin }).on('line', () => {
  process.stdout.write(`${longest.toFixed(1)} ${turn.toFixed(1)}\n`);
  [longest, turn] = [0, 0];
});
process.stdin.on('end', () => process.exit(0));

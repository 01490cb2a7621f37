// The alerts on what controllers write, on a real control plane that is audited live:
//
//   churn     hundreds of pods change all the time: no alert
//   faults    the controllers sleep, and every class of fault of the end-to-end test is made that
//             has an alert, with what makes slices many, objects large and changes costly
//   lateness  the controllers put off what they write for longer than the objective allows

import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

import { createAccount } from '../controlplane/account.ts';
import type { Auditor } from '../controlplane/auditor.ts';
import { startAuditor } from '../controlplane/auditor.ts';
import { carry } from '../controlplane/bridge.ts';
import type { Churn } from '../controlplane/churn.ts';
import { startChurn } from '../controlplane/churn.ts';
import type { Client } from '../controlplane/client.ts';
import { awaitSettled, clientOf } from '../controlplane/client.ts';
import type { ControlPlane } from '../controlplane/controlplane.ts';
import { newestVersion, startControlPlane } from '../controlplane/controlplane.ts';
import type { Fleet } from '../controlplane/fleet.ts';
import { injectedFor } from '../controlplane/injected.ts';
import type { Injected, Undo } from '../controlplane/injecting.ts';
import {
  managedBy,
  namespace,
  planOf,
  serviceName,
  sliceNamed,
  slicesIn,
} from '../controlplane/injecting.ts';
import { liveFlags, populate } from '../controlplane/live.ts';
import { createFaulty } from '../controlplane/spoil.ts';
import { awaitSoon } from '../controlplane/stage.ts';
import { shorter } from './arrivals.ts';
import { alerts, codesOf } from './rules.ts';
import type { Expected, Theatre } from './stages.ts';
import { play } from './stages.ts';

/** Enough Nodes to make a change of a large slice costly. */
const size = { services: 72, pods: 600, nodes: 150 };

/** Seconds of the settle window: longer than what is put off. */
const settle = 15;
const putOff = 11;

/** Changes a second. */
const rate = 12;

const within = `/api/v1/namespaces/${namespace}`;

// --- what the end-to-end test does not make, since it is no finding above information ---

/** More slices than would do: those that are too many hold nothing. */
const fragmented: Injected = {
  namespace,
  plan: planOf('fragmented', {}),
  finds: [],
  async spoil({ call }) {
    const { addressType, ports, metadata } = await sliceNamed({ call } as Client, 'fragmented');
    const { labels, ownerReferences } = metadata;
    const names = Array.from({ length: 80 }, (_, index) => `fragmented-${index}`);
    for (const name of names) {
      const copy = { metadata: { name, labels, ownerReferences }, addressType, ports };
      await call('POST', slicesIn, { ...copy, endpoints: [] });
    }
    return async () => {
      for (const name of names) await call('DELETE', `${slicesIn}/${name}`);
    };
  },
};

/** It asks for topology hints, and has too few endpoints for them. */
const unhinted: Injected = {
  namespace,
  plan: planOf('unhinted', { pods: { count: 2, states: ['ready'] } }),
  finds: [],
  async spoil({ call }) {
    const path = `${within}/services/unhinted`;
    const ask = (value: string | null): Promise<unknown> =>
      call('PATCH', path, {
        metadata: { annotations: { 'service.kubernetes.io/topology-mode': value } },
      });
    await ask('Auto');
    return () => ask(null);
  },
};

/** As many endpoints as a slice may have, each with a long reference. */
const longEndpoints = Array.from({ length: 1000 }, (_, index) => ({
  addresses: [`192.0.${2 + (index >> 8)}.${index & 255}`],
  targetRef: { kind: 'Machine', name: 'x'.repeat(1200) },
}));

/** A slice almost as large as can be, which is changed all the time. */
const large: Injected = {
  namespace,
  plan: { name: 'large', spec: { ports: [{ port: 80 }] } },
  finds: [],
  async spoil({ call }) {
    const labels = { [serviceName]: 'large', [managedBy]: 'somebody.example.com' };
    await call('POST', slicesIn, {
      metadata: { name: 'large-1', labels },
      addressType: 'IPv4',
      ports: [{ name: '', port: 80 }],
      endpoints: longEndpoints,
    });
    let isOver = false;
    const changing = async (): Promise<void> => {
      for (let turn = 0; !isOver; turn++) {
        const annotations = { turn: String(turn) };
        await call('PATCH', `${slicesIn}/large-1`, { metadata: { annotations } });
        await sleep(1000);
      }
    };
    const ended = changing();
    return async () => {
      isOver = true;
      await ended;
      await call('DELETE', `${slicesIn}/large-1`);
    };
  },
};

const measured: readonly Expected[] = [
  { alertname: 'EndpointAuditorTwoManagers', code: 'managers-several' },
  { alertname: 'EndpointAuditorEndpointsAndSlicesDisagree' },
  { alertname: 'EndpointAuditorEndpointsTruncated' },
  { alertname: 'EndpointAuditorObjectNearSizeLimit', resource: 'endpointslices' },
  { alertname: 'EndpointAuditorSliceFanoutTooCostly' },
  { alertname: 'EndpointAuditorSliceFillRatioLow' },
  { alertname: 'EndpointAuditorHintsMissing', mode: 'auto', reason: 'few-endpoints' },
];

const stuck: Expected = { alertname: 'EndpointAuditorControllerStuck' };
const burn: Expected = { alertname: 'EndpointAuditorLagBudgetBurn' };
/** Services that ask for hints are scaled too, to where zones cannot share: that is true. */
const overload: Expected = { alertname: 'EndpointAuditorHintsMissing', reason: 'overload' };

// --- faults ---

const codeOf = (found: string): string => found.slice(found.indexOf(' ') + 1);

/** One alert for each kind of finding, and the alerts that need no finding. */
function faults(): readonly Injected[] {
  const kinds = new Map<string, Injected>();
  for (const injected of injectedFor(newestVersion, false)) {
    const isTold = injected.plan.name === 'slice-of-another-manager';
    const truncates = injected.plan.name === 'endpoints-over-capacity-annotation-uncalled-for';
    const kind = isTold || truncates ? injected.plan.name : injected.finds.join();
    if (kind !== '' && !kinds.has(kind)) kinds.set(kind, injected);
  }
  return [large, fragmented, unhinted, ...kinds.values()];
}

function alertsOn(all: readonly Injected[]): Expected[] {
  const codes = new Set(all.flatMap(({ finds }) => finds.map(codeOf)));
  return [...codes].flatMap((code) =>
    alerts
      .filter((rule) => codesOf(rule).includes(code))
      .map(({ alert = '' }) => ({ alertname: alert, code })),
  );
}

interface Live {
  readonly theatre: Theatre;
  readonly plane: ControlPlane;
  readonly client: Client;
  readonly fleet: Fleet;
}

/** Longer than any alert must hold, and longer than what it looks back at in ordinary times. */
const ordinary = shorter(3 * 86_400);

async function checkChurn({ theatre, client, fleet }: Live): Promise<void> {
  const begin = async (): Promise<void> => {
    const churn = startChurn({ client, fleet, rate, seed: 1 });
    await sleep(ordinary * 1000);
    await end(churn);
  };
  await play(theatre, {
    title: `${rate} changes a second`,
    expected: [],
    allowed: [overload],
    begin,
  });
}

async function end(churn: Churn): Promise<void> {
  await churn.stop();
  const error = churn.error();
  if (error !== null) throw error;
}

async function checkFaults({ theatre, plane, client }: Live): Promise<void> {
  const all = faults();
  await createFaulty(client, all);
  const undo: Undo[] = [];
  const begin = async (): Promise<void> => {
    plane.pauseControllerManager();
    // None must have been written for so long.
    await sleep(shorter(600) * 1000);
    for (const { spoil } of all) {
      undo.push(await spoil(client));
      await sleep(400);
    }
  };
  const repair = async (): Promise<void> => {
    await Promise.all(undo.map((one) => one()));
    plane.resumeControllerManager();
    await awaitSettled(client);
  };
  const expected = [...alertsOn(all), ...measured, { ...stuck, output: 'endpointslices' }];
  const allowed = [stuck, burn, overload];
  await play(theatre, { title: 'faults', expected, allowed, begin, repair });
}

async function checkLateness({ theatre, plane, client, fleet }: Live): Promise<void> {
  const churn = startChurn({ client, fleet, rate, seed: 2 });
  const flags = ['endpoint', 'endpointslice'].map(
    (name) => `--${name}-updates-batch-period=${putOff}s`,
  );
  const windows = alerts.flatMap(({ labels = {} }) => labels.long ?? []);
  const expected = ['endpoints', 'endpointslices'].flatMap((output) =>
    windows.map((long) => ({ ...burn, output, long })),
  );
  await play(theatre, {
    title: `controllers put off their work for ${putOff} s`,
    expected,
    allowed: [overload],
    begin: () => plane.restartControllerManager(flags),
    repair: () => plane.restartControllerManager(),
  });
  await end(churn);
}

/** `port`: where the auditor is to be found. */
export async function checkControllers(theatre: Theatre, port: number): Promise<void> {
  const plane = await startControlPlane({ version: newestVersion, ...liveFlags });
  const client = clientOf(plane);
  const folder = join(plane.directory, 'auditor');
  mkdirSync(folder);
  let auditor: Auditor | null = null;
  try {
    const fleet = await populate(plane, client, size);
    const { kubeconfig } = await createAccount(plane, client, folder);
    const running = (auditor = await startAuditor({ kubeconfig, folder, settle }));
    const carrier = await carry(`127.0.0.1:${port}`, new URL(running.base).host);
    await awaitSoon(async () => (await running.notReady()) === null, 60);
    const live = { theatre, plane, client, fleet };
    await checkChurn(live);
    await checkFaults(live);
    await checkLateness(live);
    carrier.close();
  } finally {
    await auditor?.stop();
    client.close();
    await plane.stop();
  }
}

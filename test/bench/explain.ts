// How long one explanation takes on a fleet of 150,000 pods that is held and audited, and on the
// last state of the recording: `node --expose-gc test/bench/explain.ts`. One JSON line: CPU
// milliseconds by subject, the first run (nothing is warm), the median and the most of the others.

import { createReadStream } from 'node:fs';
import { join } from 'node:path';

import type { Subject } from '../../src/audit/explain.ts';
import { explain } from '../../src/audit/explain.ts';
import type { Ledger } from '../../src/audit/ledger.ts';
import type { Context } from '../../src/audit/service.ts';
import { readRecording } from '../../src/cluster/recording.ts';
import type { Snapshot } from '../../src/model/objects.ts';
import { createAuditor } from '../../src/serve.ts';
import { defaultMaxEndpointsPerSlice } from '../../src/shadow/endpointslice.ts';
import { newestRelease } from '../../src/shadow/release.ts';
import type { World } from './fleet.ts';
import { buildWorld } from './fleet.ts';
import { createFleet } from './generate.ts';
import { cpuMicros } from './measure.ts';

interface Spent {
  readonly first: number;
  readonly median: number;
  readonly most: number;
}

const runs = 21;

function measure(context: Context, ledger: Ledger, subject: Subject): Spent {
  const spent: number[] = [];
  for (let run = 0; run < runs; run++) {
    const begun = cpuMicros();
    explain(context, ledger, subject);
    spent.push((cpuMicros() - begun) / 1000);
  }
  const [first = 0, ...others] = spent;
  const sorted = others.sort((a, b) => a - b);
  const median = sorted[Math.floor(sorted.length / 2)] ?? 0;
  return { first, median, most: sorted.at(-1) ?? 0 };
}

function measureAll(snapshot: Snapshot, ledger: Ledger): Record<string, Spent> {
  const context: Context = {
    snapshot,
    release: newestRelease,
    maxEndpointsPerSlice: defaultMaxEndpointsPerSlice,
  };
  const largest = [...ledger.audited.values()].reduce((a, b) =>
    b.record.members.length > a.record.members.length ? b : a,
  );
  const service = largest.record.key;
  const [member] = largest.record.members;
  const pod = member?.key ?? '';
  const address = member?.ips[0] ?? '';
  const nobody = [...snapshot.services.values()].find(
    ({ key, selector }) =>
      selector !== null && ledger.audited.get(key)?.record.members.length === 0,
  );
  const subjects: Record<string, Subject> = {
    'largest service': { kind: 'service', service },
    'its pod': { kind: 'pod', pod },
    pair: { kind: 'pair', pod, service },
    address: { kind: 'address', address },
  };
  if (nobody !== undefined) {
    subjects['service without pods'] = { kind: 'service', service: nobody.key };
    subjects['pod and another service'] = { kind: 'pair', pod, service: nobody.key };
  }
  return Object.fromEntries(
    Object.entries(subjects).map(([name, subject]) => [name, measure(context, ledger, subject)]),
  );
}

async function ofRecording(): Promise<Record<string, Spent>> {
  const auditor = createAuditor({
    settle: 30,
    release: null,
    maxEndpointsPerSlice: defaultMaxEndpointsPerSlice,
  });
  const path = join(import.meta.dirname, '../recordings/shop.ndjson.gz');
  const source = { name: path, bytes: createReadStream(path) };
  for await (const entry of readRecording(source, () => undefined)) auditor.take(entry);
  const ledger = auditor.ledger();
  if (ledger === null) throw new Error('The recording has no beginning');
  return measureAll(auditor.store.snapshot, ledger);
}

const sizes = [
  { services: 1, pods: 5000 },
  { services: 204, pods: 250 },
  { services: 1761, pods: 30 },
  { services: 100, pods: 15 },
  { services: 7934, pods: 5 },
];

/** Adds a Service that selects nothing, but nearly does. */
function addNobody({ store, ledger, now }: World): void {
  const [service] = store.snapshot.services.values();
  if (service === undefined) throw new Error('The fleet has no Service');
  const [pair] = Object.entries(service.selector ?? {});
  const [key = '', value = ''] = pair ?? [];
  const name = `${service.name}-nobody`;
  const meant = { name, key: `${service.namespace}/${name}`, uid: name };
  const object = { ...service, ...meant, selector: { [key]: `${value}x` } };
  const change = store.apply({ resource: 'services', type: 'added', object, at: now });
  if (change !== null) ledger.apply(change);
}

const recording = await ofRecording();
const { world } = buildWorld(createFleet({ nodes: 5000, namespaces: 500, sizes }), 0);
addNobody(world);
const fleet = measureAll(world.store.snapshot, world.ledger);
const pods = world.store.snapshot.pods.size;
process.stdout.write(`${JSON.stringify({ recording, pods, fleet })}\n`);

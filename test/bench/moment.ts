// How long it takes to open a moment of a history: the command `audit --history` of the bundle on a
// fleet, from the start of the process to its report. Seconds of time and of CPU, and the CPU
// seconds of the checkpoint. The moment is `--seconds` after the checkpoint, or just before the
// next one if that came earlier. `rate` pods have changed each second: by default 20 for 150,000
// pods, and in proportion for others.
//
//   npm run -s bench -- moment [--services=10000] [--seconds=0] [--rate=20]

import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';

import { createAuditor } from '../../src/auditor/auditor.ts';
import { readRecording } from '../../src/cluster/files/recording.ts';
import { openFolder } from '../../src/history/files.ts';
import { createAuditorHistory } from '../../src/history/history.ts';
import { listSegments } from '../../src/history/segments.ts';
import { resources } from '../../src/model/objects.ts';
import { auditorDefaults } from '../build.ts';
import { createFleet, rawEndpoints, rawObjects, rawPod, rawSlice, sliceOf } from './generate.ts';
import { cpuMicros } from './measure.ts';

const argument = (name: string, value: number): number =>
  Number(process.argv.find((it) => it.startsWith(`--${name}=`))?.split('=')[1] ?? value);

const services = argument('services', 1000);
const podsOfEach = 15;
const changesPerSecond = argument('rate', (20 * services) / 10_000);
const changes = Math.round(argument('seconds', 0) * changesPerSecond);
const at = 1_795_260_000;

const fleet = createFleet({
  nodes: Math.max(10, services / 2),
  namespaces: 50,
  sizes: [{ pods: podsOfEach, services }],
});

function* lines(): Generator<string> {
  yield `${JSON.stringify({ kind: 'header', format: 1, at, kubernetes: 'v1.36.3', resources })}\n`;
  for (const resource of resources) {
    for (const object of rawObjects(fleet, resource)) {
      yield `${JSON.stringify({ kind: 'object', at, resource, type: 'SYNC', object })}\n`;
    }
    yield `${JSON.stringify({ kind: 'synced', at, resource })}\n`;
  }
  for (let index = 0; index < changes; index++) yield* changesOf(index);
}

/** The lines of a pod that has changed its readiness, of its slice and of its Endpoints. */
function* changesOf(index: number): Generator<string> {
  const when = at + (index + 1) / changesPerSecond;
  const pod = (index * 7919) % fleet.pods;
  const plan = fleet.plans[Math.floor(pod / podsOfEach)];
  if (plan === undefined) throw new Error('A pod without a Service');
  fleet.ready[pod] = 1 - (fleet.ready[pod] ?? 0);
  const objects = {
    pods: rawPod(fleet, plan, pod),
    endpointslices: rawSlice(fleet, plan, sliceOf(plan, pod)),
    endpoints: rawEndpoints(fleet, plan),
  };
  for (const [resource, object] of Object.entries(objects)) {
    yield `${JSON.stringify({ kind: 'object', at: when, resource, type: 'MODIFIED', object })}\n`;
  }
}

/** Records the history of the fleet. Resolves to the CPU seconds of its largest checkpoint. */
async function record(folder: string): Promise<number> {
  const auditor = createAuditor(auditorDefaults);
  const history = createAuditorHistory(auditor, {
    files: openFolder(folder),
    limits: { size: 2 ** 40, age: 86_400 },
    now: () => auditor.now() ?? at,
    pause: () => new Promise((resolve) => setImmediate(resolve)),
    onTrouble(reason) {
      if (reason !== null) throw new Error(reason);
    },
  });
  let written = at;
  let largest = 0;
  const bytes = Readable.from(lines(), { objectMode: true }).map((line: string) =>
    Buffer.from(line),
  );
  for await (const entry of readRecording({ name: 'fleet', bytes }, () => undefined)) {
    if (entry.kind === 'end') continue;
    auditor.take(entry);
    history.take(entry);
    const now = auditor.now() ?? at;
    if (entry.kind !== 'synced' && now < written + 1) continue;
    written = now;
    const before = cpuMicros();
    await history.work();
    largest = Math.max(largest, (cpuMicros() - before) / 1e6);
  }
  await history.close();
  return largest;
}

const folder = mkdtempSync(join(tmpdir(), 'moment-'));
try {
  const checkpoint = await record(folder);
  const bundle = join(import.meta.dirname, '../../dist/endpoint-auditor.mjs');
  // The most changes are to be audited just before the next checkpoint.
  const [, next] = await listSegments(openFolder(folder));
  const end = at + Math.max(0, changes / changesPerSecond);
  const moment = String(Math.max(at, (next?.start ?? end) - 1));
  const args = ['audit', '--history', folder, '--at', moment, '-o', 'json'];
  const command = [process.execPath, bundle, ...args];
  const began = performance.now();
  // The shell prints the CPU seconds of the process.
  const script = 'TIMEFORMAT="%U %S"; time "$@" > /dev/null';
  const { stderr, status } = spawnSync('bash', ['-c', script, 'bash', ...command]);
  const seconds = (performance.now() - began) / 1000;
  const found = /(\d+\.\d+) (\d+\.\d+)\s*$/.exec(stderr.toString());
  // 1: there are findings.
  if (found === null || (status ?? 2) > 1) throw new Error(stderr.toString());
  const cpu = Number(found[1]) + Number(found[2]);
  const after = Math.round(Number(moment) - at);
  console.log(
    `${fleet.pods} pods, ${after} s: ${seconds.toFixed(1)} s, ${cpu.toFixed(1)} s of CPU`,
    `(checkpoint: ${checkpoint.toFixed(1)} s of CPU)`,
  );
} finally {
  rmSync(folder, { recursive: true });
}

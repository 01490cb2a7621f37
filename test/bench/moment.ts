// How long it takes to open a moment of a history: the command `audit --history` of the bundle on a
// fleet, from the start of the process to its report. Seconds of time and of CPU.
//
//   npm run -s bench -- moment [--services=10000]

import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';

import { createAuditor } from '../../src/auditor/auditor.ts';
import { readRecording } from '../../src/cluster/files/recording.ts';
import { openFolder } from '../../src/history/files.ts';
import { createAuditorHistory } from '../../src/history/history.ts';
import { resources } from '../../src/model/objects.ts';
import { auditorDefaults } from '../build.ts';
import { createFleet, rawObjects } from './generate.ts';

const argument = process.argv.find((it) => it.startsWith('--services='))?.split('=')[1];
const services = Number(argument ?? 1000);
const podsOfEach = 15;
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
}

/** Records the history of the fleet, with one checkpoint. */
async function record(folder: string): Promise<void> {
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
  const bytes = Readable.from(lines(), { objectMode: true }).map((line: string) =>
    Buffer.from(line),
  );
  for await (const entry of readRecording({ name: 'fleet', bytes }, () => undefined)) {
    auditor.take(entry);
    history.take(entry);
  }
  await history.work();
  await history.close();
}

const folder = mkdtempSync(join(tmpdir(), 'moment-'));
try {
  await record(folder);
  const bundle = join(import.meta.dirname, '../../dist/endpoint-auditor.mjs');
  const command = [process.execPath, bundle, 'audit', '--history', folder, '-o', 'json'];
  const began = performance.now();
  // The shell prints the CPU seconds of the process.
  const script = 'TIMEFORMAT="%U %S"; time "$@" > /dev/null';
  const { stderr } = spawnSync('bash', ['-c', script, 'bash', ...command]);
  const seconds = (performance.now() - began) / 1000;
  const found = /(\d+\.\d+) (\d+\.\d+)\s*$/.exec(stderr.toString());
  if (found === null) throw new Error(stderr.toString());
  const cpu = Number(found[1]) + Number(found[2]);
  console.log(`${fleet.pods} pods: ${seconds.toFixed(1)} s, ${cpu.toFixed(1)} s of CPU`);
} finally {
  rmSync(folder, { recursive: true });
}

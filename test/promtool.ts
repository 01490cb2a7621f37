// What /metrics really shows, after the recording was replayed, with series of all Services, held
// against `promtool check metrics`: `npm run promtool`. It is a program of its own, since promtool
// is no package of npm: the one of ~/.cache/endpoint-auditor, else the one on the PATH.

import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';

import { recordingOf } from '../src/commands/replay.ts';
import { createApp, listen } from '../src/output/http.ts';
import { replay } from '../src/replay.ts';
import { createAuditor } from '../src/serve.ts';
import { answersOf, notLive } from '../src/status.ts';

const path = join(import.meta.dirname, 'recordings/shop.ndjson.gz');

async function exposition(): Promise<string> {
  const auditor = createAuditor({ settle: 1, release: null, maxEndpointsPerSlice: 100 });
  const entries = await recordingOf(path, auditor, () => undefined);
  await replay(auditor, entries, { speed: Infinity, until: null });
  const answers = answersOf(auditor, path, notLive, { mode: 'all', max: 1000 });
  const server = await listen(createApp(answers), { host: '127.0.0.1', port: 0 });
  const response = await fetch(`http://127.0.0.1:${String(server.port)}/metrics`);
  const text = await response.text();
  await server.close();
  return text;
}

const cached = join(homedir(), '.cache/endpoint-auditor/promtool');
const promtool = existsSync(cached) ? cached : 'promtool';
const input = await exposition();
const { status, stdout, stderr, error } = spawnSync(promtool, ['check', 'metrics'], {
  input,
  encoding: 'utf8',
});
if (error !== undefined) throw new Error(`Cannot run ${promtool}: ${error.message}`);
process.stdout.write(stdout + stderr);
const series = input.split('\n').filter((line) => /^[a-z]/.test(line)).length;
process.stdout.write(`${String(series)} series, promtool ended with ${String(status)}\n`);
// A lint finding of promtool is said on stderr and ends it with 3.
process.exitCode = status === 0 && series > 0 && stderr === '' ? 0 : 1;

// Checks /metrics after a replay of the recording, with series of all Services, with
// `promtool check metrics`: `npm run promtool`. It is a program of its own, since promtool
// is no package of npm. What promtool reads is the text format; this test compares
// the series with those in OpenMetrics, and a real Prometheus reads those (prometheus.ts).

import { spawnSync } from 'node:child_process';
import { join } from 'node:path';

import { createAuditor } from '../../src/auditor/auditor.ts';
import { createQueries, notLive } from '../../src/auditor/queries.ts';
import { replay } from '../../src/auditor/replay.ts';
import { recordingOf } from '../../src/commands/replay.ts';
import { createApp, listen } from '../../src/output/http/server.ts';
import { auditorDefaults } from '../build.ts';
import { programOf } from './server.ts';

const path = join(import.meta.dirname, '../recordings/shop.ndjson.gz');

interface Expositions {
  readonly text: string;
  readonly openmetrics: string;
}

async function expositions(): Promise<Expositions> {
  const auditor = createAuditor({ ...auditorDefaults, settle: 1 });
  const entries = await recordingOf(path, auditor, () => undefined);
  await replay(auditor, entries, { speed: Infinity, until: null });
  const answers = createQueries(auditor, path, notLive, { mode: 'all', max: 1000 });
  const server = await listen(createApp(answers), { host: '127.0.0.1', port: 0 });
  const url = `http://127.0.0.1:${String(server.port)}/metrics`;
  const read = async (accept: string): Promise<string> =>
    (await fetch(url, { headers: { accept } })).text();
  const both = {
    text: await read('text/plain'),
    openmetrics: await read('application/openmetrics-text; version=1.0.0'),
  };
  await server.close();
  return both;
}

/** Series of the cluster, spelt as in the text format, without what only OpenMetrics has. */
const seriesOf = (text: string): string[] =>
  text
    .split('\n')
    .filter((line) => line.startsWith('endpoint_auditor_'))
    .map((line) => line.replace(/ # .*$/, '').replace(/(le="\d+)\.0"/, '$1"'));

const { text, openmetrics } = await expositions();
const { status, stdout, stderr, error } = spawnSync(
  await programOf('promtool'),
  ['check', 'metrics'],
  { input: text, encoding: 'utf8' },
);
if (error !== undefined) throw error;
process.stdout.write(stdout + stderr);
const series = seriesOf(text);
const same = series.join('\n') === seriesOf(openmetrics).join('\n');
if (!same) process.stdout.write('OpenMetrics shows other series than the text format\n');
process.stdout.write(`${String(series.length)} series, promtool ended with ${String(status)}\n`);
// A lint finding of promtool is said on stderr and ends it with 3.
process.exitCode = status === 0 && series.length > 0 && stderr === '' && same ? 0 : 1;

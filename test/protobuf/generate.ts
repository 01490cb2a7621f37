// Makes objects.bin.gz: `node test/protobuf/generate.ts`, which needs Go.
//
// Of the recording, the first list of each resource; of the vectors, objects of every shape that is
// there, some of each; the odd objects of fixtures.ts; and the other frames of a watch.
// main.go writes them.

import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { gunzipSync, gzipSync } from 'node:zlib';

import { resources } from '../../src/model/objects.ts';
import { goProgram } from '../processes.ts';
import { oddLines } from './fixtures.ts';

type Raw = Record<string, unknown>;

const here = import.meta.dirname;

const linesOf = (path: string): Raw[] =>
  gunzipSync(readFileSync(path))
    .toString()
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as Raw);

/** What an object has, without what it says: two objects of one shape teach the same. */
function shapeOf(value: unknown): string {
  if (Array.isArray(value)) return `[${[...new Set(value.map(shapeOf))].sort().join()}]`;
  if (typeof value !== 'object' || value === null) {
    return typeof value === 'boolean' || value === null ? String(value) : typeof value;
  }
  return `{${Object.entries(value)
    .map(([name, inner]) => `${name}:${shapeOf(inner)}`)
    .join()}}`;
}

function* recorded(): Generator<Raw> {
  const lines = linesOf(join(here, '../recordings/shop.ndjson.gz'));
  for (const list of resources) {
    const of = lines.filter(({ type, resource }) => type === 'SYNC' && resource === list);
    const objects = of.map(({ object }) => object);
    yield { list, resourceVersion: '11111', continue: list === 'pods' ? 'next' : '', objects };
  }
  const changes = lines.filter(({ type }) => type === 'MODIFIED' || type === 'DELETED');
  for (const { resource, type, object } of changes.filter((_, index) => index % 40 === 0))
    yield { resource, type, object };
}

const fields = {
  items: 'nodes',
  services: 'services',
  pods: 'pods',
  endpoints: 'endpoints',
  endpointSlices: 'endpointslices',
} as const;

function* varied(): Generator<Raw> {
  const folder = join(here, '../vectors/data');
  const seen = new Map<string, number>();
  for (const name of readdirSync(folder).sort()) {
    for (const line of linesOf(join(folder, name))) {
      for (const [field, resource] of Object.entries(fields)) {
        for (const object of (line[field] ?? []) as Raw[]) {
          const shape = `${resource} ${shapeOf(object)}`;
          const count = seen.get(shape) ?? 0;
          seen.set(shape, count + 1);
          // Those with many addresses are long and differ in little; some of them will do.
          const isLong = JSON.stringify(object).length > 2500;
          if (count === 0 && (!isLong || seen.size % 6 === 0)) yield { resource, object };
        }
      }
    }
  }
}

function* said(): Generator<Raw> {
  for (const bookmark of resources) {
    yield { bookmark, resourceVersion: '4711' };
    yield { bookmark, resourceVersion: '4712', end: true };
  }
  const message = 'too old resource version: 1 (2)';
  yield { error: { status: 'Failure', code: 410, reason: 'Expired', message } };
  const details = { retryAfterSeconds: 7, causes: [{ reason: 'x', message: 'y' }] };
  yield { error: { status: 'Failure', code: 429, reason: 'TooManyRequests', details } };
  yield { error: {} };
  for (const list of resources) yield { list, objects: [] };
}

const input = [...recorded(), ...varied(), ...oddLines(), ...said()]
  .map((line) => `${JSON.stringify(line)}\n`)
  .join('');
const run = spawnSync(goProgram(), ['run', '.'], { cwd: here, input, maxBuffer: 1 << 30 });
if (run.status !== 0) throw new Error(run.stderr.toString());
writeFileSync(join(here, 'objects.bin.gz'), gzipSync(run.stdout, { level: 9 }));

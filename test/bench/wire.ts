// What a door costs, by format: `node --expose-gc test/bench/wire.ts [SHARE]`.
//
// Lists of the load server are taken in, in pages as the reflector asks for them, and kept as the
// chunks that came; then they are read from memory, so that neither TLS nor the server is measured.
// JSON is read as a watch delivers it, one object a line. Both make model objects, in one run, in
// turns.

import { request } from 'node:https';
import { Readable } from 'node:stream';

import type { Frame } from '../../src/cluster/decode/frame.ts';
import { project } from '../../src/cluster/decode/json-objects.ts';
import { protobufCodec } from '../../src/cluster/decode/protobuf/codec.ts';
import type { Resource } from '../../src/model/objects.ts';
import { cpuMicros, figure, round, sweep } from './measure.ts';
import type { LoadServer } from './program.ts';
import { startLoadServer } from './program.ts';

const protobuf = 'application/vnd.kubernetes.protobuf';

const paths: Readonly<Record<Resource, string>> = {
  nodes: '/api/v1/nodes',
  services: '/api/v1/services',
  pods: '/api/v1/pods',
  endpoints: '/api/v1/endpoints',
  endpointslices: '/apis/discovery.k8s.io/v1/endpointslices',
};

/** The chunks of an answer; stops early when `isEnough` says so. */
async function chunksOf(
  { url, token, authority }: LoadServer,
  path: string,
  accept: string,
  isEnough: (chunk: Buffer) => boolean = () => false,
): Promise<Buffer[]> {
  const { promise, resolve, reject } = Promise.withResolvers<Buffer[]>();
  const headers = { authorization: `Bearer ${token}`, accept };
  const asked = request(`${url}${path}`, { headers, ca: authority }, (answer) => {
    const chunks: Buffer[] = [];
    answer.on('data', (chunk: Buffer) => {
      chunks.push(chunk);
      if (!isEnough(chunk)) return;
      resolve(chunks);
      asked.destroy();
    });
    answer.on('error', reject);
    answer.on('end', () => {
      const failure =
        answer.statusCode === 200 ? null : protobufCodec.status(Buffer.concat(chunks), 0);
      if (answer.statusCode === 200) resolve(chunks);
      else reject(new Error(`${path}: ${failure?.message ?? String(answer.statusCode)}`));
    });
  });
  asked.on('error', reject);
  asked.end();
  return promise;
}

/** Reads a body, and returns how many objects it has and its last frame. */
async function readBody(
  verb: 'list' | 'watch',
  resource: Resource,
  body: readonly Buffer[],
): Promise<{ count: number; last: Frame | undefined }> {
  const context = { resource, now: () => 1, previousPod: () => undefined, raw: false };
  let count = 0;
  let last: Frame | undefined;
  for await (const batch of protobufCodec[verb](Readable.from(body), context)) {
    for (const frame of batch) {
      if (frame.kind === 'object') count++;
      last = frame;
    }
  }
  return { count, last };
}

/** All pages of a list, each as the chunks that came. */
async function pagesOf(server: LoadServer, resource: Resource): Promise<Buffer[][]> {
  const pages: Buffer[][] = [];
  for (let token = ''; ;) {
    const path = `${paths[resource]}?limit=500&continue=${token}`;
    const chunks = await chunksOf(server, path, protobuf);
    pages.push(chunks);
    const { last } = await readBody('list', resource, chunks);
    if (last?.kind !== 'page') throw new Error('The list is not complete');
    token = last.next;
    if (token === '' || pages.length === 40) return pages;
  }
}

/** The frames of a watch from its beginning until all that was there has come. */
async function framesOf(server: LoadServer, resource: Resource): Promise<Buffer[]> {
  const path = `${paths[resource]}?watch=true&sendInitialEvents=true&allowWatchBookmarks=true`;
  let seen = '';
  return chunksOf(server, path, protobuf, (chunk) => {
    seen = seen.slice(-100) + chunk.toString('latin1');
    return seen.includes('k8s.io/initial-events-end');
  });
}

/** Reads all pages and returns how many objects there were. */
async function readPages(resource: Resource, pages: readonly Buffer[][]): Promise<number> {
  let count = 0;
  for (const page of pages) count += (await readBody('list', resource, page)).count;
  return count;
}

function readLines(resource: Resource, lines: readonly Buffer[]): number {
  for (const line of lines) project(resource, JSON.parse(line.toString()), 1);
  return lines.length;
}

const rounds = 9;
const lineCount = 3000;

const lengthOf = (chunks: readonly Buffer[]): number =>
  chunks.reduce((sum, chunk) => sum + chunk.length, 0);

async function measure(server: LoadServer, resource: Resource): Promise<void> {
  const pages = await pagesOf(server, resource);
  const frames = await framesOf(server, resource);
  const whole = await chunksOf(server, `${paths[resource]}?limit=${lineCount}`, 'application/json');
  const { items } = JSON.parse(Buffer.concat(whole).toString()) as { items: unknown[] };
  const lines = items.map((item) => Buffer.from(JSON.stringify(item)));
  const ways: readonly (readonly [string, number, () => number | Promise<number>])[] = [
    ['protobuf list', lengthOf(pages.flat()), () => readPages(resource, pages)],
    [
      'protobuf watch',
      lengthOf(frames),
      async () => (await readBody('watch', resource, frames)).count,
    ],
    ['JSON', lengthOf(lines), () => readLines(resource, lines)],
  ];
  const samples = ways.map((): number[] => []);
  for (let round = 0; round < rounds; round++) {
    for (const [index, [, , read]] of ways.entries()) {
      sweep();
      const begun = cpuMicros();
      const count = await read();
      samples[index]?.push((cpuMicros() - begun) / count);
    }
  }
  for (const [index, [name, bytes, read]] of ways.entries()) {
    const { min, median } = figure(samples[index] ?? []);
    const each = bytes / (await read());
    const cells = [resource, name, Math.round(each), min, median, round(each / min)];
    process.stdout.write(`| ${cells.join(' | ')} |\n`);
  }
}

const server = await startLoadServer({ share: Number(process.argv[2] ?? 10) });
try {
  process.stdout.write('| resource | way | bytes each | CPU µs each, min | median | MB/s |\n');
  process.stdout.write('| -------- | --- | ---------: | ---------------: | -----: | ---: |\n');
  for (const resource of ['pods', 'endpoints', 'endpointslices', 'services', 'nodes'] as const)
    await measure(server, resource);
} finally {
  await server.stop();
}

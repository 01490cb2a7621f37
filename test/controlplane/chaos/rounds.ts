// A recording with the rules that the agents of nodes read (inside.ts), in the order in which the
// auditor could know of either.

import { createReadStream, createWriteStream, existsSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { createGunzip, createGzip } from 'node:zlib';

import { clusterCIDR } from '../nodes.ts';
import type { NodeSpace } from '../nodes.ts';

type RecordedNode = Pick<NodeSpace, 'node' | 'mode' | 'rounds'>;

interface Line {
  /** Unix seconds. */
  readonly at: number;
  readonly text: string;
}

const numberIn = (text: string, field: string): number =>
  Number(new RegExp(`"${field}":([\\d.]+)`).exec(text.slice(0, 200))?.[1]);

async function* linesIn(path: string, field: string): AsyncGenerator<Line, void> {
  if (!existsSync(path)) return;
  const bytes = createReadStream(path);
  const input = path.endsWith('.gz') ? bytes.pipe(createGunzip()) : bytes;
  for await (const text of createInterface({ input })) yield { at: numberIn(text, field), text };
}

async function takeLine(lines: AsyncGenerator<Line, void>): Promise<Line | null> {
  const next = await lines.next();
  return next.done === true ? null : next.value;
}

async function* joined(record: string, nodes: readonly RecordedNode[]): AsyncGenerator<string> {
  const rounds = nodes.map(({ rounds: path }) => linesIn(path, 'seenAt'));
  const next = await Promise.all(rounds.map(takeLine));
  for await (const { at, text } of linesIn(record, 'at')) {
    const isHeader = text.startsWith('{"kind":"header"');
    // Rules from before the recording come after its header.
    for (;;) {
      const first = Math.min(...next.map((line) => line?.at ?? Infinity));
      if (isHeader || first > at) break;
      const index = next.findIndex((line) => line?.at === first);
      yield `${next[index]?.text ?? ''}\n`;
      const lines = rounds[index];
      if (lines !== undefined) next[index] = await takeLine(lines);
    }
    yield `${text}\n`;
    for (const { node, mode } of isHeader ? nodes : []) {
      yield `${JSON.stringify({ kind: 'node-config', at, node, mode, clusterCIDR })}\n`;
    }
  }
}

/** Writes the recording `record`, together with what the agents read, to `path`. */
export async function joinRounds(
  record: string,
  nodes: readonly RecordedNode[],
  path: string,
): Promise<void> {
  const lines = Readable.from(joined(record, nodes));
  await pipeline(lines, createGzip({ level: 1 }), createWriteStream(path));
}

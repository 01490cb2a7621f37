// The rules of nodes as files that the command line names: `--rules NODE=FILE`, as often as there
// are dumps, and `--proxy-config NODE=FILE`, or one FILE for all nodes, with the
// KubeProxyConfiguration. Files may be compressed.

import { readFile } from 'node:fs/promises';
import { gunzipSync } from 'node:zlib';

import { parse } from 'yaml';

import type { GivenRules } from '../noderules.ts';

/** A file, and the node that it is of; null: of all. */
export interface NodeFile {
  readonly node: string | null;
  readonly path: string;
}

/** What the command line says of the rules of nodes. */
export interface Ruled {
  readonly rules?: readonly NodeFile[];
  readonly proxyConfig?: readonly NodeFile[];
}

async function read(path: string): Promise<string> {
  const bytes = await readFile(path);
  const isPacked = bytes[0] === 0x1f && bytes[1] === 0x8b;
  return (isPacked ? gunzipSync(bytes) : bytes).toString();
}

/** Reads the files. Rejects where one cannot be read, or a configuration is no YAML. */
export async function givenRules({ rules = [], proxyConfig = [] }: Ruled): Promise<GivenRules[]> {
  const configs = new Map<string | null, unknown>();
  for (const { node, path } of proxyConfig) {
    const text = await read(path);
    try {
      configs.set(node, parse(text));
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error);
      throw new Error(`${path}: ${why}`, { cause: error });
    }
  }
  const given: GivenRules[] = [];
  for (const { node, path } of rules) {
    const config = configs.get(node) ?? configs.get(null) ?? null;
    given.push({
      kind: 'given-rules',
      node: node ?? '',
      source: path,
      text: await read(path),
      config,
    });
  }
  return given;
}

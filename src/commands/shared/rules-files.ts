// The rules of nodes as files that the command line names: `--rules NODE=FILE`, as often as there
// are dumps, and `--proxy-config NODE=FILE`, or one FILE for all nodes, with the
// KubeProxyConfiguration. Files may be compressed.

import { readFile } from 'node:fs/promises';
import { gunzipSync } from 'node:zlib';

import { parse } from 'yaml';

import type { GivenRules } from '../../auditor/node-rules.ts';
import { isSystemError, systemReason } from '../../cluster/decode/problem.ts';

/** A file, and the node that it is of; null: of all. */
export interface NodeFile {
  readonly node: string | null;
  readonly path: string;
}

/** What the command line says of the rules of nodes. */
export interface RulesFlags {
  readonly rules?: readonly NodeFile[];
  readonly proxyConfig?: readonly NodeFile[];
}

async function read(path: string): Promise<string> {
  const bytes = await readFile(path);
  const isPacked = bytes[0] === 0x1f && bytes[1] === 0x8b;
  return (isPacked ? gunzipSync(bytes) : bytes).toString();
}

/** Why a file could not be read, in one line. */
function reasonOf(error: unknown): string {
  if (isSystemError(error)) return `Cannot read: ${systemReason(error)}`;
  const message = error instanceof Error ? error.message : String(error);
  return message.split('\n', 1)[0] ?? '';
}

const empty = 'The file is empty';

/** The text, or why there is none: an empty one tells nothing, not even that there are no rules. */
async function readRules(path: string): Promise<Pick<GivenRules, 'text' | 'unread'>> {
  try {
    const text = await read(path);
    return { text, unread: text.trim() === '' ? empty : null };
  } catch (error) {
    return { text: '', unread: reasonOf(error) };
  }
}

/**
 * Reads the files. Rejects where a configuration cannot be read, or is no YAML; of rules that
 * cannot be read it says so. An empty file beside others of its node is passed over: the programs
 * of a backend that is not in use print nothing.
 */
export async function givenRules({
  rules = [],
  proxyConfig = [],
}: RulesFlags): Promise<GivenRules[]> {
  const configs = new Map<string | null, unknown>();
  for (const { node, path } of proxyConfig) {
    try {
      configs.set(node, parse(await read(path)));
    } catch (error) {
      throw new Error(`${path}: ${reasonOf(error)}`, { cause: error });
    }
  }
  const given: GivenRules[] = [];
  for (const { node, path } of rules) {
    const config = configs.get(node) ?? configs.get(null) ?? null;
    const kind = 'given-rules' as const;
    given.push({ kind, node: node ?? '', source: path, ...(await readRules(path)), config });
  }
  const told = new Set(given.flatMap(({ node, unread }) => (unread === null ? [node] : [])));
  const isNeeded = ({ node, unread }: GivenRules): boolean => unread !== empty || !told.has(node);
  return given.filter(isNeeded);
}

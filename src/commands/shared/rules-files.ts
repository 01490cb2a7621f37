// Files with the rules of nodes (`--rules`) and their KubeProxyConfigurations (`--proxy-config`).

import { readFile } from 'node:fs/promises';
import { gunzipSync } from 'node:zlib';

import { parse } from 'yaml';

import type { GivenRules } from '../../auditor/node-rules.ts';
import { isSystemError, systemReason } from '../../cluster/decode/problem.ts';
import type { NodeFile } from './options.ts';

export interface RulesFlags {
  readonly rules?: readonly NodeFile[];
  readonly proxyConfig?: readonly NodeFile[];
}

async function read(path: string): Promise<string> {
  const bytes = await readFile(path);
  const isPacked = bytes[0] === 0x1f && bytes[1] === 0x8b;
  return (isPacked ? gunzipSync(bytes) : bytes).toString();
}

function reasonOf(error: unknown): string {
  if (isSystemError(error)) return `Cannot read: ${systemReason(error)}`;
  const message = error instanceof Error ? error.message : String(error);
  return message.split('\n', 1)[0] ?? '';
}

const empty = 'The file is empty';

/** The text, or why there is none. An empty file does not mean that a node has no rules. */
async function readRules(path: string): Promise<Pick<GivenRules, 'text' | 'unread'>> {
  try {
    const text = await read(path);
    return { text, unread: text.trim() === '' ? empty : null };
  } catch (error) {
    return { text: '', unread: reasonOf(error) };
  }
}

/**
 * Rejects if a configuration cannot be read or is not YAML. An empty file of rules is omitted if
 * its node has another, since the programs of an unused backend print nothing.
 */
export async function givenRules(flags: RulesFlags): Promise<GivenRules[]> {
  const { rules = [], proxyConfig = [] } = flags;
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
  const readable = new Set(given.flatMap(({ node, unread }) => (unread === null ? [node] : [])));
  return given.filter(({ node, unread }) => unread !== empty || !readable.has(node));
}

// A finding about a node as an item of the settle window: what the report shows of it.

import type { Difference } from './compare.ts';
import { difference as differenceOf } from './compare.ts';
import type { Code } from './findings.ts';
import type { NodeFinding } from './rollup.ts';
import type { Item } from './settle.ts';
import { operationOf } from './standing.ts';

/** An item that has not opened yet. */
export function itemOf(finding: NodeFinding, since: number, at: number): Item {
  const port = finding.of.find((one) => one.port !== null)?.port;
  return {
    ...(finding.wide && port ? { witness: `${port.namespace}/${port.service}` } : {}),
    difference: shown(finding),
    output: 'node',
    node: finding.node,
    severity: finding.severity,
    cause: null,
    shown: false,
    proven: false,
    causeAt: at,
    since,
    unseen: 0,
    byInput: false,
    operation: operationOf(finding.code),
    lateSince: since,
    openedAt: null,
    gone: false,
  };
}

/** What of a finding is shown. */
export function shown({ code, port, object, expected, actual, rule }: NodeFinding): Difference {
  const what = port === '' ? object : `${port} at ${object}`;
  const by = rule === null ? '' : ` by ${rule}`;
  return differenceOf(code, what, fieldOf(code), expected, `${actual}${by}`);
}

/** What of a frontend differs. */
function fieldOf(code: Code): string {
  if (code.startsWith('node-masquerade')) return 'masquerade';
  if (code === 'node-affinity-different') return 'affinity';
  if (code === 'node-share-different') return 'share';
  return code.startsWith('node-endpoint') || code === 'node-policy-different'
    ? 'endpoints'
    : 'fate';
}

// What the rules of nodes do, for the reference auditor: each dump is audited by a new model of
// all nodes, which knows the present objects and dumps alone, and opens findings at once. The
// history of these readings decides which findings of the auditor are possible, and which must
// exist:
//
// - A finding opens after a settle window in which each reading, of at least two, shows trouble
//   with
//   its Service, or with any Service if it is about the whole node.
// - If each reading of a window without a change of the Service shows trouble with it, a finding is
//   open about the Service on the node, or about the node.
// - A resolved finding is not shown by the reading of that moment, unless another one is open for
//   it.
//
// Not checked: codes of the whole node, and whether a node is stale, which is about earlier states.

import type { Finding } from '../../src/audit/finding/catalogue.ts';
import { createNodes } from '../../src/audit/node/nodes.ts';
import { createProxyCache } from '../../src/audit/node/proxy-cache.ts';
import { createPendingFindings } from '../../src/audit/pending/pending.ts';
import type { AuditorEntry } from '../../src/auditor/auditor.ts';
import type { Key, Listers } from '../../src/model/objects.ts';
import type { ProxyConfig } from '../../src/model/proxy-config.ts';
import type { RulesDump } from '../../src/rules/parse/rules-dump.ts';
import { readRulesDump } from '../../src/rules/parse/rules-dump.ts';
import { servicesNamedBy } from './cluster.ts';
import type { Reference } from './reference.ts';

/** The Services with trouble at one moment, each with its codes. */
interface Reading {
  readonly at: number;
  readonly codes: ReadonlyMap<Key, ReadonlySet<string>>;
}

interface NodeHistory {
  readonly dumps: Map<string, RulesDump | 'unreadable'>;
  config: Partial<ProxyConfig> | null;
  readonly readings: Reading[];
  /** What the latest reading was made of. */
  made: string;
}

export interface ObservedFinding {
  readonly opened: Finding;
  readonly resolved: Finding | null;
}

export function createNodeHistory({ state }: Reference) {
  const nodes = new Map<string, NodeHistory>();
  /** When each Service, or a slice of it, last changed. */
  const changes: { readonly key: Key | null; readonly at: number }[] = [];
  const nodeOf = (name: string): NodeHistory => {
    const known = nodes.get(name);
    if (known !== undefined) return known;
    const made: NodeHistory = { dumps: new Map(), config: null, readings: [], made: '' };
    nodes.set(name, made);
    return made;
  };
  return {
    take(entry: AuditorEntry): void {
      if (entry.kind === 'event') {
        const { resource, object, at } = entry.event;
        if (resource === 'nodes') changes.push({ key: null, at });
        if (resource === 'services') changes.push({ key: object.key, at });
        if (resource !== 'endpointslices') return;
        for (const key of servicesNamedBy(object as never)) changes.push({ key, at });
      } else if (entry.kind === 'node-config') {
        const { mode, clusterCIDRs } = entry;
        nodeOf(entry.node).config = { mode, ...(clusterCIDRs.length > 0 ? { clusterCIDRs } : {}) };
      } else if (entry.kind === 'node-rules') {
        const node = nodeOf(entry.node);
        const source = `${entry.tool} ${entry.family}`;
        if (entry.text !== null) node.dumps.set(source, parsed(entry.text, entry.family));
        const { view, release, begun } = state;
        if (!begun || view === null) return;
        const made = `${String(changes.length)} ${entry.text === null ? '' : String(entry.at)}`;
        const last = node.readings.at(-1);
        const isSame = entry.text === null && last !== undefined && node.made === made;
        const codes = isSame
          ? last.codes
          : codesOf(view.listers, release.minor, entry.node, node, entry.dumpedAt);
        node.made = `${String(changes.length)} `;
        node.readings.push({ at: entry.dumpedAt, codes });
      }
    },
    /** What is wrong with the findings of the auditor about nodes. */
    check: (observed: readonly ObservedFinding[], settle: number): string[] =>
      [...nodes].flatMap(([name, { readings }]) => {
        const findings = observed.filter(({ opened }) => opened.node === name);
        return [
          ...findings.flatMap((it) => wrongIn(it, readings, findings, settle)),
          ...missingIn(name, readings, findings, changes, settle),
        ];
      }),
  };
}

function parsed(text: string, family: 'IPv4' | 'IPv6' | null): RulesDump | 'unreadable' {
  try {
    return readRulesDump(text, family);
  } catch {
    return 'unreadable';
  }
}

/** The codes that a new auditor finds at once, by Service; those of the whole node have no key. */
function codesOf(
  listers: Listers,
  minor: number,
  name: string,
  { dumps, config }: NodeHistory,
  at: number,
): Reading['codes'] {
  const settle = createPendingFindings({ window: 0, keep: 0 });
  const proxied = createProxyCache(listers);
  const nodes = createNodes({ listers, proxied, settle, window: 0, minor: () => minor });
  if (config !== null) nodes.configure(name, config);
  for (const [source, dump] of dumps) nodes.applyDump(name, source, dump, at);
  const codes = new Map<Key, Set<string>>();
  for (const { namespace, service, code } of settle.open()) {
    const key = service === '' ? '' : `${namespace}/${service}`;
    codes.set(key, (codes.get(key) ?? new Set()).add(code));
  }
  return codes;
}

const keyOf = ({ namespace, service }: Finding): Key =>
  service === '' ? '' : `${namespace}/${service}`;

/** Whether a reading shows trouble with a Service; with any, if the key is empty. */
const shows = ({ codes }: Reading, key: Key): boolean =>
  key === '' ? codes.size > 0 : codes.has(key) || codes.has('');

const isOpenAt = ({ opened, resolved }: ObservedFinding, at: number): boolean =>
  opened.openedAt <= at && (resolved?.resolvedAt ?? Infinity) > at;

const timeText = (at: number): string => new Date(at * 1000).toISOString().slice(11, 23);

function wrongIn(
  one: ObservedFinding,
  readings: readonly Reading[],
  all: readonly ObservedFinding[],
  settle: number,
): string[] {
  const { opened, resolved } = one;
  const { since, openedAt, code, node } = opened;
  const key = keyOf(opened);
  const name = `${timeText(openedAt)} ${node ?? ''} ${key} ${code} ${opened.cause ?? '-'}`;
  const wrong: string[] = [];
  const window = readings.filter(({ at }) => at >= since && at <= openedAt);
  // The window begins with the last reading before it, and readings are not quite regular.
  const before = readings.findLast(({ at }) => at < since)?.at ?? since;
  const lasted = openedAt - before;
  if (lasted < settle - 0.25) wrong.push(`${name}: opens after ${lasted.toFixed(2)} s`);
  if (window.length < 2) wrong.push(`${name}: opens after ${window.length} readings`);
  const free = window.find((reading) => !shows(reading, key));
  if (free !== undefined) wrong.push(`${name}: the reading of ${timeText(free.at)} is as expected`);
  const end = resolved?.resolvedAt ?? null;
  if (end === null) return wrong;
  const last = readings.find(({ at }) => at === end);
  const isCovered = all.some((it) => it !== one && isOpenAt(it, end));
  if (last?.codes.get(key)?.has(code) === true && !isCovered) {
    wrong.push(`${name}: is resolved at ${timeText(end)}, and the reading still shows it`);
  }
  return wrong;
}

function missingIn(
  name: string,
  readings: readonly Reading[],
  findings: readonly ObservedFinding[],
  changes: readonly { readonly key: Key | null; readonly at: number }[],
  settle: number,
): string[] {
  const keys = new Set(readings.flatMap(({ codes }) => [...codes.keys()]));
  const missing: string[] = [];
  for (const key of keys) {
    const touched = changes.filter((it) => it.key === null || it.key === key || key === '');
    let first: number | null = null;
    let count = 0;
    for (const reading of readings) {
      const { at, codes } = reading;
      if (!codes.has(key)) first = null;
      const begin = first;
      if (begin !== null && touched.some((it) => it.at > begin && it.at <= at)) first = null;
      if (first === null) count = 0;
      if (codes.has(key)) first ??= at;
      count++;
      if (first === null || count < 2 || at - first < settle) continue;
      const isFound = findings.some(
        (it) => isOpenAt(it, at) && ['', key].includes(keyOf(it.opened)),
      );
      if (isFound) continue;
      const text = [...(codes.get(key) ?? [])].join(', ');
      missing.push(`${timeText(at)} ${name} ${key} ${text}: shown since ${timeText(first)}`);
      break;
    }
  }
  return missing;
}

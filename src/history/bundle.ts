// A bundle: a part of a history or of a recording that anyone can replay alone. It is a recording
// that begins with a checkpoint, and ends with what its findings were. It has whole namespaces and
// all Nodes, on which hints depend, so that the findings of its Services equal those of the whole.

import type { Auditor } from '../auditor/auditor.ts';
import type { LiveEntry } from '../cluster/decode/entry.ts';
import { createRecorder } from '../cluster/files/recorder.ts';
import type { RecordingEntry } from '../cluster/files/recording.ts';
import type { Redactor } from '../cluster/files/redactor.ts';
import { getOrInsert } from '../model/collections.ts';
import { type AnyObject, resources } from '../model/objects.ts';
import { version } from '../model/program-version.ts';
import { checkpointOf, type Includes } from './checkpoint.ts';

export interface BundleContent {
  /** Unix seconds; -Infinity: the beginning. The bundle begins later if the audit does. */
  readonly from: number;
  /** Infinity: the end of the entries. */
  readonly to: number;
  readonly namespaces: ReadonlySet<string>;
  /** Other namespaces that have an address of one of them at some time. */
  readonly others: ReadonlySet<string>;
  readonly redactor: Redactor | null;
}

/** Collects the addresses of namespaces over the time of a bundle. */
export function createAddressBook() {
  /** Namespaces by address: those with another user than pods in the network of their node. */
  const users = new Map<string, Map<string, boolean>>();
  return {
    note(entry: RecordingEntry): void {
      if (entry.kind !== 'event') return;
      const { object } = entry.event;
      const isOnHost = 'hostNetwork' in object && object.hostNetwork;
      for (const address of addressesOf(object)) {
        const namespaces = getOrInsert(users, address, () => new Map<string, boolean>());
        const { namespace } = object;
        namespaces.set(namespace, namespaces.get(namespace) === true || !isOnHost);
      }
    },
    /** The namespaces that share an address with these. Pods of one node share that of the node. */
    sharing(namespaces: ReadonlySet<string>): ReadonlySet<string> {
      const found = new Set<string>();
      for (const of of users.values()) {
        const ours = [...of].filter(([namespace]) => namespaces.has(namespace));
        if (ours.length === 0) continue;
        const isOurs = ours.some(([, isOther]) => isOther);
        for (const [namespace, isOther] of of) {
          if (!namespaces.has(namespace) && (isOurs || isOther)) found.add(namespace);
        }
      }
      return found;
    },
  };
}

function addressesOf(object: AnyObject): readonly string[] {
  if ('ips' in object) return object.ips;
  if ('subsets' in object) {
    return object.subsets.flatMap(({ addresses }) => addresses.map(({ ip }) => ip));
  }
  return 'endpoints' in object ? object.endpoints.flatMap(({ addresses }) => addresses) : [];
}

/** Replays the entries, which begin before `from`, and gives the lines of the bundle. */
export async function* bundleOf(
  auditor: Auditor,
  entries: AsyncIterable<RecordingEntry>,
  content: BundleContent,
): AsyncGenerator<string> {
  const { from, to, namespaces, others, redactor } = content;
  const recorder = createRecorder(redactor, resources);
  const includes: Includes = (resource, namespace) =>
    resource === 'nodes' ||
    namespace === null ||
    namespaces.has(namespace) ||
    others.has(namespace);
  let hasBegun = false;
  for await (const entry of entries) {
    if (timeOf(entry) > to || entry.kind === 'end') break;
    if (!hasBegun && timeOf(entry) > from && auditor.serviceAuditor() !== null) {
      hasBegun = true;
      yield* beginning(auditor, from, includes, redactor);
    }
    // The bundle has nothing about the rules of nodes.
    if (isOfAgent(entry)) continue;
    auditor.take(entry);
    if (hasBegun && isRecorded(entry, includes)) yield recorder.line(entry);
  }
  if (!hasBegun) yield* beginning(auditor, from, includes, redactor);
  const at = to === Infinity ? (auditor.now() ?? from) : to;
  auditor.take({ kind: 'end', at, complete: true, skipped: new Map() });
  const findings = findingsIn(auditor, content);
  yield `${JSON.stringify({ kind: 'end', at: recorder.timeOf(at), version, findings })}\n`;
}

const timeOf = (entry: RecordingEntry): number =>
  entry.kind === 'event' ? entry.event.at : entry.at;

/** The checkpoint at `from`, or where the audit began. */
function beginning(
  auditor: Auditor,
  from: number,
  includes: Includes,
  redactor: Redactor | null,
): Iterable<string> {
  const at = Math.max(from, auditor.now() ?? from);
  // What became a finding since the last change has become one before the checkpoint.
  auditor.take({ kind: 'clock', at });
  const checkpoint = checkpointOf(auditor, at, { includes, redactor });
  if (checkpoint === null) throw new Error('The first lists are not complete in that time');
  return checkpoint.parts;
}

const isOfAgent = ({ kind }: RecordingEntry): boolean =>
  kind === 'node-rules' || kind === 'node-config' || kind === 'node-state';

function isRecorded(
  entry: RecordingEntry,
  includes: Includes,
): entry is Extract<RecordingEntry, LiveEntry> {
  switch (entry.kind) {
    case 'event':
      return includes(entry.event.resource, entry.event.object.namespace);
    case 'unreadable':
      return includes(entry.lost.resource, entry.lost.namespace);
    case 'access':
      return includes(entry.resource, entry.namespace);
    case 'watch':
    case 'synced':
      return true;
    default:
      return false;
  }
}

/** The findings of Services that were open in that time, to compare a replay of the bundle with. */
function findingsIn(
  { findings }: Auditor,
  { from, namespaces, redactor }: BundleContent,
): readonly object[] {
  const hide = (name: string): string => redactor?.name(name) ?? name;
  return [...findings.open(), ...findings.resolved()]
    .filter(({ resolvedAt }) => resolvedAt === null || resolvedAt > from)
    .filter(({ namespace, output }) => namespaces.has(namespace) && output !== 'node')
    .map(({ code, severity, output, cause, since, openedAt, resolvedAt, ...of }) => {
      const [namespace, service] = [hide(of.namespace), hide(of.service)];
      return { code, severity, output, cause, namespace, service, since, openedAt, resolvedAt };
    });
}

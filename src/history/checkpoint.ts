// A checkpoint: the state of an auditor as lines of a recording, from which an audit continues. The
// snapshot is taken at once: lists of objects, which never change. The lines are made later.
//
//   header, watch states, objects (SYNC), zones, what cannot be read, states of Services, synced

import { openFindingKey } from '../audit/finding/catalogue.ts';
import { saveService } from '../audit/service/checkpoint.ts';
import type { Auditor } from '../auditor/auditor.ts';
import type { LiveEntry } from '../cluster/decode/entry.ts';
import { createRecorder } from '../cluster/files/recorder.ts';
import type { AnyObject, Resource } from '../model/objects.ts';
import { resources } from '../model/objects.ts';
import type { CheckpointLines } from './recorder.ts';

const json = (fields: object): string => `${JSON.stringify(fields)}\n`;

/** The state of an auditor now; `at` is the time of its lines. `null` before the first audit. */
export function checkpointOf(auditor: Auditor, at: number): CheckpointLines | null {
  const services = auditor.serviceAuditor();
  if (services === null) return null;
  const { store, findings, progress } = auditor;
  const present = resources.filter((resource) => store.listers.knows(resource));
  const openedAt = new Map(findings.open().map((it) => [openFindingKey(it), it.openedAt]));
  const states = [...services.audited.values()].map((audit) =>
    json({
      kind: 'service-state',
      at,
      service: audit.record.key,
      state: saveService(audit, openedAt),
    }),
  );
  const watches = [...progress.inputs].map(([resource, { state, blindSince }]) => ({
    kind: 'watch' as const,
    at: Math.min(blindSince ?? at, at),
    resource,
    state,
  }));
  watches.sort((a, b) => a.at - b.at);
  const objects = present.map(
    (resource) => [resource, [...store.objects[resource].values()]] as const,
  );
  const lost = [...services.unreadable.values()].map((it) => unreadableLine(it, at));
  const header = {
    kind: 'header' as const,
    at: watches[0]?.at ?? at,
    kubernetes: auditor.kubernetes(),
    resources: present,
  };
  const { settle, maxEndpointsPerSlice, release } = auditor.options;
  const settings = { settle, maxEndpointsPerSlice, minor: release?.minor ?? null };
  const zones = json({ kind: 'zones', at, zones: [...store.listers.zonesSeen] });
  return {
    at,
    parts: linesOf({ ...header, settings }, watches, objects, [zones, ...lost, ...states], at),
  };
}

type Unreadable = (LiveEntry & { readonly kind: 'unreadable' })['lost'];

function unreadableLine(lost: Unreadable, at: number): string {
  const { resource, namespace, name, labels, isForbidden } = lost;
  if (isForbidden !== true) {
    return json({ kind: 'unreadable', at, resource, type: null, namespace, name, labels });
  }
  return json({ kind: 'access', at, resource, namespace, permitted: false });
}

function* linesOf(
  header: LiveEntry & { readonly kind: 'header'; readonly settings: object },
  watches: readonly LiveEntry[],
  objects: readonly (readonly [Resource, readonly AnyObject[]])[],
  states: readonly string[],
  at: number,
): Generator<string> {
  const recorder = createRecorder(null);
  yield recorder.line(header, { settings: header.settings });
  for (const entry of watches) yield recorder.line(entry);
  for (const [resource, all] of objects) {
    for (const object of all) {
      const event = { resource, type: 'added' as const, object, at };
      yield recorder.line({ kind: 'event', event }, timesOf(object));
    }
  }
  yield* states;
  // The audit begins with the last of them.
  for (const [resource] of objects) yield recorder.line({ kind: 'synced', at, resource });
}

/** When this version arrived, and since when a pod has its addresses. */
const timesOf = (object: AnyObject) => ({
  ...('at' in object && { arrived: object.at }),
  ...('ipsSince' in object && { ipsSince: object.ipsSince }),
});

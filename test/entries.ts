// What the tests of the loop share: entries as the doors make them, and an auditor that collects
// what opens. The Service selects pods that are not there, so both of its outputs are missing.

import { auditorDefaults } from './auditor-defaults.ts';
import type { Finding } from '../src/audit/finding/catalogue.ts';
import type { InputState } from '../src/audit/pending/progress.ts';
import type { Auditor, AuditorOptions, AuditorEntry } from '../src/auditor/auditor.ts';
import { createAuditor } from '../src/auditor/auditor.ts';
import { createReport } from '../src/auditor/queries.ts';
import { project } from '../src/cluster/decode/json-objects.ts';
import type { RecordingEntry } from '../src/cluster/files/recording.ts';
import type { AnyObject, Resource } from '../src/model/objects.ts';
import { resources } from '../src/model/objects.ts';

export const service = {
  metadata: { name: 'web', namespace: 'shop', uid: 'web', resourceVersion: '1' },
  spec: { clusterIP: '10.96.0.9', ipFamilies: ['IPv4'], selector: { app: 'web' }, ports: [] },
};

export function projected(resource: Resource, raw: object, at: number): AnyObject {
  const projection = project(resource, raw, at);
  if (projection.problem !== undefined) throw new Error(projection.problem.message);
  return projection.object;
}

export const added = (resource: Resource, raw: object, at: number): RecordingEntry => ({
  kind: 'event',
  event: { resource, type: 'added', object: projected(resource, raw, at), at },
});

export const header = (at: number, kubernetes: string | null = 'v1.33.1'): RecordingEntry => ({
  kind: 'header',
  at,
  kubernetes,
  resources,
});

export const synced = (at: number, without: readonly Resource[] = []): RecordingEntry[] =>
  resources
    .filter((resource) => !without.includes(resource))
    .map((resource) => ({ kind: 'synced', at, resource }));

export const clock = (at: number): RecordingEntry => ({ kind: 'clock', at });

export const end = (at: number): RecordingEntry => {
  const none = new Map<string, number>();
  return { kind: 'end', at, complete: true, skipped: none, problems: none };
};

export function auditorOf(
  settle: number,
  more: Partial<AuditorOptions> = {},
): { auditor: Auditor; opened: Finding[] } {
  const opened: Finding[] = [];
  const auditor = createAuditor({
    ...auditorDefaults,
    settle,
    onOpen: (finding) => opened.push(finding),
    ...more,
  });
  return { auditor, opened };
}

export const report = (auditor: Auditor, namespace: string | null = null) =>
  createReport(auditor, { kind: 'replay', sources: ['test'], namespace, problems: [] });

export async function* stream(entries: readonly RecordingEntry[]): AsyncGenerator<RecordingEntry> {
  for (const entry of entries) yield await Promise.resolve(entry);
}

/** Changes of the state of watches, of all resources unless some are named. */
export const watches = (
  at: number,
  state: InputState,
  of: readonly Resource[] = resources,
): AuditorEntry[] => of.map((resource) => ({ kind: 'watch', at, resource, state }));

/** All up to a version is known, of all resources unless some are named. */
export const progress = (
  at: number,
  resourceVersion: string,
  of: readonly Resource[] = resources,
): AuditorEntry[] => of.map((resource) => ({ kind: 'progress', at, resource, resourceVersion }));

/** A live cluster with one Service whose outputs are missing, audited since 101. */
export const lively = (without: readonly Resource[] = []): AuditorEntry[] => {
  const others = resources.filter((resource) => !without.includes(resource));
  return [
    header(100),
    ...watches(100, 'listing', others),
    ...watches(100, 'off', without),
    added('services', service, 100),
    ...progress(101, '50', others),
    ...synced(101, without),
    ...watches(101, 'synced', others),
  ];
};

/** Another Service is read, as of a version; what waits needs to be known up to that. */
export function readAnother(auditor: Auditor, at: number, version: string): void {
  auditor.advance(at);
  const dues = [...auditor.findings.waiting()];
  const others = dues.map((due) => ({ ...due, service: `another-${String(at)}` }));
  const keys = auditor.confirmer.next(others, at);
  const slices = { objects: [], version };
  const read = { service: null, endpoints: null, slices, pods: null, version };
  for (const key of keys) auditor.confirmer.answer(key, read);
}

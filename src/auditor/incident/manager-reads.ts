// Reads the field managers that open incidents ask for, one object at a time.

import type { NamedObject } from '../../audit/incident/open-incident.ts';
import { readManagers } from '../../cluster/api/managed-fields.ts';
import type { Environment } from '../../cluster/api/transport/request.ts';
import type { FieldManagers } from '../../model/managed-fields.ts';
import { kinds, type Resource } from '../../model/objects.ts';

interface ManagerReadOptions {
  readonly environment: Environment;
  readonly incidents: {
    unread(): readonly NamedObject[];
    noteManagers(object: NamedObject, read: FieldManagers): void;
  };
  readonly mayRead: (resource: Resource, namespace: string) => boolean;
}

/** Seconds between two reads, and between two looks for an open incident. */
const pause = { read: 2, look: 1 };

const resourceOf = new Map(
  Object.entries(kinds).map(([resource, kind]) => [kind, resource as Resource]),
);

/** Runs until the signal is aborted. Never rejects. */
export async function readManagersOfIncidents(
  { environment, incidents, mayRead }: ManagerReadOptions,
  signal: AbortSignal,
): Promise<void> {
  while (!signal.aborted) {
    const [object] = incidents.unread();
    const resource = resourceOf.get(object?.kind ?? '');
    if (object !== undefined) {
      const isReadable = resource !== undefined && mayRead(resource, object.namespace);
      const read = isReadable
        ? await readManagers(environment, resource, object, signal)
        : { unknown: 'the auditor may not get the object' };
      incidents.noteManagers(object, read);
    }
    await environment.sleep(object === undefined ? pause.look : pause.read, signal);
  }
}

// The Kubernetes Events that an open incident has: one for each Service that it affects.

import type { Severity } from '../finding/catalogue.ts';
import type { Key } from '../../model/objects.ts';
import type { Incident } from './open-incident.ts';
import { kinds } from './kinds.ts';

/** What an Event says about a Service. */
export interface ServiceEvent {
  /** The same while the incident is open, for one uid and one type, which no patch can change. */
  readonly name: string;
  readonly namespace: string;
  readonly service: string;
  readonly uid: string;
  /** The kind of the incident in the form of other reasons: `ControllerNotWriting`. */
  readonly reason: string;
  readonly type: 'Normal' | 'Warning';
  readonly note: string;
}

/** Services of one incident that have an Event. */
const mostEvents = 100;

/** Characters that the API server accepts (k8s.io/kubernetes@v1.36.3 pkg/apis/core/validation). */
const longest = { name: 253, note: 1024 };

const typeOf = (severity: Severity): ServiceEvent['type'] =>
  severity === 'info' ? 'Normal' : 'Warning';

const reasonOf = (kind: string): string =>
  kind.replaceAll(/(?:^|-)([a-z])/g, (_, letter: string) => letter.toUpperCase());

/** The Events of an incident, of the first 100 Services by name that exist. */
export function eventsOf(
  { id, kind, object, services, severity }: Incident,
  uidOf: (service: Key) => string | null,
): ServiceEvent[] {
  const type = typeOf(severity);
  const more = services.size - 1;
  const others =
    more > 0 ? ` It affects ${more} other ${more === 1 ? 'Service' : 'Services'}.` : '';
  const note = `${kinds[kind].title}: ${object}.${others} Incident ${id} of endpoint-auditor.`;
  return [...services]
    .sort()
    .slice(0, mostEvents)
    .flatMap((key) => {
      const uid = uidOf(key);
      if (uid === null) return [];
      const [namespace = '', service = ''] = key.split('/');
      const end = `.${uid}.${type.toLowerCase()}`;
      // The end of a name is a time, the beginning a kind.
      const room = longest.name - service.length - 1 - end.length;
      const incident = id.length > room ? id.slice(0, room - 20) + id.slice(-20) : id;
      return {
        name: `${service}.${incident}${end}`,
        namespace,
        service,
        uid,
        reason: reasonOf(kind),
        type,
        note: note.slice(0, longest.note),
      };
    });
}

// Records Kubernetes Events on the Services that open incidents affect, if the user wants that: one
// Event for each incident and Service, repeated while the incident is open. The API server deletes
// an Event an hour after its last write by default.

import type { Incident } from '../../audit/incident/open-incident.ts';
import { eventsOf, type ServiceEvent } from '../../audit/incident/service-events.ts';
import { createEvent, repeatEvent } from '../../cluster/api/service-event.ts';
import type { Environment } from '../../cluster/api/transport/request.ts';
import type { Key } from '../../model/objects.ts';

interface EventRecorderOptions {
  readonly environment: Environment;
  /** The open incidents. */
  readonly incidents: () => readonly Incident[];
  /** The uid of a Service; `null` if it does not exist. */
  readonly uidOf: (service: Key) => string | null;
  /** The name of this process. */
  readonly instance: string;
  /** Called with the reason when a write fails, once until the reason changes. */
  readonly onFailure: (reason: string) => void;
}

/** Seconds between two requests, two looks at the incidents, repetitions, and after a failure. */
const pause = { request: 1, look: 10, repeat: 1800, failure: 60 };

interface Recorded {
  readonly event: ServiceEvent;
  /** How often the Event was written. */
  count: number;
  dueAt: number;
}

export function createEventRecorder(options: EventRecorderOptions) {
  const counts = { created: 0, repeated: 0, failed: 0 };
  let recorded = new Map<string, Recorded>();
  let reason = '';
  const look = (now: number): void => {
    const wanted = options.incidents().flatMap((it) => eventsOf(it, options.uidOf));
    recorded = new Map(
      wanted.map((event) => {
        const name = `${event.namespace}/${event.name}`;
        const before = recorded.get(name) ?? { count: 0, dueAt: now };
        return [name, { ...before, event }];
      }),
    );
  };
  const send = async (next: Recorded, now: number, signal: AbortSignal): Promise<void> => {
    const status = await write(options, next, signal);
    const isWritten = status === 200 || status === 201;
    if (isWritten) {
      counts[next.count === 0 ? 'created' : 'repeated']++;
      next.count++;
      next.dueAt = now + pause.repeat;
      return;
    }
    // An Event of this name exists, or has expired: the other request is right.
    const isOther = next.count === 0 ? status === 409 : status === 404;
    if (isOther) {
      next.count = next.count === 0 ? 1 : 0;
      return;
    }
    next.dueAt = now + pause.failure;
    // A namespace that is being deleted, or without the permission, refuses all of its Events.
    if (status === 403) {
      for (const it of recorded.values()) {
        if (it.event.namespace === next.event.namespace) it.dueAt = next.dueAt;
      }
    }
    counts.failed++;
    const text = `the API server answered ${status || 'nothing'}`;
    if (text !== reason) options.onFailure((reason = text));
  };
  return {
    counts,
    /** Runs until the signal is aborted. Never rejects. */
    async run(signal: AbortSignal): Promise<void> {
      const { environment } = options;
      let lookedAt = -Infinity;
      while (!signal.aborted) {
        const now = environment.now();
        if (now >= lookedAt + pause.look) {
          look(now);
          lookedAt = now;
        }
        const next = firstDue(recorded.values());
        if (next !== undefined && next.dueAt <= now) await send(next, now, signal);
        await environment.sleep(pause.request, signal);
      }
    },
  };
}

/** The Event that has waited for longest, so that those which fail do not block others. */
function firstDue(recorded: Iterable<Recorded>): Recorded | undefined {
  let first: Recorded | undefined;
  for (const it of recorded) if (first === undefined || it.dueAt < first.dueAt) first = it;
  return first;
}

/** The status of the answer, 0 without one. */
async function write(
  { environment, instance }: EventRecorderOptions,
  { event, count }: Recorded,
  signal: AbortSignal,
): Promise<number> {
  try {
    return count === 0
      ? await createEvent(environment, event, instance, signal)
      : await repeatEvent(environment, event, count + 1, signal);
  } catch {
    return 0;
  }
}

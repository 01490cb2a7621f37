// Writes Events about Services, by the only two requests that change the cluster: create and patch
// of events.k8s.io/v1. An Event that is repeated gets a series, as client-go's recorder does
// (k8s.io/client-go@v0.36.3 tools/events/event_broadcaster.go).

import { type Environment, exchange } from './transport/request.ts';

/** An Event about a Service, whose `uid` connects both. */
export interface EventContent {
  readonly name: string;
  readonly namespace: string;
  readonly service: string;
  readonly uid: string;
  readonly reason: string;
  readonly type: 'Normal' | 'Warning';
  readonly note: string;
}

const reporter = 'endpoint-auditor';

/** Seconds until an answer must be complete. */
const total = 10;

/** RFC 3339 with microseconds. */
const microTime = (at: number): string => new Date(at * 1000).toISOString().replace(/Z$/, '000Z');

const pathIn = (namespace: string): string =>
  `/apis/events.k8s.io/v1/namespaces/${encodeURIComponent(namespace)}/events`;

/** Returns the status of the answer: 201 if it was created, 409 if it exists. */
export function createEvent(
  environment: Environment,
  { name, namespace, service, uid, reason, type, note }: EventContent,
  instance: string,
  signal: AbortSignal,
): Promise<number> {
  const event = {
    apiVersion: 'events.k8s.io/v1',
    kind: 'Event',
    metadata: { name, namespace },
    eventTime: microTime(environment.now()),
    reportingController: reporter,
    reportingInstance: instance,
    action: 'Audit',
    reason,
    type,
    note,
    regarding: { apiVersion: 'v1', kind: 'Service', namespace, name: service, uid },
  };
  const body = JSON.stringify(event);
  const request = { path: pathIn(namespace), query: {}, accept: 'application/json', body };
  return exchange(environment, request, { total }, signal, ({ status }) => status);
}

/** Notes that what an Event says goes on. Returns the status: 404 if it has expired. */
export function repeatEvent(
  environment: Environment,
  { name, namespace }: Pick<EventContent, 'name' | 'namespace'>,
  count: number,
  signal: AbortSignal,
): Promise<number> {
  const series = { count, lastObservedTime: microTime(environment.now()) };
  const body = JSON.stringify({ series });
  const path = `${pathIn(namespace)}/${encodeURIComponent(name)}`;
  const request = { path, query: {}, accept: 'application/json', body, patch: true };
  return exchange(environment, request, { total }, signal, ({ status }) => status);
}

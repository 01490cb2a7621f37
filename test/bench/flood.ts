// What an incident costs the comparison, without a network: the API server is gone for 12 s, and
// then all pods are listed again while 4,000 of them change per second and no controller writes.
//
//   npm run -s flood -- [SECONDS] [SERVICES] [PODS]
//
// It prints one line of JSON for each part: pod events, their mean cost in microseconds of CPU, the
// entries of the queue of pending differences, the pending differences, how many were added to the
// queue, and the heap and the resident set in MiB.

import type { Auditor } from '../../src/auditor/auditor.ts';
import { createAuditor } from '../../src/auditor/auditor.ts';
import type { Pod } from '../../src/model/objects.ts';
import { auditorDefaults, event, header, node, pod, progress } from '../build.ts';
import { service, synced, times, watches } from '../build.ts';

export interface Flood {
  readonly seconds: number;
  readonly services: number;
  /** Of each Service. */
  readonly pods: number;
}

const perSecond = 4000;
const outage = 12;

interface FloodPart {
  readonly part: string;
  readonly events: number;
  readonly micros: number;
  /** The most entries of the queue after an event, and the pending differences then. */
  readonly entries: number;
  readonly pending: number;
  /** Differences that were added to the queue. */
  readonly watched: number;
}

function createPods({ services, pods }: Flood): Pod[] {
  return times(services * pods, (index) => {
    const labels = { app: `app-${index % services}` };
    const ips = [`10.${index >> 16}.${(index >> 8) & 255}.${index & 255}`];
    return pod({ name: `pod-${index}`, labels, ips, resourceVersion: String(index + 1) });
  });
}

function cpuMicros(): number {
  const { user, system } = process.threadCpuUsage();
  return user + system;
}

/** Changes the readiness of one pod after the other, and notes what the queue then has. */
function change(auditor: Auditor, pods: Pod[], from: number, seconds: number, gap: boolean) {
  const { findings } = auditor;
  let [entries, pending, watched] = [0, 0, 0];
  const watch = findings.watch.bind(findings);
  findings.watch = (...difference) => {
    watched++;
    watch(...difference);
  };
  const started = cpuMicros();
  const events = seconds * perSecond;
  for (let count = 0; count < events; count++) {
    const index = count % pods.length;
    const before = pods[index];
    if (before === undefined) break;
    const resourceVersion = String(Number(before.resourceVersion) + pods.length);
    const after = { ...before, ready: !before.ready, resourceVersion };
    pods[index] = after;
    const at = from + count / perSecond;
    auditor.take({
      kind: 'event',
      event: { ...event('modified', after, at), ...(gap ? { gap } : {}) },
    });
    const size = findings.size();
    if (size.entries > entries) ({ entries, pending } = size);
  }
  const micros = (cpuMicros() - started) / events;
  findings.watch = watch;
  return { events, micros, entries, pending, watched };
}

/** Runs the parts of an incident, one after the other. */
export function* flood(shape: Flood): Generator<FloodPart> {
  const auditor = createAuditor({ ...auditorDefaults, live: true });
  const pods = createPods(shape);
  const { seconds } = shape;
  let at = 1000;
  const run = (part: string, gap: boolean): FloodPart => {
    const done = { part, ...change(auditor, pods, at, seconds, gap) };
    at += seconds;
    return done;
  };
  for (const entry of [header(at), ...watches(at, 'listing')]) auditor.take(entry);
  const services = times(shape.services, (index) => {
    const selector = { app: `app-${index}` };
    return service({ name: `service-${index}`, uid: `service-${index}`, selector });
  });
  for (const object of [node(), ...services, ...pods]) {
    auditor.take({ kind: 'event', event: event('added', object, at) });
  }
  const version = String(pods.length);
  for (const entry of [...progress(at, version), ...synced(at), ...watches(at, 'synced')]) {
    auditor.take(entry);
  }
  yield run('before', false);
  for (const entry of watches(at, 'stale')) auditor.take(entry);
  at += outage;
  for (const entry of watches(at, 'relisting')) auditor.take(entry);
  yield run('listing again', true);
  for (const entry of [...synced(at), ...watches(at, 'synced')]) auditor.take(entry);
  yield run('after', false);
}

if (import.meta.main) {
  const [seconds = 30, services = 5, pods = 1000] = process.argv.slice(2).map(Number);
  for (const part of flood({ seconds, services, pods })) {
    const { heapUsed, rss } = process.memoryUsage();
    const [heap, resident] = [heapUsed, rss].map((bytes) => Math.round(bytes / 2 ** 20));
    const micros = Number(part.micros.toFixed(1));
    console.log(JSON.stringify({ ...part, micros, heap, resident }));
  }
}

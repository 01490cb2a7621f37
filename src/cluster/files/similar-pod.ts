// A pod by what differs from another pod. Most pods of a Service have the same namespace and ports,
// and nearly all have the same labels, so a checkpoint writes these once. A line of a recording:
//
//   {"kind":"pod","at":T,"base":"123","ip":"10.0.0.7","nodeName":…,"targetRef":{…},
//    "resourceVersion":"124","ready":false,"turnedAt":T}
//
// `base` is the resourceVersion of the latest pod before this line that was written as an object.
// The line may also have `otherIPs`, `labels`, `hostname`, `ipsSince` and `created`. Everything
// that it does not have is as in that pod. The address, the Node and the reference have the names
// that they have in Endpoints.

import type { Pod } from '../../model/objects.ts';
import { internLabels } from '../decode/intern.ts';
import * as json from '../decode/json-fields.ts';
import { changed, isSameBut, timeIn } from './delta.ts';

/** What a line may change; a pod with any other difference is written whole. */
const written: ReadonlySet<string> = new Set([
  ...['key', 'name', 'uid', 'ref', 'resourceVersion', 'node', 'ips', 'ipsSince'],
  ...['labels', 'hostname', 'ready', 'turnedAt', 'created'],
]);

/** The line of a pod that resembles the base. `null` if the pod should be written whole. */
export function similarPod(pod: Pod, base: Pod): json.Fields | null {
  if (pod.deleting || base.deleting || base.resourceVersion === '') return null;
  if (!isSameBut(written, pod, base)) return null;
  const [ip, ...otherIPs] = pod.ips;
  return {
    base: base.resourceVersion,
    ip,
    nodeName: pod.node,
    targetRef: pod.ref,
    resourceVersion: pod.resourceVersion,
    otherIPs: otherIPs.length === 0 ? undefined : otherIPs,
    labels: changed(base.labels, pod.labels),
    hostname: changed(base.hostname, pod.hostname),
    ready: changed(base.ready, pod.ready),
    turnedAt: changed(base.turnedAt, pod.turnedAt),
    ipsSince: changed(base.ipsSince, pod.ipsSince),
    created: changed(base.created, pod.created),
  };
}

/** The pod of a line. Throws WrongType. */
export function readSimilarPod(base: Pod, line: json.Fields): Pod {
  const { namespace } = base;
  const { name, uid } = json.within(line, 'targetRef', (ref) => {
    const isThere = ref.namespace === namespace;
    if (!isThere) throw new json.WrongType('namespace', 'the same namespace', ref.namespace);
    return { name: json.identity(ref, 'name'), uid: json.text(ref, 'uid') };
  });
  const { ip, labels, hostname, ready, turnedAt, created } = line;
  return {
    ...base,
    key: json.keyOf(namespace, name),
    name,
    uid,
    resourceVersion: json.text(line, 'resourceVersion'),
    labels: labels === undefined ? base.labels : internLabels(json.stringMap(line, 'labels')),
    created: created === undefined ? base.created : timeIn(line, 'created'),
    ref: { kind: 'Pod', namespace, name, uid },
    node: json.word(line, 'nodeName'),
    hostname: hostname === undefined ? base.hostname : json.text(line, 'hostname'),
    ready: ready === undefined ? base.ready : json.flag(line, 'ready'),
    turnedAt: turnedAt === undefined ? base.turnedAt : timeIn(line, 'turnedAt'),
    ips: ip === undefined ? [] : [json.text(line, 'ip'), ...json.texts(line, 'otherIPs')],
    ipsSince: json.optionalTime(line, 'ipsSince') ?? base.ipsSince,
  };
}

// Which changes make which controller enqueue a Service: the event handlers of the three
// controllers in k8s.io/kubernetes@v1.36.3 (pkg/controller/endpoint, endpointslice,
// endpointslicemirroring) and podEndpointsChanged of k8s.io/endpointslice@v0.36.3
// util/controller_utils.go.
//
// A change that enqueues nothing leaves the old output, a difference with a known cause. Every
// event of a Service enqueues it in two controllers, so there is no function for that.
//
// Left out: resyncs, which enqueue all Services from the informer's cache, by default every 12 h.

import { equalTexts } from '../model/equality.ts';
import { annotation, type Endpoints, label, type Pod, type Service } from '../model/objects.ts';
import { equalLabels } from '../model/selector.ts';

/**
 * The Services that an update of a pod enqueues: all that select it before or after (`all`), or
 * before or after but not both (`membership`). Upstream compares deletionTimestamps as pointers, so
 * every update of a terminating pod enqueues its Services.
 */
export function wakesOfPodUpdate(before: Pod, after: Pod): 'all' | 'membership' | 'none' {
  const changed =
    before.deleting ||
    after.deleting ||
    before.ready !== after.ready ||
    !equalTexts(before.ips, after.ips);
  if (changed) return 'all';
  const relabelled =
    !equalLabels(before.labels, after.labels) ||
    before.hostname !== after.hostname ||
    before.subdomain !== after.subdomain;
  return relabelled ? 'membership' : 'none';
}

/** Whether Endpoints may be mirrored, without regard to their Service. `shouldMirror`. */
export const isMirrorable = (endpoints: Endpoints): boolean =>
  endpoints.labels[label.skipMirror] !== 'true' &&
  !Object.hasOwn(endpoints.annotations, annotation.leader);

/** Whether a change of a Service enqueues it for mirroring; null if it did or does not exist. */
export function wakesMirroring(before: Service | null, after: Service | null): boolean {
  if (before === null || after === null) return (after ?? before)?.selector === null;
  return (before.selector === null) !== (after.selector === null);
}

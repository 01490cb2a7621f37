// Which changes wake which controller: the event handlers of the three controllers in
// k8s.io/kubernetes@v1.36.3 (pkg/controller/endpoint, endpointslice, endpointslicemirroring) and
// podEndpointsChanged of k8s.io/endpointslice@v0.36.3 util/controller_utils.go.
//
// A level-triggered reading of the input is what the controllers mean; what they do starts with a
// wake. A change that wakes nobody leaves the old state standing until something else wakes the
// controller for the same Service. Such a difference has a known cause.
//
// A Service wakes both controllers by every event of its own, so there is no function for it. Left
// out: resyncs (they replay the informer's cache and wake all Services, 12 h apart by default).

import type { Endpoints, Pod, Service } from '../model/objects.ts';
import { annotation, label } from '../model/objects.ts';
import { equalLabels } from '../model/selector.ts';

/**
 * What an update of a pod wakes: every Service that selects it before or after (`all`), only those
 * for which its membership changed (`membership`), or none. Phase, nodeName, container ports and
 * annotations wake nobody. Readiness and deletionTimestamp do; a pod that is being deleted wakes at
 * its every update, since upstream compares pointers.
 */
export function wakesOfPodUpdate(before: Pod, after: Pod): 'all' | 'membership' | 'none' {
  const changed =
    before.deleting ||
    after.deleting ||
    before.ready !== after.ready ||
    before.ips.length !== after.ips.length ||
    before.ips.some((ip, index) => ip !== after.ips[index]);
  if (changed) return 'all';
  const relabelled =
    !equalLabels(before.labels, after.labels) ||
    before.hostname !== after.hostname ||
    before.subdomain !== after.subdomain;
  return relabelled ? 'membership' : 'none';
}

/** Whether Endpoints are mirrored at all, apart from their Service. `shouldMirror`. */
export function isMirrorable(endpoints: Endpoints): boolean {
  return (
    endpoints.labels[label.skipMirror] !== 'true' &&
    !Object.hasOwn(endpoints.annotations, annotation.leader)
  );
}

/** Whether a change of a Service wakes the mirroring controller; null: it did or does not exist. */
export function mirroringWokenByService(before: Service | null, after: Service | null): boolean {
  if (before === null || after === null) return (after ?? before)?.selector === null;
  return (before.selector === null) !== (after.selector === null);
}

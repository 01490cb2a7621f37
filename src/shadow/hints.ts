// Shadows the topology hints of the endpointslice controller: trafficdist/trafficdist.go and
// topologycache/ of k8s.io/endpointslice@v0.36.3.
//
// Hints by trafficDistribution are a function of the endpoint, so they are expected exactly. Hints
// by the annotation topology-mode Auto depend on all earlier syncs and Node events. They are only
// checked for consistency: all ready endpoints of an address type have hints or none has, and none
// has if upstream's conditions forbid them. Absent hints are always allowed.
//
// Left out: how many endpoints of one zone serve another (it depends on history), and hints of
// endpoints that are not ready under Auto (no kube-proxy reads them).

import type { Endpoint, Service, ZoneCapacity } from '../model/objects.ts';
import type { Release } from './release.ts';

export type HintMode = 'none' | 'auto' | 'zone' | 'node';

/** The hints of the Service's slices. `reconciler.go` reconcileByAddressType. */
export function hintMode(service: Service, release: Release): HintMode {
  if (service.topologyAuto) return 'auto';
  const wanted = service.trafficDistribution;
  if (wanted === null || !release.trafficDistributions.includes(wanted)) return 'none';
  return wanted === 'PreferSameNode' ? 'node' : 'zone';
}

export type Hints = Pick<Endpoint, 'forZones' | 'forNodes'>;

const noHints: Hints = { forZones: null, forNodes: null };

/** The hints of one endpoint by trafficDistribution: trafficdist.go preferCloseHeuristic. */
export function expectedHints(
  mode: 'none' | 'zone' | 'node',
  endpoint: Endpoint,
  release: Release,
): Hints {
  if (mode === 'none' || endpoint.ready !== true) return noHints;
  const noZone = release.hintsEmptyZone ? [''] : null;
  return {
    forZones: endpoint.zone === null ? noZone : [endpoint.zone],
    forNodes: mode === 'node' && endpoint.node !== null ? [endpoint.node] : null,
  };
}

const overloadThreshold = 0.2;

/** Why upstream gives no hints; `topologycache/event.go` has a message for each. */
export type NoHints = 'node-information' | 'one-zone' | 'few-endpoints' | 'overload';

/** Why the next sync gives no hints to `ready` endpoints; null if it does. getAllocations. */
export function reasonOfNoHints(capacity: ZoneCapacity, ready: number): NoHints | null {
  const zones = capacity.cpuMillisByZone.size;
  if (capacity.insufficient) return 'node-information';
  if (zones < 2) return 'one-zone';
  if (zones > ready) return 'few-endpoints';
  const cpus = [...capacity.cpuMillisByZone.values()];
  const total = cpus.reduce((sum, cpu) => sum + cpu, 0);
  const least = cpus.reduce(
    (sum, cpu) => sum + Math.ceil(((cpu / total) * ready) / (1 + overloadThreshold)),
    0,
  );
  return least > ready ? 'overload' : null;
}

/** The same as a message of upstream's events. */
export function whyNoHints(capacity: ZoneCapacity, ready: number): string | null {
  const reason = reasonOfNoHints(capacity, ready);
  if (reason === null) return null;
  const counts = `(${String(ready)} endpoints, ${String(capacity.cpuMillisByZone.size)} zones)`;
  return {
    'node-information':
      'insufficient Node information: allocatable CPU or zone not specified on a Node',
    'one-zone': 'Nodes only ready in one zone',
    'few-endpoints': `insufficient number of endpoints ${counts}`,
    overload: `minimum allocation exceeds the overload threshold ${counts}`,
  }[reason];
}

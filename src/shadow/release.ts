// The differences between releases of kube-controller-manager, as data. Read from the sources of
// k8s.io/kubernetes and k8s.io/endpointslice at 1.30.14, 1.31.14, 1.32.13, 1.33.13, 1.34.10, 1.35.4
// and 1.36.3. Only the rows of 1.30, 1.33 and 1.36 were compared with the output of those releases.
//
// Left out, since no comparison here can see it: the order of ports and subsets (md5 before 1.35,
// FNV since), irregular addresses (copied before 1.33, rewritten since, compared in canonical
// form), and defects of single patch releases.

import { minorIn } from '../model/proxy-config.ts';

export type Release = Readonly<typeof v30>;

const close = ['PreferClose'];
const same = ['PreferClose', 'PreferSameZone', 'PreferSameNode'];

const v30 = {
  minor: 30,
  /** The row was compared with a real control plane of this release. */
  verified: true,
  /** Endpoints have the label endpoints.kubernetes.io/managed-by. syncService. */
  endpointsManagedBy: false,
  /** Named ports of restartable init containers count. FindPort. */
  sidecarPortsInEndpoints: false,
  sidecarPortsInSlices: false,
  /** Values of trafficDistribution that yield hints. reconciler.go validTrafficDistribution. */
  trafficDistributions: [] as readonly string[],
  /** A ready endpoint without zone gets a zone hint of the empty name. trafficdist.go update. */
  hintsEmptyZone: false,
  /** Every sync deletes and recreates slices without ports. controller_utils.go NewPortMapKey. */
  rebuildsPortless: true,
  /** The controller reverts edits of mirrored slices. onEndpointSliceUpdate. */
  mirrorRepairsEdits: false,
};
const v31: Release = {
  ...v30,
  minor: 31,
  verified: false,
  trafficDistributions: close,
  hintsEmptyZone: true,
  mirrorRepairsEdits: true,
};
const v32: Release = { ...v31, minor: 32, sidecarPortsInEndpoints: true };
const v33: Release = {
  ...v32,
  minor: 33,
  verified: true,
  endpointsManagedBy: true,
  sidecarPortsInSlices: true,
  hintsEmptyZone: false,
};
const v34: Release = { ...v33, minor: 34, verified: false, trafficDistributions: same };
const v35: Release = { ...v34, minor: 35 };
const v36: Release = { ...v35, minor: 36, verified: true, rebuildsPortless: false };

/** Every known release, oldest first. */
export const releases: readonly Release[] = [v30, v31, v32, v33, v34, v35, v36];

/** The release that is assumed without other evidence. */
export const newestRelease: Release = v36;

/** The row of a version such as `v1.33.13`, `1.33` or `v1.31.2-eks-4f2c`; null if unknown. */
export function releaseOf(version: string): Release | null {
  const minor = minorIn(version);
  return releases.find((release) => release.minor === minor) ?? null;
}

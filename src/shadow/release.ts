// What differs between releases of kube-controller-manager, as data. Read from the sources of
// k8s.io/kubernetes and k8s.io/endpointslice at 1.30.14, 1.31.14, 1.32.13, 1.33.13, 1.34.10, 1.35.4
// and 1.36.3; the rows of 1.30, 1.33 and 1.36 are also held against what those releases wrote, the
// others are not.
//
// Left out, since no comparison here can see it: the order of ports and subsets (md5 before 1.35,
// FNV since), irregular addresses (copied as they are before 1.33, rewritten since; they are
// compared in canonical form), and defects of single patch releases.

import { minorIn } from '../model/proxy-config.ts';

export interface Release {
  /** The minor version whose row this is. */
  readonly minor: number;
  /** The row was held against a real control plane of this release. */
  readonly verified: boolean;
  /** Endpoints carry endpoints.kubernetes.io/managed-by. endpoints_controller.go syncService. */
  readonly endpointsManagedBy: boolean;
  /** Named ports of restartable init containers count. FindPort. */
  readonly sidecarPortsInEndpoints: boolean;
  readonly sidecarPortsInSlices: boolean;
  /** Values of trafficDistribution that yield hints. reconciler.go validTrafficDistribution. */
  readonly trafficDistributions: readonly string[];
  /** A ready endpoint without zone gets a zone hint of the empty name. trafficdist.go update. */
  readonly hintsEmptyZone: boolean;
  /**
   * Slices without ports are deleted and made anew at every sync. controller_utils.go
   * NewPortMapKey.
   */
  readonly rebuildsPortless: boolean;
  /** An edited mirrored slice is put right again. endpointslicemirroring onEndpointSliceUpdate. */
  readonly mirrorRepairsEdits: boolean;
}

const close = ['PreferClose'];
const same = ['PreferClose', 'PreferSameZone', 'PreferSameNode'];

const v30: Release = {
  minor: 30,
  verified: true,
  endpointsManagedBy: false,
  sidecarPortsInEndpoints: false,
  sidecarPortsInSlices: false,
  trafficDistributions: [],
  hintsEmptyZone: false,
  rebuildsPortless: true,
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

/** Every release that is known, oldest first. */
export const releases: readonly Release[] = [v30, v31, v32, v33, v34, v35, v36];

/** The release that is assumed where the input does not say. */
export const newestRelease: Release = v36;

/**
 * The row for a version such as `v1.33.13`, `1.33` or `v1.31.2-eks-4f2c`; null when the text is no
 * version or the release is not known.
 */
export function releaseOf(version: string): Release | null {
  const minor = minorIn(version);
  return releases.find((release) => release.minor === minor) ?? null;
}

// The differences between releases of kube-controller-manager, as data, and which releases were
// compared with real output. Read from the sources of k8s.io/kubernetes at 1.28.15, 1.29.15,
// 1.30.14, 1.31.14, 1.32.13, 1.33.13, 1.34.4, 1.34.10, 1.35.0, 1.35.4, 1.36.3 and 1.37.2, and of
// k8s.io/endpointslice at the same releases. Nothing changed in 1.29, 1.30 and 1.37.
//
// Left out, since no comparison here can see it: the order of ports, addresses and subsets (md5
// before 1.35, FNV since), irregular addresses (copied before 1.33, rewritten since, compared in
// canonical form), and defects of single patch releases.

import { minorIn } from '../model/proxy-config.ts';

export type Release = Readonly<typeof v28>;

const compared = ['v1.31.14', 'v1.32.13', 'v1.33.13', 'v1.34.4', 'v1.35.4', 'v1.36.3', 'v1.37.2'];

/** The versions whose output was compared: by test/vectors, and by test/nodes. */
export const verified = { controllers: ['v1.30.14', ...compared], kubeProxy: compared };

export const isVerified = (part: keyof typeof verified, minor: number): boolean =>
  verified[part].some((version) => minorIn(version) === minor);

const close = ['PreferClose'];
const same = ['PreferClose', 'PreferSameZone', 'PreferSameNode'];

const v28 = {
  minor: 28,
  /**
   * Endpoints have the label endpoints.kubernetes.io/managed-by. syncService. `null`: controllers
   * of both kinds may write them (detect-release.ts).
   */
  endpointsManagedBy: false as boolean | null,
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
  /** Endpoints that equal the desired ones after repacking are not rewritten. syncService. */
  repacksEndpoints: false,
};
const v29: Release = { ...v28, minor: 29 };
const v30: Release = { ...v28, minor: 30 };
const v31: Release = {
  ...v30,
  minor: 31,
  trafficDistributions: close,
  hintsEmptyZone: true,
  mirrorRepairsEdits: true,
};
const v32: Release = { ...v31, minor: 32, sidecarPortsInEndpoints: true };
const v33: Release = {
  ...v32,
  minor: 33,
  endpointsManagedBy: true,
  sidecarPortsInSlices: true,
  hintsEmptyZone: false,
};
const v34: Release = { ...v33, minor: 34, trafficDistributions: same };
const v35: Release = { ...v34, minor: 35, repacksEndpoints: true };
const v36: Release = { ...v35, minor: 36, rebuildsPortless: false };
const v37: Release = { ...v36, minor: 37 };

/** Every known release, oldest first. */
export const releases: readonly Release[] = [v28, v29, v30, v31, v32, v33, v34, v35, v36, v37];

export const oldestRelease: Release = v28;

/** The release that is assumed without other evidence. */
export const newestRelease: Release = releases.at(-1) ?? oldestRelease;

/** The row of a version such as `v1.33.13`, `1.33` or `v1.31.2-eks-4f2c`; null if unknown. */
export function releaseOf(version: string): Release | null {
  const minor = minorIn(version);
  return releases.find((release) => release.minor === minor) ?? null;
}

/** `1.36` */
export const nameOf = ({ minor }: Pick<Release, 'minor'>): string => `1.${String(minor)}`;

/**
 * Why the verdicts on a cluster are not verified, as phrases; empty if they are. `kubelets` and
 * `proxies` are minor versions: of all Nodes, and of those whose rules are compared.
 */
export function unverifiedReasons(
  release: Release,
  kubernetes: string | null,
  kubelets: readonly number[],
  proxies: readonly number[],
): string[] {
  const name = nameOf(release);
  const newer = kubelets.find((minor) => minor > release.minor);
  const other = proxies.find((minor) => !isVerified('kubeProxy', minor));
  const isAnother = kubernetes !== null && minorIn(kubernetes) !== release.minor;
  return [
    ...(isAnother ? [`the cluster is ${kubernetes}, not ${name}`] : []),
    ...(newer === undefined
      ? []
      : [`a kubelet is ${nameOf({ minor: newer })}, newer than ${name}`]),
    ...(isVerified('controllers', release.minor)
      ? []
      : [`controllers of ${name} were not compared`]),
    ...(other === undefined ? [] : [`kube-proxy ${nameOf({ minor: other })} was not compared`]),
  ];
}

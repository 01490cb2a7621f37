// Infers the Kubernetes release of a dump that does not contain the version of the control plane.
//
// A kubelet is never newer than its API server (kubernetes.io/releases/version-skew-policy). Since
// 1.33 the endpoints controller labels all Endpoints of Services with a selector at every sync
// (pkg/controller/endpoint/endpoints_controller.go syncService at kubernetes@v1.33.13; without the
// label at v1.32.13). The newest release that remains is chosen. If none remains, a user has
// removed labels, and only the kubelets count. A cluster that is older than every known release is
// audited as the oldest one.

import { label, type Listers } from '../model/objects.ts';
import { minorIn } from '../model/proxy-config.ts';
import { isSelected } from './endpoints.ts';
import { newestRelease, oldestRelease, type Release, releaseOf, releases } from './release.ts';

export interface DetectedRelease {
  readonly release: Release;
  /** The option, the version of the input, or evidence of the dump. Else the nearest known one. */
  readonly by: 'option' | 'version' | 'kubelets' | 'labels' | 'kubelets and labels' | Assumed;
}

type Assumed = 'oldest' | 'newest';

export const assumedRelease: DetectedRelease = { release: newestRelease, by: 'newest' };

const oldestKnown: DetectedRelease = { release: oldestRelease, by: 'oldest' };

/** The option, else the version of the input, else the guess. */
export function chooseRelease(
  option: Release | null,
  version: string | null,
  guessed: DetectedRelease,
): DetectedRelease {
  if (option !== null) return { release: option, by: 'option' };
  const release = releaseOf(version ?? '');
  if (release !== null) return { release, by: 'version' };
  return (minorIn(version ?? '') ?? Infinity) < oldestRelease.minor ? oldestKnown : guessed;
}

/** Infers the release. `kubelet`: the newest minor version; null if no Node has one. */
export function detectRelease(listers: Listers, kubelet: number | null): DetectedRelease {
  const possible = releases.filter(({ minor }) => kubelet === null || minor >= kubelet);
  const labelled = areLabelled(listers);
  // A kubelet is at most three minor versions older than its API server.
  if (labelled !== true && (kubelet ?? Infinity) + 3 < oldestRelease.minor) return oldestKnown;
  const both = possible.findLast((item) => item.endpointsManagedBy === labelled);
  if (both !== undefined) {
    return { release: both, by: kubelet === null ? 'labels' : 'kubelets and labels' };
  }
  const release = possible.at(-1);
  return kubelet === null || release === undefined ? assumedRelease : { release, by: 'kubelets' };
}

/** Whether any Endpoints of a Service with a selector has the label; null if there are none. */
function areLabelled({ services, endpoints }: Listers): boolean | null {
  const selected = [...services.values()].filter(isSelected);
  const written = selected.flatMap(({ key }) => endpoints.get(key) ?? []);
  if (written.length === 0) return null;
  return written.some(({ labels }) => labels[label.endpointsManagedBy] !== undefined);
}

// Infers the Kubernetes release of a dump that does not contain the version of the control plane.
//
// A kubelet is never newer than its API server (kubernetes.io/releases/version-skew-policy). Since
// 1.33 the endpoints controller labels all Endpoints of Services with a selector at every sync
// (pkg/controller/endpoint/endpoints_controller.go syncService at kubernetes@v1.33.13; without the
// label at v1.32.13). The newest release that remains is chosen. If none remains, a user has
// removed labels, and only the kubelets count.

import type { Listers } from '../model/objects.ts';
import { label } from '../model/objects.ts';
import { isSelected } from './endpoints.ts';
import type { Release } from './release.ts';
import { newestRelease, releaseOf, releases } from './release.ts';

export interface DetectedRelease {
  readonly release: Release;
  /** The option --kubernetes-version, the version of the input, or evidence of the dump. */
  readonly by: 'option' | 'version' | 'kubelets' | 'labels' | 'kubelets and labels' | 'newest';
}

export const assumedRelease: DetectedRelease = { release: newestRelease, by: 'newest' };

/** The option, else the version of the input, else the guess. */
export function chooseRelease(
  option: Release | null,
  version: string | null,
  guessed: DetectedRelease,
): DetectedRelease {
  if (option !== null) return { release: option, by: 'option' };
  const release = releaseOf(version ?? '');
  return release === null ? guessed : { release, by: 'version' };
}

/** Infers the release. `kubelet`: the newest minor version; null if no Node has one. */
export function detectRelease(listers: Listers, kubelet: number | null): DetectedRelease {
  const possible = releases.filter(({ minor }) => kubelet === null || minor >= kubelet);
  const labelled = areLabelled(listers);
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

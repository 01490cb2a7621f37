// Which release a dump is judged as, whose objects name no version of the control plane.
//
// Two things in it rule releases out. A kubelet is never newer than its API server
// (kubernetes.io/releases/version-skew-policy), so the newest kubelet is a lower bound. And since
// 1.33 the endpoints controller labels all that it writes, also what stood before: it compares
// labels at every sync (pkg/controller/endpoint/endpoints_controller.go syncService at
// k8s.io/kubernetes@v1.33.13 and, without the label, at v1.32.13). So Endpoints none of which has
// it are of an older one.
//
// The newest release that remains is taken. Where none does, a label is missing by somebody's hand,
// and the kubelets count alone. It stays a guess, and a report says so.

import type { Listers } from '../model/objects.ts';
import { label } from '../model/objects.ts';
import { isSelected } from './endpoints.ts';
import type { Release } from './release.ts';
import { newestRelease, releaseOf, releases } from './release.ts';

export interface DetectedRelease {
  readonly release: Release;
  /**
   * What told it: the option --kubernetes-version, the version that the input names, or what of a
   * dump rules others out; `newest`: nothing did.
   */
  readonly by: 'option' | 'version' | 'kubelets' | 'labels' | 'kubelets and labels' | 'newest';
}

/** The newest known release, for nothing tells another. */
export const assumedRelease: DetectedRelease = { release: newestRelease, by: 'newest' };

/** What is judged as: the option, else the version that the input names, else what is guessed. */
export function chooseRelease(
  option: Release | null,
  version: string | null,
  guessed: DetectedRelease,
): DetectedRelease {
  if (option !== null) return { release: option, by: 'option' };
  const release = releaseOf(version ?? '');
  return release === null ? guessed : { release, by: 'version' };
}

/** The release of a dump whose newest kubelet has this minor version; null: none is told. */
export function detectRelease(listers: Listers, kubelet: number | null): DetectedRelease {
  const possible = releases.filter(({ minor }) => kubelet === null || minor >= kubelet);
  const labelled = areLabelled(listers);
  const both = possible.findLast((one) => one.endpointsManagedBy === labelled);
  if (both !== undefined) {
    return { release: both, by: kubelet === null ? 'labels' : 'kubelets and labels' };
  }
  const release = possible.at(-1);
  return kubelet === null || release === undefined ? assumedRelease : { release, by: 'kubelets' };
}

/** Whether any Endpoints of a Service with a selector is labelled; null: there are none. */
function areLabelled({ services, endpoints }: Listers): boolean | null {
  let found: boolean | null = null;
  for (const [key, service] of services) {
    const written = isSelected(service) ? endpoints.get(key) : undefined;
    if (written === undefined) continue;
    if (written.labels[label.endpointsManagedBy] !== undefined) return true;
    found = false;
  }
  return found;
}

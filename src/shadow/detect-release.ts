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
import type { Release } from './release.ts';
import { nameOf, newestRelease, oldestRelease, releaseOf, releases } from './release.ts';

export interface DetectedRelease {
  readonly release: Release;
  /** The option, the version of the input, or evidence of the dump. Else the nearest known one. */
  readonly by: 'option' | 'version' | 'kubelets' | 'labels' | 'kubelets and labels' | Assumed;
  /** What of the dump allows which releases: `kubelets 1.33 allow 1.33-1.36`; `null` if nothing. */
  readonly evidence: string | null;
}

type Assumed = 'oldest' | 'newest';

export const assumedRelease: DetectedRelease = {
  release: newestRelease,
  by: 'newest',
  evidence: null,
};

const oldestKnown: DetectedRelease = { release: oldestRelease, by: 'oldest', evidence: null };

/** The option, else the version of the input, else the guess. */
export function chooseRelease(
  option: Release | null,
  version: string | null,
  guessed: DetectedRelease,
): DetectedRelease {
  if (option !== null) return { release: option, by: 'option', evidence: null };
  const release = releaseOf(version ?? '');
  if (release !== null) return { release, by: 'version', evidence: null };
  return (minorIn(version ?? '') ?? Infinity) < oldestRelease.minor ? oldestKnown : guessed;
}

/** Infers the release. `kubelet`: the newest minor version; null if no Node has one. */
export function detectRelease(listers: Listers, kubelet: number | null): DetectedRelease {
  const possible = releases.filter(({ minor }) => kubelet === null || minor >= kubelet);
  const labelled = areLabelled(listers);
  // A kubelet is at most three minor versions older than its API server.
  if (labelled !== true && (kubelet ?? Infinity) + 3 < oldestRelease.minor) return oldestKnown;
  const kubelets = kubelet === null ? [] : [`kubelets 1.${kubelet}`];
  const both = possible.filter((item) => item.endpointsManagedBy === labelled);
  const newestOfBoth = both.at(-1);
  if (newestOfBoth !== undefined) {
    const by = kubelet === null ? 'labels' : 'kubelets and labels';
    const what = [...kubelets, 'labels of Endpoints'].join(' and ');
    return { release: newestOfBoth, by, evidence: `${what} allow ${rangeOf(both)}` };
  }
  const release = possible.at(-1);
  if (kubelet === null || release === undefined) return assumedRelease;
  return { release, by: 'kubelets', evidence: `${kubelets.join()} allow ${rangeOf(possible)}` };
}

/** `1.33-1.36`, or `1.33` alone. */
const rangeOf = (allowed: readonly Release[]): string =>
  [...new Set([allowed.at(0), allowed.at(-1)])].flatMap((it) => (it ? nameOf(it) : [])).join('-');

/** Whether any Endpoints of a Service with a selector has the label; null if there are none. */
function areLabelled({ services, endpoints }: Listers): boolean | null {
  const selected = [...services.values()].filter(isSelected);
  const written = selected.flatMap(({ key }) => endpoints.get(key) ?? []);
  if (written.length === 0) return null;
  return written.some(({ labels }) => labels[label.endpointsManagedBy] !== undefined);
}

// Infers the Kubernetes release of a dump that does not contain the version of the control plane,
// and that of the controllers while a control plane is upgraded.
//
// A kubelet is never newer than its API server (kubernetes.io/releases/version-skew-policy). Since
// 1.33 the endpoints controller labels all Endpoints of Services with a selector at every sync
// (pkg/controller/endpoint/endpoints_controller.go syncService at kubernetes@v1.33.13; without the
// label at v1.32.13). The newest release that remains is chosen. If none remains, a user has
// removed labels, and only the kubelets count. A cluster that is older than every known release is
// audited as the oldest one.
//
// The controllers may be one minor version older than the API server that was asked, and also newer
// if the control plane has several API servers. The release decides about the labels of all
// Endpoints, so these labels say which controllers write them.

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
  const counts = countLabelled(listers);
  const labelled = counts.written === 0 ? null : counts.labelled > 0;
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

/** The Endpoints of Services with a selector, and how many of them have the label. */
function countLabelled({ services, endpoints }: Listers) {
  const selected = [...services.values()].filter(isSelected);
  const written = selected.flatMap(({ key }) => endpoints.get(key) ?? []);
  const labelled = written.filter(({ labels }) => labels[label.endpointsManagedBy] !== undefined);
  return { written: written.length, labelled: labelled.length };
}

/** What the labels of all Endpoints say about the controllers. */
interface LabelEvidence {
  /** When they were counted, Unix seconds. */
  readonly at: number;
  /** How many lack the label, and since when as many do. */
  readonly missing: number;
  readonly since: number;
  /** Whether the controllers write the label; `null`: it is not known. */
  readonly areWritten: boolean | null;
}

/** Seconds between two counts, and those after which a label that is missing counts as late. */
const spans = { count: 10, settled: 30 };

/**
 * Counts the labels again. Controllers that begin to label Endpoints need minutes for thousands of
 * them. Labels of a few Endpoints may be edits, and those of new Services show no progress.
 */
function reviewLabels(listers: Listers, before: LabelEvidence | null, at: number): LabelEvidence {
  const { written, labelled } = countLabelled(listers);
  const missing = written - labelled;
  const since = before?.missing === missing ? before.since : at;
  const isSettled = before === null || missing === 0 || at >= since + spans.settled;
  const areMost = labelled * 2 > written && isSettled;
  const shown = labelled > 0 && (areMost || before?.areWritten === true);
  return { at, missing, since, areWritten: written > 1 ? shown : null };
}

/** Where controllers label Endpoints and those of the release beside it do not, or vice versa. */
interface Upgrade {
  /** Whether the controllers beside it write the label. */
  readonly areWritten: boolean | null;
  readonly beside: DetectedRelease;
}

function upgradeBeside({ minor, endpointsManagedBy }: Release): Upgrade | null {
  const isBeside = (it: Release): boolean => Math.abs(it.minor - minor) === 1;
  const isOther = (it: Release): boolean => it.endpointsManagedBy !== endpointsManagedBy;
  const other = releases.find((it) => isBeside(it) && isOther(it));
  if (other === undefined) return null;
  // New controllers can come at any time, which then label one object after the other. Only the
  // label may differ: sidecar ports and hints are those of the other release.
  const release = { ...other, endpointsManagedBy: null };
  const evidence = `labels of Endpoints allow ${nameOf(other)}`;
  return { areWritten: other.endpointsManagedBy, beside: { release, by: 'labels', evidence } };
}

const upgrades = new Map(releases.map((release) => [release, upgradeBeside(release)]));

/** Chooses the release of the controllers by what the input has shown so far. */
export function createReleaseChoice(option: Release | null) {
  let version: string | null = null;
  let detected = chooseRelease(option, version, assumedRelease);
  let upgrade: Upgrade | null = null;
  let labels: LabelEvidence | null = null;
  const current = (): DetectedRelease =>
    upgrade !== null && labels?.areWritten === upgrade.areWritten ? upgrade.beside : detected;
  return {
    current,
    /** The version of the input; `null` if it names none. */
    version: () => version,
    /** Takes the version of the input. Returns whether the release is another one now. */
    setVersion(given: string | null): boolean {
      const before = current().release;
      version = given;
      detected = chooseRelease(option, version, assumedRelease);
      upgrade = detected.by === 'version' ? (upgrades.get(detected.release) ?? null) : null;
      return current().release !== before;
    },
    /** Infers the release of a dump. */
    guess(listers: Listers, kubelet: number | null): void {
      detected = chooseRelease(option, version, detectRelease(listers, kubelet));
    },
    /**
     * Counts the labels again, at most each ten seconds, and only if they can show another release
     * than the version. Returns whether the release is another one now.
     */
    review(listers: Listers, at: number): boolean {
      if (upgrade === null || (labels !== null && at < labels.at + spans.count)) return false;
      const before = current().release;
      labels = reviewLabels(listers, labels, at);
      return current().release !== before;
    },
  };
}

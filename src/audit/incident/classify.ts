// Which incident a finding belongs to: the kind that the evidence proves, and the object that is to
// blame. Findings with equal keys and kinds are one incident.

import { type Code, type Finding, type Output, staleCodes } from '../finding/catalogue.ts';
import type { Cause } from '../finding/causes.ts';
import type { ServiceOutput } from '../service/enqueue.ts';
import { type ObjectChange, objectName } from '../service/object-changes.ts';
import { type ControllerEvidence, type ControllersEvidence, recent } from './controllers.ts';
import type { IncidentKind } from './kinds.ts';

type ChangedFinding = Pick<Finding, 'namespace' | 'service' | 'code' | 'cause'>;

/** What is known beside the findings, as plain data. */
export interface Evidence {
  readonly controllers: ControllersEvidence;
  /** The changes of objects that made the differences of a finding. */
  readonly changesOf: (finding: ChangedFinding) => readonly ObjectChange[];
  /** The Nodes of the pods that a finding names. */
  readonly nodesOf: (finding: Finding) => readonly string[];
  /** Whether a slice of the Service of a finding lost the labels that assign it to a controller. */
  readonly isRelabelled: (finding: Finding) => boolean;
  /** Since when the rules of a node have been read; `null` if they are unknown. */
  readSince: (node: string) => number | null;
}

export interface Claim {
  readonly kind: IncidentKind;
  /** Findings with equal keys and kinds are one incident. */
  readonly key: string;
  /** `Kind namespace/name` of the object that is to blame; or the program. */
  readonly object: string;
  /** Of an unknown cause: the likely kinds, the likeliest first. */
  readonly likely: readonly IncidentKind[];
}

export const controllerManager = 'kube-controller-manager';

/** Seconds by which a difference may be older than the last write of a controller that stopped. */
const overtaken = 10;

const kindOfCause: Readonly<Record<Cause, IncidentKind>> = {
  'pod-phase-unnoticed': 'pod-change-unnoticed',
  'pod-change-unnoticed': 'pod-change-unnoticed',
  'node-change-unnoticed': 'node-change-unnoticed',
  'pod-without-node': 'sync-blocked',
  'hand-edited': 'edited-by-someone',
  'node-missing-retried': 'sync-blocked',
  'placeholder-taken-over': 'upstream-limit',
  'service-recreated': 'upstream-limit',
  'mirror-recycling-fails': 'upstream-limit',
  'slice-relabelled': 'edited-by-someone',
  'headless-label-kept': 'upstream-limit',
};

/** The kinds of findings whose code alone proves them. */
const kindOfCode: Readonly<Partial<Record<Code, IncidentKind>>> = {
  'address-shared': 'addresses-shared',
  'pod-without-node': 'sync-blocked',
  'slice-duplicate': 'upstream-limit',
  'slice-surplus-empty': 'upstream-limit',
  'mirror-slice-duplicate': 'upstream-limit',
  'node-rules-stale': 'node-proxy-not-syncing',
  'node-foreign-rule': 'foreign-rules',
  'node-endpoint-blocked': 'foreign-rules',
  'node-backends-both': 'foreign-rules',
  'node-unlike-others': 'cause-unknown',
};

const kindOfOutput: Readonly<Partial<Record<Output, IncidentKind>>> = {
  input: 'service-configuration',
  node: 'node-rules-lost',
};

const likelyOfRules: readonly IncidentKind[] = ['node-rules-lost', 'node-proxy-not-syncing'];
const likelyOfController: readonly IncidentKind[] = [
  'controller-not-writing',
  'controller-slow',
  'edited-by-someone',
];
const likelyOfNode: readonly IncidentKind[] = [
  'foreign-rules',
  'node-rules-lost',
  'node-proxy-not-syncing',
];

/** The state that a controller has at least been seen in, the worst first. */
const kindOfState = { silent: 'controller-not-writing', slow: 'controller-slow' } as const;

const isServiceOutput = (output: Output): output is ServiceOutput =>
  output === 'endpoints' || output === 'endpointslices' || output === 'mirrored';

/** Whether a finding waits for a controller, without another known cause. */
export const waitsForController = ({
  output,
  code,
  cause,
}: Pick<Finding, 'output' | 'code' | 'cause'>): boolean =>
  isServiceOutput(output) && cause === null && kindOfCode[code] === undefined;

/**
 * The kind of what a controller has not written; `null` if its writes refute every claim. One
 * controller that has written nothing since the finding began may be silent with another one.
 */
export function controllerKind(
  { output, since }: Pick<Finding, 'output' | 'since'>,
  controllers: Evidence['controllers'],
): 'controller-not-writing' | 'controller-slow' | null {
  if (!isServiceOutput(output)) return null;
  const own = controllers[output];
  const isUnanswered = since > (own.wroteAt ?? -Infinity) - overtaken;
  const isOneSilent = Object.values(controllers).some(({ state }) => state === 'silent');
  if (isUnanswered && (own.state === 'silent' || (isOneSilent && own.state !== 'slow'))) {
    return kindOfState.silent;
  }
  return own.state === 'slow' ? kindOfState.slow : null;
}

/** Whether a controller that was silent or slow writes in time again. */
export const hasRecovered = ({ state, lateAt, wroteAt }: ControllerEvidence, at: number) =>
  state === 'writing' && wroteAt !== null && at - (lateAt ?? -Infinity) > recent;

type Owned = Pick<Finding, 'namespace' | 'service' | 'node'>;

const ownerOf = ({ namespace, service, node }: Owned): string =>
  node === null ? `Service ${namespace}/${service}` : `Node ${node}`;

/** The first object of a finding, without the others that it lists. */
const firstObject = (finding: Finding): string =>
  finding.object.split('; ', 1)[0] ?? ownerOf(finding);

/** The last object of some kinds that changed; `null` if none is known. */
function lastChanged(finding: Finding, kinds: readonly string[], evidence: Evidence) {
  const change = evidence.changesOf(finding).findLast(({ kind }) => kinds.includes(kind));
  return change === undefined ? null : objectName(change);
}

/** The object of a kind whose change is to blame; the owner if it is not known. */
function changedObject(finding: Finding, kind: 'Node' | 'Pod', evidence: Evidence): string {
  const changed = lastChanged(finding, [kind], evidence);
  if (changed !== null) return changed;
  const [node] = kind === 'Node' ? evidence.nodesOf(finding) : [];
  const [pod] = finding.differences.flatMap((it) => it.pod ?? []);
  if (kind === 'Node') return node === undefined ? ownerOf(finding) : `Node ${node}`;
  return pod === undefined ? ownerOf(finding) : `Pod ${pod}`;
}

const claim = (kind: IncidentKind, key: string, object = key): Claim => ({
  kind,
  key,
  object,
  likely: [],
});

export const unknownClaim = (finding: Owned, likely: readonly IncidentKind[]): Claim => ({
  ...claim('cause-unknown', ownerOf(finding)),
  likely,
});

function claimOf(kind: IncidentKind, finding: Finding, evidence: Evidence): Claim {
  switch (kind) {
    case 'node-change-unnoticed':
      return claim(kind, changedObject(finding, 'Node', evidence));
    case 'pod-change-unnoticed':
      return claim(kind, changedObject(finding, 'Pod', evidence));
    case 'edited-by-someone': {
      const edited = lastChanged(finding, ['Endpoints', 'EndpointSlice'], evidence);
      return claim(kind, ownerOf(finding), edited ?? firstObject(finding));
    }
    case 'addresses-shared': {
      const [address = ''] = finding.differences.flatMap((it) => it.address ?? []);
      return claim(kind, '', `Address ${address}`);
    }
    default:
      return claim(kind, ownerOf(finding));
  }
}

/** The claim on a finding that waits for a controller, without the claims of other findings. */
export function controllerClaim(
  finding: Owned & Pick<Finding, 'output' | 'since'>,
  controllers: Evidence['controllers'],
): Claim {
  const kind = controllerKind(finding, controllers);
  return kind === null ? unknownClaim(finding, likelyOfController) : claim(kind, controllerManager);
}

/** Whether the node had the right rules before, or no earlier state explains its present ones. */
function wasRight({ code, node, since }: Finding, { readSince }: Evidence): boolean {
  const read = node === null ? null : readSince(node);
  return !staleCodes.has(code) || (read !== null && since > read);
}

/** The incident that a finding belongs to. */
export function classify(finding: Finding, evidence: Evidence): Claim {
  const { code, cause, causeProven, output, node } = finding;
  if (waitsForController(finding)) return controllerClaim(finding, evidence.controllers);
  if (cause !== null) {
    const kind = kindOfCause[cause];
    // What is only likely is no evidence.
    if (causeProven) return claimOf(kind, finding, evidence);
    return unknownClaim(finding, [kind, ...likelyOfController.filter((it) => it !== kind)]);
  }
  // The manager that the label of such a slice names is none.
  if (code === 'managers-several' && evidence.isRelabelled(finding)) {
    return claimOf('edited-by-someone', finding, evidence);
  }
  const kind = kindOfCode[code] ?? kindOfOutput[output] ?? 'cause-unknown';
  if (kind === 'node-rules-lost' && !wasRight(finding, evidence)) {
    return unknownClaim(finding, likelyOfRules);
  }
  if (kind !== 'cause-unknown') return claimOf(kind, finding, evidence);
  return unknownClaim(finding, node === null ? likelyOfController : likelyOfNode);
}

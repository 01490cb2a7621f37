// Explains a Service, a pod, both together, an address, a node, or a Service on a node. The
// differences are those of the audit, so an explanation agrees with the findings.

import type { Key } from '../../model/objects.ts';
import { getLease } from '../finding/remedy-steps.ts';
import { legal } from '../finding/verdicts.ts';
import type { ServiceAuditor } from '../service/auditor.ts';
import type { AuditContext } from '../service/cache.ts';
import type { ServiceDifference } from '../service/reconcile.ts';
import type { VerdictInput } from '../service/verdict.ts';
import { explainAddress, explainMissingPod } from './address.ts';
import { suppressedOf } from './differences.ts';
import type { ExplainResult, ExplainTarget, Explanation, Reason } from './explanation.ts';
import { counted, fewOf, note, notFound, withRemediesOnce } from './explanation.ts';
import { isNear } from './near-miss.ts';
import { explainNode, type NodeLookup } from './node.ts';
import { explainWholeNode } from './whole-node.ts';
import { explainPod } from './pod.ts';
import { explainPair } from './pod-in-service.ts';
import { explainService } from './service.ts';

const checkController = 'Check that kube-controller-manager runs and renews its lease.';

/** Explains a target in the current state of the Service auditor and of the rules of nodes. */
export function explain(
  context: VerdictInput,
  auditor: ServiceAuditor,
  target: ExplainTarget,
  lookup: NodeLookup | null = null,
): Explanation {
  const result = explainTarget(context, auditor, target, lookup);
  const explanation = { subject: target, withoutEndpoints: null, ...result };
  const hint = target.kind === 'node' ? null : controllerHint(auditor, explanation);
  if (hint === null) return withRemediesOnce(explanation);
  const reasons = [...explanation.reasons, note(hint.text)];
  const { change, ...rest } = withRemediesOnce({ ...explanation, reasons }, [getLease]);
  // Most remedies begin with the check.
  const isAsked = change?.includes(checkController) === true;
  const check = isAsked ? hint.first : `${hint.first} ${checkController}`;
  return { ...rest, change: change === null ? null : `${check} ${change}` };
}

function explainTarget(
  context: VerdictInput,
  auditor: ServiceAuditor,
  target: ExplainTarget,
  lookup: NodeLookup | null,
): ExplainResult {
  if (target.kind === 'address') return explainAddress(context, auditor, target.address);
  if ('pod' in target) {
    const pod = context.listers.pods.get(target.pod);
    if (pod === undefined) {
      const listed = explainMissingPod(context, auditor, target.pod);
      return listed ?? missing(context, 'Pod', target.pod);
    }
    if (target.kind === 'pod') return explainPod(context, auditor, pod);
    const audited = auditor.audited.get(target.service);
    const suppressed = audited === undefined ? [] : suppressedOf(auditor, audited.record);
    const pair = audited && explainPair(context, audited, pod, suppressed);
    if (!pair) return missing(context, 'Service', target.service);
    const { verdict, severity, answer, change, reasons } = pair;
    return { found: true, verdict, severity, answer, change, reasons };
  }
  if (target.kind === 'node' && target.service === null) {
    const body = explainWholeNode(context, auditor, target.node, lookup);
    return missingNode(context, target.node) ?? { found: true, ...body };
  }
  const key = target.service ?? '';
  const audited = auditor.audited.get(key);
  if (audited === undefined) return missing(context, 'Service', key);
  if (target.kind === 'service') {
    return { found: true, ...explainService(context, auditor, audited, lookup) };
  }
  const { node, port } = target;
  const body = explainNode(context, auditor, { node, service: key, port }, lookup);
  return missingNode(context, target.node) ?? body;
}

/** If several Services differ without a known cause, no controller may run; else null. */
function controllerHint(
  { audited }: ServiceAuditor,
  { subject, verdict, reasons }: Pick<Explanation, 'subject' | 'verdict' | 'reasons'>,
) {
  if (verdict !== 'different' && verdict !== 'pending') return null;
  // The controllers may still write what is pending.
  const isUnexplained = ({ output, cause, difference, openedAt }: ServiceDifference): boolean =>
    openedAt !== null && output !== 'input' && cause === null && !legal.has(difference.code);
  const unexplained = [...audited.values()].filter(({ items }) =>
    [...items.values()].some((found) => found.some(isUnexplained)),
  );
  const others = unexplained.map(({ record }) => record.key).sort();
  if (others.length < 2) return null;
  const text =
    `${counted(others.length, 'Service')} have a mismatch without a known cause ` +
    `(${fewOf(others)}): check that kube-controller-manager is running and has a leader`;
  const objects =
    'service' in subject
      ? [`Service ${subject.service ?? ''}`]
      : reasons.map(({ object }) => object);
  if (!others.some((key) => objects.includes(`Service ${key}`))) return null;
  const first =
    `${others.length} Services have a mismatch without a known cause: kube-controller-manager ` +
    'may be stopped.';
  return { first, text };
}

const thereIs = (names: readonly string[]): Reason[] =>
  names.length === 0 ? [] : [note(`there is ${fewOf(names.toSorted())}`)];

function meantKeys(namespace: string, name: string, keys: Iterable<Key>): Key[] {
  const all = [...keys];
  const elsewhere = all.filter((key) => key.endsWith(`/${name}`));
  const near = all.filter((key) => isNear(key.slice(key.indexOf('/') + 1), name));
  const here = near.filter((key) => key.startsWith(`${namespace}/`));
  return [elsewhere, here, near].find((list) => list.length > 0) ?? [];
}

/** The explanation of an object that does not exist; namespace `*` means any namespace. */
function missing({ listers }: AuditContext, kind: 'Service' | 'Pod', key: Key): ExplainResult {
  const resource = kind === 'Pod' ? 'pods' : 'services';
  if (!listers.knows(resource)) {
    return notFound(`${kind} ${key} is not known: the input has no ${kind}s`);
  }
  const [namespace = '', name = ''] = key.split('/');
  const reasons = thereIs(meantKeys(namespace, name, listers[resource].keys()));
  if (namespace === '*') {
    return notFound(`${kind} ${name} does not exist in any namespace`, reasons);
  }
  if (![...listers.services.values()].some((service) => service.namespace === namespace)) {
    reasons.push(note(`there is no Service in namespace ${namespace}`));
  }
  return notFound(`${kind} ${key} does not exist`, reasons);
}

function missingNode({ listers }: AuditContext, node: string): ExplainResult | null {
  if (!listers.knows('nodes') || listers.nodes.has(node)) return null;
  const near = [...listers.nodes.keys()].filter((other) => isNear(other, node));
  return notFound(`Node ${node} does not exist`, thereIs(near));
}

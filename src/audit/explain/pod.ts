// Explains one pod: what each Service that selects or lists it should do with it, and if none
// selects it, which Services nearly do.

import { canonicalIP } from '../../model/ip.ts';
import type { Key, Pod } from '../../model/objects.ts';
import { verdictWords } from '../finding/verdicts.ts';
import type { ServiceAuditor } from '../service/auditor.ts';
import type { AuditContext } from '../service/cache.ts';
import type { VerdictInput } from '../service/verdict.ts';
import { stateWords } from './conditions.ts';
import { suppressedOf } from './differences.ts';
import type { ExplainResult, Reason, ReasonMark } from './explanation.ts';
import { counted, fewOf, firstReasons, note, reason, worstOf } from './explanation.ts';
import { missedLabelText, servicesNear, wantedLabels } from './near-miss.ts';
import { explainPair, type PairExplanation, servicesListing } from './pod-in-service.ts';

export const serviceReason = (
  mark: ReasonMark,
  key: Key,
  text: string,
  rest: Partial<Reason>,
): Reason => reason(mark, `Service ${key}${text}`, { object: `Service ${key}`, ...rest });

export function explainPod(
  context: VerdictInput,
  auditor: ServiceAuditor,
  pod: Pod,
): ExplainResult {
  const { listers } = context;
  const { audited } = auditor;
  const listing = servicesListing(listers, audited.values(), pod.ips.map(canonicalIP))
    .map(({ record }) => record)
    .filter(({ namespace }) => namespace === pod.namespace);
  const selectors = listers.servicesSelecting(pod.namespace, pod.labels);
  const keys = [...new Set([...selectors, ...listing].map(({ key }) => key))].sort();
  const pairs = keys.slice(0, 20).flatMap((key) => {
    const service = audited.get(key);
    if (service === undefined) return [];
    return explainPair(context, service, pod, suppressedOf(auditor, service.record)) ?? [];
  });
  const rest = keys.length - 20;
  const selecting = pairs.filter(({ selected }) => selected);
  const { answer, change } = podAnswer(context, pod, pairs, selecting);
  const reasons = [
    ...pairs.map(pairReason),
    ...(rest > 0 ? [note(`and ${counted(rest, 'more Service')}`)] : []),
    ...(selecting.length === 0 ? nearReasons(context, pod) : []),
    podReason(pod),
    ...sharedReasons(context, pod),
  ];
  return { found: true, ...worstOf(pairs), answer, change, reasons };
}

function pairReason({ verdict, decides, service, state, brief }: PairExplanation): Reason {
  const isServing = verdict === 'conform' && decides === null;
  const mark = verdict === 'unknown' ? 'unknown' : isServing ? 'yes' : 'no';
  const text = `: ${verdictWords[verdict]}: it should be ${stateWords[state]}`;
  return serviceReason(mark, service, text, { parts: brief });
}

function podAnswer(
  { listers }: AuditContext,
  pod: Pod,
  pairs: readonly PairExplanation[],
  selecting: readonly PairExplanation[],
): Pick<ExplainResult, 'answer' | 'change'> {
  const name = `Pod ${pod.key}`;
  const [only, second] = selecting;
  const wrong = pairs.find(({ verdict }) => verdict === 'different');
  if (wrong !== undefined) return wrong;
  if (only === undefined) {
    const [first] = servicesNear(listers, pod);
    const missed = (first?.missed ?? []).map(missedLabelText).join('; ') || 'in another namespace';
    const near = first === undefined ? '' : `; closest: Service ${first.service.key} (${missed})`;
    const listing = pairs.filter(({ listed }) => listed).map(({ service }) => `Service ${service}`);
    const answer =
      listing.length > 0
        ? `No selector matches the labels of ${name}, but it is listed in ${fewOf(listing)}${near}`
        : `${name} is in no Service: no selector matches its labels${near}`;
    return { answer, change: null };
  }
  if (second === undefined) return only;
  const serving = selecting.filter(({ decides }) => decides === null);
  const other = selecting.find(({ decides }) => decides !== null);
  const shown = fewOf(serving.map(({ service }) => service));
  const start = serving.length === 0 ? [] : [`${name} is in ${shown} and receives their traffic`];
  const answer = [...start, other?.answer ?? []].flat().join('; ');
  return { answer, change: other?.change ?? null };
}

function nearReasons({ listers }: AuditContext, pod: Pod): Reason[] {
  const services = servicesNear(listers, pod);
  if (services.length === 0) {
    const names = [...listers.services.values()]
      .filter(({ namespace, selector }) => namespace === pod.namespace && selector !== null)
      .map(({ name }) => name)
      .sort();
    const count = counted(names.length, 'Service');
    const text = `no selector of ${count} in namespace ${pod.namespace} is close to its labels`;
    return [note(names.length === 0 ? text : `${text}: ${fewOf(names, 5)}`)];
  }
  const describe = ({ service, missed }: (typeof services)[number]): Reason => {
    const isElsewhere = missed.length === 0;
    const why = isElsewhere
      ? 'would select it, but a Service selects pods of its own namespace only'
      : `almost selects it: ${missed.map(missedLabelText).join('; ')}`;
    const change = `label the pod ${wantedLabels(missed)}, or change the selector`;
    const details = { field: 'spec.selector', change: isElsewhere ? null : change };
    return serviceReason('note', service.key, ` ${why}`, details);
  };
  return firstReasons(services, 5, describe, (rest) => counted(rest, 'more Service'));
}

function podReason(pod: Pod): Reason {
  const labels = Object.entries(pod.labels).map(([key, value]) => `${key}=${value}`);
  const facts = [
    pod.node === '' ? 'not scheduled to a Node' : `on Node ${pod.node}`,
    pod.ips.join(', ') || 'no address',
    podPhase(pod),
    `named ports: ${pod.ports.map(({ name }) => name).join(', ') || 'none'}`,
    `labels ${fewOf(labels, 8)}`,
  ];
  return note(`the pod: ${facts.join('; ')}`, { object: `Pod ${pod.key}` });
}

export const podPhase = ({ terminal, deleting, ready }: Pod): string =>
  terminal ? 'finished' : deleting ? 'terminating' : ready ? 'Ready' : 'not Ready';

const sharedReasons = ({ listers }: AuditContext, pod: Pod): Reason[] =>
  pod.ips.flatMap((ip) => {
    const others = listers.podsAt(canonicalIP(ip)).filter((other) => other !== pod);
    if (others.length === 0) return [];
    const names = fewOf(others.map(({ key }) => key).sort());
    const host = pod.hostNetwork ? ' (host network of the Node)' : '';
    const text = `${names} ${others.length === 1 ? 'has' : 'have'} the same address ${ip}${host}`;
    return [note(text, { object: `Pod ${pod.key}` })];
  });

// Explains an address by the pods that have it, and by the entries that list it. An address of a
// pod has the verdict of that pod, so that an address that its Service lacks is a difference.

import { canonicalIP, parseIP } from '../../model/ip.ts';
import type { Key, Pod } from '../../model/objects.ts';
import { worstVerdict } from '../finding/verdicts.ts';
import type { ServiceAuditor } from '../service/auditor.ts';
import { deadLeftBehind } from '../service/input-checks.ts';
import { type ServiceAudit, unitAddress } from '../service/reconcile.ts';
import { serviceOutputs, type VerdictInput, verdictOf, verdictOn } from '../service/verdict.ts';
import { itemReasons, severityOf, suppressedOf, suppressedReasons } from './differences.ts';
import type { ExplainResult, Explanation, Reason, ReasonMark } from './explanation.ts';
import { counted, fewOf, firstChange, firstReasons, notFound } from './explanation.ts';
import { note, reason, worstOf } from './explanation.ts';
import { explainPod, serviceReason } from './pod.ts';
import type { EntryFilter, ObservedEntry } from './pod-in-service.ts';
import { doubtText, entryNote, observedEntries, servicesListing } from './pod-in-service.ts';

function listingOf(
  context: VerdictInput,
  auditor: ServiceAuditor,
  audited: ServiceAudit,
  filter: EntryFilter,
) {
  const { listers } = context;
  const entries = observedEntries(listers, audited.record, filter);
  const addresses = new Set(entries.map(({ address }) => address));
  const isDead = deadLeftBehind(context, audited.record).some((ip) => addresses.has(ip));
  const items = [...audited.items].flatMap(([unit, found]) =>
    addresses.has(unitAddress(unit) ?? '')
      ? found
      : found.filter(({ difference }) => isDead && difference.code === 'left-behind-dead'),
  );
  const verdicts = serviceOutputs
    .filter((output) => verdictOf(listers, audited, output) !== null)
    .map((output) => verdictOn(audited, items, output, context.stale));
  const { key } = audited.record;
  const verdict = worstVerdict(verdicts) ?? 'conform';
  const suppressed = items.length === 0 ? [] : suppressedOf(auditor, audited.record);
  const severity = severityOf(items, suppressed);
  return { audited, key, entries, items, suppressed, verdict, severity };
}

type Listing = ReturnType<typeof listingOf>;

function listingReason(
  { audited, key, entries, items, suppressed }: Listing,
  mark: ReasonMark,
  text: string,
  endOf: (entry: ObservedEntry) => string = () => '',
): Reason {
  const parts = [
    ...entries.map((entry) => entryNote(entry, endOf(entry))),
    ...itemReasons(audited.record, items),
    ...suppressedReasons(items, suppressed),
  ];
  return serviceReason(mark, key, ` ${text}`, { parts });
}

/** null if no Service lists the pod, which does not exist. */
export function explainMissingPod(
  context: VerdictInput,
  auditor: ServiceAuditor,
  key: Key,
): ExplainResult | null {
  const listings = [...auditor.audited.values()]
    .filter(({ record }) => key.startsWith(`${record.namespace}/`))
    .map((audited) => listingOf(context, auditor, audited, (_, pod) => pod === key))
    .filter(({ entries }) => entries.length > 0);
  if (listings.length === 0) return null;
  const reasons = listings.map((listing) => listingReason(listing, 'no', 'still lists it'));
  const services = counted(listings.length, 'Service');
  const answer = `Pod ${key} does not exist, but is still listed in ${services}`;
  const change = firstChange(reasons[0]?.parts ?? []);
  return { found: true, ...worstOf(listings), answer, change, reasons };
}

type ExplainedPod = ExplainResult & { readonly pod: Pod };

const verdictRanks: readonly Explanation['verdict'][] = ['different', 'unknown', 'pending'];

/** The pods with the address, those with the worst verdict first; finished ones only alone. */
function podsOf(context: VerdictInput, auditor: ServiceAuditor, ip: string): ExplainedPod[] {
  const all = context.listers.podsAt(ip);
  const living = all.filter(({ terminal }) => !terminal);
  const rankOf = ({ verdict, change }: ExplainedPod): number => {
    const rank = verdictRanks.indexOf(verdict);
    return rank >= 0 ? rank : change !== null ? 3 : verdict !== null ? 4 : 5;
  };
  return (living.length > 0 ? living : all)
    .toSorted((a, b) => (a.key < b.key ? -1 : 1))
    .map((pod) => ({ pod, ...explainPod(context, auditor, pod) }))
    .sort((a, b) => rankOf(a) - rankOf(b));
}

/** Objects other than pods that have the address. */
function ownersOf({ listers }: VerdictInput, ip: string): Reason[] {
  const isIt = (text: string): boolean => canonicalIP(text) === ip;
  const services = [...listers.services.values()].flatMap((service) => {
    const object = `Service ${service.key}`;
    const kinds = [
      ['the cluster IP', 'spec.clusterIPs', [service.clusterIP, ...service.clusterIPs]],
      ['an external IP', 'spec.externalIPs', service.externalIPs],
      ['the load balancer IP', 'status.loadBalancer.ingress', service.loadBalancerIPs],
    ] as const;
    return kinds
      .filter(([, , ips]) => ips.some(isIt))
      .map(([kind, field]) => note(`${ip} is ${kind} of ${object}`, { object, field }));
  });
  const nodes = [...listers.nodes.values()]
    .filter(({ addresses, externalIPs }) => [...addresses, ...externalIPs].some(isIt))
    .map(({ name }) => {
      const details = { object: `Node ${name}`, field: 'status.addresses' };
      return note(`${ip} is an address of Node ${name}`, details);
    });
  return [...services, ...nodes];
}

/** Explains an address by its pods, and by the Services that list it for another reason. */
export function explainAddress(
  context: VerdictInput,
  auditor: ServiceAuditor,
  address: string,
): ExplainResult {
  const ip = parseIP(address)?.text;
  if (ip === undefined) return notFound(`${address} is not an IP address`);
  const { listers } = context;
  const pods = podsOf(context, auditor, ip);
  const [first] = pods;
  // The explanation of a pod includes the Services of its namespace that list it.
  const namespaces = new Set(pods.map(({ pod }) => pod.namespace));
  const listings = servicesListing(listers, auditor.audited.values(), [ip])
    .filter(({ record }) => !namespaces.has(record.namespace))
    .map((audited) => listingOf(context, auditor, audited, (other) => other === ip));
  const owners = ownersOf(context, ip);
  const reasons = [
    ...(pods.length === 1 ? (first?.reasons ?? []) : podReasons(pods)),
    ...owners,
    ...listings.map((listing) => strayReason(context, listing)),
  ];
  return {
    found: reasons.length > 0,
    ...worstOf([...pods, ...listings]),
    answer: addressAnswer(context, ip, pods, listings, owners),
    change: first?.change ?? firstChange(reasons.flatMap(({ parts }) => parts)),
    reasons,
  };
}

function strayReason(context: VerdictInput, listing: Listing): Reason {
  const doubt = doubtText(context, listing.audited);
  const mark = listing.items.length > 0 ? 'no' : doubt === '' ? 'yes' : 'unknown';
  const managers = listing.entries.map(({ place, manager }) => (place === null ? manager : ''));
  const endOf = ({ pod, manager }: ObservedEntry): string =>
    (pod === null ? ', without a pod' : `, for Pod ${pod}`) + (manager && ` (${manager})`);
  const isForeign = managers.every((manager) => manager !== '');
  const how = isForeign ? 'lists it in objects that another client writes' : 'lists it';
  return listingReason(listing, mark, how + doubt, endOf);
}

const podReasons = (pods: readonly ExplainedPod[]): Reason[] =>
  firstReasons(
    pods,
    10,
    ({ pod, answer, verdict, change, reasons: parts }) => {
      const mark = verdict === 'conform' && change === null ? 'yes' : 'note';
      const isWrong = verdict === 'different' || verdict === 'pending';
      const details = { object: `Pod ${pod.key}`, parts };
      return reason(isWrong ? 'no' : verdict === 'unknown' ? 'unknown' : mark, answer, details);
    },
    (rest) => counted(rest, 'more pod'),
  );

function addressAnswer(
  { listers }: VerdictInput,
  ip: string,
  pods: readonly ExplainedPod[],
  listings: readonly Listing[],
  [owner]: readonly Reason[],
): string {
  const keys = listings.map(({ key }) => `Service ${key}`);
  const verb = keys.length === 1 ? 'lists' : 'list';
  const also = keys.length === 0 ? '' : `. ${fewOf(keys)} ${verb} the address too`;
  const [first] = pods;
  if (first !== undefined && pods.length === 1) {
    return `${ip} is an address of Pod ${first.pod.key}. ${first.answer}${also}`;
  }
  if (first !== undefined) {
    const names = fewOf(pods.map(({ pod }) => pod.key));
    const where = pods.every(({ pod }) => pod.hostNetwork) ? ' of their Node' : '';
    return `${pods.length} pods have the address ${ip}${where}: ${names}. ${first.answer}${also}`;
  }
  if (owner !== undefined) return owner.text + also;
  const isKnown = listers.knows('pods');
  const none = isKnown ? `no pod has the address ${ip}` : 'the input has no Pods';
  if (keys.length === 0) {
    return isKnown
      ? `${ip} is unknown: no pod, Node or Service has it, and no Service lists it`
      : `${ip} is unknown: the input has no Pods, and no Service lists it`;
  }
  return `${fewOf(keys)} ${verb} ${ip}; ${none}`;
}

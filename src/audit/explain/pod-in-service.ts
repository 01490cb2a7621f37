// One pod and one Service: what is expected of the pod and why (chain.ts), what stands of it
// (stands.ts), and what the audit says of the difference, in one answer and a tree of reasons.
//
// The answer follows the slices, because nodes read nothing else; where the Endpoints differ from
// them, the tree says so. A pod that is absent because it must be is no difference: the verdict is
// then conform, and the answer names the step that decides.

import type { Pod } from '../../model/objects.ts';
import { isSelected } from '../../shadow/endpoints.ts';
import type { Severity } from '../finding/catalogue.ts';
import type { UnknownReason, Verdict } from '../finding/verdicts.ts';
import { legal } from '../finding/verdicts.ts';
import type { PendingDifference } from '../pending/pending.ts';
import { nodeOf } from '../service/cache.ts';
import { truncationOf } from '../service/endpoints.ts';
import type { ServiceOutput } from '../service/enqueue.ts';
import type { ServiceAudit } from '../service/reconcile.ts';
import type { VerdictInput } from '../service/verdict.ts';
import { unknownReason, serviceOutputs } from '../service/verdict.ts';
import type {
  ExpectedEntry,
  PodAndService,
  ListingPlace,
  EntryState,
  Condition,
} from './condition.ts';
import { placeName, entryStates, stateWords } from './condition.ts';
import type { Conditions } from './conditions.ts';
import { evaluateConditions, decidingCondition } from './conditions.ts';
import type { ObservedEntry } from './observed.ts';
import { observedState, itemsAbout, managerText, entriesOfPod } from './observed.ts';
import type { Reason } from './reason.ts';
import {
  inOrder,
  itemReason,
  itemReasons,
  itemText,
  reason,
  conditionReason,
  unknownText,
  worstOf,
} from './reason.ts';

/** What is expected at a place, and what stands there; the two agree where the audit is content. */
export interface PlaceComparison {
  readonly place: ListingPlace;
  readonly expected: EntryState;
  readonly actual: EntryState;
  readonly verdict: Verdict;
}

export interface PairExplanation {
  readonly service: string;
  readonly pod: string;
  readonly answer: string;
  readonly change: string | null;
  /** Over all places; conform also where nobody has to list the pod and nobody does. */
  readonly verdict: Verdict;
  readonly severity: Severity | null;
  /** The step that decides where nodes look; null where nothing keeps traffic from the pod. */
  readonly decides: Condition | null;
  readonly places: readonly PlaceComparison[];
  readonly conditions: readonly Reason[];
  readonly entries: readonly Reason[];
  readonly others: readonly Reason[];
}

interface Asked {
  readonly context: VerdictInput;
  readonly of: ServiceAudit;
  readonly pair: PodAndService;
  readonly chain: Conditions;
  readonly stands: readonly ObservedEntry[];
  readonly items: readonly PendingDifference[];
}

const outputOf = (place: ListingPlace): ServiceOutput =>
  place === 'endpoints' ? 'endpoints' : 'endpointslices';

const better = (a: EntryState, b: EntryState): EntryState =>
  entryStates.indexOf(a) >= entryStates.indexOf(b) ? a : b;

const itemsAt = (items: readonly PendingDifference[], place: ListingPlace): PendingDifference[] =>
  items.filter((item) => item.output === outputOf(place));

/** The verdict on some of the differences of an output, as verdictOf has it on all of them. */
export function verdictOn(
  { stale }: VerdictInput,
  of: ServiceAudit,
  items: readonly PendingDifference[],
  output: ServiceOutput,
): Verdict {
  const loud = items.filter((item) => item.output === output && !legal.has(item.difference.code));
  const unknown = unknownReason(of, output, stale);
  if (unknown === 'input-stale') return 'unknown';
  if (loud.some(({ openedAt }) => openedAt !== null)) return 'different';
  if (unknown !== null) return 'unknown';
  return loud.length > 0 ? 'pending' : 'conform';
}

function verdictAt({ context, of, items, pair }: Asked, place: ListingPlace): Verdict {
  // Nobody has to list it, so that only what is found there can be judged.
  if (!isSelected(pair.service) && itemsAt(items, place).length === 0) return 'conform';
  return verdictOn(context, of, items, outputOf(place));
}

/** Why some of a Service cannot be judged; null where all can. */
export const anyUnknown = ({ stale }: VerdictInput, of: ServiceAudit): UnknownReason | null =>
  serviceOutputs.map((output) => unknownReason(of, output, stale)).find((one) => one !== null) ??
  null;

const worstFirst: readonly Verdict[] = ['different', 'unknown', 'pending', 'conform'];

/** The worst of several verdicts. */
export const worstVerdict = (verdicts: readonly Verdict[]): Verdict =>
  worstFirst.find((one) => verdicts.includes(one)) ?? 'conform';

/** Explains a pod and a Service; `of` is what the ledger holds of that Service. */
export function explainPair(
  context: VerdictInput,
  of: ServiceAudit,
  pod: Pod,
): PairExplanation | null {
  const { service } = of.record;
  if (service === null) return null;
  const { listers, release } = context;
  const pair = { service, pod, node: nodeOf(listers, pod) };
  const stands = entriesOfPod(listers, of.record, pod);
  const items = itemsAbout(listers, of, pod, stands);
  const asked: Asked = {
    context,
    of,
    pair,
    chain: evaluateConditions(pair, release),
    stands,
    items,
  };
  const places = asked.chain.expected.map(({ place, state: expected }) => {
    const actual = observedState(stands, place);
    return { place, expected, actual, verdict: verdictAt(asked, place) };
  });
  const best = bestSlice(asked.chain.expected);
  const decides = best === null ? null : decidingCondition(asked.chain, best.place);
  const { answer, change } = answerOf(asked, places, best, decides);
  return {
    service: service.key,
    pod: pod.key,
    answer,
    change,
    verdict: worstVerdict(places.map(({ verdict }) => verdict)),
    severity: worstOf(items),
    decides,
    places,
    conditions: asked.chain.conditions.map((step) =>
      conditionReason(step, step.name === 'readiness' && !pod.deleting ? pod.turnedAt : null),
    ),
    entries: places.map((one) => placeReason(asked, one)),
    others: besidesOf(asked),
  };
}

/** The slices in which the pod is expected to stand best. */
function bestSlice(outcomes: readonly ExpectedEntry[]): ExpectedEntry | null {
  let best: ExpectedEntry | null = null;
  for (const one of outcomes) {
    if (one.place === 'endpoints') continue;
    const worse = best !== null && better(best.state, one.state) === best.state;
    if (!worse) best = one;
  }
  return best;
}

const expectations: Readonly<Record<EntryState, string>> = {
  absent: 'is not in',
  'no-ports': 'is listed without ports, and so gets no traffic, in',
  'not-ready': 'is listed as not ready, and so gets no traffic, in',
  'fewer-ports': 'gets traffic on some ports only of',
  ready: 'is in',
};

const obligations: Readonly<Record<EntryState, string>> = {
  absent: 'should not be in',
  'no-ports': 'should be listed without ports in',
  'not-ready': 'should be listed as not ready in',
  'fewer-ports': 'should be ready on some ports of',
  ready: 'should be ready in',
};

interface Answer {
  readonly answer: string;
  readonly change: string | null;
}

function answerOf(
  { context, pair, chain, items, of }: Asked,
  places: readonly PlaceComparison[],
  best: ExpectedEntry | null,
  decides: Condition | null,
): Answer {
  const expected = best?.state ?? 'absent';
  const [pod, service] = [`Pod ${pair.pod.key}`, `Service ${pair.service.key}`];
  const why = decides === null ? '' : `: ${decides.text}`;
  const wrong = inOrder(items).filter(({ difference }) => !legal.has(difference.code));
  const loud = wrong.find(({ output }) => output !== 'input');
  const first = loud ?? wrong[0];
  if (loud !== undefined) {
    const but = butText(places, loud);
    const answer = `${pod} ${obligations[expected]} ${service}${why}. But: ${but}`;
    return { answer, change: itemReason(loud).change };
  }
  const reasons = chain.conditions.filter(({ passes }) => passes === false);
  const more =
    reasons.length > 1 && decides !== null ? `, and ${reasonsMore(reasons.length - 1)}` : '';
  const end = expected === 'ready' ? ' and gets its traffic' : '';
  const unknown = isSelected(pair.service) ? anyUnknown(context, of) : null;
  const doubt = unknown === null ? '' : `; not all of it can be judged: ${unknownText[unknown]}`;
  const trouble = first === undefined ? '' : `. But: ${itemText(first)}`;
  const answer = `${pod} ${expectations[expected]} ${service}${end}${why}${more}${trouble}${doubt}`;
  const changes = reasons.map(({ change }) => change).filter((change) => change !== null);
  const change = first === undefined ? changes.join('; then ') : itemReason(first).change;
  return { answer, change: change === '' ? null : change };
}

const reasonsMore = (count: number): string =>
  count === 1 ? 'for one more reason' : `for ${String(count)} more reasons`;

/** What stands instead of what should, in one clause. */
function butText(places: readonly PlaceComparison[], worst: PendingDifference): string {
  const wrong = places.filter(({ expected, actual, verdict }) => {
    return expected !== actual && (verdict === 'different' || verdict === 'pending');
  });
  if (wrong.length === 0) return itemText(worst);
  return wrong
    .map(({ place, actual }) =>
      actual === 'absent'
        ? `${placeName(place)} leave it out`
        : `${placeName(place)} have it ${stateWords[actual]}`,
    )
    .join(' and ');
}

function placeReason(asked: Asked, { place, expected, actual, verdict }: PlaceComparison): Reason {
  const { stands, items, of } = asked;
  const there = stands.filter((stand) => stand.place === place);
  const parts = [
    ...there.map(({ object, text }) => reason('note', `${object}: ${text}`, { object })),
    ...itemReasons(itemsAt(items, place)),
  ];
  const name = placeName(place);
  const unknown = unknownReason(of, outputOf(place), asked.context.stale);
  if (verdict === 'unknown' && unknown !== null) {
    return reason('unknown', `${name}: unknown, since ${unknownText[unknown]}`, { parts });
  }
  if (!isSelected(asked.pair.service) && actual !== 'absent') {
    const whose = 'written by somebody else or left from a selector before';
    const text = `${name}: ${stateWords[actual]}, ${whose}; no pod is expected there`;
    return reason('note', text, { parts });
  }
  if (verdict === 'conform' && expected !== actual && place === 'endpoints') {
    parts.push(...truncatedReason(asked));
  }
  const so =
    expected === actual
      ? stateWords[expected]
      : `expected ${stateWords[expected]}, found ${stateWords[actual]}`;
  const end = verdict === 'conform' && expected === actual ? ', as it must be' : '';
  const mark = verdict === 'conform' ? 'yes' : 'no';
  return reason(mark, `${name}: ${verdict}: ${so}${end}`, { parts });
}

function truncatedReason({ of }: Asked): Reason[] {
  if (truncationOf(of.record) === null) return [];
  const text =
    'an Endpoints object holds 1,000 addresses at most, this Service has more, and which of them ' +
    'are left out is arbitrary; EndpointSlices hold all of them';
  const source = 'pkg/controller/endpoint/endpoints_controller.go truncateEndpoints';
  return [reason('note', text, { source })];
}

/** Trouble in the input, and entries that nobody judges. */
function besidesOf({ of, stands, items }: Asked): Reason[] {
  const others = stands.filter(({ place }) => place === null);
  const entries = others.map(({ object, text, role }) => {
    const slice = of.record.slices.find(({ key }) => object.endsWith(` ${key}`));
    return reason('note', `${object}, ${managerText(role, slice)}: ${text}`, { object });
  });
  const input = items.filter(({ output }) => output === 'input' || output === 'mirrored');
  return [...itemReasons(input), ...entries];
}

// Explains one pod and one Service: the desired state with its conditions, the actual entries, and
// the differences. The answer follows the slices, because nodes read nothing else. A pod that is
// rightly absent is no difference: the verdict is `conform`, and the answer names the condition.

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
  Condition,
  Conditions,
  EntryState,
  ExpectedEntry,
  ListingPlace,
  PodAndService,
} from './conditions.ts';
import {
  decidingCondition,
  entryStates,
  evaluateConditions,
  placeName,
  stateWords,
} from './conditions.ts';
import type { Reason } from './explanation.ts';
import {
  itemChange,
  itemReasons,
  itemText,
  note,
  reason,
  severityOf,
  unknownText,
  worstItemsFirst,
  worstVerdict,
} from './explanation.ts';
import type { ObservedEntry } from './observed.ts';
import { entriesOfPod, itemsAbout, managerText, observedState } from './observed.ts';

/** The desired and the actual state at a place. */
interface PlaceComparison {
  readonly place: ListingPlace;
  readonly expected: EntryState;
  readonly actual: EntryState;
  readonly verdict: Verdict;
}

export interface PairExplanation {
  readonly service: string;
  readonly answer: string;
  readonly change: string | null;
  /** The worst over all places; also `conform` if no place must list the pod, and none does. */
  readonly verdict: Verdict;
  readonly severity: Severity | null;
  /** The condition that decides in the slices; null if the pod gets all traffic. */
  readonly decides: Condition | null;
  /** The best desired state in slices. */
  readonly state: EntryState;
  /** Whether the selector takes the pod. */
  readonly selected: boolean;
  readonly places: readonly PlaceComparison[];
  readonly conditions: readonly Reason[];
  readonly entries: readonly Reason[];
  readonly others: readonly Reason[];
}

interface Input {
  readonly context: VerdictInput;
  readonly audited: ServiceAudit;
  readonly pair: PodAndService;
  readonly evaluated: Conditions;
  readonly entries: readonly ObservedEntry[];
  readonly items: readonly PendingDifference[];
}

const outputOf = (place: ListingPlace): ServiceOutput =>
  place === 'endpoints' ? 'endpoints' : 'endpointslices';

/** The verdict on some of the differences of an output. */
export function verdictOn(
  { stale }: VerdictInput,
  audited: ServiceAudit,
  items: readonly PendingDifference[],
  output: ServiceOutput,
): Verdict {
  const wrong = items.filter((item) => item.output === output && !legal.has(item.difference.code));
  const unknown = unknownReason(audited, output, stale);
  if (unknown === 'input-stale') return 'unknown';
  if (wrong.some(({ openedAt }) => openedAt !== null)) return 'different';
  if (unknown !== null) return 'unknown';
  return wrong.length > 0 ? 'pending' : 'conform';
}

/** The first reason for an unknown verdict on an output of a Service; null if all are known. */
export const anyUnknown = ({ stale }: VerdictInput, audited: ServiceAudit): UnknownReason | null =>
  serviceOutputs
    .map((output) => unknownReason(audited, output, stale))
    .find((known) => known !== null) ?? null;

/** Explains a pod and a Service; null if the Service does not exist. */
export function explainPair(
  context: VerdictInput,
  audited: ServiceAudit,
  pod: Pod,
): PairExplanation | null {
  const { service } = audited.record;
  if (service === null) return null;
  const { listers, release } = context;
  const pair = { service, pod, node: nodeOf(listers, pod) };
  const entries = entriesOfPod(listers, audited.record, pod);
  const items = itemsAbout(listers, audited, pod, entries);
  const evaluated = evaluateConditions(pair, release);
  const input: Input = { context, audited, pair, evaluated, entries, items };
  const places = evaluated.expected.map((expected) => comparePlace(input, expected));
  const best = bestInSlices(evaluated.expected);
  const decides = best === null ? null : decidingCondition(evaluated, best.place);
  const state = best?.state ?? 'absent';
  return {
    service: service.key,
    ...answerOf(input, places, state, decides),
    state,
    selected: !evaluated.conditions.some(
      ({ name, passes }) => (name === 'labels' || name === 'selector') && passes === false,
    ),
    verdict: worstVerdict(places.map(({ verdict }) => verdict)),
    severity: severityOf(items),
    decides,
    places,
    conditions: evaluated.conditions.map((condition) => conditionReason(condition, pod)),
    entries: places.map((place) => placeReason(input, place)),
    others: otherReasons(input),
  };
}

function comparePlace(input: Input, { place, state: expected }: ExpectedEntry): PlaceComparison {
  const { context, audited, pair, entries, items } = input;
  const output = outputOf(place);
  // No controller writes for a Service without a selector, so without differences nothing is wrong.
  const isIdle = !isSelected(pair.service) && !items.some((item) => item.output === output);
  const verdict = isIdle ? 'conform' : verdictOn(context, audited, items, output);
  return { place, expected, actual: observedState(entries, place), verdict };
}

/** The best desired state in slices; null if the Service has no address type. */
export function bestInSlices(expected: readonly ExpectedEntry[]): ExpectedEntry | null {
  const slices = expected.filter(({ place }) => place !== 'endpoints');
  const rank = ({ state }: ExpectedEntry): number => entryStates.indexOf(state);
  return slices.sort((a, b) => rank(b) - rank(a))[0] ?? null;
}

function conditionReason(condition: Condition, pod: Pod): Reason {
  const { name, passes, text, object, field, source, change } = condition;
  const mark = passes === 'unknown' ? 'unknown' : passes ? 'yes' : 'no';
  const since = name === 'readiness' && !pod.deleting ? pod.turnedAt : null;
  return reason(mark, text, { object, field, source, change, since });
}

const isStates: Readonly<Record<EntryState, string>> = {
  absent: 'is not in',
  'no-ports': 'is listed without ports, and so gets no traffic, in',
  'not-ready': 'is listed as not ready, and so gets no traffic, in',
  'fewer-ports': 'gets traffic on some ports only of',
  ready: 'is in',
};

const shouldStates: Readonly<Record<EntryState, string>> = {
  absent: 'should not be in',
  'no-ports': 'should be listed without ports in',
  'not-ready': 'should be listed as not ready in',
  'fewer-ports': 'should be ready on some ports of',
  ready: 'should be ready in',
};

function answerOf(
  { context, audited, pair, evaluated, items }: Input,
  places: readonly PlaceComparison[],
  expected: EntryState,
  decides: Condition | null,
): { answer: string; change: string | null } {
  const [pod, service] = [`Pod ${pair.pod.key}`, `Service ${pair.service.key}`];
  const why = decides === null ? '' : `: ${decides.text}`;
  const wrong = worstItemsFirst(items).filter(({ difference }) => !legal.has(difference.code));
  const written = wrong.find(({ output }) => output !== 'input');
  if (written !== undefined) {
    const but = actualText(places) || itemText(written);
    const answer = `${pod} ${shouldStates[expected]} ${service}${why}. But: ${but}`;
    return { answer, change: itemChange(written) };
  }
  const [first] = wrong;
  const failed = evaluated.conditions.filter(({ passes }) => passes === false);
  const rest = failed.length - 1;
  const more =
    rest < 1 || decides === null
      ? ''
      : `, and ${rest === 1 ? 'for one more reason' : `for ${rest} more reasons`}`;
  const end = expected === 'ready' ? ' and gets its traffic' : '';
  const unknown = isSelected(pair.service) ? anyUnknown(context, audited) : null;
  const doubt = unknown === null ? '' : `; not all of it can be judged: ${unknownText[unknown]}`;
  const trouble = first === undefined ? '' : `. But: ${itemText(first)}`;
  const answer = `${pod} ${isStates[expected]} ${service}${end}${why}${more}${trouble}${doubt}`;
  const changes = failed.flatMap(({ change }) => change ?? []).join('; then ') || null;
  return { answer, change: first === undefined ? changes : itemChange(first) };
}

/** The actual state where it is wrong, in one clause; empty if no state is. */
const actualText = (places: readonly PlaceComparison[]): string =>
  places
    .filter(({ expected, actual }) => expected !== actual)
    .filter(({ verdict }) => verdict === 'different' || verdict === 'pending')
    .map(({ place, actual }) =>
      actual === 'absent'
        ? `${placeName(place)} leave it out`
        : `${placeName(place)} have it ${stateWords[actual]}`,
    )
    .join(' and ');

function placeReason(input: Input, { place, expected, actual, verdict }: PlaceComparison): Reason {
  const { entries, items, audited, pair, context } = input;
  const parts = [
    ...entries
      .filter((entry) => entry.place === place)
      .map(({ object, text }) => note(`${object}: ${text}`, { object })),
    ...itemReasons(items.filter(({ output }) => output === outputOf(place))),
  ];
  const name = placeName(place);
  const unknown = unknownReason(audited, outputOf(place), context.stale);
  if (verdict === 'unknown' && unknown !== null) {
    return reason('unknown', `${name}: unknown, since ${unknownText[unknown]}`, { parts });
  }
  if (!isSelected(pair.service) && actual !== 'absent') {
    const whose = 'written by somebody else or left from a selector before';
    const text = `${name}: ${stateWords[actual]}, ${whose}; no pod is expected there`;
    return note(text, { parts });
  }
  const isEqual = expected === actual;
  if (verdict === 'conform' && !isEqual && place === 'endpoints') {
    parts.push(...truncationReasons(audited));
  }
  const states = isEqual
    ? stateWords[expected]
    : `expected ${stateWords[expected]}, found ${stateWords[actual]}`;
  const end = verdict === 'conform' && isEqual ? ', as it must be' : '';
  const mark = verdict === 'conform' ? 'yes' : 'no';
  return reason(mark, `${name}: ${verdict}: ${states}${end}`, { parts });
}

function truncationReasons({ record }: ServiceAudit): Reason[] {
  if (truncationOf(record) === null) return [];
  const text =
    'an Endpoints object holds 1,000 addresses at most, this Service has more, and which of them ' +
    'are left out is arbitrary; EndpointSlices hold all of them';
  const source = 'pkg/controller/endpoint/endpoints_controller.go truncateEndpoints';
  return [note(text, { source })];
}

/** Differences of the input and of mirrored slices, and entries of other managers. */
function otherReasons({ audited, entries, items }: Input): Reason[] {
  const others = entries.filter(({ place }) => place === null);
  return [
    ...itemReasons(items.filter(({ output }) => output === 'input' || output === 'mirrored')),
    ...others.map(({ object, text, role }) => {
      const slice = audited.record.slices.find(({ key }) => object.endsWith(` ${key}`));
      return note(`${object}, ${managerText(role, slice)}: ${text}`, { object });
    }),
  ];
}

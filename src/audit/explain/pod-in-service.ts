// Explains one pod and one Service: the desired state with its conditions, the actual entries, and
// the differences. The answer follows the slices, because nodes read nothing else. A pod that is
// rightly absent is no difference: the verdict is `conform`, and the answer names the condition.

import type { Pod, Service } from '../../model/objects.ts';
import { isSelected } from '../../shadow/endpoints.ts';
import type { Verdict } from '../finding/verdicts.ts';
import { legal } from '../finding/verdicts.ts';
import { nodeOf } from '../service/cache.ts';
import { truncationOf } from '../service/endpoints.ts';
import type { ServiceOutput } from '../service/enqueue.ts';
import type { ServiceAudit, ServiceDifference } from '../service/reconcile.ts';
import type { VerdictInput } from '../service/verdict.ts';
import { serviceOutputs, unknownReason, verdictOn } from '../service/verdict.ts';
import type { Condition, Conditions, EntryState, ListingPlace } from './conditions.ts';
import { evaluateConditions, placeName, stateWords } from './conditions.ts';
import type { Reason, ReasonMark } from './explanation.ts';
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
import { entriesOfPod, entryNote, itemsAbout, observedState } from './observed.ts';

export type PairExplanation = NonNullable<ReturnType<typeof explainPair>>;

/** The desired and the actual state at a place. */
type PlaceComparison = ReturnType<typeof comparePlace>;

interface PairInput extends Conditions {
  readonly context: VerdictInput;
  readonly audited: ServiceAudit;
  readonly service: Service;
  readonly pod: Pod;
  readonly entries: readonly ObservedEntry[];
  readonly items: readonly ServiceDifference[];
}

const outputOf = (place: ListingPlace): ServiceOutput =>
  place === 'endpoints' ? 'endpoints' : 'endpointslices';

/** Why an output of a Service is unknown; null if all are known. */
export function whyUnknown({ stale }: VerdictInput, audited: ServiceAudit): string | null {
  const reasons = serviceOutputs.map((output) => unknownReason(audited, output, stale));
  const first = reasons.find((known) => known !== null);
  return first === undefined ? null : unknownText[first];
}

/** Explains a pod and a Service; null if the Service does not exist. */
export function explainPair(context: VerdictInput, audited: ServiceAudit, pod: Pod) {
  const { listers, release } = context;
  const { service } = audited.record;
  if (service === null) return null;
  const evaluated = evaluateConditions({ service, pod, node: nodeOf(listers, pod) }, release);
  const entries = entriesOfPod(listers, audited.record, pod);
  const items = itemsAbout(listers, audited, pod, entries);
  const input: PairInput = { context, audited, service, pod, entries, items, ...evaluated };
  const { conditions, expected, state, decides } = evaluated;
  const places = [...expected.keys()].map((place) => comparePlace(input, place));
  const checked = conditions.map((condition) => conditionReason(condition, pod));
  const listed = [...places.map(({ reason: found }) => found), ...otherReasons(input)];
  return {
    service: service.key,
    /** Also `conform` if no place must list the pod, and none does. */
    verdict: worstVerdict(places.map(({ verdict }) => verdict)),
    severity: severityOf(items),
    ...answerOf(input, places),
    /** Whether the selector takes the pod. */
    selected: !conditions.some(
      ({ name, passes }) => (name === 'labels' || name === 'selector') && passes === false,
    ),
    state,
    decides,
    places,
    reasons: [...checked, ...listed],
    /** The reasons without the conditions that pass. */
    brief: [...checked.filter(({ mark }) => mark !== 'yes'), ...listed],
  };
}

function comparePlace(input: PairInput, place: ListingPlace) {
  const { context, audited, service, entries } = input;
  const output = outputOf(place);
  const items = input.items.filter((item) => item.output === output);
  const expected = input.expected.get(place) ?? 'absent';
  const actual = observedState(entries, place);
  // No controller writes for a Service without a selector, so without differences nothing is wrong.
  const isIdle = !isSelected(service) && items.length === 0;
  const verdict: Verdict = isIdle ? 'conform' : verdictOn(audited, items, output, context.stale);
  const isRight = verdict === 'conform';
  const parts = [
    ...entries.filter((entry) => entry.place === place).map((entry) => entryNote(entry)),
    ...itemReasons(items),
  ];
  const compared = (mark: ReasonMark, text: string) => {
    const found = reason(mark, `${placeName(place)}: ${text}`, { parts });
    return { place, expected, actual, verdict, reason: found };
  };
  const unknown = unknownReason(audited, output, context.stale);
  if (verdict === 'unknown' && unknown !== null) {
    return compared('unknown', `unknown, since ${unknownText[unknown]}`);
  }
  if (!isSelected(service) && actual !== 'absent') {
    const whose = 'written by somebody else or left from a selector before';
    return compared('note', `${stateWords[actual]}, ${whose}; no pod is expected there`);
  }
  const isEqual = expected === actual;
  if (!isEqual && isRight && place === 'endpoints' && truncationOf(audited.record)) {
    const text =
      'an Endpoints object holds 1,000 addresses at most, this Service has more, and which of ' +
      'them are left out is arbitrary; EndpointSlices hold all of them';
    const source = 'pkg/controller/endpoint/endpoints_controller.go truncateEndpoints';
    parts.push(note(text, { source }));
  }
  const states = isEqual
    ? stateWords[expected] + (isRight ? ', as it must be' : '')
    : `expected ${stateWords[expected]}, found ${stateWords[actual]}`;
  return compared(isRight ? 'yes' : 'no', `${verdict}: ${states}`);
}

function conditionReason(condition: Condition, pod: Pod): Reason {
  const { name, passes, text, object, field, source, change } = condition;
  const mark = passes === 'unknown' ? 'unknown' : passes ? 'yes' : 'no';
  const since = name === 'readiness' && !pod.deleting ? pod.turnedAt : null;
  return reason(mark, text, { object, field, source, change, since });
}

/** The states in an answer: as they are, and as they should be. */
const answerWords: Readonly<Record<EntryState, readonly [is: string, should: string]>> = {
  absent: ['is not in', 'should not be in'],
  'no-ports': [
    'is listed without ports, and so gets no traffic, in',
    'should be listed without ports in',
  ],
  'not-ready': [
    'is listed as not ready, and so gets no traffic, in',
    'should be listed as not ready in',
  ],
  'fewer-ports': ['gets traffic on some ports only of', 'should be ready on some ports of'],
  ready: ['is in', 'should be ready in'],
};

function answerOf(
  { context, audited, service, pod, conditions, items, state, decides }: PairInput,
  places: readonly PlaceComparison[],
): { answer: string; change: string | null } {
  const [is, should] = answerWords[state];
  const why = decides === null ? '' : `: ${decides.text}`;
  const wrong = worstItemsFirst(items).filter(({ difference }) => !legal.has(difference.code));
  const written = wrong.find(({ output }) => output !== 'input');
  if (written !== undefined) {
    const but = actualText(places) || itemText(written);
    const answer = `Pod ${pod.key} ${should} Service ${service.key}${why}. But: ${but}`;
    return { answer, change: itemChange(written) };
  }
  const [first] = wrong;
  const failed = conditions.filter(({ passes }) => passes === false);
  const rest = decides === null ? 0 : failed.length - 1;
  const unknown = isSelected(service) ? whyUnknown(context, audited) : null;
  const answer = [
    `Pod ${pod.key} ${is} Service ${service.key}`,
    state === 'ready' ? ' and gets its traffic' : '',
    why,
    rest < 1 ? '' : `, and for ${rest === 1 ? 'one more reason' : `${rest} more reasons`}`,
    first === undefined ? '' : `. But: ${itemText(first)}`,
    unknown === null ? '' : `; not all of it can be judged: ${unknown}`,
  ].join('');
  const changes = failed.flatMap(({ change }) => change ?? []).join('; then ') || null;
  return { answer, change: first === undefined ? changes : itemChange(first) };
}

/** The actual state where it is wrong, in one clause; empty if no state is. */
const actualText = (places: readonly PlaceComparison[]): string =>
  places
    .filter(({ expected, actual }) => expected !== actual)
    .filter(({ verdict }) => verdict === 'different' || verdict === 'pending')
    .map(({ place, actual }) => {
      const what = actual === 'absent' ? 'leave it out' : `have it ${stateWords[actual]}`;
      return `${placeName(place)} ${what}`;
    })
    .join(' and ');

/** Differences of the input and of mirrored slices, and entries of other managers. */
const otherReasons = ({ entries, items }: PairInput): Reason[] => [
  ...itemReasons(items.filter(({ output }) => output === 'input' || output === 'mirrored')),
  ...entries
    .filter(({ place }) => place === null)
    .map(({ object, manager, text }) => note(`${object}, ${manager}: ${text}`, { object })),
];

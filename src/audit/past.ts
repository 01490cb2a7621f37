// What an auditor knows of the past beside the Services: what is resolved, the incidents, and the
// lag. A checkpoint of a recording has it in parts, each a line, so that an audit from the
// checkpoint on answers as one from the beginning does.

import {
  type Form,
  type FormOf,
  getOrInsert,
  hasForms,
  isFields,
  isNumber,
  isOneOf,
  orNull,
} from '../model/collections.ts';
import type { Finding } from './finding/catalogue.ts';
import { isCode, isResolvedFinding, isSeverity } from './finding/saved-finding.ts';
import type { ReportedIncident } from './incident/report.ts';
import {
  type FindingOf,
  isReportedResolved,
  isSavedEvidence,
  isSavedGrouping,
  isSavedIncident,
  isSavedMember,
  isSavedResolved,
  type NumberOf,
  type PastIncidents,
  type SavedEvidence,
  type SavedIncident,
  type SavedResolved,
} from './incident/saved-incidents.ts';
import type { Measurements } from './measure/measurements.ts';
import type { createLagHistory, createTopSamples } from './measure/sample-history.ts';
import {
  continueInterval,
  continueMeasures,
  isSavedChanges,
  isSavedInterval,
  isSavedMeasures,
  isSavedSample,
  saveInterval,
  saveMeasures,
} from './measure/saved-lag.ts';
import { isPastOfOpen, type PastFindings, type PastOfOpen } from './pending/past-findings.ts';
import type { ConvergenceSample } from './service/reconcile.ts';

/** What has a past. */
export interface PastSource {
  readonly findings: { past(): PastFindings; continuePast(past: PastFindings): void };
  readonly incidents: {
    past(numberOf: NumberOf): PastIncidents & { readonly evidence: SavedEvidence };
    continuePast(past: PastIncidents, evidence: SavedEvidence, findingOf: FindingOf): void;
  };
  readonly samples: Pick<Measurements, 'convergence' | 'trigger' | 'skew' | 'sizes'> & {
    readonly history: ReturnType<typeof createLagHistory>;
    readonly worst: { readonly convergence: TopSamples };
    readonly opened: object;
  };
  /** What was known of the time before a restart. */
  readonly earlier: { findings: readonly Finding[]; incidents: readonly ReportedIncident[] };
}

type TopSamples = ReturnType<typeof createTopSamples<ConvergenceSample>>;

type NumberedFinding = FormOf<typeof isNumberedFinding>;

/** The parts by their names, with what each line has. */
type Parts = { readonly [P in Part]: FormOf<(typeof forms)[P]> };

type Part = keyof typeof forms;
type PartLine = { [P in Part]: readonly [part: P, state: Parts[P]] }[Part];

/** The past of an auditor now. The snapshot is taken at once, and the lines are made when read. */
export function pastOf(source: PastSource): Iterable<PartLine> {
  const { samples, earlier } = source;
  const findings = source.findings.past();
  const numbers = new Map<Finding, NumberedFinding>();
  const number = (finding: Finding, list: NumberedFinding['list'] = null): number =>
    getOrInsert(numbers, finding, () => ({ number: numbers.size, list, finding })).number;
  for (const finding of earlier.findings) number(finding, 'earlier');
  for (const finding of findings.resolved) number(finding, 'resolved');
  const incidents = source.incidents.past(number);
  const lags = samples.history.past();
  const opened = { forgotten: findings.forgotten, counts: structuredClone(samples.opened) };
  const singles: readonly PartLine[] = [
    ['opened', opened],
    ['measures', saveMeasures(samples)],
    ['grouping', incidents.grouping],
    ['evidence', incidents.evidence],
    ...lags.intervals.map(([start, it]) => ['interval', saveInterval(start, it)] as const),
  ];
  const lists: { readonly [P in Part]?: Iterable<Parts[P]> } = {
    finding: numbers.values(),
    'earlier-incident': earlier.incidents,
    'open-finding': findings.open,
    incident: incidents.open,
    member: incidents.members,
    'resolved-incident': incidents.resolved,
    changes: lags.services,
    sample: samples.worst.convergence.all(),
  };
  return linesOf(singles, lists);
}

function* linesOf(
  singles: readonly PartLine[],
  lists: { readonly [P in Part]?: Iterable<Parts[P]> },
): Generator<PartLine> {
  yield* singles;
  for (const [part, states] of Object.entries(lists)) {
    for (const state of states) yield [part, state] as PartLine;
  }
}

// --- reading ---

const isCounts = (value: unknown): value is object =>
  isFields(value) &&
  Object.entries(value).every(
    ([code, counts]) =>
      isCode(code) &&
      isFields(counts) &&
      Object.entries(counts).every((it) => isSeverity(it[0]) && isNumber(it[1])),
  );

/** A resolved finding; what it is part of beside incidents. */
const isNumberedFinding = hasForms({
  number: isNumber,
  list: orNull(isOneOf(['resolved', 'earlier'])),
  finding: isResolvedFinding,
});

const forms = {
  finding: isNumberedFinding,
  'earlier-incident': isReportedResolved as Form<ReportedIncident>,
  'open-finding': isPastOfOpen as Form<PastOfOpen>,
  incident: isSavedIncident as Form<SavedIncident>,
  member: isSavedMember,
  'resolved-incident': isSavedResolved as Form<SavedResolved>,
  grouping: isSavedGrouping,
  evidence: isSavedEvidence,
  opened: hasForms({ forgotten: isNumber, counts: isCounts }),
  measures: isSavedMeasures,
  interval: isSavedInterval,
  changes: isSavedChanges,
  sample: isSavedSample,
};

export type SavedPast = ReturnType<typeof createSavedPast>;

/** Collects the parts that are read from a checkpoint. */
export function createSavedPast() {
  const parts = new Map<string, unknown[]>();
  const allOf = <P extends Part>(part: P): readonly Parts[P][] =>
    (parts.get(part) ?? []) as unknown as readonly Parts[P][];
  return {
    /** Adds a line; false if the part is not known, or the state has another form. */
    add(part: string, state: unknown): boolean {
      const isRight = Object.hasOwn(forms, part) && forms[part as Part](state);
      if (isRight) getOrInsert(parts, part, () => []).push(state);
      return isRight;
    },
    allOf,
    /** The last line of a part. */
    lastOf: <P extends Part>(part: P): Parts[P] | undefined => allOf(part).at(-1),
    clear: () => parts.clear(),
  };
}

/** Continues the past of a checkpoint, if it has one, after what is open has opened again. */
export function continuePast(source: PastSource, past: SavedPast): void {
  const { findings, incidents, samples, earlier } = source;
  const { allOf, lastOf } = past;
  const [opened, measures] = [lastOf('opened'), lastOf('measures')];
  const [grouping, evidence] = [lastOf('grouping'), lastOf('evidence')];
  if (!opened || !measures || !grouping || !evidence) return;
  const numbered = allOf('finding');
  const byNumber = new Map(numbered.map((it) => [it.number, it.finding]));
  const inList = (list: NumberedFinding['list']): Finding[] =>
    numbered.filter((it) => it.list === list).map(({ finding }) => finding);
  const { forgotten, counts } = opened;
  findings.continuePast({ resolved: inList('resolved'), forgotten, open: allOf('open-finding') });
  const [open, members] = [allOf('incident'), allOf('member')];
  const all = { open, members, resolved: allOf('resolved-incident'), grouping };
  incidents.continuePast(all, evidence, (number) => byNumber.get(number));
  const before = { findings: inList('earlier'), incidents: allOf('earlier-incident') };
  Object.assign(earlier, before);
  // What has opened again was counted.
  for (const code of Object.keys(samples.opened)) Reflect.deleteProperty(samples.opened, code);
  Object.assign(samples.opened, counts);
  continueMeasures(samples, measures);
  const intervals = allOf('interval').map((it) => [it.start, continueInterval(it)] as const);
  samples.history.continuePast({ intervals, services: allOf('changes') });
  samples.worst.convergence.continuePast(allOf('sample'));
  past.clear();
}

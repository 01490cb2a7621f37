// What was measured of lag while a scenario was played, as lines that its `lag` blocks expect.

import { isDeepStrictEqual } from 'node:util';

import type { Finding, Output } from '../../src/audit/finding/catalogue.ts';
import { bySeverity } from '../../src/audit/finding/catalogue.ts';
import type { Cause } from '../../src/audit/finding/causes.ts';
import { noImpacts } from '../../src/audit/incident/impact.ts';
import type { Journey } from '../../src/audit/measure/journey.ts';
import { triggerSample } from '../../src/audit/measure/lag.ts';
import type { PendingDifference } from '../../src/audit/pending/pending.ts';
import { createPendingFindings } from '../../src/audit/pending/pending.ts';
import { createWatchProgress } from '../../src/audit/pending/progress.ts';
import type { ServiceAuditor } from '../../src/audit/service/auditor.ts';
import { createServiceAuditor } from '../../src/audit/service/auditor.ts';
import type { AuditContext } from '../../src/audit/service/cache.ts';
import type { ConvergenceSample } from '../../src/audit/service/reconcile.ts';
import { isForeign, serviceOutputs, verdictOf } from '../../src/audit/service/verdict.ts';
import { createIncidentLedger } from '../../src/auditor/incidents.ts';
import type { JourneyTracker } from '../../src/auditor/open-journeys.ts';
import {
  advanceJourneys,
  createJourneyTracker,
  restartJourneys,
  trackPod,
} from '../../src/auditor/open-journeys.ts';
import { jsonBytes, project } from '../../src/cluster/decode/json-objects.ts';
import type { Store } from '../../src/cluster/store/store.ts';
import { createStore } from '../../src/cluster/store/store.ts';
import type {
  Change,
  Endpoints,
  EndpointSlice,
  Listers,
  UnreadableObject,
} from '../../src/model/objects.ts';
import { resources } from '../../src/model/objects.ts';
import { runToEnd } from '../../src/model/run-to-end.ts';
import type { RawEvent } from './api.ts';
import { createApi, epoch } from './api.ts';
import type { Scenario } from './parse.ts';
import { perform } from './statements.ts';

interface LagLines {
  readonly journeys: JourneyTracker;
  readonly converged: (sample: ConvergenceSample) => void;
  /** Takes in a change that the auditor has evaluated. */
  readonly take: (change: Change) => void;
  /** Lines since they were last asked for, in the order of the alphabet. */
  readonly lines: () => string[];
}

const text = (seconds: number): string => `${String(Math.round(seconds * 1000) / 1000)}s`;

function journeyLine({ namespace, service, pod, operation, ...journey }: Journey): string {
  const { begun, quality, stages, end } = journey;
  const reached = stages
    .filter(({ stage }) => stage !== 'arrival')
    .map(({ stage, at }) => `${stage}=${text(at - begun)}`);
  const words = [`${namespace}/${service}`, pod, operation, quality, ...reached, end ?? 'open'];
  return `journey ${words.join(' ')}`;
}

function createLagLines(listers: Listers): LagLines {
  let lines: string[] = [];
  const journeys = createJourneyTracker(listers, {
    onStage: () => undefined,
    onEnd: (journey) => void lines.push(journeyLine(journey)),
  });
  return {
    journeys,
    converged(sample) {
      const { namespace, service, output, operation, seconds } = sample;
      lines.push(`converged ${namespace}/${service} ${output} ${operation} ${text(seconds)}`);
    },
    take(change) {
      trackPod(journeys, change);
      const { resource, before, after, at } = change;
      if (resource !== 'endpoints' && resource !== 'endpointslices') return;
      const object = after as Endpoints | EndpointSlice | null;
      const name = object?.labels['kubernetes.io/service-name'] ?? object?.name ?? '';
      const key = `${object?.namespace ?? ''}/${name}`;
      const service = listers.services.get(key) ?? null;
      const was = before as Endpoints | EndpointSlice | null;
      const sample = triggerSample(was, object, service, at);
      const { quality = '', seconds = null } = sample ?? {};
      if (seconds !== null) lines.push(`trigger ${key} ${resource} ${quality} ${text(seconds)}`);
    },
    lines() {
      const sorted = lines.sort();
      lines = [];
      return sorted;
    },
  };
}

// Plays a scenario: compiles it into watch events, feeds them to the real store and the real
// auditor in one of several ways, and returns the findings after each step.
//
//   statements ─► miniature API server ─► events ─► project ─► store ─► auditor ─► settle ─► rows
//
// What is compiled once, the events of each step and the state after it, is what all ways of
// playing share: forward as written, with every event repeated, shuffled within each step, the
// states visited backwards, and every state met for the first time.

/** What happens in one step, and all objects after it. */
export interface CompiledStep {
  readonly at: number;
  readonly events: readonly RawEvent[];
  /** By resource and key, in the order in which objects came to be. */
  readonly state: ReadonlyMap<string, RawEvent>;
}

/** Runs the statements on a miniature API server. */
export function compile(scenario: Scenario): CompiledStep[] {
  const api = createApi();
  return scenario.steps.map(({ at, statements }) => {
    api.now = at;
    for (const statement of statements) perform(scenario, api, statement);
    const events = api.takeEvents();
    const state = new Map<string, RawEvent>();
    for (const resource of resources) {
      for (const raw of api.list(resource)) {
        const { namespace, name } = raw.metadata;
        const key = namespace === undefined ? name : `${namespace}/${name}`;
        state.set(`${resource} ${key}`, { resource, type: 'added', key, raw });
      }
    }
    return { at, events, state };
  });
}

/** A cluster under audit. */
export interface World {
  readonly scenario: Scenario;
  readonly store: Store;
  readonly serviceAuditor: ServiceAuditor;
  readonly context: AuditContext;
  /** Findings resolved since they were last asked for. */
  readonly resolved: Finding[];
  readonly lost: Map<string, UnreadableObject>;
  readonly lags: LagLines;
  readonly incidents: ReturnType<typeof createIncidentLedger>;
  begun: boolean;
}

function createWorld(scenario: Scenario): World {
  const store = createStore(scenario.delivered);
  const { release, maxEndpointsPerSlice, window } = scenario;
  const context: AuditContext = { listers: store.listers, release, maxEndpointsPerSlice };
  const resolved: Finding[] = [];
  const settle = createPendingFindings({
    window,
    keep: 100,
    onOpen: (finding) => incidents.add(finding),
    onResolve(finding) {
      resolved.push(finding);
      incidents.remove(finding);
    },
  });
  const incidents = createIncidentLedger({
    listers: store.listers,
    window,
    services: () => serviceAuditor,
    nodes: () => null,
    impacts: noImpacts,
    suppressions: { review: () => 0, suppressedBy: () => null },
    findings: () => settle.open(),
    live: false,
    keep: 1000,
    progress: createWatchProgress(),
  });
  const lags = createLagLines(store.listers);
  const serviceAuditor: ServiceAuditor = createServiceAuditor({
    context,
    settle,
    onChange: (key) => incidents.noteChange(key),
    onEvaluated(item, change) {
      advanceJourneys(lags.journeys, item, change);
    },
    onConvergence(sample) {
      lags.converged(sample);
      incidents.noteWrite(sample);
    },
  });
  return {
    scenario,
    store,
    serviceAuditor,
    context,
    resolved,
    lost: new Map(),
    lags,
    incidents,
    begun: false,
  };
}

/** Delivers one event at a second of the scenario, as a reflector would. */
function deliver(world: World, { resource, type, key, raw }: RawEvent, at: number): void {
  const { store, serviceAuditor, lost, scenario } = world;
  if (!scenario.delivered.has(resource)) return;
  const place = `${resource} ${key}`;
  const bytes = jsonBytes(raw);
  const previousPod = (of: string) => store.listers.pods.get(of);
  const projection = project(resource, raw, epoch + at, { bytes, previousPod });
  if (projection.problem !== undefined) {
    lost.set(place, projection.problem.lost);
    if (world.begun) runToEnd(serviceAuditor.markUnreadable(projection.problem.lost, epoch + at));
    return;
  }
  const { object } = projection;
  const change = store.apply({ resource, type, object, at: epoch + at });
  const known = lost.get(place);
  lost.delete(place);
  if (world.begun && change !== null) {
    serviceAuditor.apply(change);
    world.lags.take(change);
  }
  if (world.begun && known !== undefined) runToEnd(serviceAuditor.markReadable(known, epoch + at));
}

/** Takes in a first list and begins the audit. */
function begin(world: World, events: Iterable<RawEvent>, at: number): void {
  for (const event of events) deliver(world, event, at);
  runToEnd(world.serviceAuditor.begin(epoch + at));
  const { serviceAuditor: services, context } = world;
  restartJourneys(world.lags.journeys, { services, release: context.release });
  world.begun = true;
  for (const lost of world.lost.values())
    runToEnd(world.serviceAuditor.markUnreadable(lost, epoch + at));
}

/** Moves the clock to a second of the scenario. */
function advance({ serviceAuditor, incidents }: World, at: number): void {
  serviceAuditor.settle.advance(epoch + at);
  incidents.reviewAt(epoch + at);
}

// --- open findings ---

/** One line of an `expect` table as it should be, with the texts that people see. */
export interface Shown {
  readonly text: string;
  readonly code: string;
  readonly state: string;
  readonly details: string;
}

const orDash = (cause: Cause | null): string => cause ?? '-';

function showFinding(finding: Finding, state: string): Shown {
  const { severity, namespace, service, output, code, cause, since } = finding;
  const { object, field, expected, actual } = finding;
  const columns = [severity, `${namespace}/${service}`, output, code, orDash(cause), state];
  return {
    text: [...columns, `${since - epoch}s`].join(' '),
    code,
    state,
    details: [object, field, expected ?? '-', actual ?? '-'].join(' | '),
  };
}

function showItem(
  key: string,
  { difference, severity, output, cause, since }: PendingDifference,
): Shown {
  const { code, object, field, expected, actual } = difference;
  const columns = [severity, key, output, code, orDash(cause), 'pending', `${since - epoch}s`];
  return {
    text: columns.join(' '),
    code,
    state: 'pending',
    details: [object, field, expected ?? '-', actual ?? '-'].join(' | '),
  };
}

function itemsOf(world: World): { key: string; item: PendingDifference }[] {
  return [...world.serviceAuditor.audited].flatMap(([key, { items }]) =>
    [...items.values()].flat().map((item) => ({ key, item })),
  );
}

/** Pending differences (equal ones once), open findings, and those resolved since the last call. */
export function show(world: World): Shown[] {
  const pending = new Map<string, Shown>();
  for (const { key, item } of itemsOf(world)) {
    if (item.openedAt !== null) continue;
    const shown = showItem(key, item);
    const same = pending.get(shown.text);
    const details = same === undefined ? shown.details : `${same.details}\n${shown.details}`;
    pending.set(shown.text, { ...shown, details });
  }
  const open = world.serviceAuditor.settle.open().map((finding) => showFinding(finding, 'open'));
  const resolved = world.resolved.splice(0).map((finding) => showFinding(finding, 'resolved'));
  return [...pending.values(), ...open, ...resolved].sort((a, b) => (a.text < b.text ? -1 : 1));
}

/** The open incidents as lines of an `incidents` block. */
export const showIncidents = ({ incidents }: World): string[] =>
  incidents
    .list()
    .map(({ kind, object }) => `${kind} ${object}`)
    .sort();

/** How often each open finding belongs to an incident, and how often an incident has none. */
export function countOwners({ incidents, serviceAuditor }: World) {
  const open = serviceAuditor.settle.open();
  const listed = incidents.list();
  const times = open.map((it) => listed.filter(({ findings }) => findings.includes(it)).length);
  const empty = listed.filter(({ kind, findings }) => {
    return findings.length === 0 && kind !== 'service-without-endpoints';
  });
  return { owners: times, empty: empty.length };
}

/** The verdict on one output of a Service, with the reason where it is unknown; `-`: none. */
export function showVerdict(world: World, key: string, of: string): string {
  const audited = world.serviceAuditor.audited.get(key);
  if (audited === undefined) return '-';
  const { listers } = world.context;
  if (of === 'foreign') return isForeign(listers, audited) ? '' : 'not foreign';
  const output = serviceOutputs.find((name) => name === of);
  if (output === undefined) return `no such output: ${of}`;
  const verdict = verdictOf(listers, audited, output);
  const reason = verdict === 'unknown' ? audited.unknown.get(output) : undefined;
  return [verdict ?? '-', reason].filter((part) => part !== undefined).join(' ');
}

// --- comparing the findings of different ways ---

/** The place and kind of a difference, without what depends on history. */
const differenceText = (key: string, output: Output, code: string): string =>
  `${key} ${output} ${code}`;

/** The codes of all differences, pending or open. */
export function allDifferences(world: World): string[] {
  const all = itemsOf(world).map(({ key, item }) =>
    differenceText(key, item.output, item.difference.code),
  );
  return [...new Set(all)].sort();
}

/** Findings where nothing is pending and nothing has a cause, so that history has no part. */
export interface Settled {
  /** Differences with their severity. */
  readonly differences: string[];
  /** Findings with severity and code. */
  readonly findings: string[];
}

/** null where something is pending or has a cause. */
export function settled(world: World): Settled | null {
  const items = itemsOf(world);
  if (items.some(({ item }) => item.openedAt === null || item.cause !== null)) return null;
  const differences = items.map(
    ({ key, item: { severity, output, difference } }) =>
      `${severity} ${differenceText(key, output, difference.code)}`,
  );
  const findings = world.serviceAuditor.settle
    .open()
    .map(
      ({ severity, namespace, service, output, code }) =>
        `${severity} ${differenceText(`${namespace}/${service}`, output, code)}`,
    );
  return { differences: [...new Set(differences)].sort(), findings: findings.sort() };
}

/** One finding for each Service, code and cause with an open difference, as bad as the worst. */
export function findingsByState(world: World): string[] {
  const open = itemsOf(world).filter(({ item }) => item.openedAt !== null);
  const groups = Map.groupBy(open, ({ key, item: { output, difference, cause } }) =>
    [differenceText(key, output, difference.code), orDash(cause)].join(' '),
  );
  return [...groups]
    .map(([text, all]) => `${all.map(({ item }) => item).sort(bySeverity)[0]?.severity} ${text}`)
    .sort();
}

/** All open findings, as `findingsByState` has them. */
export const openFindings = (world: World): string[] =>
  world.serviceAuditor.settle
    .open()
    .map(({ severity, namespace, service, output, code, cause }) => {
      const key = `${namespace}/${service}`;
      return [severity, differenceText(key, output, code), orDash(cause)].join(' ');
    })
    .sort();

/** Codes with severity and state, of differences without a cause. */
export function causeless(world: World): string[] {
  const all = itemsOf(world)
    .filter(({ item }) => item.cause === null)
    .map(({ key, item }) => {
      const state = item.openedAt === null ? 'pending' : 'open';
      return `${item.severity} ${differenceText(key, item.output, item.difference.code)} ${state}`;
    });
  return [...new Set(all)].sort();
}

/** Places with a difference that has a cause. */
export function caused(world: World): Set<string> {
  return new Set(
    itemsOf(world)
      .filter(({ item }) => item.cause !== null)
      .map(({ key, item }) => differenceText(key, item.output, item.difference.code)),
  );
}

// --- ways of playing ---

type Visit = (world: World, step: number) => void;

/** Forward as written. `arrange` says in which order, and how often, the events of a step come. */
export function playForward(
  scenario: Scenario,
  steps: readonly CompiledStep[],
  arrange: (events: readonly RawEvent[]) => readonly RawEvent[],
  visit: Visit,
): void {
  const world = createWorld(scenario);
  for (const [index, { at, events, state }] of steps.entries()) {
    if (index === 0) begin(world, arrange([...state.values()]), at);
    else for (const event of arrange(events)) deliver(world, event, at);
    advance(world, at);
    visit(world, index);
  }
}

/** Every event at once again, and the whole step once more at its end. */
export function duplicated(events: readonly RawEvent[]): readonly RawEvent[] {
  return [...events.flatMap((event) => [event, event]), ...events];
}

function random(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Shuffles a step's events; the versions of one object keep their order, as a watch keeps it. */
export function shuffled(seed: number): (events: readonly RawEvent[]) => readonly RawEvent[] {
  const next = random(seed);
  return (events) => {
    const mixed = [...events];
    for (let index = mixed.length - 1; index > 0; index--) {
      const other = Math.floor(next() * (index + 1));
      const [a, b] = [mixed[index], mixed[other]];
      if (a !== undefined && b !== undefined) [mixed[index], mixed[other]] = [b, a];
    }
    const place = ({ resource, key }: RawEvent): string => `${resource} ${key}`;
    const queues = new Map<string, RawEvent[]>();
    for (const event of events)
      queues.set(place(event), [...(queues.get(place(event)) ?? []), event]);
    return mixed.flatMap((event) => queues.get(place(event))?.shift() ?? []);
  };
}

/** The events that lead from one state to another: inputs first, then what controllers wrote. */
function between(
  before: ReadonlyMap<string, RawEvent>,
  after: ReadonlyMap<string, RawEvent>,
  version: () => string,
): RawEvent[] {
  const events: RawEvent[] = [];
  const renewed = (event: RawEvent, type: RawEvent['type']): RawEvent => {
    const metadata = { ...event.raw.metadata, resourceVersion: version() };
    return { ...event, type, raw: { ...event.raw, metadata } };
  };
  for (const [place, event] of after) {
    const was = before.get(place);
    if (was === undefined) events.push(renewed(event, 'added'));
    else if (!isDeepStrictEqual(was.raw, event.raw)) events.push(renewed(event, 'modified'));
  }
  for (const [place, event] of before) {
    if (!after.has(place)) events.push(renewed(event, 'deleted'));
  }
  const order = ({ resource }: RawEvent): number => resources.indexOf(resource);
  return events.sort((a, b) => order(a) - order(b));
}

/** The states from the last to the first, with time enough to settle in each. */
export function playBackward(
  scenario: Scenario,
  steps: readonly CompiledStep[],
  visit: Visit,
): void {
  const world = createWorld(scenario);
  let version = 1_000_000;
  let at = steps.at(-1)?.at ?? 0;
  let last: ReadonlyMap<string, RawEvent> = new Map();
  for (let index = steps.length - 1; index >= 0; index--) {
    const state = steps[index]?.state ?? new Map<string, RawEvent>();
    const events = between(last, state, () => String(++version));
    if (index === steps.length - 1) begin(world, events, at);
    else for (const event of events) deliver(world, event, at);
    last = state;
    at += scenario.window + 1;
    advance(world, at);
    visit(world, index);
  }
}

/** Each state as the first that is seen, with time enough to settle. */
export function playAlone(scenario: Scenario, steps: readonly CompiledStep[], visit: Visit): void {
  for (const [index, { at, state }] of steps.entries()) {
    const world = createWorld(scenario);
    begin(world, state.values(), at);
    advance(world, at + scenario.window + 1);
    visit(world, index);
  }
}

// Shadows how the endpointslice controller fills slices: reconcileByPortMapping, getSliceToFill and
// the recycling in finalize, reconciler.go and utils.go of k8s.io/endpointslice@v0.36.3.
//
// One sync keeps every endpoint that is still wanted where it is, deletes emptied slices, fills the
// slices it had to change anyway, fullest first, then puts what is left into the one unchanged
// slice that comes closest to full, and only then makes new slices, which take over the names of
// deleted ones. So from the slices before and the endpoints wanted now, the sizes after are
// determined up to ties, and a state that differs cannot come from one sync.
//
// Left out: which endpoint fills which place (upstream takes any), hints, and syncs of more than
// one step. Whether one sync can explain a change at all is for the caller to know.

import { createReadStream, existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import { createGunzip } from 'node:zlib';

import type { Finding } from '../../src/audit/finding/catalogue.ts';
import { catalogue } from '../../src/audit/finding/catalogue.ts';
import { roleOf } from '../../src/audit/service/cache.ts';
import { isForeign, serviceOutputs, verdictOf } from '../../src/audit/service/verdict.ts';
import type { EndpointSlice, PortMapKey, Resource, Service } from '../../src/model/objects.ts';
import { equalLabels } from '../../src/model/selector.ts';
import { isSelected } from '../../src/shadow/endpoints.ts';
import {
  addressTypesOf,
  expectedEndpoints,
  expectedSliceLabels,
  isOwnedBy,
} from '../../src/shadow/endpointslice.ts';
import { endpointIdentity } from '../../src/shadow/mirroring.ts';
import { isListed, resolvePorts } from '../../src/shadow/pod.ts';
import type { Release } from '../../src/shadow/release.ts';
import { newestRelease, releaseOf } from '../../src/shadow/release.ts';
import type { Raw, Step, World } from './world.ts';
import { createWorld, takeStep } from './world.ts';

/** Endpoints by identity, per port map, of one address type. */
type WantedEndpoints = ReadonlyMap<PortMapKey, ReadonlySet<string>>;

/** The identities of a slice's endpoints, in the order of the slice. */
export function identities(slice: EndpointSlice): string[] {
  return slice.endpoints.map((endpoint) =>
    endpointIdentity([...endpoint.addresses].sort().join(','), endpoint.hostname, endpoint.target),
  );
}

interface Kept {
  readonly slice: EndpointSlice;
  readonly endpoints: readonly string[];
  readonly changed: boolean;
}

interface Plan {
  /** Slices that stay, with the size they must have; equal kept sizes may swap their sizes. */
  readonly stay: readonly { slice: EndpointSlice; kept: readonly string[]; changed: boolean }[];
  readonly sizes: readonly { kept: number; changed: boolean; size: number }[];
  readonly created: readonly number[];
  readonly deleted: readonly EndpointSlice[];
}

/** Step 1: what each slice keeps; `left` loses what has found its place. */
function keep(service: Service, slices: readonly EndpointSlice[], left: Set<string>): Kept[] {
  const labels = expectedSliceLabels(service);
  return slices.map((slice) => {
    const endpoints: string[] = [];
    let lost = false;
    for (const identity of identities(slice)) {
      if (left.delete(identity)) endpoints.push(identity);
      else lost = true;
    }
    return { slice, endpoints, changed: lost || !equalLabels(slice.labels, labels) };
  });
}

/** Steps 2 and 3 for one port map. */
function plan(kept: readonly Kept[], leftCount: number, wasUpdated: Updated, max: number): Plan {
  const deleted = kept.filter(({ slice, endpoints }) => isEmptied(slice, endpoints));
  const stay = kept
    .filter((one) => !deleted.includes(one))
    .map((one) => ({
      slice: one.slice,
      kept: one.endpoints,
      changed: one.changed || wasUpdated(one.slice, one.endpoints),
    }));
  let left = leftCount;
  const sizes = stay.map(({ kept, changed }) => ({
    kept: kept.length,
    changed,
    size: kept.length,
  }));
  for (const place of sizes.filter(({ changed }) => changed).sort((a, b) => b.kept - a.kept)) {
    const added = Math.max(0, Math.min(left, max - place.size));
    place.size += added;
    left -= added;
  }
  const created: number[] = [];
  while (left > 0) {
    const fitting = sizes
      .filter(({ changed, size }) => !changed && size + left <= max)
      .sort((a, b) => b.size - a.size)[0];
    if (left < max && fitting !== undefined) {
      fitting.size += left;
      left = 0;
    } else {
      created.push(Math.min(left, max));
      left -= Math.min(left, max);
    }
  }
  return { stay, sizes, created, deleted: deleted.map(({ slice }) => slice) };
}

function isEmptied(slice: EndpointSlice, endpoints: readonly string[]): boolean {
  return slice.endpoints.length > 0 && endpoints.length === 0;
}

/** Whether a slice that lost nothing was rewritten in place (conditions, node, zone, targetRef). */
type Updated = (slice: EndpointSlice, kept: readonly string[]) => boolean;

const bySize = (a: number, b: number): number => a - b;

function sameSizes(a: readonly number[], b: readonly number[]): boolean {
  const left = [...a].sort(bySize);
  const right = [...b].sort(bySize);
  return left.length === right.length && left.every((size, index) => size === right[index]);
}

/** Slices that stay hold what they kept, and slices of one kept size have the planned sizes. */
function staysAsPlanned(made: Plan, after: ReadonlyMap<string, EndpointSlice>): boolean {
  const sizes = new Map<string, { planned: number[]; actual: number[] }>();
  for (const [index, { slice, kept, changed }] of made.stay.entries()) {
    const now = after.get(slice.uid);
    if (now?.portMap !== slice.portMap) return false;
    const present = new Set(identities(now));
    if (kept.some((identity) => !present.has(identity))) return false;
    const group = `${String(kept.length)} ${String(changed)}`;
    const both = sizes.get(group) ?? { planned: [], actual: [] };
    both.planned.push(made.sizes[index]?.size ?? 0);
    both.actual.push(present.size);
    sizes.set(group, both);
  }
  return [...sizes.values()].every(({ planned, actual }) => sameSizes(planned, actual));
}

/**
 * Whether one sync can lead from the slices `before` to the slices `after`, both of one Service and
 * address type. `wanted` are the endpoints expected now; `after` is assumed to hold exactly those.
 */
export function isReachable(
  service: Service,
  before: readonly EndpointSlice[],
  after: readonly EndpointSlice[],
  wanted: WantedEndpoints,
  wasUpdated: Updated,
  { max, release }: { max: number; release: Release },
): boolean {
  const afterByUid = new Map(after.map((slice) => [slice.uid, slice]));
  const all = before.filter((slice) => isOwnedBy(slice, service));
  const stays = ({ portMap }: EndpointSlice): boolean =>
    wanted.has(portMap) && !(release.rebuildsPortless && portMap === '');
  const owned = all.filter(stays);
  const deleted = all.filter((slice) => !stays(slice));
  const created: { portMap: PortMapKey; size: number }[] = [];
  const stayed = new Set<string>();
  for (const [portMap, endpoints] of wanted) {
    const left = new Set(endpoints);
    const kept = keep(
      service,
      owned.filter((slice) => slice.portMap === portMap),
      left,
    );
    const made = plan(kept, left.size, wasUpdated, max);
    if (!staysAsPlanned(made, afterByUid)) return false;
    for (const { slice } of made.stay) stayed.add(slice.uid);
    deleted.push(...made.deleted);
    created.push(...made.created.map((size) => ({ portMap, size })));
  }
  if (stayed.size === 0 && created.length === 0) created.push({ portMap: '', size: 0 });
  return fillsTheRest(afterByUid, stayed, created, deleted);
}

/** The slices that did not stay are the created ones, some of them under names of deleted ones. */
function fillsTheRest(
  after: ReadonlyMap<string, EndpointSlice>,
  stayed: ReadonlySet<string>,
  created: readonly { portMap: PortMapKey; size: number }[],
  deleted: readonly EndpointSlice[],
): boolean {
  const rest = [...after.values()].filter(({ uid }) => !stayed.has(uid));
  const key = (portMap: PortMapKey, size: number): string => `${String(size)} ${portMap}`;
  const planned = created.map(({ portMap, size }) => key(portMap, size)).sort();
  const actual = rest.map((slice) => key(slice.portMap, slice.endpoints.length)).sort();
  if (planned.length !== actual.length) return false;
  if (planned.some((one, index) => one !== actual[index])) return false;
  const recycled = rest.filter(({ uid }) => deleted.some((slice) => slice.uid === uid)).length;
  return recycled === Math.min(created.length, deleted.length);
}

// Whether one sync can have made the slices of a Service from those of the step before. Only
// changes that one sync can explain are checked.

interface Before {
  readonly service: Service;
  readonly slices: readonly EndpointSlice[];
  /** uids of the selected pods by key. */
  readonly pods: ReadonlyMap<string, string>;
}

/** What transitions of the next step start from, per Service. */
function beforeOf(world: World): Map<string, Before> {
  const before = new Map<string, Before>();
  for (const [key, { record }] of world.serviceAuditor.audited) {
    const { service } = record;
    if (service === null || !isSelected(service)) continue;
    const slices = [...record.slices.values()].filter(
      (slice) => roleOf(world.context.listers, record, slice) === 'controller',
    );
    const uid = (pod: string): string => world.context.listers.pods.get(pod)?.uid ?? '';
    const pods = new Map([...record.members.keys()].map((key) => [key, uid(key)]));
    before.set(key, { service, slices, pods });
  }
  return before;
}

type TransitionVerdict = 'possible' | 'wrong' | 'notChecked';

function wantedOf(world: World, service: Service, pods: Iterable<string>, type: string) {
  const { listers, release } = world.context;
  const wanted = new Map<string, Set<string>>();
  for (const key of pods) {
    const pod = listers.pods.get(key);
    if (pod === undefined || !isListed(pod, true)) continue;
    const { portMap } = resolvePorts(service, pod, release.sidecarPortsInSlices);
    const set = wanted.get(portMap) ?? new Set<string>();
    wanted.set(portMap, set);
    const node = listers.nodes.get(pod.node) ?? null;
    for (const endpoint of expectedEndpoints(service, pod, node, release)) {
      if (endpoint.addressType !== type) continue;
      const addresses = [...endpoint.addresses].sort().join(',');
      set.add(endpointIdentity(addresses, endpoint.hostname, pod));
    }
  }
  return wanted;
}

/** What a slice says of each endpoint, hints apart. */
function contents(slice: EndpointSlice | undefined): Map<string, string> {
  const texts = new Map<string, string>();
  for (const [index, identity] of (slice === undefined ? [] : identities(slice)).entries()) {
    const endpoint = slice?.endpoints[index];
    texts.set(identity, JSON.stringify({ ...endpoint, forZones: null, forNodes: null }));
  }
  return texts;
}

/** Checks one Service after a step, address type by address type. */
function checkTransition(world: World, before: Before, key: string): TransitionVerdict[] {
  const audited = world.serviceAuditor.audited.get(key);
  const service = audited?.record.service;
  if (audited === undefined || service?.uid !== before.service.uid || !isSelected(service))
    return [];
  const now = beforeOf(world).get(key);
  if (now === undefined) return [];
  const conform = [...audited.items.values()].every((items) =>
    items.every(({ output }) => output !== 'endpointslices'),
  );
  const verdicts: TransitionVerdict[] = [];
  for (const type of addressTypesOf(service)) {
    const ofType = (slice: EndpointSlice): boolean => slice.addressType === type;
    const [was, is] = [before.slices.filter(ofType), now.slices.filter(ofType)];
    const writes = writesBetween(was, is);
    if (writes.total === 0) continue;
    const inputs = inputsChanged(world, before, now);
    // One sync that has slices to delete and to create turns the one into the other.
    const replaced = writes.deletions > 0 && writes.creations > 0;
    const few = writes.total === 1 || (inputs === 1 && writes.most === 1);
    const oneSync = inputs > 0 && few && !replaced;
    const wanted = wantedOf(world, service, now.pods.keys(), type);
    if (!conform || !oneSync || deletedByHand(was, is, wanted)) {
      verdicts.push('notChecked');
      continue;
    }
    const after = new Map(is.map((slice) => [slice.uid, slice]));
    const updated = (slice: EndpointSlice, kept: readonly string[]): boolean => {
      const [old, fresh] = [contents(slice), contents(after.get(slice.uid))];
      return kept.some((identity) => old.get(identity) !== fresh.get(identity));
    };
    const { maxEndpointsPerSlice: max, release } = world.context;
    const possible = isReachable(service, was, is, wanted, updated, { max, release });
    verdicts.push(possible ? 'possible' : 'wrong');
  }
  return verdicts;
}

/** Writes between two states by generations: a slice starts at 1 and gains 1 a write. */
function writesBetween(was: readonly EndpointSlice[], is: readonly EndpointSlice[]) {
  const old = new Map(was.map((slice) => [slice.uid, slice]));
  const rises = is.map((slice) => slice.generation - (old.get(slice.uid)?.generation ?? 0));
  const deletions = was.filter(({ uid }) => is.every((slice) => slice.uid !== uid)).length;
  const creations = is.filter(({ uid }) => !old.has(uid)).length;
  const total = rises.reduce((sum, rise) => sum + rise, deletions);
  return { total, most: Math.max(0, ...rises), deletions, creations };
}

function inputsChanged(world: World, before: Before, now: Before): number {
  let changed = 0;
  for (const key of new Set([...before.pods.keys(), ...now.pods.keys()])) {
    if (!world.changed.has(`pods ${key}`)) continue;
    const [was, is] = [before.pods.get(key), now.pods.get(key)];
    // A pod that was replaced under its name is two changes.
    changed += was !== undefined && is !== undefined && was !== is ? 2 : 1;
  }
  return changed + (world.changed.has(`services ${now.service.key}`) ? 1 : 0);
}

/** A slice went although it still had endpoints to keep: no sync does that. */
function deletedByHand(
  was: readonly EndpointSlice[],
  is: readonly EndpointSlice[],
  wanted: ReadonlyMap<string, ReadonlySet<string>>,
): boolean {
  return was.some(
    (slice) =>
      is.every(({ uid }) => uid !== slice.uid) &&
      identities(slice).some((identity) => wanted.get(slice.portMap)?.has(identity) === true),
  );
}

// Compares the auditor with what real controllers wrote: `npm run -s conform -- FILE…` audits every
// case line of vector files as a settled cluster, and every labelled fault line with its base.
// One JSON line per disagreement, last a summary. The rules are in the README beside this file;
// nothing here looks at what was done to the cluster, at names of cases and files, or at classes of
// faults.

interface CaseLine {
  readonly kind: 'case';
  readonly case: string;
  readonly step: number;
  readonly services: Raw[];
  readonly pods: Raw[];
  readonly endpoints: Raw[];
  readonly endpointSlices: Raw[];
}

interface FaultLine {
  readonly kind: 'fault';
  readonly fault: string;
  readonly verdict: 'violation' | 'legal' | 'info';
  readonly base: { readonly file: string; readonly case: string; readonly step: number };
  readonly about: Raw;
  readonly endpoints: Raw[];
  readonly endpointSlices: Raw[];
}

interface NodesLine {
  readonly kind: 'nodes';
  readonly step: number;
  readonly items: Raw[];
}

type Line =
  CaseLine | FaultLine | NodesLine | { readonly kind: 'header'; readonly version?: string };

export interface Summary {
  cases: number;
  services: number;
  falseFindings: number;
  explained: number;
  causes: Record<string, number>;
  input: number;
  foreign: number;
  unknown: number;
  transitions: { checked: number; notChecked: number; wrong: number };
  faults: number;
  missed: number;
  misplaced: number;
  legalReported: number;
}

export function emptySummary(): Summary {
  return {
    cases: 0,
    services: 0,
    falseFindings: 0,
    explained: 0,
    causes: {},
    input: 0,
    foreign: 0,
    unknown: 0,
    transitions: { checked: 0, notChecked: 0, wrong: 0 },
    faults: 0,
    missed: 0,
    misplaced: 0,
    legalReported: 0,
  };
}

type Disagree = (disagreement: Readonly<Record<string, unknown>>) => void;

/** Whether the summary is what conformity means; explained and unknown are shares of services. */
export function isConform(summary: Summary): boolean {
  const { services, falseFindings, missed, misplaced, legalReported, transitions } = summary;
  const wrong = falseFindings + missed + misplaced + legalReported + transitions.wrong;
  const share = Math.max(1, services);
  return wrong === 0 && summary.explained <= 0.03 * share && summary.unknown <= 0.01 * share;
}

async function* linesOf(file: string): AsyncGenerator<Line> {
  const bytes = createReadStream(file);
  const input = file.endsWith('.gz') ? bytes.pipe(createGunzip()) : bytes;
  for await (const text of createInterface({ input, crlfDelay: Infinity })) {
    if (text !== '') yield JSON.parse(text) as Line;
  }
}

const stepOf = (line: CaseLine, nodes: readonly Raw[]): Step => ({
  nodes,
  services: line.services,
  pods: line.pods,
  endpoints: line.endpoints,
  endpointslices: line.endpointSlices,
});

/** Open findings above information. */
function loud(world: World): Finding[] {
  return world.serviceAuditor.settle.open().filter(({ severity }) => severity !== 'info');
}

/**
 * Whether a cause that only history shows excuses addresses on a first step, where there is none.
 */
function isUnproven(world: World, finding: Finding): boolean {
  const audited = world.serviceAuditor.audited.get(`${finding.namespace}/${finding.service}`);
  return [...(audited?.items.values() ?? [])].flat().some((item) => {
    if (item.output !== finding.output || item.cause !== finding.cause || item.proven) return false;
    return catalogue[item.difference.code].difference !== 'different';
  });
}

/** Checks the step that a world has just taken, by the line of its case. */
function checkLine(world: World, line: CaseLine, summary: Summary, disagree: Disagree): void {
  summary.cases++;
  summary.services += line.services.length;
  const explained = new Set<string>();
  for (const finding of loud(world)) {
    const { cause, output, namespace, service } = finding;
    if (output === 'input') summary.input++;
    else if (cause !== null && !(world.steps === 1 && isUnproven(world, finding))) {
      explained.add(`${namespace}/${service}`);
      summary.causes[cause] = (summary.causes[cause] ?? 0) + 1;
    } else {
      summary.falseFindings++;
      disagree({ disagreement: 'false', case: line.case, step: line.step, finding });
    }
  }
  summary.explained += explained.size;
  for (const audited of world.serviceAuditor.audited.values()) {
    if (audited.record.service === null) continue;
    const verdicts = serviceOutputs.map((output) =>
      verdictOf(world.context.listers, audited, output),
    );
    if (verdicts.includes('unknown')) summary.unknown++;
    if (isForeign(world.context.listers, audited)) summary.foreign++;
  }
}

/** Checks all case lines of a file. */
async function checkCases(file: string, summary: Summary, disagree: Disagree): Promise<void> {
  let release = newestRelease;
  const nodes = new Map<number, readonly Raw[]>();
  const worlds = new Map<string, World>();
  for await (const line of linesOf(file)) {
    if (line.kind === 'header') release = releaseOf(line.version ?? '') ?? release;
    else if (line.kind === 'nodes') nodes.set(line.step, line.items);
    else if (line.kind === 'case') {
      const world = worlds.get(line.case) ?? createWorld(release);
      worlds.set(line.case, world);
      const before = beforeOf(world);
      takeStep(world, stepOf(line, nodes.get(line.step) ?? []));
      checkLine(world, line, summary, disagree);
      for (const [key, was] of before) {
        for (const verdict of checkTransition(world, was, key)) {
          if (verdict === 'notChecked') summary.transitions.notChecked++;
          else summary.transitions.checked++;
          if (verdict !== 'wrong') continue;
          summary.transitions.wrong++;
          disagree({ disagreement: 'transition', case: line.case, step: line.step, service: key });
        }
      }
    }
  }
}

interface Base {
  readonly release: typeof newestRelease;
  readonly steps: Step[];
}

/** The steps of the wanted cases of a base file. */
async function readBases(file: string, wanted: ReadonlySet<string>): Promise<Map<string, Base>> {
  let release = newestRelease;
  const nodes = new Map<number, readonly Raw[]>();
  const bases = new Map<string, Base>();
  for await (const line of linesOf(file)) {
    if (line.kind === 'header') release = releaseOf(line.version ?? '') ?? release;
    else if (line.kind === 'nodes') nodes.set(line.step, line.items);
    else if (line.kind === 'case' && wanted.has(line.case)) {
      const base = bases.get(line.case) ?? { release, steps: [] };
      bases.set(line.case, base);
      base.steps[line.step] = stepOf(line, nodes.get(line.step) ?? []);
    }
  }
  return bases;
}

function worldAt(base: Base, step: number, outputs: FaultLine | null): World {
  const world = createWorld(base.release);
  for (let index = 0; index <= step; index++) {
    const inputs = base.steps[index];
    if (inputs === undefined) continue;
    const replaced =
      index === step && outputs !== null
        ? { ...inputs, endpoints: outputs.endpoints, endpointslices: outputs.endpointSlices }
        : inputs;
    takeStep(world, replaced);
  }
  return world;
}

const keyOf = ({ namespace, service, output, code, cause }: Finding): string =>
  `${namespace}/${service} ${output} ${code} ${String(cause)}`;

const textOf = (finding: Finding): string =>
  [finding.object, finding.field, finding.expected, finding.actual].join(' ');

interface Meta {
  readonly name?: string;
  readonly namespace?: string;
  readonly labels?: Record<string, string>;
  readonly ownerReferences?: readonly { readonly name: string }[];
}

const metaOf = (raw: Raw): Meta => raw.metadata ?? {};

/** The names by which the Service of what a fault touched may be known. */
function servicesAbout(about: Raw, lists: readonly (readonly Raw[])[]): Set<string> {
  const names = new Set<string>();
  const name = String(about.name);
  if (about.kind !== 'EndpointSlice') return names.add(name);
  for (const raw of lists.flat()) {
    const meta = metaOf(raw);
    if (meta.name !== name) continue;
    const labelled = meta.labels?.['kubernetes.io/service-name'];
    if (labelled !== undefined) names.add(labelled);
    for (const owner of meta.ownerReferences ?? []) names.add(owner.name);
  }
  return names;
}

const outputsOf: Readonly<Record<string, readonly string[]>> = {
  Endpoints: ['endpoints'],
  EndpointSlice: ['endpointslices', 'mirrored'],
  Service: ['endpoints', 'endpointslices', 'mirrored'],
};

/** What a finding must mention of `about`: any of its addresses, its pod, its port or its label. */
function mentions(finding: Finding, about: Raw): boolean {
  const values = [...((about.addresses ?? []) as string[])];
  for (const name of ['pod', 'label'])
    if (typeof about[name] === 'string') values.push(about[name]);
  const port = about.port as { name?: string; port?: number } | undefined;
  if (port !== undefined) values.push(String(port.port), ...(port.name ? [port.name] : []));
  const text = textOf(finding);
  return values.length === 0 || values.some((value) => text.includes(value));
}

function checkFault(line: FaultLine, base: Base, summary: Summary, disagree: Disagree): void {
  summary.faults++;
  const basis = base.steps[line.base.step];
  const before = loud(worldAt(base, line.base.step, null));
  const after = loud(worldAt(base, line.base.step, line));
  const known = new Set(before.map(keyOf));
  const texts = new Set(before.map((finding) => `${keyOf(finding)} ${textOf(finding)}`));
  const fresh = after.filter((finding) => !known.has(keyOf(finding)));
  const services = servicesAbout(line.about, [basis?.endpointslices ?? [], line.endpointSlices]);
  const say = (disagreement: string, findings: readonly Finding[]): void => {
    const { fault, base: where, about } = line;
    disagree({ disagreement, fault, base: where, about, findings });
  };
  if (line.verdict !== 'violation') {
    if (fresh.length > 0) {
      summary.legalReported++;
      say('legal reported', fresh);
    }
    return;
  }
  const elsewhere = fresh.filter(
    ({ service, output }) => !services.has(service) && output !== 'input',
  );
  if (elsewhere.length > 0) {
    summary.falseFindings += elsewhere.length;
    say('false', elsewhere);
  }
  const changed = after.filter((finding) => !texts.has(`${keyOf(finding)} ${textOf(finding)}`));
  const { namespace: named } = line.about;
  const namespace = typeof named === 'string' ? named : line.base.case;
  const outputs = outputsOf[String(line.about.kind)] ?? [];
  const reported = changed.some(
    (finding) =>
      finding.namespace === namespace &&
      services.has(finding.service) &&
      outputs.includes(finding.output) &&
      mentions(finding, line.about),
  );
  if (reported) return;
  if (changed.length > 0) summary.misplaced++;
  else summary.missed++;
  say(changed.length > 0 ? 'misplaced' : 'missed', changed);
}

/** Checks all fault lines of a file; throws when a base file is not beside it. */
async function checkFaults(file: string, summary: Summary, disagree: Disagree): Promise<void> {
  const faults = new Map<string, FaultLine[]>();
  for await (const line of linesOf(file)) {
    if (line.kind !== 'fault') continue;
    faults.set(line.base.file, [...(faults.get(line.base.file) ?? []), line]);
  }
  for (const [name, lines] of faults) {
    const path = join(dirname(file), name);
    if (!existsSync(path)) throw new Error(`No base file beside ${file}: ${name}`);
    const bases = await readBases(path, new Set(lines.map(({ base }) => base.case)));
    for (const line of lines) {
      const base = bases.get(line.base.case);
      if (base === undefined) throw new Error(`No base case in ${name}: ${line.base.case}`);
      checkFault(line, base, summary, disagree);
    }
  }
}

/** Checks whole files, cases and faults. */
export async function checkFiles(files: readonly string[], disagree: Disagree): Promise<Summary> {
  const summary = emptySummary();
  for (const file of files) {
    if (!existsSync(file)) throw new Error(`No such file: ${file}`);
    await checkCases(file, summary, disagree);
    await checkFaults(file, summary, disagree);
  }
  return summary;
}

export type { Resource };

if (import.meta.main) {
  const files = process.argv.slice(2);
  const print = (value: unknown): void => void process.stdout.write(`${JSON.stringify(value)}\n`);
  if (files.length === 0) {
    process.stderr.write('Usage: npm run -s conform -- FILE…\n');
    process.exitCode = 2;
  } else {
    try {
      const summary = await checkFiles(files, print);
      print(summary);
      if (summary.cases + summary.faults === 0) throw new Error('Nothing to check in these files');
      process.exitCode = isConform(summary) ? 0 : 1;
    } catch (error) {
      process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
      process.exitCode = 2;
    }
  }
}

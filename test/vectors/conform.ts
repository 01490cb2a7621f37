// Compares the auditor with what real controllers wrote: `npm run -s conform -- FILE…` audits every
// case line of vector files as a settled cluster, and every labelled fault line with its base.
// One JSON line per disagreement, last a summary. The rules are in the README beside this file;
// nothing here looks at what was done to the cluster, at names of cases and files, or at classes of
// faults.

import { createReadStream, existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import { createGunzip } from 'node:zlib';

import type { Finding } from '../../src/audit/finding/catalogue.ts';
import { catalogue } from '../../src/audit/finding/catalogue.ts';
import { isForeign, verdictOf, serviceOutputs } from '../../src/audit/service/verdict.ts';
import type { Resource } from '../../src/model/objects.ts';
import { newestRelease, releaseOf } from '../../src/shadow/release.ts';
import { beforeOf, judgeTransition } from './transitions.ts';
import type { Raw, Step, World } from './world.ts';
import { createWorld, takeStep } from './world.ts';

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
  transitions: { judged: number; notJudged: number; wrong: number };
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
    transitions: { judged: 0, notJudged: 0, wrong: 0 },
    faults: 0,
    missed: 0,
    misplaced: 0,
    legalReported: 0,
  };
}

export type Disagree = (disagreement: Readonly<Record<string, unknown>>) => void;

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
function judgeLine(world: World, line: CaseLine, summary: Summary, disagree: Disagree): void {
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
export async function judgeCases(
  file: string,
  summary: Summary,
  disagree: Disagree,
): Promise<void> {
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
      judgeLine(world, line, summary, disagree);
      for (const [key, was] of before) {
        for (const judgement of judgeTransition(world, was, key)) {
          if (judgement === 'notJudged') summary.transitions.notJudged++;
          else summary.transitions.judged++;
          if (judgement !== 'wrong') continue;
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

function judgeFault(line: FaultLine, base: Base, summary: Summary, disagree: Disagree): void {
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
export async function judgeFaults(
  file: string,
  summary: Summary,
  disagree: Disagree,
): Promise<void> {
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
      judgeFault(line, base, summary, disagree);
    }
  }
}

/** Checks whole files, cases and faults. */
export async function judgeFiles(files: readonly string[], disagree: Disagree): Promise<Summary> {
  const summary = emptySummary();
  for (const file of files) {
    if (!existsSync(file)) throw new Error(`No such file: ${file}`);
    await judgeCases(file, summary, disagree);
    await judgeFaults(file, summary, disagree);
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
      const summary = await judgeFiles(files, print);
      print(summary);
      if (summary.cases + summary.faults === 0) throw new Error('Nothing to judge in these files');
      process.exitCode = isConform(summary) ? 0 : 1;
    } catch (error) {
      process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
      process.exitCode = 2;
    }
  }
}

// promtool and prometheus themselves, built by Go from the module beside this file, as its go.mod
// says, and kept in the user's cache ($XDG_CACHE_HOME). Prometheus is built without its own pages
// and without service discovery, because no test needs them.

import type { ChildProcess } from 'node:child_process';
import { execFile, spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { copyFile, mkdir, mkdtemp, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';

import { parser } from '@prometheus-io/lezer-promql';

import { families } from '../../src/output/metrics/families.ts';
import { serviceFamilies } from '../../src/output/metrics/service-rows.ts';
import { processFamilies } from '../documents.ts';
import { boundsOf } from '../output/samples.ts';
import { cacheFolder, endProgram, freePort, goProgram } from '../processes.ts';

const run = promisify(execFile);

const cache = (): string => cacheFolder('prometheus');

type Name = 'promtool' | 'prometheus';

const built = new Map<Name, Promise<string>>();

/** The path of a program that is built: once, as what runs meanwhile may not wait for Go. */
export function programOf(name: Name): Promise<string> {
  const known = built.get(name) ?? build(name);
  built.set(name, known);
  return known;
}

/** Go knows itself what has changed since the last time; the first takes minutes. */
async function build(name: Name): Promise<string> {
  await mkdir(cache(), { recursive: true });
  // Renamed into place, so that no process finds an incomplete binary.
  const directory = await mkdtemp(join(cache(), 'build-'));
  const [output, path] = [join(directory, name), join(cache(), name)];
  try {
    // A binary that is up to date is not linked again.
    await copyFile(path, output).catch(() => null);
    const flags = ['-buildvcs=false', '-tags', 'remove_all_sd', '-o', output];
    await run(goProgram(), ['build', ...flags, `github.com/prometheus/prometheus/cmd/${name}`], {
      cwd: import.meta.dirname,
    });
    await rename(output, path);
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
  return path;
}

// A real Prometheus on the loopback, for as long as a test needs it, and its answers.

interface Running {
  readonly url: string;
  stop(): Promise<void>;
}

/** A program of Prometheus' family that was started at an address, when it is ready. */
export async function whenReady(child: ChildProcess, address: string): Promise<Running> {
  const url = `http://${address}`;
  const running = { url, stop: () => endProgram(child) };
  for (let tries = 0; tries < 600; tries++) {
    if (child.exitCode !== null) throw new Error(`${child.spawnfile}: ended (${child.exitCode})`);
    const answer = await fetch(`${url}/-/ready`).catch(() => null);
    if (answer?.ok === true) return running;
    await sleep(100);
  }
  await running.stop();
  throw new Error(`${child.spawnfile}: not ready after a minute`);
}

/** Prometheus with its data in `directory`/data, when it is ready. */
export async function startPrometheus(
  directory: string,
  config: object,
  flags: readonly string[],
): Promise<Running> {
  const file = join(directory, 'prometheus.yml');
  // JSON is YAML.
  await writeFile(file, JSON.stringify(config));
  const address = `127.0.0.1:${await freePort()}`;
  const paths = [`--config.file=${file}`, `--storage.tsdb.path=${join(directory, 'data')}`];
  const args = [...paths, `--web.listen-address=${address}`, ...flags];
  return whenReady(spawn(await programOf('prometheus'), args, { stdio: 'ignore' }), address);
}

/** What the API of Prometheus answers; throws with its words where that is an error. */
export async function ask<T>(
  url: string,
  path: string,
  query: Record<string, string> = {},
): Promise<T> {
  const answer = await fetch(`${url}/api/v1/${path}?${String(new URLSearchParams(query))}`);
  const body = (await answer.json()) as { status: string; data: T; error?: string };
  if (body.status !== 'success') throw new Error(`${path}: ${body.error ?? answer.statusText}`);
  return body.data;
}

// Compares the selectors of a PromQL expression with the catalogue of families: every metric, every
// label and every value of a label must be there. The grammar is Prometheus' own; an expression
// that it does not read in full is an error.

interface Matcher {
  readonly label: string;
  readonly operator: string;
  readonly value: string;
}

interface Query {
  readonly selectors: readonly { readonly metric: string; readonly matchers: readonly Matcher[] }[];
  /** Labels of by, without, on and ignoring, and of group_left and group_right. */
  readonly grouped: readonly string[];
}

/** Throws where the expression is not PromQL. */
function parseQuery(expression: string): Query {
  const text = (at: { from: number; to: number }): string => expression.slice(at.from, at.to);
  const selectors: { metric: string; matchers: Matcher[] }[] = [];
  const grouped: string[] = [];
  parser.parse(expression).iterate({
    enter(node) {
      if (node.type.isError) throw new Error(`Not PromQL at ${node.from}: ${expression}`);
      if (node.name === 'VectorSelector') selectors.push({ metric: '', matchers: [] });
      const last = selectors.at(-1);
      if (node.name === 'Identifier' && node.node.parent?.name === 'VectorSelector' && last) {
        last.metric = text(node);
      }
      if (node.name === 'UnquotedLabelMatcher' && last) {
        const parts = /^(?<label>\w+)\s*(?<operator>[=!~]+)\s*"(?<value>.*)"$/s.exec(text(node));
        const { label = '', operator = '', value = '' } = parts?.groups ?? {};
        last.matchers.push({ label, operator, value });
      }
      if (node.name === 'LabelName' && node.node.parent?.name === 'GroupingLabels') {
        grouped.push(text(node));
      }
    },
  });
  return { selectors, grouped };
}

/** Whether a label of this value may pass. */
function matches({ operator, value }: Matcher, of: string): boolean {
  const pattern = new RegExp(`^(?:${value})$`);
  if (operator === '=') return of === value;
  if (operator === '!=') return of !== value;
  return operator === '=~' ? pattern.test(of) : !pattern.test(of);
}

/** Labels of a series with their values; none: any. */
type Labels = Readonly<Record<string, readonly string[]>>;

/** What Prometheus or the chart adds to every series. */
const attached: Labels = { cluster: [], instance: [], job: [] };

// Agents have no catalogue: a handful of numbers without labels, listed in their source.
const agentSource = readFileSync(join(import.meta.dirname, '../../src/agent/server.ts'), 'utf8');
const agentMetrics = [...agentSource.matchAll(/\['(\w+)', '(?:counter|gauge)'/g)].map(
  ([, name = '']) => `endpoint_auditor_agent_${name}`,
);

const current = families.filter(({ help }) => !help.startsWith('Deprecated'));

/** Labels by the name of every series of servers and agents, without deprecated names. */
export const exposed: ReadonlyMap<string, Labels> = new Map([
  ...agentMetrics.map((name): [string, Labels] => [name, attached]),
  ...current.flatMap((family): [string, Labels][] => {
    const labels = { ...attached, ...family.labels };
    if (family.type !== 'histogram') return [[family.name, labels]];
    // The second form is OpenMetrics', which Prometheus 3 makes of the first.
    const le = [...boundsOf(family).flatMap((bound) => [`${bound}`, bound.toFixed(1)]), '+Inf'];
    return [
      [`${family.name}_bucket`, { ...labels, le }],
      [`${family.name}_sum`, labels],
      [`${family.name}_count`, labels],
    ];
  }),
  ...serviceFamilies.map((family): [string, Labels] => [
    family.name,
    { ...attached, namespace: [], service: [], ...family.labels },
  ]),
  ...processFamilies.map(({ name, labels }): [string, Labels] => [
    name,
    { ...attached, ...Object.fromEntries(labels.map((label) => [label, []])) },
  ]),
]);

/** What an expression asks for that is not there; `recorded`: rules that may be asked for, too. */
export function problemsOf(
  expression: string,
  recorded: ReadonlyMap<string, Labels> = new Map(),
): string[] {
  const { selectors, grouped } = parseQuery(expression);
  const known = selectors.map(({ metric }) => exposed.get(metric) ?? recorded.get(metric));
  const problems = selectors.flatMap(({ metric, matchers }, index) => {
    const labels = known[index];
    if (labels === undefined) return [`${metric} is no metric`];
    return matchers.flatMap((matcher) => {
      const values = labels[matcher.label];
      if (values === undefined) return [`${metric} has no label ${matcher.label}`];
      const isMet = values.length === 0 || values.some((value) => matches(matcher, value));
      return isMet ? [] : [`no ${matcher.label} of ${metric} is ${matcher.value}`];
    });
  });
  const lost = grouped.filter((label) => !known.some((labels) => labels && label in labels));
  return [...problems, ...lost.map((label) => `nothing has the label ${label}`)];
}

/** The labels that its outermost `by` leaves. */
export const groupedBy = (expression: string): readonly string[] => parseQuery(expression).grouped;

/** The metrics that an expression asks for. */
export const metricsOf = (expression: string): string[] =>
  parseQuery(expression).selectors.map(({ metric }) => metric);

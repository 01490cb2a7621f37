// Compares the selectors of a PromQL expression with the catalogue of families: every metric, every
// label and every value of a label must be there. The grammar is Prometheus' own; an expression
// that it does not read in full is an error.

import { readFileSync } from 'node:fs';
import { join } from 'node:path';

import { parser } from '@prometheus-io/lezer-promql';

import { families, processFamilies } from '../src/output/metrics/families.ts';
import { serviceFamilies } from '../src/output/metrics/service-families.ts';

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
const agentSource = readFileSync(join(import.meta.dirname, '../src/agent/server.ts'), 'utf8');
const agentMetrics = [...agentSource.matchAll(/\['(\w+)', '(?:counter|gauge)'/g)].map(
  ([, name = '']) => `endpoint_auditor_agent_${name}`,
);

/** Labels by the name of every series that servers and agents show. */
export const exposed: ReadonlyMap<string, Labels> = new Map([
  ...agentMetrics.map((name): [string, Labels] => [name, attached]),
  ...families.flatMap((family): [string, Labels][] => {
    const labels = { ...attached, ...family.labels };
    if (!('bounds' in family)) return [[family.name, labels]];
    // The second form is OpenMetrics', which Prometheus 3 makes of the first.
    const le = [...family.bounds.flatMap((bound) => [`${bound}`, bound.toFixed(1)]), '+Inf'];
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

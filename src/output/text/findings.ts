// Findings as text: a header line, then indented lines with what differs, the cause and the fix.
// Lines with - are in the cluster, lines with + are expected, as in `kubectl diff`.

import { catalogue, type DifferenceDetail, type Severity } from '../../audit/finding/catalogue.ts';
import { causes } from '../../audit/finding/causes.ts';
import { type Remedy, remedyOf } from '../../audit/finding/remedies.ts';
import { suppressedText } from '../../audit/finding/suppressions.ts';
import type { RenderOptions, ReportedFinding, TextStyle } from './format.ts';
import { escapeInvisible, formatOutput, paint, truncate, wrap } from './format.ts';

export const severityStyles: Readonly<Record<Severity, TextStyle>> = {
  critical: ['bold', 'red'],
  warning: 'yellow',
  info: 'cyan',
};

/** The meaning of the signs, for the end of a list of findings. */
export const diffLegend = 'Lines with - are in the cluster, lines with + are expected.';

/** Differences per finding: fewer on a terminal than in a pipe. */
const shownDetails = ({ width }: RenderOptions): number => (width === Infinity ? 100 : 10);

/** Whether the field is the whole entry at an address. */
const isEntry = ({ field, address }: DifferenceDetail): boolean =>
  address !== null && (field === 'endpoints' || field === 'subsets');

function formatPlace(detail: DifferenceDetail): string {
  const { address, pod, field } = detail;
  if (address === null) return field;
  const entry = pod === null ? address : `${address} (pod ${pod})`;
  if (isOnNode(detail)) return `${field}, endpoint ${entry}`;
  return isEntry(detail) ? entry : `${entry} ${field}`;
}

/** One line for an entry that exists on one side only; else its place, then both sides. */
function renderDetail(detail: DifferenceDetail, indent: string, options: RenderOptions): string[] {
  const { expected, actual } = detail;
  const place = formatPlace(detail);
  const side = (sign: '-' | '+', text: string): string[] =>
    wrap(
      text,
      `${indent}${paint(options.colour, sign === '-' ? 'red' : 'green', sign)} `,
      `${indent}  `,
      options,
    );
  if (actual === null) return side('+', `${place}: ${expected ?? 'nothing'}`);
  if (expected === null) return side('-', `${place}: ${actual}`);
  const head = wrap(`${place}:`, indent, `${indent}  `, options);
  return [...head, ...side('-', actual), ...side('+', expected)];
}

const isOnNode = ({ code }: DifferenceDetail): boolean => catalogue[code].output === 'node';

/** Differences as lines, those of one object below its name, unless the text has named it. */
export function renderDifferences(
  differences: readonly DifferenceDetail[],
  indent: string,
  options: RenderOptions,
  named: string | null = null,
): string[] {
  return [...Map.groupBy(differences, ({ object }) => object)].flatMap(([object, details]) => {
    const isNamed = object === named || details.some(isOnNode);
    const head = isNamed ? [] : wrap(object, indent, `${indent}  `, options);
    const below = isNamed ? indent : `${indent}  `;
    return [...head, ...details.flatMap((detail) => renderDetail(detail, below, options))];
  });
}

/** Numbers remedies, so that each is printed in full once. */
export function createRemedyNumbers() {
  const numbers = new Map<string, number>();
  const printed = new Set<string>();
  return {
    /** The number of a remedy, whether it is new, and what was not printed yet. */
    take({ text, commands, managed }: Remedy) {
      const known = numbers.get(text);
      const number = known ?? numbers.size + 1;
      numbers.set(text, number);
      const isFresh = (line: string): boolean => !printed.has(line) && printed.add(line).has(line);
      return {
        number,
        isNew: known === undefined,
        commands: commands.filter(isFresh),
        managed: managed !== null && isFresh(managed) ? managed : null,
      };
    },
  };
}

/** A suppressed finding as one line, cut to the width. */
function formatSuppressed(finding: ReportedFinding, { width }: RenderOptions): string {
  const { code, severity, namespace, service, suppressed } = finding;
  const owner = service === '' ? '' : ` ${namespace}/${service}`;
  const why = suppressed === null ? '' : `${suppressedText(suppressed)} (${suppressed.source})`;
  const text = `  ${severity}  ${code} ${owner}  ${formatOutput(finding)}  ${why}`;
  return truncate(escapeInvisible(text), Math.max(24, width));
}

/** The section of a report that lists suppressed findings; no lines without any. */
export function renderSuppressed(findings: readonly ReportedFinding[], options: RenderOptions) {
  if (findings.length === 0) return [];
  const title = paint(options.colour, 'bold', `Suppressed findings: ${findings.length}`);
  return [title, ...findings.map((finding) => formatSuppressed(finding, options)), ''];
}

type RemedyNumbers = ReturnType<typeof createRemedyNumbers>;

function renderRemedy(finding: ReportedFinding, numbers: RemedyNumbers, options: RenderOptions) {
  const remedy = remedyOf(finding);
  const { number, isNew, commands, managed } = numbers.take(remedy);
  const text = isNew ? remedy.text : 'see above';
  return [
    ...wrap(`fix [${number}]: ${text}`, '  ', '    ', options),
    ...(managed === null ? [] : wrap(managed, '    ', '    ', options)),
    // A command is never wrapped, so that it can be copied.
    ...commands.map((command) => `    ${command}`),
    ...(isNew && commands.length < remedy.commands.length
      ? ['    (other commands: see above)']
      : []),
  ];
}

/** One finding. `notes` are the end of its header. */
export function renderFinding(
  finding: ReportedFinding,
  notes: readonly string[],
  numbers: RemedyNumbers,
  options: RenderOptions,
): string[] {
  const { code, severity, namespace, service, cause, causeProven, resolvedAt } = finding;
  const { title, meaning } = catalogue[code];
  const owner = service === '' ? [] : [`${namespace}/${service}`];
  const [head = '', ...rest] = wrap(
    [severity, code, ...owner, formatOutput(finding), ...notes].join('  '),
    '',
    '    ',
    options,
  );
  const shown = finding.differences.slice(0, shownDetails(options));
  const more = finding.differences.length - shown.length;
  const painted = paint(options.colour, severityStyles[severity], severity);
  const because =
    cause === null
      ? []
      : wrap(
          `${causeProven ? 'cause' : 'likely cause'}: ${causes[cause].title} (${cause})`,
          '  ',
          '    ',
          options,
        );
  return [
    painted + head.slice(severity.length),
    ...rest,
    ...wrap(`${title}. ${meaning}`, '  ', '  ', options),
    ...renderDifferences(shown, '  ', options),
    ...(more > 0 ? [`  ... and ${more} more; -o json lists all`] : []),
    ...because,
    ...(resolvedAt === null ? renderRemedy(finding, numbers, options) : []),
  ];
}

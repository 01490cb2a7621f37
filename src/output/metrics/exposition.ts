// The two formats in which Prometheus reads: its own text format 0.0.4 and OpenMetrics 1.0.0.
//
// They differ little: in OpenMetrics the family of a counter is named without the _total of its
// samples, bounds of buckets are floats and have exemplars, units are said, and the end is marked.
// Left out: timestamps of samples, and the protobuf format, which native histograms would need.

import type { Exemplar } from '../../audit/measure/histogram.ts';
import type { Sample } from './sample.ts';

export type ExpositionFormat = 'text' | 'openmetrics';

export const contentTypes: Readonly<Record<ExpositionFormat, string>> = {
  text: 'text/plain; version=0.0.4; charset=utf-8',
  openmetrics: 'application/openmetrics-text; version=1.0.0; charset=utf-8',
};

/** What ends an exposition. */
export const ends: Readonly<Record<ExpositionFormat, string>> = {
  text: '',
  openmetrics: '# EOF\n',
};

interface Range {
  readonly type: string;
  readonly version: string | null;
  readonly quality: number;
}

function rangesOf(accept: string): Range[] {
  return accept.split(',').map((text) => {
    const [type = '', ...more] = text.split(';').map((part) => part.trim().toLowerCase());
    const of = (name: string): string | null =>
      more.find((one) => one.startsWith(`${name}=`))?.slice(name.length + 1) ?? null;
    const quality = Number(of('q') ?? 1);
    const version = of('version')?.replaceAll('"', '') ?? null;
    return { type, version, quality: quality > 0 ? quality : 0 };
  });
}

/**
 * The format that an Accept header prefers; whoever wants neither gets text, as from every
 * exporter. Versions that are not written here do not count, other parameters are ignored.
 */
export function negotiateFormat(accept: string | undefined): ExpositionFormat {
  const ranges = rangesOf(accept ?? '*/*');
  const best = (types: readonly string[], version: string): number =>
    ranges
      .filter((range) => types.includes(range.type) && (range.version ?? version) === version)
      .reduce((most, { quality }) => Math.max(most, quality), 0);
  const open = best(['application/openmetrics-text'], '1.0.0');
  return open > 0 && open >= best(['text/plain', 'text/*', '*/*'], '0.0.4')
    ? 'openmetrics'
    : 'text';
}

const escapes: Readonly<Record<string, string>> = { '\\': '\\\\', '"': '\\"', '\n': '\\n' };

/** Labels as they stand between braces. */
export function labelsText(labels: Sample['labels']): string {
  let text = '';
  for (const [label, value] of Object.entries(labels)) {
    const safe = /[\\"\n]/.test(value)
      ? value.replace(/[\\"\n]/g, (character) => escapes[character] ?? '')
      : value;
    text += `${text === '' ? '' : ','}${label}="${safe}"`;
  }
  return text;
}

/** A value or a bound as both formats spell it. */
function numberText(value: number): string {
  if (Number.isFinite(value)) return String(value);
  if (Number.isNaN(value)) return 'NaN';
  return value > 0 ? '+Inf' : '-Inf';
}

/** One series; `labels` as they stand between braces. Only OpenMetrics has exemplars. */
export function seriesText(
  name: string,
  labels: string,
  value: number,
  exemplar?: Exemplar,
): string {
  const series = `${name}${labels === '' ? '' : `{${labels}}`} ${numberText(value)}`;
  if (exemplar === undefined) return `${series}\n`;
  const { traceId, value: observed, at } = exemplar;
  return `${series} # {trace_id="${traceId}"} ${numberText(observed)} ${numberText(at)}\n`;
}

/** What stands before the samples of a family. `help` has no line break and no backslash. */
export function headText(
  family: { readonly name: string; readonly type: string; readonly help: string },
  format: ExpositionFormat,
  unit = 'none',
): string {
  const { type, help } = family;
  const isBare = format === 'openmetrics' && type === 'counter';
  const name = isBare ? family.name.replace(/_total$/, '') : family.name;
  const isSaid = format === 'openmetrics' && name.endsWith(`_${unit}`);
  const said = isSaid ? `# UNIT ${name} ${unit}\n` : '';
  return `# HELP ${name} ${help}\n# TYPE ${name} ${type}\n${said}`;
}

/** The upper bound of a bucket, as a label. */
export function boundText(bound: number, format: ExpositionFormat): string {
  const text = numberText(bound);
  return format === 'openmetrics' && Number.isInteger(bound) ? `${text}.0` : text;
}

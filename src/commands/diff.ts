// The `diff` command: what is different about a Service at two moments of a history, or of a
// recording: its objects, the expected endpoints and the open findings. Exit codes: 0 nothing is
// different, 1 something is, 2 without an answer.

import { openFindingKey } from '../audit/finding/catalogue.ts';
import { serviceTable } from '../audit/explain/service-table.ts';
import { podsOf } from '../audit/service/cache.ts';
import { isResolved, type ParsedTarget, resolveTarget } from '../audit/explain/target.ts';
import type { Auditor } from '../auditor/auditor.ts';
import { verdictInput } from '../auditor/explanations.ts';
import { type Moment, replay } from '../auditor/replay.ts';
import { isFields } from '../cluster/decode/json-fields.ts';
import { writeObject } from '../cluster/files/object-writer.ts';
import { kinds, type AnyObject, type Key, type Resource } from '../model/objects.ts';
import { escapeInvisible, formatJson, formatTable, formatTime } from '../output/text/format.ts';
import { parseServiceSubject } from './explain.ts';
import { openAuditAt } from './replay.ts';
import { problemLog } from './shared/console.ts';
import type { HistoryFlags } from './shared/history.ts';
import { type AuditFlags, type InputFlags, onlyInput } from './shared/options.ts';
import { UsageError } from './shared/process.ts';

export interface DiffOptions extends AuditFlags, InputFlags, Pick<HistoryFlags, 'history'> {
  readonly from?: Moment;
  readonly to?: Moment;
  readonly namespace?: string;
  readonly output: 'text' | 'json';
}

/** One value that is different; `null`: it is not there. */
interface Change {
  readonly what: 'object' | 'expected' | 'finding';
  /** `Kind namespace/name`, an address with its pod, or a finding. */
  readonly name: string;
  /** Empty for a whole object, endpoint or finding. */
  readonly field: string;
  readonly before: string | null;
  readonly after: string | null;
}

/** The values of a Service by what, name and field. */
type ServiceValues = Map<string, Omit<Change, 'before' | 'after'> & { readonly value: string }>;

/** Prints what is different about a Service at two moments. */
export async function printDiff(word: string, options: DiffOptions): Promise<0 | 1> {
  const { history, from, to = null, namespace = null, output } = options;
  if (from === undefined) throw new UsageError('--from is missing');
  const request = parseServiceSubject(word, namespace);
  const source =
    history ?? onlyInput(options, [], '--history FOLDER, or one recording: --input FILE');
  const [before, after] = [
    await valuesAt(source, { ...options, at: from }, request),
    await valuesAt(source, { ...options, ...(to !== null && { at: to }) }, request),
  ];
  if (before.service === null && after.service === null) {
    throw new Error(`${word}: There is no such Service at both moments`);
  }
  const found = new Set([before.service, after.service].filter((key) => key !== null));
  if (found.size > 1) {
    throw new Error(`${word}: It is another Service at each moment: ${[...found].join(' and ')}`);
  }
  const changes = compareValues(before.values, after.values);
  const service = after.service ?? before.service ?? '';
  const document = { format: 1, kind: 'diff', service, from: before.at, to: after.at, changes };
  process.stdout.write(
    output === 'json' ? formatJson(document) : render(service, before.at, after.at, changes),
  );
  return changes.length === 0 ? 0 : 1;
}

async function valuesAt(
  source: string,
  options: DiffOptions & { readonly at?: Moment },
  request: ParsedTarget,
) {
  const { onProblem } = problemLog();
  const { auditor, entries, until } = await openAuditAt(source, options, onProblem);
  await replay(auditor, entries, { speed: Infinity, until });
  const target = resolveTarget(request, auditor.store.listers);
  const service = isResolved(target) && target.kind === 'service' ? target.service : null;
  const values: ServiceValues = service === null ? new Map() : valuesOf(auditor, service);
  return { at: auditor.now() ?? 0, service, values };
}

/** The most endpoints of a Service that are compared. */
const mostEndpoints = 100_000;

function valuesOf(auditor: Auditor, key: Key): ServiceValues {
  const values: ServiceValues = new Map();
  const put = (what: Change['what'], name: string, field: string, value: string): void => {
    values.set([what, name, field].join('\n'), { what, name, field, value });
  };
  const audited = auditor.serviceAuditor()?.audited.get(key);
  if (audited === undefined) return values;
  const { service, endpoints, slices } = audited.record;
  const objects: (readonly [Resource, AnyObject])[] = [
    ...(service === null ? [] : [['services', service] as const]),
    ...(endpoints === null ? [] : [['endpoints', endpoints] as const]),
    ...slices.map((slice) => ['endpointslices', slice] as const),
    ...[...podsOf(auditor.store.listers, audited.record)].map((pod) => ['pods', pod] as const),
  ];
  for (const [resource, object] of objects) {
    const name = `${kinds[resource]} ${object.key}`;
    put('object', name, '', 'exists');
    const fields = writeObject(resource, object as never);
    for (const [field, value] of leavesOf(fields)) put('object', name, field, value);
  }
  const { rows } = serviceTable(verdictInput(auditor), audited, 0, mostEndpoints);
  for (const { address, pod, selected, expected } of rows) {
    if (!selected) continue;
    const name = [address, pod ?? ''].filter((text) => text !== '').join(' ');
    for (const [field, state] of Object.entries(expected)) {
      if (state !== null) put('expected', name, field, state);
    }
  }
  for (const finding of auditor.findings.open()) {
    if (`${finding.namespace}/${finding.service}` !== key) continue;
    put('finding', openFindingKey(finding).slice(key.length).trim(), '', finding.severity);
  }
  return values;
}

/** The values of an object with their paths. */
function* leavesOf(value: unknown, path = ''): Generator<readonly [string, string]> {
  if (Array.isArray(value)) {
    for (const [index, item] of value.entries()) yield* leavesOf(item, `${path}[${String(index)}]`);
  } else if (isFields(value)) {
    for (const [name, item] of Object.entries(value)) {
      yield* leavesOf(item, path === '' ? name : `${path}.${name}`);
    }
  } else if (value !== undefined)
    yield [path, typeof value === 'string' ? value : JSON.stringify(value)];
}

/** Of an object, endpoint or finding that is only there once, its fields are left out. */
function compareValues(before: ServiceValues, after: ServiceValues): Change[] {
  const isWhole = (values: ServiceValues, { what, name }: Change): boolean =>
    what !== 'object' || values.has([what, name, ''].join('\n'));
  const changes = [...new Map([...before, ...after])].flatMap(([key, { what, name, field }]) => {
    const [old = null, now = null] = [before.get(key)?.value, after.get(key)?.value];
    return old === now ? [] : [{ what, name, field, before: old, after: now }];
  });
  return changes.filter((it) => it.field === '' || (isWhole(before, it) && isWhole(after, it)));
}

const titles = { object: 'OBJECT', expected: 'EXPECTED', finding: 'FINDING' } as const;

function render(service: Key, from: number, to: number, changes: readonly Change[]): string {
  const head = `Service ${service} from ${formatTime(from)} to ${formatTime(to)}`;
  if (changes.length === 0) return `${head}: nothing is different\n`;
  const rows = changes.map(({ what, name, field, before, after }) => [
    titles[what],
    name,
    field,
    before ?? '-',
    after ?? '-',
  ]);
  const cells = [['WHAT', 'NAME', 'FIELD', 'BEFORE', 'AFTER'], ...rows].map((row) =>
    row.map(escapeInvisible),
  );
  return [head, '', ...formatTable(cells), ''].join('\n');
}

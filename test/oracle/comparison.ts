// What two releases write differently for the same case: vectors of the same cases, and rules of
// the same Services, without what differs from run to run.

import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';

import { format } from 'prettier';

import type { Version } from '../controlplane/binaries.ts';
import { versions } from '../controlplane/binaries.ts';
import { foldersBelow, readBytes } from '../nodes/folder.ts';
import { walkFolders } from '../nodes/walk.ts';
import { checkFiles } from '../vectors/conform.ts';
import type { CaseRecord, VectorRecord } from './controllers.ts';

/** A difference in words, with what each release has alone. */
interface Different {
  readonly at: string;
  readonly only: readonly string[];
  readonly before: readonly string[];
}

export interface Comparison {
  /** Snapshots or dumps that both have. */
  readonly compared: number;
  readonly different: readonly Different[];
  /** Fields or kinds of rules that one side alone has (`+` now, `-` before), with how often. */
  readonly changes: ReadonlyMap<string, number>;
}

/** The lines of a vector file. */
export const readRecords = (path: string): VectorRecord[] =>
  gunzipSync(readFileSync(path))
    .toString()
    .split('\n')
    .filter(Boolean)
    .map((line) => JSON.parse(line) as VectorRecord);

/** Fields that differ between two runs of one release. */
const volatile = new Set([
  ...['uid', 'resourceVersion', 'creationTimestamp', 'generation', 'generateName', 'managedFields'],
  'endpoints.kubernetes.io/last-change-trigger-time',
]);

/** Sorted by key and, in lists, by content. */
function canonical(value: unknown): unknown {
  if (Array.isArray(value)) {
    const items = value.map(canonical);
    return items.sort((a, b) => JSON.stringify(a).localeCompare(JSON.stringify(b)));
  }
  if (typeof value !== 'object' || value === null) return value;
  const entries = Object.entries(value)
    .filter(([key, field]) => !volatile.has(key) && !isEmpty(field))
    .map(([key, field]) => [key, canonical(field)] as const);
  return Object.fromEntries(
    entries.filter(([, field]) => !isEmpty(field)).sort(([a], [b]) => a.localeCompare(b)),
  );
}

const isEmpty = (value: unknown): boolean =>
  value === null || (typeof value === 'object' && Object.keys(value).length === 0);

/** What the controllers wrote in a snapshot, one text per object. */
function writtenIn({ endpoints, endpointSlices }: CaseRecord): string[] {
  const slices = endpointSlices.map((slice) => {
    const { name, ...metadata } = slice.metadata;
    // Names of slices are generated, except those of a user.
    const kept = name.endsWith('-mine') ? { name, ...metadata } : metadata;
    return { ...slice, metadata: kept };
  });
  return [...endpoints, ...slices].map((object) => JSON.stringify(canonical(object))).sort();
}

/** Without what the API server refuses in words of its own. */
const didTheSame = (a: CaseRecord, b: CaseRecord): boolean => {
  const words = ({ ops }: CaseRecord): string =>
    ops.map((text) => text.replace(/^(?<done>REJECTED .*?): .*$/, '$<done>')).join('\n');
  return words(a) === words(b);
};

const alone = (these: readonly string[], those: readonly string[]): string[] => {
  const left = [...those];
  return these.filter((text) => {
    const at = left.indexOf(text);
    if (at >= 0) left.splice(at, 1);
    return at < 0;
  });
};

const compared = (at: string, now: readonly string[], before: readonly string[]): Different[] => {
  const different = { at, only: alone(now, before), before: alone(before, now) };
  return different.only.length + different.before.length === 0 ? [] : [different];
};

/** Counts the parts of what differs that one side alone has. */
function changesIn(
  different: readonly Different[],
  partsOf: (text: string) => readonly string[],
): Map<string, number> {
  const changes = new Map<string, number>();
  const count = (sign: string, parts: readonly string[]): void => {
    for (const part of new Set(parts)) {
      const text = `${sign} ${part}`;
      changes.set(text, (changes.get(text) ?? 0) + 1);
    }
  };
  for (const { only, before } of different) {
    const [now, old] = [only, before].map((texts) => texts.flatMap(partsOf)) as [
      string[],
      string[],
    ];
    count('+', alone(now, old));
    count('-', alone(old, now));
  }
  return new Map([...changes].sort(([, a], [, b]) => b - a));
}

/** `path=value` of every leaf of an object, without the places in lists. */
function leavesOf(value: unknown, path = ''): string[] {
  if (typeof value !== 'object' || value === null) return [`${path}=${String(value)}`];
  const step = (key: string): string => (Array.isArray(value) ? path : `${path}.${key}`);
  return Object.entries(value).flatMap(([key, field]) => leavesOf(field, step(key)));
}

/** Leaves of an object as text; addresses and names are those of the case. */
const fieldsOf = (text: string): string[] => {
  const object = JSON.parse(text) as object;
  const kind = 'addressType' in object ? 'EndpointSlice' : 'Endpoints';
  return leavesOf(object)
    .map((leaf) =>
      leaf.replace(/(?<=namespace)=.*$|=(?:[\d.]+|[\da-f]*:[\da-f:]+|p\d+|\S+-s\d+-\S+)$/i, ''),
    )
    .map((leaf) => `${kind}${leaf}`);
};

/** Compares what controllers wrote for the cases and steps that both files have. */
export function compareVectors(
  now: readonly VectorRecord[],
  before: readonly VectorRecord[],
): Comparison {
  const casesIn = (records: readonly VectorRecord[]): CaseRecord[] =>
    records.filter((record) => record.kind === 'case');
  const keyOf = ({ case: name, step }: CaseRecord): string => `${name} step ${step}`;
  const old = new Map(casesIn(before).map((record) => [keyOf(record), record]));
  const pairs = casesIn(now).flatMap((record) => {
    const other = old.get(keyOf(record));
    return other === undefined ? [] : [[record, other] as const];
  });
  // What one API server refused and the other did not makes the rest of a case incomparable.
  const apart = new Set<string>();
  const different: Different[] = [];
  let count = 0;
  for (const [record, other] of pairs) {
    if (!didTheSame(record, other)) apart.add(record.case);
    if (apart.has(record.case)) continue;
    count++;
    different.push(...compared(keyOf(record), writtenIn(record), writtenIn(other)));
  }
  return { compared: count, different, changes: changesIn(different, fieldsOf) };
}

const dumps = ['iptables-save.txt', 'ip6tables-save.txt', 'nft.txt'];

/** Rules without counters and times, in any order. */
const rulesIn = (dump: string): string[] =>
  dump
    .split('\n')
    .map((line) => line.replace(/\[\d+:\d+\]| # handle \d+| expires \w+/g, '').trim())
    // The first and the last element of a set differ by their place only.
    .map((line) => line.replace(/^elements = \{ |,$| \}$/g, ''))
    .filter((line) => line !== '' && !line.startsWith('#'))
    .sort();

/** A rule without what is particular to a Service or an endpoint. */
const shapeOf = (line: string): string[] => [
  line
    .replace(/"[^"]*"/g, '"…"')
    .replace(/(?<kind>KUBE-[A-Z]{2,3})-[A-Z0-9]{16}/g, '$<kind>-…')
    .replace(
      /(?<kind>service|external|local|firewall|endpoint|affinity)-[A-Z0-9]{8}-\S+/g,
      '$<kind>-…',
    )
    .replace(/\b\d+\.\d+\.\d+\.\d+\b/g, 'ADDRESS')
    .replace(/\b[\da-f]{1,4}:[\da-f:]*::?[\da-f]*/g, 'ADDRESS')
    .replace(/\b\d+\b/g, 'N'),
];

/** Compares the rules of nodes of the same name and mode. */
export function compareRules(now: string, before: string): Comparison {
  const different: Different[] = [];
  let count = 0;
  for (const folder of foldersBelow(now)) {
    const node = folder.slice(now.length + 1);
    for (const dump of dumps) {
      const [these, those] = [now, before].map(
        (root) => readBytes(join(root, node, dump))?.toString() ?? null,
      ) as [string | null, string | null];
      if (these === null || those === null) continue;
      count++;
      const at = `${node} ${dump}`;
      different.push(...compared(at, rulesIn(these), rulesIn(those)));
    }
  }
  return { compared: count, different, changes: changesIn(different, shapeOf) };
}

// The committed samples of releases, and docs/releases.md as it follows from them: what was
// recorded of each release, the verdict of the program, and how much the release before writes
// differently. `npm run -s oracle -- --table` writes the file; a test compares it with this.

const tests = join(import.meta.dirname, '..');

/** Where the committed samples are. */
export const samples = {
  vectors: join(tests, 'vectors', 'data'),
  nodes: join(tests, 'nodes'),
} as const;

/** The name of a vector file of a release. */
export const vectorFile = (version: string, kind: '' | '-faults' = ''): string =>
  `${version}-oracle${kind}.ndjson.gz`;

const vectorPath = (version: string, kind: '' | '-faults' = ''): string =>
  join(samples.vectors, vectorFile(version, kind));

const nodePath = (version: string): string => join(samples.nodes, 'recordings', version);

/** What the release of a sample writes differently from the sample of another; null: no sample. */
export function compareSamples(
  now: { readonly vectors: string | null; readonly nodes: string | null },
  previous: string,
): { readonly controllers: Comparison | null; readonly kubeProxy: Comparison | null } {
  const { vectors, nodes } = now;
  const hasBoth = (own: string | null, other: string): own is string =>
    own !== null && existsSync(own) && existsSync(other);
  return {
    controllers: hasBoth(vectors, vectorPath(previous))
      ? compareVectors(readRecords(vectors), readRecords(vectorPath(previous)))
      : null,
    kubeProxy: hasBoth(nodes, nodePath(previous)) ? compareRules(nodes, nodePath(previous)) : null,
  };
}

export const previousOf = (version: Version): string =>
  versions[versions.indexOf(version) - 1] ?? 'none';

const shareOf = (comparison: Comparison | null): string =>
  comparison === null ? '–' : `${comparison.different.length} of ${comparison.compared}`;

const thousands = (count: number): string => count.toLocaleString('en');

/** What a release writes differently, as a list. */
function changesOf(version: Version, compared: ReturnType<typeof compareSamples>): string {
  const parts = Object.entries({
    'Endpoints and EndpointSlices': compared.controllers,
    'Rules of kube-proxy': compared.kubeProxy,
  }).flatMap(([title, comparison]) => {
    const changes = [...(comparison?.changes ?? [])].slice(0, 8);
    if (changes.length === 0) return [];
    const items = changes.map(([change, count]) => `- ${count} × \`${change}\``);
    return [`${title}:\n\n${items.join('\n')}`];
  });
  if (parts.length === 0) return '';
  return `## ${version.slice(1)} since ${previousOf(version).slice(1)}\n\n${parts.join('\n\n')}\n`;
}

/** The row of a release that has a sample, and what it writes differently. */
async function describe(version: Version): Promise<{ row: string; changes: string }> {
  const files = [vectorPath(version), vectorPath(version, '-faults')];
  const [header] = readRecords(vectorPath(version)) as unknown as { recorded: string }[];
  const objects = await checkFiles(files, () => undefined);
  const faults = readdirSync(join(samples.nodes, 'faults'))
    .filter((name) => name.startsWith(`${version}-`))
    .map((name) => join(samples.nodes, 'faults', name));
  const folders = [nodePath(version), ...faults].filter((path) => existsSync(path));
  const nodes = walkFolders(folders, () => undefined);
  const compared = compareSamples(
    { vectors: vectorPath(version), nodes: nodePath(version) },
    previousOf(version),
  );
  const { falseFindings, missed, misplaced, legalReported, transitions } = objects;
  const cells = [
    version.slice(1),
    header?.recorded ?? '',
    thousands(objects.cases),
    thousands(objects.services),
    String(objects.explained),
    thousands(objects.faults),
    String(falseFindings + missed + misplaced + legalReported + transitions.wrong),
    thousands(nodes.packets),
    String(nodes.faults),
    String(nodes.wrong + nodes.falseFindings + nodes.missed + nodes.misplaced),
    shareOf(compared.controllers),
    shareOf(compared.kubeProxy),
  ];
  return { row: `| ${cells.join(' | ')} |`, changes: changesOf(version, compared) };
}

const columns = [
  ...['Release', 'Recorded', 'Snapshots', 'Services', 'Explained', 'Object faults', 'Wrong'],
  ...['Packets', 'Broken nodes', 'Wrong', 'Snapshots differ', 'Dumps differ'],
];

const introduction = `# Releases of Kubernetes

The sample of each release was recorded from its own binaries by \`npm run -s oracle -- VERSION\`
([how](../test/oracle/README.md)). This page is written from the samples by
\`npm run -s oracle -- --table\`, and a test keeps the two equal.

- **Snapshots**: namespaces at the end of a step, as the controllers left them. **Services**: those
  in the snapshots. **Explained**: Services with a finding that upstream's own behavior causes.
- **Object faults**: snapshots with one labelled change. **Wrong**: false findings, faults that are
  missed or reported elsewhere, legal changes that are reported, and impossible transitions.
- **Packets**: packets that a kernel received under the rules of kube-proxy, sound and broken.
  **Broken nodes**: nodes with one labelled change of the rules. **Wrong**: packets whose outcome
  the program predicts otherwise, and findings as above.
- **Differ**: snapshots, and dumps of rules, that differ from the sample of the release before,
  apart from uids, times, generated names and order. Below the table is what one side alone has:
  plus for the release, minus for the one before. Some operations race with the controllers, so
  a few snapshots also differ between two runs of one release.

| ${columns.join(' | ')} |
| ${columns.map(() => '---').join(' | ')} |
`;

/** docs/releases.md as the samples have it. */
export async function releasesDocument(): Promise<string> {
  const described: Awaited<ReturnType<typeof describe>>[] = [];
  for (const version of versions.toReversed()) {
    if (existsSync(vectorPath(version))) described.push(await describe(version));
  }
  const rows = described.map(({ row }) => `${row}\n`).join('');
  const changes = described.map(({ changes: list }) => list).join('\n');
  return format(`${introduction}${rows}\n${changes}`, { parser: 'markdown' });
}

export const releasesPath = join(tests, '..', 'docs', 'releases.md');

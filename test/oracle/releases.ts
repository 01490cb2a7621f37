// The committed samples of releases, and docs/releases.md as it follows from them: what was
// recorded of each release, the verdict of the program, and how much the release before writes
// differently. `npm run -s oracle -- --table` writes the file; a test compares it with this.

import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';

import { format } from 'prettier';

import type { Version } from '../controlplane/binaries.ts';
import { versions } from '../controlplane/binaries.ts';
import { walkFolders } from '../nodes/walk.ts';
import { judgeFiles } from '../vectors/conform.ts';
import type { Comparison } from './comparison.ts';
import { compareRules, compareVectors, readRecords } from './comparison.ts';

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
  const objects = await judgeFiles(files, () => undefined);
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

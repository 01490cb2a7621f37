// Whether the simulation would notice: each mutant breaks one rule of what makes a finding true,
// and lives random lives until one of them goes wrong.
//
//   node test/apiserver/mutants.ts [SEEDS] [WORDS of a name]
//
// It prints the seed that caught each, and ends with 1 where one lived through all (1,000) seeds.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

interface Mutant {
  readonly name: string;
  readonly file: string;
  /** The original text, which occurs once, and its replacement. */
  readonly from: string;
  readonly to: string;
}

const confirm = 'src/audit/pending/confirm.ts';
const cut = 'src/audit/pending/progress.ts';

/** Nodes are left out: their stream never lags here, since no read shows what it owes. */
const behind = ['services', 'pods', 'endpoints', 'endpointslices'].map((resource) => ({
  name: `the stream of ${resource} may be behind`,
  file: cut,
  from: '(observedAt.get(resource) ?? -Infinity) >= since &&',
  to: `resource === '${resource}' || (observedAt.get(resource) ?? -Infinity) >= since &&`,
}));

export const mutants: readonly Mutant[] = [
  {
    name: 'what waits opens without a watch',
    file: confirm,
    from: 'if (progress.isBlind(candidate.item.output)) return false;',
    to: '',
  },
  ...behind,
  {
    name: 'streams need not come to what a read has shown',
    file: confirm,
    from: 'candidate.point = latest.version',
    to: "candidate.point = ''",
  },
  {
    name: 'a read from before the end of the window will do for streams',
    file: confirm,
    from: 'latest.at >= candidate.at',
    to: 'latest.at >= candidate.since',
  },
  {
    name: 'a read from before the end of the window proves it',
    file: confirm,
    from: 'request.at < candidate.at || ',
    to: '',
  },
  {
    name: 'streams are believed at once',
    file: confirm,
    from: 'candidate.at + 60)',
    to: 'candidate.at)',
  },
  {
    name: 'what was read need not have come',
    file: confirm,
    from: 'known?.uid === uid && isAtLeast(known.resourceVersion, resourceVersion)',
    to: 'known?.uid === uid',
  },
  {
    name: 'what a read lacks may be held',
    file: confirm,
    from: 'others.every((it) => compareVersions(it.resourceVersion, list.version) === 1)',
    to: 'others.length >= 0',
  },
  {
    name: 'nothing is late',
    file: cut,
    from: 'return past.isLate(version, at);',
    to: 'return false;',
  },
  {
    name: 'the clock runs on over gaps',
    file: 'src/audit/service/auditor.ts',
    from: 'change.gap === true || late)',
    to: 'late)',
  },
  {
    name: 'time in which nothing is seen counts',
    file: 'src/auditor/auditor.ts',
    from: 'if (missed || to - from >= staleGrace) findings.delay',
    to: 'if (from > to) findings.delay',
  },
  {
    name: 'a difference that goes on in another way forgets what nobody saw',
    file: 'src/audit/service/reconcile.ts',
    from: 'item.unseen = first.unseen;',
    to: 'item.unseen = 0;',
  },
  {
    name: 'no resource is ever stale',
    file: cut,
    from: 'now - (it.blindSince ?? Infinity) >= seconds',
    to: 'seconds < 0 && it.blindSince !== null',
  },
  {
    name: 'findings open late',
    file: 'src/audit/pending/pending.ts',
    from: 'item.unseen + window, now);',
    to: 'item.unseen + window + 3, now);',
  },
];

const root = join(import.meta.dirname, '..', '..');

/** A copy of all that a life needs. */
function copy(): string {
  const folder = mkdtempSync(join(tmpdir(), 'mutants-'));
  for (const path of ['src', 'test', 'package.json']) {
    const filter = (from: string): boolean => !/\.(gz|json|txt)$/.test(from) || from.endsWith(path);
    cpSync(join(root, path), join(folder, path), { recursive: true, filter });
  }
  symlinkSync(join(root, 'node_modules'), join(folder, 'node_modules'));
  return folder;
}

/** What the first life says that goes wrong; null: none does. */
async function firstWrong(folder: string, count: number): Promise<string | null> {
  const path = join(folder, 'test/apiserver/seeds.ts');
  const child = spawn(process.execPath, [path, '--auditor', '0', String(count)], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  for await (const line of createInterface({ input: child.stdout })) {
    if (!line.startsWith('seed ')) continue;
    child.kill();
    return line;
  }
  if (child.exitCode === null) await once(child, 'exit');
  if (child.exitCode !== 0) throw new Error('The lives cannot be run');
  return null;
}

async function main(count: number, words: string): Promise<void> {
  const folder = copy();
  process.once('exit', () => {
    rmSync(folder, { recursive: true });
  });
  for (const { name, file, from, to } of mutants) {
    if (!name.includes(words)) continue;
    const text = readFileSync(join(root, file), 'utf8');
    if (text.split(from).length !== 2) throw new Error(`${name}: ${file} does not say it once`);
    writeFileSync(join(folder, file), text.replace(from, to));
    const wrong = await firstWrong(folder, count);
    writeFileSync(join(folder, file), text);
    console.log(`${wrong === null ? 'LIVED' : 'caught'} ${name}: ${wrong ?? `${count} seeds`}`);
    if (wrong === null) process.exitCode = 1;
  }
}

if (import.meta.main) {
  const [, , seeds = '1000', ...words] = process.argv;
  await main(Number(seeds), words.join(' '));
}

// Whether the tests would notice: each mutant breaks one rule of what makes a finding true. Most
// live random lives until one of them goes wrong. For the others, several rules protect a finding,
// so that no life goes wrong without one of them; a unit test notices these.
//
//   node test/apiserver/mutants.ts [SEEDS] [WORDS of a name]
//
// It prints the seed or the test that caught each, and ends with 1 where one lived through all
// (1,000) seeds, or through its test.

import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

import { resources } from '../../src/model/objects.ts';

interface Mutant {
  readonly name: string;
  readonly file: string;
  /** The original text, which occurs once, and its replacement. */
  readonly from: string;
  readonly to: string;
  /** The unit test that notices it. */
  readonly test?: UnitTest;
}

type UnitTest = readonly [file: string, name: string];

const confirm = 'src/audit/pending/confirm.ts';
const cut = 'src/audit/pending/progress.ts';
const filter = 'src/cluster/api/version-filter.ts';

const behind = resources.map((resource): Mutant => ({
  name: `the stream of ${resource} may be behind`,
  file: cut,
  from: '(observedAt.get(resource) ?? -Infinity) >= since &&',
  to: `resource === '${resource}' || (observedAt.get(resource) ?? -Infinity) >= since &&`,
  test: ['test/audit/pending/progress.test.ts', `only if ${resource} have delivered it`],
}));

export const mutants: readonly Mutant[] = [
  {
    name: 'what waits opens without a watch',
    file: confirm,
    from: 'progress.isBlind(item.output) || ',
    to: '',
    test: ['test/audit/pending/confirm.test.ts', 'that are not connected do not confirm it after'],
  },
  ...behind,
  {
    name: 'a stream may owe what another read has shown',
    file: confirm,
    from: ' || progress.isBehind(item.output, now)',
    to: '',
    test: ['test/audit/pending/confirm.test.ts', 'that owe what a read of another Service'],
  },
  {
    name: 'the stream of one namespace shows what all have delivered',
    file: cut,
    from: 'const isAlone = !merged.includes(resource);',
    to: 'const isAlone = true;',
    test: ['test/audit/pending/progress.test.ts', 'by a bookmark only, if the resource has'],
  },
  {
    name: 'a read from before the end of the window proves it',
    file: confirm,
    from: 'request.readAt < at)',
    to: 'request.readAt < since)',
  },
  {
    name: 'streams are trusted at once',
    file: confirm,
    from: 'at + patience.unread)',
    to: 'at)',
  },
  {
    name: 'a newer version that was read need not be cached',
    file: confirm,
    from: "yield [key, isGap ? 'gap' : isShown ? 'overtaken' : 'behind'];",
    to: "yield [key, isGap ? 'gap' : 'equal'];",
  },
  {
    name: 'an object that a read lacks may be cached',
    file: confirm,
    from: 'if (compareVersions(version, list.version) === 1) yield [key, newer];',
    to: 'if (newer.length > 0) yield [key, newer];',
  },
  {
    name: 'Nodes are not read',
    file: confirm,
    from: "restsOn[item.output].includes('nodes') && listers?.knows('nodes') === true;",
    to: "item.output === 'input' && listers?.knows('nodes') === true;",
  },
  {
    name: 'a gap does not lead to a list',
    file: 'src/cluster/api/reflector.ts',
    from: 'if (state.needsList || gap.isOpen || now < gap.after) return;',
    to: 'if (gap.pause === 0) return;',
  },
  {
    name: 'a lost event is believed, and what was read is not',
    file: confirm,
    from: "if (result === 'gap' && state === 'synced') gaps.set(resource, object);",
    to: "if (result === 'gap' && state === 'synced') worst = 'equal';",
  },
  {
    name: 'a version that a read has shown may be skipped',
    file: cut,
    from: "if (lacks.end(resource, key, version, at)) return 'gap';",
    to: '',
    test: ['test/apiserver/simulation.test.ts', 'that a read has shown restarts the clock'],
  },
  {
    name: 'a deletion in a state that was not seen ends what was seen',
    file: filter,
    from: 'if (isSame && before.uid === object.uid) return [event];',
    to: 'if (before.uid === object.uid) return [event];',
    test: ['test/cluster/api/version-filter.test.ts', 'deleted, in a state that was not seen'],
  },
  {
    name: 'a deletion of what is not cached says nothing',
    file: filter,
    from: "if (isOld) return type === 'deleted' ? 'repeated' : 'stale';",
    to: "if (isOld || type === 'deleted') return type === 'deleted' ? 'repeated' : 'stale';",
    test: ['test/cluster/api/version-filter.test.ts', 'deleted, but not held'],
  },
  {
    name: 'no Service is read in turn',
    file: confirm,
    from: 'if (now - latest < turn.seconds) return [];',
    to: 'if (now > latest - turn.seconds) return [];',
  },
  {
    name: 'a read of a server that is behind proves a difference',
    file: confirm,
    from: "const isOld = compareVersions(read?.version ?? '', known) === -1;",
    to: "const isOld = read?.version === '';",
    test: ['test/audit/pending/confirm.test.ts', 'older than what a stream has shown is a failure'],
  },
  {
    name: 'a WatchList without its end is awaited',
    file: 'src/cluster/api/listwatch.ts',
    from: 'isListing() ? silence.listing : watching()',
    to: 'isListing() ? Infinity : watching()',
  },
  {
    name: 'a starved watch is kept',
    file: 'src/cluster/api/listwatch.ts',
    from: 'counters.bookmarks > 0 ? silence.watching',
    to: 'counters.bookmarks < 0 ? silence.watching',
    test: ['test/cluster/api/reflector.test.ts', 'a watch that sends nothing is left'],
  },
  {
    name: 'nothing is late',
    file: cut,
    from: 'isClaimed(resource, version) || past.isLate(version, at, resource)',
    to: 'false',
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
    from: 'if (missed || spell.to - spell.from >= staleGrace) yield*',
    to: 'if (spell.from > spell.to) yield*',
  },
  {
    name: 'a difference that goes on in another way forgets what nobody saw',
    file: 'src/audit/service/reconcile.ts',
    from: 'return { since, unseen, lesser',
    to: 'return { since, unseen: 0, lesser',
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
    from: 'Math.max(endOf(owned, window), now)',
    to: 'Math.max(endOf(owned, window) + 3, now)',
  },
];

const root = join(import.meta.dirname, '..', '..');

/** A copy of all that a life needs. */
function copy(): string {
  const folder = mkdtempSync(join(tmpdir(), 'mutants-'));
  for (const path of ['src', 'test', 'package.json', 'vitest.config.ts']) {
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

/** The unit test, if it fails; null: it passes. */
function failingTest(folder: string, [file, name]: UnitTest): string | null {
  const vitest = join(root, 'node_modules', 'vitest', 'vitest.mjs');
  const words = [vitest, 'run', '--project', 'unit', file, '-t', name];
  const { status } = spawnSync(process.execPath, words, { cwd: folder, stdio: 'ignore' });
  return status === 0 ? null : `${file}: ${name}`;
}

async function main(count: number, words: string): Promise<void> {
  const folder = copy();
  process.once('exit', () => {
    rmSync(folder, { recursive: true });
  });
  for (const { name, file, from, to, test } of mutants) {
    if (!name.includes(words)) continue;
    if (test !== undefined && failingTest(folder, test) !== null)
      throw new Error(`${test.join()} fails`);
    const text = readFileSync(join(root, file), 'utf8');
    if (text.split(from).length !== 2) throw new Error(`${name}: ${file} does not say it once`);
    writeFileSync(join(folder, file), text.replace(from, to));
    const wrong = test ? failingTest(folder, test) : await firstWrong(folder, count);
    writeFileSync(join(folder, file), text);
    const by = wrong ?? test?.join() ?? `${count} seeds`;
    console.log(`${wrong === null ? 'LIVED' : 'caught'} ${name}: ${by}`);
    if (wrong === null) process.exitCode = 1;
  }
}

if (import.meta.main) {
  const [, , seeds = '1000', ...words] = process.argv;
  await main(Number(seeds), words.join(' '));
}

// Parses one rule of iptables-save: `-s -d -i -o -p` here, matches in iptables-match.ts and targets
// in iptables-target.ts. A part that cannot be parsed becomes `unknown` with its text: no part of a
// rule is dropped.

import type { Statement } from '../ruleset.ts';
import type { Option } from './iptables-match.ts';
import { matchesOf, matchOf } from './iptables-match.ts';
import { targetOf } from './iptables-target.ts';

/** Statements by the text of a part: the rules of one dump share them. */
export type PartCache = Map<string, readonly Statement[]>;

const maxCachedParts = 4096;

/** One of `-s -d -i -o -p -m -j -g`, with all that belongs to it. A comment begins no part. */
const quoted = '"[^"\\\\]*(?:\\\\.[^"\\\\]*)*"?';
const comment = `-m comment --comment (?:${quoted}|[^ ]+)`;
const innerSpace = ' (?!(?:! )?-[A-Za-z])|(?<=(?:^| )!) ';
const parts = new RegExp(`(?:${comment}|[^" ]+|${quoted}|${innerSpace})+`, 'g');

const words = new RegExp(`${quoted}|[^ ]+`, 'g');

/** Parses the options of a rule. Never throws. */
export function parseRule(options: string, cache: PartCache = new Map()): readonly Statement[] {
  const jump = options.lastIndexOf(' -j ');
  const target = options.slice(jump + 4);
  const isLast = jump >= 0 && !/[ "]/.test(target);
  const matches = isLast ? options.slice(0, jump) : options;
  const statements = cached(matches, cache, () =>
    (matches.match(parts) ?? []).flatMap((part) => cached(part, cache, parsePart)),
  );
  return isLast ? [...statements, targetOf(target, [], `-j ${target}`)] : statements;
}

function cached(
  text: string,
  cache: PartCache,
  read: (text: string) => readonly Statement[],
): readonly Statement[] {
  const known = cache.get(text);
  if (known !== undefined) return known;
  const statements = read(text);
  if (!isDistinct(text) && cache.size < maxCachedParts) cache.set(text, statements);
  return statements;
}

/** Nearly every address and comment is different, so these are not cached. */
const isDistinct = (part: string): boolean => /-[sd] |--comment /.test(part);

/** Whether a word is an option or the negation of one: not if it is quoted or a number. */
const isOption = (word: string): boolean => /^[-!](?!\d)/.test(word);

const withoutQuotes = (word: string): string =>
  word.startsWith('"') ? word.replace(/^"|"$/g, '').replace(/\\(.)/g, '$1') : word;

function parsePart(text: string): readonly Statement[] {
  const part = text.trim();
  if (part === '') return [];
  if (part.startsWith('-m comment --comment ')) return [{ kind: 'note', text: part }];
  if (part.startsWith('-j ') && !part.includes(' ', 3)) return [targetOf(part.slice(3), [], part)];
  const all = part.match(words) ?? [];
  const negate = all[0] === '!';
  const [option = '', first = '', ...rest] = negate ? all.slice(1) : all;
  const value = withoutQuotes(first);
  switch (option) {
    case '-s':
    case '-d':
    case '-p':
    case '-i':
    case '-o': {
      const match = matchOf({ name: option, negate, values: [value] }, part);
      return rest.length === 0 ? [match] : [match, { kind: 'unknown', text: rest.join(' ') }];
    }
    case '-m':
      return matchesOf(value, optionsOf(rest), part);
    case '-j':
      return [targetOf(value, optionsOf(rest), part)];
    case '-g':
      return [{ kind: 'goto', chain: value }];
    case '-f':
      // `-f` matches fragments after the first, `! -f` all other packets.
      return [negate ? { kind: 'note', text: '! -f' } : { kind: 'never', text: '-f' }];
    default:
      return [{ kind: 'unknown', text: part }];
  }
}

/** The options of a match or a target: `[!] --name values`. */
function optionsOf(all: readonly string[]): Option[] {
  const options: Option[] = [];
  for (let at = 0; at < all.length;) {
    const negate = all[at] === '!';
    if (negate) at++;
    const name = withoutQuotes(all[at++] ?? '');
    const values: string[] = [];
    while (at < all.length && !isOption(all[at] ?? '')) values.push(withoutQuotes(all[at++] ?? ''));
    options.push({ name, negate, values });
  }
  return options;
}

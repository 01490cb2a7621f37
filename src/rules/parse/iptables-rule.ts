// Parses one rule of iptables-save: `-s -d -i -o -p` here, matches in iptables-match.ts and targets
// in iptables-target.ts. A part that cannot be parsed becomes `unknown` with its text: no part of a
// rule is dropped.

import { parseNetwork } from '../address.ts';
import type { Family, Match, Statement } from '../ruleset.ts';
import { matchesOf, protocolNumbers } from './iptables-match.ts';
import type { Option } from './iptables-option.ts';
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
export function parseRule(
  options: string,
  family: Family,
  cache: PartCache = new Map(),
): readonly Statement[] {
  const jump = options.lastIndexOf(' -j ');
  const isLast = jump >= 0 && !/[ "]/.test(options.slice(jump + 4));
  const matches = isLast ? options.slice(0, jump) : options;
  const known = cache.get(matches);
  const statements =
    known ?? (matches.match(parts) ?? []).flatMap((part) => statementsOf(part, family, cache));
  if (known === undefined && !isDistinct(matches)) keep(cache, matches, statements);
  return isLast ? [...statements, ...parsePart(options.slice(jump + 1), family)] : statements;
}

function statementsOf(part: string, family: Family, cache: PartCache): readonly Statement[] {
  if (isDistinct(part)) return parsePart(part.trim(), family);
  const known = cache.get(part);
  if (known !== undefined) return known;
  const statements = parsePart(part.trim(), family);
  keep(cache, part, statements);
  return statements;
}

function keep(cache: PartCache, part: string, statements: readonly Statement[]): void {
  if (cache.size < maxCachedParts) cache.set(part, statements);
}

/** Nearly every address and comment is different, so these are not cached. */
const isDistinct = (part: string): boolean => /-[sd] |--comment /.test(part);

/** Whether a word is an option or the negation of one: not if it is quoted or a number. */
const isOption = (word: string): boolean => /^[-!](?!\d)/.test(word);

const withoutQuotes = (word: string): string =>
  word.startsWith('"') ? word.replace(/^"|"$/g, '').replace(/\\(.)/g, '$1') : word;

function parsePart(part: string, family: Family): readonly Statement[] {
  if (part === '') return [];
  if (part.startsWith('-m comment --comment ')) return [{ kind: 'note', text: part }];
  if (part.startsWith('-j ') && !part.includes(' ', 3)) {
    return [targetOf(part.slice(3), [], { goto: false, text: '', family })];
  }
  const all = part.match(words) ?? [];
  const negate = all[0] === '!';
  const [option = '', first = '', ...rest] = negate ? all.slice(1) : all;
  const value = withoutQuotes(first);
  switch (option) {
    case '-s':
    case '-d':
      return [addressMatch(value, option === '-s', negate, part), ...unknownRest(rest)];
    case '-p':
      return [protocolMatch(value, negate, part), ...unknownRest(rest)];
    case '-i':
    case '-o': {
      const [side, name] = [option === '-i' ? 'in' : 'out', value.replace(/\+$/, '*')] as const;
      return [{ kind: 'interface', side, names: [name], negate }, ...unknownRest(rest)];
    }
    case '-m':
      return matchesOf(value, optionsOf(rest), part);
    case '-j':
    case '-g': {
      const text = rest.length === 0 ? '' : part;
      return [targetOf(value, optionsOf(rest), { goto: option === '-g', text, family })];
    }
    case '-f':
      // `-f` matches fragments after the first, `! -f` all other packets.
      return [negate ? { kind: 'note', text: '! -f' } : { kind: 'never', text: '-f' }];
    default:
      return [{ kind: 'unknown', text: part }];
  }
}

const unknownRest = (rest: readonly string[]): readonly Statement[] =>
  rest.length === 0 ? [] : [{ kind: 'unknown', text: rest.join(' ') }];

function addressMatch(value: string, isSource: boolean, negate: boolean, text: string): Match {
  const range = parseNetwork(value);
  if (range === null) return { kind: 'unknown', text };
  const field = isSource ? 'source' : 'destination';
  return { kind: 'field', field, mask: null, ranges: [range], negate };
}

function protocolMatch(name: string, negate: boolean, text: string): Match {
  const number = protocolNumbers[name] ?? (/^\d{1,3}$/.test(name) ? Number(name) : null);
  if (number === null) return { kind: 'unknown', text };
  const ranges = [{ low: number, high: number }];
  return { kind: 'field', field: 'protocol', mask: null, ranges, negate };
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

// Parses one rule of iptables-save: its options, and `-j` and `-g` with verdicts, chains and
// extensions (iptables 1.8, extensions/libxt_*.c, libipt_*.c and libip6t_*.c). Matches are in
// iptables-match.ts. A part that cannot be parsed becomes `unknown` with its text.
//
// Translations, marks and verdicts are modelled. Targets that log or change other fields are notes.
// Any other target is an unknown verdict, or a chain: the walk finds out which.

import { parseNetwork } from '../../model/ip.ts';
import type { Action, Statement } from '../ruleset.ts';
import { matchesOf, matchOf, type Option, portRange } from './iptables-match.ts';

/** What was parsed of other rules, by its text. */
export type PartCache = ReturnType<typeof newPartCache>;

interface Part {
  readonly text: string;
  readonly statements: readonly Statement[];
  /** Whether other rules may have it. Only such parts are kept, or others would keep each other. */
  readonly isShared: boolean;
  /** The matches of the rule behind one with these matches: many chains have the same in turn. */
  next: Part | null;
}

export const newPartCache = () => ({
  parts: new Map<string, Part>(),
  last: { text: '', statements: [], isShared: true, next: null } as Part,
});

const maxCachedParts = 4096;

/** One of `-s -d -i -o -p -m -j -g`, with all that belongs to it. A comment begins no part. */
const quoted = '"[^"\\\\]*(?:\\\\.[^"\\\\]*)*"?';
const comment = `-m comment --comment (?:${quoted}|[^ ]+)`;
const innerSpace = ' (?!(?:! )?-[A-Za-z])|(?<=(?:^| )!) ';
const leadingComment = new RegExp(` ${comment}(?= |$)`, 'y');
const parts = new RegExp(`(?:${comment}|[^" ]+|${quoted}|${innerSpace})+`, 'g');

const words = new RegExp(`${quoted}|[^ ]+`, 'g');

/** Parses the options of a rule. Never throws. */
export function parseRule(options: string, cache = newPartCache()): readonly Statement[] {
  const jump = options.lastIndexOf(' -j ');
  const target = options.slice(jump + 4);
  const isLast = jump >= 0 && !target.includes(' ') && !target.includes('"');
  const end = isLast ? jump : options.length;
  leadingComment.lastIndex = 0;
  const hasComment = options.startsWith(' -m comment ') && leadingComment.test(options);
  const from = hasComment ? leadingComment.lastIndex : 0;
  const likely = cache.last.next;
  const isLikely = likely?.text.length === end - from && options.startsWith(likely.text, from);
  const part = isLikely ? likely : cached(options.slice(from, end), cache, parseParts);
  if (part.isShared) cache.last = cache.last.next = part;
  return isLast ? [...part.statements, targetOf(target, [], `-j ${target}`)] : part.statements;
}

type PartReader = (text: string, cache: PartCache) => readonly Statement[];

const parseParts: PartReader = (text, cache) =>
  (text.match(parts) ?? []).flatMap((part) => cached(part, cache, parsePart).statements);

function cached(text: string, cache: PartCache, read: PartReader): Part {
  const known = cache.parts.get(text);
  if (known !== undefined) return known;
  const part = { text, statements: read(text, cache), isShared: !isDistinct(text), next: null };
  if (part.isShared && cache.parts.size < maxCachedParts) cache.parts.set(text, part);
  return part;
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
    case '-f': // fragments after the first
      return [negate ? { kind: 'note', text: '! -f' } : { kind: 'never', text: '-f' }];
    default:
      return [{ kind: 'unknown', text: part }];
  }
}

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

const verdicts: Readonly<Record<string, Action>> = {
  ACCEPT: { kind: 'accept' },
  DROP: { kind: 'drop' },
  RETURN: { kind: 'return' },
  NOTRACK: { kind: 'notrack' },
};

export const noteTargets = new Set([
  ...['LOG', 'NFLOG', 'ULOG', 'TRACE', 'AUDIT', 'DSCP', 'TOS', 'TTL', 'HL', 'TCPMSS', 'ECN'],
  ...['TCPOPTSTRIP', 'CHECKSUM', 'CLASSIFY', 'LED', 'RATEEST', 'SET', 'SECMARK', 'CONNSECMARK'],
  ...['TEE', 'IDLETIMER'],
]);

/** The action of `-j name`; `text` has its options, too. A name of no target is that of a chain. */
export function targetOf(name: string, options: readonly Option[], text: string): Action {
  if (name.length > longest) return { kind: 'jump', chain: name, endpoint: undefined };
  const verdict = verdicts[name];
  if (verdict !== undefined) return verdict;
  if (noteTargets.has(name)) return { kind: 'note', text };
  const read = targets[name];
  if (read !== undefined) return read(options, text) ?? { kind: 'unknown verdict', text };
  return options.length > 0 ? { kind: 'unknown verdict', text } : { kind: 'jump', chain: name };
}

type Reader = (options: readonly Option[], text: string) => Action | null;

/** Names longer than any target's are chains: most are, and need not be looked for. */
const longest = 11;

const valueOf = (options: readonly Option[], name: string): string | undefined =>
  options.find((option) => option.name === name)?.values[0];

const has = (options: readonly Option[], ...names: string[]): boolean =>
  options.some(({ name }) => names.includes(name));

const targets: Readonly<Record<string, Reader>> = {
  REJECT: (_options, text) => ({ kind: 'reject', text }),
  DNAT: (options, text) => translation('dnat', options, text),
  SNAT: (options, text) => translation('snat', options, text),
  MASQUERADE: (options, text) => {
    const random = has(options, '--random', '--random-fully', '--to-ports');
    return { kind: 'masquerade', random, text };
  },
  REDIRECT: (options, text) => {
    const written = valueOf(options, '--to-ports');
    if (written === undefined) return { kind: 'redirect', ports: null, text };
    const ports = portRange(written, '-');
    return ports && { kind: 'redirect', ports, text };
  },
  NETMAP: (options, text) => {
    const to = parseNetwork(valueOf(options, '--to') ?? '');
    return to && { kind: 'netmap', to, text };
  },
  MARK: (options, text) => setMark('mark', options) ?? unknownMark(text),
  CONNMARK: (options, text) => connectionMark(options) ?? unknownMark(text),
  CT: (options, text) => {
    if (has(options, '--notrack')) return { kind: 'notrack' };
    const harmless = ['--helper', '--ctevents', '--expevents', '--timeout'];
    return options.every(({ name }) => harmless.includes(name)) ? { kind: 'note', text } : null;
  },
};

const unknownMark = (text: string): Action => ({ kind: 'unknown mark', bits: 0xffffffff, text });

/** `A`, `A-A`, `A:P`, `A:P-P`, `:P`, and with brackets for IPv6: without them it has no port. */
function translation(
  kind: 'dnat' | 'snat',
  options: readonly Option[],
  text: string,
): Action | null {
  const to = valueOf(options, kind === 'dnat' ? '--to-destination' : '--to-source');
  if (to === undefined) return null;
  const isBareSix = !to.startsWith('[') && to.indexOf(':') !== to.lastIndexOf(':');
  const colon = isBareSix ? -1 : to.indexOf(':', to.lastIndexOf(']') + 1);
  const address = (colon < 0 ? to : to.slice(0, colon)).replace(/[[\]]/g, '');
  const addresses = address === '' ? null : parseNetwork(address);
  const ports = colon < 0 ? null : portRange(to.slice(colon + 1), '-');
  if ((address !== '' && addresses === null) || (colon >= 0 && ports === null)) return null;
  return { kind, to: { addresses, ports, random: has(options, '--random') }, text };
}

/** libxt_MARK: `--set-xmark V/M` clears the bits of M and flips V's; others are short for it. */
const markOptions: Readonly<Record<string, (value: number, mask: number) => [number, number]>> = {
  '--set-xmark': (value, mask) => [~mask, value],
  '--set-mark': (value, mask) => [~(mask | value), value],
  '--and-mark': (value) => [value, 0],
  '--or-mark': (value) => [~value, value],
  '--xor-mark': (value) => [0xffffffff, value],
};

function setMark(field: 'mark' | 'connection mark', options: readonly Option[]): Action | null {
  const [option, ...rest] = options;
  const [value = Number.NaN, mask = 0xffffffff] = (option?.values[0] ?? '').split('/').map(Number);
  if (rest.length > 0 || Number.isNaN(value + mask)) return null;
  const bits = markOptions[option?.name ?? '']?.(value, mask);
  return bits ? { kind: 'set mark', field, keep: bits[0] >>> 0, flip: bits[1] >>> 0 } : null;
}

/** libxt_CONNMARK: sets the connection's mark, or copies it under masks. */
function connectionMark(options: readonly Option[]): Action | null {
  if (!has(options, '--save-mark', '--restore-mark')) return setMark('connection mark', options);
  const mask = Number(valueOf(options, '--mask') ?? 0xffffffff);
  const packetMask = Number(valueOf(options, '--nfmask') ?? mask);
  const connectionMask = Number(valueOf(options, '--ctmask') ?? mask);
  if (Number.isNaN(packetMask + connectionMask)) return null;
  const direction = has(options, '--save-mark') ? 'save' : 'restore';
  return { kind: 'copy mark', direction, packetMask, connectionMask };
}

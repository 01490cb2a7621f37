// Chains of endpoints. A node of a large cluster has hundreds of thousands of chains that are alike
// but for their names, comments and one address: what comes from there goes one way, and all else
// is sent there. (kube-proxy's KUBE-SEP chains, kubernetes@v1.36.3 pkg/proxy/iptables/proxier.go;
// known by what the rules say, whoever wrote them.)
//
// The first of such chains is read as any other, and becomes the model of those that have the same
// text around the same holes. Of these only the holes are read, which is a tenth of the work; a
// packet that comes from there, or of which the last rule may not hold, makes the whole be read.

import { digitsAt, parseAddress } from './address.ts';
import { onlyValue } from './candidates.ts';
import type { PacketState } from './match.ts';
import { evaluate } from './match.ts';
import type { Action, Address, Chains, Endpoint, Match, Rule } from './ruleset.ts';

/** What may differ between chains that are alike. */
type Hole = 'name' | 'comment' | 'source' | 'goal';

/** The text of one chain, and what its rules say where they do not differ. */
export interface Model {
  /** Each before a hole. */
  readonly pieces: readonly string[];
  readonly holes: readonly Hole[];
  /** What the last rule asks for. */
  readonly matches: readonly Match[];
}

/** A chain of more rules is no endpoint's. */
export const mostRules = 4;

type Translation = Extract<Action, { kind: 'dnat' }>;

/** The translation that this packet comes to in a chain, if that can be told without reading it. */
export function straightTo(chains: Chains, name: string, state: PacketState): Translation | null {
  const endpoint = chains.endpoint(name);
  if (endpoint === null || endpoint.sources.includes(state.source)) return null;
  for (const match of endpoint.matches) if (evaluate(match, state) !== 'yes') return null;
  const { address, port } = endpoint;
  const [addresses, ports] = [
    { low: address, high: address },
    { low: port, high: port },
  ];
  return { kind: 'dnat', to: { addresses, ports, random: false }, text: '' };
}

/** What a chain does whose text is as the model's but for the holes; null: it is another. */
export function endpointOf(
  { pieces, holes, matches }: Model,
  text: string,
  name: string,
  start: number,
  stop: number,
): Endpoint | null {
  const sources: Address[] = [];
  let at = start;
  for (let hole = 0; hole < holes.length; hole++) {
    const piece = pieces[hole] ?? '';
    if (!text.startsWith(piece, at)) return null;
    at += piece.length;
    let end = at + name.length;
    switch (holes[hole]) {
      case 'name':
        if (!text.startsWith(name, at)) return null;
        break;
      case 'comment':
        end = text.charCodeAt(at) === quote ? quoteEnd(text, at) : text.indexOf(' ', at);
        break;
      case 'source': {
        end = text.indexOf('/', at);
        const source = end < stop ? parseAddress(text, at, end) : null;
        if (source === null) return null;
        sources.push(source);
        break;
      }
      default: {
        const goal = goalAt(text, at, stop);
        return goal && { sources, address: goal.address, port: goal.port, matches };
      }
    }
    if (end < 0 || end >= stop) return null;
    at = end;
  }
  return null;
}

const quote = 34;
const backslash = 92;
const bracket = 91;

/** Behind a comment in quotes; -1: it has quotes of its own, or a backslash at its end. */
function quoteEnd(text: string, at: number): number {
  const close = text.indexOf('"', at + 1);
  return text.charCodeAt(close - 1) === backslash ? -1 : close + 1;
}

/** `A:P` or `[A]:P`, and nothing behind it. */
function goalAt(text: string, at: number, stop: number) {
  const colon = text.lastIndexOf(':', stop - 1);
  const isSix = text.charCodeAt(at) === bracket;
  const address = isSix ? parseAddress(text, at + 1, colon - 1) : parseAddress(text, at, colon);
  const port = digitsAt(text, colon + 1, stop);
  if (address === null || (typeof address === 'bigint') !== isSix) return null;
  return port === null || port > 65_535 ? null : { address, port };
}

/** The model that a chain makes which was read; null: it is no endpoint's. */
export function modelOf(
  rules: readonly Rule[],
  text: string,
  name: string,
  start: number,
  stop: number,
): Model | null {
  const last = rules.at(-1);
  const matches = last === undefined ? null : matchesOf(last);
  if (matches === null) return null;
  const pieces: string[] = [];
  const holes: Hole[] = [];
  let before = '';
  let piece = start;
  for (const { 0: word, index } of text.slice(start, stop).matchAll(/"(?:\\.|[^"\\])*"|[^ \n]+/g)) {
    const hole = holeBehind(before, word);
    before = word;
    if (hole === null) continue;
    const at = start + index;
    pieces.push(text.slice(piece, at));
    holes.push(hole);
    piece = at + (hole === 'source' ? word.indexOf('/') : word.length);
  }
  const model = { pieces, holes, matches };
  const endpoint = endpointOf(model, text, name, start, stop);
  return endpoint !== null && says(rules, endpoint) ? model : null;
}

function holeBehind(option: string, word: string): Hole | null {
  if (option === '-A') return 'name';
  if (option === '--comment') return 'comment';
  if (option === '--to-destination') return 'goal';
  return option === '-s' && /\/(?:32|128)$/.test(word) ? 'source' : null;
}

/** What a rule asks for that does nothing but translate; null: it does more, or asks who sends. */
function matchesOf({ statements }: Rule): readonly Match[] | null {
  const matches: Match[] = [];
  for (const statement of statements.slice(0, -1)) {
    switch (statement.kind) {
      case 'note':
        break;
      case 'interface':
      case 'state':
      case 'address type':
        matches.push(statement);
        break;
      case 'field':
        if (statement.field === 'source') return null;
        matches.push(statement);
        break;
      default:
        return null;
    }
  }
  return matches;
}

/** Whether this is what the rules say that were read. */
function says(rules: readonly Rule[], { sources, address, port }: Endpoint): boolean {
  const own = rules.slice(0, -1).map((rule) => onlyValue(rule, 'source'));
  const goal = rules.at(-1)?.statements.at(-1);
  if (goal?.kind !== 'dnat' || goal.to === null || goal.to.random) return false;
  const { addresses, ports } = goal.to;
  const told = [addresses?.low, addresses?.high, ports?.low, ports?.high, ...own];
  const read = [address, address, port, port, ...sources];
  return told.length === read.length && told.every((value, at) => value === read[at]);
}

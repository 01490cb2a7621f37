// Chains of endpoints. A node of a large cluster has hundreds of thousands of chains that are alike
// but for their names, comments and one address: what comes from there goes one way, and all else
// is sent there. (kube-proxy's KUBE-SEP chains, kubernetes@v1.36.3 pkg/proxy/iptables/proxier.go;
// known by what the rules say, whoever wrote them.)
//
// The first of such chains is read as any other, and becomes the model of those that have the same
// text around the same holes. Of these only the goal is read, when a packet comes there. One that
// comes from the endpoint itself, or of which the last rule may not hold, makes the whole be read.

import { digitsAt, parseAddress } from '../address.ts';
import type { Action, Chains, DnatTarget, Match, Rule } from '../ruleset.ts';
import type { PacketState } from './match.ts';
import { evaluate } from './match.ts';
import { onlyValue } from './rule-index.ts';

/** What may differ between chains that are alike; all sources are the goal's address. */
type Hole = 'name' | 'comment' | 'source' | 'goal';

/** The text of one chain, and what its rules say where they do not differ. */
export interface Model {
  /** Each before a hole; the last hole is the goal. */
  readonly pieces: readonly string[];
  readonly holes: readonly Hole[];
  /** How many rules. */
  readonly lines: number;
  /** What the last rule asks for. */
  readonly matches: readonly Match[];
}

/** A chain of more rules is no endpoint's. */
export const mostLines = 4;

type Translation = Extract<Action, { kind: 'dnat' }>;

/** The translation that this packet comes to in a chain, if that can be told without reading it. */
export function straightTo(chains: Chains, name: string, state: PacketState): Translation | null {
  const endpoint = chains.endpoint(name);
  if (endpoint === null) return null;
  const { address, port, matches, sparesItself } = endpoint;
  if (sparesItself && state.source === address) return null;
  if (!matches.every((match) => evaluate(match, state) === 'yes')) return null;
  const addresses = { low: address, high: address };
  const ports = { low: port, high: port };
  return { kind: 'dnat', to: { addresses, ports, random: false }, text: '' };
}

/** Where the goal of a chain stands that begins here and is as the model; -1: it is another. */
export function goalIn(
  { pieces, holes }: Model,
  text: string,
  name: string,
  start: number,
): number {
  let at = start;
  let source = '';
  for (let hole = 0; hole < holes.length; hole++) {
    const piece = pieces[hole] ?? '';
    if (!text.startsWith(piece, at)) return -1;
    at += piece.length;
    switch (holes[hole]) {
      case 'name':
        if (!text.startsWith(name, at)) return -1;
        at += name.length;
        break;
      case 'comment':
        at = commentEnd(text, at);
        if (at < 0) return -1;
        break;
      case 'source': {
        const slash = text.indexOf('/', at);
        const own = text.slice(at, slash);
        if (source !== '' && own !== source) return -1;
        source = own;
        at = slash;
        break;
      }
      default: {
        if (source === '') return at;
        const isSix = text.charCodeAt(at) === bracket;
        const from = isSix ? at + 1 : at;
        const isItself = text.startsWith(source, from);
        const behind = text.charCodeAt(from + source.length);
        return isItself && behind === (isSix ? closing : colon) ? at : -1;
      }
    }
  }
  return -1;
}

const [quote, colon, bracket, backslash, closing] = [34, 58, 91, 92, 93];

/** Behind a comment; -1: it has quotes of its own, or a backslash at its end. */
function commentEnd(text: string, at: number): number {
  const newline = text.indexOf('\n', at);
  const isQuoted = text.charCodeAt(at) === quote;
  const end = isQuoted ? text.indexOf('"', at + 1) : text.indexOf(' ', at);
  if (end < 0 || end > newline) return -1;
  if (!isQuoted) return end;
  return text.charCodeAt(end - 1) === backslash ? -1 : end + 1;
}

/** What a chain does whose goal stands here, up to the end of its line; null: that is not plain. */
export function endpointAt(model: Model, text: string, at: number, end: number): DnatTarget | null {
  const { lines, matches } = model;
  const last = text.lastIndexOf(':', end - 1);
  const isSix = text.charCodeAt(at) === bracket && text.charCodeAt(last - 1) === closing;
  const address = isSix ? parseAddress(text, at + 1, last - 1) : parseAddress(text, at, last);
  const port = digitsAt(text, last + 1, end);
  if (address === null || (typeof address === 'bigint') !== isSix) return null;
  if (port === null || port > 65_535) return null;
  return { address, port, matches, sparesItself: lines > 1 };
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
  const words = text.slice(start, stop).matchAll(/"(?:\\.|[^"\\])*"|[^ \n]+/g);
  for (const { 0: word, index } of words) {
    const hole = holeBehind(before, word);
    // What stands in a hole is no option, whatever it says.
    before = hole === null ? word : '';
    if (hole === null) continue;
    const at = start + index;
    pieces.push(text.slice(piece, at));
    holes.push(hole);
    piece = at + (hole === 'source' ? word.indexOf('/') : word.length);
  }
  // Each rule before the last asks for its sender in a hole, and not elsewhere.
  if (holes.filter((hole) => hole === 'source').length !== rules.length - 1) return null;
  const model = { pieces, holes, lines: rules.length, matches };
  const goal = goalIn(model, text, name, start);
  const endpoint = goal < 0 ? null : endpointAt(model, text, goal, stop);
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
function says(rules: readonly Rule[], { address, port }: DnatTarget): boolean {
  const others = rules.slice(0, -1);
  const goal = rules.at(-1)?.statements.at(-1);
  if (goal?.kind !== 'dnat' || goal.to === null || goal.to.random) return false;
  const { addresses, ports } = goal.to;
  const isGoal = addresses?.low === address && addresses.high === address;
  const isPort = ports?.low === port && ports.high === port;
  const areItself = others.every((rule) => onlyValue(rule, 'source') === address);
  return isGoal && isPort && areItself;
}

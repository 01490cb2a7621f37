// The way through one base chain and all chains that it calls. Where more than one thing can happen
// the way forks:
//
//   chance       both ways are walked, each with its share
//   memory       `recent` and sets that rules fill: the outcome is that of a source that is not
//                remembered; memory shows as affinity, or as unknown if it rejects or drops
//   unknown      both ways are walked, and the hull of both is kept
//
// What follows a place, for a packet in the same state, is worked out once (`restOf`): otherwise n
// forks one behind the other would make 2ⁿ ways.

import type { Action, Chain, DnatTarget, Element, Match, Rule } from '../ruleset.ts';
import { only } from '../ruleset.ts';
import { changeMark, send, translate } from './actions.ts';
import type { BaseChain } from './hooks.ts';
import { candidatesOf, evaluate, lookup } from './match.ts';
import { addHull, addTally, count, isDestination, tallyOf } from './outcome-shares.ts';
import { continueTranslated, forkedTooOften } from './walk-cache.ts';
import type { PacketState, Tally, Walk } from './walk-state.ts';

interface Frame {
  readonly base: BaseChain;
  readonly chain: Chain;
  readonly rules: readonly Rule[];
  readonly next: number;
  readonly parent: Frame | null;
  readonly affinity: PacketState['affinity'];
  /** Something forked here, so that what follows may be asked for more than once. */
  readonly isFork: boolean;
  rest: Map<string, Tally> | null;
}

interface Run {
  readonly walk: Walk;
  readonly base: BaseChain;
  chain: Chain;
  rules: readonly Rule[];
  next: number;
  parent: Frame | null;
  /** The parent is the rest of this chain itself, after a fork. */
  forked: boolean;
  readonly state: PacketState;
}

interface Pending {
  readonly share: number;
  readonly unknown: Match | null;
  readonly memory: Extract<Match, { kind: 'remembered' }> | null;
}

const nothing: Pending = { share: 1, unknown: null, memory: null };

type Next = 'same rule' | 'next rule' | 'over';

/** More than this, and the rules are no node's. */
const mostSteps = 2_000_000;
const deepest = 400;

/** Walks a base chain, and on from there. */
export function runBase(walk: Walk, base: BaseChain, state: PacketState): void {
  const { chain } = base;
  const rules = candidatesOf(chain, state);
  finish({ walk, base, chain, rules, next: 0, parent: null, forked: false, state });
}

function finish(run: Run): void {
  for (;;) {
    const rule = run.rules[run.next];
    if (rule === undefined) {
      if (!leaveChain(run)) return;
      continue;
    }
    run.next++;
    if (run.walk.steps++ > mostSteps) {
      giveUp(run, rule.text);
      return;
    }
    if (applyRule(run, rule, 0, nothing) === 'over') return;
  }
}

function giveUp({ walk, state }: Run, rule: string): void {
  walk.unknown.set(forkedTooOften, { reason: forkedTooOften, rule });
  count(state, 'unknown');
}

/** At the end of a chain: back to its caller, or by the policy. Returns whether the run goes on. */
function leaveChain(run: Run): boolean {
  const { parent, state, walk, base } = run;
  if (parent === null) {
    if (base.base.policy === 'drop') count(state, 'drop');
    else walk.onward(walk, state);
    return false;
  }
  if (parent.isFork) {
    addTally(state.tally, restOf(walk, parent, state), state.weight);
    return false;
  }
  enter(run, parent.chain, parent.rules, parent.parent);
  run.next = parent.next;
  return true;
}

function enter(run: Run, chain: Chain, rules: readonly Rule[], parent: Frame | null): void {
  run.chain = chain;
  run.rules = rules;
  run.next = 0;
  run.parent = parent;
  run.forked = false;
}

function restOf(walk: Walk, frame: Frame, before: PacketState): Tally {
  const { base, chain, rules, next, parent, affinity } = frame;
  const key = keyOf({ ...before, affinity });
  const known = frame.rest?.get(key);
  if (known !== undefined) return known;
  walk.depth++;
  const tally = tallyOf(before, (state) => {
    state.affinity = affinity;
    const run: Run = { walk, base, chain, rules, next, parent, forked: false, state };
    if (walk.depth > deepest) giveUp(run, rules[next]?.text ?? '');
    else finish(run);
  });
  walk.depth--;
  frame.rest ??= new Map();
  frame.rest.set(key, tally);
  return tally;
}

function keyOf(state: PacketState): string {
  let remembered = '';
  for (let at = state.remembered; at !== null; at = at.tail) remembered += ` ${at.head}`;
  const { mark, connectionMark } = state;
  return [
    ...[mark.value, mark.known, connectionMark.value, connectionMark.known],
    ...[state.entry, state.goal, state.masqueraded, state.translated, state.sourceTranslated],
    ...[state.affinity?.name, remembered],
  ].join('|');
}

function applyRule(run: Run, rule: Rule, from: number, before: Pending): Next {
  let { share, unknown, memory } = before;
  const { statements } = rule;
  for (let at = from; at < statements.length; at++) {
    const statement = statements[at];
    if (statement === undefined) break;
    switch (statement.kind) {
      case 'note':
        break;
      case 'random':
        share *= statement.probability;
        break;
      case 'remembered':
        if (statement.negate) unknown ??= statement;
        else memory = statement;
        break;
      case 'field':
      case 'interface':
      case 'state':
      case 'address type':
      case 'lookup':
      case 'never':
      case 'unknown': {
        const answer = evaluate(statement, run.state);
        if (answer === 'no') return 'next rule';
        if (answer === 'unknown') unknown ??= statement;
        break;
      }
      default: {
        if (share !== 1 || unknown !== null || memory !== null) {
          return fork(run, rule, at, { share, unknown, memory });
        }
        const next = perform(run, rule, statement);
        if (next !== 'same rule') return next;
      }
    }
  }
  return 'next rule';
}

function frameOf(run: Run): Frame {
  if (run.forked && run.parent !== null && run.next >= run.rules.length) return run.parent;
  return frameAt(run, true);
}

function frameAt({ base, chain, rules, next, parent, state }: Run, isFork: boolean): Frame {
  return { base, chain, rules, next, parent, affinity: state.affinity, isFork, rest: null };
}

function branch(run: Run, frame: Frame, state: PacketState, take: (beside: Run) => Next): void {
  const { walk, base, chain } = run;
  const beside: Run = { walk, base, chain, rules: [], next: 0, parent: frame, forked: true, state };
  if (take(beside) !== 'over') finish(beside);
}

function fork(run: Run, rule: Rule, at: number, { unknown, memory, share }: Pending): Next {
  const frame = frameOf(run);
  const { walk, state } = run;
  const match = unknown ?? memory;
  if (match === null) {
    const part = { ...state, weight: state.weight * share };
    if (share > 0) branch(run, frame, part, (beside) => applyRule(beside, rule, at, nothing));
    return goOn(run, frame, 1 - share);
  }
  const pending = { share, unknown: null, memory: unknown === null ? null : memory };
  const matched = tallyOf(state, (way) => {
    if (unknown === null) way.affinity = memory;
    branch(run, frame, way, (beside) => applyRule(beside, rule, at, pending));
  });
  if (unknown === null && [...matched.keys()].every(isDestination)) {
    addTally(state.tally, matched, 0);
    return goOn(run, frame, 1);
  }
  const reason = `whether it matches: ${'text' in match ? match.text : match.kind}`;
  return addWays(run, [matched, restOf(walk, frame, state)], rule, reason);
}

function addWays({ walk, state }: Run, ways: readonly Tally[], rule: Rule, reason: string): Next {
  if (addHull(state, ways)) addUnknown(walk, rule, reason);
  return 'over';
}

function goOn({ walk, state }: Run, frame: Frame, share: number): Next {
  if (share <= 0) return 'over';
  state.weight *= share;
  if (frame.rest === null) return 'next rule';
  addTally(state.tally, restOf(walk, frame, state), state.weight);
  return 'over';
}

function addUnknown(walk: Walk, rule: Rule, reason: string): void {
  walk.unknown.set(rule.text, { reason: `cannot tell ${reason}`, rule: rule.text });
}

function pass({ base, state }: Run, chain: string, rule: Rule | null): void {
  state.trace = { head: { chain, base, rule }, tail: state.trace };
}

function perform(run: Run, rule: Rule, action: Action): Next {
  const { state, walk } = run;
  if (action.kind === 'note') return 'same rule';
  pass(run, run.chain.name, rule);
  switch (action.kind) {
    case 'set mark':
    case 'copy mark':
    case 'unknown mark':
      changeMark(action, state);
      return 'same rule';
    case 'remember':
      state.remembered = { head: action.name, tail: state.remembered };
      return 'same rule';
    case 'notrack':
      if (state.entry === 'none') state.entry = 'untracked';
      return 'same rule';
    case 'accept':
      walk.onward(walk, state);
      return 'over';
    case 'drop':
    case 'reject':
      count(state, action.kind);
      return 'over';
    case 'return':
      return performReturn(run);
    case 'jump':
    case 'goto':
      return call(run, rule, action);
    case 'verdict map':
    case 'dnat by map':
      return performMap(run, rule, action);
    case 'unknown verdict':
      return performUnknown(run, rule, action.text);
    default:
      return translateRun(run, rule, action);
  }
}

function performReturn(run: Run): Next {
  run.parent = outerFrame(run);
  run.forked = false;
  run.next = run.rules.length;
  return 'next rule';
}

function call(run: Run, rule: Rule, action: Extract<Action, { kind: 'jump' | 'goto' }>): Next {
  const { kind, chain: name } = action;
  const chain = action.endpoint ?? run.base.table.chains.get(name);
  if (chain === undefined) return performUnknown(run, rule, `no chain ${name}`);
  const { target } = chain;
  if (target !== null) action.endpoint = chain;
  if (target !== null && isForTarget(target, run.state)) {
    pass(run, name, null);
    continueTranslated(run.walk, send(run.state, target.address, target.port));
    return 'over';
  }
  const rules = candidatesOf(chain, run.state);
  enter(run, chain, rules, kind === 'jump' ? callerOf(run) : outerFrame(run));
  return 'next rule';
}

/** Rules that are read record questions. */
const isForTarget = ({ protocol, except }: DnatTarget, packet: PacketState): boolean =>
  packet.questions === null &&
  packet.source !== except &&
  (protocol === null || protocol === packet.protocol);

function callerOf(run: Run): Frame | null {
  if (run.forked) return run.parent;
  // Nothing is left to do there: its own caller is next.
  if (run.next >= run.rules.length && run.parent !== null) return run.parent;
  return frameAt(run, false);
}

/** The caller of this chain: after a fork the parent is the rest of the chain itself. */
const outerFrame = (run: Run): Frame | null =>
  run.forked ? (run.parent?.parent ?? null) : run.parent;

function performUnknown(run: Run, rule: Rule, text: string): Next {
  const { walk, state } = run;
  const ways = ['drop', 'reject', 'unknown'].map((outcome) =>
    tallyOf(state, (way) => count(way, outcome)),
  );
  addHull(state, [...ways, restOf(walk, frameOf(run), state)]);
  addUnknown(walk, rule, `what it does: ${text}`);
  return 'over';
}

function drawn({ key }: Element, { modulus, offset }: { modulus: number; offset: number }): number {
  const [component] = key;
  if (component === undefined || typeof component === 'string') return 0;
  const low = Math.max(Number(component.low), offset);
  const high = Math.min(Number(component.high), offset + modulus - 1);
  return Math.max(0, high - low + 1);
}

function performMap(run: Run, rule: Rule, action: Extract<Action, { set: unknown }>): Next {
  const { key, set } = action;
  const { walk, state } = run;
  const { weight } = state;
  const takeElement = (frame: Frame, way: PacketState, element: Element): void =>
    branch(run, frame, way, (beside) =>
      action.kind === 'verdict map'
        ? performVerdict(beside, rule, element)
        : translateTo(beside, rule, element),
    );
  if (key.kind === 'numgen') {
    const frame = frameOf(run);
    let left = key.modulus;
    for (const element of set.elements) {
      const numbers = drawn(element, key);
      left -= numbers;
      const way = { ...state, weight: (weight * numbers) / key.modulus };
      if (numbers > 0) takeElement(frame, way, element);
    }
    return goOn(run, frame, left / key.modulus);
  }
  const found = set.dynamic ? 'unknown' : lookup(key, set, state);
  if (found === null) return 'next rule';
  const frame = frameOf(run);
  if (found !== 'unknown') {
    takeElement(frame, state, found);
    return 'over';
  }
  const ways = set.elements.map((element) =>
    tallyOf(state, (way) => takeElement(frame, way, element)),
  );
  const left = restOf(walk, frame, state);
  return addWays(run, [...ways, left], rule, `what it finds in ${set.name}`);
}

const performVerdict = (run: Run, rule: Rule, { verdict }: Element): Next =>
  verdict === null ? 'next rule' : perform(run, rule, verdict);

function translateTo(run: Run, rule: Rule, { data }: Element): Next {
  const [address, port] = data ?? [];
  const isAddress = typeof address === 'number' || typeof address === 'bigint';
  const ports = typeof port === 'number' ? only(port) : null;
  const to = isAddress ? { addresses: only(address), ports, random: false } : null;
  return translateRun(run, rule, { kind: 'dnat', to, text: rule.text });
}

/** NAT ends the nat chains; more than one result is possible where the kernel picks by a hash. */
function translateRun(run: Run, rule: Rule, action: Parameters<typeof translate>[0]): Next {
  const { walk, state } = run;
  const ways = translate(action, state);
  const [way] = ways;
  if (ways.length === 1 && way !== undefined) {
    if (way.goal === 'unknown') addUnknown(walk, rule, `where it sends: ${action.text}`);
    continueTranslated(walk, way);
    return 'over';
  }
  const tallies = ways.map((way) => tallyOf(way, (copy) => walk.onward(walk, copy)));
  return addWays(run, tallies, rule, `which it takes: ${action.text}`);
}

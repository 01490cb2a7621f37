// The way through one base chain and all chains that it calls. Rules are taken in order; a rule
// applies when all its matches hold, and its action decides what is next. Where more than one thing
// can happen the way forks:
//
//   chance       both ways are walked, each with its share
//   memory       `recent` and sets that rules fill: a source that is remembered goes one way, all
//                others the other. The outcome is that of the others; who is remembered shows as
//                affinity. Where more than the destination hangs on it, it is unknown
//   unknown      both ways are walked, and the hull of both is kept
//
// A fork that comes back to the chain it left finds the rest of the chain walked already: what
// follows a place, for a packet in the same state, is worked out once (`restOf`). Without this, n
// forks one behind the other would make 2ⁿ ways.

import type { Action, Chain, DnatTarget, Element, Match, Rule } from '../ruleset.ts';
import { only } from '../ruleset.ts';
import type { BaseChain } from './hooks.ts';
import { changeMark } from './mark.ts';
import type { PacketState } from './match.ts';
import { evaluate, lookup } from './match.ts';
import { translate } from './nat.ts';
import type { Tally } from './outcome-shares.ts';
import { addHull, addTally, count, isDestination, tallyOf } from './outcome-shares.ts';
import { candidatesOf } from './rule-index.ts';
import { continueTranslated, forkedTooOften } from './walk-cache.ts';
import type { Walk, WalkState } from './walk-state.ts';

/** A place in a chain, and where its caller is. */
interface Place {
  readonly base: BaseChain;
  readonly chain: Chain;
  readonly rules: readonly Rule[];
  readonly next: number;
  readonly parent: Frame | null;
}

/** One to come back to. */
interface Frame extends Place {
  /** The affinity in force when the packet was here. */
  readonly affinity: PacketState['affinity'];
  /** Something forked here, so that what follows may be asked for more than once. */
  readonly isFork: boolean;
  /** What follows, by state. */
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
  readonly traveller: WalkState;
  readonly tally: Tally;
  weight: number;
}

interface Pending {
  readonly share: number;
  readonly unknown: Match | null;
  readonly memory: Extract<Match, { kind: 'remembered' }> | null;
}

const nothing: Pending = { share: 1, unknown: null, memory: null };

/** What an action leaves: the rule goes on, the next rule is due, or the run is over. */
type Next = 'same rule' | 'next rule' | 'over';

/** More than this, and the rules are no node's. */
const mostSteps = 2_000_000;
const deepest = 400;

/** Walks a base chain, and on from there. */
export function runBase(
  walk: Walk,
  base: BaseChain,
  traveller: WalkState,
  tally: Tally,
  weight: number,
): void {
  const { chain } = base;
  const place = { base, chain, rules: candidatesOf(chain, traveller), next: 0, parent: null };
  finish(runAt(place, false, walk, traveller, tally, weight));
}

/** Spelt out, since every packet makes many of them. */
function runAt(
  { base, chain, rules, next, parent }: Place,
  forked: boolean,
  walk: Walk,
  traveller: WalkState,
  tally: Tally,
  weight: number,
): Run {
  return { walk, base, chain, rules, next, parent, forked, traveller, tally, weight };
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

function giveUp({ walk, traveller, tally, weight }: Run, rule: string): void {
  walk.unknown.set(forkedTooOften, { reason: forkedTooOften, rule });
  count(tally, 'unknown', weight, traveller);
}

/** At the end of a chain: back to its caller, or by the policy. Returns whether the run goes on. */
function leaveChain(run: Run): boolean {
  const { parent, traveller, tally, weight, walk, base } = run;
  if (parent === null) {
    if (base.base.policy === 'drop') count(tally, 'drop', weight, traveller);
    else walk.onward(walk, traveller, tally, weight);
    return false;
  }
  if (parent.isFork) {
    addTally(tally, restOf(walk, parent, traveller), weight);
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

/** What follows from a place on, for one packet as it is there. */
function restOf(walk: Walk, frame: Frame, traveller: WalkState): Tally {
  const state = { ...traveller, affinity: frame.affinity };
  const key = keyOf(state);
  const known = frame.rest?.get(key);
  if (known !== undefined) return known;
  const tally: Tally = new Map();
  const whole = runAt(frame, false, walk, state, tally, 1);
  const { text = '' } = frame.rules[frame.next] ?? {};
  walk.depth++;
  if (walk.depth > deepest) giveUp(whole, text);
  else finish(whole);
  walk.depth--;
  frame.rest ??= new Map();
  frame.rest.set(key, tally);
  return tally;
}

function keyOf(state: WalkState): string {
  let remembered = '';
  for (let at = state.remembered; at !== null; at = at.tail) remembered += ` ${at.head}`;
  return [
    ...[state.mark, state.markKnown, state.connectionMark, state.connectionMarkKnown],
    ...[state.entry, state.goal, state.masqueraded, state.translated, state.sourceTranslated],
    ...[state.affinity?.name, remembered],
  ].join('|');
}

/** Takes a rule from one of its statements on. */
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
        const answer = evaluate(statement, run.traveller);
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

/** The place that a run is at, to come back to from a fork. */
function frameOf(run: Run): Frame {
  if (run.forked && run.parent !== null && run.next >= run.rules.length) return run.parent;
  return frameAt(run, true);
}

function frameAt({ base, chain, rules, next, parent, traveller }: Run, isFork: boolean): Frame {
  const { affinity } = traveller;
  return { base, chain, rules, next, parent, affinity, isFork, rest: null };
}

const noRules: readonly Rule[] = [];

/** A run beside this one, that comes back to the frame. */
function branchOf(run: Run, frame: Frame, tally: Tally, weight: number): Run {
  const { base, chain, walk, traveller } = run;
  const place = { base, chain, rules: noRules, next: 0, parent: frame };
  return runAt(place, true, walk, { ...traveller }, tally, weight);
}

function takeBranch(branch: Run, rule: Rule, at: number, pending: Pending): void {
  if (applyRule(branch, rule, at, pending) !== 'over') finish(branch);
}

function fork(run: Run, rule: Rule, at: number, { unknown, memory, share }: Pending): Next {
  const frame = frameOf(run);
  const { walk, tally, weight, traveller } = run;
  if (unknown !== null) {
    const pending = { share, unknown: null, memory };
    const matched = tallyOf((part) => takeBranch(branchOf(run, frame, part, 1), rule, at, pending));
    return addWays(run, [matched, restOf(walk, frame, traveller)], rule, whether(unknown));
  }
  if (memory === null) {
    if (share > 0) takeBranch(branchOf(run, frame, tally, weight * share), rule, at, nothing);
    return goOn(run, frame, 1 - share);
  }
  const known = tallyOf((part) => {
    const branch = branchOf(run, frame, part, 1);
    branch.traveller.affinity = { name: memory.name, seconds: memory.seconds };
    takeBranch(branch, rule, at, { share, unknown: null, memory: null });
  });
  if ([...known.keys()].every(isDestination)) {
    addTally(tally, known, 0);
    return goOn(run, frame, 1);
  }
  return addWays(run, [known, restOf(walk, frame, traveller)], rule, whether(memory));
}

/** Ends the run with the hull of these; where they differ, `reason` is what is unknown. */
function addWays(run: Run, ways: readonly Tally[], rule: Rule, reason: string): Next {
  if (addHull(run.tally, ways, run.weight)) addUnknown(run.walk, rule, reason);
  return 'over';
}

/** The run itself takes what a fork left, unless that is worked out already. */
function goOn(run: Run, frame: Frame, share: number): Next {
  if (share <= 0) return 'over';
  run.weight *= share;
  if (frame.rest === null) return 'next rule';
  addTally(run.tally, restOf(run.walk, frame, run.traveller), run.weight);
  return 'over';
}

function addUnknown(walk: Walk, rule: Rule, reason: string): void {
  walk.unknown.set(rule.text, { reason: `cannot tell ${reason}`, rule: rule.text });
}

const whether = (match: Match): string =>
  `whether it matches: ${'text' in match ? match.text : match.kind}`;

function pass({ base, traveller }: Run, chain: string, rule: Rule | null): void {
  traveller.trace = { head: { chain, base, rule }, tail: traveller.trace };
}

/** Does what the rule says. */
function perform(run: Run, rule: Rule, action: Action): Next {
  const { traveller, tally, weight, walk } = run;
  if (action.kind === 'note') return 'same rule';
  pass(run, run.chain.name, rule);
  switch (action.kind) {
    case 'set mark':
    case 'copy mark':
    case 'unknown mark':
      changeMark(action, traveller);
      return 'same rule';
    case 'remember':
      traveller.remembered = { head: action.name, tail: traveller.remembered };
      return 'same rule';
    case 'notrack':
      if (traveller.entry === 'none') traveller.entry = 'untracked';
      return 'same rule';
    case 'accept':
      walk.onward(walk, traveller, tally, weight);
      return 'over';
    case 'drop':
    case 'reject':
      count(tally, action.kind, weight, traveller);
      return 'over';
    case 'return':
      return performReturn(run);
    case 'jump':
    case 'goto':
      return call(run, rule, action);
    case 'verdict map':
      return performMap(run, rule, action);
    case 'unknown verdict':
      return performUnknown(run, rule, action.text);
    case 'dnat by map':
      return translateByMap(run, rule, action);
    default:
      translateRun(run, rule, action);
      return 'over';
  }
}

function performReturn(run: Run): Next {
  // After a fork the parent is the rest of this chain: the caller is behind it.
  if (run.forked) run.parent = run.parent?.parent ?? null;
  run.forked = false;
  run.next = run.rules.length;
  return 'next rule';
}

type Call = Extract<Action, { kind: 'jump' | 'goto' }>;

function call(run: Run, rule: Rule, action: Call): Next {
  const { kind, chain: name } = action;
  const chain = action.endpoint ?? run.base.table.chains.get(name);
  if (chain === undefined) return performUnknown(run, rule, `no chain ${name}`);
  const { target } = chain;
  if (target !== null) action.endpoint = chain;
  if (target !== null && isForTarget(target, run.traveller)) {
    pass(run, name, null);
    const to = { addresses: only(target.address), ports: only(target.port), random: false };
    translateRun(run, rule, { kind: 'dnat', to, text: '' });
    return 'over';
  }
  const rules = candidatesOf(chain, run.traveller);
  enter(run, chain, rules, kind === 'jump' ? callerOf(run) : afterGoto(run));
  return 'next rule';
}

const isForTarget = ({ protocol, except }: DnatTarget, packet: PacketState): boolean =>
  packet.source !== except && (protocol === null || protocol === packet.protocol);

function callerOf(run: Run): Frame | null {
  if (run.forked) return run.parent;
  // Nothing is left to do there: its own caller is next.
  if (run.next >= run.rules.length && run.parent !== null) return run.parent;
  return frameAt(run, false);
}

const afterGoto = (run: Run): Frame | null =>
  run.forked ? (run.parent?.parent ?? null) : run.parent;

/** A verdict that is not modelled may be any. */
function performUnknown(run: Run, rule: Rule, text: string): Next {
  const { walk, traveller } = run;
  const ways = ['drop', 'reject', 'unknown'].map((outcome) =>
    tallyOf((way) => count(way, outcome, 1, traveller)),
  );
  addHull(run.tally, [...ways, restOf(walk, frameOf(run), traveller)], run.weight);
  addUnknown(walk, rule, `what it does: ${text}`);
  return 'over';
}

type MapAction = Extract<Action, { kind: 'verdict map' | 'dnat by map' }>;

/** How many of the numbers that are drawn lead to the element. */
function drawn({ key }: Element, { modulus, offset }: { modulus: number; offset: number }): number {
  const [component] = key;
  if (component === undefined || typeof component === 'string') return 0;
  const low = Math.max(Number(component.low), offset);
  const high = Math.min(Number(component.high), offset + modulus - 1);
  return Math.max(0, high - low + 1);
}

/** A branch for every element that may be found, and the rest for those that find none. */
function eachElement(run: Run, rule: Rule, action: MapAction, take: TakeElement): Next {
  const { key, set } = action;
  const { tally, weight, walk, traveller } = run;
  if (key.kind === 'numgen') {
    const frame = frameOf(run);
    let left = key.modulus;
    for (const element of set.elements) {
      const numbers = drawn(element, key);
      left -= numbers;
      if (numbers === 0) continue;
      take(branchOf(run, frame, tally, (weight * numbers) / key.modulus), element);
    }
    return goOn(run, frame, left / key.modulus);
  }
  const found = set.dynamic ? 'unknown' : lookup(key, set, traveller);
  if (found === null) return 'next rule';
  const frame = frameOf(run);
  if (found !== 'unknown') {
    take(branchOf(run, frame, tally, weight), found);
    return 'over';
  }
  const ways = set.elements.map((element) =>
    tallyOf((way) => take(branchOf(run, frame, way, 1), element)),
  );
  const left = restOf(walk, frame, traveller);
  return addWays(run, [...ways, left], rule, `what it finds in ${set.name}`);
}

type TakeElement = (branch: Run, element: Element) => void;

const performMap = (run: Run, rule: Rule, action: MapAction): Next =>
  eachElement(run, rule, action, (branch, { verdict }) => {
    if (verdict === null || perform(branch, rule, verdict) !== 'over') finish(branch);
  });

function translateByMap(run: Run, rule: Rule, action: MapAction): Next {
  return eachElement(run, rule, action, (branch, { data }) => {
    const [address, port] = data ?? [];
    const isAddress = typeof address === 'number' || typeof address === 'bigint';
    const ports = typeof port === 'number' ? only(port) : null;
    const to = isAddress ? { addresses: only(address), ports, random: false } : null;
    translateRun(branch, rule, { kind: 'dnat', to, text: rule.text });
  });
}

type TranslationAction = Parameters<typeof translate>[0];

/** NAT ends the nat chains; more than one result is possible where the kernel picks by a hash. */
function translateRun(run: Run, rule: Rule, action: TranslationAction): void {
  const { walk, tally, weight, traveller } = run;
  const ways = translate(action, traveller, walk.own);
  const [only] = ways;
  if (ways.length === 1 && only !== undefined) {
    if (only.goal === 'unknown') addUnknown(walk, rule, `where it sends: ${action.text}`);
    continueTranslated(walk, only, tally, weight);
    return;
  }
  const tallies = ways.map((way) => tallyOf((part) => walk.onward(walk, way, part, 1)));
  addWays(run, tallies, rule, `which it takes: ${action.text}`);
}

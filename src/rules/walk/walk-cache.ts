// Where packets go on once a rule has translated their destination. A Service of many endpoints
// sends as many packets on, from Service to Service the same ones but for where they go; and the
// rules behind hardly ever ask for that. So the first of a kind goes on by itself, and what it is
// asked of where it goes is kept with the answers (match.ts), and what became of it. The first
// question is the same for all of its kind, and by the answers so far so is the next: a tree that
// others go through. Who comes to an end of it fares as the one that made it, with a goal of its
// own. Who gives an answer that nobody gave before goes on by itself, too.

import type { Hooks } from './hooks.ts';
import type { MatchQuestion, List, PassedRule } from './match.ts';
import type { Tally } from './outcome-shares.ts';
import { addShare } from './outcome-shares.ts';
import type { DecisionTree, WalkState, DecisionNode, Walk, DecisionLeaf } from './walk-state.ts';

/** A node has few kinds: by sender, protocol and mark. */
const maxTrees = 16;

/** Where rules ask for each destination by itself, there are many ways, each for a few packets. */
const maxLeaves = 64;

/** Why a walk is given up: of that, how a packet came here is the reason. */
export const forkedTooOften = 'the rules fork too often';

const known = new WeakMap<Hooks, WeakMap<object, DecisionTree[]>>();

/** What is known of packets that these hooks of a node let go on; `node` stands for the node. */
export function treesOf(hooks: Hooks, node: object): DecisionTree[] {
  const ofNodes = known.get(hooks) ?? new WeakMap<object, DecisionTree[]>();
  known.set(hooks, ofNodes);
  const kinds = ofNodes.get(node) ?? [];
  ofNodes.set(node, kinds);
  return kinds;
}

const newNode = (): DecisionNode => ({ question: null, branches: new Map(), leaf: null });

/** Takes a packet on that was translated just now; what follows adds to the tally. */
export function continueTranslated(
  walk: Walk,
  traveller: WalkState,
  tally: Tally,
  weight: number,
): void {
  const { destination, destinationPort, goal, remembered, affinity, questions: asked } = traveller;
  const isKnown = destination !== null && destinationPort !== null && goal !== null;
  if (!isKnown || remembered !== null || affinity !== null || asked !== null) {
    walk.onward(walk, traveller, tally, weight);
    return;
  }
  const kind = treeOf(walk, traveller);
  const way = leafOf(kind, traveller);
  if (way !== null) follow(walk, way, traveller, tally, weight);
  else if (kind.leaves >= maxLeaves) walk.onward(walk, traveller, tally, weight);
  else follow(walk, addLeaf(walk, kind, { ...traveller }), traveller, tally, weight);
}

function treeOf({ trees: kinds }: Walk, traveller: WalkState): DecisionTree {
  const known = kinds.find(({ first }) => isSameButDestination(first, traveller));
  if (known !== undefined) return known;
  const kind: DecisionTree = { first: { ...traveller }, root: newNode(), leaves: 0 };
  if (kinds.length >= maxTrees) kinds.shift();
  kinds.push(kind);
  return kind;
}

/** The way that a packet of this kind takes; null: it is not known. */
function leafOf({ root }: DecisionTree, traveller: WalkState): DecisionLeaf | null {
  let turn: DecisionNode | undefined = root;
  while (turn?.question) turn = turn.branches.get(turn.question(traveller));
  return turn?.leaf ?? null;
}

function addLeaf(walk: Walk, kind: DecisionTree, traveller: WalkState): DecisionLeaf {
  const { goal, trace } = traveller;
  const { unknown } = walk;
  const asked: MatchQuestion[] = [];
  const tally: Tally = new Map();
  walk.unknown = new Map();
  traveller.questions = asked;
  walk.onward(walk, traveller, tally, 1);
  const shares = [...tally].map(([fate, share]) => ({ fate, share }));
  const way: DecisionLeaf = { goal, trace, shares, unknown: walk.unknown };
  walk.unknown = unknown;
  if (way.unknown.has(forkedTooOften)) return way;
  let turn = kind.root;
  for (const { question, answer } of asked) {
    turn.question ??= question;
    const next = turn.branches.get(answer) ?? newNode();
    turn.branches.set(answer, next);
    turn = next;
  }
  turn.leaf = way;
  kind.leaves++;
  return way;
}

/** Whether two packets are alike but for where they go, and how they came there. */
export function isSameButDestination(one: WalkState, other: WalkState): boolean {
  return (
    one.source === other.source &&
    one.mark === other.mark &&
    one.hook === other.hook &&
    one.protocol === other.protocol &&
    one.from === other.from &&
    one.family === other.family &&
    one.stations === other.stations &&
    one.station === other.station &&
    one.nat === other.nat &&
    one.natNext === other.natNext &&
    one.markKnown === other.markKnown &&
    one.connectionMark === other.connectionMark &&
    one.connectionMarkKnown === other.connectionMarkKnown &&
    one.entry === other.entry &&
    one.translated === other.translated &&
    one.sourceTranslated === other.sourceTranslated &&
    one.rewritten === other.rewritten &&
    one.masqueraded === other.masqueraded &&
    one.toNode === other.toNode &&
    one.in === other.in &&
    one.out === other.out
  );
}

/** Adds so much of what became of another packet, as what becomes of this one. */
function follow(
  walk: Walk,
  way: DecisionLeaf,
  traveller: WalkState,
  tally: Tally,
  weight: number,
): void {
  for (const { fate, share } of way.shares) {
    const { low, high, masquerade, remembered, affinity } = share;
    const trace = behind(traveller.trace, share.trace, way.trace);
    const own = { low: low * weight, high: high * weight, masquerade, trace, remembered, affinity };
    addShare(tally, fate === way.goal && traveller.goal !== null ? traveller.goal : fate, own);
  }
  if (way.unknown.size === 0) return;
  for (const [key, reason] of way.unknown) walk.unknown.set(key, reason);
}

/** The steps of a way since it began, behind those of another. */
const behind = (
  own: List<PassedRule> | null,
  way: List<PassedRule> | null,
  begun: List<PassedRule> | null,
): List<PassedRule> | null =>
  way === begun || way === null ? own : { head: way.head, tail: behind(own, way.tail, begun) };

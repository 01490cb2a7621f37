// Caches the outcomes of packets whose destination was just translated. A Service with many
// endpoints translates packets that differ only in their destination, and the rules behind rarely
// depend on it. The first packet is walked in full. The cache records each question that depends on
// its destination (match.ts), the answer, and the outcome: a path in a decision tree, with
// questions as nodes, answers as branches and outcomes as leaves. A packet that reaches a leaf
// takes the outcome recorded there, with its own destination. A packet whose answers match no
// recorded branch is walked in full and adds a branch.

import type { Hooks } from './hooks.ts';
import type { MatchQuestion, List, PassedRule } from './match.ts';
import type { Tally } from './outcome-shares.ts';
import { addShare } from './outcome-shares.ts';
import type { DecisionTree, WalkState, DecisionNode, Walk, DecisionLeaf } from './walk-state.ts';

/** A node needs few trees: by sender, protocol and mark. */
const maxTrees = 16;

/** Where rules ask for each destination by itself, there are many ways, each for a few packets. */
const maxLeaves = 64;

/** Why a walk is given up: of that, how a packet came here is the reason. */
export const forkedTooOften = 'the rules fork too often';

const known = new WeakMap<Hooks, WeakMap<object, DecisionTree[]>>();

/** The decision trees for these hooks of a node; `node` is its identity. */
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

/** Whether two packets differ only in their destination and in how they came there. */
export function isSameButDestination(state: WalkState, other: WalkState): boolean {
  return (
    state.source === other.source &&
    state.mark === other.mark &&
    state.hook === other.hook &&
    state.protocol === other.protocol &&
    state.from === other.from &&
    state.family === other.family &&
    state.stations === other.stations &&
    state.station === other.station &&
    state.nat === other.nat &&
    state.natNext === other.natNext &&
    state.markKnown === other.markKnown &&
    state.connectionMark === other.connectionMark &&
    state.connectionMarkKnown === other.connectionMarkKnown &&
    state.entry === other.entry &&
    state.translated === other.translated &&
    state.sourceTranslated === other.sourceTranslated &&
    state.rewritten === other.rewritten &&
    state.masqueraded === other.masqueraded &&
    state.toNode === other.toNode &&
    state.in === other.in &&
    state.out === other.out
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
  ownSteps: List<PassedRule> | null,
  way: List<PassedRule> | null,
  begun: List<PassedRule> | null,
): List<PassedRule> | null =>
  way === begun || way === null
    ? ownSteps
    : { head: way.head, tail: behind(ownSteps, way.tail, begun) };

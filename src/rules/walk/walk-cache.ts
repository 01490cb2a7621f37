// Caches the outcomes of packets whose destination was just translated. A Service with many
// endpoints translates packets that differ only in their destination, and the rules behind rarely
// depend on it. The first packet is walked in full. The cache records each question that depends on
// its destination (match.ts), the answer, and the outcome: a path in a decision tree, with
// questions as nodes, answers as branches and outcomes as leaves. A packet that reaches a leaf
// takes the outcome recorded there, with its own destination. A packet whose answers match no
// recorded branch is walked in full and adds a branch.

import type { List, PassedRule } from './match.ts';
import type { Tally } from './outcome-shares.ts';
import { addShare, tallyOf } from './outcome-shares.ts';
import type { DecisionLeaf, DecisionNode, DecisionTree, Walk, WalkState } from './walk-state.ts';

/** A node needs few trees: by sender, protocol and mark. */
const maxTrees = 16;

/** Where rules ask for each destination by itself, there are many ways, each for a few packets. */
const maxLeaves = 64;

/** Why a walk is given up: of that, how a packet came here is the reason. */
export const forkedTooOften = 'the rules fork too often';

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
  const tree = treeOf(walk, traveller);
  const leaf = leafOf(tree, traveller);
  if (leaf !== null) follow(walk, leaf, traveller, tally, weight);
  else if (tree.leaves >= maxLeaves) walk.onward(walk, traveller, tally, weight);
  else follow(walk, addLeaf(walk, tree, { ...traveller }), traveller, tally, weight);
}

function treeOf({ trees }: Walk, traveller: WalkState): DecisionTree {
  const known = trees.find(({ first }) => isSameButDestination(first, traveller));
  if (known !== undefined) return known;
  const tree: DecisionTree = { first: { ...traveller }, root: newNode(), leaves: 0 };
  if (trees.length >= maxTrees) trees.shift();
  trees.push(tree);
  return tree;
}

/** The leaf that the packet reaches; null: there is none yet. */
function leafOf({ root }: DecisionTree, traveller: WalkState): DecisionLeaf | null {
  let node: DecisionNode | undefined = root;
  while (node?.question) node = node.branches.get(node.question(traveller));
  return node?.leaf ?? null;
}

function addLeaf(walk: Walk, tree: DecisionTree, traveller: WalkState): DecisionLeaf {
  const { goal, trace } = traveller;
  const { unknown } = walk;
  walk.unknown = new Map();
  traveller.questions = [];
  const tally = tallyOf((all) => walk.onward(walk, traveller, all, 1));
  const leaf: DecisionLeaf = { goal, trace, shares: [...tally], unknown: walk.unknown };
  walk.unknown = unknown;
  if (leaf.unknown.has(forkedTooOften)) return leaf;
  let node = tree.root;
  for (const { question, answer } of traveller.questions) {
    node.question ??= question;
    const next = node.branches.get(answer) ?? newNode();
    node.branches.set(answer, next);
    node = next;
  }
  node.leaf = leaf;
  tree.leaves++;
  return leaf;
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
  leaf: DecisionLeaf,
  traveller: WalkState,
  tally: Tally,
  weight: number,
): void {
  for (const [outcome, share] of leaf.shares) {
    const { low, high, masquerade, remembered, affinity } = share;
    const trace = behind(traveller.trace, share.trace, leaf.trace);
    const own = { low: low * weight, high: high * weight, masquerade, trace, remembered, affinity };
    addShare(tally, outcome === leaf.goal ? (traveller.goal ?? outcome) : outcome, own);
  }
  for (const [key, reason] of leaf.unknown) walk.unknown.set(key, reason);
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

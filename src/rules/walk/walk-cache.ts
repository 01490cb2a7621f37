// Caches the outcomes of packets whose destination was just translated. A Service with many
// endpoints translates packets that differ only in their destination, and the rules behind rarely
// depend on it. The first packet is walked in full. Each question that depends on its destination
// (`askPacket`), the answer and the outcome become a path in a decision tree. A packet whose
// answers lead to a leaf takes the outcome there; another is walked in full and adds a branch.

import { addShare, tallyOf } from './outcome-shares.ts';
import type { DecisionLeaf, DecisionNode, DecisionTree, PacketState, Walk } from './walk-state.ts';

const maxTrees = 16;

/** Where rules ask for each destination by itself, there are many ways, each for a few packets. */
const maxLeaves = 64;

export const forkedTooOften = 'the rules fork too often';

const newNode = (): DecisionNode => ({ question: null, branches: new Map(), leaf: null });

/** Takes a packet on that was translated just now. */
export function continueTranslated(walk: Walk, state: PacketState): void {
  const { destination, destinationPort, goal, remembered, affinity, questions } = state;
  const isKnown = destination !== null && destinationPort !== null && goal !== null;
  const isPlain = remembered === null && affinity === null && questions === null;
  const tree = isKnown && isPlain ? treeOf(walk, state) : null;
  const leaf = tree === null ? null : (leafOf(tree, state) ?? addLeaf(walk, tree, state));
  if (leaf === null) walk.onward(walk, state);
  else follow(walk, leaf, state);
}

function treeOf({ trees }: Walk, state: PacketState): DecisionTree {
  const known = trees.find(({ first }) => isSameButDestination(first, state));
  if (known !== undefined) return known;
  const tree: DecisionTree = { first: { ...state }, root: newNode(), leaves: 0 };
  if (trees.length >= maxTrees) trees.shift();
  trees.push(tree);
  return tree;
}

/** The leaf that the packet reaches; null if there is none yet. */
function leafOf({ root }: DecisionTree, state: PacketState): DecisionLeaf | null {
  let node: DecisionNode | undefined = root;
  while (node?.question) node = node.branches.get(node.question(state));
  return node?.leaf ?? null;
}

/** Walks a packet in full; null if the tree has enough leaves. */
function addLeaf(walk: Walk, tree: DecisionTree, state: PacketState): DecisionLeaf | null {
  if (tree.leaves >= maxLeaves) return null;
  const { goal, trace } = state;
  const { unknown } = walk;
  const questions: NonNullable<PacketState['questions']> = [];
  walk.unknown = new Map();
  const tally = tallyOf({ ...state, questions }, (copy) => walk.onward(walk, copy));
  const leaf: DecisionLeaf = { goal, trace, tally, unknown: walk.unknown };
  walk.unknown = unknown;
  if (leaf.unknown.has(forkedTooOften)) return leaf;
  let node = tree.root;
  for (const { question, answer } of questions) {
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
export function isSameButDestination(state: PacketState, other: PacketState): boolean {
  return (
    state.source === other.source &&
    state.mark.value === other.mark.value &&
    state.mark.known === other.mark.known &&
    state.hook === other.hook &&
    state.protocol === other.protocol &&
    state.from === other.from &&
    state.family === other.family &&
    state.stations === other.stations &&
    state.station === other.station &&
    state.nat === other.nat &&
    state.natNext === other.natNext &&
    state.connectionMark.value === other.connectionMark.value &&
    state.connectionMark.known === other.connectionMark.known &&
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

function follow(walk: Walk, leaf: DecisionLeaf, { tally, weight, trace, goal }: PacketState): void {
  for (const [outcome, share] of leaf.tally) {
    const part = { ...share };
    part.low *= weight;
    part.high *= weight;
    part.trace = behind(trace, share.trace, leaf.trace);
    addShare(tally, outcome === leaf.goal ? (goal ?? outcome) : outcome, part);
  }
  for (const [key, reason] of leaf.unknown) walk.unknown.set(key, reason);
}

type Trace = PacketState['trace'];

/** The steps of a way since it began, behind those of another. */
const behind = (ownSteps: Trace, way: Trace, begun: Trace): Trace =>
  way === begun || way === null
    ? ownSteps
    : { head: way.head, tail: behind(ownSteps, way.tail, begun) };

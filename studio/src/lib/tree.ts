// The tree of a beam search: nodes in, places on a page out. d3-hierarchy lays it out; this only joins them.
import { hierarchy, tree, type HierarchyPointNode } from "d3-hierarchy";
import type { Node } from "./writing.svelte";

export interface Leafy {
  node: Node | null; // null: the beginning
  children: Leafy[];
  best: boolean; // on the way to the best answer
}
export type Placed = HierarchyPointNode<Leafy>;

/** `answer` are the ids of the best answer; the nodes that say it are marked. */
export function grown(nodes: Node[], answer: number[], pruned: boolean): Leafy {
  const root: Leafy = { node: null, children: [], best: true };
  const known = new Map<number, Leafy>([[-1, root]]);
  for (const node of nodes) {
    if (node.fate === "pruned" && !pruned) continue;
    const made: Leafy = { node, children: [], best: false };
    known.set(node.id, made);
    known.get(node.parent)?.children.push(made);
  }
  let at = root;
  for (const id of answer) {
    const next = at.children.find((child) => child.node!.token === id && child.node!.fate !== "pruned");
    if (!next) break;
    next.best = true;
    at = next;
  }
  const ended = at.children.find((child) => child.node!.fate === "finished");
  if (ended) ended.best = true;
  return root;
}

export function placed(root: Leafy, across: number, down: number): { nodes: Placed[]; width: number; height: number } {
  // The best last: the way to the answer then runs from the top left to the bottom right, as one reads.
  const likely = (leaf: Leafy) => (leaf.best ? 1 : (leaf.node?.logprob ?? 0) - 1);
  const joined = hierarchy(root, (leaf) => leaf.children).sort((a, b) => likely(a.data) - likely(b.data));
  const laid = tree<Leafy>().nodeSize([down, across])(joined);
  const nodes = laid.descendants();
  const top = Math.min(...nodes.map((n) => n.x));
  for (const n of nodes) n.x -= top - down / 2; // the first row begins at the top
  return {
    nodes,
    width: Math.max(...nodes.map((n) => n.y)) + across * 1.6,
    height: Math.max(...nodes.map((n) => n.x)) + down / 2,
  };
}

/** The ids said on the way to a node, itself included. */
export function said(node: Placed): number[] {
  return node.ancestors().reverse().flatMap((n) => (n.data.node ? [n.data.node.token] : []));
}

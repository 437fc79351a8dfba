// The tree of a beam search: nodes in, places on a page out. Tokens that follow each other without a branch are
// drawn as one.
import { hierarchy, type HierarchyPointNode } from "d3-hierarchy";
import type { Node } from "./generation.svelte";

export interface Leafy {
  run: Node[]; // tokens in a row; empty: the beginning
  children: Leafy[];
  best: boolean; // on the way to the best answer
}
export type Placed = HierarchyPointNode<Leafy>;
/** Which pruned hypotheses are drawn: all, those beside the best answer, or none. */
export type Pruned = "all" | "beside" | "none";

export const last = (leaf: Leafy): Node | null => leaf.run[leaf.run.length - 1] ?? null;
const isPruned = (leaf: Leafy) => last(leaf)?.fate === "pruned";

/** `answer` holds the ids of the best answer; its nodes are marked. */
export function grown(nodes: Node[], answer: number[], pruned: Pruned): Leafy {
  const root: Leafy = { run: [], children: [], best: true };
  const known = new Map<number, Leafy>([[-1, root]]);
  for (const node of nodes) {
    const made: Leafy = { run: [node], children: [], best: false };
    known.set(node.id, made);
    known.get(node.parent)?.children.push(made);
  }
  let at = root;
  for (const id of answer) {
    const next = at.children.find((child) => last(child)!.token === id && !isPruned(child));
    if (!next) break;
    next.best = true;
    at = next;
  }
  const ended = at.children.find((child) => last(child)!.fate === "finished");
  if (ended) ended.best = true;
  if (pruned !== "all") thin(root, pruned);
  return joined(root);
}

function thin(leaf: Leafy, pruned: Pruned): void {
  leaf.children = leaf.children.filter((child) => !isPruned(child) || (pruned === "beside" && leaf.best));
  for (const child of leaf.children) thin(child, pruned);
}

/** Tokens without a branch between them become one node. */
function joined(leaf: Leafy): Leafy {
  let { run, children } = leaf;
  while (run.length && children.length === 1 && children[0].best === leaf.best && last(children[0])!.fate === "kept" && run[run.length - 1].fate === "kept") {
    run = [...run, ...children[0].run];
    children = children[0].children;
  }
  return { run, best: leaf.best, children: children.map(joined) };
}

/** The most likely continuation stays in its row, so that the best answer is a straight line along the top; every other
 * branch takes the first row below its parent that is free in its columns. */
export function placed(root: Leafy, across: number, down: number): { nodes: Placed[]; width: number; height: number } {
  const likely = (leaf: Leafy) => (leaf.best ? 1 : (last(leaf)?.logprob ?? 0) - 1);
  const whole = hierarchy(root, (leaf) => leaf.children).sort((a, b) => likely(b.data) - likely(a.data)) as Placed;
  const taken: Set<number>[] = []; // by row, the columns that are
  const put = (n: Placed, from: number): void => {
    const line = [n];
    while (line[line.length - 1].children) line.push(line[line.length - 1].children![0]);
    let row = from;
    while (taken[row] && line.some((m) => taken[row].has(m.depth))) row++;
    while (taken.length <= row) taken.push(new Set());
    for (const m of line) {
      taken[row].add(m.depth);
      m.x = (row + 0.5) * down;
      m.y = m.depth * across;
    }
    // From the end of the line back: short branches stay close to it, long ones pass below them.
    for (const m of line.toReversed()) m.children?.slice(1).forEach((child) => put(child, row + 1));
  };
  put(whole, 0);
  return { nodes: whole.descendants(), width: (whole.height + 1.6) * across, height: taken.length * down };
}

/** What a node is called: its tokens, or the first and the last of many. */
export function caption(leaf: Leafy): string {
  const words = leaf.run.map((node) => node.label.trim() || "␣");
  return words.length <= 2 ? words.join(" ") : `${words[0]} ⋯ ${words[words.length - 1]}`;
}

/** The nodes on the way to one, itself included. */
export const path = (node: Placed): Node[] => node.ancestors().reverse().flatMap((n) => n.data.run);

/** The ids on the path to a node, including its own. */
export const said = (node: Placed): number[] => path(node).map((n) => n.token);

// The family tree: rows with a parent's name in, a layout out; time runs from left to right.
import { hierarchy, type HierarchyPointNode } from "d3-hierarchy";

export interface FamilyRow {
  name: string;
  title: string;
  year: number;
  mode: string;
  uses: string;
  parent: string | null;
  sizes: string[];
}
interface FamilyNode {
  row: FamilyRow | null;
  children: FamilyNode[];
}
const INDENT = 22;
export type PlacedFamily = HierarchyPointNode<FamilyNode>;

export function descent(rows: FamilyRow[], across: number, down: number): { nodes: PlacedFamily[]; width: number; height: number } {
  const kin = new Map(rows.map((row) => [row.name, { row, children: [] as FamilyNode[] } as FamilyNode]));
  const root: FamilyNode = { row: null, children: [] };
  for (const row of [...rows].sort((a, b) => a.year - b.year)) (kin.get(row.parent ?? "") ?? root).children.push(kin.get(row.name)!);
  const first = Math.min(...rows.map((row) => row.year));
  const nodes = (hierarchy(root, (k) => k.children) as PlacedFamily).descendants().filter((n) => n.data.row !== null);
  // Parents come before their children. A child of the same year stands further right, so that the line to
  // its younger siblings does not run through its dot, as if they descended from it.
  for (const n of nodes) n.y = Math.max((n.data.row!.year - first) * across, n.parent?.data.row ? n.parent.y + INDENT : 0);
  // A line continues in its own row where the names leave space for it; every branch gets its own row.
  let next = 0;
  const put = (n: PlacedFamily, row: number): void => {
    n.x = (row + 0.5) * down;
    next = Math.max(next, row + 1);
    n.children?.forEach((child, i) => put(child, i === 0 && child.y - n.y > wide(n) ? row : next));
  };
  for (const n of nodes) if (!n.parent?.data.row) put(n, next);
  return { nodes, width: Math.max(...nodes.map((n) => n.y + wide(n))), height: next * down };
}

/** The line from a parent to its child: behind its name in the same row, otherwise down from its dot and across. */
export function branch(n: PlacedFamily): string {
  const p = n.parent!;
  if (p.x === n.x) return `M${p.y + wide(p) - 14} ${p.x}H${n.y - 2}`;
  const bend = n.x > p.x ? 6 : -6;
  return `M${p.y + 4} ${p.x + Math.sign(bend) * 6}V${n.x - bend}q0 ${bend} 6 ${bend}H${n.y - 2}`;
}

/** Pixels of a name with its dot, roughly. */
export const wide = (n: PlacedFamily): number => n.data.row!.title.length * 7.2 + 28;

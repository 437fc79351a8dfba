import { expect, test } from "vitest";
import { blueprint, type TowerShape } from "./blueprint";
import { descent, wide, type FamilyRow } from "./descent";
import { cellAt, fitted, kept, zoomed } from "./heat";
import { empty, extended, joined, thinned } from "./series";
import { grown, last, placed, said } from "./tree";
import type { Node } from "./generation.svelte";

const node = (id: number, parent: number, token: number, fate: Node["fate"], step: number): Node => ({ id, parent, token, fate, step, label: `${token}`, logprob: -0.1, score: -0.1 });
const NODES = [node(0, -1, 7, "kept", 0), node(1, -1, 8, "pruned", 0), node(2, 0, 9, "kept", 1), node(3, 2, 2, "finished", 2), node(4, 2, 5, "pruned", 2)];

test("the way to the best answer is marked, its end included", () => {
  const laid = placed(grown(NODES, [7, 9], "all"), 70, 24);
  expect(laid.nodes.filter((n) => n.data.best).map((n) => last(n.data)?.id ?? -1).sort()).toEqual([-1, 2, 3]); // 0 and 2 are one
  expect(said(laid.nodes.find((n) => last(n.data)?.id === 3)!)).toEqual([7, 9, 2]);
  expect(new Set(laid.nodes.map((n) => `${n.x}/${n.y}`)).size).toBe(laid.nodes.length); // nobody stands on another
  expect(placed(grown(NODES, [7, 9], "none"), 70, 24).nodes).toHaveLength(3);
});

test("records that come again replace those behind them", () => {
  let series = extended(empty(), [1, 2, 3].map((step) => ({ step, loss: step })));
  series = extended(series, [{ step: 2, split: "valid", scores: { loss: 9 } }, { step: 2, loss: 20 }, { step: 3, loss: 30 }]);
  expect(series.step).toEqual([1, 2, 3]);
  expect(series.loss).toEqual([1, 20, 30]);
  expect(series.valid).toHaveLength(1);
});

test("a step that failed draws nothing", () => {
  const series = extended(empty(), [{ step: 1, loss: 2 }, { step: 2, split: "failed" }]);
  expect(series.step).toEqual([1]);
});

test("lines of different steps share an axis, with holes where they are silent", () => {
  expect(joined([{ x: [1, 3], y: [10, 30] }, { x: [2, 3], y: [NaN, 5] }])).toEqual([[1, 2, 3], [10, null, 30], [null, null, 5]]);
});

test("a hundred thousand points are drawn as a few thousand, with the mean of each stretch", () => {
  const x = Array.from({ length: 100_000 }, (_, i) => i), y = x.map((i) => i % 2);
  const few = thinned(x, y, 2000);
  expect(few.x.length).toBeLessThanOrEqual(2000);
  expect(few.y.every((v) => Math.abs(v - 0.5) < 0.02)).toBe(true);
});

test("zooming leaves the point under the pointer where it is", () => {
  const view = fitted(100, 100, 600, 600), close = zoomed(view, 4, 300, 150, view.cell);
  expect(view.x + 300 / view.cell).toBeCloseTo(close.x + 300 / close.cell);
  expect(view.y + 150 / view.cell).toBeCloseTo(close.y + 150 / close.cell);
  const far = kept({ ...close, x: 1e6, y: -5 }, 100, 100, 600, 600);
  expect(far.x).toBeCloseTo(100 - 600 / close.cell);
  expect(far.y).toBe(0);
  const scene = { view: close, left: 50, top: 40, weights: { rows: 100, columns: 100, data: new Uint8Array() } };
  expect(cellAt(scene, 50 + 300, 40 + 150)).toEqual([25, 50]);
  expect(cellAt(scene, 10, 100)).toBeNull();
});

const TOWER: TowerShape = { layers: 2, width: 64, heads: 4, kv_heads: 4, head_dim: 16, hidden: 256, vocab: 100, order: "pre", norm: "Layer", feedforward: "MLP gelu", positions: "learned", kernel: "Softmax", causal: true, cross: true, last_norm: true };

test.each([["pre", "norm attention add norm cross add norm feed add"], ["post", "attention add norm cross add norm feed add norm"], ["parallel", "norm attention norm cross norm feed add"]] as const)(
  "a %s block has its norms where they belong", (order, kinds) => {
    expect(blueprint({ ...TOWER, order }, "TokenHead").block.map((box) => box.kind).join(" ")).toBe(kinds);
  });

test("no two families stand on one another", () => {
  const row = (name: string, year: number, parent: string | null): FamilyRow => ({ name, title: name.repeat(4), year, parent, mode: "causal", uses: "", sizes: [] });
  const rows = [row("t", 2017, null), row("gpt", 2018, "t"), row("bert", 2018, "t"), row("x", 2019, "bert"), row("y", 2019, "bert"), row("z", 2018, "bert")];
  const { nodes } = descent(rows, 120, 27);
  for (const a of nodes) for (const b of nodes) if (a !== b && a.x === b.x) expect(Math.abs(a.y - b.y)).toBeGreaterThan(Math.min(wide(a), wide(b)));
});

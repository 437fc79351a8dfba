import { expect, test } from "vitest";
import { parsed, whole, written } from "./address";
import { generation, looking, planning, runName, type Decoding } from "./commands";
import { branch, descent, wide, type FamilyRow } from "./descent";
import { brief, figure } from "./format";
import { split } from "./key";
import { visible, type Token } from "./labels";
import { linked } from "./links";
import { brightest } from "./palette";
import { reading } from "./reading";
import { alignSvg, DARK, linesSvg, tintedSvg } from "./svg";
import { caption, grown, placed } from "./tree";
import type { Node } from "./generation.svelte";

const token = (id: number): Token => ({ text: `${id}`, id, start: 0, end: 0, special: false, label: `${id}` });

test("an address says what is shown, and is read back", () => {
  const address = { screen: "attention" as const, model: "my model/1", params: { text: "a & b? # 猫\n", layer: "3" } };
  expect(parsed(written(address))).toEqual(address);
  expect(parsed("#/attention/demo")).toEqual({ screen: "attention", model: "demo", params: {} });
  expect(written({ screen: "train", model: "", params: { run: "" } })).toBe("#/train");
});

test.each(["#/attention/%E0%A4%A", "#/nowhere/x", "", "#", "#main"])("an address that cannot be read leads home: %s", (hash) => {
  expect(parsed(hash)).toEqual({ screen: "home", model: "", params: {} });
});

test("numbers of an address are whole numbers or nothing", () => {
  expect([whole("7", 0), whole("-1", 2), whole("abc", 3), whole(undefined, 4), whole("1e9", 5)]).toEqual([7, 2, 3, 4, 5]);
});

test("the key is taken out of the address, and what else stands there stays", () => {
  expect(split("", "#key=a-b_c")).toEqual({ key: "a-b_c", search: "", hash: "" });
  expect(split("", "#key=abc&/attention/demo?text=x")).toEqual({ key: "abc", search: "", hash: "#/attention/demo?text=x" });
  expect(split("?key=abc&x=1", "#/home")).toEqual({ key: "abc", search: "?x=1", hash: "#/home" });
  expect(split("", "#/home").key).toBeNull();
});

test("ids of one vocabulary are given to another model as text, and to a model without a decoder not at all", () => {
  const second = { target: [token(1), token(7), token(8)], answer: "每天", vocabulary: "v1" };
  expect(reading({ pair: true, vocabulary: "v1" }, second)).toEqual({ how: "ids", given: { target_ids: [7, 8], vocabulary: "v1" } });
  expect(reading({ pair: true, vocabulary: "v2" }, second)).toEqual({ how: "text", given: { target: "每天" } });
  expect(reading({ pair: true, vocabulary: "" }, { ...second, vocabulary: "" }).how).toBe("text");
  expect(reading({ pair: false, vocabulary: "v1" }, second)).toEqual({ how: "", given: {} });
});

const ASKED: Decoding = { model: "m", text: "it's", strategy: "greedy", max_new: 8, temperature: 0.8, top_k: 0, top_p: 0.95, repetition: 1.3, seed: 4, beams: 3, length_penalty: 0.5, forced: [], chat: false };

test("a command says everything the request said", () => {
  expect(generation("runs/demo", ASKED)).toBe(`clearhead generate runs/demo 'it'\\''s' --max-new-tokens 8 --num-beams 1 --repetition-penalty 1.3 --no-sample`);
  expect(generation("m", { ...ASKED, strategy: "sample", text: "--help" })).toBe("clearhead generate m --max-new-tokens 8 --num-beams 1 --repetition-penalty 1.3 --do-sample --temperature 0.8 --seed 4 --top-k 0 --top-p 0.95 -- --help");
  expect(generation("m", { ...ASKED, strategy: "beam" })).toContain("--num-beams 3 --length-penalty 0.5 --no-sample");
  expect(generation("m", { ...ASKED, forced: [7, 9] })).toMatch(/ --no-sample --begin 7 9$/);
  expect(generation("m", { ...ASKED, chat: true })).toMatch(/^clearhead chat m '--message=it'\\''s' /);
  const trace = { model: "m", text: "-x", target_ids: [1, 2] };
  expect(looking("m", trace, "每天", "cross", { layer: 1, head: 2 }, "Linear()")).toBe("clearhead look m --text=-x --target=每天 '--set=Attention.kernel=Linear()' --kind cross --layer 1 --head 2".replace("--target=每天", "'--target=每天'"));
  expect(planning("gpt2", { depth: 24, width: null, heads: 8, hidden: null }, "MLP", 2, 128, true)).toBe("clearhead plan gpt2 --set Tower.depth=24 --set Attention.heads=8 --set Attention.kv_heads=None --batch 2 --length 128 --train");
  expect(runName("My Run!")).toBe("my-run");
});

test("counts are whole numbers, and nothing has no sign", () => {
  expect([4, 12, -3, 1234].map(figure)).toEqual(["4", "12", "−3", "1,234"]);
  expect([-0.001, 0.004, -0.006, -12.34, 123.4].map(brief)).toEqual(["0.00", "0.00", "−0.01", "−12.3", "123"]);
});

test("what cannot be seen is shown as a sign", () => {
  expect([visible("\n"), visible("  "), visible("a b")]).toEqual(["⏎\n", "␣␣", "a b"]);
});

const M = { rows: 2, columns: 2, data: Uint8Array.from([255, 60, 90, 200]) };
const CAPTION = { title: "demo · Cross · L1 · H0", text: "old apples", legend: "thicker is more" };

test("every view is drawn as itself, and says what it is of", () => {
  const drawn = {
    lines: linesSvg([{ name: "L1 · H0", weights: M }], ["a", "b"], ["x", "y"], null, CAPTION),
    align: alignSvg(linked(M, null), ["a", "b"], ["x", "y"], CAPTION, DARK),
    tinted: tintedSvg(["old ", "apples"], [0.9, 0.1], 0, "blue", 0.5, CAPTION),
  };
  for (const svg of Object.values(drawn)) for (const words of ["demo · Cross · L1 · H0", "old apples", "thicker is more"]) expect(svg).toContain(`>${words}</text>`);
  expect(drawn.lines.match(/<path/g)).toHaveLength(4);
  expect(drawn.align.match(/<path/g)).toHaveLength(2); // the strongest link of each row
  expect(drawn.align).toContain(DARK.paper);
  expect(linked(M, 0.1).map(({ q, k }) => [q, k])).toEqual([[0, 0], [1, 0], [1, 1]]);
});

test("a head that spreads itself has the full colour in its thumbnail, too", () => {
  expect(brightest(Uint8Array.from([3, 9, 4]))).toBe(9);
  expect(brightest(new Uint8Array(4))).toBe(1);
});

test("a line of descent is never hidden by a name: it begins behind its parent's, and turns at right angles", () => {
  const row = (name: string, year: number, parent: string | null): FamilyRow => ({ name, title: name, year, parent, mode: "causal", uses: "", sizes: [] });
  const { nodes } = descent([row("llama", 2020, null), row("mistral", 2021, "llama"), row("qwen", 2022, "llama")], 140, 27);
  const by = (name: string) => nodes.find((n) => n.data.row!.name === name)!;
  const straight = branch(by("mistral"));
  expect(Number(/^M([\d.]+)/.exec(straight)![1])).toBeGreaterThanOrEqual(by("llama").y + wide(by("llama")) - 14);
  expect(branch(by("qwen"))).toMatch(/^M[\d.]+ [\d.]+V[\d.]+q0 6 6 6H[\d.]+$/);
});

test("a child of the same year stands beside the line to its younger siblings, not on it", () => {
  const row = (name: string, year: number, parent: string | null): FamilyRow => ({ name, title: name, year, parent, mode: "causal", uses: "", sizes: [] });
  const { nodes } = descent([row("llama", 2023, null), row("mistral", 2023, "llama"), row("qwen", 2024, "llama")], 140, 27);
  const by = (name: string) => nodes.find((n) => n.data.row!.name === name)!;
  expect(by("mistral").y - by("llama").y).toBeGreaterThan(12);
  expect(Number(/^M([\d.]+)/.exec(branch(by("qwen")))![1])).toBeLessThan(by("mistral").y - 4);
});

const node = (id: number, parent: number, fate: Node["fate"], logprob = -0.1): Node => ({ id, parent, token: id, step: 0, label: `w${id}`, logprob, score: -1, fate });

test("a long search is drawn short: runs are one node, the best answer is on top, and what was pruned beside it shows", () => {
  const nodes: Node[] = [];
  for (let i = 0; i < 40; i++) nodes.push(node(i, i - 1, "kept"), node(100 + i, i - 1, "pruned", -3), node(200 + i, i ? 200 + i - 1 : -1, "kept", -2), node(300 + i, i ? 200 + i - 1 : -1, "pruned", -4));
  const answer = Array.from({ length: 40 }, (_, i) => i);
  const none = placed(grown(nodes, answer, "none"), 100, 24);
  expect(none.nodes).toHaveLength(3); // the beginning and two runs of forty tokens
  expect(caption(none.nodes[1].data)).toMatch(/^w\d+ ⋯ w\d+$/);
  const best = none.nodes.find((n) => n.data.best && n.data.run.length)!;
  expect(best.x).toBe(Math.min(...none.nodes.map((n) => n.x)));
  const beside = placed(grown(nodes, answer, "beside"), 100, 24);
  expect(beside.nodes.filter((n) => n.data.run.at(-1)?.fate === "pruned").map((n) => n.data.run.at(-1)!.id).every((id) => (id >= 100 && id < 200) || id === 300)).toBe(true);
  expect(beside.nodes.length).toBeGreaterThan(40);
  expect(beside.height).toBeLessThanOrEqual(4 * 24); // forty branches side by side, not one below the other
  expect(new Set(beside.nodes.map((n) => `${n.x}/${n.y}`)).size).toBe(beside.nodes.length);
});

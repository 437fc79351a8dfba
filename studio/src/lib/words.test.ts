import { expect, test } from "vitest";
import en from "../messages/en.json";
import zh from "../messages/zh.json";
import { amount, figure, percent, seconds } from "./format";
import { every, isWide, label, shortened, word, type Token } from "./labels";
import { command } from "./quote";
import { heatSvg } from "./svg";

const token = (text: string, shown = text): Token => ({ text, id: 1, start: 0, end: text.length, special: false, label: shown });

test("both languages have the same keys, and fill the same blanks", () => {
  expect(Object.keys(zh).sort()).toEqual(Object.keys(en).sort());
  const blanks = (sentence: string) => (sentence.match(/\{\w+\}/g) ?? []).sort();
  for (const key of Object.keys(en) as (keyof typeof en)[]) expect(blanks(zh[key]), key).toEqual(blanks(en[key]));
});

test("Chinese sentences are Chinese, with the punctuation of Chinese", () => {
  const same = (Object.keys(en) as (keyof typeof en)[]).filter((key) => en[key] && en[key] === zh[key]);
  expect(same.sort()).toEqual(["cost.cache", "generate.top_p", "palette.viridis"]);
  for (const sentence of Object.values(zh)) expect(sentence).not.toMatch(/[\u4e00-\u9fff][,;:?()]/);
});

test("labels of axes are thinned to what there is room for", () => {
  expect(every(20, 13)).toBe(1);
  expect(every(7, 13)).toBe(2);
  expect(every(1.2, 13)).toBe(20);
  for (const pixels of [0.1, 0.7, 3, 12]) expect(every(pixels, 13) * pixels).toBeGreaterThanOrEqual(13);
});

test("Chinese words stand upright, pieces of characters keep their number", () => {
  expect(isWide("苹果")).toBe(true);
  expect(isWide("你①")).toBe(true);
  expect(isWide("cat")).toBe(false);
  expect(label(token("你", "你②"))).toBe("你②");
  expect(word(token("你", "你②"))).toBe("你②");
  expect(word(token(" cat", "cat"))).toBe(" cat");
  expect(shortened("👍👍👍👍", 3)).toBe("👍👍…");
});

test("numbers are short and honest", () => {
  expect([0.617234, 0, 12345, 1.2e-7, -0.5, NaN, Infinity].map(figure)).toEqual(["0.617", "0", "12,345", "1.20e−7", "−0.500", "NaN", "∞"]);
  expect([1, 0.5, 0.0123, 0.9996].map(percent)).toEqual(["100 %", "50.0 %", "1.2 %", "100 %"]);
  expect(amount(174_604_259_328)).toBe("175 G");
  expect([0.0123, 3.21, 75].map(seconds)).toEqual(["12 ms", "3.2 s", "1:15"]);
});

test("a command can be pasted into a shell as it is", () => {
  expect(command("look", "runs/demo", "it's <b>", "--layer", 0, null, false)).toBe(`clearhead look runs/demo 'it'\\''s <b>' --layer 0`);
});

test("a drawing keeps its words as words, and none of them as markup", () => {
  const m = { rows: 1, columns: 2, data: Uint8Array.from([255, 0]) };
  const svg = heatSvg(m, ["<img src=x onerror=alert(1)>"], ["猫", "\u0000a"], "blue", 0.5, { title: "</title><script>", text: "<b>" });
  expect(svg).toContain(">猫</text>");
  expect(svg).not.toMatch(/<img|<script|<b>|\u0000/);
  expect(svg.match(/<text/g)).toHaveLength(3 + 2 + 2); // three words; title and text above; the ends of the scale
  expect(svg.match(/<rect/g)).toHaveLength(3 + 24); // paper, frame, one weight (what is zero is not drawn); the scale
});

import { expect, test } from "vitest";
import { column, cropped, difference, largest, weight, withoutFirst, type Weights } from "./matrix";
import { ordered, laid, tileAt } from "./overview";
import { colour, ink, paint, table } from "./palette";

const byte = (w: number) => Math.round(255 * Math.sqrt(w));
const made = (rows: number[][]): Weights => ({ rows: rows.length, columns: rows[0].length, data: Uint8Array.from(rows.flat(), byte) });

test("near-uniform rows over 512 tokens keep their differences in a byte", () => {
  const uniform = 1 / 512;
  expect(Math.abs(weight(byte(uniform)) - uniform) / uniform).toBeLessThan(0.07);
  expect(byte(uniform)).not.toBe(byte(2 * uniform));
});

test("without the first token the rest sums to one again", () => {
  const m = withoutFirst(made([[0.8, 0.15, 0.05], [0.2, 0.4, 0.4]]));
  for (let row = 0; row < 2; row++) {
    const sum = [0, 1, 2].reduce((s, k) => s + weight(m.data[row * 3 + k]), 0);
    expect(sum).toBeCloseTo(1, 1);
    expect(m.data[row * 3]).toBe(0);
  }
  expect([...withoutFirst(made([[1, 0]])).data]).toEqual([0, 0]); // all on the first: nothing is left
});

test("a crop keeps the first rows and columns", () => {
  const m = made([[1, 0, 0], [0.5, 0.5, 0], [0.3, 0.3, 0.4]]);
  const c = cropped(m, 2, 2);
  expect([c.rows, c.columns]).toEqual([2, 2]);
  expect([...c.data].map(weight).map((w) => Number(w.toFixed(1)))).toEqual([1, 0, 0.5, 0.5]);
  expect(cropped(m, 9, 9)).toBe(m);
});

test("a difference is zero in the middle, and the largest change has full colour", () => {
  const d = difference(made([[0.5, 0.5]]), made([[0.9, 0.5]]));
  expect(d.largest).toBeCloseTo(0.4, 1);
  expect(d.data[0]).toBe(255);
  expect(Math.abs(d.data[1] - 127.5)).toBeLessThan(1);
  expect([...difference(d, d).data]).toEqual([128, 128]);
});

test("largest and column", () => {
  expect(largest([0.1, 0.9, 0.5], 2)).toEqual([1, 2]);
  expect([...column(made([[1, 0], [0.25, 0.75]]), 0)].map((w) => Number(w.toFixed(2)))).toEqual([1, 0.25]);
});

test("heads are ordered by a score, and those without one come last", () => {
  expect(ordered(1, 3, null).map((t) => t.head)).toEqual([0, 1, 2]);
  expect(ordered(1, 3, [[0.2, NaN, 0.9]]).map((t) => t.head)).toEqual([2, 0, 1]);
});

test("a click finds the tile that is drawn there", () => {
  const grid = laid(144, 12, 400);
  for (const i of [0, 11, 12, 143]) {
    const x = grid.left + ((i % grid.across) + 0.5) * grid.tile, y = grid.top + (Math.floor(i / grid.across) + 0.5) * grid.tile;
    expect(tileAt(grid, 144, x, y)).toBe(i);
  }
  expect(tileAt(grid, 144, 2, 30)).toBeNull();
});

test("palettes run from their first colour to their last, and ink is readable on all of them", () => {
  expect(colour("blue", 0)).toEqual([255, 255, 255]);
  expect(colour("viridis", 1)).toEqual([253, 231, 37]);
  const luminance = (rgb: number[]) => {
    const [r, g, b] = rgb.map((c) => ((c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  for (const name of ["blue", "viridis", "cividis", "change", "changeDark"] as const)
    for (let t = 0; t <= 1; t += 0.05) {
      const [a, b] = [luminance(colour(name, t)), luminance(ink(name, t) === "#ffffff" ? [255, 255, 255] : [0, 0, 0])];
      expect((Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)).toBeGreaterThan(4.5);
    }
});

test("painting 512 by 512 cells is a matter of milliseconds", () => {
  const bytes = Uint8Array.from({ length: 512 * 512 }, (_, i) => i % 256), lut = table("blue", 0.5), into = new Uint32Array(512 * 512);
  const times = Array.from({ length: 15 }, () => {
    const begin = performance.now();
    paint(bytes, 512, 512, lut, into, 512, 0);
    return performance.now() - begin;
  }).sort((a, b) => a - b);
  expect(into[255]).toBe(lut[255]);
  expect(times[0]).toBeLessThan(4); // the best of many: other work on the machine is not ours
});

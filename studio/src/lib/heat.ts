// Drawing a matrix with its token axes on a canvas: bytes are coloured once into a small picture, and every
// redraw (zoom, pan, hover) only stretches that picture and writes the labels that fit.
import { every, isWide, shortened } from "./labels";
import { weight, type Weights } from "./matrix";
import { ink, paint, shade, type PaletteName } from "./palette";

export interface View {
  cell: number; // pixels per cell
  x: number; // first visible column, may be a fraction
  y: number;
}
export interface Ink {
  text: string;
  muted: string;
  line: string;
  accent: string;
  panel: string;
}
export interface Scene {
  weights: Weights;
  picture: HTMLCanvasElement;
  rows: string[];
  columns: string[];
  view: View;
  width: number;
  height: number;
  left: number; // space for row labels
  top: number; // space for column labels
  cursor: [number, number] | null;
  pinned: number | null;
  causal: boolean; // queries see no later key; what is masked is hatched
  palette: PaletteName;
  contrast: number;
  brightest: number; // the byte that has the full colour
  ink: Ink;
  font: string;
}

export const LONGEST = 14; // characters of a label
const COSINE = Math.cos(Math.PI / 3), SINE = Math.sin(Math.PI / 3);

export function coloured(weights: Weights, lut: Uint32Array): HTMLCanvasElement {
  const picture = document.createElement("canvas");
  picture.width = Math.max(1, weights.columns);
  picture.height = Math.max(1, weights.rows);
  const g = picture.getContext("2d")!;
  const image = g.createImageData(picture.width, picture.height);
  paint(weights.data, weights.rows, weights.columns, lut, new Uint32Array(image.data.buffer), picture.width, 0);
  g.putImageData(image, 0, 0);
  return picture;
}

/** Gutters for the labels, from the widest of them. */
export function gutters(rows: string[], columns: string[], font: string): { left: number; top: number } {
  const g = document.createElement("canvas").getContext("2d")!;
  g.font = font;
  const wide = (labels: string[]) => labels.slice(0, 400).reduce((w, l) => Math.max(w, g.measureText(shortened(l, LONGEST)).width), 10);
  const upright = columns.every((l) => isWide(l) && l.length <= 2);
  return { left: Math.ceil(wide(rows)) + 12, top: upright ? 24 : Math.ceil(wide(columns) * SINE) + 18 };
}

export function fitted(rows: number, columns: number, width: number, height: number): View {
  const cell = Math.min(width / columns, height / rows, 56);
  return { cell: Math.max(cell, 0.01), x: 0, y: 0 };
}

/** The same view, cell size times `factor`, with the point (px, py) of the matrix standing still. */
export function zoomed(view: View, factor: number, px: number, py: number, least: number): View {
  const cell = Math.min(Math.max(view.cell * factor, least), 120);
  return { cell, x: view.x + px / view.cell - px / cell, y: view.y + py / view.cell - py / cell };
}

export function kept(view: View, rows: number, columns: number, width: number, height: number): View {
  const x = Math.max(0, Math.min(view.x, columns - width / view.cell));
  const y = Math.max(0, Math.min(view.y, rows - height / view.cell));
  return { cell: view.cell, x, y };
}

export function cellAt(scene: Pick<Scene, "view" | "left" | "top" | "weights">, px: number, py: number): [number, number] | null {
  const column = Math.floor(scene.view.x + (px - scene.left) / scene.view.cell);
  const row = Math.floor(scene.view.y + (py - scene.top) / scene.view.cell);
  if (px < scene.left || py < scene.top) return null;
  return row >= 0 && column >= 0 && row < scene.weights.rows && column < scene.weights.columns ? [row, column] : null;
}

export function draw(g: CanvasRenderingContext2D, scene: Scene): void {
  const { view, left, top, width, height, weights } = scene;
  g.clearRect(0, 0, width, height);
  const right = Math.min(width, left + (weights.columns - view.x) * view.cell);
  const bottom = Math.min(height, top + (weights.rows - view.y) * view.cell);
  g.save();
  g.beginPath();
  g.rect(left, top, right - left, bottom - top);
  g.clip();
  g.imageSmoothingEnabled = view.cell * devicePixelRatio < 1;
  g.drawImage(scene.picture, left - view.x * view.cell, top - view.y * view.cell, weights.columns * view.cell, weights.rows * view.cell);
  if (scene.causal && view.cell >= 3) hatch(g, scene, bottom);
  if (view.cell >= 34) numbers(g, scene);
  frames(g, scene);
  g.restore();
  g.strokeStyle = scene.ink.line;
  g.strokeRect(left + 0.5, top + 0.5, right - left - 1, bottom - top - 1);
  labels(g, scene, right, bottom);
}

function numbers(g: CanvasRenderingContext2D, scene: Scene): void {
  const { view, left, top, weights } = scene;
  g.font = `11px ${scene.font}`;
  g.textAlign = "center";
  g.textBaseline = "middle";
  const [r0, r1] = span(view.y, scene.height - top, view.cell, weights.rows);
  const [c0, c1] = span(view.x, scene.width - left, view.cell, weights.columns);
  for (let row = r0; row < r1; row++)
    for (let column = c0; column < c1; column++) {
      const byte = weights.data[row * weights.columns + column];
      const change = scene.palette.startsWith("change");
      if (change || byte < 26) continue; // below one percent a number is not useful
      g.fillStyle = ink(scene.palette, shade(scene.palette, byte, scene.contrast, scene.brightest));
      g.fillText(weight(byte).toFixed(2).replace(/^0/, ""), left + (column + 0.5 - view.x) * view.cell, top + (row + 0.5 - view.y) * view.cell);
    }
}

function hatch(g: CanvasRenderingContext2D, scene: Scene, bottom: number): void {
  const { view, left, top, weights } = scene;
  const [r0, r1] = span(view.y, bottom - top, view.cell, weights.rows);
  g.save();
  g.beginPath();
  const right = left + (weights.columns - view.x) * view.cell;
  for (let row = r0; row < r1; row++) {
    const x = left + (row + 1 - view.x) * view.cell;
    if (x < right) g.rect(x, top + (row - view.y) * view.cell, right - x, view.cell);
  }
  g.clip();
  g.fillStyle = scene.ink.panel;
  g.fillRect(left, top, right - left, bottom - top);
  g.strokeStyle = scene.ink.line;
  g.lineWidth = 1;
  g.beginPath();
  for (let x = left - (bottom - top); x < Math.min(right, scene.width); x += 7) {
    g.moveTo(x, bottom);
    g.lineTo(x + bottom - top, top);
  }
  g.stroke();
  g.restore();
}

function frames(g: CanvasRenderingContext2D, scene: Scene): void {
  const { view, left, top, weights } = scene;
  const across = (row: number) => [left - view.x * view.cell, top + (row - view.y) * view.cell, weights.columns * view.cell, view.cell] as const;
  if (scene.pinned !== null) {
    g.strokeStyle = scene.ink.accent;
    g.lineWidth = 2;
    g.strokeRect(...across(scene.pinned));
  }
  if (scene.cursor) {
    const [row, column] = scene.cursor;
    g.strokeStyle = scene.ink.text;
    g.lineWidth = 1;
    g.globalAlpha = 0.35;
    g.strokeRect(...across(row));
    g.strokeRect(left + (column - view.x) * view.cell, top - view.y * view.cell, view.cell, weights.rows * view.cell);
    g.globalAlpha = 1;
    g.strokeStyle = scene.ink.accent;
    g.lineWidth = 2;
    const size = Math.max(view.cell, 3);
    g.strokeRect(left + (column - view.x) * view.cell, top + (row - view.y) * view.cell, size, size);
  }
}

function labels(g: CanvasRenderingContext2D, scene: Scene, right: number, bottom: number): void {
  const { view, left, top, cursor, pinned } = scene;
  g.font = `12px ${scene.font}`;
  g.textBaseline = "middle";
  g.textAlign = "right";
  const step = every(view.cell, 13);
  const [r0, r1] = span(view.y, bottom - top, view.cell, scene.weights.rows);
  for (let row = r0; row < r1; row++) {
    const chosen = cursor?.[0] === row || pinned === row;
    if (row % step && !chosen) continue;
    const y = top + (row + 0.5 - view.y) * view.cell;
    if (y < top || y > bottom + 4) continue;
    if (!chosen && near(row, step, cursor?.[0], pinned)) continue;
    write(g, scene, shortened(scene.rows[row] ?? "", LONGEST), left - 6, y, chosen);
  }
  g.textAlign = "left";
  const [c0, c1] = span(view.x, right - left, view.cell, scene.weights.columns);
  for (let column = c0; column < c1; column++) {
    const chosen = cursor?.[1] === column;
    if ((column % step && !chosen) || (!chosen && near(column, step, cursor?.[1], null))) continue;
    const x = left + (column + 0.5 - view.x) * view.cell;
    if (x < left || x > right) continue;
    const text = shortened(scene.columns[column] ?? "", LONGEST);
    g.save();
    if (isWide(text) && text.length <= 2 && view.cell >= 13) {
      g.textAlign = "center";
      write(g, scene, text, x, top - 10, chosen);
    } else {
      g.transform(COSINE, -SINE, SINE, COSINE, x, top - 5);
      write(g, scene, text, 0, 0, chosen);
    }
    g.restore();
  }
}

/** A label too near to a chosen one gives way to it. */
const near = (i: number, step: number, a: number | null | undefined, b: number | null): boolean =>
  step > 1 && [a, b].some((c) => c !== null && c !== undefined && c !== i && Math.abs(c - i) < step);

function write(g: CanvasRenderingContext2D, scene: Scene, text: string, x: number, y: number, chosen: boolean): void {
  g.fillStyle = chosen ? scene.ink.accent : scene.ink.text;
  g.fillText(text, x, y);
}

function span(first: number, pixels: number, cell: number, count: number): [number, number] {
  return [Math.max(0, Math.floor(first)), Math.min(count, Math.ceil(first + pixels / cell))];
}

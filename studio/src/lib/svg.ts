// A view as a drawing of its own: what is on the screen, with what it is of, in words that stay words.
import { every, isWide, shortened } from "./labels";
import { weight, type Weights } from "./matrix";
import { brightest, css, HEADS, ink, shade, type PaletteName } from "./palette";

/** What is drawn and for which text, so that a shared picture explains itself. */
export interface Caption {
  title: string;
  text: string;
  legend?: string;
}
export interface Paper {
  paper: string;
  text: string;
  muted: string;
  line: string;
  accent: string;
}
export const LIGHT: Paper = { paper: "#ffffff", text: "#1a1d22", muted: "#565e69", line: "#c8ccd2", accent: "#1f5fbf" };
export const DARK: Paper = { paper: "#1a1e24", text: "#e7eaef", muted: "#a2abb8", line: "#2d333c", accent: "#86b6ff" };

const SANS = "system-ui, 'Segoe UI', Roboto, 'Noto Sans', 'Noto Sans CJK SC', 'PingFang SC', 'Microsoft YaHei', sans-serif";
const MONO = "ui-monospace, Menlo, Consolas, 'Noto Sans Mono CJK SC', 'Noto Sans CJK SC', 'PingFang SC', 'Microsoft YaHei', monospace";
const SIZE = 12, HEAD = 58, MARGIN = 16, LONGEST = 18;
const SINE = Math.sin(Math.PI / 3);

const escaped = (text: string): string =>
  text.replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f]/g, "").replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
const round = (x: number): string => String(Math.round(x * 10) / 10);

/** Pixels of a label in the fixed-width font, roughly. */
export const measure = (text: string, size = SIZE): number => Array.from(text).reduce((sum, letter) => sum + (isWide(letter) ? size : size * 0.62), 0);
const widest = (labels: string[]): number => labels.reduce((most, label) => Math.max(most, measure(shortened(label, LONGEST))), 20);

function page(width: number, height: number, caption: Caption, paper: Paper, body: string): string {
  // The legend is never cut: a narrow picture gets a wide margin.
  const wide = Math.max(width, 420, 2 * MARGIN + measure(caption.legend ?? "")), letters = Math.floor((wide - 2 * MARGIN) / 7);
  const legend = caption.legend ? `<text x="${MARGIN}" y="${round(height + 14)}" fill="${paper.muted}" font-family="${SANS}" font-size="12">${escaped(caption.legend)}</text>` : "";
  const tall = height + (legend ? 30 : MARGIN);
  return (
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${round(wide)} ${round(tall)}" width="${round(wide)}" height="${round(tall)}" font-family="${MONO}" font-size="${SIZE}" fill="${paper.text}">` +
    `<title>${escaped(`${caption.title}: ${caption.text}`)}</title><rect width="100%" height="100%" fill="${paper.paper}"/>` +
    `<g font-family="${SANS}"><text x="${MARGIN}" y="24" font-size="15" font-weight="650">${escaped(caption.title)}</text>` +
    `<text x="${MARGIN}" y="43" fill="${paper.muted}">${escaped(shortened(caption.text.replace(/\s+/g, " "), letters))}</text></g>` +
    `${body}${legend}</svg>`
  );
}

export function heatSvg(m: Weights, rows: string[], columns: string[], palette: PaletteName, contrast: number, caption: Caption, paper = LIGHT): string {
  const cell = Math.max(3, Math.min(26, Math.floor(900 / Math.max(m.rows, m.columns))));
  const upright = columns.every((label) => isWide(label) && label.length <= 2);
  const left = MARGIN + widest(rows) + 8, top = HEAD + (upright ? 22 : widest(columns) * SINE + 14);
  const most = brightest(m.data), parts: string[] = [], step = every(cell, SIZE);
  for (let row = 0; row < m.rows; row++)
    for (let column = 0; column < m.columns; column++) {
      const byte = m.data[row * m.columns + column];
      if (byte === 0) continue;
      parts.push(`<rect x="${round(left + column * cell)}" y="${round(top + row * cell)}" width="${cell}" height="${cell}" fill="${css(palette, shade(palette, byte, contrast, most))}"/>`);
    }
  rows.slice(0, m.rows).forEach((text, i) => {
    if (i % step === 0) parts.push(`<text x="${round(left - 6)}" y="${round(top + (i + 0.5) * cell)}" text-anchor="end" dominant-baseline="central">${escaped(shortened(text, LONGEST))}</text>`);
  });
  columns.slice(0, m.columns).forEach((text, i) => {
    if (i % step) return;
    const x = round(left + (i + 0.5) * cell);
    parts.push(
      isWide(text) && text.length <= 2
        ? `<text x="${x}" y="${round(top - 8)}" text-anchor="middle">${escaped(text)}</text>`
        : `<text transform="translate(${x} ${round(top - 6)}) rotate(-60)" dominant-baseline="central">${escaped(shortened(text, LONGEST))}</text>`,
    );
  });
  const bottom = top + m.rows * cell;
  const ramp = Array.from({ length: 24 }, (_, i) => `<rect x="${round(left + 20 + i * 5)}" y="${round(bottom + 12)}" width="5" height="9" fill="${css(palette, (i / 23) ** contrast)}"/>`).join("");
  const scale = `<g fill="${paper.muted}"><text x="${round(left)}" y="${round(bottom + 20)}">0</text>${ramp}<text x="${round(left + 148)}" y="${round(bottom + 20)}">${weight(most).toPrecision(2)}</text></g>`;
  const frame = `<rect x="${round(left)}" y="${round(top)}" width="${m.columns * cell}" height="${m.rows * cell}" fill="${css(palette, 0)}" stroke="${paper.line}"/>`;
  return page(left + m.columns * cell + 40, bottom + 26, caption, paper, `${frame}${parts.join("")}${scale}`);
}

/** Several heads have a colour each, and are named below. */
export function linesSvg(layers: { name: string; weights: Weights }[], rows: string[], columns: string[], row: number | null, caption: Caption, paper = LIGHT): string {
  const down = 22, left = MARGIN + widest(rows), right = left + 320, parts: string[] = [];
  const y = (i: number) => HEAD + i * down + 14;
  layers.forEach(({ weights: m }, i) => {
    for (let q = row ?? 0; q < (row === null ? m.rows : row + 1); q++)
      for (let k = 0; k < m.columns; k++) {
        const w = weight(m.data[q * m.columns + k]);
        if (w >= 0.03)
          parts.push(`<path d="M${round(left + 8)} ${y(q)}C${round(left + 90)} ${y(q)} ${round(right - 90)} ${y(k)} ${round(right - 8)} ${y(k)}" fill="none" stroke="${layers.length === 1 ? paper.accent : HEADS[i]}" stroke-width="${round(0.8 + 5 * w)}" stroke-opacity="${round(Math.min(1, 0.1 + Math.sqrt(w)))}"/>`);
      }
  });
  rows.forEach((text, i) => parts.push(`<text x="${round(left)}" y="${y(i)}" text-anchor="end" dominant-baseline="central"${i === row ? ` fill="${paper.accent}"` : ""}>${escaped(shortened(text, LONGEST))}</text>`));
  columns.forEach((text, i) => parts.push(`<text x="${round(right)}" y="${y(i)}" dominant-baseline="central">${escaped(shortened(text, LONGEST))}</text>`));
  let tall = y(Math.max(rows.length, columns.length)) + 6;
  if (layers.length > 1) {
    parts.push(...layers.map(({ name }, i) => `<text x="${round(MARGIN + i * 84)}" y="${tall + 8}" fill="${HEADS[i]}">● ${escaped(name)}</text>`));
    tall += 22;
  }
  return page(right + widest(columns) + MARGIN, tall, caption, paper, parts.join(""));
}

export interface Link {
  q: number;
  k: number;
  w: number;
}

/** A translation under its source, each word tied to where it looked. */
export function alignSvg(links: Link[], rows: string[], columns: string[], caption: Caption, paper = LIGHT): string {
  const size = 17, tall = 220;
  const place = (labels: string[]) => {
    let x = MARGIN;
    return labels.map((text) => {
      const width = measure(text, size), at = { text, x, middle: x + width / 2 };
      x += width + 20;
      return { ...at, end: x };
    });
  };
  const above = place(columns), below = place(rows), [top, bottom] = [HEAD + 18, HEAD + tall - 18];
  const curves = links.filter((l) => below[l.q] && above[l.k]).map(({ q, k, w }) =>
    `<path d="M${round(below[q].middle)} ${bottom - 14}C${round(below[q].middle)} ${(top + bottom) / 2} ${round(above[k].middle)} ${(top + bottom) / 2} ${round(above[k].middle)} ${top + 14}" fill="none" stroke="${paper.accent}" stroke-width="${round(1 + 3 * w)}" stroke-opacity="${round(0.2 + 0.8 * w)}"/>`);
  const words = [...above.map((word) => ({ ...word, y: top })), ...below.map((word) => ({ ...word, y: bottom }))]
    .map((word) => `<text x="${round(word.x)}" y="${word.y}" font-size="${size}" dominant-baseline="central">${escaped(word.text)}</text>`);
  const width = Math.max(above.at(-1)?.end ?? 0, below.at(-1)?.end ?? 0) + MARGIN;
  return page(width, HEAD + tall, caption, paper, curves.join("") + words.join(""));
}

/** Running text, each word tinted by its weight. */
export function tintedSvg(words: string[], weights: number[], chosen: number | null, palette: PaletteName, contrast: number, caption: Caption, paper = LIGHT): string {
  const size = 15, wide = 760, high = 28, parts: string[] = [];
  let x = MARGIN, y = HEAD + 14;
  words.forEach((text, i) => {
    const width = measure(text.trim() || text, size) + 8, tint = Math.pow(weights[i] ?? 0, contrast);
    if (x + width > wide) [x, y] = [MARGIN, y + high];
    parts.push(`<rect x="${round(x)}" y="${y - 12}" width="${round(width)}" height="24" rx="4" fill="${css(palette, tint)}"${i === chosen ? ` stroke="${paper.accent}" stroke-width="2"` : ""}/>` +
      `<text x="${round(x + 4)}" y="${y}" font-size="${size}" dominant-baseline="central" fill="${ink(palette, tint)}">${escaped(text.trim() || text)}</text>`);
    x += width + 2;
  });
  return page(wide + MARGIN, y + 20, caption, paper, parts.join(""));
}

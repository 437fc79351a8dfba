// The focused head as a drawing of its own: cells are rectangles, words stay words.
import { isWide, shortened } from "./labels";
import type { Weights } from "./matrix";
import { css, shade, type PaletteName } from "./palette";

const escaped = (text: string): string =>
  text.replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f]/g, "").replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

export function heatSvg(m: Weights, rows: string[], columns: string[], palette: PaletteName, contrast: number, title: string): string {
  const cell = Math.max(4, Math.min(24, Math.floor(900 / Math.max(m.rows, m.columns))));
  const left = 130, top = 130, [width, height] = [left + m.columns * cell + 20, top + m.rows * cell + 20];
  const size = Math.min(12, cell), brightest = m.data.reduce((a, b) => Math.max(a, b), 1), parts: string[] = [];
  for (let row = 0; row < m.rows; row++)
    for (let column = 0; column < m.columns; column++) {
      const byte = m.data[row * m.columns + column];
      if (byte === 0) continue;
      const fill = css(palette, shade(palette, byte, contrast, brightest));
      parts.push(`<rect x="${left + column * cell}" y="${top + row * cell}" width="${cell}" height="${cell}" fill="${fill}"/>`);
    }
  rows.slice(0, m.rows).forEach((text, i) =>
    parts.push(`<text x="${left - 6}" y="${top + (i + 0.5) * cell}" text-anchor="end" dominant-baseline="central">${escaped(shortened(text, 18))}</text>`));
  columns.slice(0, m.columns).forEach((text, i) => {
    const x = left + (i + 0.5) * cell;
    parts.push(
      isWide(text) && text.length <= 2
        ? `<text x="${x}" y="${top - 8}" text-anchor="middle">${escaped(text)}</text>`
        : `<text transform="translate(${x} ${top - 6}) rotate(-60)" dominant-baseline="central">${escaped(shortened(text, 18))}</text>`,
    );
  });
  return (
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" font-family="ui-monospace, Menlo, Consolas, 'Noto Sans Mono CJK SC', 'Noto Sans CJK SC', 'PingFang SC', 'Microsoft YaHei', monospace" font-size="${size}">` +
    `<title>${escaped(title)}</title><rect width="100%" height="100%" fill="#fff"/>` +
    `<rect x="${left}" y="${top}" width="${m.columns * cell}" height="${m.rows * cell}" fill="${css(palette, 0)}" stroke="#c8ccd2"/>` +
    `${parts.join("")}</svg>`
  );
}

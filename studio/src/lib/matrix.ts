// Attention matrices as they travel: one byte per weight, 255 times the square root of it. Near-uniform rows
// over hundreds of tokens keep their differences that way; a linear byte would round them all to 0 or 1.

export interface Weights {
  rows: number;
  columns: number;
  data: Uint8Array;
}

export const weight = (byte: number): number => (byte / 255) ** 2;

/** The first column hidden and every row scaled up to what is left: sinks stop drowning the rest. */
export function withoutFirst(m: Weights): Weights {
  const data = new Uint8Array(m.data.length);
  for (let row = 0; row < m.rows; row++) {
    const start = row * m.columns;
    const rest = 1 - weight(m.data[start]);
    const scale = rest > 1e-4 ? 1 / Math.sqrt(rest) : 0;
    for (let column = 1; column < m.columns; column++)
      data[start + column] = Math.min(255, Math.round(m.data[start + column] * scale));
  }
  return { ...m, data };
}

/** The pattern at an earlier step of generation: the first rows and, for self-attention, the first columns. */
export function cropped(m: Weights, rows: number, columns: number): Weights {
  rows = Math.min(rows, m.rows);
  columns = Math.min(columns, m.columns);
  if (rows === m.rows && columns === m.columns) return m;
  const data = new Uint8Array(rows * columns);
  for (let row = 0; row < rows; row++)
    data.set(m.data.subarray(row * m.columns, row * m.columns + columns), row * columns);
  return { rows, columns, data };
}

/** Indices of the largest numbers, largest first. */
export function largest(values: ArrayLike<number>, count: number): number[] {
  return Array.from(values, (_, i) => i)
    .sort((a, b) => values[b] - values[a])
    .slice(0, count);
}

export function column(m: Weights, index: number): Float32Array {
  return Float32Array.from({ length: m.rows }, (_, row) => weight(m.data[row * m.columns + index]));
}

/** b - a as bytes around 128: 0 is -1 or less of the largest change, 255 is +1. */
export function difference(a: Weights, b: Weights): Weights & { largest: number } {
  const size = a.data.length;
  let top = 0;
  for (let i = 0; i < size; i++) top = Math.max(top, Math.abs(weight(b.data[i]) - weight(a.data[i])));
  const data = new Uint8Array(size);
  for (let i = 0; i < size; i++)
    data[i] = top ? Math.round(127.5 + (127.5 * (weight(b.data[i]) - weight(a.data[i]))) / top) : 128;
  return { rows: a.rows, columns: a.columns, data, largest: top };
}

// The overview: every head of every layer as a thumbnail, in their places or sorted by a score.

export interface Tile {
  layer: number;
  head: number;
}

/** Tiles in the order they are shown: by place, or by a score with the largest first. */
export function ordered(layers: number, heads: number, scores: number[][] | null): Tile[] {
  const tiles = Array.from({ length: layers * heads }, (_, i) => ({ layer: Math.floor(i / heads), head: i % heads }));
  if (!scores) return tiles;
  const score = (tile: Tile) => (Number.isFinite(scores[tile.layer][tile.head]) ? scores[tile.layer][tile.head] : -Infinity);
  return tiles.sort((a, b) => score(b) - score(a));
}

export interface Grid {
  across: number; // tiles in a row
  tile: number; // pixels of one tile, its gap included
  left: number;
  top: number;
  rows: number;
  height: number;
}

export function laid(count: number, heads: number, width: number): Grid {
  const left = 30, top = 18;
  const tile = Math.max(14, Math.min(66, Math.floor((width - left) / heads)));
  const across = Math.max(1, Math.min(heads, Math.floor((width - left) / tile)));
  const rows = Math.ceil(count / across);
  return { across, tile, left, top, rows, height: top + rows * tile + 4 };
}

export function tileAt(grid: Grid, count: number, x: number, y: number): number | null {
  const column = Math.floor((x - grid.left) / grid.tile), row = Math.floor((y - grid.top) / grid.tile);
  if (column < 0 || column >= grid.across || row < 0) return null;
  const index = row * grid.across + column;
  return index < count ? index : null;
}

// Colours: a byte in, a pixel out, through a table of 256. Recolouring a matrix is one look-up per cell.

type RGB = [number, number, number];
export type PaletteName = "blue" | "viridis" | "cividis" | "change" | "changeDark";

const STOPS: Record<PaletteName, RGB[]> = {
  blue: [[255, 255, 255], [222, 235, 250], [158, 197, 240], [84, 145, 219], [31, 95, 191], [8, 48, 107]],
  viridis: [[38, 12, 51], [65, 68, 135], [42, 120, 142], [34, 168, 132], [122, 209, 81], [253, 231, 37]],
  cividis: [[0, 32, 76], [46, 68, 111], [103, 105, 112], [140, 134, 119], [197, 179, 97], [255, 233, 69]],
  // Differences: blue is less, red is more, and nothing has the colour of the page.
  changeDark: [[122, 182, 245], [58, 98, 142], [38, 43, 51], [140, 66, 56], [245, 134, 112]],
  change: [[33, 102, 172], [146, 197, 222], [247, 247, 247], [244, 165, 130], [178, 24, 43]],
};

/** At most eight heads get a colour of their own (Okabe and Ito's palette, safe for colour blindness). */
export const HEADS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a6d00", "#6b7280"];

export function colour(name: PaletteName, t: number): RGB {
  const stops = STOPS[name];
  const place = Math.max(0, Math.min(1, t)) * (stops.length - 1);
  const low = Math.min(Math.floor(place), stops.length - 2);
  const mix = place - low;
  return stops[low].map((c, i) => Math.round(c + (stops[low + 1][i] - c) * mix)) as RGB;
}

export const css = (name: PaletteName, t: number): string => `rgb(${colour(name, t).join(" ")})`;

/** Black or white, whichever reads better on a colour; one of them always has a contrast above 4.5. */
export function ink(name: PaletteName, t: number): string {
  const [r, g, b] = colour(name, t).map((c) => (c / 255 <= 0.03928 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#000000" : "#ffffff";
}

/** Where a byte stands between the palette's ends. Bytes carry square roots: contrast 1 shows weights as they
 * are, smaller numbers lift what is faint. `top` is the byte that gets the full colour. Differences are shown as
 * they come. */
export function shade(name: PaletteName, byte: number, contrast = 1, top = 255): number {
  return name.startsWith("change") ? byte / 255 : Math.min(1, byte / Math.max(1, top)) ** (2 * contrast);
}

/** The byte that gets the full colour: the largest there is, so that a head that spreads itself over 500 tokens is
 * not a blank. */
export function brightest(bytes: Uint8Array): number {
  let most = 1;
  for (const byte of bytes) if (byte > most) most = byte;
  return most;
}

/** 256 pixels (little-endian ABGR). */
export function table(name: PaletteName, contrast = 1, top = 255): Uint32Array {
  const pixels = new Uint32Array(256);
  for (let byte = 0; byte < 256; byte++) {
    const [r, g, b] = colour(name, shade(name, byte, contrast, top));
    pixels[byte] = (255 << 24) | (b << 16) | (g << 8) | r;
  }
  return pixels;
}

/** Colour a block of bytes into a larger picture of pixels. */
export function paint(
  bytes: Uint8Array, rows: number, columns: number, lut: Uint32Array,
  into: Uint32Array, stride: number, offset: number,
): void {
  for (let row = 0; row < rows; row++) {
    let from = row * columns;
    let to = offset + row * stride;
    for (const end = from + columns; from < end; ) into[to++] = lut[bytes[from++]];
  }
}

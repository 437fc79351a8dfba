// Numbers for people: three significant digits, thousands apart, bytes and amounts with their letter.

export function figure(x: number | null | undefined): string {
  if (x === null || x === undefined) return "–";
  if (!Number.isFinite(x)) return Number.isNaN(x) ? "NaN" : x > 0 ? "∞" : "−∞";
  if (x === 0) return "0";
  if (Number.isInteger(x) && Math.abs(x) < 1e6) return grouped(x).replace("-", "−"); // 4 heads, not 4.00
  const size = Math.abs(x);
  const said = size >= 1e6 || size < 1e-4 ? x.toExponential(2) : size >= 1000 ? grouped(x) : trimmed(x);
  return said.replace("-", "−");
}

const trimmed = (x: number): string => (Math.abs(x) >= 100 ? x.toFixed(0) : x.toPrecision(3));
export const grouped = (x: number): string => Math.round(x).toLocaleString("en-US");

export function amount(x: number, unit = ""): string {
  for (const [size, letter] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]] as const)
    if (Math.abs(x) >= size) return `${Number((x / size).toPrecision(3))} ${letter}${unit}`;
  return `${Number(x.toPrecision(3))} ${unit}`.trim();
}

/** Two decimals where space is short; what rounds to zero has no sign. */
export function brief(v: number): string {
  const said = Math.abs(v) >= 100 ? v.toFixed(0) : Math.abs(v) >= 10 ? v.toFixed(1) : v.toFixed(2);
  return (Number(said) === 0 ? said.replace("-", "") : said).replace("-", "−");
}

export const percent = (p: number): string =>
  p >= 0.9995 ? "100 %" : p >= 0.1 ? `${(100 * p).toFixed(1)} %` : `${(100 * p).toPrecision(2)} %`;

export function seconds(s: number): string {
  if (s < 1) return `${Math.round(s * 1000)} ms`;
  if (s < 60) return `${s.toFixed(1)} s`;
  return `${Math.floor(s / 60)}:${String(Math.round(s % 60)).padStart(2, "0")}`;
}

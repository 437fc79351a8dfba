// Which word of an answer comes from which word of its source, by weight.
import { weight, type Weights } from "./matrix";
import type { Link } from "./svg";

/** The strongest link of every row, or all that weigh at least `least`. */
export function linked(m: Weights, least: number | null): Link[] {
  const found: Link[] = [];
  for (let q = 0; q < m.rows; q++) {
    const row = m.data.subarray(q * m.columns, (q + 1) * m.columns);
    let best = 0;
    row.forEach((byte, k) => { if (byte > row[best]) best = k; });
    row.forEach((byte, k) => { if (least === null ? k === best : weight(byte) >= least) found.push({ q, k, w: weight(byte) }); });
  }
  return found;
}

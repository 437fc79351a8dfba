// The records of a run as columns to draw: one list of steps, one list per quantity, gaps where nothing was logged.

export interface Record_ {
  step: number;
  loss?: number;
  lr?: number;
  grad_norm?: number;
  speed?: { tokens_per_second: number; seconds: number };
  split?: string;
  scores?: Record<string, number | null>;
  best?: boolean;
  samples?: string[];
}
export interface Series {
  step: number[];
  loss: number[];
  lr: number[];
  grad_norm: number[];
  speed: number[];
  valid: { step: number; scores: Record<string, number | null>; best: boolean; samples: string[] }[];
}

export const empty = (): Series => ({ step: [], loss: [], lr: [], grad_norm: [], speed: [], valid: [] });

/** Add records; a step that comes again (a run resumed from before) replaces everything behind it. */
export function extended(series: Series, records: Record_[]): Series {
  const next: Series = { ...series, step: [...series.step], loss: [...series.loss], lr: [...series.lr],
    grad_norm: [...series.grad_norm], speed: [...series.speed], valid: [...series.valid] };
  for (const r of records) {
    if (r.split === "valid") {
      next.valid = next.valid.filter((v) => v.step < r.step);
      next.valid.push({ step: r.step, scores: r.scores ?? {}, best: !!r.best, samples: r.samples ?? [] });
      continue;
    }
    if (r.split) continue; // that a step failed, and why: there is nothing to draw
    while (next.step.length && next.step[next.step.length - 1] >= r.step)
      for (const column of [next.step, next.loss, next.lr, next.grad_norm, next.speed]) column.pop();
    next.step.push(r.step);
    next.loss.push(r.loss ?? NaN);
    next.lr.push(r.lr ?? NaN);
    next.grad_norm.push(r.grad_norm ?? NaN);
    next.speed.push(r.speed?.tokens_per_second ?? NaN);
  }
  return next;
}

/** Several lines over the union of their steps, as a chart wants them; null where one has no value. */
export function joined(lines: { x: number[]; y: (number | null)[] }[]): [number[], ...(number | null)[][]] {
  const steps = [...new Set(lines.flatMap((line) => line.x))].sort((a, b) => a - b);
  const place = new Map(steps.map((step, i) => [step, i]));
  const columns = lines.map(({ x, y }) => {
    const column: (number | null)[] = new Array(steps.length).fill(null);
    x.forEach((step, i) => (column[place.get(step)!] = Number.isFinite(y[i]) ? y[i] : null));
    return column;
  });
  return [steps, ...columns];
}

/** At most `most` points: of each stretch its mean, so that a long noisy line is still one line. */
export function thinned(x: number[], y: number[], most: number): { x: number[]; y: number[] } {
  if (x.length <= most) return { x, y };
  const size = Math.ceil(x.length / most), out = { x: [] as number[], y: [] as number[] };
  for (let i = 0; i < x.length; i += size) {
    const part = y.slice(i, i + size).filter(Number.isFinite);
    out.x.push(x[Math.min(i + size - 1, x.length - 1)]);
    out.y.push(part.reduce((a, b) => a + b, 0) / part.length);
  }
  return out;
}

// A stack as boxes from bottom to top, in the order given by its norms.

export interface TowerShape {
  layers: number;
  width: number;
  heads: number;
  kv_heads: number;
  head_dim: number;
  hidden: number | null;
  vocab: number | null;
  order: "pre" | "post" | "sandwich" | "parallel";
  norm: string;
  feedforward: string;
  positions: string;
  kernel: string;
  causal: boolean;
  cross: boolean;
  last_norm: boolean;
}
export interface Box {
  kind: "embed" | "place" | "norm" | "attention" | "cross" | "feed" | "add" | "head";
  note: string; // its numbers, in a few words
}
export interface Blueprint {
  below: Box[];
  block: Box[]; // repeated `layers` times
  above: Box[];
}

export function blueprint(t: TowerShape, head: string | null): Blueprint {
  const norm: Box = { kind: "norm", note: t.norm };
  const groups = t.kv_heads === t.heads ? `${t.heads} × ${t.head_dim}` : `${t.heads} / ${t.kv_heads} × ${t.head_dim}`;
  const attention: Box = { kind: "attention", note: t.kernel === "Softmax" ? groups : `${t.kernel} ${groups}` };
  const steps: Box[] = [attention, ...(t.cross ? [{ kind: "cross" as const, note: groups }] : []), { kind: "feed", note: `${t.feedforward} ${t.hidden ?? ""}` }];
  const add: Box = { kind: "add", note: "" };
  const around: Record<TowerShape["order"], (step: Box) => Box[]> = {
    pre: (step) => [norm, step, add],
    post: (step) => [step, add, norm],
    sandwich: (step) => [norm, step, norm, add],
    parallel: (step) => [norm, step],
  };
  const block = steps.flatMap(around[t.order]);
  if (t.order === "parallel") block.push(add);
  return {
    below: [{ kind: "embed", note: t.vocab ? `${t.vocab.toLocaleString("en-US")} × ${t.width}` : `${t.width}` }, { kind: "place", note: t.positions }],
    block,
    above: [...(t.last_norm ? [norm] : []), ...(head ? [{ kind: "head" as const, note: head }] : [])],
  };
}

// What the Attention screen is looking at: a trace on the server, and the pieces of it that were fetched.
import { post, Refusal, tensors, type TraceInfo } from "./api";
import { cropped, withoutFirst, type Weights } from "./matrix";
import { ordered, type Tile } from "./overview";
import { report } from "./report.svelte";
import type { Tensor } from "./safetensors";

export type Mode = "heat" | "lines" | "tinted" | "align";
interface Overview {
  thumbs: { shape: number[]; data: Uint8Array };
  scores: Record<string, number[][]>;
}

class AttentionState {
  text = $state("");
  target = $state("");
  trace = $state.raw<TraceInfo | null>(null);
  kind = $state("self");
  layer = $state(0);
  head = $state(0);
  several = $state<Tile[]>([]);
  overview = $state.raw<Overview | null>(null);
  heads = $state.raw<Record<string, Weights>>({});
  rows = $state.raw<Record<string, Float32Array>>({});
  private before = $state.raw<Weights | null>(null);
  mode = $state<Mode>("heat");
  sort = $state("");
  contrast = $state(0.5);
  hideFirst = $state(false);
  step = $state(0); // how many generated tokens are shown
  pinned = $state<number | null>(null);
  busy = $state(false);
  model = "";
  private asking = false;
  private wanted: number | null = null;
  private asked: Record<string, unknown> = {};

  about = $derived(this.trace?.kinds.find((k) => k.kind === this.kind) ?? null);
  /** Who looks. In cross-attention a row is named by the word that is being said, not by the one before it. */
  queries = $derived(!this.trace ? [] : { self: this.trace.source, decoder: this.trace.target, cross: this.trace.said }[this.kind] ?? []);
  keys = $derived(this.trace ? (this.kind === "decoder" ? this.trace.target : this.trace.source) : []);
  /** Generated tokens are shown one by one on the side that was generated. */
  steps = $derived(this.trace && (this.kind !== "self" || this.trace.target.length === 0) ? this.queries.length - this.trace.prompt : 0);
  shownRows = $derived(this.steps > 0 ? this.trace!.prompt + this.step : this.queries.length);
  /** Until a head is here the one before it stays: nothing jumps, and the cursor keeps its place. */
  whole = $derived<Weights | null>(this.heads[this.key(this.layer, this.head)] ?? this.before);
  weights = $derived.by<Weights | null>(() => (this.whole ? this.shaped(this.whole) : null));

  key(layer: number, head: number): string {
    return `${this.trace?.id}/${this.kind}/${layer}/${head}`;
  }

  shaped(m: Weights): Weights {
    const columns = this.kind === "cross" ? m.columns : Math.min(m.columns, this.shownRows);
    const part = cropped(m, this.shownRows, this.steps > 0 ? columns : m.columns);
    return this.hideFirst ? withoutFirst(part) : part;
  }

  async run(model: string, more: Record<string, unknown> = {}): Promise<void> {
    this.busy = true;
    await report.attempt(async () => {
      this.asked = { model, text: this.text, target: this.target.trim() || null, ...more };
      const trace = await post<TraceInfo>("/api/traces", this.asked);
      report.note = "";
      // Of a model that is new here the most telling kind is shown first: cross-attention where there is one.
      const known = this.model === model && trace.kinds.some((k) => k.kind === this.kind);
      this.model = model;
      this.show(trace);
      await this.choose(known ? this.kind : trace.kinds[trace.kinds.length - 1].kind);
      if (!known) await this.start();
    });
    this.busy = false;
  }

  /** Take a trace in hand; nothing of the last one stays. */
  show(trace: TraceInfo): void {
    this.heads = {};
    this.rows = {};
    this.before = null;
    this.overview = null;
    this.pinned = null;
    this.trace = trace;
  }

  async choose(kind: string): Promise<void> {
    this.before = null;
    this.kind = kind;
    this.several = [];
    this.pinned = null;
    if (this.mode === "align" && kind !== "cross") this.mode = "heat";
    this.layer = Math.min(this.layer, (this.about?.layers ?? 1) - 1);
    this.head = Math.min(this.head, (this.about?.heads ?? 1) - 1);
    this.step = this.steps;
    await Promise.all([this.fetchOverview(), this.look(this.layer, this.head)]);
  }

  /** Where to begin with a new model: the head that points most clearly, and not only at the first token. */
  private async start(): Promise<void> {
    const { entropy, first } = this.overview?.scores ?? {};
    if (!entropy) return;
    const clear = entropy.map((row, l) => row.map((bits, h) => -bits - (first?.[l]?.[h] > 0.4 ? 100 : 0)));
    const [best] = ordered(entropy.length, entropy[0].length, clear);
    await this.look(best.layer, best.head);
  }

  /** A part of the trace. One that the server no longer has (it was restarted) is made again from the text. */
  private async part(path: string): Promise<Record<string, Tensor>> {
    try {
      return await tensors(`/api/traces/${this.trace!.id}/${path}`);
    } catch (error) {
      if (!(error instanceof Refusal) || error.status !== 404) throw error;
      const trace = await post<TraceInfo>("/api/traces", { ...this.asked, text: this.text });
      this.show(trace);
      this.step = this.steps;
      report.note = "error.again";
      void this.fetchOverview();
      return tensors(`/api/traces/${trace.id}/${path}`);
    }
  }

  private async fetchOverview(): Promise<void> {
    const { kind, trace } = this;
    const seen = await this.part(`overview?kind=${kind}`);
    if (this.kind === kind && (this.trace === trace || report.note)) this.overview = readOverview(seen);
  }

  /** Look closely at one head; with `add`, lay it over those already chosen (eight at most). */
  async look(layer: number, head: number, add = false): Promise<void> {
    if (add) {
      if (!this.several.length) this.several = [{ layer: this.layer, head: this.head }];
      const there = this.several.findIndex((s) => s.layer === layer && s.head === head);
      if (there >= 0) this.several = this.several.filter((_, i) => i !== there);
      else if (this.several.length < 8) this.several = [...this.several, { layer, head }];
    } else this.several = [];
    this.before = this.whole;
    this.layer = layer;
    this.head = head;
    await report.attempt(() => this.fetchHead(layer, head));
  }

  async fetchHead(layer: number, head: number): Promise<void> {
    if (!this.trace || this.heads[this.key(layer, head)]) return;
    const { sqrt } = await this.part(`head?kind=${this.kind}&layer=${layer}&head=${head}`);
    const [rows, columns] = sqrt.shape;
    this.heads = { ...this.heads, [this.key(layer, head)]: { rows, columns, data: sqrt.data as Uint8Array } };
  }

  /** The exact weights of one row, fetched once. While one is on its way only the newest wish is remembered:
   * a pointer that crosses a hundred rows does not ask a hundred times. */
  async row(q: number): Promise<void> {
    if (!this.trace || this.known(q)) return;
    if (this.asking) {
      this.wanted = q;
      return;
    }
    this.asking = true;
    const { kind, layer, head } = this;
    const told = await report.attempt(() => this.part(`row?kind=${kind}&layer=${layer}&head=${head}&q=${q}`));
    if (told && this.kind === kind) this.rows = { ...this.rows, [`${this.key(layer, head)}/${q}`]: told.row.data as Float32Array };
    this.asking = false;
    const next = this.wanted;
    this.wanted = null;
    if (next !== null) await this.row(next);
  }

  known(q: number): Float32Array | null {
    return this.rows[`${this.key(this.layer, this.head)}/${q}`] ?? null;
  }
}

function readOverview(seen: Record<string, { shape: number[]; data: any }>): Overview {
  const { thumbs, ...rest } = seen;
  const scores: Record<string, number[][]> = {};
  for (const [name, tensor] of Object.entries(rest)) {
    const [layers, heads] = tensor.shape;
    scores[name.replace("score.", "")] = Array.from({ length: layers }, (_, l) => Array.from({ length: heads }, (_, h) => tensor.data[l * heads + h]));
  }
  return { thumbs: thumbs as Overview["thumbs"], scores };
}

export const attention = new AttentionState();

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

/** A head that has arrived: what is drawn, under its own name. */
export interface Drawn {
  layer: number;
  head: number;
  weights: Weights;
}
/** Where to look in a trace; what is left out is chosen here. */
export interface Selection {
  kind?: string;
  layer?: number;
  head?: number;
}
export interface TraceRequest {
  model: string;
  text: string;
  target?: string | null;
  target_ids?: number[] | null;
  vocabulary?: string;
  generate?: boolean;
  chat?: boolean;
}

class AttentionState {
  text = $state("");
  target = $state("");
  generate = $state(false); // let it continue the text
  chat = $state(false); // the text is a message to a chat model
  trace = $state.raw<TraceInfo | null>(null);
  asked = $state.raw<TraceRequest | null>(null); // what the trace was made from
  kind = $state("self");
  layer = $state(0); // the head that was chosen; `shown` is the one that has arrived
  head = $state(0);
  several = $state<Tile[]>([]);
  overview = $state.raw<Overview | null>(null);
  heads = $state.raw<Record<string, Weights>>({});
  rows = $state.raw<Record<string, Float32Array>>({});
  private before = $state.raw<Drawn | null>(null);
  mode = $state<Mode>("heat");
  least = $state<number | null>(null); // of an alignment: all links of at least this weight; null: the strongest of each
  sort = $state("");
  contrast = $state(0.5);
  hideFirst = $state(false);
  step = $state(0); // how many generated tokens are shown
  pinned = $state<number | null>(null);
  busy = $state(false);
  private asking = false;
  private wanted: number | null = null;
  private line: AbortController | null = null; // of the newest trace that was asked for
  private moves = 0; // how often a head was chosen

  about = $derived(this.trace?.kinds.find((k) => k.kind === this.kind) ?? null);
  /** The queries. A row of cross-attention is labelled with the token generated there, not with the one before it. */
  queries = $derived(!this.trace ? [] : { self: this.trace.source, decoder: this.trace.target, cross: this.trace.said }[this.kind] ?? []);
  keys = $derived(this.trace ? (this.kind === "decoder" ? this.trace.target : this.trace.source) : []);
  /** Generated tokens are shown one by one on the side that was generated. */
  steps = $derived(this.trace && (this.kind !== "self" || this.trace.target.length === 0) ? this.queries.length - this.trace.prompt : 0);
  shownRows = $derived(this.steps > 0 ? this.trace!.prompt + this.step : this.queries.length);
  /** Until a head is here the one before it stays, under its own name: nothing jumps, and the cursor keeps its place. */
  shown = $derived.by<Drawn | null>(() => {
    const { layer, head } = this, weights = this.heads[this.key(layer, head)];
    return weights ? { layer, head, weights } : this.before;
  });
  pending = $derived(this.shown !== null && (this.shown.layer !== this.layer || this.shown.head !== this.head));
  name = $derived(this.shown ? `L${this.shown.layer} · H${this.shown.head}` : "");
  weights = $derived.by<Weights | null>(() => (this.shown ? this.shaped(this.shown.weights) : null));

  key(layer: number, head: number): string {
    return `${this.trace?.id}/${this.kind}/${layer}/${head}`;
  }

  shaped(m: Weights): Weights {
    const columns = this.kind === "cross" ? m.columns : Math.min(m.columns, this.shownRows);
    const part = cropped(m, this.shownRows, this.steps > 0 ? columns : m.columns);
    return this.hideFirst ? withoutFirst(part) : part;
  }

  async run(model: string, wanted: Selection = {}): Promise<void> {
    const { text, target, generate, chat } = this;
    await this.ask({ model, text, target: target.trim() || null, generate: generate && !target.trim(), chat }, wanted);
  }

  /** A new trace. Of another model nothing stays in sight meanwhile; an older question is no longer waited for. */
  private async ask(asked: TraceRequest, wanted: Selection): Promise<void> {
    this.line?.abort();
    const line = (this.line = new AbortController());
    const before = this.trace;
    if (before && before.model !== asked.model) this.drop();
    this.busy = true;
    this.asked = asked;
    await report.attempt("trace", async () => {
      const trace = await post<TraceInfo>("/api/traces", asked, line.signal);
      if (line.signal.aborted) return;
      report.note = "";
      await this.take(trace, before?.model === asked.model ? { kind: this.kind, layer: this.layer, head: this.head, ...wanted } : wanted);
    });
    if (this.line === line) this.busy = false;
  }

  /** Take a trace in hand, and look at one head of it; nothing of the last one stays. */
  async take(trace: TraceInfo, wanted: Selection = {}): Promise<void> {
    this.show(trace);
    // Of a model that is new here the most telling kind is shown first: cross-attention where there is one.
    const kind = trace.kinds.find((k) => k.kind === wanted.kind)?.kind ?? trace.kinds[trace.kinds.length - 1].kind;
    this.layer = wanted.layer ?? 0;
    this.head = wanted.head ?? 0;
    await this.choose(kind, wanted.layer === undefined && wanted.head === undefined);
  }

  private show(trace: TraceInfo | null): void {
    this.heads = {};
    this.rows = {};
    this.before = null;
    this.overview = null;
    this.pinned = null;
    this.trace = trace;
  }

  drop(): void {
    this.line?.abort();
    this.busy = false;
    this.show(null);
  }

  async choose(kind: string, clearest = false): Promise<void> {
    this.before = null;
    this.overview = null;
    this.kind = kind;
    this.several = [];
    this.pinned = null;
    if (this.mode === "align" && kind !== "cross") this.mode = "heat";
    this.layer = Math.min(this.layer, (this.about?.layers ?? 1) - 1);
    this.head = Math.min(this.head, (this.about?.heads ?? 1) - 1);
    this.step = this.steps;
    const overview = this.fetchOverview(); // a second for a long text: nobody waits for it
    await this.look(this.layer, this.head);
    const moves = this.moves;
    void overview.then(() => { if (clearest && moves === this.moves) void this.lookAtClearest(); });
  }

  /** Where to begin with a new model: the head that points most clearly, and not only at the first token. */
  private async lookAtClearest(): Promise<void> {
    const { entropy, first } = this.overview?.scores ?? {};
    if (!entropy) return;
    const clear = entropy.map((row, l) => row.map((bits, h) => -bits - (first?.[l]?.[h] > 0.4 ? 100 : 0)));
    const [best] = ordered(entropy.length, entropy[0].length, clear);
    await this.look(best.layer, best.head);
  }

  /** A part of the trace. One that the server no longer has (it was restarted) is made again from what was sent. */
  private async part(path: string): Promise<{ of: TraceInfo; found: Record<string, Tensor> }> {
    const old = this.trace!;
    try {
      return { of: old, found: await tensors(`/api/traces/${old.id}/${path}`) };
    } catch (error) {
      if (!(error instanceof Refusal) || error.status !== 404) throw error;
      if (this.trace === old) {
        const trace = await post<TraceInfo>("/api/traces", this.asked);
        this.show(trace);
        this.step = this.steps;
        report.note = "error.again";
        void this.fetchOverview();
      }
      const of = this.trace!;
      return { of, found: await tensors(`/api/traces/${of.id}/${path}`) };
    }
  }

  private async fetchOverview(): Promise<void> {
    const kind = this.kind;
    await report.attempt("overview", async () => {
      const { of, found } = await this.part(`overview?kind=${kind}`);
      if (this.kind === kind && this.trace === of) this.overview = readOverview(found);
    });
  }

  /** Look closely at one head; with `add`, lay it over those already chosen (eight at most). */
  async look(layer: number, head: number, add = false): Promise<void> {
    if (add) {
      if (!this.several.length) this.several = [{ layer: this.layer, head: this.head }];
      const there = this.several.findIndex((s) => s.layer === layer && s.head === head);
      if (there >= 0) this.several = this.several.filter((_, i) => i !== there);
      else if (this.several.length < 8) this.several = [...this.several, { layer, head }];
    } else this.several = [];
    this.moves++;
    this.before = this.shown;
    this.layer = layer;
    this.head = head;
    await report.attempt("head", () => this.fetchHead(layer, head));
  }

  async fetchHead(layer: number, head: number): Promise<void> {
    if (!this.trace || this.heads[this.key(layer, head)]) return;
    const kind = this.kind;
    const { of, found } = await this.part(`head?kind=${kind}&layer=${layer}&head=${head}`);
    if (this.kind !== kind || this.trace !== of) return; // something else was chosen meanwhile
    const [rows, columns] = found.sqrt.shape;
    this.heads = { ...this.heads, [this.key(layer, head)]: { rows, columns, data: found.sqrt.data as Uint8Array } };
  }

  /** The exact weights of one row of what is drawn, fetched once. While one is on its way only the newest wish is
   * remembered: a pointer that crosses a hundred rows does not ask a hundred times. */
  async row(q: number): Promise<void> {
    const shown = this.shown;
    if (!this.trace || !shown || this.known(q)) return;
    if (this.asking) {
      this.wanted = q;
      return;
    }
    this.asking = true;
    const { kind } = this, { layer, head } = shown;
    const told = await report.attempt("row", () => this.part(`row?kind=${kind}&layer=${layer}&head=${head}&q=${q}`));
    if (told && this.kind === kind && this.trace === told.of) this.rows = { ...this.rows, [`${this.key(layer, head)}/${q}`]: told.found.row.data as Float32Array };
    this.asking = false;
    const next = this.wanted;
    this.wanted = null;
    if (next !== null) await this.row(next);
  }

  known(q: number): Float32Array | null {
    return this.shown ? (this.rows[`${this.key(this.shown.layer, this.shown.head)}/${q}`] ?? null) : null;
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

// The run that is being watched: its records as they come in, and the orders it can be given.
import { follow, get, post, type Card } from "./api";
import { models } from "./models.svelte";
import { report } from "./report.svelte";
import { empty, extended, type Record_, type Series } from "./series";

export interface RunInfo {
  id: string;
  name: string;
  where: string;
  settings: Record<string, any>;
  checkpoints: { id: string; step: number }[];
  model: string | null; // what can be opened: the run itself, or its newest checkpoint
  failure: string;
  status: Card["status"];
  step: number | null;
  steps: number | null;
}
export interface Recipe {
  name: string;
  task: string;
  about: string;
  source: string | null;
  family: string;
  steps: number;
  lr: number | null;
  valid_every: number | null;
}

class Training {
  run = $state.raw<RunInfo | null>(null);
  series = $state.raw<Series>(empty());
  beside = $state.raw<Record<string, Series>>({}); // other runs, drawn on the same axes
  recipes = $state.raw<Recipe[]>([]);
  id = $state("");
  lost = $state(false);
  ended = $state(false); // all records were received and no process is running
  ordered = $state(""); // the order that is on its way
  private line: AbortController | null = null;

  async start(recipe: string, name: string, settings: Record<string, string>): Promise<string | null> {
    const made = await report.attempt("start", () => post<{ id: string }>("/api/runs", { recipe, name, settings }));
    if (!made) return null;
    await models.refresh();
    return made.id;
  }

  /** Follow a run from its first record; the old line is let go. */
  watch(id: string): void {
    this.line?.abort();
    const line = (this.line = new AbortController());
    this.id = id;
    this.series = empty();
    this.run = null;
    this.ended = false;
    void report.attempt("watch", async () => {
      await this.ask(id);
      let since = Date.now();
      for await (const { event, data } of follow(`/api/runs/${encodeURIComponent(id)}/events`, line.signal, () => (this.lost = true))) {
        if (line.signal.aborted) return;
        this.lost = false;
        if (event === "end") this.ended = true;
        if (event === "restart") this.series = empty();
        if (event === "records") this.series = extended(this.series, data as Record_[]);
        if (event === "end" || Date.now() - since > 2000) {
          since = Date.now();
          await this.ask(id);
        }
      }
      if (!line.signal.aborted && this.run?.status === "ready") await models.refresh();
    });
  }

  async ask(id: string): Promise<void> {
    const info = await get<RunInfo>(`/api/runs/${encodeURIComponent(id)}`);
    if (this.id === id) this.run = info;
  }

  async order(order: "pause" | "go on" | "save" | "stop"): Promise<void> {
    const id = this.id;
    this.ordered = order;
    await report.attempt("order", async () => {
      await post(`/api/runs/${encodeURIComponent(id)}/order`, { order });
      await new Promise((done) => setTimeout(done, 600));
      await this.ask(id);
    });
    this.ordered = "";
  }

  async lay(id: string, on: boolean): Promise<void> {
    const { [id]: _, ...rest } = this.beside;
    if (!on) this.beside = rest;
    else
      await report.attempt("beside", async () => {
        const records = await get<Record_[]>(`/api/runs/${encodeURIComponent(id)}/records`);
        this.beside = { ...this.beside, [id]: extended(empty(), records) };
      });
  }

  leave(): void {
    this.line?.abort();
  }

  /** A tab that nobody sees lets go of its line: a browser has six for one server, and the seventh tab would wait. */
  seen(visible: boolean): void {
    if (!visible) this.line?.abort();
    else if (this.id && this.line?.signal.aborted) this.watch(this.id);
  }
}

export const training = new Training();

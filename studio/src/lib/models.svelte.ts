// The models at hand: what the server found, and the facts of the one in use.
import { get, post, type Facts, type Home } from "./api";
import { place } from "./place.svelte";
import { report } from "./report.svelte";

class Models {
  home = $state.raw<Home | null>(null);
  facts = $state.raw<Record<string, Facts>>({});
  now = $derived<Facts | null>(this.facts[place.model] ?? null);

  async refresh(): Promise<void> {
    await report.attempt("home", async () => {
      this.home = await get<Home>("/api/home");
    });
  }

  /** The facts of a model; a missing one is reported until another is chosen. */
  async about(id: string): Promise<Facts | null> {
    if (!id) return null;
    if (this.facts[id]) report.clear("model");
    else
      await report.attempt("model", async () => {
        const facts = await get<Facts>(`/api/models/${encodeURIComponent(id)}`);
        this.facts = { ...this.facts, [id]: facts };
      });
    return this.facts[id] ?? null;
  }

  /** A folder, a GGUF file or a hub id the user typed; the server answers with an id. */
  async open(path: string): Promise<string | null> {
    const opened = await report.attempt("open", () => post<Facts>("/api/models", { path }));
    if (!opened) return null;
    this.facts = { ...this.facts, [opened.id]: opened };
    await this.refresh();
    return opened.id;
  }
}

export const models = new Models();

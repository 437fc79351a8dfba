// What the Generate screen is doing: the text, the settings, the tokens as they come, the tree of a beam search.
import { post, Refusal, stream, type GeneratedToken } from "./api";
import type { Decoding } from "./commands";
import { report } from "./report.svelte";

export interface Node {
  id: number;
  parent: number;
  step: number;
  token: number;
  label: string;
  logprob: number;
  score: number;
  fate: "kept" | "finished" | "pruned";
}
export interface Beams {
  nodes: Node[];
  answers: { ids: number[]; text: string; score: number; reason: string }[];
  seconds: number;
}

/** The numeric settings and their defaults. */
export const USUAL = { max_new: 48, temperature: 0.8, top_k: 0, top_p: 0.95, repetition: 1, seed: 0, beams: 4, length_penalty: 1 };
export const NUMBERS = Object.keys(USUAL) as (keyof typeof USUAL)[];

class GenerationState {
  text = $state("");
  strategy = $state<"greedy" | "sample" | "beam">("greedy");
  max_new = $state(USUAL.max_new);
  temperature = $state(USUAL.temperature);
  top_k = $state(USUAL.top_k);
  top_p = $state(USUAL.top_p);
  repetition = $state(USUAL.repetition);
  seed = $state(USUAL.seed);
  beams = $state(USUAL.beams);
  length_penalty = $state(USUAL.length_penalty);
  chat = $state(false); // the text is a message, and the checkpoint's template writes the prompt
  sent = $state.raw<Decoding | null>(null); // the request that what is shown answers
  chosen = $state.raw<number[]>([]); // places where another token was chosen by hand
  said = $state.raw<GeneratedToken[]>([]);
  answer = $state("");
  reason = $state("");
  took = $state(0);
  tree = $state.raw<Beams | null>(null);
  busy = $state(false);
  model = $state("");
  private stopper: AbortController | null = null;

  asking(model: string, forced: number[] = []): Decoding {
    const { text, strategy, max_new, temperature, top_k, top_p, repetition, seed, beams, length_penalty, chat } = this;
    return { model, text, strategy, max_new, temperature, top_k, top_p, repetition, seed, beams, length_penalty, chat, forced };
  }

  async write(model: string): Promise<void> {
    this.chosen = [];
    await this.send(this.asking(model));
  }

  private async send(asked: Decoding): Promise<void> {
    this.stop();
    const stopper = (this.stopper = new AbortController());
    this.model = asked.model;
    this.busy = true;
    this.sent = asked;
    this.clear();
    await report.attempt("generate", () => (asked.strategy === "beam" ? this.search(asked, stopper.signal) : this.listen(asked, stopper.signal)));
    if (this.stopper === stopper) this.busy = false;
  }

  /** Clear everything generated before. */
  clear(): void {
    this.answer = this.reason = "";
    this.tree = null;
    this.said = [];
  }

  private async search(asked: Decoding, signal: AbortSignal): Promise<void> {
    const tree = await post<Beams>("/api/beams", asked, signal);
    this.tree = tree;
    this.answer = tree.answers[0]?.text ?? "";
    this.took = tree.seconds;
  }

  private async listen(asked: Decoding, signal: AbortSignal): Promise<void> {
    for await (const { event, data } of stream("/api/generate", asked, signal)) {
      if (signal.aborted) return;
      if (event === "token") this.said = [...this.said, data];
      else if (event === "error") throw new Refusal(data.error, 400);
      else if (event === "done") {
        // Pieces of one character only have a name once all of them are there.
        this.said = this.said.map((token, i) => ({ ...token, ...data.tokens[i] }));
        this.answer = data.text;
        this.reason = data.reason;
        this.took = data.seconds;
      }
    }
  }

  /** Continue as if another token had been generated at this position. */
  force(at: number, id: number): Promise<void> {
    const before = this.said.slice(0, at).map((token) => token.id);
    this.chosen = [...this.chosen.filter((place) => place < at), at];
    return this.send({ ...this.sent!, forced: [...before, id] });
  }

  stop(): void {
    this.stopper?.abort();
    this.stopper = null;
    this.busy = false;
  }
}

export const generation = new GenerationState();

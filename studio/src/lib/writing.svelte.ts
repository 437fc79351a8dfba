// What the Generate screen is doing: the text, the settings, the tokens as they come, the tree of a beam search.
import { post, stream, type Said } from "./api";
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

class Writing {
  text = $state("");
  strategy = $state<"greedy" | "sample" | "beam">("greedy");
  max_new = $state(48);
  temperature = $state(0.8);
  top_k = $state(0);
  top_p = $state(0.95);
  repetition = $state(1);
  seed = $state(0);
  beams = $state(4);
  length_penalty = $state(1);
  said = $state.raw<Said[]>([]);
  answer = $state("");
  reason = $state("");
  took = $state(0);
  tree = $state.raw<Beams | null>(null);
  busy = $state(false);
  model = "";
  private stopper: AbortController | null = null;

  private asked(model: string, forced: number[]): Record<string, unknown> {
    const { text, strategy, max_new, temperature, top_k, top_p, repetition, seed, beams, length_penalty } = this;
    return { model, text, strategy, max_new, temperature, top_k, top_p, repetition, seed, beams, length_penalty, forced };
  }

  async write(model: string, forced: number[] = []): Promise<void> {
    this.stop();
    this.model = model;
    this.busy = true;
    this.answer = this.reason = "";
    this.tree = null;
    await report.attempt(() => (this.strategy === "beam" ? this.search(model) : this.listen(model, forced)));
    this.busy = false;
  }

  private async search(model: string): Promise<void> {
    this.said = [];
    const tree = await post<Beams>("/api/beams", this.asked(model, []));
    this.tree = tree;
    this.answer = tree.answers[0]?.text ?? "";
    this.took = tree.seconds;
  }

  private async listen(model: string, forced: number[]): Promise<void> {
    const stopper = (this.stopper = new AbortController());
    this.said = [];
    for await (const { event, data } of stream("/api/generate", this.asked(model, forced), stopper.signal)) {
      if (event === "token") this.said = [...this.said, data];
      else if (event === "error") report.message = data.error;
      else if (event === "done") {
        // Pieces of one character only have a name once all of them are there.
        this.said = this.said.map((token, i) => ({ ...token, ...data.tokens[i] }));
        this.answer = data.text;
        this.reason = data.reason;
        this.took = data.seconds;
      }
    }
  }

  /** Go on as if another token had been said at this place. */
  force(at: number, id: number): Promise<void> {
    const before = this.said.slice(0, at).map((token) => token.id);
    return this.write(this.model, [...before, id]);
  }

  stop(): void {
    this.stopper?.abort();
    this.stopper = null;
  }
}

export const writing = new Writing();

// The commands that do in a terminal what a screen has done, built from the request that was sent.
import type { TraceRequest, Drawn } from "./attention.svelte";
import { command } from "./quote";

export interface Decoding {
  model: string;
  text: string;
  strategy: "greedy" | "sample" | "beam";
  max_new: number;
  temperature: number;
  top_k: number;
  top_p: number;
  repetition: number;
  seed: number;
  beams: number;
  length_penalty: number;
  forced: number[];
  chat: boolean;
}

type Words = (string | number | null | undefined | false)[];

export function generation(where: string, asked: Decoding): string {
  const options: Words = ["--max-new-tokens", asked.max_new];
  if (asked.strategy === "beam") options.push("--num-beams", asked.beams, "--length-penalty", asked.length_penalty);
  else options.push("--num-beams", 1, "--repetition-penalty", asked.repetition); // or the checkpoint's own would count
  if (asked.strategy === "sample") {
    options.push("--do-sample", "--temperature", asked.temperature, "--seed", asked.seed);
    options.push("--top-k", asked.top_k, "--top-p", asked.top_p);
  } else options.push("--no-sample");
  if (asked.forced.length) options.push("--begin", ...asked.forced);
  if (asked.chat) return command("chat", where, `--message=${asked.text}`, ...options);
  // Behind -- a text is a text, also one that looks like an option.
  return asked.text.startsWith("-") ? command("generate", where, ...options, "--", asked.text) : command("generate", where, asked.text, ...options);
}

/** Of a trace whose answer was given token by token (`target_ids`), `answer` is that answer as text. */
export function looking(where: string, asked: TraceRequest, answer: string, kind: string, drawn: Pick<Drawn, "layer" | "head">, kernel = ""): string {
  const target = asked.target_ids?.length ? answer : asked.target;
  const text = asked.text.startsWith("-") ? `--text=${asked.text}` : asked.text;
  return command("look", where, text, target && `--target=${target}`, asked.generate && !target && "--generate",
    kernel && `--set=Attention.kernel=${kernel}`, "--kind", kind, "--layer", drawn.layer, "--head", drawn.head);
}

export interface Sizes {
  depth: number | null;
  width: number | null;
  heads: number | null;
  hidden: number | null;
}

/** `feedforward` is the kind of feed-forward network the family has, such as MLP. */
export function planning(size: string, sizes: Sizes, feedforward: string, batch: number, length: number, training: boolean): string {
  const edits: string[] = [];
  if (sizes.depth !== null) edits.push(`Tower.depth=${sizes.depth}`);
  if (sizes.width !== null) edits.push(`Tower.width=${sizes.width}`);
  if (sizes.heads !== null) edits.push(`Attention.heads=${sizes.heads}`, "Attention.kv_heads=None");
  if (sizes.hidden !== null) edits.push(`${feedforward}.hidden=${sizes.hidden}`);
  return command("plan", size, ...edits.flatMap((edit) => ["--set", edit]), "--batch", batch, "--length", length, training && "--train");
}

/** As the server names the folder of a run. */
export const runName = (name: string): string => name.toLowerCase().replace(/[^a-z0-9._-]+/g, "-").replace(/^[-.]+|[-.]+$/g, "").slice(0, 36);

export interface StepsOptions {
  model: string;
  text: string;
  kind: string;
  layer: number;
  head: number;
  off: string[];
}

export function teaching(where: string, asked: StepsOptions): string {
  const text = asked.text.startsWith("-") ? `--text=${asked.text}` : asked.text;
  return command("look", where, text, "--kind", asked.kind, "--layer", asked.layer, "--head", asked.head, ...asked.off.flatMap((part) => ["--without", part]));
}

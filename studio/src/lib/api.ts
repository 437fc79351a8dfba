// The server's doors, each as one function. A refusal becomes a Refusal with the server's own sentence.
import { splitter, type Message } from "./events";
import { knownKey } from "./key";
import type { Token } from "./labels";
import { readTensors, type Tensor } from "./safetensors";

export class Refusal extends Error {
  constructor(message: string, public status: number) {
    super(message);
  }
}

export interface Card {
  id: string;
  name: string;
  where: string; // the folder as the user knows it
  kind: "model" | "run" | "example";
  family: string | null; // null: no model yet
  status: "ready" | "starting" | "training" | "paused" | "stopped" | "gone";
  steps: number | null;
  step: number | null;
  checkpoints: { id: string; step: number }[];
}
export interface Home {
  version: string;
  folder: string;
  cards: Card[];
  recipes: string[];
}
export interface Facts {
  id: string;
  name: string;
  where: string;
  title: string;
  mode: string;
  task: string;
  parameters: number;
  bytes: number;
  text: boolean; // has a tokenizer
  generates: boolean;
  chat: boolean; // has a chat template
  vocabulary: string; // models with the same one understand each other's token ids
  pair: boolean; // encoder and decoder
  window: number | null;
  sample: string;
  towers: Record<string, string>;
  kinds: Kind[];
}
export interface Kind {
  kind: string; // self, decoder, cross
  layers: number;
  heads: number;
  groups: number;
}
export interface Score {
  name: string;
  values: number[][];
}
export interface TraceInfo {
  id: string;
  model: string;
  text: string;
  source: Token[];
  target: Token[]; // what the decoder read...
  said: Token[]; // ...and what it generated, shifted by one
  prompt: number; // how many tokens were given, the rest is generated
  kinds: Kind[];
  answer: string;
  own: string; // what it generates by itself, also where the answer was given
  seconds: number;
  bytes: number;
  lens: boolean; // has words to read at every layer
  vocabulary: string;
  chat: boolean; // the text was a message, and the template wrote the prompt
  notes: string[]; // what a reader should know: tokens outside the vocabulary
  causal: string[]; // kinds in which no query sees a later key
}
export interface Prediction {
  id: number;
  text: string;
  p: number;
}
export interface GeneratedToken extends Token {
  p: number;
  forced: boolean;
  others: Prediction[];
}

function headers(more: Record<string, string> = {}): Record<string, string> {
  const key = knownKey();
  return key ? { ...more, Authorization: `Bearer ${key}` } : more;
}

async function answer(path: string, init: RequestInit = {}): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(path, init);
  } catch (error) {
    if ((error as Error).name === "AbortError") throw error;
    throw new Refusal("", 0); // no response; the page shows its own message
  }
  if (response.ok) return response;
  let said = `${response.status} ${response.statusText}`;
  try {
    said = (await response.json()).error ?? said;
  } catch {
    // not JSON: the status line will do
  }
  throw new Refusal(said, response.status);
}

export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  return (await answer(path, { headers: headers(), signal })).json();
}

export async function post<T>(path: string, body: unknown, signal?: AbortSignal): Promise<T> {
  return (await answer(path, sending(body, signal))).json();
}

export async function tensors(path: string, signal?: AbortSignal): Promise<Record<string, Tensor>> {
  return readTensors(await (await answer(path, { headers: headers(), signal })).arrayBuffer());
}

export async function blob(path: string): Promise<Blob> {
  return (await answer(path, { headers: headers() })).blob();
}

/** Events of an answer that is still being written. */
export async function* stream(path: string, body: unknown, signal: AbortSignal): AsyncGenerator<Message> {
  yield* messages(await answer(path, sending(body, signal)));
}

/** Events of a run. When the line breaks it is taken up again behind the last event that was seen. */
export async function* follow(path: string, signal: AbortSignal, lost: () => void): AsyncGenerator<Message> {
  let last = "";
  while (!signal.aborted) {
    try {
      const more: Record<string, string> = last ? { "Last-Event-ID": last } : {};
      for await (const message of messages(await answer(path, { headers: headers(more), signal }))) {
        if (message.id) last = message.id;
        yield message;
        if (message.event === "end") return;
      }
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof Refusal && error.status) throw error;
      lost();
    }
    await new Promise((done) => setTimeout(done, 1500));
  }
}

async function* messages(response: Response): AsyncGenerator<Message> {
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  const feed = splitter();
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    yield* feed(value);
  }
}

function sending(body: unknown, signal?: AbortSignal): RequestInit {
  return {
    method: "POST",
    headers: headers({ "Content-Type": "application/json" }),
    body: JSON.stringify(body),
    signal,
  };
}

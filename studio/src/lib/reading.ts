// Comparing two models on one text: what the first is made to read, so that its rows are the words of the second.
import type { Facts, TraceInfo } from "./api";

export interface Reading {
  how: "" | "ids" | "text"; // nothing; the answer of the second as token ids; the same as text
  given: { target_ids?: number[]; vocabulary?: string; target?: string };
}

/** Token ids mean the same only where both have the same vocabulary. A model without a decoder reads the text alone. */
export function reading(first: Pick<Facts, "pair" | "vocabulary"> | null, second: Pick<TraceInfo, "target" | "answer" | "vocabulary">): Reading {
  const ids = second.target.slice(1).map((token) => token.id);
  if (!ids.length || !first?.pair || !second.answer) return { how: "", given: {} };
  if (first.vocabulary && first.vocabulary === second.vocabulary) return { how: "ids", given: { target_ids: ids, vocabulary: second.vocabulary } };
  return { how: "text", given: { target: second.answer } };
}

"""A bundle: a model with its tokenizer, config and defaults, and the methods of the public API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from ..errors import InputError
from ..generate import Answer, PromptLike, as_list, is_single
from ..lens import Trace, Value, ablate
from ..lens.cost import Cost, cost
from ..tune import is_quantized, weight_bytes
from .embedding import embed
from .generation import text_generator
from .parts import BundleParts
from .prediction import Prediction, predict
from .tracing import Text, trace


@dataclass(repr=False)
class Bundle(BundleParts):
    """What `load` and `build` return. Without a tokenizer it accepts ids, but no text."""

    def generate(
        self,
        text: PromptLike | Sequence[PromptLike],
        *,
        assistant: Bundle | None = None,
        batch: int = 16,
        **settings: Any,
    ) -> str | list[str]:
        """The generated text: a continuation, a translation or a summary, depending on the model.

        `text` may also be a chat: a list of messages, {"role": "user", "content": "hello"}.
        For a list of texts or chats, a list.
        Settings have Hugging Face's names (`generate.GenerationSettings`): max_new_tokens, num_beams,
        do_sample, temperature, top_k, top_p, repetition_penalty, stop, seed, ... `assistant` is a draft
        model for speculative decoding. With num_return_sequences above 1 the texts of a prompt are adjacent.
        """
        prompts = as_list(text)
        answers = text_generator(self, settings, assistant).answers(prompts, batch=batch)
        texts = [each.text for best in answers for each in (best, *best.others)]
        return texts[0] if is_single(text) and len(texts) == 1 else texts

    def answer(
        self,
        text: PromptLike | Sequence[PromptLike],
        *,
        assistant: Bundle | None = None,
        batch: int = 16,
        alternatives: int = 0,
        record: bool = False,
        **settings: Any,
    ) -> Answer | list[Answer]:
        """As `generate`, with all details: tokens, log-probabilities, and the other sequences.

        `alternatives` adds that many most likely tokens at each position; `record` every hypothesis that beam
        search considered.
        """
        answers = text_generator(self, settings, assistant).answers(
            as_list(text), batch=batch, alternatives=alternatives, record=record
        )
        return answers[0] if is_single(text) else answers

    def stream(self, text: PromptLike, *, assistant: Bundle | None = None, **settings: Any) -> Iterator[str]:
        """The text in pieces, as it is generated; together they are what `generate` gives."""
        return text_generator(self, settings, assistant).stream(text)

    def generate_ids(
        self, ids: Tensor, mask: Tensor | None = None, *, assistant: Bundle | None = None, **settings: Any
    ) -> Tensor:
        """`generate` on tensors, as in transformers: (B, T) prompt and new ids, or the decoder's ids.

        `mask` is 1 for real tokens, with padding on either side; without it the padding token marks padding.
        """
        return text_generator(self, settings, assistant).generate_ids(ids, mask)

    def cost(
        self, batch: int = 1, length: int = 128, *, target: int | None = None, training: bool = False
    ) -> Cost:
        """Parameters, operations and bytes of one call, by formulas; `target`: the decoder's length."""
        number = next(self.model.parameters()).element_size()
        found = cost(self.spec, batch=batch, length=length, target=target, training=training, number=number)
        return replace(found, weights=weight_bytes(self.model)) if is_quantized(self.model) else found

    def embed(self, texts: Sequence[str]) -> Tensor:
        """(N, width): one vector per text, pooled and normalised as the checkpoint's modules.json says."""
        if isinstance(texts, str):
            raise InputError("embed takes a list of texts; put the one text into a list")
        if self.spec.is_encoder_decoder:
            raise InputError(
                "this model has an encoder and a decoder; sentence vectors need an encoder alone"
            )
        return embed(self.model, self._tokenizer("embed"), texts, self.pooling)

    def predict(self, text: str, context: str | None = None, *, top: int = 5) -> Prediction:
        """The output of the head in words: labels, a tag per word, missing words, answers from `context`."""
        return predict(self, text, context, top=top)

    def trace(
        self,
        text: Text,
        target: Text | None = None,
        *,
        generate: bool = False,
        beams: int | None = None,
        max_new_tokens: int = 32,
    ) -> Trace:
        """Run one text through the model and record the pass; analyses are computed on demand.

        Without a target, an encoder-decoder is traced over the answer it generates. With `generate`, a
        language model continues the text first; with `beams`, the whole search is recorded. An encoder
        reads text and target as a pair.
        """
        return trace(self, text, target, generate=generate, beams=beams, limit=max_new_tokens)

    def without(self, *parts: str, set: Mapping[str, Value] | None = None) -> Bundle:
        """This bundle with parts of its model switched off (`"head:3.7"`, `"positions"`), or replaced.

        The weights are shared and unchanged; see `clearhead.lens.ablate` for the names of parts.
        """
        return replace(self, model=ablate(self.model, parts, set))

"""A bundle: a model with its tokenizer, config and defaults, and the methods of the public API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, overload

import torch
from torch import Tensor

from ..device import choose_device
from ..engine import PackProgress, drop_stale_products, layout, preparation, unprepare, weight_bytes
from ..errors import InputError
from ..generate import Answer, PromptLike, as_list, is_single
from ..lens import Trace, Value, ablate
from ..lens.cost import Cost, cost
from ..text import as_texts
from .embedding import cosines, embed
from .generation import text_generator
from .guesses import Prediction
from .parts import BundleParts
from .prediction import predict, questions
from .preparing import prepare_bundle
from .saving import save
from .switched import without_tuning
from .their_arguments import DTYPE_NAMES, as_dtype
from .tracing import Text, trace
from .tuning import merged


@dataclass(repr=False)
class Bundle(BundleParts):
    """What `load` and `build` return. Without a tokenizer it accepts ids, but no text."""

    def __call__(self, *inputs: Any, **options: Any) -> Tensor:
        """The model's own call on tensors: `bundle(ids, mask)`, `bundle(**tokenizer(texts, ...))`."""
        if any(isinstance(each, str | list | tuple) for each in inputs):
            raise InputError(
                "a bundle is called with tensors of ids, as its model; generate, predict and embed take text"
            )
        drop_stale_products(self.model)
        output: Tensor = self.model(*inputs, **options)
        return output

    def save(self, folder: str | Path) -> None:
        """Write a Hugging Face folder that transformers can load, as `clearhead.save` does."""
        save(self, folder)

    def save_pretrained(self, folder: str | Path) -> None:
        """The name that transformers has for `save`."""
        save(self, folder)

    def to(self, *places: str | torch.device | torch.dtype) -> Bundle:
        """Move the model to a device, a dtype or both, in place: `bundle.to("cuda", torch.bfloat16)`."""
        unprepare(self.model)
        for place in places:
            number = place if isinstance(place, torch.dtype) else None
            if number is None and str(place).removeprefix("torch.") in DTYPE_NAMES:
                number = as_dtype(str(place))
            if number is not None:
                self.model.to(number)
            else:
                self.model.to(choose_device(str(place)))
        layout.for_inference(self.model)
        return self

    def prepare(
        self,
        precision: str | None = None,
        *,
        cache_precision: str | None = None,
        threads: int | None = None,
        keep: bool = False,
        progress: PackProgress | None = None,
    ) -> Bundle:
        """Pack the weights for fast inference on this CPU, in place, and return the bundle.

        `precision` is "float32", "bfloat16", "int8", "int8-fine" or "int4"; None is the one the weights are
        stored in. The fastest product for each shape is found by a short measurement, once per machine.
        `cache_precision` is that of the keys and values that generation keeps: "float32", "bfloat16", "int8".
        `threads` sets the number of threads that torch uses. Saving, training and edits still see the
        weights as they were stored; a layer whose weights change computes with them, not with the pack.
        Parameters require no gradients until `ch.train` undoes the preparation.
        `keep` writes the weights of int8 and int4 into the model's folder (clearhead/int8.safetensors), where
        the next call finds them, as long as the model's own files are the same.
        `progress` is called with the number of packed matrices and of all.
        """
        prepare_bundle(
            self, precision, threads, cache_precision=cache_precision, keep=keep, progress=progress
        )
        return self

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
        return replace(found, weights=weight_bytes(self.model)) if preparation(self.model) else found

    def embed(self, texts: str | Sequence[str], *, batch_size: int | None = None) -> Tensor:
        """(N, width): one vector per text, pooled and normalised as the checkpoint's modules.json says.

        One text gives one vector, (width,). A text is cut where the model, or the checkpoint, stops reading.
        `batch_size` is the number of texts per batch; by default it follows from their lengths.
        """
        vectors = embed(self, as_texts(texts), batch_size=batch_size)
        return vectors[0] if isinstance(texts, str) else vectors

    def similarity(self, a: str | Sequence[str] | Tensor, b: str | Sequence[str] | Tensor) -> Tensor:
        """Cosines of the angles between two lists of texts, or of vectors of `embed`: (N, M)."""
        return cosines(*(each if isinstance(each, Tensor) else self.embed(each) for each in (a, b)))

    @overload  # a text is a sequence of texts for the type checker
    def predict(  # type: ignore[overload-overlap]
        self,
        text: str,
        context: str | None = None,
        *,
        choices: Sequence[str] | None = None,
        top: int = 5,
        batch_size: int | None = None,
        truncate: bool = False,
    ) -> Prediction: ...

    @overload
    def predict(
        self,
        text: Sequence[str],
        context: str | Sequence[str] | None = None,
        *,
        choices: Sequence[Sequence[str]] | None = None,
        top: int = 5,
        batch_size: int | None = None,
        truncate: bool = False,
    ) -> list[Prediction]: ...

    def predict(
        self,
        text: str | Sequence[str],
        context: str | Sequence[str] | None = None,
        *,
        choices: Sequence[str] | Sequence[Sequence[str]] | None = None,
        top: int = 5,
        batch_size: int | None = None,
        truncate: bool = False,
    ) -> Prediction | list[Prediction]:
        """The output of the head in words: labels, a score, a tag per word, missing words, the best choice.

        `context` is the text to find an answer in, or the second text of a pair; `choices` are the answers
        that a multiple-choice model ranks. A list of texts gives a list of predictions, from one context for
        all or one for each; `batch_size` is the number of rows per batch.
        `truncate` cuts a text that is longer than the model reads, if it is read as a whole. Answers are
        looked for in all parts of a long context.
        """
        inputs = questions(self, text, context, choices)
        found = predict(self, inputs, top=top, batch_size=batch_size, truncate=truncate)
        return found[0] if isinstance(text, str) else found

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

    def merged(self) -> Bundle:
        """A tuned bundle with its adapter in the weights: the same outputs, without anything beside them.

        Sums are computed in float64 and rounded once. Layers without an adapter share their weights with
        this bundle. Adapters that act between layers (bottlenecks, virtual tokens) cannot be merged.
        """
        return merged(self)

    def without(
        self,
        *parts: str,
        set: Mapping[str, Value] | None = None,
        tuning: str | Sequence[str] = (),
        keep: str | Sequence[str] = (),
    ) -> Bundle:
        """This bundle with parts of its model switched off (`"head:3.7"`, `"positions"`), or replaced.

        The weights are shared and unchanged; see `clearhead.lens.ablate` for the names of parts.
        With `tuning` parts of a tuned bundle compute as they did before it was tuned: `tuning="head:3.7"`,
        `"layer:3"`, a pattern of addresses, or `"all"`, but for those in `keep`.
        """
        bundle = without_tuning(self, tuning, keep) if tuning or keep else self
        return replace(bundle, model=ablate(bundle.model, parts, set))

"""Text generation: a model, a tokenizer and settings in; texts, answers, a stream of text or ids out.

    generator = TextGenerator(model, tokenizer, {"max_new_tokens": 40}, defaults=generation_config)
    generator.answers(["Once upon a time"])[0].text
    for piece in generator.stream("Once upon a time"): ...

A generator is made for one call, or for several with the same settings: settings are parsed once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeGuard

import torch
from torch import Tensor

from ..errors import InputError, quoted
from ..malloc import available_memory
from ..nn import TransformerModel
from ..text import Cutter, Detokenizer, Encoding, Message, Tokenizer, unknown_note, with_language
from .beam_search import Beam
from .defaults import cache_values, decoder_of, drop_unknown_ids, switch_length
from .loop import Decoding, generate
from .results import Answer, Choice, GeneratedToken, GenerationResult, Hypothesis
from .runner import Prompt
from .sampling import Sample
from .search import Strategy
from .settings import GenerationSettings, as_tuple
from .speculative import Draft

PromptLike = str | Sequence[Message]
"""A text to continue, translate or summarise; or the messages of a chat."""


def is_single(prompts: PromptLike | Sequence[PromptLike]) -> TypeGuard[PromptLike]:
    """Whether this is one prompt, a text or a chat, and not a list of prompts."""
    if not isinstance(prompts, str | Sequence):
        raise InputError(f"expected a text, a chat, or a list of these; given {type(prompts).__name__}")
    return isinstance(prompts, str) or (len(prompts) > 0 and isinstance(prompts[0], Mapping))


def as_list(prompts: PromptLike | Sequence[PromptLike]) -> Sequence[Any]:
    return [prompts] if is_single(prompts) else prompts


class TextGenerator:
    """A model with its tokenizer and the settings of a call.

    `settings` are the caller's, under Hugging Face's names; `defaults` those of the checkpoint. `draft` is a
    smaller model that proposes tokens (speculative decoding). `trained_length`: prompts beyond it get a note.
    `source_language` is the token that marks the language of source texts, if not the tokenizer's own.
    """

    def __init__(
        self,
        model: TransformerModel,
        tokenizer: Tokenizer | None,
        settings: Mapping[str, Any],
        *,
        defaults: Mapping[str, Any] | None = None,
        draft: TransformerModel | None = None,
        trained_length: int | None = None,
        source_language: int | None = None,
    ) -> None:
        decoder = decoder_of(model.spec)
        if decoder is None:
            raise InputError("this model cannot generate text: it has no decoder with a head over tokens")
        tower, head = decoder
        self.model, self.tokenizer, self.vocab = model, tokenizer, head.vocab
        # Another tree of the model for each batch, by the numbers of its prompts: rows with adapters.
        self.model_of: Callable[[Sequence[int]], TransformerModel] | None = None
        parsed, notes = GenerationSettings.read(defaults or {}, settings)
        self.settings = drop_unknown_ids(parsed, head.vocab)
        self.notes = self._settings_notes = tuple(notes)
        self.max_length = tower.max_length  # of prompt and new tokens together, if it is limited
        self._source_language, self._switch_length = source_language, switch_length(tower)
        self.streamed = 0  # how many tokens were streamed
        self._trained_length = trained_length if self.max_length is None else None
        self.draft: Draft | None = None
        if draft is not None:
            self.draft = Draft(draft, self.settings.num_assistant_tokens)
            smaller = decoder_of(draft.spec)
            lengths = (self.max_length, smaller and smaller[0].max_length)
            self.max_length = min((n for n in lengths if n is not None), default=None)

    @cached_property
    def strategy(self) -> Strategy:
        """Made on first use: a caller that needs only the settings must not fail because of the strategy."""
        return self.settings.strategy()

    def add_note(self, note: str) -> None:
        self.notes = self._settings_notes = (*self._settings_notes, note)

    # --- prompts ---

    def encode_prompts(self, prompts: Sequence[PromptLike]) -> list[list[int]]:
        """Texts as ids, with the special tokens the checkpoint expects; chats through its chat template.

        Afterwards `notes` holds those of the settings and of these prompts.
        """
        self.notes = self._settings_notes
        encodings = [self._encode(prompt) for prompt in prompts]
        rows = [self._truncated(self._in_language(encoding.ids)) for encoding in encodings]
        unk = self._need_tokenizer().unk if rows else None
        self.notes += unknown_note(encodings, unk and unk.id)
        longest, trained = max(map(len, rows), default=0), self._trained_length
        if trained is not None and longest > trained:
            self.notes += (
                f"a prompt has {longest} tokens, the model was trained on texts of up to {trained}",
            )
        end, switch = longest + (self.settings.max_new_tokens or 0), self._switch_length
        if switch is not None and longest <= switch < end:
            self.notes += (
                f"prompt and new tokens may come to {end} tokens; beyond {switch} this model has other "
                f"rotary frequencies: these are used from the start",
            )
        return rows

    def _encode(self, prompt: PromptLike) -> Encoding:
        if not prompt:
            raise InputError("the prompt is empty; give at least one word")
        tokenizer = self._need_tokenizer()
        if isinstance(prompt, str):
            return tokenizer.encode(prompt)
        chat = [each for each in prompt if isinstance(each, Mapping)] if isinstance(prompt, Sequence) else []
        if not chat or len(chat) < len(prompt):
            raise InputError(f"expected a text, or a chat of messages; given {quoted(prompt)}")
        return tokenizer.encode(tokenizer.chat(chat, tools=self.settings.tools or None), specials=False)

    def _in_language(self, ids: Sequence[int]) -> Sequence[int]:
        if self._source_language is None:
            return ids
        return with_language(ids, self._need_tokenizer(), self._source_language)

    def _truncated(self, ids: Sequence[int]) -> list[int]:
        """A source longer than the encoder's positions is cut, if `truncate_source` allows it."""
        source = self.model.spec.source_tower
        positions = None if source is None else source.max_length
        if positions is None or len(ids) <= positions or not self.settings.truncate_source:
            return list(ids)
        self.notes += (f"the text has {len(ids):,} tokens; the encoder reads the first {positions:,}",)
        return [*ids[: positions - 1], ids[-1]]  # the last id is the token that ends a text

    # --- text out ---

    def answers(
        self,
        prompts: Sequence[PromptLike],
        *,
        batch: int = 16,
        alternatives: int = 0,
        record: bool = False,
    ) -> list[Answer]:
        """An answer to each text or chat."""
        rows = self.encode_prompts(prompts)
        results = self.generate_batch(rows, batch, alternatives=alternatives, record=record)
        return [self.answer_of(*pair) for pair in zip(prompts, results, strict=True)]

    def stream(self, prompt: PromptLike) -> Iterator[str]:
        """Pieces of the answer to one prompt, as they are generated."""
        return self.stream_ids(self.encode_prompts([prompt])[0])

    def stream_ids(self, ids: Sequence[int]) -> Iterator[str]:
        """As `stream`, for an encoded prompt. With beams there is one piece, at the end."""
        run = self.decode([ids])
        if self.strategy.rows > 1:
            yield self._text(run.finish()[0][0])
            return
        detokenizer, cutter = Detokenizer(self._need_tokenizer()), Cutter(self.settings.stop_strings)
        for step in run:
            token = int(step.tokens_R[0])
            self.streamed += 1
            if token not in self.settings.ends and (piece := cutter.feed(detokenizer.feed(token))):
                yield piece
        if rest := cutter.feed(detokenizer.end()) + cutter.end():
            yield rest

    def answer_of(self, prompt: PromptLike, result: GenerationResult) -> Answer:
        """What was generated for one prompt, as text."""
        text = prompt if isinstance(prompt, str) else str(prompt[-1].get("content", ""))
        answers = [
            Answer(text, self._text(h), self._tokens(h, alternatives), h.score, h.reason)
            for h, alternatives in zip(result.hypotheses, result.alternatives, strict=True)
        ]
        return replace(answers[0], others=tuple(answers[1:]), tree=result.tree, notes=self.notes)

    def _text(self, hypothesis: Hypothesis) -> str:
        cutter = Cutter(self.settings.stop_strings)
        return cutter.feed(self._need_tokenizer().decode(hypothesis.text_ids)) + cutter.end()

    def _tokens(
        self, hypothesis: Hypothesis, alternatives: list[tuple[list[int], list[float]]]
    ) -> tuple[GeneratedToken, ...]:
        tokenizer = self._need_tokenizer()
        detokenizer = Detokenizer(tokenizer)
        texts = [detokenizer.feed(i) for i in hypothesis.text_ids]
        if texts:
            texts[-1] += detokenizer.end()
        texts += [""] * (len(hypothesis.ids) - len(texts))  # an end token has no text
        choices = [
            tuple(Choice(i, tokenizer.decode([i], specials=True), p) for i, p in zip(*each, strict=True))
            for each in alternatives
        ] or [()] * len(texts)
        return tuple(map(GeneratedToken, hypothesis.ids, texts, hypothesis.logprobs, choices))

    def _need_tokenizer(self) -> Tokenizer:
        if self.tokenizer is None:
            raise InputError(
                "text needs a tokenizer, and this model has none: put its tokenizer.json into the folder, "
                "or generate ids in Python with bundle.generate_ids"
            )
        return self.tokenizer

    # --- ids out ---

    def generate_batch(
        self, rows: Sequence[Sequence[int]], batch: int, *, alternatives: int = 0, record: bool = False
    ) -> list[GenerationResult]:
        """A result for each encoded prompt. Prompts of similar length share a batch; results are the same."""
        if batch < 1:
            raise InputError(f"batch is {batch}, expected 1 or more")
        size = 1 if self.draft is not None else batch
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
        results: dict[int, GenerationResult] = {}
        for at in range(0, len(order), size):
            chosen = order[at : at + size]
            run = self.decode([rows[i] for i in chosen], chosen, alternatives=alternatives, record=record)
            results.update(zip(chosen, run.collect(), strict=True))
        return [results[i] for i in range(len(rows))]

    def generate_ids(self, ids_BT: Tensor, mask_BT: Tensor | None = None) -> Tensor:
        """As in transformers: prompt and new ids side by side, or the decoder's ids; padded at the end."""
        if not isinstance(ids_BT, Tensor):
            raise InputError(f"ids must be a tensor; given {type(ids_BT).__name__}: torch.tensor([[1, 2]])")
        if ids_BT.ndim != 2 or 0 in ids_BT.shape or ids_BT.is_floating_point():
            raise InputError(
                f"ids must be whole numbers of shape (batch, length); given {tuple(ids_BT.shape)}"
            )
        settings = self.settings
        if mask_BT is None:  # the padding token marks padding, unless it is also an end token
            pad = settings.pad_token_id
            real = torch.ones_like(ids_BT).bool()
            if pad is not None and pad not in settings.ends:
                real = ids_BT.ne(pad)
        else:
            real = mask_BT.bool()
        if self.draft is not None and len(ids_BT) > 1:
            raise InputError("speculative decoding takes one request at a time; call generate_ids row by row")
        answers = self.decode_ids(ids_BT, real, range(len(ids_BT))).finish()
        count = settings.num_return_sequences
        rows = [[h.ids for h in answer] + [[]] * (count - len(answer)) for answer in answers]
        longest = max(len(ids) for row in rows for ids in row)
        # transformers pads beams with the end token if the padding token is 0; here too, so that ids match.
        like_beams = settings.num_beams > 1 and settings.pad == 0 and settings.ends
        fill = settings.ends[0] if like_beams else settings.pad
        new = torch.tensor([ids + [fill] * (longest - len(ids)) for row in rows for ids in row])
        first = ids_BT
        if self.model.spec.is_encoder_decoder:
            first = torch.tensor([as_tuple(settings.decoder_start_token_id)] * len(ids_BT))
        first = first.to(ids_BT.device).repeat_interleave(count, 0)
        return torch.cat([first, new.to(ids_BT.device)], dim=1)

    # --- runs of the decode loop ---

    def decode(
        self,
        rows: Sequence[Sequence[int]],
        requests: Sequence[int] = (0,),
        *,
        alternatives: int = 0,
        record: bool = False,
    ) -> Decoding:
        """A run over prompts of different length; `requests` are their numbers, to find their seeds."""
        if not all(rows):
            raise InputError("a prompt has no tokens; give at least one")
        length = max(map(len, rows))
        ids = torch.tensor([[0] * (length - len(row)) + list(row) for row in rows])
        real = torch.tensor([[False] * (length - len(row)) + [True] * len(row) for row in rows])
        return self.decode_ids(ids, real, requests, alternatives=alternatives, record=record)

    def decode_ids(
        self,
        ids_BT: Tensor,
        real_BT: Tensor,
        requests: Sequence[int],
        *,
        alternatives: int = 0,
        record: bool = False,
    ) -> Decoding:
        settings, device = self.settings, next(self.model.parameters()).device
        strategy = self._seeded(requests)
        if alternatives < 0:
            raise InputError(f"alternatives is {alternatives}; expected 0 or more")
        if alternatives and isinstance(strategy, Beam):
            raise InputError("beam search has no alternatives; record=True reports every hypothesis it tried")
        lengths, start = real_BT.sum(1).tolist(), None
        # An encoder-decoder encodes the prompt, and its decoder begins with the start token instead.
        if (source := self.model.spec.source_tower) is not None:
            self._check_source(max(lengths), source.max_length)
            first = as_tuple(settings.decoder_start_token_id)
            if not first:
                raise InputError("the decoder's start token is unknown; set decoder_start_token_id")
            start = torch.tensor([first] * len(ids_BT), device=device)
            lengths = [len(first)] * len(ids_BT)
        limits = settings.limits(lengths, self.max_length)
        first_ids = ids_BT.shape[1] if start is None else start.shape[1]
        self._check_memory(len(ids_BT), first_ids + max(limits))
        return generate(
            self.model if self.model_of is None else self.model_of(requests),
            Prompt(ids_BT.to(device), real_BT.to(device), start),
            limit=limits,
            strategy=strategy,
            filters=settings.filters(),
            stops=settings.stops(self.tokenizer.decode if self.tokenizer is not None else None),
            draft=self.draft,
            alternatives=alternatives,
            record=record,
        )

    def _seeded(self, requests: Sequence[int]) -> Strategy:
        """The strategy with the seeds of these requests, if each has its own."""
        seed, strategy = self.settings.seed, self.strategy
        if isinstance(seed, int):
            return strategy
        if len(seed) <= max(requests):
            raise InputError(f"{len(seed)} seeds for {max(requests) + 1} requests; give one, or one for each")
        if isinstance(strategy, Sample) or (isinstance(strategy, Beam) and strategy.seed is not None):
            return replace(strategy, seed=tuple(seed[i] for i in requests))
        return strategy

    def _check_memory(self, requests: int, length: int) -> None:
        """Raise an error for what does not fit before allocating it: a file may ask for 10**7 tokens."""
        each = max(self.settings.num_beams, self.settings.num_return_sequences)
        weight = next(self.model.parameters())
        per_token = cache_values(self.model.spec) * weight.element_size() + 16  # its id and log-probability
        needed = requests * each * (length * per_token + 8 * self.vocab)
        free = available_memory() if weight.device.type == "cpu" else None
        if free is not None and needed > free:
            raise InputError(
                f"{requests * each:,} sequences of up to {length:,} tokens need {needed / 1e9:,.1f} GB, and "
                f"{free / 1e9:.1f} GB are free; ask for fewer new tokens, beams or texts at a time"
            )

    def _check_source(self, length: int, positions: int | None) -> None:
        if positions is not None and length > positions:
            raise InputError(
                f"the text has {length} tokens, the encoder {positions} positions; shorten the text, or let "
                f"its end be cut off: truncate_source=True (--truncate-source)"
            )

"""Speaking: a bundle, texts and settings in; texts, answers, pieces of text or ids out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeGuard

import torch
from torch import Tensor

from ..errors import InputError, quoted
from ..generate import Beam, Decoding, Draft, Hypothesis, Node, Prompt, Row, Settings, generate
from ..generate.settings import several
from ..lens.describe import cache_values
from ..malloc import available_memory
from ..nn.model import Pair, PairModel
from ..text.pieces import Encoding, unknown_note
from ..text.streaming import Cutter, Detokenizer
from ..text.tokenizer import Tokenizer
from .answer import Answer, Asked, Choice, Token
from .bundle import Bundle
from .voice import known_ids, speaker, stored, trained_length, window

Alternatives = dict[Row, list[tuple[list[int], list[float]]]]


@dataclass(frozen=True)
class Told:
    """What one request got."""

    hypotheses: list[Hypothesis]
    alternatives: list[list[tuple[list[int], list[float]]]]  # per hypothesis, per token
    tree: tuple[Node, ...]


class Speaking:
    """A bundle that is about to speak under certain settings; made for one call."""

    def __init__(self, bundle: Bundle, given: Mapping[str, Any], assistant: Bundle | None = None) -> None:
        tower, head = speaker(bundle)
        self.bundle, self.model, self.tokenizer = bundle, bundle.model, bundle.tokenizer
        self.window = window(tower)
        settings, notes = Settings.read(stored(bundle), given)
        self.vocab = head.vocab
        self.settings = known_ids(settings, head.vocab)
        self.notes = tuple(notes)
        self.tokens = 0  # how many were streamed
        self._trained = trained_length(bundle) if self.window is None else None
        self.draft = None
        if assistant is not None:
            small = window(speaker(assistant)[0])
            self.window = min((w for w in (self.window, small) if w is not None), default=None)
            self.draft = Draft(assistant.model, self.settings.num_assistant_tokens)

    def prompts(self, asked: Sequence[Asked]) -> list[list[int]]:
        """Texts as ids, with the special tokens the checkpoint expects; chats as its template writes them."""
        encodings = [self._prompt(each) for each in asked]
        rows = [self._within(encoding.ids) for encoding in encodings]
        unk = self._tokenizer.unk if rows else None
        self.notes += unknown_note(encodings, unk and unk.id)
        longest, trained = max(map(len, rows), default=0), self._trained
        if trained is not None and longest > trained:
            self.notes += (
                f"a prompt has {longest} tokens, the model was trained on texts of up to {trained}",
            )
        return rows

    def _within(self, ids: Sequence[int]) -> list[int]:
        """A source that is longer than the encoder has positions loses its end, where that is allowed."""
        reach = window(self.bundle.spec.encoder) if isinstance(self.bundle.spec, Pair) else None
        if reach is None or len(ids) <= reach or not self.settings.truncate_source:
            return list(ids)
        self.notes += (f"the text has {len(ids):,} tokens; the encoder reads the first {reach:,}",)
        return [*ids[: reach - 1], ids[-1]]  # the last is the token that ends a text

    def _prompt(self, asked: Asked) -> Encoding:
        if not asked:
            raise InputError("the prompt is empty; give at least a word to go on from")
        if isinstance(asked, str):
            return self._tokenizer.encode(asked)
        chat = [each for each in asked if isinstance(each, Mapping)] if isinstance(asked, Sequence) else []
        if not chat or len(chat) < len(asked):
            raise InputError(f"expected a text, or a chat of messages; given {quoted(asked)}")
        return self._tokenizer.encode(self._tokenizer.chat(chat), specials=False)

    def told(
        self, rows: Sequence[Sequence[int]], batch: int, *, alternatives: int = 0, record: bool = False
    ) -> list[Told]:
        """What is said to each prompt. Prompts of like length share a batch, which changes no answer."""
        if batch < 1:
            raise InputError(f"batch is {batch}, expected 1 or more")
        size = 1 if self.draft is not None else batch
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
        found: dict[int, Told] = {}
        for at in range(0, len(order), size):
            chosen = order[at : at + size]
            run = self.run([rows[i] for i in chosen], chosen, alternatives=alternatives, record=record)
            found.update(zip(chosen, _listened(run), strict=True))
        return [found[i] for i in range(len(rows))]

    def run(
        self,
        rows: Sequence[Sequence[int]],
        requests: Sequence[int] = (0,),
        *,
        alternatives: int = 0,
        record: bool = False,
    ) -> Decoding:
        """A run over prompts of unequal length; `requests` are their numbers, where each has its own seed."""
        if not all(rows):
            raise InputError("a prompt has no tokens; give at least one")
        length = max(map(len, rows))
        ids = torch.tensor([[0] * (length - len(row)) + list(row) for row in rows])
        real = torch.tensor([[False] * (length - len(row)) + [True] * len(row) for row in rows])
        return self.decoding(ids, real, requests, alternatives=alternatives, record=record)

    def decoding(
        self,
        ids_BT: Tensor,
        real_BT: Tensor,
        requests: Sequence[int],
        *,
        alternatives: int = 0,
        record: bool = False,
    ) -> Decoding:
        settings, device = self.settings, next(self.model.parameters()).device
        seed = settings.seed
        if not isinstance(seed, int):
            if len(seed) <= max(requests):
                raise InputError(
                    f"{len(seed)} seeds for {max(requests) + 1} requests; give one, or one for each"
                )
            settings = replace(settings, seed=[seed[i] for i in requests])
        strategy = settings.strategy()
        if alternatives and isinstance(strategy, Beam):
            raise InputError("alternatives are of one row of tokens; a record tells all that beams tried")
        lengths, start = real_BT.sum(1).tolist(), None
        if isinstance(self.model, PairModel):
            self._check_source(max(lengths))
            first = several(settings.decoder_start_token_id)
            if not first:
                raise InputError(
                    "nothing says which token the decoder starts with; set decoder_start_token_id"
                )
            start = torch.tensor([first] * len(ids_BT), device=device)
            lengths = [len(first)] * len(ids_BT)
        decode = self.tokenizer.decode if self.tokenizer is not None else None
        limits = settings.limits(lengths, self.window)
        first_ids = ids_BT.shape[1] if start is None else start.shape[1]
        self._check_memory(len(ids_BT), first_ids + max(limits))
        return generate(
            self.model,
            Prompt(ids_BT.to(device), real_BT.to(device), start),
            limit=limits,
            strategy=strategy,
            filters=settings.filters(),
            stops=settings.stops(decode),
            draft=self.draft,
            alternatives=alternatives,
            record=record,
        )

    def text(self, hypothesis: Hypothesis) -> str:
        cutter = Cutter(self.settings.stop_strings)
        return cutter.feed(self._tokenizer.decode(hypothesis.said)) + cutter.end()

    def answer(self, asked: Asked, told: Told) -> Answer:
        """The hypotheses of one request as an answer with its runners-up."""
        prompt = asked if isinstance(asked, str) else str(asked[-1].get("content", ""))
        answers = [
            Answer(prompt, self.text(h), self._tokens(h, more), h.score, h.reason)
            for h, more in zip(told.hypotheses, told.alternatives, strict=True)
        ]
        return replace(answers[0], others=tuple(answers[1:]), tree=told.tree, notes=self.notes)

    def stream(self, rows: Sequence[int]) -> Iterator[str]:
        """Pieces of the answer to one prompt, as they are said. Of beams nothing is certain until the end."""
        run = self.run([rows])
        if self.settings.strategy().rows > 1:
            yield self.text(run.finish()[0][0])
            return
        spoken, cutter = Detokenizer(self._tokenizer), Cutter(self.settings.stop_strings)
        for step in run:
            token = int(step.tokens_R[0])
            self.tokens += 1
            if token not in self.settings.ends and (piece := cutter.feed(spoken.feed(token))):
                yield piece
        if rest := cutter.feed(spoken.end()) + cutter.end():
            yield rest

    def _tokens(self, hypothesis: Hypothesis, more: list[tuple[list[int], list[float]]]) -> tuple[Token, ...]:
        spoken = Detokenizer(self._tokenizer)
        texts = [spoken.feed(i) for i in hypothesis.said]
        if texts:
            texts[-1] += spoken.end()
        texts += [""] * (len(hypothesis.ids) - len(texts))
        others = [tuple(map(self._choice, *each)) for each in more] or [()] * len(texts)
        return tuple(map(Token, hypothesis.ids, texts, hypothesis.logprobs, others))

    def _choice(self, token: int, logprob: float) -> Choice:
        return Choice(token, self._tokenizer.decode([token], specials=True), logprob)

    @property
    def _tokenizer(self) -> Tokenizer:
        if self.tokenizer is None:
            raise InputError("text needs a tokenizer, and this model came without one; use generate_ids")
        return self.tokenizer

    def _check_memory(self, requests: int, length: int) -> None:
        """Refuse what cannot be held before anything is allocated: a file may ask for 10**7 tokens."""
        each = max(self.settings.num_beams, self.settings.num_return_sequences)
        weight = next(self.model.parameters())
        per_token = cache_values(self.bundle.spec) * weight.element_size() + 16  # its id and log-probability
        needed = requests * each * (length * per_token + 8 * self.vocab)
        free = available_memory() if weight.device.type == "cpu" else None
        if free is not None and needed > free:
            raise InputError(
                f"{requests * each:,} sequences of up to {length:,} tokens need {needed / 1e9:,.1f} GB, and "
                f"{free / 1e9:.1f} GB are free; ask for fewer new tokens, beams or texts at a time"
            )

    def _check_source(self, length: int) -> None:
        assert isinstance(self.bundle.spec, Pair)
        places = window(self.bundle.spec.encoder)
        if places is not None and length > places:
            raise InputError(
                f"the text has {length} tokens, the encoder {places} positions; shorten the text, or let "
                f"its end be cut off: truncate_source=True (--truncate-source)"
            )


def one(asked: Asked | Sequence[Asked]) -> TypeGuard[Asked]:
    """Whether this is one request, a text or a chat, and not a list of them."""
    if not isinstance(asked, str | Sequence):
        raise InputError(f"expected a text, a chat, or a list of these; given {type(asked).__name__}")
    return isinstance(asked, str) or (len(asked) > 0 and isinstance(asked[0], Mapping))


def answer(
    bundle: Bundle,
    asked: Sequence[Any],
    settings: Mapping[str, Any],
    assistant: Bundle | None = None,
    *,
    batch: int = 16,
    alternatives: int = 0,
    record: bool = False,
) -> list[Answer]:
    """An answer to each text or chat."""
    speaking = Speaking(bundle, settings, assistant)
    told = speaking.told(speaking.prompts(asked), batch, alternatives=alternatives, record=record)
    return [speaking.answer(*pair) for pair in zip(asked, told, strict=True)]


def generate_ids(
    bundle: Bundle,
    ids_BT: Tensor,
    mask_BT: Tensor | None,
    settings: Mapping[str, Any],
    assistant: Bundle | None,
) -> Tensor:
    """As in transformers: prompt and answer side by side, or the decoder's ids; filled up with padding."""
    if not isinstance(ids_BT, Tensor):
        raise InputError(f"ids must be a tensor; given {type(ids_BT).__name__}: torch.tensor([[1, 2]])")
    if ids_BT.ndim != 2 or 0 in ids_BT.shape or ids_BT.is_floating_point():
        raise InputError(f"ids must be whole numbers of shape (batch, length); given {tuple(ids_BT.shape)}")
    speaking = Speaking(bundle, settings, assistant)
    said = speaking.settings
    if mask_BT is None:  # padding tells itself, unless padding and end are the same token
        pad = said.pad_token_id
        real = ids_BT != pad if pad is not None and pad not in said.ends else torch.ones_like(ids_BT).bool()
    else:
        real = mask_BT.bool()
    if speaking.draft is not None and len(ids_BT) > 1:
        raise InputError("a draft guesses for one request at a time; call generate_ids row by row")
    answers = speaking.decoding(ids_BT, real, range(len(ids_BT))).finish()
    count = said.num_return_sequences
    rows = [[h.ids for h in answer] + [[]] * (count - len(answer)) for answer in answers]
    longest = max(len(ids) for row in rows for ids in row)
    # transformers fills up beams with the end token where padding is token 0; so that ids compare equal.
    fill = said.ends[0] if said.num_beams > 1 and said.pad == 0 and said.ends else said.pad
    new = torch.tensor([ids + [fill] * (longest - len(ids)) for row in rows for ids in row])
    begun = (
        torch.tensor([several(said.decoder_start_token_id)] * len(ids_BT))
        if isinstance(bundle.model, PairModel)
        else ids_BT
    )
    return torch.cat([begun.to(ids_BT.device).repeat_interleave(count, 0), new.to(ids_BT.device)], dim=1)


def _listened(run: Decoding) -> list[Told]:
    """A run heard to its end, with what its steps told on the way."""
    others: Alternatives = defaultdict(list)
    trees: dict[int, list[Node]] = defaultdict(list)
    for step in run:
        if step.alternatives is not None:
            for row, ids, logprobs in zip(step.rows, *(x.tolist() for x in step.alternatives), strict=True):
                others[row].append((ids, logprobs))
        for node in step.nodes:
            trees[node.request].append(node)
    return [
        Told(answers, [others.get(Row(i, n), []) for n in range(len(answers))], tuple(trees.get(i, ())))
        for i, answers in enumerate(run.answers)
    ]

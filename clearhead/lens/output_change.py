"""Change of an output: the outputs of two models for one text in; their distance, token by token, out.

What an output is follows from the head:

    words        a distribution over the vocabulary at every token
    tags, span   a distribution over classes at every token; two over the tokens, for both ends of an answer
    labels       a distribution over classes      decisions    a probability for each class
    score        numbers                          states       hidden states, if there is no head in common

Distributions are compared by KL(after || before) in nats: how badly the model before predicts what the model
after does. Numbers and states are compared by squared distance.

Shape suffixes: T tokens, C classes, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from ..text import Tokenizer
from .tokens import Token, of_ids
from .trace_data import TraceData

OutputKind = Literal["words", "tags", "span", "labels", "decisions", "score", "states"]
GUESSES = 3  # of each token that are kept
NUMBERS_AT_ONCE = 2**22  # logits that are computed with in float64
TokenGuess = tuple[str, float]  # a word or label, and its probability


@dataclass(frozen=True)
class TokenChange:
    """A token, and how far apart the predictions of it are, or its states where no token is predicted."""

    label: str
    text: str
    special: bool
    change: float | None  # in nats; of states, relative to their length; None: nothing predicts this token
    before: float | None = None  # the probability of this token
    after: float | None = None
    top_before: tuple[TokenGuess, ...] = ()  # the best guesses
    top_after: tuple[TokenGuess, ...] = ()
    space: bool = False  # whether a space stands before it

    @property
    def is_switched(self) -> bool:
        """Whether the best guess is another one."""
        return bool(self.top_before) and self.top_before[0][0] != self.top_after[0][0]


@dataclass(frozen=True)
class LabelChange:
    """The probability of a label before and after; of a regression, the number."""

    name: str
    before: float
    after: float


def output_distance(kind: OutputKind, after: Tensor, before: Tensor) -> Tensor:
    """How far `before` is from `after`: one number for each distribution, or for each state."""
    if kind == "states":
        return (after.double() - before.double()).square().sum(-1).reshape(-1)
    if kind == "score":
        return (after.double() - before.double()).square().reshape(-1)
    if kind == "decisions":
        p, q = after.double(), before.double()
        on = p.sigmoid() * (F.logsigmoid(p) - F.logsigmoid(q))
        off = (-p).sigmoid() * (F.logsigmoid(-p) - F.logsigmoid(-q))
        return (on + off).clamp(min=0).sum(-1).reshape(-1)
    if kind == "span":
        after, before = after.T, before.T
    return kl_divergence(after, before).reshape(-1)


def kl_divergence(after: Tensor, before: Tensor) -> Tensor:
    """KL(after || before) of two tensors of logits (..., V) in nats."""
    rows = max(1, NUMBERS_AT_ONCE // after.shape[-1])
    one, two = (torch.split(x.reshape(-1, x.shape[-1]), rows) for x in (after, before))
    return torch.cat([_kl(p, q) for p, q in zip(one, two, strict=True)]).reshape(after.shape[:-1])


def _kl(after: Tensor, before: Tensor) -> Tensor:
    p, q = after.double().log_softmax(-1), before.double().log_softmax(-1)
    # 0 * (-inf + inf) is what a word that neither model can predict would give.
    terms = torch.where(p.isneginf(), torch.zeros_like(p), p.exp() * (p - q))
    total: Tensor = terms.sum(-1)
    return total.clamp(min=0)


def counted_rows(
    kind: OutputKind, tokens: Sequence[Token], tokenizer: Tokenizer | None, *, generates: bool
) -> Tensor | None:
    """The rows of an output by token that count, None: all.

    Special tokens of encoders do not, and with mask tokens in the text only these do.
    """
    if generates:
        return None
    mask = tokenizer.mask if tokenizer is not None else None
    masked = [mask is not None and token.id == mask.id for token in tokens]
    rows = masked if kind == "words" and any(masked) else [not token.special for token in tokens]
    return torch.tensor(rows) if any(rows) else None


def is_by_token(kind: OutputKind, output: Tensor) -> bool:
    """Whether there is a distribution for every token."""
    return kind in ("words", "tags") or (kind == "decisions" and output.ndim == 2)


def token_changes(
    kind: OutputKind, before: TraceData, after: TraceData, names: Mapping[int, str]
) -> list[TokenChange]:
    """The tokens of a text in their order; where words are generated, one more: the word that comes next.

    `names` are those of classes.
    """
    tokens = (after.target_tokens or after.tokens) if after.head_side != "encoder" else after.tokens
    if not is_by_token(kind, after.answer):
        changes = _changed_states(before, after, tokens)
    else:
        changes = _changed_predictions(kind, before, after, tokens, names)
    last = [Token("", -1, 0, 0, special=False, label="")]
    return [
        replace(change, space=_has_space(token, tokens[i - 1] if i else None))
        for i, (token, change) in enumerate(zip([*tokens, *last], changes, strict=False))
    ]


def _has_space(token: Token, previous: Token | None) -> bool:
    if previous is None or token.text[:1].isspace():
        return previous is not None
    return token.special or previous.special or token.start > previous.end


def _changed_predictions(
    kind: OutputKind,
    before: TraceData,
    after: TraceData,
    tokens: Sequence[Token],
    names: Mapping[int, str],
) -> list[TokenChange]:
    logits = before.answer, after.answer
    distances = output_distance(kind, logits[1], logits[0]).tolist()
    guesses = [_best(kind, trace, names) for trace in (before, after)]

    def predicted(token: Token | None, row: int) -> TokenChange:
        """The token that this row predicts; None: it is not known."""
        found = TokenChange("", "", special=False, change=None) if token is None else _token(token)
        if token is not None and kind == "words":
            own = [float(x[row].double().log_softmax(-1)[token.id].exp()) for x in logits]
            found = replace(found, before=own[0], after=own[1])
        return replace(found, change=distances[row], top_before=guesses[0][row], top_after=guesses[1][row])

    if kind == "words" and after.info.generates:  # row t predicts token t + 1
        rest = [predicted(token, row) for row, token in enumerate(tokens[1:])]
        return [_token(tokens[0]), *rest, predicted(None, len(tokens) - 1)]
    counted = counted_rows(kind, tokens, after.tokenizer, generates=False)
    shown = [True] * len(tokens) if counted is None else counted.tolist()
    return [predicted(token, i) if shown[i] else _token(token) for i, token in enumerate(tokens)]


def _token(token: Token, change: float | None = None) -> TokenChange:
    return TokenChange(token.label, token.text, token.special, change)


def _best(kind: OutputKind, trace: TraceData, names: Mapping[int, str]) -> list[tuple[TokenGuess, ...]]:
    """The best guesses of every row, the most likely first."""
    logits = trace.answer.float()
    shares = torch.cat([-logits, logits], -1).sigmoid() if kind == "decisions" else logits.softmax(-1)
    best = shares.topk(min(GUESSES, shares.shape[-1]))

    @cache
    def name(i: int) -> str:
        return of_ids([i], trace.tokenizer)[0].label if kind == "words" else names.get(i, f"class {i}")

    rows = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return [tuple((name(i), p) for i, p in zip(*row, strict=True)) for row in rows]


def _changed_states(before: TraceData, after: TraceData, tokens: Sequence[Token]) -> list[TokenChange]:
    """The distance of the last hidden states of every token, relative to their length before."""
    one, two = before.hidden(-1).double(), after.hidden(-1).double()
    if one.shape != two.shape or len(two) != len(tokens):
        return [_token(token) for token in tokens]
    moved = (two - one).norm(dim=-1) / one.norm(dim=-1).clamp(min=1e-12)
    return [_token(token, change) for token, change in zip(tokens, moved.tolist(), strict=True)]


def label_changes(
    kind: OutputKind, before: Tensor, after: Tensor, names: Mapping[int, str]
) -> list[LabelChange]:
    """The labels of a text, the most likely after first; of a regression its numbers."""
    functions: dict[OutputKind, Callable[[Tensor], Tensor]] = {
        "labels": lambda x: x.softmax(-1), "decisions": torch.sigmoid, "score": lambda x: x,
    }  # fmt: skip
    if kind not in functions or after.ndim != 1:
        return []
    numbers = [functions[kind](x.double()).tolist() for x in (before, after)]
    found = [
        LabelChange(names.get(i, f"class {i}"), *pair) for i, pair in enumerate(zip(*numbers, strict=True))
    ]
    return found if kind == "score" else sorted(found, key=lambda label: -label.after)

"""Comparing two bundles on one text: predictions, attention, and the parts that carry the change.

    compare(base, tuned, "once upon a time")
    compare(tuned, "once upon a time")              a tuned bundle with its own base

`part_effects.py` switches the parts off, one after the other.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from ..errors import InputError, quoted
from ..lens import (
    AttentionChange,
    AttentionKind,
    Comparison,
    GeneratedTexts,
    OutputKind,
    TokenChange,
    Trace,
    TraceInput,
    attention_changes,
    counted_rows,
    is_by_token,
    label_changes,
    output_distance,
    shallow_clone,
    token_changes,
)
from ..nn import OFF, Labels, Span, Tags, Tap, TransformerModel, WordHead
from .bundle import Bundle
from .embedding import cosines, embed
from .part_effects import EffectProgress, Effects, check_effects, measure_parts
from .tracing import Text, trace, trace_input

PairNames = tuple[str, str]
TINY = 1e-45  # instead of a probability of zero, which has no logarithm


@torch.no_grad()
def compare(
    before: Bundle,
    after: Bundle | Text,
    text: Text | None = None,
    target: Text | None = None,
    *,
    effects: Effects = "auto",
    max_new_tokens: int = 32,
    names: PairNames | None = None,
    progress: EffectProgress | None = None,
) -> Comparison:
    """What one text shows of the difference between two models: the model before, and the model after.

    A tuned bundle is compared with its base by `compare(tuned, text)`. `target` is what an encoder-decoder is
    to answer, by default what the model after generates; of a model of sentence vectors, a second text.
    `effects` says which parts are switched off to see what they do: "heads" all of them, "layers" alone,
    "none", or by "auto" as many as a minute or so allows. `max_new_tokens` 0 generates no texts.
    """
    if not isinstance(after, Bundle):
        text, target, after = after, text if target is None else target, before
        before = base_of(after)
    if text is None:
        raise InputError('give a text to compare the models on: ch.compare(base, tuned, "a text")')
    check_effects(effects)
    pair = BundlePair.of(before, after)
    names = names or pair.default_names
    second = target if pair.kind == "states" and isinstance(target, str) else None
    traces = pair.traces(text, None if second is not None else target, max_new_tokens)
    known = dict[str, Tensor]()
    outputs = [
        model_output(pair.before.model, traces[1].input, pair.kind),
        model_output(pair.after.model, traces[1].input, pair.kind, tap=_layer_outputs(known)),
    ]
    rows = pair.counted(traces[1].input, outputs[1])

    def distances(output: Tensor) -> Tensor:
        found = output_distance(pair.kind, outputs[1], output)
        return found if rows is None else found[rows.to(found.device)]

    measured = measure_parts(
        pair.before.model,
        pair.after.model,
        lambda model: float(distances(model_output(model, traces[1].input, pair.kind)).sum()),
        known=known,
        effects=effects,
        length=len(traces[1].tokens) + len(traces[1].target_tokens),
        progress=progress,
    )
    moved = distances(outputs[0])
    tokens = token_changes(pair.kind, *traces, class_names(pair.after))
    attention = attention_changes(*traces)
    return Comparison(
        title=traces[1].info.title,
        names=names,
        kind=pair.kind,
        source=tuple(traces[1].tokens) if traces[1].target_tokens else (),
        tokens=tuple(tokens),
        labels=tuple(label_changes(pair.kind, outputs[0], outputs[1], class_names(pair.after))),
        summary=_summary(pair, tokens, text, second),
        change=float(moved.sum()),
        rows=len(moved),
        attention=attention,
        parts=measured.parts,
        kept=measured.kept,
        texts=_generated(pair, text, target, min(max_new_tokens, _room(pair, len(traces[1].tokens)))),
        cosine=_cosine(pair, text),
        depth={name: len(stack.blocks) for name, stack in pair.after.model.stacks.items()},
        tuning="" if after.tuning is None else str(after.tuning),
        notes=tuple(
            dict.fromkeys(
                (*pair.notes, *_virtual_shares(attention), *_reading_notes(traces[1]), *measured.notes)
            )
        ),
    )


def base_of(tuned: Bundle) -> Bundle:
    """The bundle before it was tuned."""
    if not isinstance(tuned.base, Bundle):
        raise InputError(
            "this bundle is not tuned, so there is none before it; give both: ch.compare(before, after, text)"
        )
    return tuned.base


class BundlePair(NamedTuple):
    """Two bundles that can be compared, and what of their outputs is."""

    before: Bundle
    after: Bundle
    kind: OutputKind
    notes: tuple[str, ...] = ()

    @staticmethod
    def of(before: Bundle, after: Bundle) -> BundlePair:
        for bundle in (before, after):
            if not isinstance(bundle, Bundle):
                raise InputError(f"compare takes bundles, as ch.load returns them; given {quoted(bundle)}")
        _check_tokenizers(before, after)
        if before.spec.inputs != after.spec.inputs or before.spec.generates != after.spec.generates:
            kinds = ["generates text" if b.spec.generates else "reads text" for b in (before, after)]
            what = "" if kinds[0] == kinds[1] else f": one {kinds[0]}, the other {kinds[1]}"
            raise InputError(f"the two models take different inputs{what}; compare models of one kind")
        before, notes = _with_head_of(before, after)
        kinds_of = [output_kind(bundle) for bundle in (before, after)]
        sizes = [_classes(bundle) for bundle in (before, after)]
        if kinds_of[0] == kinds_of[1] and sizes[0] == sizes[1]:
            return BundlePair(before, after, kinds_of[1], notes)
        if sizes[0] is not None and sizes[1] is not None and kinds_of[0] == kinds_of[1]:
            raise InputError(
                f"one model predicts {sizes[0]}, the other {sizes[1]}; compare models of one task"
            )
        widths = [bundle.spec.head_tower.out_width for bundle in (before, after)]
        if widths[0] != widths[1]:
            raise InputError(
                f"the two models have different heads, and states of {widths[0]} and of {widths[1]} numbers: "
                f"there is nothing to compare"
            )
        note = "the models have different heads: their last hidden states are compared"
        return BundlePair(before, after, "states", (*notes, note))

    @property
    def default_names(self) -> PairNames:
        if self.after.tuning is not None and self.after.base is not None:
            return "base", type(self.after.tuning.value).__name__
        return "before", "after"

    def traces(self, text: Text, target: Text | None, limit: int) -> tuple[Trace, Trace]:
        """Both models over the same tokens; without a target, over what the model after generates."""
        after = trace(self.after, text, target, limit=max(limit, 1))
        return trace_input(self.before, after.input), after

    def counted(self, fed: TraceInput, output: Tensor) -> Tensor | None:
        """The rows of an output that count, None: all."""
        if not is_by_token(self.kind, output):
            return None
        generates = self.after.spec.generates
        return counted_rows(self.kind, fed.tokens, self.after.tokenizer, generates=generates)


def _layer_outputs(into: dict[str, Tensor]) -> Tap:
    """A tap that keeps the output of every layer by its address."""

    def keep(address: str, x: Tensor) -> Tensor:
        if address.count(".") == 3:  # tower.blocks.3.out; sub-layers have one more
            into[address.removesuffix(".out")] = x
        return x

    return Tap("*.blocks.*.out", keep)


def model_output(model: TransformerModel, fed: TraceInput, kind: OutputKind, *, tap: Tap = OFF) -> Tensor:
    """The output of a model for one input, without the batch dimension."""
    inputs, options = fed.arguments(next(model.parameters()).device)
    was_training = model.training
    model.eval()
    try:
        output: Tensor = (model.hidden if kind == "states" else model)(*inputs, **options, tap=tap)
    finally:
        model.train(was_training)
    return output[0]


def output_kind(bundle: Bundle) -> OutputKind:
    """What the output of a bundle is, by its head."""
    head, problem = bundle.spec.head, bundle.config.get("problem_type")
    if isinstance(head, WordHead):
        return "words"
    if isinstance(head, Span):
        return "span"
    if isinstance(head, Tags):
        return "decisions" if head.count == 1 else "tags"
    if not isinstance(head, Labels):
        return "states"
    if bundle.task == "choice" or (problem == "regression" and bundle.task == "labels"):
        return "score"
    return "decisions" if problem == "multi_label_classification" or head.count == 1 else "labels"


def _classes(bundle: Bundle) -> str | None:
    """What the head chooses from."""
    head = bundle.spec.head
    if isinstance(head, WordHead):
        return f"{head.vocab:,} tokens"
    if not isinstance(head, Labels | Tags):
        return None
    names = [bundle.labels.get(i, str(i)) for i in range(head.count)]
    return f"{', '.join(names[:6])}{', ...' if len(names) > 6 else ''} ({head.count} classes)"


def _check_tokenizers(before: Bundle, after: Bundle) -> None:
    one, two = before.tokenizer, after.tokenizer
    if one is not None and two is not None and one.fingerprint != two.fingerprint:
        raise InputError(
            f"the two models have different tokenizers, of {one.vocab:,} and {two.vocab:,} tokens; only "
            f"models that read the same tokens can be compared token by token"
        )


def _with_head_of(before: Bundle, after: Bundle) -> tuple[Bundle, tuple[str, ...]]:
    """Where tuning put a new head on, the model before gets it: its own was drawn, and never trained."""
    if before is not after.base or not any(name.startswith("head.") for name in before.report.fresh):
        return before, ()
    model = shallow_clone(before.model)
    model.head = after.model.head
    note = "the base has no head of its own for this: before and after are read by the trained head"
    return replace(before, model=model), (note,)


def _virtual_shares(attention: Mapping[AttentionKind, AttentionChange]) -> Iterator[str]:
    """How much of the attention virtual tokens take; of several kinds of attention, of each."""
    for kind, change in attention.items():
        if change.virtual_LH is not None:
            share = 100 * float(change.virtual_LH.nanmean())
            yield f"virtual tokens take {share:.0f} % of the attention ({kind}) now, the mean of all heads"


def _reading_notes(trace: Trace) -> Iterator[str]:
    """What the trace says about the text. That weights sum to less than one is left out: here all count."""
    return (note for note in trace.notes if "virtual_attention" not in note)


def class_names(bundle: Bundle) -> dict[int, str]:
    """What the classes of a head are called."""
    fixed: dict[str, tuple[str, ...]] = {
        "pair": ("follows", "does not follow"), "replaced": ("original", "replaced"), "choice": ("score",),
    }  # fmt: skip
    return dict(enumerate(fixed[bundle.task])) if bundle.task in fixed else bundle.labels


def _summary(
    pair: BundlePair, tokens: Sequence[TokenChange], text: Text, second: str | None
) -> dict[str, tuple[float, float]]:
    """Numbers of the whole text, before and after."""
    found: dict[str, tuple[float, float]] = {}
    known = [
        (token.before, token.after)
        for token in tokens
        if token.before is not None and token.after is not None
    ]
    if pair.after.spec.generates and known:
        losses = [
            sum(-math.log(max(p, TINY)) for p in side) / len(known) for side in zip(*known, strict=True)
        ]
        found["loss per token"] = losses[0], losses[1]
        found["perplexity"] = math.exp(losses[0]), math.exp(losses[1])
    if second is not None and isinstance(text, str):
        one, two = (float(cosines(*torch.split(embed(bundle, [text, second]), 1))) for bundle in pair[:2])
        found["similarity of the two texts"] = one, two
    return found


def _cosine(pair: BundlePair, text: Text) -> float | None:
    """Of models without a head: the cosine of the sentence vectors before and after."""
    encoders = all(b.spec.source_tower is None and b.spec.inputs == 1 for b in pair[:2])
    if pair.kind != "states" or not isinstance(text, str) or not encoders:
        return None
    one, two = (embed(bundle, [text]) for bundle in pair[:2])
    return float(cosines(one, two)) if one.shape == two.shape else None


def _room(pair: BundlePair, length: int) -> int:
    """How many tokens both models can generate after a text of this length, as far as they have positions."""
    if pair.after.spec.is_encoder_decoder:
        return sys.maxsize
    limits = [bundle.spec.max_length for bundle in pair[:2]]
    return min((limit - length + 1 for limit in limits if limit is not None), default=sys.maxsize)


def _generated(pair: BundlePair, text: Text, target: Text | None, limit: int) -> GeneratedTexts | None:
    """What both models make of the text, by greedy decoding; of a question, their answers from the target."""
    if pair.kind == "span" and isinstance(text, str) and isinstance(target, str):
        found = [bundle.predict(text, target).guesses for bundle in pair[:2]]
        one, two = (guesses[0].text if guesses else "" for guesses in found)
        return GeneratedTexts("", one, two)
    if not pair.after.spec.generates or not isinstance(text, str) or limit < 1:
        return None
    one, two = (
        str(bundle.generate(text, max_new_tokens=limit, do_sample=False, num_beams=1)) for bundle in pair[:2]
    )
    return GeneratedTexts("" if pair.after.spec.is_encoder_decoder else text, one, two)

"""Traces: one forward pass of a model over one text, with every internal value on demand.

    t = b.trace("the animal was tired")
    t.tokens[2].label                           'animal'
    t.attention(layer=3, head=7)                (Q, K): weights of each query on each key
    t.hidden(4)                                 (T, D): the residual stream after four layers
    t.logit_lens()                              what each layer would predict
    t.steps(layer=3, head=7).scaled             every step of softmax(q k' * scale) v

There are three kinds of attention: "self" (the only tower, or the encoder), "decoder" and "cross". Layers
and heads are counted from 0; negative numbers count from the end.
Shape suffixes: L layers, H heads, Q queries, K keys, T tokens, D width.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

from ..nn import TransformerModel
from ..text import Tokenizer
from .file import read_trace
from .frames import Frame, frames
from .page import notebook
from .pictures import Picture
from .record import TraceInput, model_info, record_forward
from .saving import draw_trace, save_trace
from .trace_data import TraceData


class Trace(TraceData):
    """The record of a forward pass, with methods to draw and save it."""

    @cached_property
    def frames(self) -> list[Frame]:
        """One frame per generated token: its probability, its alternatives and what it attended to."""
        return frames(self)

    def save(self, path: str | Path, **options: Any) -> Path:
        """Save the trace (.safetensors), a page (.html) or a picture of one view (.png, .svg, .pdf)."""
        return save_trace(self, path, **options)

    def draw(self, view: str | None = None, **options: Any) -> Picture:
        """One picture; `clearhead.lens.saving.VIEWS` names the views."""
        return draw_trace(self, view, **options)

    def _repr_html_(self) -> str:
        return notebook(self)


def trace_ids(
    model: TransformerModel, trace_input: TraceInput, *, tokenizer: Tokenizer | None = None, title: str = ""
) -> Trace:
    """Run and record one forward pass. Everything else is computed on demand."""
    record = record_forward(model, trace_input)
    return Trace(trace_input, record, model_info(model, title), model=model, tokenizer=tokenizer)


def open_trace(path: str | Path) -> Trace:
    """Open a saved trace. What needs the model (other activations, ablation) is not available."""
    trace_input, record, info, lens = read_trace(path)
    return Trace(trace_input, record, info, stored_lens=lens)

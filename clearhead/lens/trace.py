"""A trace: one text through one model, and everything that happened inside, on demand.

    t = b.trace("the animal was tired")
    t.tokens[2].label                           'animal'
    t.attention(layer=3, head=7)                (Q, K): who looked at whom
    t.hidden(4)                                 (T, D): the stream after four layers
    t.logit_lens()                              what each layer would have said
    t.steps(layer=3, head=7).scaled             every step of softmax(q k' * scale) v

Attention has three kinds: "self" (the tower, or the encoder), "decoder" and "cross". Layers and heads are
counted from 0; a negative number counts from the end.
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
    @cached_property
    def frames(self) -> list[Frame]:
        """One frame for each token that was said: what the model was sure of, and where it looked."""
        return frames(self)

    def save(self, path: str | Path, **options: Any) -> Path:
        """`.safetensors` keeps the trace; .html is a page; .png, .svg, .pdf one picture (`view=`)."""
        return save_trace(self, path, **options)

    def draw(self, view: str | None = None, **options: Any) -> Picture:
        """One picture; `clearhead.lens.saving.VIEWS` names the views."""
        return draw_trace(self, view, **options)

    def _repr_html_(self) -> str:
        return notebook(self)


def trace_ids(
    model: TransformerModel, fed: TraceInput, *, tokenizer: Tokenizer | None = None, title: str = ""
) -> Trace:
    """One pass, watched. Everything else is computed when it is asked for."""
    seen = record_forward(model, fed)
    return Trace(fed, seen, model_info(model, title), model=model, tokenizer=tokenizer)


def open_trace(path: str | Path) -> Trace:
    """A trace that was saved; what needs the model (other activations, ablation) is not available."""
    fed, record, info, guesses = read_trace(path)
    return Trace(fed, record, info, guesses=guesses)

"""Trace pages: a trace in; a self-contained interactive HTML file out, without network access."""

from __future__ import annotations

import base64
import gzip
import html
import json
from pathlib import Path
from typing import Any

from torch import Tensor

from ..heads import CAVEAT, head_scores, switch
from ..record import AttentionKind
from ..routing import routing_facts_or_none
from ..trace_data import TraceData

HERE = Path(__file__).parent
CAVEAT_ZH = (
    "注意力权重只显示一个头关注哪里,并不解释模型为什么这样回答:权重高的可能无关紧要,权重低的可能起决定作用。"
    "消融一个头(--without {}),看看答案是否改变。"
)


def page(
    trace: TraceData, kind: AttentionKind | None = None, layer: int | None = None, head: int | None = None
) -> str:
    """The HTML of the page, opened at one head. Weights are compressed to one byte each; see `bytes_of`."""
    kind = kind or trace.kinds[-1]
    number = (-1 if layer is None else layer) % trace.layers(kind)
    data = {
        "start": {"kind": kind, "layer": number, "head": head or 0},
        "title": trace.info.title,
        "kinds": {kind: _kind(trace, kind) for kind in trace.kinds},
        "lens": _logit_lens(trace),
        "caveat": {
            "en": CAVEAT.format(switch(trace, trace.kinds[-1], "LAYER", "HEAD")),
            "zh": CAVEAT_ZH.format(switch(trace, trace.kinds[-1], "层", "头")),
        },
    }
    # "<" is escaped, so that no text can end the script element.
    encoded = json.dumps(data, ensure_ascii=False).replace("<", "\\u003c")
    template = (HERE / "page.html").read_text(encoding="utf-8")
    script = (HERE / "page.js").read_text(encoding="utf-8")
    title = html.escape(f"{trace.info.title} · attention")
    return template.replace("{{title}}", title).replace("{{data}}", encoded).replace("{{script}}", script)


def notebook(trace: TraceData) -> str:
    """The page in an iframe, so that a notebook can show several."""
    inner = html.escape(page(trace), quote=True)
    return (
        f'<iframe srcdoc="{inner}" style="width:100%;height:720px;border:0" sandbox="allow-scripts"></iframe>'
    )


def bytes_of(weights: Tensor) -> bytes:
    """One byte per weight: 255 times its square root, so that small weights keep their precision."""
    packed: bytes = (weights.clamp(0, 1).sqrt() * 255).round().byte().numpy().tobytes()
    return packed


def _kind(trace: TraceData, kind: AttentionKind) -> dict[str, Any]:
    rows, columns = trace.labels(kind)
    special = [[token.special for token in side] for side in trace.sides(kind)]
    layers, heads = trace.layers(kind), trace.heads(kind)
    raw = b"".join(bytes_of(trace.attention(kind, layer)) for layer in range(layers))
    scores = head_scores(trace, kind)
    return {
        "layers": layers,
        "heads": heads,
        "rows": [[label, int(is_special)] for label, is_special in zip(rows, special[0], strict=True)],
        "columns": [[label, int(is_special)] for label, is_special in zip(columns, special[1], strict=True)],
        "roles": [[scores.role(layer, head) for head in range(heads)] for layer in range(layers)],
        "experts": routing_facts_or_none(trace, kind),
        "weights": base64.b64encode(gzip.compress(raw, 6, mtime=0)).decode(),
    }


def _logit_lens(trace: TraceData) -> dict[str, Any] | None:
    """The logit lens as a table, if the model predicts something at every token."""
    lens = trace.logit_lens_or_none()
    tokens = trace.target_tokens or trace.tokens
    if lens is None or lens.ids.shape[1] != len(tokens):
        return None
    probabilities = [[[round(p, 3) for p in row] for row in layer] for layer in lens.probabilities.tolist()]
    labels = [token.label for token in tokens]
    return {"tokens": labels, "labels": lens.labels, "probabilities": probabilities}

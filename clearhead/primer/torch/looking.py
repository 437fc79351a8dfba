"""Counting, drawing, measuring: what the notes look at. A model in; numbers, lines and a picture out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from ...errors import InputError
from ...lens.pictures import heat_map
from .model import Transformer, transformer_spec

Say = Callable[[str], object] | None
VANISHING, EXPLODING = 1e-6, 1e3


def count_transformer_params(
    vocab_size: int = 32000,
    d_model: int = 512,
    num_heads: int = 8,
    d_ff: int = 2048,
    num_layers: int = 6,
    *,
    say: Say = print,
) -> int:
    """Parameters by part, as lines, and their sum. Nothing is allocated. The default is 93,322,496."""
    spec = transformer_spec(
        vocab_size,
        vocab_size,
        d_model=d_model,
        num_heads=num_heads,
        encoder_layers=num_layers,
        decoder_layers=num_layers,
        d_ff=d_ff,
    )
    parts = spec.count_parts()
    told = {
        "embedding": parts["encoder.embed"] + parts["decoder.embed"],
        "encoder": parts["encoder.blocks"],
        "decoder": parts["decoder.blocks"],
        "output": parts["head"],
    }
    told["total"] = sum(told.values())
    for name, count in told.items():
        if say is not None:
            say(f"{name:<10}{count:>15,}")
    return told["total"]


def visualize_attention(
    model: Transformer,
    src: Tensor,
    tgt: Tensor,
    layer: int = 0,
    head: int = 0,
    *,
    kind: Literal["encoder", "decoder", "cross"] = "cross",
    src_tokens: Sequence[str] | None = None,
    tgt_tokens: Sequence[str] | None = None,
    path: str | Path = "attention.png",
) -> Path:
    """A heat map of one head for the first sentence, words on both sides, as .png, .svg or .pdf.

    The notes draw weights that their layers throw away, of an attention they do not name, without words. What
    a head looks at is a hint about what it does, not a proof.
    """
    training = model.training
    model.eval()
    with torch.no_grad():
        _, weights = model(src[:1], tgt[:1], return_attention=True)
    model.train(training)
    layers: tuple[Tensor, ...] = getattr(weights, kind)
    if not -len(layers) <= layer < len(layers) or not -layers[0].shape[1] <= head < layers[0].shape[1]:
        size = f"{len(layers)} layers of {layers[0].shape[1]} heads"
        raise InputError(f"layer {layer}, head {head}: the {kind} attention has {size}, counted from 0")
    sides = {"source": src_tokens or src[0].tolist(), "target": tgt_tokens or tgt[0].tolist()}
    rows = "source" if kind == "encoder" else "target"
    columns = "target" if kind == "decoder" else "source"
    title = f"Attention Weights - Layer {layer}, Head {head} ({kind})"
    words = {side: [str(token) for token in tokens] for side, tokens in sides.items()}
    return heat_map(layers[layer][0, head], words[rows], words[columns], title).save(path)


def analyze_gradients(model: nn.Module, *, say: Say = print) -> dict[str, float]:
    """The norm of each parameter's gradient and of all together ("total"), as `clip_grad_norm_` measures it.

    Call it between `backward` and the clipping: after the notes' `train_step` one sees clipped gradients.
    """
    norms = {name: float(p.grad.norm()) for name, p in model.named_parameters() if p.grad is not None}
    if not norms:
        raise InputError("no parameter has a gradient; call loss.backward() first")
    total = float(torch.tensor(list(norms.values()), dtype=torch.float64).norm())
    if say is not None:
        for name, value in norms.items():
            odd = " vanishing" if value < VANISHING else " exploding" if value > EXPLODING else ""
            say(f"{name:<48}{value:>12.4g}{odd}")
        say(f"{'Total gradient norm':<48}{total:>12.4g}")
    return {**norms, "total": total}

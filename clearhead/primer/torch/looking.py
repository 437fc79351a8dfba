"""Counting, plotting, measuring: a model in; numbers, text and a picture out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from ...errors import InputError
from ...lens.pictures import heat_map
from .masks import create_masks
from .model import Transformer, transformer_spec

Ids = Tensor | Sequence[int] | Sequence[Sequence[int]]
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
    counts = {
        "embedding": parts["encoder.embed"] + parts["decoder.embed"],
        "encoder": parts["encoder.blocks"],
        "decoder": parts["decoder.blocks"],
        "output": parts["head"],
    }
    counts["total"] = sum(counts.values())
    for name, count in counts.items():
        if say is not None:
            say(f"{name:<10}{count:>15,}")
    return counts["total"]


def visualize_attention(
    model: Transformer,
    src: Ids,
    tgt: Ids,
    layer: int = 0,
    head: int = 0,
    *,
    kind: Literal["encoder", "decoder", "cross"] = "cross",
    src_tokens: Sequence[str] | None = None,
    tgt_tokens: Sequence[str] | None = None,
    pad_idx: int = 0,
    path: str | Path = "attention.png",
) -> Path:
    """A heat map of one head for the first sentence, tokens on both sides, as .png, .svg or .pdf.

    `src` and `tgt` are ids, (B, T) or (T,), tensors or lists. Padding is masked and left out of the picture:
    it belongs to the batch, not to the sentence. Names of tokens may be given with or without those of the
    padding. Attention weights are a hint about what a head does, not a proof.
    """
    source, target = _first(src), _first(tgt)
    training = model.training
    model.eval()
    with torch.no_grad():
        masks = create_masks(source, target, pad_idx, pad_idx)
        _, weights = model(source, target, *masks, return_attention=True)
    model.train(training)
    layers: tuple[Tensor, ...] = getattr(weights, kind)
    if not -len(layers) <= layer < len(layers) or not -layers[0].shape[1] <= head < layers[0].shape[1]:
        size = f"{len(layers)} layers of {layers[0].shape[1]} heads"
        raise InputError(f"layer {layer}, head {head}: the {kind} attention has {size}, counted from 0")
    rows = _labelled("tgt_tokens", target[0], tgt_tokens, pad_idx)
    columns = _labelled("src_tokens", source[0], src_tokens, pad_idx)
    rows, columns = {"encoder": (columns, columns), "decoder": (rows, rows), "cross": (rows, columns)}[kind]
    drawn = layers[layer][0, head][list(rows)][:, list(columns)].cpu()
    title = f"Attention Weights - Layer {layer}, Head {head} ({kind})"
    return heat_map(drawn, [*rows.values()], [*columns.values()], title).save(path)


def _first(ids: Ids) -> Tensor:
    """The first sentence, (1, T)."""
    found = torch.as_tensor(ids)
    if found.ndim not in (1, 2) or not found.numel():
        raise InputError(f"ids are (sentences, tokens) or (tokens,), given {tuple(found.shape)}")
    return found[None] if found.ndim == 1 else found[:1]


def _labelled(name: str, ids_T: Tensor, tokens: Sequence[str] | None, pad_idx: int) -> dict[int, str]:
    """The real tokens: where each stands, and what is written there."""
    real = [i for i, token in enumerate(ids_T.tolist()) if token != pad_idx]
    if not real:
        raise InputError(f"every id of the first sentence is padding ({pad_idx}); there is nothing to plot")
    words = [str(token) for token in ids_T.tolist()] if tokens is None else list(tokens)
    if len(words) not in (len(real), len(ids_T)):
        raise InputError(
            f"{name} has {len(words)} tokens; expected {len(ids_T)}, or {len(real)} without padding"
        )
    return dict(zip(real, words if len(words) == len(real) else [words[i] for i in real], strict=True))


def analyze_gradients(model: nn.Module, *, say: Say = print) -> dict[str, float]:
    """The norm of each parameter's gradient and of all together ("total"), as `clip_grad_norm_` measures it.

    Call it between `backward` and the clipping: after `train_step` the gradients are clipped already.
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

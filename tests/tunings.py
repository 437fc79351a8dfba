"""A tuning of every kind, with every choice it offers, and tuned models whose parameters have moved.

Adapters start as nothing added, which would hide every mistake: `tuned` moves all that learns.
"""

import itertools
from dataclasses import dataclass

import torch
from zoo import EVERY

from clearhead import nn as cn
from clearhead.nn.model import Model
from clearhead.tune import IA3, Bottleneck, Full, Lora, Prefix, Prompt, Tuning, attach_tuning

TUNINGS: dict[str, Tuning] = {
    "lora": Lora(rank=3, alpha=5),
    "lora-ff": Lora(rank=2, targets="*.ff", dropout=0.1),
    "lora-patterns": Lora(rank=2, targets="*.blocks", rank_pattern=(("*.blocks.1", 4),),
                          alpha_pattern=(("*.blocks.0.ff", 3.0),)),
    "dora": Lora(rank=3, alpha=5, variant="dora", bias="lora_only"),
    "rslora": Lora(rank=4, alpha=3, scaling="sqrt-rank", start="gaussian", bias="all"),
    "principal": Lora(rank=2, start="principal"),
    "ia3": IA3(targets="all-linear", feedforward=()),
    "ia3-inputs": IA3(targets=(), feedforward="*.ff"),
    "houlsby": Bottleneck(reduction=4, act="silu"),
    "pfeiffer": Bottleneck(reduction=4, targets="*.ff", reads="sum", dropout=0.1),
    "parallel": Bottleneck(reduction=2, targets="*.ff", reads="input", scale=4.0,
                           reduction_pattern=(("*.1.ff", 3.0),)),
    "learned-scale": Bottleneck(reduction=4, reads_pattern=(("*.attn", "input"),), learned_scale="channels"),
    "prefix": Prefix(length=3),
    "prompt": Prompt(length=3),
    "full": Full(),
    "layer": Full(targets="*.blocks.1"),
}  # fmt: skip
MERGED = [name for name, tuning in TUNINGS.items() if not isinstance(tuning, Bottleneck | Prefix | Prompt)]
# Without an effect at the start: the same bits as the base.
SILENT = [name for name, tuning in TUNINGS.items() if not isinstance(tuning, Prefix | Prompt)]


@dataclass(frozen=True)
class Tuned:
    base: cn.TransformerModel
    model: cn.TransformerModel
    spec: Model
    trained: tuple[str, ...]


def attached(spec: Model, tuning: Tuning, dtype: torch.dtype = torch.float64) -> Tuned:
    """A model and its tuned twin over the same weights, as `ch.tune` makes them."""
    base = spec.build(dtype=dtype)
    made = attach_tuning(base, tuning)
    return Tuned(base, made.model, made.spec, made.tuning.trained)


def tuned(spec: Model, tuning: Tuning, dtype: torch.dtype = torch.float64) -> Tuned:
    """The same, and all that learns has moved."""
    made = attached(spec, tuning, dtype)
    move(made.model, made.trained)
    return made


@torch.no_grad()
def move(model: torch.nn.Module, names: tuple[str, ...], size: float = 0.1) -> None:
    for name in names:
        p = model.get_parameter(name)
        noise = torch.randn(p.shape, generator=cn.generator(0, "move", name), dtype=torch.float64)
        p.add_((size * noise).to(p))


def refusal(kind: str, spec: Model) -> str | None:
    """What the error says where a tuning cannot be put on a model; None where it must work."""
    towers = list(spec.towers.values())
    if kind not in ("prefix", "prompt"):
        return None
    hit = towers if kind == "prefix" else towers[:1]
    if any(tower.virtual for tower in hit):
        return "already"
    if any(tower.pooling for tower in hit):
        return "pools its tokens"
    if kind == "prompt":
        return "whole text" if any(tower.embed.needs_whole_text for tower in hit) else None
    if any(isinstance(n, cn.Router) and n.capacity for n in spec.nodes()):
        return "capacity"
    if any(tower.residual == "reversible" for tower in towers):
        return "reversible"
    no_keys = cn.Convolution | cn.Fourier | cn.Recurrent | cn.Linear | cn.Performer | cn.BlockSummaries
    no_keys |= cn.Linformer | cn.Nystrom | cn.Summary
    mixers = [m for tower in towers for b in tower.pattern for m in (b.attention, b.aside) if m]
    if any(isinstance(n, no_keys) for mixer in mixers for n in mixer.nodes()):
        return "further keys"
    if any(isinstance(n, cn.BigBird | cn.LSH) for n in spec.nodes()):
        return "queries than keys"
    return None


CASES = [(k, n) for k, n in itertools.product(TUNINGS, EVERY) if refusal(k, EVERY[n]) is None]
POSSIBLE = {name: [k for k, n in CASES if n == name] for name in EVERY}

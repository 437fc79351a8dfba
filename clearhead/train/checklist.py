"""What to check when a loss or gradient is not finite: the run in; measured values by topic out."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import torch

from ..bundle import Bundle
from ..nn import Block
from .settings import Training


def checklist(
    bundle: Bundle, training: Training, width: int, step: int, norms: Sequence[float]
) -> dict[str, str]:
    """`norms` are the gradient norms of the steps before."""
    rates = [training.rate(width, s) for s in range(1, step + 1)]
    return {
        "learning rate": f"{rates[-1]:.3g} at this step, {max(rates):.3g} the largest so far",
        "warm-up": f"{training.schedule.warmup_steps(training.steps)} steps, of {training.steps}",
        "norm": f"{_norm_kinds(bundle)}; {_gradient_norms(norms)}, clip {training.clip}",
        "init": _largest_weights(bundle),
    }


def _norm_kinds(bundle: Bundle) -> str:
    blocks = [node for node in bundle.spec.nodes() if isinstance(node, Block)]
    kinds = sorted({f"{type(b.norm).__name__} in {b.order} order" for b in blocks})
    return ", ".join(kinds) or "no blocks"


def _gradient_norms(norms: Sequence[float]) -> str:
    if not norms:
        return "no gradient before this one"
    return f"gradient norm {norms[-1]:.3g} at the step before, {median(norms):.3g} the median"


@torch.no_grad()
def _largest_weights(bundle: Bundle) -> str:
    """Weights start between about 0.02 and 1; a hundred times that means bad initialisation or divergence."""
    rms = {name: float(p.double().square().mean().sqrt()) for name, p in bundle.model.named_parameters()}
    name = max(rms, key=lambda name: rms[name])
    return f"the largest weights have root mean square {rms[name]:.3g}, in {name}"

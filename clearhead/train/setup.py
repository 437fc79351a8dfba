"""Setting up a model for training: on its device, frozen where asked, its weights laid out for writing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ..bundle import Bundle
from ..device import choose_device
from ..engine import is_quantized, layout, unprepare
from ..tasks import model_device
from .freeze import Frozen, frozen
from .settings import Training


@contextmanager
def ready_to_train(bundle: Bundle, training: Training) -> Iterator[Frozen]:
    """The bundle as training needs it; afterwards as inference does. It stays on the device."""
    model, tuned = bundle.model, bundle.tuning is not None
    beside = bundle.tuning is not None and not bundle.tuning.value.is_whole
    mode = model.training
    if not (beside and is_quantized(model)):  # adapters learn beside the quantized weights
        unprepare(model)
    with frozen(bundle, training.freeze) as found:
        model.to(training_device(bundle, training))
        layout.for_training(model, only_trained=tuned)
        try:
            yield found
        finally:
            model.train(mode)
            # So that the bundle computes as the saved folder will.
            layout.for_inference(model, only_trained=tuned)


def training_device(bundle: Bundle, training: Training) -> torch.device:
    """The device of a run. `auto` leaves a model where it is, unless that is the CPU."""
    here = model_device(bundle.model)
    if training.device == "auto" and here.type != "cpu":
        return here
    return torch.device(choose_device(training.device))

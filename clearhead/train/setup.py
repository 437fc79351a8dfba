"""Setting up a model for training: on its device, frozen where asked, its weights laid out for writing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ..bundle import Bundle
from ..device import choose_device
from ..nn import training_products
from ..tasks import model_device
from ..tune import layout
from .freeze import Frozen, frozen
from .settings import Training


@contextmanager
def ready_to_train(bundle: Bundle, training: Training) -> Iterator[Frozen]:
    """The bundle as training needs it; afterwards as inference does. It stays on the device."""
    model = bundle.model
    mode = model.training
    with frozen(bundle, training.freeze) as found, training_products(model):
        model.to(training_device(bundle, training))
        layout.for_training(model)
        try:
            yield found
        finally:
            model.train(mode)
            layout.for_inference(model)  # so that the bundle computes as the saved folder will


def training_device(bundle: Bundle, training: Training) -> torch.device:
    """The device of a run. `auto` leaves a model where it is, unless that is the CPU."""
    here = model_device(bundle.model)
    if training.device == "auto" and here.type != "cpu":
        return here
    return torch.device(choose_device(training.device))

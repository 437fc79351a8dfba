"""What a model is trained for: batches, losses and scores."""

from .task import Batch, Better, Task

__all__ = ["Task", "Batch", "Better"]

"""transformers as a peer: a folder saved by Clearhead in; a decoder out."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from .task import Decoder, DecodeTask
from .timing import quiet_libraries


def open_transformers(folder: Path, number: str, threads: int) -> Decoder:
    """A decoder whose weights are float32 or bfloat16."""
    torch.set_num_threads(threads)
    with quiet_libraries():
        library: Any = import_module("transformers")
        kind = getattr(library, library.AutoConfig.from_pretrained(folder).architectures[0])
        model = kind.from_pretrained(folder, local_files_only=True, dtype=getattr(torch, number)).eval()

    def decode(ids: Sequence[list[int]], task: DecodeTask) -> list[list[int]]:
        ids_BT = torch.tensor(ids)
        with quiet_libraries(), torch.inference_mode():
            rows = model.generate(ids_BT, attention_mask=torch.ones_like(ids_BT), **task.settings)
        return [row[-task.tokens :] for row in rows.tolist()]

    return decode

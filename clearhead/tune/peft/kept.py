"""What a folder of PEFT had and the model here does not use: it is written back as it was."""

from __future__ import annotations

import torch
from torch import Tensor

from ..files import AdapterFiles
from ..names import ModelNames
from .layout import PROMPT, unused_tensors

UNUSED_ROWS = f"{PROMPT}.unused"  # of a prompt's tensor: those that PEFT stores and never reads


def kept_tensors(files: AdapterFiles, names: ModelNames) -> dict[str, Tensor]:
    kept = {name: files.tensors[name] for name in unused_tensors(files, names)}
    if files.config.get("peft_type") == "PROMPT_TUNING":
        rows = files.tensors[PROMPT][files.config["num_virtual_tokens"] :]
        kept |= {UNUSED_ROWS: rows.clone()} if len(rows) else {}
    return kept


def with_kept(files: AdapterFiles, kept: AdapterFiles) -> AdapterFiles:
    """The files of an adapter with the config that it was read with, and what else was in its folder.

    A folder in our own format has its own config alone: PEFT would take it for one of its own.
    """
    if files.is_own:
        return files
    tensors = {**files.tensors, **kept.tensors}
    rows = tensors.pop(UNUSED_ROWS, None)
    if rows is not None and PROMPT in tensors:
        used = tensors[PROMPT][: files.config["num_virtual_tokens"]]
        tensors[PROMPT] = torch.cat([used, rows.to(used)])
    return AdapterFiles({**files.config, **kept.config}, tensors)

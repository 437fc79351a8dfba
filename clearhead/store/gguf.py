"""GGUF (llama.cpp): one file in; a Hugging Face config, its tensors and its tokenizer out.

For models of the LLaMA family. Quantised blocks are dequantised by the `gguf` library.
"""

from __future__ import annotations

from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import LoadError
from ..text import Tokenizer
from . import gguf_llama as llama
from .gguf_header import Header
from .gguf_tokenizer import read_tokenizer

TORCH_DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def read_gguf(path: str | Path) -> tuple[dict[str, Any], dict[str, Tensor], Tokenizer | None]:
    """Read config, tensors and tokenizer. Quantised tensors become float32; others stay mapped."""
    library, where = _import_gguf(), str(path)
    try:
        header = Header(Path(path), partial(_block_size, library))
        stored = header.tensors
        factors = _read_tensor(library, header, llama.ROPE_FACTORS) if llama.ROPE_FACTORS in stored else None
        config = llama.read_config(header.metadata, stored, factors)
        plan = llama.plan_tensors(config, stored)
        tokenizer = read_tokenizer(header.metadata, where)
        if tokenizer is not None and tokenizer.vocab > config["vocab_size"]:
            rows = f"its embedding table has {config['vocab_size']} rows"
            raise LoadError(f"its tokenizer has {tokenizer.vocab} tokens, {rows}")
        tensors = {
            name: llama.unpermute(theirs, _read_tensor(library, header, theirs), config)
            for theirs, (name, _) in plan.items()
        }
    except LoadError as error:
        raise LoadError(f"{where}: {str(error).removeprefix(f'{where}: ')}") from None
    # The dtype of the matrices: norms are float32 even in half-precision files.
    dtypes = {x.dtype for x in tensors.values() if x.ndim > 1}
    config["dtype"] = str(dtypes.pop() if len(dtypes) == 1 else torch.float32).removeprefix("torch.")
    return config, tensors, tokenizer


def _import_gguf() -> Any:
    try:
        import gguf
    except ImportError:
        raise LoadError("reading .gguf files needs the gguf library: pip install 'clearhead[gguf]'") from None
    return gguf


def _block_size(library: Any, kind: int) -> tuple[int, int]:
    """The number of values and of bytes in a block of this type."""
    try:
        values, size = library.GGML_QUANT_SIZES[library.GGMLQuantizationType(kind)]
    except (ValueError, KeyError):
        raise LoadError(f"it has a tensor of type {kind}, which the gguf library does not know") from None
    return int(values), int(size)


def _read_tensor(library: Any, header: Header, name: str) -> Tensor:
    stored = header.tensors[name]
    kind = library.GGMLQuantizationType(stored.kind)
    if kind.name in TORCH_DTYPES:
        count = prod(stored.shape)
        x = torch.frombuffer(header.data, dtype=TORCH_DTYPES[kind.name], count=count, offset=stored.start)
        return x.reshape(stored.shape)
    raw = np.frombuffer(header.data, np.uint8, stored.size, stored.start)
    try:
        with np.errstate(all="ignore"):  # broken values are reported elsewhere
            values = library.quants.dequantize(raw.reshape(*stored.shape[:-1], -1), kind)
    except NotImplementedError:
        raise LoadError(f"{name} is of type {kind.name}, which the gguf library cannot dequantise") from None
    return torch.from_numpy(np.ascontiguousarray(values, np.float32)).reshape(stored.shape)

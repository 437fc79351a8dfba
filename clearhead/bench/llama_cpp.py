"""llama.cpp as a peer, by the package xllamacpp: a .gguf file in; a decoder out.

It is asked as its users ask it, through its own server, with ids instead of text.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.request import ProxyHandler, Request, build_opener

from .task import Decoder, DecodeTask

SPARE_TOKENS = 16  # of the context of each row, beyond prompt and new tokens


def open_llama_cpp(path: Path, rows: int, length: int, threads: int) -> Decoder:
    """A server with a slot for each of `rows` sequences of up to `length` tokens."""
    library: Any = import_module("xllamacpp")
    params = library.CommonParams()
    params.model.path = str(path)
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.n_parallel, params.n_ctx = rows, rows * (length + SPARE_TOKENS)
    params.verbosity = -1
    server = library.Server(params)
    direct = build_opener(ProxyHandler({}))  # not through the proxy of the environment

    def decode(ids: Sequence[list[int]], task: DecodeTask) -> list[list[int]]:
        settings = {"n_predict": task.tokens, "ignore_eos": True, "temperature": 0, "return_tokens": True}
        # Without the second setting a repeated prompt would not be computed again.
        body = json.dumps({"prompt": list(ids), "cache_prompt": False, **settings}).encode()
        request = Request(
            f"{server.listening_address}/completion", body, {"Content-Type": "application/json"}
        )
        with direct.open(request) as reply:
            found = json.load(reply)
        answers = found if isinstance(found, list) else [found]
        return [answer["tokens"] for answer in sorted(answers, key=lambda answer: int(answer["index"]))]

    return decode


def weights_of(path: Path) -> tuple[str, int]:
    """The number format of most weights of a .gguf file, and the bytes that a decode step reads."""
    library: Any = import_module("gguf")
    tensors = library.GGUFReader(path).tensors
    sizes: Counter[str] = Counter()
    for tensor in tensors:
        sizes[tensor.tensor_type.name] += int(tensor.n_bytes)
    # A table of tokens that is not the output matrix, too: a step takes one row of it.
    own_output = any(tensor.name == "output.weight" for tensor in tensors)
    table = sum(int(t.n_bytes) for t in tensors if own_output and t.name == "token_embd.weight")
    return sizes.most_common(1)[0][0], sizes.total() - table

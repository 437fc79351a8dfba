"""A trace as one file: everything that was seen in, a .safetensors out; and the way back, without the model.

Exact attention is kept as queries, keys, values, mask and bias, which are smaller than its weights, and asked
again when the file is opened; an approximation is kept as the weights it amounts to. Nothing in the file
can name code.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ..errors import InputError, LoadError, SaveError
from ..nn import Everyone, Given, Mask, View
from ..nn.kernels import ALL, AttentionCall, Kernel, RecordedCall, Softmax, SoftmaxKernel
from .logit_lens import LogitLens
from .record import ForwardRecord, ModelInfo, TraceInput
from .tokens import Token
from .trace_data import TraceData

FORMAT = "clearhead-trace-1"
LARGEST_ANSWER = 4_000_000  # numbers; beyond that the likeliest guesses are kept, not all logits


class Shown(Kernel):
    """Weights that were computed elsewhere: an approximation, opened from a file."""

    supports = frozenset({"causal", "mask", "bias", "uneven", "pattern"})

    def __init__(self, name: str, weights_BHQK: Tensor) -> None:
        super().__init__()
        self.name, self.weights = name, weights_BHQK

    def pattern(self, call: AttentionCall, heads: slice = ALL) -> Tensor:
        return self.weights[:, heads]


def write_trace(trace: TraceData, path: Path) -> Path:
    fed, seen = trace.input, trace.record
    tensors: dict[str, Tensor] = {f"stream/{name}": x for name, x in seen.streams.items()}
    if seen.answer.numel() <= LARGEST_ANSWER:
        tensors["answer"] = seen.answer
    notes: dict[str, Any] = {
        "about": _info_keys(trace.info),
        "fed": {**asdict(fed), "tokens": fed.tokens, "target_tokens": fed.target_tokens},
        "calls": {address: _keep(address, call, tensors) for address, call in seen.calls.items()},
    }
    guesses = trace.guesses(top=10)
    if guesses is not None:
        tensors |= {"guesses/ids": guesses.ids, "guesses/probabilities": guesses.probabilities}
        notes["guesses"] = guesses.labels
    whole = {name: x.detach().cpu().contiguous().clone() for name, x in tensors.items()}
    try:
        save_file(whole, path, metadata={"format": FORMAT, "trace": json.dumps(notes, ensure_ascii=False)})
    except (OSError, SafetensorError) as error:
        raise SaveError(f"{path} cannot be written: {error}") from None
    return path


def _info_keys(info: ModelInfo) -> dict[str, Any]:
    """The keys of the file format; `_info` reads them."""
    return {"title": info.title, "kinds": info.kinds, "speaks": info.generates, "has_head": info.has_head}


def _info(keys: dict[str, Any]) -> ModelInfo:
    return ModelInfo(keys["title"], keys["kinds"], generates=keys["speaks"], has_head=keys["has_head"])


def _keep(address: str, call: RecordedCall, tensors: dict[str, Tensor]) -> dict[str, Any]:
    """One attention: its tensors into the file, and what belongs to them into its notes."""
    note: dict[str, Any] = {"scale": call.scale, "kernel": call.kernel.name}
    mask, bias = call.view.dense, call.bias
    for name, x in (("q", call.q_BHQE), ("k", call.k_BHKE), ("v", call.v_BHKE)):
        tensors[f"{address}/{name}"] = x
    if type(call.kernel) is not SoftmaxKernel:
        tensors[f"{address}/pattern"] = call.pattern()
        return {**note, "exact": False}
    # Layers share masks and biases; each is kept once.
    for name, shared in (("mask", mask), ("bias", bias)):
        if shared is not None:
            note[name] = f"shared/{name}-{id(shared)}"
            tensors[note[name]] = shared
    if call.kernel.sink is not None:
        tensors[f"{address}/sink"] = call.kernel.sink
    return {**note, "exact": True, "cap": call.kernel.cap}


def read_trace(path: str | Path) -> tuple[TraceInput, ForwardRecord, ModelInfo, LogitLens | None]:
    """The parts of a saved trace; `open_trace` puts them together."""
    try:
        with safe_open(path, framework="pt") as file:
            kept = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise LoadError(f"{path} cannot be opened as a trace: {error}") from None
    if kept.get("format") != FORMAT:
        raise InputError(f"{path} is no trace; a trace is made by b.trace(text).save('x.safetensors')")
    try:
        notes = json.loads(kept["trace"])
        about, fed = _info(notes["about"]), notes["fed"]
        calls = {address: _call(address, note, tensors) for address, note in notes["calls"].items()}
        tokens = {side: fed[side] and [Token(*t) for t in fed[side]] for side in ("tokens", "target_tokens")}
        guesses = None
        if "guesses" in notes:
            guesses = LogitLens(tensors["guesses/ids"], tensors["guesses/probabilities"], notes["guesses"])
        streams = {n.removeprefix("stream/"): x for n, x in tensors.items() if n.startswith("stream/")}
        answer = tensors.get("answer", torch.empty(0))
        return TraceInput(**fed | tokens), ForwardRecord(answer, calls, streams), about, guesses
    except (KeyError, TypeError, ValueError) as error:
        raise LoadError(f"{path} is a broken trace: {error!r}") from None


def _call(address: str, note: dict[str, Any], tensors: dict[str, Tensor]) -> RecordedCall:
    q, k, v = (tensors[f"{address}/{name}"] for name in "qkv")
    kernel: Kernel
    if note["exact"]:
        sink = tensors.get(f"{address}/sink")
        kernel = Softmax(cap=note["cap"], sink=sink is not None).build(q.shape[1], q.shape[-1])
        kernel.load_state_dict({} if sink is None else {"sink": sink})
    else:
        kernel = Shown(note["kernel"], tensors[f"{address}/pattern"])
    rule: Mask = Given(tensors[note["mask"]]) if "mask" in note else Everyone()
    q_pos, k_pos = (torch.arange(x.shape[2])[None] for x in (q, k))
    bias = tensors[note["bias"]] if "bias" in note else None
    return RecordedCall(q, k, v, View(rule, 1, q_pos, k_pos), bias, note["scale"], kernel=kernel)

"""Trace files: writes a trace as one .safetensors file, and reads it again without the model.

Exact attention is stored as queries, keys, values, mask and bias, which are smaller than its weights; the
weights are recomputed from them. For an approximation its implied weights are stored. The file holds only
tensors and JSON, so opening it runs no code from it.
"""

from __future__ import annotations

import json
from dataclasses import fields
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
INPUT_FIELDS = ("ids", "target_ids")
LARGEST_ANSWER = 4_000_000  # numbers; of larger outputs only the most likely predictions are stored


class StoredPattern(Kernel):
    """An approximate kernel of a trace file: returns the stored weights."""

    supports = frozenset({"causal", "mask", "bias", "uneven", "pattern"})

    def __init__(self, name: str, weights_BHQK: Tensor) -> None:
        super().__init__()
        self.name, self.weights = name, weights_BHQK

    def pattern(self, call: AttentionCall, heads: slice = ALL) -> Tensor:
        return self.weights[:, heads]


def write_trace(trace: TraceData, path: Path) -> Path:
    """Write a trace. The keys "about", "fed", "speaks" and "guesses" belong to the file format."""
    info, trace_input, record = trace.info, trace.input, trace.record
    tensors: dict[str, Tensor] = {f"stream/{name}": x for name, x in record.streams.items()}
    tensors |= {f"routing/{name}": x for name, x in record.routing.items()}
    tensors |= {f"groups/{address}": x for address, x in record.groups.items()}
    if record.answer.numel() <= LARGEST_ANSWER:
        tensors["answer"] = record.answer
    header: dict[str, Any] = {
        "about": {
            "title": info.title, "kinds": info.kinds, "speaks": info.generates, "has_head": info.has_head,
        },
        "fed": _pack_input(trace_input, tensors),
        "virtual": record.virtual,
        "calls": {address: _pack_call(address, call, tensors) for address, call in record.calls.items()},
    }  # fmt: skip
    lens = trace.logit_lens_or_none(top=10)
    if lens is not None:
        tensors |= {"guesses/ids": lens.ids, "guesses/probabilities": lens.probabilities}
        header["guesses"] = lens.labels
    # safetensors refuses tensors that share memory.
    copies = {name: x.detach().cpu().contiguous().clone() for name, x in tensors.items()}
    try:
        save_file(copies, path, metadata={"format": FORMAT, "trace": json.dumps(header, ensure_ascii=False)})
    except (OSError, SafetensorError) as error:
        raise SaveError(f"{path} cannot be written: {error}") from None
    return path


def _pack_input(trace_input: TraceInput, tensors: dict[str, Tensor]) -> dict[str, Any]:
    """The input for the header; frames and pixels are tensors of the file."""
    entry = {f.name: getattr(trace_input, f.name) for f in fields(trace_input)}
    for name in INPUT_FIELDS:
        if isinstance(entry[name], Tensor):
            tensors[f"input/{name}"], entry[name] = entry[name], None
    return entry


def _pack_call(address: str, call: RecordedCall, tensors: dict[str, Tensor]) -> dict[str, Any]:
    """Add the tensors of one attention call to `tensors`; returns its entry of the header."""
    entry: dict[str, Any] = {"scale": call.scale, "kernel": call.kernel.name}
    mask, bias = call.view.dense, call.bias
    for name, x in (("q", call.q_BHQE), ("k", call.k_BHKE), ("v", call.v_BHKE)):
        # In the order in which they are in memory: products of other layouts round differently.
        order = sorted(range(x.ndim), key=lambda dim, x=x: -x.stride(dim))  # type: ignore[misc]
        tensors[f"{address}/{name}"] = x.permute(order)
        entry[f"{name}_order"] = order
    if type(call.kernel) is not SoftmaxKernel:
        tensors[f"{address}/pattern"] = call.pattern()
        return {**entry, "exact": False}
    # Layers share masks and biases; each is stored once.
    for name, shared in (("mask", mask), ("bias", bias)):
        if shared is not None:
            entry[name] = f"shared/{name}-{id(shared)}"
            tensors[entry[name]] = shared
    if call.kernel.sink is not None:
        tensors[f"{address}/sink"] = call.kernel.sink
    return {**entry, "exact": True, "cap": call.kernel.cap}


def read_trace(path: str | Path) -> tuple[TraceInput, ForwardRecord, ModelInfo, LogitLens | None]:
    """The parts of a saved trace; `open_trace` puts them together."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            # In memory of their own: products of tensors that begin anywhere in a file round differently.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise LoadError(f"{path} cannot be opened as a trace: {error}") from None
    if metadata.get("format") != FORMAT:
        raise InputError(f"{path} is not a trace; b.trace(text).save('x.safetensors') writes one")
    try:
        header = json.loads(metadata["trace"])
        about, trace_input = header["about"], header["fed"]
        info = ModelInfo(
            about["title"], about["kinds"], generates=about["speaks"], has_head=about["has_head"]
        )
        calls = {address: _unpack_call(address, entry, tensors) for address, entry in header["calls"].items()}
        trace_input |= {name: tensors[f"input/{name}"] for name in INPUT_FIELDS if f"input/{name}" in tensors}
        tokens = {
            side: trace_input[side] and [Token(*t) for t in trace_input[side]]
            for side in ("tokens", "target_tokens")
        }
        lens = None
        if "guesses" in header:
            lens = LogitLens(tensors["guesses/ids"], tensors["guesses/probabilities"], header["guesses"])
        streams, routing, groups = (
            {name.removeprefix(kind): x for name, x in tensors.items() if name.startswith(kind)}
            for kind in ("stream/", "routing/", "groups/")
        )
        virtual = {address: (int(a), int(b)) for address, (a, b) in header.get("virtual", {}).items()}
        answer = tensors.get("answer", torch.empty(0))
        record = ForwardRecord(answer, calls, streams, routing, groups, virtual)
        return TraceInput(**trace_input | tokens), record, info, lens
    except (KeyError, TypeError, ValueError) as error:
        raise LoadError(f"{path} is a damaged trace: {error!r}") from None


def _unpack_call(address: str, entry: dict[str, Any], tensors: dict[str, Tensor]) -> RecordedCall:
    q, k, v = (_in_order(tensors[f"{address}/{name}"], entry.get(f"{name}_order")) for name in "qkv")
    kernel: Kernel
    if entry["exact"]:
        sink = tensors.get(f"{address}/sink")
        kernel = Softmax(cap=entry["cap"], sink=sink is not None).build(q.shape[1], q.shape[-1])
        kernel.load_state_dict({} if sink is None else {"sink": sink})
    else:
        kernel = StoredPattern(entry["kernel"], tensors[f"{address}/pattern"])
    rule: Mask = Given(tensors[entry["mask"]]) if "mask" in entry else Everyone()
    q_pos, k_pos = (torch.arange(x.shape[2])[None] for x in (q, k))
    bias = tensors[entry["bias"]] if "bias" in entry else None
    return RecordedCall(q, k, v, View(rule, 1, q_pos, k_pos), bias, entry["scale"], kernel=kernel)


def _in_order(x: Tensor, order: list[int] | None) -> Tensor:
    """A tensor whose dimensions were stored in another order; files of earlier versions have their own."""
    return x if order is None else x.permute([order.index(dim) for dim in range(x.ndim)])

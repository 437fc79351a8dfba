"""LoRA and IA3 of the library adapters: fields of a config and tensors in; a `Lora` or an `IA3` out, filled.

    add      y + alpha / r * lora_B (lora_A x)          scale    y * alpha * lora_B

Where q, k and v are one matrix (GPT-2), `lora_A` and `lora_B` hold one block for each of those in
`attn_matrices`, one under the other. Other matrices that are several layers here have one `lora_A` for all.

Shape suffixes: I inputs, O outputs, R rank.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from torch import Tensor

from ...errors import LoadError, SpecError, quoted, reason
from ...weights import Fused, StateDict, StoredMatrix
from ..files import AdapterFiles
from ..ia3 import IA3
from ..lora import Lora
from ..names import ModelNames
from ..peft import short_names
from .fields import Fields, adapter_name, fields_of, is_bool, is_layers, is_positive, is_rate
from .places import layers_of, stored_tensors, without_prefix

QKV = ("q", "k", "v")


def _is_rank(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 2**20


def _is_mode(value: object) -> bool:
    return value in ("add", "scale")


def _is_matrices(value: object) -> bool:
    return isinstance(value, list) and all(each in (*QKV, "o") for each in value)


def _is_method(value: object) -> bool:
    return value == "lora"


LINEAR = Fields(
    {
        "architecture": "lora", "r": 8, "alpha": 8, "dropout": 0.0, "attn_matrices": ["q", "v"],
        "composition_mode": "add", "leave_out": [], "selfattn_lora": True, "intermediate_lora": False,
        "output_lora": False,
    },
    {
        "architecture": (_is_method, "'lora'"), "r": (_is_rank, "a whole number from 1"),
        "alpha": (is_positive, "a number above 0"), "dropout": (is_rate, "a number from 0 to 1"),
        "attn_matrices": (_is_matrices, "a list of q, k, v and o"),
        "composition_mode": (_is_mode, "'add' or 'scale'"),
        "leave_out": (is_layers, "a list of numbers of layers"),
        **dict.fromkeys(("selfattn_lora", "intermediate_lora", "output_lora"), (is_bool, "true or false")),
    },
    # DoRA of that library is another one than PEFT's: it scales the bias as well.
    {"use_gating": (False,), "use_dora": (False,), "vera_d": (None,), "vera_b": (None,), "dtype": (None,)},
    frozenset({"init_weights", "init_weights_seed"}),
)  # fmt: skip


class LinearPiece(NamedTuple):
    """What the folder has for one linear layer here."""

    layer: str
    down_RI: Tensor | None  # of LoRA alone
    up_OR: Tensor


def linear_tuning(files: AdapterFiles, names: ModelNames) -> Lora | IA3:
    values = _values(files.config)
    pieces = list(_pieces(files, values, names))
    hit = [piece.layer for piece in pieces]
    _check_layers(hit, values, names)
    every = [name.removesuffix(".weight") for name in names.parameters if name.endswith(".weight")]
    targets = tuple(short_names(hit, every))
    if values["composition_mode"] == "scale":
        return IA3(targets=targets, feedforward=())
    try:
        return Lora(
            rank=values["r"],
            alpha=float(values["alpha"]),
            dropout=float(values["dropout"]),
            targets=targets,
        )
    except SpecError as error:
        raise LoadError(f"adapter_config.json: {reason(error)}") from error


def linear_parameters(files: AdapterFiles, names: ModelNames) -> StateDict:
    values = _values(files.config)
    state: StateDict = {}
    for layer, down_RI, up_OR in _pieces(files, values, names):
        if down_RI is None:
            state[f"{layer}.ia3.scale"] = up_OR.flatten() * float(values["alpha"])
        else:
            state |= {f"{layer}.lora.down": down_RI, f"{layer}.lora.up": up_OR}
    return state


def _values(config: Mapping[str, Any]) -> dict[str, Any]:
    values = LINEAR.checked(fields_of(config))
    version = re.fullmatch(r"adapters\.(\d{1,4})\.(\d{1,4})\..*", str(config.get("version")))
    if version is not None and (int(version[1]), int(version[2])) < (1, 1):
        # Before 1.1 the library computed with a scale of one, whatever alpha was; it reads them so, too.
        values["alpha"] = values["r"]
    if values["composition_mode"] == "scale" and values["r"] != 1:
        raise LoadError(f"adapter_config.json: r is {values['r']}; with composition_mode 'scale' it is 1")
    return values


def _pieces(files: AdapterFiles, values: Mapping[str, Any], names: ModelNames) -> Iterator[LinearPiece]:
    """Every tensor of the folder, for the layers here that it is for."""
    added = values["composition_mode"] == "add"
    ends = [
        f".loras.{adapter_name(files.config)}.{end}"
        for end in (("lora_A", "lora_B") if added else ("lora_B",))
    ]
    stored = stored_tensors(files, names)
    matrices = {without_prefix(path, names): matrix for path, matrix in names.matrices.items()}
    found: dict[str, None] = {}
    for name in stored:
        end = next((end for end in ends if name.endswith(end)), None)
        if end is None or name.removesuffix(end) not in matrices:
            raise LoadError(
                f"the adapter has {quoted(name)}, which it should not by its config and this model: it is of "
                f"another base, or its file is damaged"
            )
        found[name.removesuffix(end)] = None
    if not found:
        raise LoadError(f"the adapter has no tensor with {quoted(ends[0])}; its file is empty or damaged")
    for path in found:
        missing = [path + end for end in ends if path + end not in stored]
        if missing:
            raise LoadError(f"the adapter lacks {quoted(missing[0])}; its file is damaged")
        down_RI = stored[path + ends[0]] if added else None
        yield from _parts(path, matrices[path], down_RI, stored[path + ends[-1]], values)


def _parts(
    path: str, matrix: StoredMatrix, down_RI: Tensor | None, up_OR: Tensor, values: Mapping[str, Any]
) -> Iterator[LinearPiece]:
    """The tensors of one matrix of theirs for our layers."""
    parts, r = matrix.parts, values["r"]
    kinds = tuple(part.rpartition(".")[2] for part in parts)
    blocks = [part for part, kind in zip(parts, kinds, strict=True) if kind in values["attn_matrices"]]
    grouped = kinds == QKV
    if grouped and isinstance(matrix.rule, Fused) and (matrix.rule.per_head or matrix.rule.sizes):
        raise LoadError(f"the adapter changes {path}, where q, k and v alternate by heads: not supported")
    if grouped and down_RI is not None and len(blocks) == len(parts):
        raise LoadError(
            f"adapter_config.json: attn_matrices names q, k and v, which are one matrix in {path}; that each "
            f"has a lora_A of its own there is not supported"
        )
    count = len(blocks) if grouped else 1
    _check_shape(f"{path}: lora_A", down_RI, rows=r * count)
    _check_shape(f"{path}: lora_B", up_OR, columns=r)
    downs: list[Tensor | None] = [down_RI] * len(parts)
    if grouped:
        if not count or len(up_OR) % count:
            raise LoadError(f"{path}: lora_B has {len(up_OR)} rows, for {count} of q, k and v")
        ups = list(up_OR.chunk(count))
        if down_RI is not None:
            downs = list(down_RI.chunk(count))
    else:
        blocks = list(parts)
        try:
            ups = matrix.split(up_OR)
        except (RuntimeError, ValueError):
            raise LoadError(f"{path}: lora_B has {len(up_OR)} rows; it is of another base") from None
    yield from map(LinearPiece, blocks, downs, ups)


def _check_shape(what: str, x: Tensor | None, *, rows: int | None = None, columns: int | None = None) -> None:
    wanted = [rows, columns]
    if x is None or (x.ndim == 2 and all(size in (None, n) for size, n in zip(wanted, x.shape, strict=True))):
        return
    size = f"{columns} columns" if rows is None else f"{rows} rows"
    raise LoadError(
        f"{what} has the shape {tuple(x.shape)}; by r and attn_matrices of the config it has {size}"
    )


def _check_layers(hit: list[str], values: Mapping[str, Any], names: ModelNames) -> None:
    """The layers of a tower have the same adapters, but for those that the config leaves out."""
    first: dict[str, tuple[str, set[str]]] = {}
    for i, layer in enumerate(layers_of(names)):
        start = f"{layer.address}."
        own = {name.removeprefix(start) for name in hit if name.startswith(start)}
        if i in values["leave_out"]:
            if own:
                raise LoadError(f"the adapter has {start}{min(own)}, and leave_out of its config names {i}")
            continue
        other, wanted = first.setdefault(layer.address.partition(".")[0], (layer.address, own))
        if own != wanted:
            raise LoadError(
                f"the adapter has {min(own ^ wanted)} in one of {other} and {layer.address}, and not in the "
                f"other: its file is damaged"
            )

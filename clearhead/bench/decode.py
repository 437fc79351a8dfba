"""Decoding speed of Clearhead and other libraries: one model, the same prompts and number of new tokens.

The others load the folder that Clearhead saves, so all have the same weights. None may stop early.
CTranslate2 runs in a separate process, because its threads slow down everything else in its process.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from ..bundle import Bundle, build, load, save
from ..errors import InputError
from ..families import SIZES
from ..nn import TokenHead, generator
from .ctranslate2 import CTranslate2Process, convert_folder
from .task import Decoder, DecodeTask
from .timing import ProgressCallback, TimedCall, installed, measure_in_turns, quiet_libraries

DECODE_PEERS = ("transformers", "ctranslate2")
PAUSE = 0.3  # seconds before each turn: OpenMP threads of the previous side spin for a while, then sleep


@dataclass(frozen=True)
class DecodeBenchmark:
    speeds: dict[str, float]  # new tokens per second, by side
    alike: dict[str, float]  # the share of tokens equal to those of Clearhead in float32
    peers: dict[str, str]
    missing: list[str]


def compare_decoding(
    model: str, task: DecodeTask, *, rounds: int, cores: int, progress: ProgressCallback
) -> DecodeBenchmark:
    peers, missing = installed(DECODE_PEERS)
    with TemporaryDirectory() as scratch, ExitStack() as open_:
        bundle = _load_generator(model)
        folder = Path(scratch) / "model"
        save(bundle, folder)
        head = bundle.spec.head
        assert isinstance(head, TokenHead)
        ids = torch.randint(4, head.vocab - 4, (task.batch, task.prompt), generator=generator(0, "bench"))
        sides = {"clearhead": clearhead_decoder(load(folder), ids, task)}
        for kind in ("int8", "int8-fine"):
            sides[f"clearhead {kind}"] = clearhead_decoder(load(folder, quantize=kind), ids, task)
        if "transformers" in peers:
            progress("opening transformers")
            sides["transformers"] = transformers_decoder(folder, ids, task)
        if "transformers" in peers and "ctranslate2" in peers:
            for name, kind in (("ctranslate2", "float32"), ("ctranslate2 int8", "int8")):
                progress(f"converting for {name}")
                try:
                    converted = convert_folder(
                        folder, kind, head.vocab, translates=bundle.spec.is_encoder_decoder
                    )
                    sides[name] = open_.enter_context(
                        CTranslate2Process(converted, ids.tolist(), task, cores)
                    )
                except Exception as error:  # a peer may fail in any way; measure the others
                    missing.append(f"{name} ({type(error).__name__}: {str(error).splitlines()[0][:80]})")
        decoded = {name: side() for name, side in sides.items()}
        speeds = measure_in_turns(
            {name: _token_counter(side) for name, side in sides.items()}, rounds, progress, pause=PAUSE
        )
    alike = {name: _agreement(rows, decoded["clearhead"]) for name, rows in decoded.items()}
    return DecodeBenchmark(speeds, alike, peers, missing)


def clearhead_decoder(bundle: Bundle, ids_BT: Tensor, task: DecodeTask) -> Decoder:
    def decode() -> list[list[int]]:
        rows = bundle.generate_ids(ids_BT, torch.ones_like(ids_BT), **task.settings)
        return _new_tokens(rows, task)

    return decode


def transformers_decoder(folder: Path, ids_BT: Tensor, task: DecodeTask) -> Decoder:
    with quiet_libraries():
        library: Any = import_module("transformers")
        kind = getattr(library, library.AutoConfig.from_pretrained(folder).architectures[0])
        model = kind.from_pretrained(folder, local_files_only=True).eval()

    def decode() -> list[list[int]]:
        with quiet_libraries(), torch.inference_mode():
            rows = model.generate(ids_BT, attention_mask=torch.ones_like(ids_BT), **task.settings)
        return _new_tokens(rows, task)

    return decode


def _load_generator(name: str) -> Bundle:
    bundle = build(name) if name in SIZES else load(name)
    if not (bundle.spec.generates and isinstance(bundle.spec.head, TokenHead)):
        raise InputError(
            f"{name} does not generate text; give a model that generates, such as gpt2 or transformer-base"
        )
    return bundle


def _new_tokens(rows: Tensor, task: DecodeTask) -> list[list[int]]:
    """The new tokens are the last ones, whether a prompt or a start token precedes them."""
    return [row[-task.tokens :] for row in rows.tolist()]


def _token_counter(decode: Decoder) -> TimedCall:
    return lambda: sum(
        map(len, decode())
    )  # a function, because a lambda in a loop would bind the last `decode`


def _agreement(rows: list[list[int]], reference: list[list[int]]) -> float:
    """The share of equal tokens."""
    pairs = [pair for one, two in zip(rows, reference, strict=True) for pair in zip(one, two, strict=False)]
    return sum(one == two for one, two in pairs) / max(len(pairs), 1)

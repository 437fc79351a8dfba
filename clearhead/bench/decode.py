"""Decoding speed: one model, the same prompts, as many new tokens for everyone; ours beside its peers.

The peers read the folder that we write, so all have the same weights. None may stop early.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from ..nn.heads import TokenHead
from ..nn.init import generator
from ..nn.model import PairModel
from .peers import quiet
from .turns import Say, Work, in_turns, installed

PEERS = ("transformers", "ctranslate2")


@dataclass(frozen=True)
class Task:
    """What everyone does: go on from `prompt` random ids (or translate them), `tokens` new ones, per row."""

    batch: int
    beams: int
    prompt: int
    tokens: int

    @property
    def settings(self) -> dict[str, Any]:
        """Under the names that transformers and we share."""
        length = {"max_new_tokens": self.tokens, "min_new_tokens": self.tokens}
        return {**length, "num_beams": self.beams, "do_sample": False}


@dataclass(frozen=True)
class Result:
    speeds: dict[str, float]  # new tokens a second, by side
    alike: dict[str, float]  # the share of tokens that are the same as ours in float32
    peers: dict[str, str]
    missing: list[str]


Decoder = Callable[[], list[list[int]]]
"""Decodes once and gives the new ids of each row."""


def compare(model: str, task: Task, *, rounds: int, cores: int, say: Say) -> Result:
    peers, missing = installed(PEERS)
    with TemporaryDirectory() as scratch:
        bundle = _model(model)
        folder = Path(scratch) / "model"
        save(bundle, folder)
        vocab = _vocab(bundle)
        ids = torch.randint(4, vocab - 4, (task.batch, task.prompt), generator=generator(0, "bench"))
        sides = {
            "clearhead": ours(load(folder), ids, task),
            "clearhead int8": ours(load(folder, quantize="int8"), ids, task),
        }
        if "transformers" in peers:
            say("opening transformers")
            sides["transformers"] = transformers(folder, ids, task)
        if "transformers" in peers and "ctranslate2" in peers:
            for name, kind in (("ctranslate2", "float32"), ("ctranslate2 int8", "int8")):
                say(f"converting for {name}")
                try:
                    sides[name] = ctranslate2(bundle, folder, kind, ids, task, cores)
                except Exception as error:  # a peer may fail in any way; the others are measured all the same
                    missing.append(f"{name} ({type(error).__name__}: {str(error).splitlines()[0][:80]})")
        said = {name: side() for name, side in sides.items()}
        speeds = in_turns({name: _counted(side) for name, side in sides.items()}, rounds, say)
    alike = {name: _alike(rows, said["clearhead"]) for name, rows in said.items()}
    return Result(speeds, alike, peers, missing)


def ours(bundle: Bundle, ids_BT: Tensor, task: Task) -> Decoder:
    def decode() -> list[list[int]]:
        rows = bundle.generate_ids(ids_BT, torch.ones_like(ids_BT), **task.settings)
        return _new(rows, task)

    return decode


def transformers(folder: Path, ids_BT: Tensor, task: Task) -> Decoder:
    with quiet():
        library: Any = import_module("transformers")
        kind = getattr(library, library.AutoConfig.from_pretrained(folder).architectures[0])
        model = kind.from_pretrained(folder, local_files_only=True).eval()

    def decode() -> list[list[int]]:
        with quiet(), torch.inference_mode():
            rows = model.generate(ids_BT, attention_mask=torch.ones_like(ids_BT), **task.settings)
        return _new(rows, task)

    return decode


def ctranslate2(bundle: Bundle, folder: Path, kind: str, ids_BT: Tensor, task: Task, cores: int) -> Decoder:
    with quiet():
        library: Any = import_module("ctranslate2")
    words = [f"w{i}" for i in range(_vocab(bundle))]
    if isinstance(bundle.model, PairModel):
        words[-1] = "<pad>"  # Marian's last word; their converter looks for it
    out = folder.parent / f"ctranslate2-{kind}"

    class Converter(library.converters.TransformersConverter):  # type: ignore[misc]
        """Theirs; it asks the tokenizer for nothing but words, and ours speak in numbers."""

        def load_tokenizer(self, *_: Any, **__: Any) -> Any:
            return _Words(words)

    with quiet():
        Converter(str(folder)).convert(str(out), quantization=kind)
    rows = [[words[i] for i in row] for row in ids_BT.tolist()]
    pair = isinstance(bundle.model, PairModel)
    made = (library.Translator if pair else library.Generator)(
        str(out), device="cpu", compute_type=kind, inter_threads=1, intra_threads=cores
    )

    def decode() -> list[list[int]]:
        if pair:
            found = made.translate_batch(
                rows, min_decoding_length=task.tokens, max_decoding_length=task.tokens, beam_size=task.beams
            )
            return [[int(word[1:]) for word in each.hypotheses[0]] for each in found]
        found = made.generate_batch(
            rows,
            min_length=task.tokens,
            max_length=task.tokens,
            include_prompt_in_result=False,
            beam_size=task.beams,
        )
        return [list(each.sequences_ids[0]) for each in found]

    return decode


class _Words:
    """As much of a tokenizer as their converter asks for."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = words
        self.bos_token, self.eos_token, self.unk_token = words[0], words[0], words[1]

    def get_vocab(self) -> dict[str, int]:
        return {word: i for i, word in enumerate(self._words)}


def _model(name: str) -> Bundle:
    bundle = build(name) if name in SIZES else load(name)
    spec, model = bundle.spec, bundle.model
    writes = isinstance(model, PairModel) or model.spec.tower.causal
    if not (writes and isinstance(getattr(spec, "head", None), TokenHead)):
        raise InputError(
            f"{name} writes no text; give a model that generates, such as gpt2 or transformer-base"
        )
    return bundle


def _vocab(bundle: Bundle) -> int:
    head = bundle.spec.head  # type: ignore[attr-defined]
    assert isinstance(head, TokenHead)
    return head.vocab


def _new(rows: Tensor, task: Task) -> list[list[int]]:
    """The new tokens are the last ones, whether the prompt or a start token stands before them."""
    return [row[-task.tokens :] for row in rows.tolist()]


def _counted(decode: Decoder) -> Work:
    return lambda: sum(map(len, decode()))


def _alike(rows: list[list[int]], wanted: list[list[int]]) -> float:
    pairs = [pair for one, two in zip(rows, wanted, strict=True) for pair in zip(one, two, strict=False)]
    return sum(one == two for one, two in pairs) / max(len(pairs), 1)

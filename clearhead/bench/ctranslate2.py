"""CTranslate2 as a peer: a folder of ours in; a decoder out that works in a process of its own.

It brings threads of its own, and once they have run, whatever else computes in the process takes half as long
again.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from .task import Decoder, DecodeTask
from .timing import quiet_libraries


@dataclass(frozen=True)
class ConvertedModel:
    folder: Path
    kind: str  # what it computes in: "float32" or "int8"
    words: list[str]  # it speaks in words; ours are numbers
    translates: bool  # an encoder-decoder; otherwise it continues the prompt


def convert_folder(folder: Path, kind: str, vocab: int, *, translates: bool) -> ConvertedModel:
    with quiet_libraries():
        library: Any = import_module("ctranslate2")
    words = [f"w{i}" for i in range(vocab)]
    if translates:
        words[-1] = "<pad>"  # Marian's last word; their converter looks for it
    out = folder.parent / f"ctranslate2-{kind}"

    class Converter(library.converters.TransformersConverter):  # type: ignore[misc]
        """CTranslate2's converter, which needs only the words of a tokenizer."""

        def load_tokenizer(self, *_: Any, **__: Any) -> Any:
            return _Words(words)

    with quiet_libraries():
        Converter(str(folder)).convert(str(out), quantization=kind)
    return ConvertedModel(out, kind, words, translates)


class CTranslate2Process:
    """Decodes in another process, which opens the model once."""

    def __init__(self, model: ConvertedModel, ids: list[list[int]], task: DecodeTask, cores: int) -> None:
        given = (model, ids, task, cores)
        self._pool = ProcessPoolExecutor(1, get_context("spawn"), initializer=_open, initargs=given)

    def __enter__(self) -> Decoder:
        return lambda: self._pool.submit(_decode).result()

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()


_opened: list[Decoder] = []  # there: what `_open` made


def _open(model: ConvertedModel, ids: list[list[int]], task: DecodeTask, cores: int) -> None:
    library: Any = import_module("ctranslate2")
    rows = [[model.words[i] for i in row] for row in ids]
    engine = (library.Translator if model.translates else library.Generator)(
        str(model.folder), device="cpu", compute_type=model.kind, inter_threads=1, intra_threads=cores
    )

    def translate() -> list[list[int]]:
        lengths = {"min_decoding_length": task.tokens, "max_decoding_length": task.tokens}
        found = engine.translate_batch(rows, beam_size=task.beams, **lengths)
        return [[int(word[1:]) for word in each.hypotheses[0]] for each in found]

    def go_on() -> list[list[int]]:
        lengths = {"min_length": task.tokens, "max_length": task.tokens}
        found = engine.generate_batch(rows, beam_size=task.beams, include_prompt_in_result=False, **lengths)
        return [list(each.sequences_ids[0]) for each in found]

    _opened.append(translate if model.translates else go_on)


def _decode() -> list[list[int]]:
    return _opened[0]()


class _Words:
    """The part of a tokenizer that the converter uses."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = words
        self.bos_token, self.eos_token, self.unk_token = words[0], words[0], words[1]

    def get_vocab(self) -> dict[str, int]:
        return {word: i for i, word in enumerate(self._words)}

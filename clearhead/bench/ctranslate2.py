"""CTranslate2 as a peer: a folder saved by Clearhead in; a decoder out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from .task import Decoder, DecodeTask
from .timing import quiet_libraries


@dataclass(frozen=True)
class ConvertedModel:
    folder: Path
    kind: str  # compute type: "float32" or "int8"
    words: list[str]  # CTranslate2 takes tokens, not ids: one word per id
    translates: bool  # an encoder-decoder; otherwise it continues the prompt


def convert_folder(folder: Path, kind: str, vocab: int, *, translates: bool) -> ConvertedModel:
    """Convert a Hugging Face folder to CTranslate2's format."""
    with quiet_libraries():
        library: Any = import_module("ctranslate2")
    words = [f"w{i}" for i in range(vocab)]
    if translates:
        words[-1] = "<pad>"  # the last token of Marian, which the converter requires
    out = folder.parent / f"ctranslate2-{kind}"

    class Converter(library.converters.TransformersConverter):  # type: ignore[misc]
        """CTranslate2's converter, which needs only the words of a tokenizer."""

        def load_tokenizer(self, *_: Any, **__: Any) -> Any:
            return _WordTokenizer(words)

    with quiet_libraries():
        Converter(str(folder)).convert(str(out), quantization=kind)
    return ConvertedModel(out, kind, words, translates)


def open_ctranslate2(model: ConvertedModel, threads: int) -> Decoder:
    library: Any = import_module("ctranslate2")
    engine = (library.Translator if model.translates else library.Generator)(
        str(model.folder), device="cpu", compute_type=model.kind, inter_threads=1, intra_threads=threads
    )

    def decode(ids: Sequence[list[int]], task: DecodeTask) -> list[list[int]]:
        rows = [[model.words[i] for i in row] for row in ids]
        if model.translates:
            lengths = {"min_decoding_length": task.tokens, "max_decoding_length": task.tokens}
            results = engine.translate_batch(rows, beam_size=task.beams, **lengths)
            return [[int(word[1:]) for word in result.hypotheses[0]] for result in results]
        lengths = {"min_length": task.tokens, "max_length": task.tokens}
        results = engine.generate_batch(rows, beam_size=task.beams, include_prompt_in_result=False, **lengths)
        return [list(result.sequences_ids[0]) for result in results]

    return decode


class _WordTokenizer:
    """The part of a tokenizer that the converter uses."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = words
        self.bos_token, self.eos_token, self.unk_token = words[0], words[0], words[1]

    def get_vocab(self) -> dict[str, int]:
        return {word: i for i, word in enumerate(self._words)}

"""Kept weights: a bundle prepared with weights that were quantized earlier, or that writes them for later.

They are in a subfolder, `clearhead/int8.safetensors`: programs that read every safetensors file of a model's
folder do not look there, and it is not downloaded with a model from the hub. They are used only if

    the model's own files are those they were made from, by size and time, or else by SHA-256, and
    the model's weights are those of its files: just loaded, or mapped and never written to, as Linux tells.

Whatever is wrong with the file, it is not used, and one line says why.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor, nn

from ..engine import (
    InferencePrecision,
    KeptError,
    KeptKind,
    KeptReader,
    KeptWriter,
    PackProgress,
    QuantizedMatrix,
    QuantizedWeights,
    SourceFile,
    are_as_in_file,
    prepare_model,
    quantized_matrices,
)
from ..errors import reason
from ..store import FileVersion, size_and_hash
from .parts import BundleParts

FOLDER = "clearhead"
KEPT_KINDS: dict[InferencePrecision, KeptKind] = {"int8": "int8", "int8-fine": "int8", "int4": "int4"}
Importance = Callable[[], Mapping[nn.Module, Tensor]]

log = logging.getLogger("clearhead.bundle")


def prepare_with_kept(
    bundle: BundleParts,
    precision: InferencePrecision,
    kind: KeptKind,
    *,
    keep: bool,
    just_loaded: bool,
    importance: Importance | None = None,
    progress: PackProgress | None = None,
) -> None:
    """Quantize and pack the bundle's model, but for what is kept. `importance` is asked only if needed."""
    stored = _stored_weights(bundle, precision, just_loaded=just_loaded)
    if keep and not stored:
        log.warning(
            "nothing is kept: these weights are not, or not any more, those of a safetensors folder; "
            "save the model as one, ch.save(bundle, folder), and keep them there"
        )
    reader = _open(bundle, kind, keep=keep) if stored else None
    try:
        _prepare(bundle, precision, kind, stored, reader, importance, progress, keep=keep)
    except KeptError as error:
        _say_unused(_path(bundle, kind), error, keep=keep)
        _prepare(bundle, precision, kind, stored, None, importance, progress, keep=keep)


def _prepare(
    bundle: BundleParts,
    precision: InferencePrecision,
    kind: KeptKind,
    stored: Mapping[str, QuantizedMatrix],
    found: _Found | None,
    importance: Importance | None,
    progress: PackProgress | None,
    *,
    keep: bool,
) -> None:
    kept = _Kept(stored, None if found is None else found.reader)
    complete = all(name in kept for name in stored)
    with ExitStack() as stack:
        if keep and stored and not (complete and found is not None and found.same_times):
            kept.start(bundle, kind, stack)
        every = quantized_matrices(bundle.model, precision)
        quantizes = any(name not in kept for name in every)
        weighing = importance() if importance is not None and quantizes else None
        prepare_model(
            bundle.model,
            precision,
            importance=weighing,
            kept=kept,
            trains_adapters=bundle.tuning is not None,
            progress=progress,
        )
        kept.finish()


class _Kept:
    """The kept weights of a bundle; those that may be kept are `stored`."""

    def __init__(self, stored: Mapping[str, QuantizedMatrix], reader: KeptReader | None) -> None:
        self._stored, self._reader = stored, reader
        self._writer: KeptWriter | None = None

    def __contains__(self, name: object) -> bool:
        return self._reader is not None and name in self._stored and str(name) in self._reader

    def read(self, name: str, matrix: QuantizedMatrix) -> QuantizedWeights | None:
        return self._reader.read(name, matrix) if self._reader is not None and name in self else None

    def add(self, name: str, quantized: QuantizedWeights) -> None:
        if self._writer is not None and name in self._stored:
            self._try(lambda writer: writer.write(name, quantized))

    def start(self, bundle: BundleParts, kind: KeptKind, stack: ExitStack) -> None:
        """Begin to write the file. A folder that cannot be written to is no error."""
        try:
            sources = [_source(file) for file in bundle.weight_files]
            self._writer = stack.enter_context(KeptWriter(_path(bundle, kind), kind, self._stored, sources))
        except OSError as error:
            log.warning("the %s weights are not kept: %s", kind, reason(error))

    def finish(self) -> None:
        self._try(KeptWriter.finish)

    def _try(self, step: Callable[[KeptWriter], None]) -> None:
        """A disk that is full is no error either: the model is prepared all the same."""
        if self._writer is None:
            return
        try:
            step(self._writer)
        except OSError as error:
            log.warning("the quantized weights are not kept: %s", reason(error))
            self._writer = None


@dataclass(frozen=True)
class _Found:
    """A kept file of the model's own files, and whether these have the times that it notes."""

    reader: KeptReader
    same_times: bool


def _open(bundle: BundleParts, kind: KeptKind, *, keep: bool) -> _Found | None:
    path = _path(bundle, kind)
    if not path.exists():
        return None
    try:
        if not path.is_file():
            raise KeptError("it is not a regular file")
        reader = KeptReader(path, kind)
        return _Found(reader, _check_sources(reader.sources, bundle.weight_files))
    except (KeptError, OSError) as error:
        _say_unused(path, error, keep=keep)
        return None


def _check_sources(noted: Sequence[SourceFile], files: Sequence[FileVersion]) -> bool:
    """Raise an error if the file was made from other weights; whether times are the same, too."""
    if [(source.name, source.size) for source in noted] != [(file.path.name, file.size) for file in files]:
        raise KeptError("it was made from other weights")
    if [source.mtime_ns for source in noted] == [file.mtime_ns for file in files]:
        return True
    if [source.sha256 for source in noted] != [_source(file).sha256 for file in files]:
        raise KeptError("it was made from other weights")
    return False


def _source(file: FileVersion) -> SourceFile:
    return SourceFile(file.path.name, file.size, file.mtime_ns, size_and_hash(file.path)["sha256"])


def _stored_weights(
    bundle: BundleParts, precision: InferencePrecision, *, just_loaded: bool
) -> dict[str, QuantizedMatrix]:
    """The weights to pack that are still as in the model's files, and these as they were when opened."""
    files = bundle.weight_files
    try:
        if not files or any(FileVersion.of(file.path) != file for file in files):
            return {}
    except OSError:  # removed since
        return {}
    every = quantized_matrices(bundle.model, precision)
    if just_loaded:
        fresh = set(bundle.report.fresh)  # initialised, because no file has them
        return {name: each for name, each in every.items() if fresh.isdisjoint(name.split(","))}
    return {name: each for name, each in every.items() if all(are_as_in_file(each.weights))}


def _path(bundle: BundleParts, kind: KeptKind) -> Path:
    return bundle.weight_files[0].path.parent / FOLDER / f"{kind}.safetensors"


def _say_unused(path: Path, error: Exception, *, keep: bool) -> None:
    then = "it is made anew" if keep else "preparing with keep (--keep) makes it anew"
    log.warning("%s is not used: %s; %s", path, reason(error), then if path.is_file() else "remove it")

"""Folders of texts by label, such as IMDB (`train/pos/0_9.txt`): a folder in, texts and labels out."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from ..errors import DataError
from .files import File
from .schema import split_of
from .source import Row, Source

UNLABELLED = "unsup"  # IMDB's texts without a label


class LabelFolders(Source):
    """Each file is a row and its folder is the label. Files are opened on demand."""

    def __init__(self, folder: Path, labels: Sequence[Path]) -> None:
        super().__init__(("text", "label"), (), f"labels: {', '.join(each.name for each in labels)}")
        self._folder = folder
        self._paths = [path for label in labels for path in sorted(label.glob("*.txt"))]

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, number: int) -> Row:
        path = self._paths[self._check_index(number)]
        file = File(path)
        return {"text": file.text(file.read(file.start, file.size), 1), "label": path.parent.name}

    def where(self, number: int) -> str:
        return str(self._paths[number])

    @property
    def encoding(self) -> str:
        return "utf-8"

    def hashes(self) -> dict[str, str]:
        """One hash for all files: there may be fifty thousand."""
        digest = hashlib.sha256()
        for path in self._paths:
            digest.update(f"{path.relative_to(self._folder)}\0{File(path).sha256}\n".encode())
        return {f"{self._folder}/*/*.txt": digest.hexdigest()}


def labelled_folders(folder: Path) -> dict[str, Source]:
    """The splits of such a folder, or {} if it is not one."""
    if labels := _label_folders(folder):
        return {"train": _source(folder, labels)}
    splits: dict[str, Source] = {}
    for subfolder in sorted(path for path in folder.iterdir() if path.is_dir()):
        name, labels = split_of(subfolder.name), _label_folders(subfolder)
        if labels and name in ("train", "valid", "test"):
            splits[name] = _source(subfolder, labels)
    return {name: splits[name] for name in ("train", "valid", "test") if name in splits}


def _label_folders(folder: Path) -> list[Path]:
    subfolders = sorted(path for path in folder.iterdir() if path.is_dir() and path.name[0] not in "._")
    return [path for path in subfolders if path.name != UNLABELLED and any(path.glob("*.txt"))]


def _source(folder: Path, labels: list[Path]) -> LabelFolders:
    if len(labels) < 2:
        raise DataError(f"{folder} has texts of one label, {labels[0].name}; expected two folders or more")
    return LabelFolders(folder, labels)

"""Sources: a file, parallel files, a folder or a built-in corpus in; rows by split out."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from ..errors import DataError, InputError, nearest
from .corpora import CORPORA, read_corpus
from .files import File
from .formats import READERS, read_source, read_text, suffix_of
from .label_folders import labelled_folders
from .schema import is_language_code, split_of
from .source import ConcatenatedSource, ParallelSource, Source

FileName = str | os.PathLike[str]


def read_rows(source: FileName | Sequence[FileName], *, split: str | None = None) -> Source:
    """The rows of a file, of several, of parallel ones (either or both given), or of a folder.

    A folder with splits gives the requested split, or else `train`. Nothing is read into memory but where
    the rows begin; .json files and built-in corpora are the exception.
    """
    splits = read_splits(source)
    name = split or ("train" if "train" in splits else next(iter(splits)))
    if name not in splits:
        names = str(source) if isinstance(source, str | os.PathLike) else ", ".join(map(str, source))
        raise InputError(f"there is no split {name!r} in {names}; {nearest(name, splits)}")
    return splits[name]


def read_splits(source: FileName | Sequence[FileName], *, parallel: bool = False) -> dict[str, Source]:
    """The same by split: train, valid and test, recognised by the file names of a folder.

    With `parallel`, two plain text files belong together line by line, whatever their names.
    """
    paths = [Path(source)] if isinstance(source, str | os.PathLike) else [Path(each) for each in source]
    if not paths:
        raise InputError("no file was named; expected at least one")
    if len(paths) == 1 and not paths[0].exists() and str(source) in CORPORA:
        return dict(read_corpus(str(source)))
    for path in paths:
        _check_exists(path)
    if len(paths) == 1 and paths[0].is_dir():
        return _read_folder(paths[0])
    if parallel and len(paths) == 2 and not any(map(_is_table, paths)):
        sides = zip(_side_names(paths), paths, strict=True)
        return {"train": ParallelSource({name: read_text(File(path)) for name, path in sides})}
    return {"train": _combine([*paths, *(_parallel_files(paths[0]) if len(paths) == 1 else ())])}


def _is_table(path: Path) -> bool:
    return _has_format(path) and suffix_of(path.name) != "txt"


def _side_names(paths: Sequence[Path]) -> list[str]:
    """The languages, if the names end in two; else src and tgt."""
    suffixes = [suffix_of(path.name) for path in paths]
    return suffixes if len(set(suffixes)) == 2 and all(map(is_language_code, suffixes)) else ["src", "tgt"]


def _combine(paths: Sequence[Path]) -> Source:
    """Parallel files, if their names differ in the language alone or end in two; else one after another."""
    suffixes = {suffix_of(path.name) for path in paths}
    two_languages = len(paths) == len(suffixes) == 2 and all(map(is_language_code, suffixes))
    same_stem = len(paths) > 1 and len({_stem(path) for path in paths}) == 1
    if (same_stem or two_languages) and not any(map(_has_format, paths)):
        return ParallelSource({suffix_of(path.name): read_text(File(path)) for path in paths})
    sources = [read_source(File(path)) for path in paths]
    return sources[0] if len(sources) == 1 else ConcatenatedSource(sources)


def _read_folder(folder: Path) -> dict[str, Source]:
    files = [path for path in sorted(folder.iterdir()) if path.is_file() and _is_data(path)]
    if not files and (labelled := labelled_folders(folder)):
        return labelled
    if not files:
        known = ", ".join(f".{suffix}" for suffix in READERS)
        raise DataError(f"{folder} has no data in it; expected files such as train.jsonl, or {known}")
    by_split: dict[str, list[Path]] = {}
    for path in files:
        by_split.setdefault(split_of(path.name) or "rest", []).append(path)
    rest = by_split.pop("rest", [])
    if rest and "train" not in by_split:
        by_split["train"] = rest
    named = [split for split in ("train", "valid", "test") if split in by_split]
    return {split: _combine_split(by_split[split]) for split in named}


def _combine_split(paths: Iterable[Path]) -> Source:
    """One split of a folder: parallel files are paired, then all sources are concatenated."""
    groups: dict[str, list[Path]] = {}
    for path in paths:
        groups.setdefault(str(path) if _has_format(path) else _stem(path), []).append(path)
    sources = [_combine(group) for group in groups.values()]
    return sources[0] if len(sources) == 1 else ConcatenatedSource(sources)


def _parallel_files(path: Path) -> list[Path]:
    """The other side of `train.en`, if there is exactly one."""
    if path.is_dir() or not is_language_code(suffix_of(path.name)):
        return []
    neighbours = [
        other for other in sorted(path.parent.iterdir()) if other.is_file() and other.name != path.name
    ]
    partners = [
        other
        for other in neighbours
        if _stem(other) == _stem(path) and is_language_code(suffix_of(other.name))
    ]
    if len(partners) > 1:
        names = ", ".join(other.name for other in partners)
        raise InputError(f"{path} has several partners: {names}; name the two files that belong together")
    return partners


def _stem(path: Path) -> str:
    """The name without language and compression: `train` for train.en, train.zh.gz and train.en.txt."""
    return path.name.lower().rsplit(f".{suffix_of(path.name)}", 1)[0]


def _has_format(path: Path) -> bool:
    return suffix_of(path.name) in READERS


def _is_data(path: Path) -> bool:
    hidden = path.name.startswith((".", "_"))
    is_document = path.name.lower().startswith(("readme", "source", "license", "licence"))
    return not hidden and not is_document and (_has_format(path) or is_language_code(suffix_of(path.name)))


def _check_exists(path: Path) -> None:
    if path.exists():
        return
    siblings = [other.name for other in path.parent.iterdir()] if path.parent.is_dir() else []
    hint = nearest(path.name, [*siblings, *CORPORA])
    hint = hint if hint.startswith("did") else f"built in: {', '.join(CORPORA)}"
    raise InputError(f"there is no file or folder {str(path)!r}; {hint}")

"""`clearhead embed MODEL FILE`: an embedding for every line; `--search` finds the most similar lines."""

from __future__ import annotations

import json as jsonlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from rich.markup import escape

from ..errors import InputError
from .console import ERR, OUT, print_json, table
from .options import Json, ModelName, Quantize, Set, edits, lines_of

if TYPE_CHECKING:
    from torch import Tensor

    Write = Callable[[Path, list[str], Tensor], None]


def embed(
    model: ModelName,
    file: Annotated[str, Parameter(help="one text per line; - reads stdin", allow_leading_hyphen=True)],
    *,
    out: Annotated[
        str | None, Parameter(help="output file: .npy, .safetensors or .jsonl; default: JSON lines on stdout")
    ] = None,
    search: Annotated[str | None, Parameter(help="rank the lines by similarity to this text")] = None,
    top: Annotated[int, Parameter(help="number of search results")] = 5,
    set_: Set = None,
    quantize: Quantize = None,
    json: Json = False,
) -> None:
    """Embed each line, pooled as the checkpoint specifies; or find the lines most similar to a text."""
    from ..bundle import load

    if search is not None and out is not None:
        raise InputError("--search prints lines and --out writes vectors; give one of them")
    if top < 1:
        raise InputError(f"--top is {top}, expected 1 or more")
    write = _writer(out)
    texts = lines_of(file)
    if not texts:
        raise InputError(f"{file} is empty; expected one text per line")
    with ERR.status(f"embedding {len(texts):,} texts"):
        bundle = load(model, quantize=quantize, edit=edits(set_))
        vectors = bundle.embed(texts if search is None else [search, *texts])
    if search is not None:
        _print_matches(search, texts, vectors[1:] @ vectors[0], top, json=json)
    elif out is None:
        for text, vector in zip(texts, vectors.tolist(), strict=True):
            sys.stdout.write(_json_line(text, vector))
    else:
        write(Path(out), texts, vectors)
        facts = {"file": file, "out": out, "count": len(texts), "width": vectors.shape[1]}
        if json:
            print_json(facts)
        else:
            OUT.print(f"{len(texts):,} vectors of {vectors.shape[1]} numbers in {escape(out)}")


def _print_matches(search: str, texts: list[str], similarity: Tensor, top: int, *, json: bool) -> None:
    best = similarity.topk(min(top, len(texts)))
    rows = list(zip(best.values.tolist(), best.indices.tolist(), strict=True))
    if json:
        matches = [{"line": i + 1, "likeness": score, "text": texts[i]} for score, i in rows]
        print_json({"search": search, "found": matches})
        return
    listing = table("likeness", "line", "text", right=(0, 1))
    for score, i in rows:
        listing.add_row(f"{score:.3f}", str(i + 1), escape(texts[i]))
    OUT.print(listing)


def _writer(out: str | None) -> Write:
    """The writer for this file type; an unknown suffix is an error before anything is computed."""
    writers: dict[str, Write] = {".npy": _npy, ".safetensors": _safetensors, ".jsonl": _jsonl}
    suffix = ".jsonl" if out is None else Path(out).suffix
    if suffix not in writers:
        raise InputError(f"--out is {out}; expected a name that ends in {', '.join(writers)}")
    if out is not None and not Path(out).absolute().parent.is_dir():
        raise InputError(f"--out is {out}, but there is no folder {Path(out).parent}; create it first")
    return writers[suffix]


def _npy(path: Path, texts: list[str], vectors: Tensor) -> None:
    import numpy as np

    with _part_file(path).open("wb") as file:
        np.save(file, vectors.numpy())
    os.replace(_part_file(path), path)


def _safetensors(path: Path, texts: list[str], vectors: Tensor) -> None:
    from safetensors.torch import save_file

    save_file({"vectors": vectors.contiguous()}, _part_file(path))
    os.replace(_part_file(path), path)


def _jsonl(path: Path, texts: list[str], vectors: Tensor) -> None:
    with _part_file(path).open("w", encoding="utf-8") as file:
        for text, vector in zip(texts, vectors.tolist(), strict=True):
            file.write(_json_line(text, vector))
    os.replace(_part_file(path), path)


def _part_file(path: Path) -> Path:
    """A temporary file in the same folder: the old file stays intact until the new one is complete."""
    return path.with_name(path.name + ".part")


def _json_line(text: str, vector: list[float]) -> str:
    return jsonlib.dumps({"text": text, "vector": vector}, ensure_ascii=False) + "\n"

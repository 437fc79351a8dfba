"""`clearhead embed MODEL FILE`: an embedding for every text; `--search` finds the most similar ones.

Vectors that `--out` saved can be searched again: `clearhead embed MODEL --vectors FILE --search TEXT`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from rich.markup import escape

from ..errors import InputError
from .console import ERR, OUT, print_json, table
from .file_rows import read_file_rows
from .opening import open_prepared
from .options import (
    NO_ADAPTER,
    AdapterOptions,
    DeviceName,
    Json,
    Keep,
    ModelName,
    ModelThreads,
    PrecisionName,
    Set,
    edits,
)
from .vectors import check_out, check_same_model, json_line, read_vectors, write_vectors

if TYPE_CHECKING:
    from torch import Tensor

    from ..bundle import Bundle


def embed(
    model: ModelName,
    file: Annotated[
        str | None,
        Parameter(
            help="one text per line, or a table (.tsv .csv .jsonl .parquet); - reads stdin",
            allow_leading_hyphen=True,
        ),
    ] = None,
    *,
    column: Annotated[str | None, Parameter(help="column of a table to embed (default: detected)")] = None,
    out: Annotated[
        str | None, Parameter(help="output file: .npy, .safetensors or .jsonl; default: JSON lines on stdout")
    ] = None,
    vectors: Annotated[
        str | None, Parameter(help="search this file of --out instead of embedding a file")
    ] = None,
    search: Annotated[str | None, Parameter(help="rank the texts by similarity to this text")] = None,
    top: Annotated[int, Parameter(help="number of search results")] = 5,
    batch_size: Annotated[
        int | None, Parameter(help="texts per batch (default: by their lengths)", show_default=False)
    ] = None,
    over: AdapterOptions = NO_ADAPTER,
    set_: Set = None,
    precision: PrecisionName = None,
    keep: Keep = False,
    device: DeviceName = None,
    threads_: ModelThreads = None,
    json: Json = False,
) -> None:
    """Embed each text, pooled as the checkpoint specifies; or find the texts most similar to another."""
    _check(file, out, vectors, search, top)
    if vectors is not None:
        texts, found = read_vectors(vectors)
        bundle = open_prepared(
            model,
            over=over,
            precision=precision,
            keep=keep,
            edit=edits(set_),
            device=device,
            threads=threads_,
        )
        check_same_model(bundle, vectors, texts, found)
        assert search is not None
        _print_matches(search, texts, bundle.similarity(found, search)[:, 0], top, json=json)
        return
    texts = _read_texts(file or "", column)
    bundle = open_prepared(
        model, over=over, precision=precision, keep=keep, edit=edits(set_), device=device, threads=threads_
    )
    with ERR.status(f"embedding {len(texts):,} texts"):
        found = bundle.embed(texts, batch_size=batch_size).cpu()
    _print_cut(bundle, texts)
    if search is not None:
        _print_matches(search, texts, bundle.similarity(found, search)[:, 0], top, json=json)
    elif out is None:
        for text, vector in zip(texts, found.tolist(), strict=True):
            sys.stdout.write(json_line(text, vector))
    else:
        write_vectors(out, texts, found)
        _print_saved(model, file or "", out, found, json=json)


def _check(file: str | None, out: str | None, vectors: str | None, search: str | None, top: int) -> None:
    """What belongs together and what does not, before anything is read."""
    if search is not None and out is not None:
        raise InputError("--search prints texts and --out writes vectors; give one of them")
    if top < 1:
        raise InputError(f"--top is {top}, expected 1 or more")
    if vectors is not None and (file is not None or out is not None):
        raise InputError("--vectors is searched instead of a file; leave FILE and --out out")
    if vectors is not None and search is None:
        raise InputError("--vectors needs --search: the text to look for")
    if vectors is None and file is None:
        raise InputError("name a file of texts, or --vectors FILE and --search TEXT")
    if out is not None:
        check_out(out)


def _read_texts(file: str, column: str | None) -> list[str]:
    rows = read_file_rows(file, column)
    if not rows.texts:
        raise InputError(f"{file} is empty; expected one text per line")
    if rows.note:
        ERR.print(rows.note, markup=False, soft_wrap=True)
    return list(rows.texts)


def _print_cut(bundle: Bundle, texts: Sequence[str]) -> None:
    from ..bundle import count_cut

    cut, limit = count_cut(bundle, texts)
    if cut:
        ERR.print(f"{cut:,} of {len(texts):,} texts were read up to token {limit:,}")


def _print_saved(model: str, file: str, out: str, vectors: Tensor, *, json: bool) -> None:
    count, width = vectors.shape
    if json:
        print_json({"file": file, "out": out, "count": count, "width": width})
        return
    OUT.print(f"{count:,} vectors of {width} numbers in {escape(out)}")
    ERR.print(
        f'search them: clearhead embed {model} --vectors {out} --search "..."',
        style="dim",
        markup=False,
        soft_wrap=True,
    )


def _print_matches(search: str, texts: Sequence[str], similarity: Tensor, top: int, *, json: bool) -> None:
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

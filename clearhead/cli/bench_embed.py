"""`clearhead bench embed MODEL FILE`: speed and quality of sentence embeddings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from ..errors import InputError
from .bench import print_footer, print_speeds
from .console import ERR, print_json
from .options import Json, Threads, checked_precisions, lines_of


def embed(
    model: Annotated[str, Parameter(help="folder of a sentence-transformers model")],
    file: Annotated[str | None, Parameter(help="one text per line; default: the texts of --pairs")] = None,
    *,
    pairs: Annotated[
        tuple[str, ...], Parameter(help="tables of rated pairs, as in SICK: also report the rank correlation")
    ] = (),
    precision: Annotated[
        tuple[str, ...],
        Parameter(
            consume_multiple=True,
            negative="",
            help="float32, bfloat16, int8, int8-fine, int4: one or several",
        ),
    ] = ("float32", "bfloat16", "int8"),
    count: Annotated[int, Parameter(help="number of texts to time")] = 1000,
    rounds: Annotated[int, Parameter(help="rounds per side; the median is reported")] = 5,
    threads_: Threads = None,
    json: Json = False,
) -> None:
    """Clearhead in several precisions and sentence-transformers, on the same texts: texts per second."""
    from ..bench.embed import compare_embedding, read_rated_pairs
    from ..bench.timing import describe_machine, set_threads

    rated = [row for each in pairs for row in read_rated_pairs(Path(each))]
    texts = lines_of(file) if file else [text for row in rated for text in (row.one, row.two)]
    texts = texts[:count]
    if not texts:
        raise InputError("nothing to embed; give a file with one text per line, or --pairs")
    precisions = checked_precisions(precision)
    cores = set_threads(threads_)
    with ERR.status("loading") as status:
        result = compare_embedding(model, texts, rated, precisions, rounds=rounds, progress=status.update)
    line = describe_machine(cores, result.peers)
    if json:
        print_json({"model": model, "machine": line, "rounds": rounds, "texts": len(texts), **vars(result)})
        return
    extra = {"least cosine": {name: f"{value:.5f}" for name, value in result.cosine.items()}}
    if rated:
        extra["Spearman"] = {name: f"{value:.2f}" for name, value in result.spearman.items()}
    print_speeds(f"{model} · {len(texts):,} texts", "texts/s", result.speeds, extra)
    print_footer(line, rounds, result.missing)

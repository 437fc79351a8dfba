"""`clearhead bench train [ragged|dense]`: training speed compared with Hugging Face's Trainer."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from ..bench.task import TrainingRows
from ..errors import InputError
from .bench import print_footer, print_speeds
from .console import ERR, print_json
from .options import Json, Threads


def train(
    kind: Annotated[
        TrainingRows, Parameter(help="ragged: pairs of all lengths; dense: rows without padding")
    ] = "ragged",
    *,
    source: Annotated[
        str, Parameter(help="sentence pairs: a built-in corpus or your file")
    ] = "python-docstrings",
    tokens: Annotated[int, Parameter(help="tokens per batch, with padding, both sides")] = 4000,
    steps: Annotated[int, Parameter(help="steps per round; the first is a warm-up")] = 20,
    rounds: Annotated[int, Parameter(help="rounds per side; the median is reported")] = 3,
    threads_: Threads = None,
    json: Json = False,
) -> None:
    """The same model, rows and tokens per batch: real tokens (without padding) per second."""
    from ..bench.timing import describe_machine, installed, set_threads
    from ..bench.train import TRAIN_PEERS, compare_training

    for name, value, least in (("tokens", tokens, 200), ("steps", steps, 2), ("rounds", rounds, 1)):
        if value < least:
            raise InputError(f"--{name} is {value}, expected {least} or more")
    cores = set_threads(threads_)
    peers, missing = installed(TRAIN_PEERS)
    with ERR.status("building the model") as status:
        speeds = compare_training(
            kind,
            source=source,
            tokens=tokens,
            steps=steps,
            rounds=rounds,
            peers=not missing,
            progress=status.update,
        )
    line = describe_machine(cores, peers)
    if json:
        print_json({"kind": kind, "machine": line, "rounds": rounds, "speeds": speeds, "missing": missing})
        return
    what = f"{source} · " if kind == "ragged" else ""
    print_speeds(f"training, {kind} · {what}{tokens:,} tokens per batch", "real tokens/s", speeds, {})
    print_footer(line, rounds, missing)

"""`clearhead bench train [ragged|dense]`: training speed compared with Hugging Face's Trainer."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from ..bench.task import TrainingPrecision, TrainingRows
from ..errors import InputError
from .bench import print_footer, print_speeds
from .console import ERR, OUT, print_json
from .options import Json, Threads

SLOW = "this CPU has no fast bfloat16 (AVX512_BF16 or AMX instructions)"


def train(
    kind: Annotated[
        TrainingRows, Parameter(help="ragged: pairs of all lengths; dense: rows without padding")
    ] = "ragged",
    *,
    precision: Annotated[
        tuple[TrainingPrecision, ...],
        Parameter(
            consume_multiple=True,
            help="float32, bfloat16 or both (default: float32, and bfloat16 where the CPU is fast in it)",
        ),
    ] = (),
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
    from ..bench.train import GROUPED, TRAIN_PEERS, UNGROUPED, compare_training
    from ..device import has_fast_bfloat16

    for name, value, least in (("tokens", tokens, 200), ("steps", steps, 2), ("rounds", rounds, 1)):
        if value < least:
            raise InputError(f"--{name} is {value}, expected {least} or more")
    cores = set_threads(threads_)
    peers, missing = installed(TRAIN_PEERS)
    fast = has_fast_bfloat16()
    default: tuple[TrainingPrecision, ...] = ("float32", "bfloat16") if fast else ("float32",)
    precisions = tuple(dict.fromkeys(precision or default))
    with ERR.status("building the model") as status:
        result = compare_training(
            kind,
            source=source,
            tokens=tokens,
            steps=steps,
            rounds=rounds,
            precisions=precisions,
            peers=not missing,
            progress=status.update,
        )
    line = describe_machine(cores, peers) + ("; processor time" if cores == 1 else "")
    if json:
        facts = {"kind": kind, "machine": line, "rounds": rounds, "fast_bfloat16": fast}
        print_json({**facts, **vars(result), "missing": missing})
        return
    what = f"{source} · " if kind == "ragged" else ""
    title = f"training, {kind} · {what}{tokens:,} tokens per batch · float32 unless named"
    losses = {f"loss at\nstep {steps}": {name: f"{loss:.3f}" for name, loss in result.losses.items()}}
    compared = (UNGROUPED, f"{UNGROUPED} bfloat16", GROUPED)
    print_speeds(title, "real tokens/s", result.speeds, losses, compared)
    if not fast:
        skipped = "bfloat16" not in precisions
        OUT.print(
            f"{SLOW}: " + ("not measured; --precision bfloat16 measures it" if skipped else "slow here")
        )
    print_footer(line, rounds, missing)

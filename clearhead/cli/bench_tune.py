"""`clearhead bench tune [WHAT]`: tuning by LoRA compared with PEFT and trl."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import Parameter

from ..errors import InputError
from .bench import print_footer, print_speeds
from .console import ERR, print_json
from .options import Json, Threads

Work = Literal["dense", "ragged", "chats", "quantized", "decode"]
TITLES: dict[str, str] = {
    "dense": "LoRA, a classifier (MiniLM's shape), rows of one length",
    "ragged": "LoRA, a classifier (MiniLM's shape), rows as long as sentences",
    "chats": "LoRA, a language model (SmolLM2's shape, 8 layers), answers to prompts",
    "quantized": "LoRA, the same model, over float32, int8 and int4 weights",
    "decode": "generation with LoRA (GPT-2's shape), greedy",
}
PEERS = {
    "dense": ("transformers", "accelerate", "peft"),
    "ragged": ("transformers", "accelerate", "peft"),
    "chats": ("transformers", "accelerate", "peft", "trl"),
    "quantized": (),
    "decode": ("transformers", "peft"),
}
BATCH = {"dense": 32, "ragged": 32, "chats": 13, "quantized": 32, "decode": 1}


def tune(
    what: Annotated[
        Work,
        Parameter(
            help="dense, ragged: a classifier; chats: answers of a language model; quantized: over int8 and "
            "int4 weights; decode: generation"
        ),
    ] = "ragged",
    *,
    batch: Annotated[
        int | None, Parameter(help="rows per batch, before packing (default: by the work)")
    ] = None,
    steps: Annotated[int, Parameter(help="steps per round; the first is a warm-up")] = 12,
    tokens: Annotated[int, Parameter(help="decode: new tokens of each row")] = 64,
    rounds: Annotated[int, Parameter(help="rounds per side; the median is reported")] = 3,
    threads_: Threads = None,
    json: Json = False,
) -> None:
    """The same weights and rows, LoRA of rank 8 on all linear layers, each side in a process of its own."""
    from ..bench import tune, tuned_decoding
    from ..bench.timing import describe_machine, installed, set_threads

    rows = BATCH[what] if batch is None else batch
    for name, value, least in (
        ("batch", rows, 1), ("steps", steps, 2), ("tokens", tokens, 1), ("rounds", rounds, 1)
    ):  # fmt: skip
        if value < least:
            raise InputError(f"--{name} is {value}, expected {least} or more")
    cores = set_threads(threads_)
    peers, missing = installed(PEERS[what])
    with ERR.status("building the model") as status:
        if what == "decode":
            speeds = tuned_decoding.compare_tuned_decoding(
                rows, tokens, rounds, cores, peers=not missing, progress=status.update
            )
        else:
            speeds = tune.compare_tuning(
                what, batch=rows, steps=steps, rounds=rounds, threads=cores, peers=not missing,
                progress=status.update,
            )  # fmt: skip
    line = describe_machine(cores, peers) + ("; processor time" if cores == 1 else "")
    if json:
        print_json({"what": what, "machine": line, "rounds": rounds, "speeds": speeds, "missing": missing})
        return
    compared = {"decode": (tuned_decoding.BASE_ALONE,), "quantized": ("clearhead",)}.get(what)
    print_speeds(f"{TITLES[what]} · batch {rows}", "real tokens/s", speeds, {}, compared)
    print_footer(line, rounds, missing)

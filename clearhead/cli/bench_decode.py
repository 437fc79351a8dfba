"""`clearhead bench decode [MODEL]`: decoding speed, compared with other libraries."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from ..errors import InputError
from .console import ERR, OUT, print_json, table
from .options import Json, Threads


def decode(
    model: Annotated[str, Parameter(help="a named size, with random weights, or a folder")] = "gpt2",
    *,
    batch: Annotated[int, Parameter(help="batch size")] = 1,
    beams: int = 1,
    prompt: Annotated[int, Parameter(help="prompt length in tokens")] = 32,
    tokens: Annotated[int, Parameter(help="new tokens per prompt")] = 64,
    rounds: Annotated[int, Parameter(help="rounds per side; the median is reported")] = 5,
    threads_: Threads = None,
    json: Json = False,
) -> None:
    """Tokens per second in float32 and int8, transformers and CTranslate2, on the same weights."""
    from ..bench.decode import compare_decoding
    from ..bench.task import DecodeTask
    from ..bench.timing import describe_machine, set_threads

    for name, value in {"batch": batch, "beams": beams, "prompt": prompt, "tokens": tokens}.items():
        if value < 1:
            raise InputError(f"--{name} is {value}, expected 1 or more")
    cores = set_threads(threads_)
    task = DecodeTask(batch, beams, prompt, tokens)
    with ERR.status("building the model") as status:
        result = compare_decoding(model, task, rounds=rounds, cores=cores, progress=status.update)
    line = describe_machine(cores, result.peers)
    if json:
        print_json({"model": model, "machine": line, "rounds": rounds, **vars(task), **vars(result)})
        return
    title = f"{model} · batch {batch} · beams {beams} · {prompt} + {tokens} tokens"
    alike = {name: f"{100 * share:.0f} %" for name, share in result.alike.items()}
    print_speeds(title, "tokens/s", result.speeds, {"same\ntokens": alike})
    print_footer(line, rounds, result.missing)


def print_speeds(title: str, unit: str, speeds: dict[str, float], extra: dict[str, dict[str, str]]) -> None:
    """One row per library: its speed, its ratio to each of the others, and further measurements."""
    OUT.print(f"[bold]{title}[/]")
    others = [name for name in speeds if not name.startswith("clearhead")]
    right = tuple(range(1, 2 + len(others) + len(extra)))
    listing = table("", unit, *(f"x {name}" for name in others), *extra, right=right, whole=(0,))
    for name, speed in speeds.items():
        ratios = [f"{speed / speeds[other]:.2f}" for other in others]
        listing.add_row(name, f"{speed:,.1f}", *ratios, *(found.get(name, "") for found in extra.values()))
    OUT.print(listing)


def print_footer(line: str, rounds: int, missing: list[str]) -> None:
    OUT.print(f"median of {rounds} rounds in turns; {line}", style="dim")
    if missing:
        ERR.print(
            f"not measured (not installed or not supported): {', '.join(missing)}", style="dim", markup=False
        )

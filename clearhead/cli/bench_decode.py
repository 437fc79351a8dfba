"""`clearhead bench decode [MODEL]`: decoding speed, compared with other libraries."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from ..errors import InputError
from .bench import print_footer, print_speeds
from .console import ERR, print_json
from .options import Json, Threads


def decode(
    model: Annotated[str, Parameter(help="a named size, with random weights, or a folder")] = "gpt2",
    *,
    batch: Annotated[int, Parameter(help="batch size")] = 1,
    beams: Annotated[int, Parameter(help="number of beams; 1 is greedy")] = 1,
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
    same_tokens = {name: f"{100 * share:.0f} %" for name, share in result.alike.items()}
    print_speeds(title, "tokens/s", result.speeds, {"same\ntokens": same_tokens})
    print_footer(line, rounds, result.missing)

"""`clearhead bench decode [MODEL]`: decoding speed in every precision, compared with other libraries."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from ..bench.task import DECODE_PEERS, DecodeTask
from ..errors import InputError, nearest
from .bench import print_footer
from .console import ERR, OUT, print_json, table
from .options import Json, SomePrecisions, Threads, checked_precisions

if TYPE_CHECKING:
    from ..bench.decode import DecodeBenchmark, DecodePoint

# Headings of the ratios.
TIMES = {
    "transformers": "times\ntrans-\nformers",
    "ctranslate2": "times\nCTrans-\nlate2",
    "llama.cpp": "times\nllama\n.cpp",
}
EXPLANATION = (
    "tokens/s while decoding, without the prompt; with prompt: of the whole call · memory limit: share of "
    "the speed at which the weights can be read, {:.1f} GB/s · same tokens as in float32"
)
Several = Parameter(consume_multiple=True, negative="")


def decode(
    model: Annotated[
        str, Parameter(help="a named size, with random weights, a folder, or a .gguf file")
    ] = "gpt2",
    *,
    precision: SomePrecisions = (),
    cache_precision: Annotated[
        tuple[str, ...],
        Several,
        Parameter(
            help="number format of Clearhead's cached keys and values: float32, bfloat16, int8, or several",
        ),
    ] = ("float32",),
    peers: Annotated[
        tuple[str, ...],
        Several,
        Parameter(
            show_default=False,
            help="transformers, transformers-bfloat16, ctranslate2, llama.cpp (for a .gguf file), or none "
            "(default: those that are installed; transformers in float32)",
        ),
    ] = (),
    batch: Annotated[tuple[int, ...], Several, Parameter(help="batch size, or several: 1 4 16")] = (1,),
    beams: Annotated[int, Parameter(help="number of beams; 1 is greedy")] = 1,
    prompt: Annotated[
        tuple[int, ...], Several, Parameter(help="prompt length in tokens, or several: 32 256 900")
    ] = (32,),
    tokens: Annotated[int, Parameter(help="new tokens per prompt")] = 64,
    rounds: Annotated[int, Parameter(help="rounds per side; the median is reported")] = 5,
    threads_: Threads = None,
    json: Json = False,
) -> None:
    """Tokens per second in every precision, against other libraries with the same weights and threads.

    Speeds are those of decoding alone: the time of a call for all tokens less that of a call for one.
    """
    from ..bench.decode import compare_decoding
    from ..bench.timing import describe_machine, set_threads
    from ..nn import check_cache_precision

    given = [("batch", n, 1) for n in batch] + [("prompt", n, 1) for n in prompt]
    for name, value, least in [*given, ("beams", beams, 1), ("tokens", tokens, 2)]:
        if value < least:
            raise InputError(f"--{name} is {value}, expected {least} or more")
    precisions = checked_precisions(precision)
    chosen = _chosen_peers(peers, model)
    cores = set_threads(threads_)
    tasks = [DecodeTask(rows, beams, length, tokens) for rows, length in product(batch, prompt)]
    with ERR.status("building the model") as status:
        result = compare_decoding(
            model,
            tasks,
            precisions,
            chosen,
            cache_precisions=tuple(dict.fromkeys(map(check_cache_precision, cache_precision))),
            rounds=rounds,
            threads=cores,
            progress=status.update,
        )
    line = describe_machine(cores, result.peers)
    if json:
        print_json(_to_dict(result, model=model, machine=line, rounds=rounds, beams=beams, tokens=tokens))
        return
    for point in result.points:
        OUT.print(
            f"[bold]{model} · batch {point.batch} · beams {beams} · {point.prompt} + {tokens} tokens[/]"
        )
        _print_point(point)
        OUT.print()
    same = " · CTranslate2 is compared in the same precision" if "ctranslate2" in result.peers else ""
    OUT.print(EXPLANATION.format(result.bandwidth / 1e9) + same, style="dim")
    print_footer(line, rounds, result.missing)


def _chosen_peers(words: tuple[str, ...], model: str) -> list[str]:
    """The peers by name; by default those that can open this model, in float32."""
    if not words:
        names = ["transformers", "ctranslate2"]
        return [*names, "llama.cpp"] if model.endswith(".gguf") else names
    for word in words:
        if word not in DECODE_PEERS and words != ("none",):
            raise InputError(f"there is no peer {word!r}; {nearest(word, [*DECODE_PEERS, 'none'])}")
    return [] if words == ("none",) else list(dict.fromkeys(words))


def _print_point(point: DecodePoint) -> None:
    peers = list(dict.fromkeys(peer for speed in point.sides for peer in speed.times))
    headings = ["tokens\n/s", *(TIMES[peer] for peer in peers)]
    headings += ["memory\nlimit", "same\ntokens", "prompt\nms", "with\nprompt"]
    listing = table("", *headings, right=tuple(range(1, 1 + len(headings))), no_wrap=(0,))
    for speed in point.sides:
        ratios = [f"{speed.times[peer]:.2f}" if peer in speed.times else "" for peer in peers]
        share = "" if speed.memory_share is None else f"{100 * speed.memory_share:.0f} %"
        listing.add_row(
            speed.side,
            _number(speed.tokens_per_second),
            *ratios,
            share,
            f"{100 * speed.same_tokens:.0f} %",
            _number(1000 * speed.prompt_seconds),
            _number(speed.with_prompt),
        )
    OUT.print(listing)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.1f}"


def _to_dict(result: DecodeBenchmark, **about: object) -> dict[str, object]:
    points = [
        {"batch": point.batch, "prompt": point.prompt, "sides": [vars(speed) for speed in point.sides]}
        for point in result.points
    ]
    return {**about, **vars(result), "points": points}

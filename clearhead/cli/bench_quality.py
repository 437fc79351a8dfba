"""`clearhead bench quality`: what a small model learns with each attention kernel, all else equal."""

from __future__ import annotations

from math import exp
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from ..bench.task import QUALITY_TASKS, QualitySettings
from ..errors import InputError
from .console import ERR, OUT, print_json, table
from .options import Json, Threads

if TYPE_CHECKING:
    from ..bench.quality import TrainedVariant
    from ..lens.pictures import Picture


def quality(
    *variants: Annotated[str, Parameter(help="such as Softmax 'Window(16)' Linear; default: all")],
    tasks: Annotated[
        tuple[str, ...], Parameter(help="recall, listops, text", consume_multiple=True)
    ] = QUALITY_TASKS,
    steps: Annotated[int, Parameter(help="training steps for each")] = QualitySettings.steps,
    length: Annotated[int, Parameter(help="sequence length")] = QualitySettings.length,
    rows: Annotated[int, Parameter(help="batch size")] = QualitySettings.rows,
    width: Annotated[int, Parameter(help="hidden size of the model")] = QualitySettings.width,
    depth: Annotated[int, Parameter(help="number of layers")] = QualitySettings.depth,
    heads: Annotated[int, Parameter(help="number of heads")] = QualitySettings.heads,
    lr: Annotated[float, Parameter(help="learning rate")] = QualitySettings.lr,
    seed: Annotated[int, Parameter(help="random seed")] = QualitySettings.seed,
    save: Annotated[Path | None, Parameter(help="a picture: .png, .svg or .pdf")] = None,
    threads_: Threads = None,
    json: Json = False,
) -> None:
    """The same small model, data and steps with each: loss, accuracy, speed and memory."""
    from ..bench.quality import QUALITY_VARIANTS, train_variants
    from ..bench.timing import describe_machine, set_threads

    sizes = {"steps": steps, "rows": rows, "width": width, "depth": depth, "heads": heads}
    for name, value in sizes.items():
        if value < 1:
            raise InputError(f"--{name} is {value}, expected 1 or more")
    if length < 24:
        raise InputError(
            f"--length is {length}, expected 24 or more: a shorter text has no long distances to test"
        )
    cores = set_threads(threads_)
    settings = QualitySettings(steps, length, rows, width, depth, heads, lr, seed)
    with ERR.status("building") as status:
        trained, refused = train_variants(tasks, variants or QUALITY_VARIANTS, settings, status.update)
    line = describe_machine(cores, {}) + ("; processor time" if cores == 1 else "")
    if save is not None and trained:
        _draw(trained).save(save)
    if json:
        print_json(
            {"machine": line, **vars(settings), "learned": [vars(x) for x in trained], "refused": refused}
        )
        return
    shape = f"{depth} layers of width {width}, {heads} heads"
    OUT.print(f"[bold]{steps} steps[/] of {rows} x {length} tokens · {shape} · seed {seed}")
    for name in dict.fromkeys(x.task for x in trained):
        _print_task(name, [x for x in trained if x.task == name])
    for where, sentence in refused.items():
        OUT.print(f"{where}: {sentence}", style="dim", markup=False)
    if save is not None and trained:
        OUT.print(f"saved {save}", markup=False)
    OUT.print(line, style="dim")


def _print_task(name: str, rows: list[TrainedVariant]) -> None:
    is_text = rows[0].accuracy is None
    heading = "perplexity" if is_text else "accuracy"
    listing = table(
        name, heading, "loss", "tokens/s", "memory", "parameters", right=(1, 2, 3, 4, 5), no_wrap=(0,)
    )
    for x in sorted(rows, key=lambda x: x.loss):
        score = f"{exp(x.loss):.2f}" if is_text else f"{x.accuracy:.1f} %"
        memory = f"{x.memory / 1e6:.1f} MB"
        listing.add_row(
            x.variant, score, f"{x.loss:.3f}", f"{x.tokens_per_second:,.0f}", memory, f"{x.parameters:,}"
        )
    OUT.print(listing)
    OUT.print()


def _draw(trained: list[TrainedVariant]) -> Picture:
    from ..lens.pictures import bars

    panels: dict[str, dict[str, tuple[float, str]]] = {}
    titles: dict[str, str] = {}
    for x in sorted(trained, key=lambda x: x.loss):
        score = x.loss if x.accuracy is None else x.accuracy
        note = f"{score:.3g} · {x.tokens_per_second / 1000:.1f}k tokens/s"
        panels.setdefault(x.task, {})[x.variant] = (score, note)
        titles[x.task] = "loss, lower is better" if x.accuracy is None else "accuracy, %"
    return bars(panels, "Softmax", titles)

"""`clearhead demo`: the whole workflow in a minute. Train a translator, score it, ablate it."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from .console import ERR, OUT, program, table

if TYPE_CHECKING:
    from ..recipes import PreparedRun

# Held out, and so is its mirror image: the two have the same words and opposite meanings.
SENTENCE = "three brave dogs help the old horse in the park today"
MIRRORED = "the old horse helps three brave dogs in the park today"
ABLATION_SENTENCES = 200  # held-out sentences that are translated again with each part ablated


def demo(
    *,
    out: Annotated[str, Parameter(help="output folder")] = "runs/demo",
    steps: Annotated[int | None, Parameter(help="number of training steps; fewer for a quick look")] = None,
    seed: Annotated[int, Parameter(help="random seed")] = 0,
) -> None:
    """Train an English-Chinese translator on a built-in grammar and look inside it.

    It is evaluated on held-out sentences, its attention is plotted, and its parts are ablated one by one.
    """
    from ..recipes import load_run, prepare, run_training
    from ..train import default_progress, deterministic

    settings = [f"train.seed={seed}"]
    if steps:
        settings.append(f"train.steps={steps}")
    folder = Path(out)
    prepared = prepare(load_run("translate-en-zh", settings))
    rows = prepared.rows.splits
    sizes = f"{len(rows['train']):,} train / {len(rows['valid']):,} held-out pairs"
    OUT.print(f"[bold]\\[1/5][/] data     grammar-en-zh · {sizes}")
    first = rows["train"][0]
    OUT.print(f"               {first['src']} → {first['tgt']}", markup=False)
    OUT.print(f"[bold]\\[2/5][/] model    {prepared.bundle}")
    OUT.print(f"[bold]\\[3/5][/] train    {prepared.run.train.steps} steps")
    # All of it with the threads of the recipe, one: on a busy machine a second only waits.
    with deterministic(prepared.run.train.threads):
        result = run_training(prepared, folder, progress=default_progress())
        if result.status != "done":
            ERR.print(
                f"stopped at step {result.step}; continue with: {program()} demo --out {quote(out)}",
                soft_wrap=True,
            )
            raise SystemExit(130 if result.reason == "SIGINT" else 3)
        _print_scores(prepared)
        OUT.print(f"[bold]\\[4/5][/] saved    {folder}  (a Hugging Face folder)")
        picture = _save_picture(prepared, folder)
        OUT.print(f"               {picture}  where the decoder looks")
        _print_ablations(prepared)
    OUT.print()
    name, run = program(), quote(str(folder))
    OUT.print(f'use      {name} generate {run} "{MIRRORED}"')
    OUT.print(f'look     {name} look {run} "{SENTENCE}" --html')
    OUT.print(f'ablate   {name} look {run} "{SENTENCE}" --without positions')
    OUT.print(f"inspect  {name} inspect {run}")
    OUT.print(f"score    {name} eval {run}")
    OUT.print(f"change   {name} train translate-en-zh --model.encoder_layers 4 --train.steps 1500")


def _print_scores(prepared: PreparedRun) -> None:
    from ..tasks import TextToText, bleu_signature

    task, model = prepared.task, prepared.bundle.model.eval()
    assert isinstance(task, TextToText)
    scores = task.score(model, "valid")
    line = f"exact match {scores['exact']:.1f} %   BLEU {scores['bleu']:.1f}   chrF {scores['chrf']:.1f}"
    OUT.print(f"               held-out  {line}")
    held_out = prepared.rows.splits["valid"]
    references = [row["tgt"] for row in held_out[:10]]
    translations = prepared.bundle.generate([row["src"] for row in held_out[:10]])
    assert isinstance(translations, list)
    OUT.print(f"               {bleu_signature(translations, references, 'zh')}", style="dim")
    for row, text in zip(held_out[:10], translations, strict=True):
        mark = "[green]✓[/]" if text == row["tgt"] else "[red]✗[/]"
        OUT.print(f"               {mark} {row['src']} → {text}")


def _print_ablations(prepared: PreparedRun) -> None:
    """Exact match with each part ablated, measured on this model."""
    from ..bundle import ablations

    rows = prepared.rows.splits["valid"][:ABLATION_SENTENCES]
    measured = ablations(prepared.bundle, [row["src"] for row in rows], [row["tgt"] for row in rows])
    OUT.print(
        f"[bold]\\[5/5][/] ablate   exact match on {len(rows)} held-out sentences, one part switched off"
    )
    shown = table("               without", "exact", right=(1,))
    for row in measured:
        shown.add_row(f"               {row.without}", f"{row.exact:.1f} %")
    OUT.print(shown)
    OUT.print(
        "               The mask changes nothing here: decoding adds one token at a time, so there is no\n"
        "               future to hide. Training needs it, because there all positions are computed at once.",
        style="dim",
    )


def _save_picture(prepared: PreparedRun, folder: Path) -> Path:
    """Which English word each Chinese character came from, for one sentence of the grammar."""
    from ..lens.pictures import chinese_font

    path = folder / ("attention.png" if chinese_font() else "attention.svg")
    return prepared.bundle.trace(SENTENCE).save(path)

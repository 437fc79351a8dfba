"""`clearhead bench WHAT`: compare with every installed peer library, in alternating rounds, in one run."""

from __future__ import annotations

from collections.abc import Sequence

from cyclopts import App

from .console import ERR, OUT, table

bench = App(name="bench", help="Benchmark against every peer library that is installed, in one run.")

# Named by strings, so that a bench is imported when it is called.
WHAT = {
    "decode": "Decoding: tokens per second in every precision, against transformers, CTranslate2, llama.cpp.",
    "products": "Matrix products: the speed of each for the shapes of a model, and which are used here.",
    "tune": "Tuning by LoRA: steps, chats, quantized bases and generation, against PEFT and trl.",
    "train": "Training: tokens per second without padding, against Hugging Face's Trainer.",
    "attention": "Attention kernels by sequence length: time, memory, FLOPs, and where each pays off.",
    "quality": "Attention kernels: what the same small model learns with each, all else equal.",
    "embed": "Sentence embeddings: texts per second in several precisions, against sentence-transformers.",
}
for name, purpose in WHAT.items():
    bench.command(f"clearhead.cli.bench_{name}:{name}", name=name, help=purpose)


def print_speeds(
    title: str,
    unit: str,
    speeds: dict[str, float],
    extra: dict[str, dict[str, str]],
    compared: Sequence[str] | None = None,
) -> None:
    """One row per library: its speed, its ratio to each of `compared`, and further measurements.

    Without `compared`, ratios are to every library that is not Clearhead.
    """
    OUT.print(f"[bold]{title}[/]")
    others = [name for name in speeds if not name.startswith("clearhead")]
    others = others if compared is None else [name for name in compared if name in speeds]
    # Headings are broken at spaces and names are wrapped, so that no figure is cut in a narrow window.
    headings = [unit.replace(" ", "\n")]
    headings += ["x " + "\n".join(name.replace(",", "").split()) for name in others]
    figures = tuple(range(1, 1 + len(headings) + len(extra)))
    listing = table("", *headings, *extra, right=figures, no_wrap=figures)
    for name, speed in speeds.items():
        ratios = [f"{speed / speeds[other]:.2f}" for other in others]
        listing.add_row(name, f"{speed:,.1f}", *ratios, *(column.get(name, "") for column in extra.values()))
    OUT.print(listing)


def print_footer(line: str, rounds: int, missing: list[str]) -> None:
    OUT.print(f"median of {rounds} alternating rounds; {line}", style="dim")
    if missing:
        ERR.print(
            f"not measured (not installed or not supported): {', '.join(missing)}", style="dim", markup=False
        )

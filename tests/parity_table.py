"""Prints the table of docs/results.md: each model type, its lines here and in transformers, how far apart.

    PYTHONPATH=tests python tests/parity_table.py

The largest difference is over all heads and variations of tests/references.py in float32: the output, for
rows that are padded here and alone there, relative to the largest output where that is above 1. Lines are
those of the file that describes the family, with its named sizes, and those of model and config in
transformers, generated ones included.
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import transformers
from reference_runs import Batch, answer_of, row_of, run_ours, run_theirs
from references import REFERENCES, Reference

import clearhead as ch
from clearhead.families import FAMILIES, Family, text

MODELS = Path(transformers.__file__).parent / "models"


def lines_here(family: Family) -> tuple[str, int]:
    """The file of a family, and its length."""
    for name, module in vars(text).items():
        if family in vars(module).values() if hasattr(module, "__file__") else False:
            return name, len(Path(module.__file__).read_text().splitlines())
    raise LookupError(family.name)


def lines_there(family: Family) -> int | None:
    folder = MODELS / family.key.replace("-", "_").replace("gemma3_text", "gemma3")
    folder = {"openai_gpt": MODELS / "openai", "data2vec_text": MODELS / "data2vec"}.get(folder.name, folder)
    stem = "data2vec_text" if folder.name == "data2vec" else folder.name
    files = [folder / f"{kind}_{stem}.py" for kind in ("modeling", "configuration")]
    return sum(len(path.read_text().splitlines()) for path in files if path.exists()) or None


@torch.no_grad()
def apart(reference: Reference) -> float:
    """The largest difference of the outputs of real tokens, relative to the largest of theirs if above 1."""
    with TemporaryDirectory() as folder:
        theirs, batch = reference.files(Path(folder)), Batch.of(reference)
        wanted, ours = run_theirs(theirs, batch), ch.load(folder).model
        answer = run_ours(ours, batch)
    worst = 0.0
    for row, want in enumerate(wanted):
        right = answer_of(want)
        given = row_of(ours, answer, batch, row, right)
        worst = max(worst, float((given - right).abs().max() / right.abs().max().clamp(min=1)))
    return worst


def main() -> None:
    torch.set_num_threads(1)
    lines = ["| model type | lines here | lines in transformers | models compared | largest difference |"]
    lines += ["|---|---|---|---|---|"]
    for family in FAMILIES.values():
        own = [r for r in REFERENCES.values() if r.family is family]
        worst = max(map(apart, own), default=None)
        name, here = lines_here(family)
        file = "" if name == family.key.replace("-", "_") else f" (`{name}.py`)"
        there = lines_there(family)
        cells = f"{there:,}" if there else "absent", len(own), f"{worst:.1e}" if own else "golden tensors"
        lines += [f"| `{family.key}` | {here}{file} | {' | '.join(map(str, cells))} |"]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()

"""How far a reader must walk: files, functions and package crossings of four typical calls, as a table.

    python tests/walks.py

Every Python call inside `clearhead/` is counted under `sys.setprofile`; a crossing is a call from one package
into another. The figures of today and of earlier versions are in docs/log.md.
"""

import contextlib
import io
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).resolve().parents[1] / "clearhead"
SENTENCE = "three brave dogs help the old horse in the park today"


def walk(call: Callable[[], object]) -> tuple[int, int, int]:
    """Files, functions and package crossings of one call."""
    files: set[str] = set()
    functions: set[tuple[str, int]] = set()
    crossings = 0

    def package(frame: FrameType | None) -> str | None:
        name = frame.f_code.co_filename if frame is not None else ""
        return Path(name).relative_to(ROOT).parts[0] if name.startswith(f"{ROOT}{os.sep}") else None

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal crossings
        here = package(frame) if event == "call" else None
        if here is None or frame.f_code.co_name.startswith("<"):  # modules, lambdas, comprehensions
            return
        files.add(frame.f_code.co_filename)
        functions.add((frame.f_code.co_filename, frame.f_code.co_firstlineno))
        caller = package(frame.f_back)
        crossings += caller is not None and caller != here

    sys.setprofile(count)
    try:
        call()
    finally:
        sys.setprofile(None)
    return len(files), len(functions), crossings


def program(*words: str) -> None:
    from clearhead.cli.main import main

    with contextlib.suppress(SystemExit):
        main(list(words))


def walks() -> dict[str, tuple[int, int, int]]:
    import clearhead as ch

    example = str(ROOT / "serve" / "example" / "translator")
    program("generate", example, "the dog")  # imports are no part of a walk
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder) / "r.tsv"
        rows.write_text("text\tlabel\n" + "".join(f"a film {i}\t{i % 2}\n" for i in range(60)))
        train = ("train", "classify", str(rows), "--train.steps=1", "--train.schedule.warmup=0")
        program(*train, "--out", f"{folder}/first")
        program("look", example, "the dog")
        return {
            "clearhead generate": walk(lambda: program("generate", example, SENTENCE)),
            "one training step": walk(lambda: program(*train, "--out", f"{folder}/second")),
            "ch.load": walk(lambda: ch.load(example)),
            "clearhead look": walk(lambda: program("look", example, SENTENCE)),
        }


if __name__ == "__main__":
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        found = walks()
    sys.stdout.write(f"{'':<20}{'files':>8}{'functions':>11}{'crossings':>11}\n")
    for name, figures in found.items():
        sys.stdout.write(f"{name:<20}{figures[0]:>8}{figures[1]:>11}{figures[2]:>11}\n")

"""One learner's file, examined: run in a process of its own, it writes what each check found as JSON.

python -m clearhead.learn.examine EXERCISE FILE REPORT
"""

from __future__ import annotations

import importlib.util
import json
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from .clinic import EXERCISES, find_exercise
from .language import Lang

MAX_OUTPUT_BYTES = 16 * 1024 * 1024  # bytes a learner's file may print or write


def main(name: str, file: str, report: str) -> None:
    exercise = find_exercise(name)
    found: dict[str, Any] = {"outcomes": [], "running": None}

    def save(**more: Any) -> None:
        found.update(more)
        Path(report).write_text(json.dumps(found), encoding="utf-8")

    checks = _module("check", Path(str(EXERCISES / name / "check.py")))
    try:
        user = _module("user", Path(file))
    except BaseException as error:  # a learner's file may do anything, SystemExit included
        save(error=_told(error, file))
        return
    outcomes: list[dict[str, Any]] = []
    for check in exercise.checks:
        save(running=check)  # if it never returns, the parent knows which check it was
        try:
            getattr(checks, check)(user)
        except BaseException as error:
            outcomes.append({"check": check, "passed": False, "detail": _told(error, file)})
        else:
            outcomes.append({"check": check, "passed": True})
        save(outcomes=outcomes)
    save(running=None)


def _module(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file; its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _told(error: BaseException, file: str) -> dict[Lang, str]:
    """A failed check with its message; anything else with its kind and the line of the learner's file.

    A check raises AssertionError((English, Chinese)); a single text stands for both.
    """
    given = error.args[0] if isinstance(error, AssertionError) and error.args else None
    if isinstance(given, tuple):
        en, zh = (" ".join(str(each).split()) for each in given)
        return {"en": en, "zh": zh}
    words = " ".join(str(error).split())
    if isinstance(error, AssertionError) and words:
        return {"en": words, "zh": words}
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
    summary = f"{type(error).__name__}: {words}"
    return (
        {"en": f"{summary} (line {line})", "zh": f"{summary}（第 {line} 行）"}
        if line
        else {"en": summary, "zh": summary}
    )


def _limit_files() -> None:
    """A loop that prints forever must not fill the disk."""
    try:
        import resource
    except ImportError:  # not on Windows
        return
    resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_OUTPUT_BYTES, MAX_OUTPUT_BYTES))


if __name__ == "__main__":
    _limit_files()
    main(*sys.argv[1:])

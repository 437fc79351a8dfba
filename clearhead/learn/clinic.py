"""The clinic: code to fix or to implement. An exercise in, a file to edit out; that file in, a verdict out.

An exercise is a folder of data: `exercise.yaml` (words in both languages), `broken.py`, `fixed.py` and
`check.py`. For `kind: implement`, `broken.py` is a skeleton that raises NotImplementedError. The learner's
file runs in a process of its own, with a time limit.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Literal

import yaml

from ..errors import InputError, nearest
from .language import Lang

EXERCISES = files("clearhead.learn") / "exercises"
ExerciseKind = Literal["implement", "fix"]
SHOWN = 2000  # characters of what the learner's file printed


@dataclass(frozen=True)
class Exercise:
    name: str
    order: int
    title: Mapping[Lang, str]
    story: Mapping[Lang, str]
    checks: Mapping[str, Mapping[Lang, str]]
    hints: Mapping[Lang, list[str]]
    why: Mapping[Lang, str]  # shown when it is solved
    kind: ExerciseKind = "fix"

    def code(self, which: str) -> str:
        return (EXERCISES / self.name / f"{which}.py").read_text(encoding="utf-8")


@dataclass(frozen=True)
class Outcome:
    check: str
    passed: bool
    detail: Mapping[Lang, str] = field(default_factory=dict)  # what was found, where it failed


@dataclass(frozen=True)
class Verdict:
    outcomes: tuple[Outcome, ...]
    error: Mapping[Lang, str] = field(default_factory=dict)  # the file could not be used at all: why
    printed: str = ""

    @property
    def solved(self) -> bool:
        return not self.error and all(outcome.passed for outcome in self.outcomes)


@lru_cache(1)
def exercises() -> dict[str, Exercise]:
    """All of them by name, in their order."""
    found = []
    for folder in EXERCISES.iterdir():
        if folder.is_dir() and folder.name[0] != "_":
            text = (folder / "exercise.yaml").read_text(encoding="utf-8")
            found.append(Exercise(name=folder.name, **yaml.safe_load(text)))
    return {exercise.name: exercise for exercise in sorted(found, key=lambda each: each.order)}


def find_exercise(name: str) -> Exercise:
    if name not in exercises():
        raise InputError(f"there is no exercise {name!r}; {nearest(name, exercises())}")
    return exercises()[name]


def write_exercise(exercise: Exercise, path: Path, lang: Lang) -> None:
    """Write the broken file, with its story on top. An existing file is never overwritten."""
    width = 48 if lang == "zh" else 96  # Chinese characters take two columns and have no spaces to break at
    head = [exercise.title[lang], "", *textwrap.wrap(exercise.story[lang], width), ""]
    head += [f"clearhead learn clinic check {exercise.name} {path}"]
    comment = "".join(f"# {line}".rstrip() + "\n" for line in head)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(comment + "\n" + exercise.code("broken"))
    except FileExistsError:
        raise InputError(f"{path} exists already; choose another name with --to") from None
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None


def check_exercise(exercise: Exercise, path: Path, limit: float = 30.0) -> Verdict:
    """Run the checks on the learner's file. What does not end within `limit` seconds is stopped."""
    if not path.is_file():
        raise InputError(
            f"there is no file {str(path)!r}; clearhead learn clinic start {exercise.name} creates one"
        )
    with tempfile.TemporaryDirectory() as folder:
        report, printed = Path(folder) / "report.json", Path(folder) / "printed"
        command = [sys.executable, "-m", "clearhead.learn.examine", exercise.name, str(path), str(report)]
        with printed.open("wb") as output:
            stopped = _run(command, output.fileno(), limit)
        printed_text = printed.read_text(encoding="utf-8", errors="replace")[-SHOWN:]
        found = json.loads(report.read_text(encoding="utf-8")) if report.is_file() else {}
    outcomes = [Outcome(**each) for each in found.get("outcomes", ())]
    error: Mapping[Lang, str] = found.get("error", {})
    if stopped:
        where = found.get("running")
        if where is None:
            error = {
                "en": f"the file did not load within {limit:g} s and was stopped; is there an endless loop?",
                "zh": f"文件在 {limit:g} 秒内没有加载完，已终止；是不是有死循环？",
            }
        else:
            detail: Mapping[Lang, str] = {
                "en": f"stopped after {limit:g} s: an endless loop?",
                "zh": f"运行 {limit:g} 秒后已终止：是不是有死循环？",
            }
            outcomes.append(Outcome(where, passed=False, detail=detail))
    elif not found:
        error = {
            "en": "the file ended the process before any check ran",
            "zh": "还没有开始检查，文件就结束了进程",
        }
    missing = [name for name in exercise.checks if name not in {outcome.check for outcome in outcomes}]
    outcomes += [
        Outcome(name, passed=False, detail={"en": "not reached", "zh": "没有执行到"}) for name in missing
    ]
    return Verdict(tuple(outcomes), error, printed_text)


def _run(command: list[str], output: int, limit: float) -> bool:
    """Whether it had to be stopped; everything it started is stopped with it."""
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
    )
    try:
        process.wait(limit)
    except subprocess.TimeoutExpired:
        return True
    finally:
        if process.poll() is None:
            _kill(process)
    return False


def _kill(process: subprocess.Popen[bytes]) -> None:
    if hasattr(os, "killpg"):
        os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.wait()

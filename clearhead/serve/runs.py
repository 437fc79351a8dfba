"""Runs started from the page: a recipe and settings in, a process of its own out. The page trains nothing.

So a run outlives the page and the studio, and everything about it is in its folder.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Literal

from ..errors import InputError, TrainError, one_line
from ..recipes import load_run
from ..train.commit import writing
from .shelf import Entry, Shelf
from .watch import worker

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,40}")
SETTING = re.compile(r"[a-z_]+(\.[a-z_0-9]+)+")
LOG = "train.log"  # what the process said, for when it ends before its first step
Order = Literal["pause", "go on", "save", "stop"]


class Runs:
    def __init__(self, shelf: Shelf) -> None:
        self.shelf = shelf
        self._started: dict[Path, subprocess.Popen[bytes]] = {}

    def start(self, recipe: str, name: str, settings: dict[str, str]) -> Entry:
        """The settings are checked here, so that what cannot run is said at once."""
        words = [f"{key}={value}" for key, value in settings.items() if value != ""]
        for key in settings:
            if not SETTING.fullmatch(key):
                raise InputError(one_line(f"{key!r} is not a setting; expected one such as train.steps"))
        load_run(recipe, words)
        if recipe.endswith((".yaml", ".yml")):
            raise InputError("name a recipe of the shelf; a file of your own is trained in the terminal")
        folder = self._free(name or recipe)
        with writing(folder):
            folder.mkdir(parents=True)
            self._spawn(folder, ["train", recipe, *words, "--out", str(folder)])
            return self._entry(folder)

    def resume(self, entry: Entry) -> None:
        if worker(entry.path) is None:
            self._spawn(entry.path, ["train", "--resume", str(entry.path)])

    def order(self, entry: Entry, order: Order) -> None:
        """Signals to whoever trains in the folder, also when it was started in a terminal."""
        pid = worker(entry.path)
        if order == "go on" and pid is None:
            self.resume(entry)
            return
        if pid is None:
            raise TrainError(f"nobody is training in {entry.name}; it may just have ended")
        if order == "pause":
            os.kill(pid, signal.SIGSTOP)
            return
        os.kill(pid, signal.SIGCONT)
        if order != "go on":
            os.kill(pid, signal.SIGTERM)  # it saves, then stops; resuming is exact
        if order == "save":
            threading.Thread(target=self._again, args=(entry,), daemon=True).start()

    def alive(self, entry: Entry) -> bool:
        """Whether a process that was started here still lives: it takes its lock only after a while."""
        process = self._started.get(entry.path)
        return process is not None and process.poll() is None

    def failure(self, entry: Entry) -> str:
        """The last line of a process that ended badly before it wrote anything; otherwise nothing."""
        process = self._started.get(entry.path)
        code = None if process is None else process.poll()
        if code in (None, 0, 3, 130):
            return ""
        lines = (entry.path / LOG).read_text(errors="replace").split("\n")
        return one_line(next((line for line in reversed(lines) if line.strip()), f"it ended with {code}"))

    def _again(self, entry: Entry) -> None:
        for _ in range(600):
            if worker(entry.path) is None:
                self.resume(entry)
                return
            threading.Event().wait(0.1)

    def _free(self, name: str) -> Path:
        """A folder of that name that is not there yet."""
        plain = re.sub(r"[^a-z0-9._-]+", "-", name.lower()).strip("-.")[:36]
        if not NAME.fullmatch(plain):
            raise InputError(one_line(f"{name!r} cannot name a run; use letters and digits"))
        for number in range(1, 1000):
            folder = self.shelf.runs / (plain if number == 1 else f"{plain}-{number}")
            if not folder.exists():
                return folder
        raise InputError(f"there are a thousand runs called {plain}; choose another name")

    def _entry(self, folder: Path) -> Entry:
        (folder / "metrics.jsonl").touch()  # from here on it is a run, if one of no steps yet
        return self.shelf.put(folder)

    def _spawn(self, folder: Path, words: list[str]) -> None:
        with (folder / LOG).open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "clearhead", *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.shelf.home,
                start_new_session=True,  # Ctrl-C for the studio is not one for its runs
            )
        self._started[folder] = process
        threading.Thread(target=process.wait, daemon=True).start()  # so that it leaves no zombie behind

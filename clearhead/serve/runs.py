"""Runs started from the page: a recipe and settings in, a separate `clearhead train` process out.

The process keeps running when the page or the studio is closed; its folder holds everything about it.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Literal

from ..errors import InputError, TrainError, one_line
from ..recipes import SETTINGS_FILE, load_run
from ..train import METRICS_FILE, SAVE_SIGNAL, disk_errors
from .registry import ModelEntry, ModelRegistry
from .run_status import handles_signal, training_process

RUN_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,40}")
SETTING_NAME = re.compile(r"[a-z_]+(\.[a-z_0-9]+)+")
PROCESS_LOG = "train.log"  # output of the process, to explain why it ended before its first step
Command = Literal["pause", "go on", "save", "stop"]


class RunManager:
    """Starts, resumes and signals training processes."""

    def __init__(self, registry: ModelRegistry) -> None:
        self.registry = registry
        self._started: dict[Path, subprocess.Popen[bytes]] = {}
        self._arguments: dict[Path, list[str]] = {}  # the command line each run was started with
        self._trained: set[Path] = set()  # folders whose process has held the lock

    def start(self, recipe: str, name: str, settings: dict[str, str]) -> ModelEntry:
        """Start a run. Settings are checked here first, so that errors are reported at once."""
        overrides = [f"{key}={value}" for key, value in settings.items() if value != ""]
        for key in settings:
            if not SETTING_NAME.fullmatch(key):
                raise InputError(one_line(f"{key!r} is not a setting; expected one such as train.steps"))
        load_run(recipe, overrides)
        if recipe.endswith((".yaml", ".yml")):
            raise InputError(
                "name one of the built-in recipes; a YAML file of your own is trained in the terminal"
            )
        folder = self._new_folder(name or recipe)
        self._arguments[folder] = ["train", recipe, *overrides, "--out", str(folder)]
        with disk_errors(folder):
            folder.mkdir(parents=True)
            self._spawn(folder, self._arguments[folder])
            (folder / METRICS_FILE).touch()  # makes it a run, without steps so far
            return self.registry.put(folder)

    def resume(self, entry: ModelEntry) -> None:
        """Resume a stopped run; one that ended before it wrote its settings is started again."""
        if training_process(entry.path) is not None or self.starting(entry):
            return
        ending = self._process(entry)
        if ending is not None:
            ending.wait(30)  # it has released its lock and is about to exit
        if (entry.path / SETTINGS_FILE).is_file():
            self._spawn(entry.path, ["train", "--resume", str(entry.path)])
        elif entry.path in self._arguments:
            self._spawn(entry.path, self._arguments[entry.path])
        else:
            raise TrainError(one_line(f"{entry.name} stopped before it wrote its settings; start a new run"))

    def order(self, entry: ModelEntry, order: Command) -> None:
        """Send a signal to the process that trains in the folder, even if it was started in a terminal."""
        pid = training_process(entry.path)
        if pid is None:
            self._order_without_lock(entry, order)
        elif order == "pause":
            os.kill(pid, signal.SIGSTOP)
        elif order == "go on":
            os.kill(pid, signal.SIGCONT)
        elif order == "save":
            self._save(entry, pid)
        else:
            os.kill(pid, signal.SIGCONT)
            os.kill(pid, signal.SIGTERM)  # it saves, then stops; resuming is exact

    def _order_without_lock(self, entry: ModelEntry, order: Command) -> None:
        """An order for a run that is starting or has ended."""
        process = self._process(entry)
        if order == "go on":
            self.resume(entry)
        elif process is None:
            raise TrainError(f"no process is training in {entry.name}; it may just have ended")
        elif order == "stop":
            process.terminate()  # before the first step there is nothing to save
            process.wait(30)
        else:
            raise TrainError(
                f"{entry.name} is still starting; it can be paused and saved from its first step"
            )

    def _save(self, entry: ModelEntry, pid: int) -> None:
        """Request a checkpoint after the next step; a paused run takes that step once it continues."""
        if SAVE_SIGNAL is None or not handles_signal(pid, SAVE_SIGNAL):
            raise TrainError(f"{entry.name} cannot save on request yet; try again after its first step")
        os.kill(pid, SAVE_SIGNAL)

    def starting(self, entry: ModelEntry) -> bool:
        """Whether a process that was started here has not reached its first step: it takes the lock only
        after a while. A process that has already held the lock is ending, not starting."""
        return self._process(entry) is not None and entry.path not in self._trained

    def failure(self, entry: ModelEntry) -> str:
        """The last output line of a process that failed, or "" if it did not."""
        process = self._started.get(entry.path)
        code = None if process is None else process.poll()
        if code is None or code in (0, 3, 130) or -code in (signal.SIGINT, signal.SIGTERM):  # stopped by hand
            return ""
        if code < 0:
            return f"the process was ended by {signal.Signals(-code).name}; SIGKILL often means out of memory"
        lines = (entry.path / PROCESS_LOG).read_text(errors="replace").split("\n")
        return one_line(
            next((line for line in reversed(lines) if line.strip()), f"the process exited with code {code}")
        )

    def _process(self, entry: ModelEntry) -> subprocess.Popen[bytes] | None:
        """The running process that was started here for this run, if any."""
        process = self._started.get(entry.path)
        return process if process is not None and process.poll() is None else None

    def _new_folder(self, name: str) -> Path:
        """A folder of that name, or with a number appended, that does not exist yet."""
        plain = re.sub(r"[^a-z0-9._-]+", "-", name.lower()).strip("-.")[:36]
        if not RUN_NAME.fullmatch(plain):
            raise InputError(one_line(f"{name!r} cannot name a run; use letters and digits"))
        for number in range(1, 1000):
            folder = self.registry.runs / (plain if number == 1 else f"{plain}-{number}")
            if not folder.exists():
                return folder
        raise InputError(f"there are a thousand runs called {plain}; choose another name")

    def _spawn(self, folder: Path, arguments: list[str]) -> None:
        with (folder / PROCESS_LOG).open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "clearhead", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.registry.home,
                start_new_session=True,  # Ctrl-C in the studio must not stop its runs
            )
        self._started[folder] = process
        self._trained.discard(folder)
        threading.Thread(target=self._watch, args=(folder, process), daemon=True).start()

    def _watch(self, folder: Path, process: subprocess.Popen[bytes]) -> None:
        """Record when a process takes its lock; then wait for it, so that it leaves no zombie."""
        while process.poll() is None and training_process(folder) != process.pid:
            time.sleep(0.1)
        if self._started.get(folder) is process:  # not a later process
            self._trained.add(folder)
        process.wait()

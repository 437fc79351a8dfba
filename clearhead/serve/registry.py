"""The model registry: folders, GGUF files and hub ids in, ids for the page out. Only it maps ids to paths."""

from __future__ import annotations

import hashlib
import re
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..bundle import Bundle, base_of_adapter, load
from ..errors import ClearheadError, InputError, LoadError, SpecError, one_line, reason
from ..families import of_type
from ..readfile import read_object
from ..recipes import SETTINGS_FILE
from ..store import is_adapter_folder, resolve
from ..train import METRICS_FILE, read_log

EXAMPLE = Path(__file__).parent / "example"  # a translator with 194 thousand parameters
MAX_OPEN_BUNDLES = 3  # in memory at once
MAX_ENTRIES = 200  # folders listed
GENERIC_NAMES = ("model", "final", "best", "checkpoint", "main")  # shown with their parent's name
CHECKPOINT_FOLDER = re.compile(r"checkpoint-(\d+)")
HUB_CACHE = re.compile(r"/models--([^/]+)/snapshots/[^/]+$")  # the cache of huggingface_hub
HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*(@[\w./-]+)?")
MAX_KERNEL_NUMBER = 65_536  # the largest number allowed in a typed attention kernel


class UnknownIdError(ClearheadError):
    """An id that is not registered: mistyped, or from before a restart of the server."""


@dataclass(frozen=True)
class ModelEntry:
    id: str
    path: Path

    @property
    def name(self) -> str:
        hub = HUB_CACHE.search(self.path.as_posix())
        if hub:
            return hub[1].replace("--", "/")
        match = CHECKPOINT_FOLDER.fullmatch(self.path.name)
        if match:
            return f"{self.path.parent.name} · {int(match[1])}"
        return (
            f"{self.path.parent.name}/{self.path.name}" if self.path.name in GENERIC_NAMES else self.path.name
        )

    @property
    def is_run(self) -> bool:
        return (self.path / METRICS_FILE).is_file() or (self.path / SETTINGS_FILE).is_file()

    @property
    def is_example(self) -> bool:
        return self.path.parent == EXAMPLE

    @property
    def is_model(self) -> bool:
        return self.is_gguf or self.is_adapter or (self.path / "config.json").is_file()

    @property
    def is_adapter(self) -> bool:
        return self.path.is_dir() and is_adapter_folder(self.path)

    @property
    def is_gguf(self) -> bool:
        return self.path.suffix == ".gguf" and self.path.is_file()

    def family(self) -> str | None:
        """The family that config.json names; None where there is no model yet."""
        try:
            path = base_of_adapter(self.path) if self.is_adapter else self.path
            if path.suffix == ".gguf":
                return "GGUF"
            return of_type(str(read_object(path / "config.json")["model_type"])).title
        except (LoadError, SpecError, KeyError):
            return None

    def checkpoints(self) -> list[tuple[int, Path]]:
        matches = [(CHECKPOINT_FOLDER.fullmatch(path.name), path) for path in self.path.glob("checkpoint-*")]
        return sorted((int(m[1]), path) for m, path in matches if m and ModelEntry("", path).is_model)


class ModelRegistry:
    """Models and runs that were found or opened. Bundles are loaded on first use and evicted by recency."""

    def __init__(self, paths: Iterable[str] = (), *, home: Path | None = None) -> None:
        self.home = (home or Path.cwd()).resolve()
        self._entries: OrderedDict[str, ModelEntry] = OrderedDict()
        self._bundles: OrderedDict[tuple[str, str | None], Bundle] = OrderedDict()
        self._lock = threading.Lock()
        for path in paths:
            self.put(path)
        self.scan()

    @property
    def runs(self) -> Path:
        """The folder of runs that are started from the page."""
        return self.home / "runs"

    def put(self, path: str | Path) -> ModelEntry:
        """Register what the user named: a model, or a run. Accepts what `clearhead.load` accepts."""
        try:
            resolved = self._resolve(str(path))
        except ClearheadError:
            raise
        except (OSError, RuntimeError, ValueError) as error:  # unknown ~user, NUL byte, name too long
            raise LoadError(one_line(f"{path} cannot be opened: {reason(error)}")) from None
        entry = self._entry(resolved)
        if not (entry.is_model or entry.is_run):
            raise LoadError(
                one_line(
                    f"{path} is neither a model nor a run: it has no config.json, adapter_config.json or "
                    f"metrics.jsonl"
                )
            )
        with self._lock:
            self._entries.setdefault(entry.id, entry)
        return self._entries[entry.id]

    def _resolve(self, name: str) -> Path:
        """Resolve a path as typed by the user; local paths win over hub ids."""
        path = Path(name).expanduser()
        path = path if path.is_absolute() else self.home / path
        if path.is_dir() or (path.suffix == ".gguf" and path.is_file()):
            return path.resolve()
        if path.is_file():
            raise LoadError(one_line(f"{name} is a file; type the path of a folder, or of a .gguf file"))
        owner = name.partition("/")[0]
        if HUB_ID.fullmatch(name) and not (self.home / owner).exists():
            return resolve(name).resolve()
        raise LoadError(
            one_line(
                f"there is no folder {name}; type the path of one with config.json, or of a .gguf file, or a "
                f"hub id such as org/name"
            )
        )

    def scan(self) -> None:
        """Register the content of ./runs and of the working folder, one level deep, and the example."""
        for root in (self.runs, self.home, EXAMPLE):
            for folder in sorted(root.iterdir()) if root.is_dir() else ():
                entry = self._entry(folder)
                if len(self._entries) < MAX_ENTRIES and (entry.is_model or entry.is_run):
                    with self._lock:
                        self._entries.setdefault(entry.id, entry)

    def entries(self) -> Iterator[ModelEntry]:
        with self._lock:
            return iter(list(self._entries.values()))

    def find(self, id: str) -> ModelEntry:
        with self._lock:
            registered = self._entries.get(id)
        if registered is not None:
            return registered
        for entry in self.entries():  # checkpoints of runs have ids, too
            for _, path in entry.checkpoints():
                if self._entry(path).id == id:
                    return self._entry(path)
        raise UnknownIdError(f"there is no model or run {one_line(id)!r}; choose one on the home screen")

    def checkpoints(self, entry: ModelEntry) -> list[dict[str, Any]]:
        """The id and step of each checkpoint of a run, as the page reads them."""
        return [{"id": self.id_of(path), "step": step} for step, path in entry.checkpoints()]

    def id_of(self, path: Path) -> str:
        return self._entry(path).id

    def bundle(self, id: str, kernel: str | None = None) -> Bundle:
        """The bundle of an id, with its attention kernel replaced if one is given."""
        entry, key = self.find(id), (id, kernel)
        with self._lock:
            if key in self._bundles:
                self._bundles.move_to_end(key)
                return self._bundles[key]
        bundle = _with_kernel(entry, kernel) if kernel else load(entry.path)
        with self._lock:
            self._bundles[key] = bundle
            while len(self._bundles) > MAX_OPEN_BUNDLES:
                self._bundles.popitem(last=False)
        return bundle

    def forget(self, id: str) -> None:
        """Drop the cached bundle of a run that has been rewritten; it is loaded again on next use."""
        with self._lock:
            for key in [key for key in self._bundles if key[0] == id]:
                del self._bundles[key]

    def _entry(self, path: Path) -> ModelEntry:
        digest = hashlib.sha256(str(path).encode()).hexdigest()[:6]
        name = (
            re.sub(r"[^a-z0-9]+", "-", ModelEntry("", path).name.split("/")[-1].lower()).strip("-")[:40]
            or "model"
        )
        return ModelEntry(f"{name}-{digest}", path)

    def where(self, entry: ModelEntry) -> str:
        """The folder as the user would type it."""
        path = entry.path
        return str(path.relative_to(self.home)) if path.is_relative_to(self.home) else str(path)


def _with_kernel(entry: ModelEntry, kernel: str) -> Bundle:
    """Load a model with a kernel typed by the user; one that is too large must not crash the studio."""
    if any(int(number) > MAX_KERNEL_NUMBER for number in re.findall(r"\d{1,20}", kernel)):
        raise InputError(one_line(f"{kernel} has a number above {MAX_KERNEL_NUMBER:,}; choose a smaller one"))
    try:
        return load(entry.path, edit={"Attention.kernel": kernel})
    except (MemoryError, RuntimeError, ValueError) as error:
        if isinstance(error, ClearheadError):
            raise
        raise InputError(one_line(f"{kernel} cannot be built here: {reason(error)}")) from None


def first_sample(entry: ModelEntry) -> str | None:
    """A text from the run's own data: the part before the arrow in its last samples."""
    try:
        records: list[dict[str, Any]] = read_log(entry.path)
    except (OSError, ValueError):
        return None
    for record in reversed(records):
        for sample in record.get("samples") or ():
            before = str(sample).split(" → ")[0].split(" … ")[0].strip()  # "…" marks the end of a prompt
            if before:
                return before
    return None

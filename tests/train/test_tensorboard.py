"""The log for TensorBoard, read back by TensorBoard's own reader."""

import builtins
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toy import Toy, toy_bundle

from clearhead.errors import MissingError
from clearhead.train import TensorBoardLog, Trainer, Training, read_log

needs_tensorboard = pytest.mark.skipif(
    importlib.util.find_spec("tensorboard") is None, reason="tensorboard is not installed"
)


def read_back(folder: Path) -> dict[str, list[tuple[int, float]]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def expected(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """The numbers of metrics.jsonl, in float32 as TensorBoard keeps them."""
    found: dict[str, list[tuple[int, float]]] = {}

    def numbers(record: dict[str, Any]) -> Iterator[tuple[str, float]]:
        if record.get("split") == "valid":
            yield from ((f"valid/{name}", value) for name, value in record["scores"].items())
            return
        yield from (
            (f"train/{name}", record[name]) for name in ("loss", "lr", "grad_norm", "targets", "tokens")
        )
        yield from ((f"speed/{name}", value) for name, value in record["speed"].items())

    for record in read_log(folder):
        for name, value in numbers(record):
            found.setdefault(name, []).append((record["step"], float(np.float32(value))))
    return found


def run(folder: Path, steps: int, task: Toy | None = None) -> None:
    log = TensorBoardLog(folder)
    training = Training(steps=steps, valid_every=2, save_every=2)
    try:
        Trainer(toy_bundle(), task or Toy(), training, folder, log=log).run()
    finally:
        log.close()


@needs_tensorboard
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_shows_what_the_log_says(tmp_path: Path) -> None:
    run(tmp_path, 5)
    assert read_back(tmp_path) == expected(tmp_path)
    assert {"train/loss", "valid/loss", "speed/input_tokens_per_second"} <= expected(tmp_path).keys()


@needs_tensorboard
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_steps_that_a_resumed_run_repeats_are_shown_once(tmp_path: Path) -> None:
    def fail(step: int, micro: int) -> None:
        if step == 4:
            raise KeyError("the machine")

    with pytest.raises(KeyError):
        run(tmp_path, 6, Toy(before=fail))
    run(tmp_path, 6)
    assert read_back(tmp_path) == expected(tmp_path)
    assert [step for step, _ in read_back(tmp_path)["train/loss"]] == [1, 2, 3, 4, 5, 6]


def test_a_missing_library_is_one_line_that_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if "tensorboard" in name and not name.startswith("clearhead"):
            raise ImportError(name)
        return whole(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(
        MissingError, match=r"a log for TensorBoard needs clearhead\[tensorboard\]: pip install"
    ):
        TensorBoardLog(tmp_path)
    assert list(tmp_path.iterdir()) == []

"""Settings of a run: short names, epochs, rows per batch, and the registry of tasks."""

from pathlib import Path

import pytest

from clearhead.errors import InputError
from clearhead.recipes import load_run, prepare
from clearhead.recipes.builders import BUILDERS
from clearhead.recipes.settings import TASKS


def test_every_task_has_a_builder_and_every_builder_a_task() -> None:
    assert set(BUILDERS) == set(TASKS)


def test_short_names_and_those_of_other_libraries_are_understood() -> None:
    words = [
        "--epochs",
        "2",
        "--lr=5e-5",
        "--batch-size",
        "16",
        "--max-length",
        "99",
        "--warmup_ratio",
        "0.06",
    ]
    run = load_run("classify", words)
    assert (run.data.epochs, run.data.batch_size, run.data.length) == (2, 16, 99)
    assert (run.train.lr, run.train.schedule.warmup) == (5e-5, 0.06)
    assert load_run("classify", ["--learning-rate", "1e-3"]).train.lr == 1e-3
    with pytest.raises(InputError, match="unknown option '--epoch'; did you mean 'epochs'"):
        load_run("classify", ["--epoch", "3"])


def test_a_fine_tuned_model_has_other_defaults_than_a_fresh_one() -> None:
    fresh, tuned = load_run("classify"), load_run("classify", fine_tune=True)
    assert fresh.train.lr == 5e-4 and fresh.data.epochs is None
    assert tuned.train.lr is None and tuned.data.epochs == 3
    own = load_run("classify", ["--lr", "1e-3", "--steps", "7"], fine_tune=True)
    assert (own.train.lr, own.train.steps, own.data.epochs) == (1e-3, 7, None)


def test_epochs_and_rows_decide_the_steps(tmp_path: Path) -> None:
    file = tmp_path / "rows.tsv"
    file.write_text("text\tlabel\n" + "".join(f"a film {i}\t{i % 2}\n" for i in range(50)))
    words = [
        f"data.source={file}",
        f"data.valid={file}",
        "--batch-size",
        "8",
        "--epochs",
        "3",
        "tokenizer.vocab=300",
    ]
    made = prepare(load_run("classify", words))
    assert made.run.train.steps == 3 * 7  # 50 rows in batches of at most 8
    assert max(len(made.task.batch(step, 0).labels) for step in range(1, 8)) == 8
    assert any("3 epochs of 7 steps: 21 steps" in note for note in made.notes)
    for wrong in ("--epochs=0", "--batch-size=0", "--epochs=often"):
        with pytest.raises(InputError, match=r"data\.(epochs|batch_size) is"):
            load_run("classify", [wrong])

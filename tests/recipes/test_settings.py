"""Settings of a run: short names, epochs, rows per batch, and the registry of tasks."""

from pathlib import Path

import pytest

from clearhead.cli.main import main
from clearhead.errors import InputError
from clearhead.families import FAMILIES, config_from_words
from clearhead.recipes import RECIPES, describe_settings, load_run, prepare
from clearhead.recipes.builders import BUILDERS
from clearhead.recipes.overrides import SYNONYMS
from clearhead.recipes.settings import TASKS
from clearhead.train import SGD, Adam, AdamW, LinearDecay


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


def test_every_setting_of_every_recipe_has_a_sentence() -> None:
    """The sentences are the comments behind the fields: a new field without one is red."""
    for recipe in RECIPES:
        settings = list(describe_settings(load_run(recipe)))
        assert [setting.name for setting in settings if not setting.sentence] == []
        names = {setting.name for setting in settings}
        assert {"data.batch_size", "train.lr", "train.freeze", "train.device", "model.width"} <= names


def test_every_short_name_is_a_setting() -> None:
    names = {setting.name for setting in describe_settings(load_run("classify"))}
    assert set(SYNONYMS.values()) <= names


def test_kinds_are_named_by_a_word_and_keep_what_fits() -> None:
    run = load_run(
        "translate", ["--optimizer", "adam", "--schedule", "linear", "--train.schedule.warmup", "7"]
    )
    assert run.train.optimizer == Adam() and run.train.schedule == LinearDecay(warmup=7)
    sgd = load_run("translate", ["--train.optimizer.kind", "SGD"]).train.optimizer  # its decay is left behind
    assert sgd == SGD()
    kept = load_run("gpt-chars", ["--optimizer=adam"]).train.optimizer
    assert kept == Adam(betas=(0.9, 0.99))
    with pytest.raises(InputError, match=r"train\.optimizer is 'adan'; did you mean 'adam'"):
        load_run("translate", ["--optimizer", "adan"])


def test_names_of_others_are_found_inside_a_section_too() -> None:
    words = ["--train.learning_rate", "1e-3", "--train.batch_size", "4", "--train.epochs", "2"]
    run = load_run("classify", words)
    assert (run.train.lr, run.data.batch_size, run.data.epochs) == (1e-3, 4, 2)


def test_a_map_may_be_written_as_text_and_freeze_more_than_once() -> None:
    run = load_run(
        "classify", ["--data.map", "text=review label=stars", "--freeze", "a.*", "--freeze", "b.*"]
    )
    assert run.data.map == {"text": "review", "label": "stars"}
    assert run.train.freeze == ("a.*", "b.*")


def test_another_family_takes_the_sizes_of_the_recipe_and_a_size_its_own() -> None:
    assert load_run("translate", ["--model.family", "t5"]).model["width"] == 256
    assert "activation_function" not in load_run("translate", ["--model.family", "t5"]).model
    assert load_run("classify", ["--model.family", "bert-base"]).model == {"family": "bert-base"}


def test_a_checkpoint_as_family_is_fine_tuned_as_from_is(tmp_path: Path) -> None:
    run = load_run("classify", ["--model.family", str(tmp_path)])
    assert run.model == {"family": str(tmp_path)} and run.train.lr is None and run.data.epochs == 3


def test_the_keys_of_a_family_win_over_words_and_what_follows_from_sizes_follows_them() -> None:
    gpt2, qwen3 = FAMILIES["gpt2"], FAMILIES["qwen3"]
    words = {"width": 128, "depth": 2, "heads": 4}
    assert config_from_words(gpt2, words)["n_inner"] == 512
    own = config_from_words(gpt2, {**words, "n_embd": 8})
    assert (own["n_embd"], own["n_inner"], own["n_layer"]) == (8, 32, 2)
    assert config_from_words(qwen3, {**words, "hidden_size": 64})["head_dim"] == 16
    assert config_from_words(gpt2, {"n_embd": 8}) == {"n_embd": 8}  # without words nothing is derived


def test_a_part_of_the_optimizer_needs_no_kind() -> None:
    assert load_run("classify", ["--weight-decay", "0.1"]).train.optimizer == AdamW(decay=0.1)
    assert load_run("lm", ["--weight_decay", "0.2"]).train.optimizer.decay == 0.2


@pytest.mark.parametrize(
    ("word", "instead"),
    [("--output_dir", "--out"), ("--model_name_or_path", "--from"), ("--bf16", "--precision")],
)
def test_options_of_others_name_ours(word: str, instead: str) -> None:
    with pytest.raises(InputError, match=f"here it is {instead}"):
        load_run("classify", [word, "x"])


def test_settings_of_a_new_model_are_refused_beside_a_checkpoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for option in ("--model.dropout", "--tokenizer.vocab", "--family"):
        with pytest.raises(SystemExit) as done:
            main(["train", "classify", "x.tsv", "--from", str(tmp_path), option, "3"])
        assert done.value.code == 2 and "is for a new model" in capsys.readouterr().err

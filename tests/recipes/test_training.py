"""`ch.train`: a model and rows in memory or files in; the trained copy and its scores out."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import trained

import clearhead as ch
from clearhead.errors import ClearheadError
from clearhead.text import Tokenizer, train_tokenizer
from clearhead.train import read_log

SIZES = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
ROWS = [
    {"text": f"{word} thing {i}", "label": label}
    for i in range(24)
    for word, label in (("red", "warm"), ("blue", "cold"))
]
QUICK = {"epochs": 2, "batch_size": 8, "train.schedule.warmup": 1}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> ch.Bundle:
    bundle = ch.build("bert", task="hidden", **SIZES, vocab_size=320)
    bundle.tokenizer = Tokenizer.read(trained.write(tmp_path_factory.mktemp("words"), "words"))
    return bundle


def test_rows_in_memory_train_a_copy_and_leave_the_model_as_it_is(base: ch.Bundle) -> None:
    before = {name: p.detach().clone() for name, p in base.model.named_parameters()}
    result = ch.train(base, ROWS, lr=3e-3, seed=1, **{**QUICK, "epochs": 12})
    assert all(torch.equal(p, before[name]) for name, p in base.model.named_parameters())
    assert result.labels == {0: "cold", 1: "warm"}
    assert result.scores["accuracy"] == 100 and not result.model.training
    assert result.predict("red thing 3").guesses[0].text == "warm"
    assert base.task == "hidden" and base.scores == {}


def test_the_same_seed_gives_the_same_weights_and_a_file_the_same_as_its_rows(
    base: ch.Bundle, tmp_path: Path
) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    ch.save(base, tmp_path / "base")
    one = ch.train(base, ROWS, recipe="classify", **QUICK)
    two = ch.train(str(tmp_path / "base"), str(file), **QUICK)
    three = ch.train(base, {"train": ROWS, "valid": ROWS[:8]}, seed=5, **QUICK)
    states = [bundle.model.state_dict() for bundle in (one, two, three)]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert not all(torch.equal(states[0][name], states[2][name]) for name in states[0])


def test_the_recipe_follows_the_rows(base: ch.Bundle) -> None:
    pairs = [{"sentence1": f"red {i}", "sentence2": f"blue thing {i}", "score": i / 7} for i in range(30)]
    scored = ch.train(base, pairs, **QUICK)
    assert scored.config["problem_type"] == "regression" and "spearman" in scored.scores
    vectors = ch.train(base, pairs, recipe="embed", **QUICK)
    assert vectors.task == "hidden" and vectors.embed(["red 1"]).shape == (1, 32)
    several = [{"text": row["text"], "labels": [row["label"], "thing"]} for row in ROWS]
    many = ch.train(base, several, **QUICK)
    assert many.config["problem_type"] == "multi_label_classification"
    assert set(many.labels.values()) == {"warm", "cold", "thing"}


def test_a_kept_run_is_resumed_and_logged(base: ch.Bundle, tmp_path: Path) -> None:
    records: list[dict[str, object]] = []
    ch.train(base, ROWS, out=tmp_path / "run", log=records.append, **QUICK)
    assert [record["step"] for record in read_log(tmp_path / "run")] == [r["step"] for r in records]
    again = ch.train(base, ROWS, out=tmp_path / "run", **{**QUICK, "epochs": 3})
    assert read_log(tmp_path / "run")[-1]["step"] > int(str(records[-1]["step"]))
    assert torch.equal(ch.load(tmp_path / "run").model.head.project.weight, again.model.head.project.weight)


@pytest.mark.parametrize(
    ("data", "settings", "message"),
    [
        ([], {}, "expected a list of dicts"),
        (["missing.tsv"], {}, "there is no file or folder"),
        ([{"text": "a"}], {"recipe": "classify"}, "classify needs label"),
        (ROWS, {"epoch": 3}, "did you mean 'epochs'"),
        (ROWS, {"recipe": "clasify"}, "did you mean 'classify'"),
        (ROWS, {"lr": "fast"}, r"train\.lr is 'fast'"),
        (ROWS[::2], {}, "1 kind of label; expected two or more"),
        (
            [{"text": f"a {i}", "score": "often"} for i in range(30)],
            {"recipe": "regress"},
            "regress needs score",
        ),
        (ROWS, {"device": "tpu"}, "device is 'tpu'"),
        (ROWS, {"freeze": "tower.nothing.*"}, "tower.nothing"),
        (
            ROWS,
            {"recipe": "translate", "map": {"src": "text", "tgt": "label"}},
            "translate needs an encoder and a",
        ),
    ],
)
def test_what_cannot_be_trained_is_one_line(
    base: ch.Bundle, data: object, settings: dict[str, object], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ClearheadError, match=message) as error:
        ch.train(base, data, out=tmp_path / "run", **settings)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "run" / "config.json").exists()


def test_splits_by_other_names_files_texts_and_numbers_of_numpy(base: ch.Bundle, tmp_path: Path) -> None:
    file = tmp_path / "dev.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in ROWS[:6]))
    records: list[dict[str, object]] = []
    numbers = [{"text": row["text"], "label": np.int64(row["label"] == "warm")} for row in ROWS]
    ch.train(base, {"train": ROWS, "validation": str(file)}, log=records.append, **QUICK)
    result = ch.train(base, numbers, **QUICK)
    assert set(result.labels.values()) == {"0", "1"}
    texts = [f"the red thing {i} is not blue" for i in range(30)]
    assert "loss" in ch.train(base, texts, recipe="mlm", **QUICK).scores
    with pytest.raises(ClearheadError, match="there is no split 'mine'"):
        ch.train(base, {"mine": ROWS})


def test_a_score_that_is_no_number_is_named_by_its_row(base: ch.Bundle) -> None:
    rows = [{"text": f"red thing {i}", "score": float(i)} for i in range(30)]
    for wrong in (float("nan"), "n/a", 1e39):
        with pytest.raises(ClearheadError, match=r"train row 4: score is .*; expected a number"):
            ch.train(base, [*rows[:3], {"text": "blue", "score": wrong}, *rows[3:]])


def test_the_tokenizer_of_the_model_stays_as_it_is_too(tmp_path: Path) -> None:
    words = train_tokenizer([f"the red thing {i}" for i in range(9)], "byte-bpe", vocab=300)
    base = ch.build("gpt2", n_embd=16, n_layer=1, n_head=2, n_positions=64, vocab_size=words.vocab)
    base.tokenizer, files = words, dict(words.files)
    rows = [{"prompt": f"say {i}", "completion": f"the red {i}"} for i in range(30)]
    result = ch.train(base, rows, recipe="sft", **QUICK)
    assert result.tokenizer is not None and result.tokenizer.chat_template is not None
    assert base.tokenizer.chat_template is None and base.tokenizer.files == files

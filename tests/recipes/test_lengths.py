"""Long texts and rare characters: what a run does with them, and that it says so."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

import clearhead as ch
from clearhead.cli.main import main
from clearhead.errors import InputError
from clearhead.recipes import load_run, prepare
from clearhead.tasks.text_to_text import TextToText
from clearhead.train import Trainer

STEPS = ["--train.steps=2", "--train.schedule.warmup=1"]
FEW = ["--model.d_model=16", "--model.encoder_ffn_dim=32", "--model.decoder_ffn_dim=32"]


@pytest.fixture
def reviews(tmp_path: Path) -> Path:
    path = tmp_path / "reviews.tsv"
    lines = [f"{('good ' if i % 2 else 'bad ') * 200}{i}\t{i % 2}\n" for i in range(40)]
    path.write_text("text\tlabel\n" + "".join(lines))
    return path


@pytest.fixture
def papers(tmp_path: Path) -> Path:
    path = tmp_path / "papers.jsonl"
    rows = [{"source": f"a long text number {i} " * 200, "target": f"text {i}"} for i in range(60)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert"])
def test_positions_follow_the_length_of_the_texts(family: str, reviews: Path) -> None:
    words = [f"data.source={reviews}", "data.length=200", *STEPS]
    if family == "distilbert":
        small = ["dim=16", "n_layers=1", "n_heads=2", "hidden_dim=32", "max_position_embeddings=64"]
        run = load_run("classify", words)
        model = dict(word.split("=") for word in small)
        run = type(run)(**{**vars(run), "model": {"family": family, **{k: int(v) for k, v in model.items()}}})
    else:
        run = load_run("classify", [*words, f"--model.family={family}"])
    prepared = prepare(run)
    assert any("positions raised to fit data.length 200" in note for note in prepared.notes)
    longest = max(len(row.ids) for row in prepared.task.splits["train"])  # type: ignore[attr-defined]
    assert longest == 200
    assert prepared.task.score(prepared.bundle.model, "valid")["loss"] > 0


def test_positions_are_raised_from_the_familys_own_number(tmp_path: Path) -> None:
    """Also where the settings do not name it; where an edit fixed it, the run is refused before a step."""
    path = tmp_path / "long.tsv"
    lines = [f"{('good ' if i % 2 else 'bad ') * 700}{i}\t{i % 2}\n" for i in range(40)]
    path.write_text("text\tlabel\n" + "".join(lines))
    run = load_run("classify", [f"data.source={path}", "data.length=600", *STEPS])
    small = {k: v for k, v in run.model.items() if k != "max_position_embeddings"}
    prepared = prepare(replace(run, model=small))
    assert prepared.bundle.spec.max_length == 600
    assert any(note.endswith("model.max_position_embeddings 600") for note in prepared.notes)
    fixed = {**small, "edit": {"Tower.positions": "Learned(length=64)"}}
    with pytest.raises(InputError, match=r"data\.length is 600, and the model has 64 positions"):
        prepare(replace(run, model=fixed))


def test_a_checkpoint_keeps_its_positions_and_longer_texts_are_cut(reviews: Path, tmp_path: Path) -> None:
    run = load_run("classify", [f"data.source={reviews}", "data.length=32", *STEPS])
    first = prepare(run)
    Trainer(first.bundle, first.task, first.run.train, tmp_path / "run").run()
    run = load_run("classify", [f"data.source={reviews}", "data.length=500", *STEPS])
    again = prepare(type(run)(**{**vars(run), "model": {"family": str(tmp_path / "run")}}))
    reach = again.bundle.config["max_position_embeddings"]
    assert again.run.data.length == reach < 500
    assert f"data.length is 500; the model has {reach} positions: taken as {reach}" in again.notes


def test_long_sources_are_cut_and_none_is_left_out(papers: Path, tmp_path: Path) -> None:
    prepared = prepare(load_run("summarize", [f"data.source={papers}", *FEW, *STEPS]))
    split = prepared.task.splits["train"]  # type: ignore[attr-defined]
    assert len(split) == len(prepared.rows.splits["train"])
    assert {len(pair.source) for pair in split} == {prepared.run.data.length}
    assert not any("left out" in note for note in prepared.notes)
    assert f"train: {len(split)} of {len(split)} sources cut to 256 tokens" in prepared.notes
    Trainer(prepared.bundle, prepared.task, prepared.run.train, tmp_path / "run").run()
    answer = ch.load(tmp_path / "run").answer("a long text " * 500, max_new_tokens=2)
    assert not isinstance(answer, list) and any("the encoder reads the first" in n for n in answer.notes)


def test_no_character_is_dropped_without_a_word(tmp_path: Path) -> None:
    path = tmp_path / "poems.jsonl"
    letters = [chr(0x4E00 + i) for i in range(2_500)]
    rows = ["".join(letters[i : i + 100]) for i in range(0, 2_500, 100)] * 4
    path.write_text("".join(json.dumps({"text": row}) + "\n" for row in rows))
    words = [f"data.source={path}", f"data.valid={path}", *STEPS]
    whole = prepare(load_run("gpt-chars", words))
    assert whole.bundle.tokenizer is not None and whole.bundle.tokenizer.vocab > 2_300
    assert not any("vocabulary" in note for note in whole.notes)
    cut = prepare(load_run("gpt-chars", [*words, "tokenizer.vocab=1000"]))
    note = next(note for note in cut.notes if "vocabulary" in note)
    total = sum(len(row["text"]) for row in cut.rows.splits["train"])
    assert f"of {total:,} characters" in note and "raise tokenizer.vocab" in note
    tokenizer = cut.bundle.tokenizer
    assert tokenizer is not None and tokenizer.unk is not None
    ids = [i for row in cut.rows.splits["train"] for i in tokenizer.encode(row["text"]).ids]
    assert note.startswith(f"{ids.count(tokenizer.unk.id):,} of ")


def test_columns_are_named_with_the_option_that_the_error_advises(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rows.jsonl"
    rows = [{"alpha": f"text number {i}", "beta": f"other {i}"} for i in range(60)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ["train", "translate", str(path), "--dry-run", *FEW, *STEPS]

    def run(*more: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as done:
            main([*words, *more])
        return int(done.value.code or 0), capsys.readouterr().err

    code, err = run()
    assert code == 2 and "--map" in err
    assert run("--map", "src=alpha", "tgt=beta")[0] == 0
    code, err = run("--map", "src=alfa", "tgt=beta")
    assert code == 2 and "did you mean 'alpha'" in err
    code, err = run("--map", "alpha")
    assert code == 2 and "role=column" in err


def test_scores_compare_with_the_text_as_it_was_written(tmp_path: Path) -> None:
    """A reference with a character outside the vocabulary is not the same text without it."""
    path, held = tmp_path / "pairs.tsv", tmp_path / "held.tsv"
    path.write_text("src\ttgt\n" + "".join(f"tea {i}\t我喜欢茶{i}\n" for i in range(40)))
    held.write_text("src\ttgt\n" + "tea 1\t我们喜欢茶1\n")
    words = [f"data.source={path}", f"data.valid={held}", "data.language=zh", *STEPS]
    prepared = prepare(load_run("translate", [*words, *FEW]))
    task = prepared.task
    assert isinstance(task, TextToText)
    task.decode = lambda model, source, mask, limit: [list(task.splits["valid"][0].target)]
    scores = task.score(prepared.bundle.model, "valid")
    assert scores["exact"] == 0 and scores["bleu"] < 100

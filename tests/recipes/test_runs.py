"""Runs from a recipe and a file to a model: prepared, trained, scored, resumed; and what is refused."""

import json
import shlex
from pathlib import Path

import pytest
import torch
from quick_runs import quick

import clearhead as ch
from clearhead.certify import certify
from clearhead.cli.main import main
from clearhead.errors import ClearheadError, InputError
from clearhead.nn.encoder_decoder import EncoderDecoderModel
from clearhead.recipes import RECIPES, load_run, prepare
from clearhead.recipes.settings import overrides, with_overrides


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("rows")
    words = ["red", "green", "blue", "old", "new", "cat", "dog", "apple"]
    texts = [f"the {words[i % 5]} {words[5 + i % 3]} number {i}" for i in range(80)]
    made = {
        "label.tsv": "\n".join(f"{t}\t{i % 3}" for i, t in enumerate(texts)),
        "pairs.tsv": "\n".join(f"{t}\t{t.upper()}" for t in texts),
        "texts.jsonl": "\n".join(json.dumps({"text": t}) for t in texts),
        "tags.jsonl": "\n".join(
            json.dumps({"tokens": t.split(), "tags": ["O", "O", "B-THING", "O", "O"]}) for t in texts
        ),
        "prose.txt": "\n".join(texts),
        "asked.jsonl": "\n".join(
            json.dumps(
                {"question": f"which colour has {i}?", "context": t, "answers": [{"text": t.split()[1]}]}
            )
            for i, t in enumerate(texts)
        ),
        "scores.tsv": "text\tsentence2\tscore\n"
        + "\n".join(f"{t}\t{texts[i - 1]}\t{i % 7 / 2}" for i, t in enumerate(texts)),
        "choices.jsonl": "\n".join(
            json.dumps({"question": t, "choices": ["red", "green", "blue"], "answer": i % 3})
            for i, t in enumerate(texts)
        ),
        "prompts.jsonl": "\n".join(json.dumps({"prompt": t, "completion": t.upper()}) for t in texts),
    }
    for name, text in made.items():
        (folder / name).write_text(text + "\n", encoding="utf-8")
    return {name.split(".")[0]: folder / name for name in made}


SOURCES = {"classify": "label", "tag": "tags", "summarize": "pairs", "denoise": "texts", "bert-mini": "prose",
           "gpt-chars": "prose", "answer": "asked", "translate-en-zh": "pairs",
           "translate": "pairs", "regress": "scores", "embed": "scores", "choose": "choices", "lm": "texts",
           "mlm": "texts", "sft": "prompts"}  # fmt: skip


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe_trains_scores_and_saves_on_a_users_file(
    recipe: str, files: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = quick(recipe, f"data.source={files[SOURCES[recipe]]}")
    (tmp_path / "my.yaml").write_text(run.to_yaml(), encoding="utf-8")
    with pytest.raises(SystemExit) as done:
        main(["train", str(tmp_path / "my.yaml"), "--out", str(tmp_path / "run"), "--json"])
    said = capsys.readouterr()
    assert done.value.code == 0, said.err
    assert json.loads(said.out)["status"] == "done"
    bundle = ch.load(tmp_path / "run")  # a Hugging Face folder
    assert bundle.tokenizer is not None and bundle.tokenizer.encode("the red cat").ids
    with pytest.raises(SystemExit) as done:
        main(["eval", str(tmp_path / "run"), "--json"])
    said = capsys.readouterr()
    assert done.value.code == 0, said.err
    scores = json.loads(said.out)["scores"]
    logged = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    last = [row for row in logged if "valid" in json.dumps(row)][-1]
    if recipe in ("gpt-chars", "translate-en-zh", "summarize"):  # what speaks shows what it says
        assert last["samples"] and all(last["samples"])
    assert abs(scores["loss"] - _found(last, "loss")) < 1e-6
    proof = certify(tmp_path / "run")
    assert proof.passed and proof.reference.startswith("transformers "), [
        r for r in proof.rows if not r.passed
    ]


def _found(row: dict, name: str) -> float:  # type: ignore[type-arg]
    scores = row.get("scores") or row.get("valid") or row
    return float(scores[name])


def test_a_validation_stays_within_the_positions(files: dict[str, Path]) -> None:
    """A model that has not learned to end goes on, for longer than it has positions."""
    source = f"data.source={files['pairs']}"
    prepared = prepare(quick("translate", source, "model.max_position_embeddings=12", "data.length=12"))
    scores = prepared.task.score(prepared.bundle.model.eval(), "valid")
    assert scores["bleu"] >= 0 and prepared.task.samples(prepared.bundle.model)


def test_the_demo_task_is_learnable(tmp_path: Path) -> None:
    """A glance at the demo: a few dozen steps bring the loss down to a fraction."""
    prepared = prepare(with_overrides(load_run("translate-en-zh"), ["data.tokens=600"]))
    model, task = prepared.bundle.model, prepared.task
    assert isinstance(model, EncoderDecoderModel)
    before = float(task.loss(model, task.batch(1, 0)).detach()) / task.batch(1, 0).targets
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for step in range(1, 41):
        batch = task.batch(step, 0)
        optimizer.zero_grad()
        (task.loss(model, batch) / batch.targets).backward()
        optimizer.step()
    after = float(task.loss(model, task.batch(1, 0)).detach()) / task.batch(1, 0).targets
    assert after < 0.6 * before


def test_settings_come_from_recipe_file_and_words_and_go_back_to_yaml(tmp_path: Path) -> None:
    run = load_run("translate-en-zh", ["--train.lr", "3e-4", "train.steps=1e2", "--model.dropout=0.2"])
    assert (run.train.lr, run.train.steps, run.model["dropout"]) == (3e-4, 100, 0.2)
    (tmp_path / "again.yaml").write_text(run.to_yaml(), encoding="utf-8")
    assert load_run(str(tmp_path / "again.yaml")) == run
    assert overrides(["--a.b", "text", "c.d=null"]) == {"a.b": "text", "c.d": None}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["translate-en-zz"], "did you mean 'translate-en-zh'?"),
        (["translate-en-zh", "--train.stepz", "3"], "train has no setting 'stepz'; did you mean 'steps'?"),
        (["translate-en-zh", "--data.sorce", "x"], "did you mean 'source'?"),
        (["translate-en-zh", "--trian.steps", "3"], "did you mean 'train'?"),
        (["translate-en-zh", "--train.steps", "many"], "train.steps is 'many', expected a whole number"),
        (["translate-en-zh", "--stepz", "3"], "or a dotted setting"),
        (["translate-en-zh", "--model.d_modl", "3"], "did you mean 'd_model'?"),
        (["translate-en-zh", "./nowhere.tsv"], "nowhere.tsv"),
        (["classify"], "needs your own file"),
        (["--resume", "./nowhere"], "is not a run"),
        ([], "name a recipe"),
    ],
)
def test_what_cannot_be_run_is_one_line_and_exit_2(
    words: list[str], expected: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with pytest.raises(SystemExit) as done:
        main(["train", *words, "--out", str(tmp_path / "run")])
    said = capsys.readouterr()
    assert done.value.code == 2 and expected in said.err, said.err
    assert not (tmp_path / "run").exists()


def test_a_language_model_learns_completions_only(files: dict[str, Path]) -> None:
    prepared = prepare(quick("gpt-chars", f"data.source={files['pairs']}"))
    batch = prepared.task.batch(1, 0)
    assert 0 < batch.targets < int((batch.document_BT >= 0).sum()) * 0.7


def test_bad_rows_are_named(tmp_path: Path, files: dict[str, Path]) -> None:
    unseen = tmp_path / "valid.tsv"
    unseen.write_text("a text\t9\n", encoding="utf-8")
    with pytest.raises(ClearheadError, match="has the label '9', which no training row has"):
        prepare(quick("classify", f"data.source={files['label']}", f"data.valid={unseen}"))
    with pytest.raises(ClearheadError, match="and tag needs tags"):
        prepare(quick("tag", f"data.source={files['pairs']}"))
    (tmp_path / "empty.tsv").write_text("")
    with pytest.raises(ClearheadError, match="empty"):
        prepare(quick("classify", f"data.source={tmp_path / 'empty.tsv'}"))


def test_listing_and_printing(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["train", "--list"])
    out = capsys.readouterr().out
    assert all(name in out for name in RECIPES)
    with pytest.raises(SystemExit):
        main(["train", "gpt-chars", "--print-config", "--seed", "5"])
    assert "seed: 5" in capsys.readouterr().out


def test_copies_change_what_is_shown_and_nothing_else(files: dict[str, Path]) -> None:
    source = f"data.source={files['label']}"
    plain = prepare(quick("classify", source))
    words = ["data.augment.delete=0.3", "data.augment.copies=2", "data.augment.swap=0.2"]
    more = prepare(quick("classify", source, *words))
    assert more.rows.splits["valid"] == plain.rows.splits["valid"]
    kept, new = plain.rows.splits["train"], more.rows.splits["train"]
    assert new[: len(kept)] == kept and len(kept) < len(new) <= 3 * len(kept)
    assert any("changed copies" in note for note in more.notes)
    for row in new[len(kept) :]:
        assert row["text"].strip() and row not in kept
        assert any(set(row["text"].split()) <= set(k["text"].split()) and k["label"] == row["label"]
                   for k in kept)  # fmt: skip
    assert prepare(quick("classify", source, *words)).rows.splits["train"] == new


@pytest.mark.parametrize(
    ("recipe", "source", "words", "said"),
    [
        ("tag", "tags", ["data.augment.delete=0.1"], "rows of tags cannot be augmented"),
        ("classify", "label", ["data.augment.remove=0.1"], "data.augment has no setting 'remove'"),
        ("classify", "label", ["data.augment.delete=2"], "delete is 2"),
        ("classify", "label", ["data.augment.copies=0"], "copies is 0"),
        ("translate-en-zh", "pairs", ["data.back.model=x"], "data.back needs both"),
        ("bert-mini", "prose", ["data.masking=fixed"], "data.masking is 'fixed'"),
    ],
)
def test_augmentation_is_refused_in_one_line(
    recipe: str, source: str, words: list[str], said: str, files: dict[str, Path]
) -> None:
    with pytest.raises(InputError, match=said):
        prepare(quick(recipe, f"data.source={files[source]}", *words))


def test_a_swapped_model_heals_from_a_run(files: dict[str, Path], tmp_path: Path) -> None:
    """`--from` a run and `--set`: the same recipe and data go on with another kernel, and that is kept."""
    tiny = [
        "--model.n_embd",
        "16",
        "--model.n_layer",
        "1",
        "--train.steps",
        "2",
        "--train.schedule.warmup",
        "1",
    ]
    first, healed = str(tmp_path / "first"), str(tmp_path / "healed")
    swap = ["--set", "Attention.kernel=Performer(features=8)"]
    for words in (
        ["train", "gpt-chars", str(files["prose"]), "--out", first, *tiny],
        ["train", "--from", first, *swap, "--out", healed, "--train.steps", "3", "--train.save_every", "2"],
        ["eval", first, *swap],
    ):
        with pytest.raises(SystemExit) as done:
            main(words)
        assert done.value.code == 0
    before, after = ch.load(first), ch.load(healed)
    assert after.edits == {"Attention.kernel": "Performer(features=8)"} and before.edits == {}
    assert set(before.model.state_dict()) == set(after.model.state_dict())
    assert prepare(load_run(f"{healed}/settings.yaml")).bundle.spec == after.spec
    swapped = ch.load(first, edit=after.edits)
    ids = torch.tensor([before.encode("the red cat")])
    assert not torch.equal(swapped.model(ids), after.model(ids))  # it has learned


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--from", "nowhere"], "name a recipe: answer"),
        (["classify", "x.tsv", "--from", "bert"], "'bert' is a family: --model.family bert"),
        (["--resume", "somewhere", "--set", "Attention.kernel=Linear"], "leave out --from and --set"),
        (["gpt-chars", "--set", "Attention.kernel=Liner"], "did you mean 'Linear'?"),
        (["gpt-chars", "--set", "Attention.kernel=Nystrom"], "early words would see late ones"),
    ],
)
def test_swaps_that_cannot_be_are_one_line(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as done:
        main(["train", *words])
    lines = capsys.readouterr().err.splitlines()
    assert done.value.code == 2 and said in lines[-1]


def test_back_translations_are_learned_beside_the_pairs(files: dict[str, Path], tmp_path: Path) -> None:
    """The reverse model says something to every text; those are the new sources, the texts the targets."""
    reverse = prepare(quick("translate-en-zh", f"data.source={files['pairs']}")).bundle
    with torch.no_grad():
        reverse.model.head.bias[7] = 50.0  # whatever it is asked, it says the seventh token
    reverse.generation["max_length"] = 4
    ch.save(reverse, tmp_path / "reverse")
    (tmp_path / "more.txt").write_text("only target one\nonly target two\n", encoding="utf-8")
    words = [f"data.back.model={tmp_path / 'reverse'}", f"data.back.texts={tmp_path / 'more.txt'}"]
    plain = prepare(quick("translate-en-zh", f"data.source={files['pairs']}"))
    more = prepare(quick("translate-en-zh", f"data.source={files['pairs']}", *words))
    new = more.rows.splits["train"][len(plain.rows.splits["train"]) :]
    assert [row["tgt"] for row in new] == ["only target one", "only target two"]
    assert all(row["src"] == reverse.generate(row["tgt"]) and row["src"].strip() for row in new)
    assert "more.txt" in " ".join(more.rows.hashes)


def test_a_run_that_ends_early_says_why_and_what_was_saved(
    files: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", "classify", str(files["label"]), "--out", str(tmp_path / "run"), "--train.lr=1e-9"]
    words += ["--train.steps=40", "--train.valid_every=2", "--train.patience=2", "--train.schedule.warmup=1"]
    with pytest.raises(SystemExit) as done:
        main(words)
    said = capsys.readouterr()
    assert (done.value.code or 0) == 0
    err = " ".join(said.err.split())
    assert "of 40: 2 validations in a row without a better score (--early-stop)" in err
    assert "the best on the validation rows)" in " ".join(said.out.split())
    assert f'predict {tmp_path / "run"} "a text"' in said.out


def test_commands_to_copy_are_quoted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "my data"
    folder.mkdir()
    file = folder / "rows.tsv"
    file.write_text("text\tlabel\n" + "".join(f"a film {i}\t{i % 2}\n" for i in range(60)))
    with pytest.raises(SystemExit):
        main(["train", "classify", str(file), "--out", str(folder / "run"), "--train.steps=2",
              "--train.schedule.warmup=1"])  # fmt: skip
    commands = [shlex.split(line) for line in capsys.readouterr().out.splitlines()[1:]]
    assert commands[0][-3:] == ["predict", str(folder / "run"), "a text"]
    assert [words[-2:] for words in commands[1:]] == [
        [str(folder / "run"), "OTHER_FILE"],
        [str(folder / "run"), "a text"],
        ["studio", str(folder / "run")],
    ]

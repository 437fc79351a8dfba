"""Runs from a recipe and a file to a model: prepared, trained, scored, resumed; and what is refused."""

import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import trained
import transformers
from tolerance import assert_close

import clearhead as ch
from clearhead.certify import certify
from clearhead.cli.main import main
from clearhead.errors import ClearheadError, InputError
from clearhead.nn.encoder_decoder import EncoderDecoderModel
from clearhead.recipes import RECIPES, load_run, prepare
from clearhead.recipes.settings import RunConfig, overrides, with_overrides
from clearhead.text import Tokenizer

TINY = {
    "transformer": ["model.d_model=16", "model.encoder_ffn_dim=24", "model.decoder_ffn_dim=24"],
    "mbart": ["model.d_model=16", "model.encoder_ffn_dim=24", "model.decoder_ffn_dim=24"],
    "bart": ["model.d_model=16", "model.encoder_ffn_dim=24", "model.decoder_ffn_dim=24"],
    "gpt2": ["model.n_embd=16", "model.n_layer=2"],
    "bert": ["model.hidden_size=16", "model.intermediate_size=24", "model.num_hidden_layers=1"],
}
QUICK = ["train.steps=3", "train.valid_every=3", "train.save_every=2", "tokenizer.vocab=300"]


def quick(recipe: str, *words: str) -> RunConfig:
    """Three steps of a tiny model; they leave no room for the warm-up that every recipe has."""
    run = load_run(recipe)
    return with_overrides(run, [*TINY[str(run.model["family"])], *QUICK, "train.schedule.warmup=1", *words])


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
    }
    for name, text in made.items():
        (folder / name).write_text(text + "\n", encoding="utf-8")
    return {name.split(".")[0]: folder / name for name in made}


SOURCES = {"classify": "label", "tag": "tags", "summarize": "pairs", "denoise": "texts", "bert-mini": "prose",
           "gpt-chars": "prose", "answer": "asked", "translate-en-zh": "pairs",
           "translate": "pairs"}  # fmt: skip


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
        (["translate-en-zh", "--train.steps", "many"], "Training.steps is 'many', expected a whole number"),
        (["translate-en-zh", "--stepz", "3"], "settings are dotted"),
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


def classifier(folder: Path, names: list[str]) -> Path:
    """A trained checkpoint whose labels have these names, in this order."""
    words = [f"pos thing {i}" if i % 2 else f"neg thing {i}" for i in range(40)]
    file = folder / "first.tsv"
    file.write_text("\n".join(f"{w}\t{i % 2}" for i, w in enumerate(words)) + "\n")
    prepared = prepare(quick("classify", f"data.source={file}", f"data.valid={file}"))
    prepared.bundle.config["id2label"] = {str(i): name for i, name in enumerate(names)}
    ch.save(prepared.bundle, folder / "base")
    return folder / "base"


def more(folder: Path, base: Path, labels: list[str]) -> RunConfig:
    file = folder / "more.tsv"
    texts = [f"{labels[i % len(labels)]} thing {i}\t{labels[i % len(labels)]}" for i in range(40)]
    file.write_text("\n".join(texts) + "\n")
    words = [*QUICK, "train.schedule.warmup=1", f"data.source={file}", f"data.valid={file}"]
    run = with_overrides(load_run("classify"), words)
    return replace(run, model={"family": str(base)})


def test_labels_keep_the_numbers_a_checkpoint_gave_them(tmp_path: Path) -> None:
    """The file's names in alphabetical order are other numbers: a model trained so says the opposite."""
    base = classifier(tmp_path, ["pos", "neg"])
    prepared = prepare(more(tmp_path, base, ["neg", "pos"]))
    batch = prepared.task.batch(1, 0)
    assert prepared.bundle.tokenizer is not None
    for ids, label in zip(batch.ids_BT.tolist(), batch.labels.tolist(), strict=True):
        written = prepared.bundle.tokenizer.decode(ids)
        assert ("pos" in written) == (label == 0), (written, label)
    other = prepare(more(tmp_path, base, ["neg", "so-so"]))
    assert other.bundle.labels == {0: "neg", 1: "so-so"}
    assert any("new head for neg, so-so" in note for note in other.notes)


def test_labels_without_names_get_those_of_the_file(tmp_path: Path) -> None:
    base = classifier(tmp_path, ["LABEL_0", "LABEL_1"])
    prepared = prepare(more(tmp_path, base, ["neg", "pos"]))
    assert prepared.bundle.config["id2label"] == {"0": "neg", "1": "pos"}
    three = prepare(more(tmp_path, base, ["neg", "pos", "mixed"]))
    assert three.bundle.labels == {0: "mixed", 1: "neg", 2: "pos"}


TAGS = [{"tokens": ["see", "Rome"], "tags": ["O", "B-X"]}, {"tokens": ["Ann", "reads"], "tags": ["B-X", "O"]}]
QUESTION = {
    "question": "what is red",
    "context": "the rose is red",
    "answers": {"text": ["rose"], "answer_start": [4]},
}
ROWS = {
    "classify": [{"text": f"{x} thing {i}", "label": x} for i in range(8) for x in ("good", "bad", "so-so")],
    "tag": TAGS,
    "answer": [QUESTION],
}
BASES = ["hidden", "tokens", "pretrain", "labels", "tags", "span"]


@pytest.mark.parametrize("recipe", ROWS)
@pytest.mark.parametrize("head", BASES)
def test_any_checkpoint_can_be_fine_tuned_to_any_task(head: str, recipe: str, tmp_path: Path) -> None:
    """Trained, saved, read by transformers with the names of the file, predicted and evaluated by us."""
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    labels = {"0": "x", "1": "y", "2": "z", "3": "w"}
    named = {"id2label": labels} if head in ("labels", "tags") else {}
    base = ch.build("bert", task=head, **sizes, vocab_size=320, **named)
    base.tokenizer = Tokenizer.read(trained.write(tmp_path / "words", "words"))
    ch.save(base, tmp_path / "base")
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in ROWS[recipe] * 12))
    words = ["train", recipe, str(file), "--from", str(tmp_path / "base"), "--out", str(tmp_path / "out")]
    run(*words, *(f"--{word}" for word in QUICK), "--train.schedule.warmup=1", f"--data.valid={file}")
    again = ch.load(tmp_path / "out")
    kind = getattr(transformers, again.config["architectures"][0])
    theirs = kind.from_pretrained(tmp_path / "out").eval()
    ids = torch.randint(5, 300, (2, 9), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        found = theirs(ids)
        assert_close(again.model(ids), torch.stack(tuple(found[:2]), -1) if recipe == "answer" else found[0])
    if recipe != "answer":
        expected = ["bad", "good", "so-so"] if recipe == "classify" else ["B-X", "O"]
        assert list(theirs.config.id2label.values()) == list(again.labels.values()) == expected
    context = ["--context", "the rose is red"] if recipe == "answer" else []
    run("predict", str(tmp_path / "out"), "a good thing", *context)
    run("eval", str(tmp_path / "out"))


def run(*words: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    assert ended.value.code == 0


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
    assert "of 40: 2 validations in a row without a better score (train.patience)" in err
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
    out = " ".join(capsys.readouterr().out.split())
    words = shlex.split(out.partition("use ")[2])
    assert words[-3:] == ["predict", str(folder / "run"), "a text"]


def test_two_files_in_a_row_and_a_run_that_is_used_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.en").write_text("".join(f"dog number {i} runs\n" for i in range(60)))
    (tmp_path / "b.de").write_text("".join(f"Hund Nummer {i} rennt\n" for i in range(60)))
    monkeypatch.chdir(tmp_path)
    small = ["--model.d_model=16", "--model.encoder_ffn_dim=24", "--model.decoder_ffn_dim=24"]
    run("train", "translate", "a.en", "b.de", "--steps", "2", *small, "--out", "run")
    kept = load_run(str(tmp_path / "run" / "settings.yaml"))
    assert kept.data.source == [str(tmp_path / "a.en"), str(tmp_path / "b.de")]
    monkeypatch.chdir("/")
    run("eval", str(tmp_path / "run"))
    run("train", "--resume", str(tmp_path / "run"))

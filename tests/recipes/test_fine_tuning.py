"""Fine-tuning from any checkpoint: the head of the task, label names and their order, use from anywhere."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import trained
import transformers
from quick_runs import QUICK, quick
from sentence_transformers import SentenceTransformer
from tolerance import assert_close

import clearhead as ch
from clearhead.cli.main import main
from clearhead.recipes import load_run, prepare
from clearhead.recipes.settings import RunConfig, with_overrides
from clearhead.text import Tokenizer, train_tokenizer


def run(*words: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    assert ended.value.code == 0


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
    quick_words = [f"--{word}" for word in QUICK if not word.startswith("tokenizer.")]
    run(*words, *quick_words, "--train.schedule.warmup=1", f"--data.valid={file}")
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


def test_a_fine_tuned_run_is_resumed_from_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = classifier(tmp_path, ["neg", "pos"])
    file = tmp_path / "first.tsv"
    monkeypatch.chdir(tmp_path)
    words = ["train", "classify", file.name, "--from", base.name, "--data.valid", file.name]
    run(*words, "--steps", "2", "--train.save_every", "1", "--out", "run")
    monkeypatch.chdir("/")
    run("train", "--resume", str(tmp_path / "run"))
    run("eval", str(tmp_path / "run"))


@pytest.mark.parametrize("recipe", ["classify", "embed"])
def test_a_tokenizer_without_a_pad_token_gets_one_that_other_libraries_find(
    recipe: str, tmp_path: Path
) -> None:
    """GPT-2 and LLaMA have none: batches of transformers would be refused, or read another last token."""
    words = train_tokenizer([f"red thing {i}" for i in range(9)], "byte-bpe", vocab=300)
    config = json.loads(words.files["tokenizer_config.json"])
    del config["pad_token"]
    words = Tokenizer({**words.files, "tokenizer_config.json": json.dumps(config).encode()})
    assert words.pad is None and words.eos is not None
    base = ch.build("gpt2", n_embd=32, n_layer=1, n_head=2, n_positions=64, vocab_size=words.vocab)
    base.tokenizer = words
    base.config |= {"eos_token_id": words.eos.id, "bos_token_id": words.eos.id}
    rows = [
        {"text": f"{w} thing" + " very" * (i % 5), "text2": f"a {w}", "label": w, "score": i / 3}
        for i in range(20)
        for w in ("red", "blue")
    ]
    mapping = (
        {"text": "text", "label": "label"} if recipe == "classify" else {"text": "text", "second": "text2"}
    )
    result = ch.train(base, rows, recipe=recipe, out=tmp_path / "run", epochs=1, batch_size=8, map=mapping)
    texts = ["red thing", "blue thing very very very"]
    if recipe == "classify":
        pipe = transformers.pipeline("text-classification", model=str(tmp_path / "run"), batch_size=2)
        for found, ours in zip(pipe(texts), result.predict(texts), strict=True):
            assert found["label"] == ours.guesses[0].text
            assert found["score"] == pytest.approx(ours.guesses[0].probability, abs=1e-5)
    else:
        theirs = SentenceTransformer(str(tmp_path / "run")).encode(texts, convert_to_tensor=True)
        assert_close(result.embed(texts), theirs.cpu())


def test_a_run_is_resumed_although_the_checkpoint_it_began_from_has_gone(tmp_path: Path) -> None:
    base = classifier(tmp_path, ["neg", "pos"])
    file = str(tmp_path / "first.tsv")
    words = ["train", "classify", file, "--from", str(base), "--valid", file, "--train.save_every", "1"]
    run(*words, "--steps", "4", "--out", str(tmp_path / "whole"))
    run(*words, "--steps", "4", "--out", str(tmp_path / "run"))
    shutil.rmtree(tmp_path / "run" / "checkpoint-000004")  # as if it had been killed after step 3
    for name in ("config.json", "model.safetensors", "MANIFEST.json"):
        (tmp_path / "run" / name).unlink(missing_ok=True)
    shutil.rmtree(base)
    run("train", "--resume", str(tmp_path / "run"))
    one, two = (ch.load(tmp_path / name).model.state_dict() for name in ("whole", "run"))
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_numbers_are_labels_in_their_own_order(tmp_path: Path) -> None:
    file = tmp_path / "rows.tsv"
    file.write_text("text\tlabel\n" + "".join(f"film {i}\t {i % 12}\n" for i in range(60)))
    labels = prepare(quick("classify", f"data.source={file}")).bundle.labels
    assert labels == {i: str(i) for i in range(12)}

"""Predictions against the pipelines of `transformers`; a refusal says what a model can do instead."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from references import REFERENCES

import clearhead as ch
from clearhead.errors import InputError
from clearhead.text.training import train_tokenizer

TEXT = "the cat sat on a mat and the dog ran"
LINES = [TEXT, "a dog sat on the cat", "Anna and Bert ran on"]


def folder(path: Path, task: str, labels: dict[int, str]) -> Path:
    """A tiny random BERT with a tokenizer of its own."""
    reference = REFERENCES[f"bert/{task}/plain"]
    reference.changes.clear()
    model = reference.model()
    model.config.id2label, model.config.label2id = labels, {name: i for i, name in labels.items()}
    model.save_pretrained(path)
    tokenizer = train_tokenizer(LINES, kind="wordpiece", vocab=90, frame="cls-sep")
    for name, data in tokenizer.files.items():
        (path / name).write_bytes(data)
    return path


def pipeline(task: str, path: Path) -> Any:
    return transformers.pipeline(task, model=str(path), tokenizer=str(path), device="cpu")


def test_labels_are_those_of_the_pipeline(tmp_path: Path) -> None:
    folder(tmp_path, "labels", {0: "good", 1: "bad", 2: "neither"})
    found = ch.load(tmp_path).predict(TEXT)
    want = pipeline("text-classification", tmp_path)(TEXT, top_k=3)
    assert found.kind == "labels"
    assert [guess.text for guess in found.guesses] == [row["label"] for row in want]
    for guess, row in zip(found.guesses, want, strict=True):
        assert guess.probability == pytest.approx(row["score"], abs=1e-5)
    assert sum(guess.probability for guess in found.guesses) == pytest.approx(1.0, abs=1e-5)


def test_entities_are_those_of_the_pipeline(tmp_path: Path) -> None:
    folder(tmp_path, "tags", {0: "O", 1: "B-PER", 2: "I-PER"})
    bundle, want = ch.load(tmp_path), pipeline("token-classification", tmp_path)
    assert bundle.tokenizer is not None
    for text in (TEXT, "Annabert catdog matsat, on 2009 dogs"):  # words of one piece, and of several
        found = bundle.predict(text)
        by_word = want(text, aggregation_strategy="first")
        assert [(e.text, e.start, e.end) for e in found.entities] == [
            (row["entity_group"], row["start"], row["end"]) for row in by_word
        ]
        for entity, row in zip(found.entities, by_word, strict=True):
            assert entity.probability == pytest.approx(float(row["score"]), abs=1e-5)
    assert len(found.guesses) < len([p for p in bundle.tokenizer.encode(text).tokens if not p.special])
    assert [text[g.start : g.end] for g in found.guesses] == text.replace(",", " ,").split()


def test_missing_words_are_those_of_the_pipeline(tmp_path: Path) -> None:
    folder(tmp_path, "tokens", {0: "a", 1: "b"})
    bundle = ch.load(tmp_path)
    assert bundle.tokenizer is not None and bundle.tokenizer.mask is not None
    mask = bundle.tokenizer.mask.text
    text = f"the {mask} sat on a {mask}"
    found, want = bundle.predict(text, top=3), pipeline("fill-mask", tmp_path)(text, top_k=3)
    flat = [row for place in want for row in place]
    assert [guess.text for guess in found.guesses] == [row["token_str"] for row in flat]
    for guess, row in zip(found.guesses, flat, strict=True):
        assert guess.probability == pytest.approx(row["score"], abs=1e-5)
    assert [text[g.start : g.end] for g in found.guesses] == [mask] * 6
    with pytest.raises(InputError, match="no word is left out; write"):
        bundle.predict(TEXT)


@torch.no_grad()
def test_a_model_with_both_heads_of_pre_training_says_words_and_whether_texts_follow(tmp_path: Path) -> None:
    folder(tmp_path, "pretrain", {0: "a", 1: "b"})
    bundle = ch.load(tmp_path)
    assert bundle.task == "pretrain" and bundle.tokenizer is not None and bundle.tokenizer.mask is not None
    theirs = transformers.BertForPreTraining.from_pretrained(tmp_path).eval()
    words = transformers.AutoTokenizer.from_pretrained(tmp_path)
    text = f"the {bundle.tokenizer.mask.text} sat"
    found, fed = bundle.predict(text, top=3), words(text, return_tensors="pt")
    place = fed.input_ids[0].tolist().index(bundle.tokenizer.mask.id)
    want = theirs(**fed).prediction_logits[0, place].softmax(-1).topk(3)
    assert found.kind == "words"
    assert [guess.probability for guess in found.guesses] == pytest.approx(want.values.tolist(), abs=1e-5)
    found = bundle.predict("the cat sat", "a dog ran")
    fed = words("the cat sat", "a dog ran", return_tensors="pt", return_token_type_ids=True)
    follows = theirs(**fed).seq_relationship_logits[0].softmax(-1)
    assert found.kind == "labels"
    assert {g.text: g.probability for g in found.guesses} == pytest.approx(
        dict(zip(["follows", "does not follow"], follows.tolist(), strict=True)), abs=1e-5
    )


def test_words_that_the_vocabulary_lacks_are_told_once(tmp_path: Path) -> None:
    folder(tmp_path, "labels", {0: "good", 1: "bad", 2: "neither"})
    bundle = ch.load(tmp_path)
    assert bundle.predict(TEXT).notes == ()
    (note,) = bundle.predict("the 猫 sat on the 猫 龘").notes
    assert note.endswith("tokens are unknown to this model's vocabulary: 猫, 龘") and note.startswith("3 of ")


def test_answers_are_the_likeliest_stretches_of_the_context(tmp_path: Path) -> None:
    """Brute force over the reference's logits: every stretch of at most 15 tokens of the context."""
    folder(tmp_path, "span", {0: "first", 1: "last"})
    bundle, question = ch.load(tmp_path), "the dog ran"
    theirs = transformers.AutoModelForQuestionAnswering.from_pretrained(tmp_path).eval()
    words = transformers.AutoTokenizer.from_pretrained(tmp_path)
    fed = words(question, TEXT, return_tensors="pt", return_offsets_mapping=True, return_token_type_ids=True)
    spans = fed.pop("offset_mapping")[0].tolist()
    inside = [i for i, side in enumerate(fed.sequence_ids(0)) if side == 1]
    with torch.no_grad():
        said = theirs(**fed)
    first, last = (x[0, inside].softmax(0) for x in (said.start_logits, said.end_logits))
    every = sorted(
        (-float(first[i] * last[j]), spans[inside[i]][0], spans[inside[j]][1])
        for i in range(len(inside))
        for j in range(i, min(i + 15, len(inside)))
    )
    found = bundle.predict(question, TEXT, top=4)
    assert [(g.start, g.end) for g in found.guesses] == [(start, end) for _, start, end in every[:4]]
    assert [g.probability for g in found.guesses] == pytest.approx(
        [-score for score, *_ in every[:4]], abs=1e-5
    )
    assert all(guess.text == TEXT[guess.start : guess.end] for guess in found.guesses)
    with pytest.raises(InputError, match="give the text to look in as context"):
        bundle.predict(question)


@pytest.mark.parametrize(
    ("name", "task", "expected"),
    [
        ("gpt2", "tokens", "clearhead generate does that"),
        ("transformer", "tokens", "clearhead generate does that"),
        ("bert", "hidden", "clearhead embed makes vectors"),
    ],
)
def test_what_it_can_do_is_said(name: str, task: Any, expected: str) -> None:
    small = {"d_model": 32, "vocab_size": 60, "decoder_vocab_size": 60} if name == "transformer" else {}
    with pytest.raises(InputError, match=expected):
        ch.build(name, task=task, **small).predict("a text")


def test_bad_words(tmp_path: Path) -> None:
    bundle = ch.load(folder(tmp_path, "tags", {0: "O", 1: "B-PER", 2: "I-PER"}))
    for arguments, expected in ((("",), "the text is empty"), ((TEXT, "more"), "one text at a time")):
        with pytest.raises(InputError, match=expected):
            bundle.predict(*arguments)
    with pytest.raises(InputError, match="top is 0"):
        bundle.predict(TEXT, top=0)
    with pytest.raises(InputError, match="longer than the 64 learned positions"):
        bundle.predict(TEXT * 20)

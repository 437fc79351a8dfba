"""Predictions against the pipelines of `transformers`; a refusal says what a model can do instead."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from references import REFERENCES
from safetensors.torch import load_file, save_file

import clearhead as ch
from clearhead.bundle import Guess, Prediction
from clearhead.bundle.guesses import best_answers
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


# --- several texts, and other heads ---

MANY = [TEXT, "a dog", *LINES, "the cat", f"{TEXT} and {TEXT}", "Anna ran"]


def problem(path: Path, **changes: Any) -> None:
    """Write other keys into config.json."""
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | changes))


def same(ours: Prediction, theirs: Prediction) -> None:
    assert (ours.kind, ours.text) == (theirs.kind, theirs.text)
    assert [(g.text, g.start, g.end) for g in ours.guesses] == [
        (g.text, g.start, g.end) for g in theirs.guesses
    ]
    for mine, other in zip(ours.guesses, theirs.guesses, strict=True):
        assert mine.probability == pytest.approx(other.probability, abs=1e-5)


@pytest.mark.parametrize("task", ["labels", "tags", "span", "tokens", "pair"])
@pytest.mark.parametrize("batch_size", [None, 1, 3, 100])
def test_a_list_gives_what_its_texts_give_one_by_one(
    task: str, batch_size: int | None, tmp_path: Path
) -> None:
    bundle = ch.load(folder(tmp_path, task, {0: "a", 1: "b", 2: "c"} if task != "span" else {0: "a", 1: "b"}))
    texts = [text.replace("the", "<mask>", 1) for text in MANY if "the" in text] if task == "tokens" else MANY
    contexts = texts[::-1] if task in ("span", "pair") else None
    found = bundle.predict(texts, contexts, batch_size=batch_size)
    assert isinstance(found, list) and len(found) == len(texts)
    for i, each in enumerate(found):
        same(each, bundle.predict(texts[i], contexts and contexts[i]))
    if contexts:  # one context for all
        same(bundle.predict(texts, TEXT)[1], bundle.predict(texts[1], TEXT))
    assert bundle.predict([]) == []


def test_pairs_are_those_of_the_pipeline(tmp_path: Path) -> None:
    folder(tmp_path, "labels", {0: "good", 1: "bad", 2: "neither"})
    model = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    words = transformers.AutoTokenizer.from_pretrained(tmp_path)
    fed = words(MANY, MANY[::-1], padding=True, return_tensors="pt", return_token_type_ids=True)
    with torch.no_grad():
        want = model(**fed).logits.softmax(-1)
    found = ch.load(tmp_path).predict(MANY, MANY[::-1])
    for each, row in zip(found, want, strict=True):
        got = {guess.text: guess.probability for guess in each.guesses}
        assert [got[name] for name in ("good", "bad", "neither")] == pytest.approx(row.tolist(), abs=1e-5)


@pytest.mark.parametrize(
    ("labels", "kind"),
    [
        ({0: "score"}, "regression"),
        ({0: "x", 1: "y"}, "regression"),
        ({0: "spam"}, None),
        ({0: "a", 1: "b", 2: "c"}, "multi_label_classification"),
        ({0: "a", 1: "b", 2: "c"}, "single_label_classification"),
    ],
)
def test_scores_and_several_labels_are_those_of_the_pipeline(
    labels: dict[int, str], kind: str | None, tmp_path: Path
) -> None:
    folder(tmp_path, "labels", labels)
    tensors = load_file(tmp_path / "model.safetensors")
    for name in ("classifier.weight", "classifier.bias"):
        tensors[name] = tensors[name][: len(labels)].contiguous()
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    problem(tmp_path, problem_type=kind)
    want = {row["label"]: row["score"] for row in pipeline("text-classification", tmp_path)(TEXT, top_k=None)}
    found = ch.load(tmp_path).predict(TEXT)
    if kind == "regression":
        assert found.kind == "score" and found.guesses == () and found.scores == pytest.approx(want, abs=1e-5)
        assert found.score == (pytest.approx(want["score"], abs=1e-5) if len(labels) == 1 else None)
        assert found.to_dict()["scores"] == found.scores
    else:
        assert found.kind == "labels" and found.score is None
        assert {g.text: g.probability for g in found.guesses} == pytest.approx(want, abs=1e-5)


@torch.no_grad()
def test_choices_are_ranked_as_the_model_of_transformers_ranks_them(tmp_path: Path) -> None:
    folder(tmp_path, "choice", {0: "a", 1: "b"})
    theirs = transformers.AutoModelForMultipleChoice.from_pretrained(tmp_path).eval()
    words = transformers.AutoTokenizer.from_pretrained(tmp_path)
    bundle, choices = ch.load(tmp_path), ["a dog", "the cat sat on a mat", "Bert"]
    for context, first in ((None, TEXT), ("Anna ran", f"Anna ran\n{TEXT}")):
        fed = words([first] * 3, choices, padding=True, return_tensors="pt", return_token_type_ids=True)
        want = theirs(**{name: x[None] for name, x in fed.items()}).logits[0].softmax(-1)
        found = bundle.predict(TEXT, context, choices=choices)
        assert found.kind == "choice" and found.guesses[0].text == choices[int(want.argmax())]
        got = {guess.text: guess.probability for guess in found.guesses}
        assert [got[choice] for choice in choices] == pytest.approx(want.tolist(), abs=1e-5)
    both = bundle.predict([TEXT, "a dog"], choices=[choices, choices[:2]])
    assert [len(each.guesses) for each in both] == [3, 2]
    same(both[0], bundle.predict(TEXT, choices=choices))
    for wrong in (None, "a dog", ["one"], [1, 2]):
        with pytest.raises(InputError):
            bundle.predict(TEXT, choices=wrong)
    with pytest.raises(InputError, match="2 texts and 1 lists of choices"):
        bundle.predict([TEXT, TEXT], choices=[choices])


# --- texts that are longer than the model reads ---

LONG = " ".join([TEXT] * 20)


@torch.no_grad()
def test_a_long_text_is_cut_on_request(tmp_path: Path) -> None:
    folder(tmp_path, "labels", {0: "good", 1: "bad", 2: "neither"})
    bundle = ch.load(tmp_path)
    with pytest.raises(InputError, match="longer than the 64 learned positions; truncate=True cuts it"):
        bundle.predict(LONG)
    with pytest.raises(InputError, match="text 2 is"):
        bundle.predict([TEXT, LONG])
    found = bundle.predict(LONG, truncate=True)
    want = pipeline("text-classification", tmp_path)(LONG, top_k=3, truncation=True, max_length=64)
    assert [g.probability for g in found.guesses] == pytest.approx([row["score"] for row in want], abs=1e-5)
    assert bundle.tokenizer is not None and found.cut == len(bundle.tokenizer.encode(LONG)) - 64
    assert found.notes == (f"the text has {found.cut} tokens more than the 64 that were read",)
    assert bundle.predict([TEXT, LONG], truncate=True)[0].cut == 0


def test_a_text_to_tag_is_never_cut(tmp_path: Path) -> None:
    bundle = ch.load(folder(tmp_path, "tags", {0: "O", 1: "B-PER", 2: "I-PER"}))
    with pytest.raises(InputError, match="split it, since every word counts here"):
        bundle.predict(LONG, truncate=True)


@torch.no_grad()
def test_answers_are_looked_for_in_all_parts_of_a_long_context(tmp_path: Path) -> None:
    """Parts as the fast tokenizer of the reference makes them, answers by brute force over its logits."""
    folder(tmp_path, "span", {0: "first", 1: "last"})
    bundle, question = ch.load(tmp_path), "the dog ran"
    theirs = transformers.AutoModelForQuestionAnswering.from_pretrained(tmp_path).eval()
    words = transformers.AutoTokenizer.from_pretrained(tmp_path)
    head = len(words(question)["input_ids"]) + 1
    fed = words(
        question,
        LONG,
        truncation="only_second",
        max_length=64,
        stride=(64 - head) // 2,
        padding=True,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
        return_token_type_ids=True,
        return_tensors="pt",
    )
    spans, parts = fed.pop("offset_mapping").tolist(), len(fed.pop("overflow_to_sample_mapping"))
    said, best = theirs(**fed), {}
    assert parts > 4
    for part in range(parts):
        inside = [i for i, side in enumerate(fed.sequence_ids(part)) if side == 1]
        first, last = (x[part, inside].softmax(0) for x in (said.start_logits, said.end_logits))
        for i in range(len(inside)):
            for j in range(i, min(i + 15, len(inside))):
                place = (spans[part][inside[i]][0], spans[part][inside[j]][1])
                best[place] = max(best.get(place, 0.0), float(first[i] * last[j]))
    want = sorted(best, key=lambda place: -best[place])[:3]
    found = bundle.predict(question, LONG, top=3)
    assert [g.probability for g in found.guesses] == pytest.approx([best[p] for p in want], abs=1e-5)
    assert all(guess.text == LONG[guess.start : guess.end] for guess in found.guesses)
    assert found.guesses[0].probability == pytest.approx(best[found.guesses[0].start, found.guesses[0].end])
    with pytest.raises(InputError, match="leave no room"):
        bundle.predict(LONG, TEXT)


def test_an_answer_that_two_parts_have_counts_once_at_its_best() -> None:
    guesses = [Guess("a", 0.2, 0, 1), Guess("b", 0.3, 4, 5), Guess("a", 0.5, 0, 1), Guess("c", 0.1, 7, 8)]
    assert best_answers(guesses, 2) == [guesses[2], guesses[1]]


@pytest.mark.parametrize(
    ("arguments", "options", "expected"),
    [
        (([TEXT, TEXT], ["one"]), {}, "2 texts and 1 contexts"),
        ((TEXT,), {"choices": ["a", "b"]}, "choices are for models with a multiple-choice head"),
        ((TEXT,), {"batch_size": 0}, "batch_size is 0"),
        (([TEXT, ""],), {}, "the text is empty"),
        (([TEXT, None],), {}, "text must be a string"),
        ((TEXT, 5), {}, "given int"),
    ],
)
def test_a_wrong_list_is_one_line(
    arguments: Any, options: dict[str, Any], expected: str, tmp_path: Path
) -> None:
    bundle = ch.load(folder(tmp_path, "labels", {0: "good", 1: "bad", 2: "neither"}))
    with pytest.raises(InputError, match=expected):
        bundle.predict(*arguments, **options)

"""`data check --tokenizer MODEL` shows what training feeds: the batch of the builder, decoded."""

import json
from pathlib import Path
from typing import Any

import pytest
import trained
from quick_runs import quick

import clearhead as ch
from clearhead.cli.main import main
from clearhead.data import InMemorySource, detect_schemas
from clearhead.recipes import RECIPES, load_run, prepare, preview_batch, recipe_for
from clearhead.text import Tokenizer

CHATML = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}</s>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def tokenizer(folder: Path, kind: str, **config: object) -> Tokenizer:
    found = Tokenizer.read(trained.write(folder / kind, kind, **config))
    assert found is not None
    return found


def shown(row: dict[str, Any], reader: Tokenizer, base: ch.Bundle | None = None, **more: Any) -> list[Any]:
    schema = detect_schemas(InMemorySource([row]))[0]
    return preview_batch(schema, schema.read(row), reader, base, **more)


def loss(segments: list[tuple[str, bool]]) -> str:
    return "".join(text for text, trained in segments if trained)


def whole(segments: list[tuple[str, bool]]) -> str:
    return "".join(text for text, _ in segments)


def test_a_prompt_is_rendered_by_the_template_and_only_its_answer_has_loss(tmp_path: Path) -> None:
    reader = tokenizer(tmp_path, "bytes", chat_template=CHATML)
    segments = shown({"prompt": "the lazy dog", "completion": "the fox"}, reader)
    assert whole(segments) == "<|user|>the lazy dog</s><|assistant|>the fox</s>"
    assert loss(segments) == "the fox</s>"


def test_without_a_template_they_have_the_plain_one_that_training_adds(tmp_path: Path) -> None:
    segments = shown({"prompt": "the lazy dog", "completion": "the fox"}, tokenizer(tmp_path, "bytes"))
    assert whole(segments) == "<s>user: the lazy dog\nassistant: the fox</s>"  # <s> is put before texts
    assert loss(segments) == "the fox</s>"


def test_the_shown_batch_is_the_batch_of_training(tmp_path: Path) -> None:
    """What `prepare` makes of the file, token by token."""
    rows = [{"prompt": f"the lazy dog {i}", "completion": f"the fox {i}"} for i in range(40)]
    file = tmp_path / "x.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    bundle = ch.build("gpt2", vocab_size=460, n_embd=16, n_layer=1, n_head=2, n_positions=64)
    bundle.tokenizer = reader = tokenizer(tmp_path, "bytes", chat_template=CHATML)
    eos = reader.eos
    assert eos is not None
    bundle.config |= {"eos_token_id": eos.id, "bos_token_id": eos.id}
    ch.save(bundle, tmp_path / "model")
    prepared = prepare(load_run("sft", [f"data.source={file}", f"model.family={tmp_path / 'model'}"]))
    task: Any = prepared.task
    ids, flags = task.splits["train"][0], task.trained["train"][0]
    row = prepared.rows.splits["train"][0]
    segments = shown(row, reader, bundle)
    assert whole(segments) == reader.decode(ids, specials=True)
    assert loss(segments) == reader.decode(
        [i for i, flag in zip(ids, flags, strict=True) if flag], specials=True
    )


def test_labels_tags_spans_choices_and_pairs(tmp_path: Path) -> None:
    words = tokenizer(tmp_path, "words")
    assert shown({"text": "the lazy dog", "label": "good"}, words, labels=["good"]) == [
        ("[CLS] the lazy dog [SEP] → ", False),
        ("good", True),
    ]
    assert whole(shown({"sentence1": "the fox", "sentence2": "the dog", "score": 2.5}, words)) == (
        "[CLS] the fox [SEP] the dog [SEP] → 2.5"
    )
    tags = shown({"tokens": ["lazy", "dog"], "tags": ["O", "B-X"]}, words, labels=["O", "B-X"])
    assert loss(tags) == "OB-X" and whole(tags).startswith("[CLS] ") and "/B-X" in whole(tags)
    asked = {"question": "who", "context": "the lazy dog", "answers": [{"text": "lazy", "answer_start": 4}]}
    assert loss(shown(asked, words)).strip() == "lazy"
    assert loss(shown(asked | {"answers": []}, words)) == "\n(no answer)"  # left out of training: as text
    choice = {"question": "who", "choices": ["the fox", "the dog"], "answer": 1}
    assert loss(shown(choice, words)) == "[CLS] who [SEP] the dog [SEP]\n"
    pair = shown({"src": "the fox", "tgt": "the dog"}, tokenizer(tmp_path, "unigram"))
    assert loss(pair) == "the dog</s>" and whole(pair) == "the fox</s> → the dog</s>"


def test_long_rows_are_cut_as_in_training(tmp_path: Path) -> None:
    segments = shown(
        {"text": "dog " * 50, "label": "x"}, tokenizer(tmp_path, "words"), labels=["x"], length=6
    )
    assert segments[0][0] == "[CLS] dog dog dog dog [SEP] → "


def test_masked_words_are_shown_masked(tmp_path: Path) -> None:
    bundle = ch.build("bert", vocab_size=400, hidden_size=16, num_hidden_layers=1, num_attention_heads=2)
    segments = shown({"text": " ".join(trained.TEXTS[:3])}, tokenizer(tmp_path, "words"), bundle)
    assert "[MASK]" in loss(segments) and "[CLS]" not in loss(segments)


@pytest.mark.parametrize(
    ("row", "recipe"),
    [
        ({"text": "some words", "label": "a"}, "classify"),
        ({"text": "some words", "score": 1.5}, "regress"),
        ({"tokens": ["a"], "tags": ["O"]}, "tag"),
        ({"anchor": "some words", "positive": "other words"}, "embed"),
        ({"src": "some words", "tgt": "other words"}, "translate"),
        ({"prompt": "some words", "completion": "other words"}, "sft"),
        ({"text": "some words"}, "lm"),
        ({"question": "who is it", "choices": ["a", "b"], "answer": 0}, "choose"),
    ],
)
def test_the_command_at_the_end_names_the_recipe(
    row: dict[str, Any], recipe: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert recipe in RECIPES
    assert recipe_for(detect_schemas(InMemorySource([row]))[0]) == recipe
    file = tmp_path / "my rows.jsonl"
    file.write_text(json.dumps(row))
    with pytest.raises(SystemExit):
        main(["data", "check", str(file)])
    assert capsys.readouterr().out.rstrip().endswith(f" train {recipe} '{file}' --from MODEL")


def test_a_model_folder_and_what_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = "\n".join(f"the {'fox' if i % 2 else 'dog'} {i}\t{i % 2}" for i in range(40))
    (tmp_path / "x.tsv").write_text(rows + "\n")
    prepared = prepare(quick("classify", f"data.source={tmp_path / 'x.tsv'}"))
    ch.save(prepared.bundle, tmp_path / "model")
    for name, code, words in (
        (str(tmp_path / "model"), 0, "row 1, as the model sees it; «marked»: with loss"),
        ("nowhere", 2, "there is no tokenizer in 'nowhere'"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(["data", "check", str(tmp_path / "x.tsv"), "--tokenizer", name])
        out, err = capsys.readouterr()
        assert ended.value.code == code and words in out + err, out + err

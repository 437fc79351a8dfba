"""Model cards: metadata that the Hub parses, facts of the run, code that runs, and no paths."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from huggingface_hub import ModelCard
from quick_runs import quick

import clearhead as ch
from clearhead.recipes import load_run, model_card, prepare
from clearhead.recipes.card_usage import pipeline_tag
from clearhead.recipes.settings import RunConfig
from clearhead.tune import Bottleneck, Lora, Tuning

WORDS = [f"the {'old' if i % 2 else 'new'} cat number {i}" for i in range(60)]
ROWS = {
    "classify": [{"text": t, "label": "ab"[i % 2]} for i, t in enumerate(WORDS)],
    "several": [{"text": t, "labels": ["a", "b"][: i % 3]} for i, t in enumerate(WORDS)],
    "regress": [{"text": t, "score": i / 7} for i, t in enumerate(WORDS)],
    "choose": [{"question": t, "choices": ["a cat", "a dog"], "answer": i % 2} for i, t in enumerate(WORDS)],
    "embed": [{"sentence1": t, "sentence2": WORDS[-i], "score": i / 60} for i, t in enumerate(WORDS)],
    "tag": [{"tokens": t.split(), "tags": ["O", "O", "B-X", "O", "O"]} for t in WORDS],
    "answer": [{"question": "who", "context": t, "answers": [{"text": "cat"}]} for t in WORDS],
    "translate": [{"src": t, "tgt": t.upper()} for t in WORDS],
    "lm": [{"text": t} for t in WORDS],
    "sft": [{"prompt": t, "completion": t.upper()} for t in WORDS],
    "bert-mini": [{"text": ". ".join(f"{t} {i} x" for i in range(9))} for t in WORDS],
}
TAGS = {
    "classify": "text-classification", "several": "text-classification", "regress": "text-classification",
    "choose": "multiple-choice", "embed": "sentence-similarity", "tag": "token-classification",
    "answer": "question-answering", "translate": "text2text-generation", "lm": "text-generation",
    "sft": "text-generation", "bert-mini": "fill-mask",
}  # fmt: skip
SCORES = {"loss": 0.5, "accuracy": 87.5, "f1": 86.25}


def config(folder: Path, name: str) -> RunConfig:
    file = folder / "my-rows.jsonl"
    file.write_text("\n".join(map(json.dumps, ROWS[name])))
    small = ["train.steps=2", "tokenizer.vocab=300"]
    recipe = "classify" if name == "several" else name
    run = load_run(recipe)
    sizes = {"width": 32, "depth": 1, "heads": 4, "feedforward": 32}
    small += [f"model.{key}={value}" for key, value in sizes.items() if key in run.model]
    return load_run(recipe, [*small, f"data.source={file}"])


@pytest.mark.parametrize("name", ROWS)
def test_the_card_is_read_by_the_hub_and_its_code_runs(name: str, tmp_path: Path) -> None:
    prepared = prepare(config(tmp_path, name))
    ch.save(prepared.bundle, tmp_path / "my model")
    card = model_card(prepared, SCORES, name="my model", step=2, best_step=1)
    data = ModelCard(card).data
    assert data.pipeline_tag == TAGS[name] and data.tags == ["clearhead"]
    assert data.library_name == ("sentence-transformers" if name == "embed" else "transformers")
    results = {result.metric_type: result.metric_value for result in data.eval_results or ()}
    assert results == {"accuracy": 87.5, "f1": 86.25} and data.base_model is None
    assert str(tmp_path) not in card and "my-rows.jsonl" in card
    assert "step 1 of 2, the best" in card and "| accuracy | 87.5 |" in card
    code = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    done = subprocess.run([sys.executable, "-c", code[0]], capture_output=True, text=True, cwd=tmp_path,
                          env=environment, timeout=100)  # fmt: skip
    assert done.returncode == 0 and done.stdout.strip(), done.stderr[-2000:]


def test_a_fine_tuned_model_names_its_base_without_its_folder(tmp_path: Path) -> None:
    prepared = prepare(config(tmp_path, "classify"))
    ch.save(prepared.bundle, tmp_path / "secret" / "base-model")
    words = [
        f"data.source={tmp_path / 'my-rows.jsonl'}",
        f"model.family={tmp_path / 'secret' / 'base-model'}",
    ]
    tuned = prepare(load_run("classify", words, fine_tune=True))
    card = model_card(tuned, {}, name="x", step=3)
    assert "fine-tuned from `base-model`" in card and "secret" not in card
    assert ModelCard(card).data.base_model is None  # only what the Hub has
    assert "The run had no validation." in card and ModelCard(card).data.eval_results is None
    assert "Labels: `a`, `b`." in card


def test_what_is_known_is_stated(tmp_path: Path) -> None:
    prepared = prepare(config(tmp_path, "classify"))
    card = model_card(prepared, SCORES, name="x", step=2)
    digest = next(iter(prepared.rows.hashes.values()))
    assert digest[:16] in card and "step 2 of 2, the last" in card
    train, valid = (len(prepared.rows.splits[split]) for split in ("train", "valid"))
    assert f"Rows: {train} train, {valid} valid." in card
    assert f"| learning rate | {prepared.run.train.peak:g} |" in card and "| seed | 0 |" in card


def test_chinese_texts_give_their_language_away(tmp_path: Path) -> None:
    rows = "\n".join(
        f"这部电影很{'好' if i % 2 else '差'} {i}\t{'正面' if i % 2 else '负面'}" for i in range(60)
    )
    (tmp_path / "x.tsv").write_text(rows + "\n", encoding="utf-8")
    prepared = prepare(quick("classify", f"data.source={tmp_path / 'x.tsv'}"))
    card = model_card(prepared, SCORES, name="评论", step=2)
    assert ModelCard(card).data.language == "zh" and "`正面`" in card


def test_an_edited_architecture_is_not_offered_to_transformers(tmp_path: Path) -> None:
    run = config(tmp_path, "lm")
    run.model["edit"] = {"Attention.kernel": "Linear"}
    prepared = prepare(run)
    card = model_card(prepared, SCORES, name="x", step=2)
    assert ModelCard(card).data.library_name == "clearhead" and "```python" not in card
    assert "only Clearhead opens it" in card


def test_a_model_for_further_training_has_no_pipeline() -> None:
    bundle = ch.build("t5", vocab_size=30, d_model=16, d_kv=4, d_ff=16, num_layers=1, num_heads=2)
    assert pipeline_tag(bundle, "spans") is None


def test_a_model_in_memory_has_no_name(tmp_path: Path) -> None:
    run = config(tmp_path, "classify")
    base = prepare(run).bundle
    card = model_card(prepare(run, base=base), SCORES, name="x", step=2)
    assert "fine-tuned from another model" in card and "base_model" not in card


@pytest.mark.parametrize(
    ("tuning", "why"), [(Bottleneck(), "no format for Bottleneck"), (Lora(rank=2), None)]
)
def test_an_adapter_that_peft_cannot_open_says_why(tuning: Tuning, why: str | None, tmp_path: Path) -> None:
    run = config(tmp_path, "lm")
    ch.save(prepare(run).bundle, tmp_path / "base")
    run = load_run(
        "lm", [f"data.source={run.data.source}", f"model.family={tmp_path / 'base'}", "train.steps=2"]
    )
    prepared = prepare(replace(run, tune=tuning))
    card = model_card(prepared, SCORES, name="my adapter", step=2)
    library = ModelCard(card).data.library_name
    if why is None:
        assert library == "peft" and "Only Clearhead" not in card
    else:
        assert library == "clearhead" and f"Only Clearhead opens it: PEFT has {why}." in card

"""Contexts longer than the model: read in overlapping parts, in training and in evaluation."""

import json
from pathlib import Path

import clearhead as ch
from clearhead.data import IGNORE_INDEX
from clearhead.recipes import evaluate_file, load_run, prepare
from clearhead.tasks import QuestionAnswering
from clearhead.train import Trainer


def test_an_answer_far_into_a_long_context_is_found_in_its_part(tmp_path: Path) -> None:
    """Contexts longer than the model are read in overlapping parts, in training and in evaluation."""
    filler = " ".join(f"w{i % 7}" for i in range(60))
    rows = [
        {"question": "who", "context": f"{filler} {name} {filler}", "answers": [{"text": name}]}
        for name in ("ann", "bob", "cat") * 8
    ]
    file = tmp_path / "far.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = [f"data.source={file}", f"data.valid={file}", "data.length=32", "tokenizer.vocab=200"]
    sizes = ["model.width=32", "model.depth=1", "model.heads=2", "train.steps=60", "train.lr=0.005"]
    prepared = prepare(load_run("answer", [*words, *sizes, "train.valid_every=60"]))
    task = prepared.task
    assert isinstance(task, QuestionAnswering)
    assert len(task.splits["valid"]) > 3 * len(rows) and len(task.questions("valid")) == len(rows)
    assert all(part.first != IGNORE_INDEX for part in task.splits["train"])
    assert any("contexts are read in parts of 32 tokens" in note for note in prepared.notes)
    Trainer(prepared.bundle, task, prepared.run.train, tmp_path / "run").run()
    report = evaluate_file(ch.load(tmp_path / "run"), str(file), length=32)
    assert report.rows == len(rows) and report.scores["exact"] == 100
    assert [outcome.example for outcome in report.evaluation.outcomes] == list(range(len(rows)))

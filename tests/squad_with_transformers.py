"""Question answering with the Trainer of transformers, to compare with `clearhead train answer`.

    python tests/squad_with_transformers.py MODEL train.jsonl test.json --steps 150 --seed 0

Rows, tokenizer, truncation, batch size, rate, schedule, clipping, weight decay and scoring are those of our
run; the batches are its own: random rows, padded to the longest. Prints exact match, F1, and the processor
seconds of the training.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import torch
import transformers

from clearhead.data import detect_schemas, read_rows
from clearhead.tasks import QAExample
from clearhead.tasks.metrics import answer_scores
from clearhead.tasks.question_answering import best_span


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("train")
    parser.add_argument("test")
    for name, value in {"steps": 150, "seed": 0, "rows": 16, "length": 256}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--lr", type=float, default=1e-4)
    given = parser.parse_args()
    transformers.set_seed(given.seed)
    tokenizer = transformers.AutoTokenizer.from_pretrained(given.model)
    model = transformers.AutoModelForQuestionAnswering.from_pretrained(given.model)
    examples = [encode(tokenizer, row, given.length) for row in read(given.train)]
    features = [feature for feature, _ in examples if feature["start_positions"] >= 0]
    settings = transformers.TrainingArguments(
        output_dir="out-of-transformers", max_steps=given.steps, seed=given.seed, learning_rate=given.lr,
        per_device_train_batch_size=given.rows, lr_scheduler_type="linear", warmup_steps=given.steps // 10,
        weight_decay=0.01, max_grad_norm=1.0, save_strategy="no", report_to=[], use_cpu=True,
        disable_tqdm=True, logging_strategy="no",
    )  # fmt: skip
    trainer = transformers.Trainer(
        model, settings, train_dataset=features,
        data_collator=transformers.DataCollatorWithPadding(tokenizer),
    )  # fmt: skip
    began, clock = time.process_time(), time.perf_counter()
    trainer.train()
    seconds, wall = time.process_time() - began, time.perf_counter() - clock
    predictions, references = predict(model.eval(), tokenizer, read(given.test), given.length)
    scores = {**answer_scores(predictions, references), "cpu_seconds": seconds, "seconds": wall}
    sys.stdout.write(json.dumps(scores) + "\n")


def read(file: str) -> list[dict]:
    source = read_rows(Path(file))
    schema = next(each for each in detect_schemas(source) if each.form == "answer")
    return [schema.read(row) for row in source]


def encode(tokenizer, row: dict, length: int) -> tuple[dict, list]:
    encoded = tokenizer(
        row["question"], row["context"], truncation="only_second", max_length=length,
        return_offsets_mapping=True,
    )  # fmt: skip
    sides = encoded.sequence_ids(0)
    offsets = encoded.pop("offset_mapping")
    spans = [tuple(o) if side == 1 else None for o, side in zip(offsets, sides, strict=True)]
    start = row["answers"][0]["start"]
    end = start + len(row["answers"][0]["text"])
    inside = [i for i, span in enumerate(spans) if span and span[0] < end and span[1] > start]
    found = inside and [span for span in spans if span][-1][1] >= end
    feature = dict(encoded)
    feature["start_positions"] = inside[0] if found else -1
    feature["end_positions"] = inside[-1] if found else -1
    return feature, spans


@torch.no_grad()
def predict(model, tokenizer, rows: list[dict], length: int) -> tuple[list[str], list[list[str]]]:
    predictions = []
    for row in rows:
        feature, spans = encode(tokenizer, row, length)
        ids = feature["input_ids"]
        inputs = {key: torch.tensor([feature[key]]) for key in feature if not key.endswith("positions")}
        found = model(**inputs)
        scores = torch.stack([found.start_logits[0], found.end_logits[0]], -1)
        answers = [answer["text"] for answer in row["answers"]]
        predictions.append(best_span(scores, QAExample(ids, None, spans, row["context"], answers, 0, 0)))
    return predictions, [[answer["text"] for answer in row["answers"]] for row in rows]


if __name__ == "__main__":
    main()

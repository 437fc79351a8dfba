"""Model cards: a finished run in; the README.md of its folder out, with metadata as the Hub reads it.

A card states what is known: data, settings, scores, how to use the model. File names are given without their
folders, so that a card can be published as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from ..bundle import Bundle, is_adapter, is_peft, why_not_peft
from ..data import language_of
from ..tasks import Better
from .card_usage import adapter_snippet, command_line, pipeline_tag, python_snippet
from .prepare import PreparedRun

CARD_FILE = "README.md"
# Our names of scores, and the names the Hub has for them.
HUB_METRICS = {
    "accuracy": "accuracy", "f1": "f1", "macro_f1": "f1", "precision": "precision", "recall": "recall",
    "bleu": "bleu", "chrf": "chrf", "rouge1": "rouge", "rouge2": "rouge", "rougeL": "rouge",
    "exact": "exact_match", "spearman": "spearmanr", "pearson": "pearsonr", "mse": "mse",
    "perplexity": "perplexity",
}  # fmt: skip
OUTPUTS = {
    "classify": "assigns one label to a text, or to a pair of texts",
    "regress": "predicts a number for a text, or for a pair of texts",
    "choose": "chooses one of several answers to a question",
    "embed": "turns texts into vectors; similar texts have a large cosine",
    "tag": "assigns a tag to every word of a text",
    "answer": "finds the answer to a question in a text",
    "translate": "generates a text from a text",
    "denoise": "restores corrupted texts, as a start for fine-tuning",
    "spans": "fills in missing spans of texts, as a start for fine-tuning",
    "causal": "continues texts",
    "masked": "fills in masked words",
    "pretrain": "fills in masked words",
}
HAS_FOLDER = re.compile(r"(?:^|[\s'\"(])(?:/|~|[A-Za-z]:\\)")  # an absolute path in a note
HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")


def model_card(
    prepared: PreparedRun,
    scores: Mapping[str, float],
    *,
    name: str,
    step: int,
    best_step: int | None = None,
) -> str:
    """`scores` are those of the saved weights on the validation rows; `name` is that of the folder.

    `step` is the last step of the run, `best_step` the one whose weights were saved.
    """
    better = prepared.task.better
    sections = [
        f"---\n{_metadata(prepared, scores, name)}---\n\n# {name}",
        _description(prepared),
        "## Scores\n\n" + _scores(scores, better, step, best_step),
        "## Use\n\n" + _usage(prepared, name),
        "## Data\n\n" + _data(prepared),
        "## Settings\n\n" + _settings(prepared),
        "## What is not known\n\nThe scores above are for the validation rows of this run alone. Not "
        "measured: how the model does on texts of another kind, whom its errors affect, and which biases its "
        "data and its base model carry.",
    ]
    card = "\n\n".join(sections) + "\n"
    # Labels and file names are anybody's: no control characters for the terminal that shows the card.
    return "".join(c if c == "\n" or c.isprintable() else repr(c)[1:-1] for c in card)


def _metadata(prepared: PreparedRun, scores: Mapping[str, float], name: str) -> str:
    bundle, task = prepared.bundle, prepared.run.task
    tag = pipeline_tag(bundle, task)
    metadata: dict[str, Any] = {}
    if language := _language(prepared):
        metadata["language"] = language
    metadata["library_name"] = library_of(bundle, task)
    if tag is not None:
        metadata["pipeline_tag"] = tag
    base = _base_name(prepared)
    if base and _is_hub_id(prepared):
        metadata["base_model"] = base
    metadata["tags"] = ["clearhead"]
    known = {metric: HUB_METRICS[metric] for metric in scores if metric in HUB_METRICS}
    if known:
        metadata["metrics"] = sorted(set(known.values()))
    if known and tag is not None:
        result = {
            "task": {"type": tag},
            "dataset": {
                "name": ", ".join(_files(prepared)) or "built in",
                "type": "local",
                "split": "validation",
            },
            "metrics": [
                {"type": kind, "name": metric, "value": round(float(scores[metric]), 4)}
                for metric, kind in known.items()
            ],
        }
        metadata["model-index"] = [{"name": name, "results": [result]}]
    text: str = yaml.safe_dump(metadata, sort_keys=False, allow_unicode=True)
    return text


def library_of(bundle: Bundle, task: str) -> str:
    if bundle.edits:  # a changed architecture, which other libraries do not know
        return "clearhead"
    if is_adapter(bundle):
        return "peft" if is_peft(bundle) else "clearhead"
    return "sentence-transformers" if task == "embed" else "transformers"


def _language(prepared: PreparedRun) -> str | None:
    """The language of the texts that are generated, if it was named; or one that its script gives away."""
    if prepared.run.data.language is not None:
        return prepared.run.data.language
    texts = [str(value) for row in prepared.rows.splits["train"][:500] for value in row.values()]
    found = language_of(texts)
    return found if found != "en" else None  # any language with Latin letters would be taken for English


def _is_hub_id(prepared: PreparedRun) -> bool:
    name = str(prepared.run.model.get("family", ""))
    return HUB_NAME.fullmatch(name) is not None and not Path(name).exists()


def _base_name(prepared: PreparedRun) -> str | None:
    """The checkpoint that was fine-tuned: a hub id, or the name of a folder or file; "" for one in memory."""
    if prepared.rows.base is None:
        return None
    name = str(prepared.run.model.get("family", ""))
    if _is_hub_id(prepared):
        return name
    return Path(name).name if Path(name).exists() else ""


def _files(prepared: PreparedRun) -> list[str]:
    return [Path(name).name for name in prepared.rows.hashes]


def _description(prepared: PreparedRun) -> str:
    bundle = prepared.bundle
    family = bundle.family.title if bundle.family else type(bundle.spec).__name__
    base = _base_name(prepared)
    origin = "trained from random weights" if base is None else "fine-tuned from another model"
    origin = f"fine-tuned from `{base}`" if base else origin
    lines = [
        f"A {family} model of {bundle.parameters:,} parameters that {OUTPUTS[prepared.run.task]}; "
        f"{origin} with Clearhead."
    ]
    if is_adapter(bundle):
        lines = [
            f"An adapter that is put over `{base or 'its base'}`, a {family} model. With it the model "
            f"{OUTPUTS[prepared.run.task]}. Trained with Clearhead: {bundle.tuning}."
        ]
        if why := why_not_peft(bundle):
            lines.append(f"Only Clearhead opens it: {why}.")
    if bundle.task in ("labels", "tags") and prepared.run.task != "regress":
        lines.append(f"Labels: {', '.join(f'`{name}`' for name in bundle.labels.values())}.")
    if bundle.edits:
        edits = ", ".join(f"`{place}={value}`" for place, value in bundle.edits.items())
        lines.append(f"Its architecture is changed ({edits}), so only Clearhead opens it.")
    return "\n\n".join(lines)


def _scores(scores: Mapping[str, float], better: Better, step: int, best_step: int | None) -> str:
    if not scores:
        return "The run had no validation."
    saved = step if best_step is None else best_step
    which = f"Saved are the weights of step {saved:,} of {step:,}"
    why = f", the best {better.metric} on the validation rows." if best_step is not None else ", the last."
    rows = "\n".join(f"| {metric} | {value:.4g} |" for metric, value in scores.items())
    return f"{which}{why} On these rows:\n\n| metric | value |\n|---|---|\n{rows}"


def _usage(prepared: PreparedRun, name: str) -> str:
    pairs = prepared.bundle.task == "labels" and "second" in prepared.rows.schema.columns
    parts = [f"```sh\n{command_line(prepared.bundle, prepared.run.task, name, pairs=pairs)}\n```"]
    if not prepared.bundle.edits:
        if is_adapter(prepared.bundle):
            snippet = adapter_snippet(prepared.bundle, name, _base_name(prepared) or "the base model")
        else:
            snippet = python_snippet(prepared.bundle, prepared.run, name, pairs=pairs)
        parts += [f"```python\n{snippet}\n```"] if snippet else []
    return "\n\n".join(parts)


def _data(prepared: PreparedRun) -> str:
    splits = ", ".join(f"{len(rows):,} {name}" for name, rows in prepared.rows.splits.items())
    lines = [f"Rows: {splits}. Read as {prepared.rows.schema}."]
    if prepared.rows.hashes:
        lines.append("| file | sha256 |\n|---|---|")
        files = [f"| {Path(name).name} | `{digest[:16]}` |" for name, digest in prepared.rows.hashes.items()]
        lines[-1] += "\n" + "\n".join(files)
    notes = [note for note in prepared.notes if not HAS_FOLDER.search(note)]
    if notes:
        lines.append("\n".join(f"- {note}" for note in notes))
    return "\n\n".join(lines)


def _settings(prepared: PreparedRun) -> str:
    run, train = prepared.run, prepared.run.train
    values = {
        "task": run.task,
        "tuning": prepared.bundle.tuning.value if prepared.bundle.tuning else None,
        "steps": f"{train.steps:,}",
        "epochs": None if run.data.epochs is None else f"{run.data.epochs:g}",
        "learning rate": f"{train.peak:g}",
        "schedule": train.schedule,
        "optimizer": train.optimizer,
        "batch": f"{run.data.batch_size} rows"
        if run.data.batch_size
        else f"up to {run.data.tokens:,} tokens",
        "gradient accumulation": train.micro if train.micro > 1 else None,
        "longest text": f"{run.data.length} tokens",
        "label smoothing": run.data.smoothing or None,
        "precision": train.precision,
        "seed": train.seed,
    }
    rows = "\n".join(f"| {key} | {value} |" for key, value in values.items() if value is not None)
    return f"| setting | value |\n|---|---|\n{rows}"

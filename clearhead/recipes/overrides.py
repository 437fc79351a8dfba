"""Settings as people type them: `--lr 3e-4`, `train.lr=3e-4`, `--batch_size 16` in; a tree of settings out.

Names of other libraries are understood. A choice may be named by one word: `--optimizer adam`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from ..data import parse_map
from ..errors import InputError, nearest, quoted
from ..spec import Spec
from ..train import SCHEDULES, SGD, Adam, AdamW
from .yamlfile import parse_value

# Short names of settings, and those that other libraries have for them.
SYNONYMS = {
    "epochs": "data.epochs", "num_train_epochs": "data.epochs", "num_epochs": "data.epochs",
    "steps": "train.steps", "max_steps": "train.steps",
    "lr": "train.lr", "learning_rate": "train.lr",
    "batch_size": "data.batch_size", "per_device_train_batch_size": "data.batch_size",
    "max_length": "data.length", "max_seq_length": "data.length", "max_seq_len": "data.length",
    "cutoff_len": "data.length", "block_size": "data.length",
    "warmup": "train.schedule.warmup", "warmup_steps": "train.schedule.warmup",
    "warmup_ratio": "train.schedule.warmup",
    "early_stop": "train.patience", "patience": "train.patience", "early_stopping_patience": "train.patience",
    "gradient_accumulation_steps": "train.micro", "accumulate": "train.micro",
    "eval_steps": "train.valid_every", "save_steps": "train.save_every",
    "prefix": "data.prefix", "source_prefix": "data.prefix",
    "language": "data.language", "template": "data.template",
    "label_smoothing": "data.smoothing", "label_smoothing_factor": "data.smoothing",
    "precision": "train.precision", "valid": "data.valid", "validation_file": "data.valid",
    "train_file": "data.source", "weight_decay": "train.optimizer.decay",
    "optimizer": "train.optimizer", "optim": "train.optimizer",
    "schedule": "train.schedule", "lr_scheduler_type": "train.schedule",
    "freeze": "train.freeze", "device": "train.device",
    "clip": "train.clip", "max_grad_norm": "train.clip",
    "seed": "train.seed", "map": "data.map", "family": "model.family",
    "vocab": "tokenizer.vocab", "vocab_size": "tokenizer.vocab",
}  # fmt: skip
# Inside a section, too: `--train.learning_rate`, `--data.batch`, `--train.epochs`.
SECTION_SYNONYMS = {
    f"{section}.{word}": name
    for section in ("train", "data", "training")
    for word, name in SYNONYMS.items()
    if f"{section}.{word}" != name
}
LISTS = ("train.freeze",)  # one value or several
# Settings whose value is one of several kinds, by the words that name them.
CHOICES_BY_WORD: dict[str, Mapping[str, type[Spec]]] = {
    "train.optimizer": {"adamw": AdamW, "adamw_torch": AdamW, "adam": Adam, "sgd": SGD},
    "train.schedule": SCHEDULES | {kind.__name__.lower(): kind for kind in SCHEDULES.values()},
}

DEFAULT_KINDS = {"train.optimizer": "AdamW", "train.schedule": "Constant"}  # of Training
# Options of other libraries that are not settings here, and what to type instead.
ELSEWHERE = {
    "output_dir": "--out FOLDER", "model_name_or_path": "--from MODEL", "model": "--from MODEL",
    "bf16": "--precision bfloat16", "fp16": "--precision float16", "do_train": "nothing: it trains",
    "do_eval": "nothing: it validates", "resume_from_checkpoint": "--resume FOLDER",
    "eval_strategy": "--eval-steps N", "save_total_limit": "--train.keep N",
    "load_best_model_at_end": "nothing: the best is kept",
    "metric_for_best_model": "nothing: the task decides",
    "report_to": "--log tensorboard", "text_column": "--map text=COLUMN",
    "label_column": "--map label=COLUMN",
}  # fmt: skip


def overrides(arguments: Sequence[str]) -> dict[str, Any]:
    """The values of dotted settings as typed on the command line."""
    values: dict[str, Any] = {}
    remaining = list(arguments)
    while remaining:
        word = remaining.pop(0)
        name, sign, value = word.removeprefix("--").partition("=")
        if not sign:
            if not word.startswith("--") or not remaining:
                raise InputError(f"{word!r} is not a setting; expected --train.lr 3e-4 or train.lr=3e-4")
            value = remaining.pop(0)
        name = full_name(name)
        if _is_mapping(name, value):
            read: Any = parse_map(value.split())
        elif name in LISTS and not value.startswith("["):
            read = value  # a pattern such as *.attn.*, which is no YAML
        else:
            read = parse_value(value, name)
        values[name] = [*values[name], *_as_list(read)] if name in LISTS and name in values else read
        if name in LISTS:
            values[name] = _as_list(values[name])
    return values


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def full_name(name: str) -> str:
    """`batch-size` as `data.batch_size`; a dotted name stays unless it is another's."""
    word = name.replace("-", "_")
    if word in SYNONYMS:
        return SYNONYMS[word]
    if word in ELSEWHERE:
        raise InputError(f"unknown option '--{name}'; here it is {ELSEWHERE[word]}")
    if "." not in name:
        hint = nearest(word, SYNONYMS)
        raise InputError(f"unknown option '--{name}'; {hint} (or a dotted setting: --train.steps 500)")
    return SECTION_SYNONYMS.get(word, name)


def _is_mapping(name: str, value: str) -> bool:
    """`--data.map "text=review label=stars"`, in the words of `--map`."""
    return name == "data.map" and "=" in value and not value.lstrip().startswith("{")


def apply_overrides(tree: dict[str, Any], given: Mapping[str, Any]) -> None:
    """Write the values into a tree of settings; kinds before their own settings."""
    for name in sorted(given, key=lambda name: not _names_kind(name, given[name])):
        place, value = name, given[name]
        if _names_kind(name, value):
            place = name.removesuffix(".kind")
            value = _choose_kind(place, str(value), tree)
        elif name in LISTS:
            value = _as_list(value)
        section = name.rpartition(".")[0]
        if section in DEFAULT_KINDS and not _kind_at(tree, section):
            set_value(tree, [*section.split("."), "kind"], DEFAULT_KINDS[section])
        set_value(tree, place.split("."), value)


def _kind_at(tree: Mapping[str, Any], name: str) -> Any:
    section, last = name.split(".")
    before = (tree.get(section) or {}).get(last)
    return before.get("kind") if isinstance(before, dict) else None


def _names_kind(name: str, value: Any) -> bool:
    return isinstance(value, str) and name.removesuffix(".kind") in CHOICES_BY_WORD


def _choose_kind(name: str, word: str, tree: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of the named kind; those of the kind before stay if both have them."""
    kinds = CHOICES_BY_WORD[name]
    kind = kinds.get(word.lower())
    if kind is None:
        raise InputError(f"{name} is {quoted(word)}; {nearest(word.lower(), kinds)}")
    section, last = name.split(".")
    before = (tree.get(section) or {}).get(last)
    known = {f.name for f in fields(kind)}
    kept = {key: value for key, value in before.items() if key in known} if isinstance(before, dict) else {}
    return {**kept, "kind": kind.__name__}


def set_value(tree: dict[str, Any], path: Sequence[str], value: Any) -> None:
    *parents, last = path
    for name in parents:
        if tree.get(name) is None:
            tree[name] = {}
        if not isinstance(tree[name], dict):
            raise InputError(
                f"{'.'.join(path)}: {name} is {quoted(tree[name])}, which has no settings of its own"
            )
        tree = tree[name]
    tree[last] = value

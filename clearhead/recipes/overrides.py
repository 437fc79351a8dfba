"""Settings as people type them: `--lr 3e-4`, `train.lr=3e-4`, `--batch_size 16` in; a tree of settings out.

Names of other libraries are understood. A choice may be named by one word: `--optimizer adam`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from itertools import takewhile
from typing import Any

from ..data import parse_map
from ..errors import InputError, nearest, quoted
from ..spec import Spec
from ..train import SCHEDULES
from .methods import method_settings
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
    "method": "tune", "tune": "tune", "finetuning_type": "tune", "peft_type": "tune", "peft": "tune",
    "rank": "tune.rank", "lora_r": "tune.rank", "lora_rank": "tune.rank", "r": "tune.rank",
    "alpha": "tune.alpha", "lora_alpha": "tune.alpha", "lora_dropout": "tune.dropout",
    "targets": "tune.targets", "target_modules": "tune.targets", "lora_target": "tune.targets",
    "lora_targets": "tune.targets", "lora_target_modules": "tune.targets", "lora_modules": "tune.targets",
    "exclude_modules": "tune.exclude", "exclude": "tune.exclude", "modules_to_save": "tune.modules_to_save",
    "additional_target": "tune.modules_to_save", "lora_modules_to_save": "tune.modules_to_save",
    "reduction": "tune.reduction", "reduction_factor": "tune.reduction",
    "num_virtual_tokens": "tune.length", "virtual_tokens": "tune.length",
    "quantize": "model.quantize",
}  # fmt: skip
# Inside a section, too: `--train.learning_rate`, `--data.batch`, `--train.epochs`.
SECTION_SYNONYMS = {
    f"{section}.{word}": name
    for section in ("train", "data", "training")
    for word, name in SYNONYMS.items()
    if f"{section}.{word}" != name
}
# Patterns: one or several, each an option of its own or separated by commas.
LISTS = ("train.freeze", "tune.targets", "tune.exclude", "tune.modules_to_save", "tune.feedforward",
         "tune.parts")  # fmt: skip
# What other libraries call all linear layers.
TARGET_WORDS = {"all": "all-linear", "all_linear": "all-linear"}
# Settings whose value is one of several kinds, by the words that name them.
CHOICES_BY_WORD: dict[str, Mapping[str, str]] = {
    "train.optimizer": {"adamw": "AdamW", "adamw_torch": "AdamW", "adam": "Adam", "sgd": "SGD"},
    "train.schedule": {word: kind.__name__ for word, kind in SCHEDULES.items()}
    | {kind.__name__.lower(): kind.__name__ for kind in SCHEDULES.values()},
}

DEFAULT_KINDS = {"train.optimizer": "AdamW", "train.schedule": "Constant", "tune": "Lora"}
# Options of other libraries that are there or not, and the setting each stands for.
FLAG_SETTINGS: dict[str, tuple[str, str]] = {
    "load_in_4bit": ("model.quantize", "int4"), "load_in_8bit": ("model.quantize", "int8"),
    "use_dora": ("tune", "dora"), "use_rslora": ("tune", "rslora"), "pissa_init": ("tune", "pissa"),
    "use_peft": ("tune", "lora"),
}  # fmt: skip
# Options of other libraries, with the values that say what happens here anyway.
AS_IT_IS = {
    "stage": ("sft",), "packing": ("true",), "load_best_model_at_end": ("true",), "do_train": ("true",),
    "do_eval": ("true",), "train_on_inputs": ("false",),
}  # fmt: skip
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
    "quantization_bit": "--quantize int4 or --quantize int8", "dataset": "the file, after the model",
    "adapter_name_or_path": "the adapter in the place of the model, or --from ADAPTER",
    "adapter": "the adapter in the place of the model: clearhead tune ADAPTER FILE",
    "stage": "decided by the rows: answers, labels, tags; --recipe lm for texts (preferences are not learned "
             "yet)",
    "packing": "nothing: whole examples are packed", "train_on_inputs": "nothing: answers alone are trained",
    "target_parameters": "--targets, for linear layers",
}  # fmt: skip


def overrides(arguments: Sequence[str]) -> dict[str, Any]:
    """The values of dotted settings as typed on the command line."""
    values, flags = dict[str, Any](), dict[str, str]()
    remaining = list(arguments)
    while remaining:
        word = remaining.pop(0)
        name, sign, value = word.removeprefix("--").partition("=")
        plain = name.replace("-", "_")
        if plain in FLAG_SETTINGS or plain in AS_IT_IS:
            value = value if sign else _flag_value(plain, remaining)
            if plain in FLAG_SETTINGS and value.lower() != "false":
                setting, meant = FLAG_SETTINGS[plain]
                flags[setting] = meant
            if plain in FLAG_SETTINGS or value.lower() in AS_IT_IS[plain]:
                continue
        elif not sign:
            if plain in ELSEWHERE:  # also where its value is missing
                full_name(name)
            if not word.startswith("--") or not remaining:
                raise InputError(f"{word!r} is not a setting; expected --train.lr 3e-4 or train.lr=3e-4")
            value = remaining.pop(0)
            if SYNONYMS.get(plain, name) in LISTS:  # `--target_modules q_proj v_proj`
                is_value = lambda each: not each.startswith("--") and "=" not in each  # noqa: E731
                following = list(takewhile(is_value, remaining))
                value = ",".join([value, *following])
                del remaining[: len(following)]
        name = full_name(name)
        read = _read_value(name, value)
        values[name] = [*values[name], *_as_list(read)] if name in LISTS and name in values else read
    return values | flags  # `--use_dora --finetuning_type lora` is dora in either order


def _flag_value(name: str, remaining: list[str]) -> str:
    """The value of an option that may stand alone, which is then true."""
    is_value = remaining and (
        remaining[0].lower() in ("true", "false") if name in FLAG_SETTINGS else remaining[0][:1] != "-"
    )
    return remaining.pop(0) if is_value else "true"


def _read_value(name: str, value: str) -> Any:
    if _is_mapping(name, value):
        return parse_map(value.split())
    if name in LISTS:
        return _patterns(value) if not value.startswith("[") else _as_list(parse_value(value, name))
    return parse_value(value, name)


def _patterns(text: str) -> list[str]:
    """The patterns in `q_proj,v_proj`; a comma in braces is part of one."""
    parts = re.split(r",(?![^{]*\})", text)
    return [TARGET_WORDS.get(part.strip(), part.strip()) for part in parts]


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
            value = _patterns(value) if isinstance(value, str) else _as_list(value)
        section = name.rpartition(".")[0]
        if section in DEFAULT_KINDS and not _kind_of(_value_at(tree, section)):
            set_value(tree, [*section.split("."), "kind"], DEFAULT_KINDS[section])
        set_value(tree, place.split("."), value)


def _value_at(tree: Mapping[str, Any], name: str) -> Any:
    value: Any = tree
    for key in name.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _kind_of(value: Any) -> Any:
    return value.get("kind") if isinstance(value, dict) else None


def _names_kind(name: str, value: Any) -> bool:
    return isinstance(value, str) and name.removesuffix(".kind") in (*CHOICES_BY_WORD, "tune")


def _choose_kind(name: str, word: str, tree: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that the word stands for; those of the kind before stay if both have them.

    Targets and a start are another matter in another kind of tuning.
    """
    meant = method_settings(word) if name == "tune" else _optimizer_or_schedule(name, word)
    before = _value_at(tree, name)
    known = {f.name for f in fields(Spec.kinds()[meant["kind"]])}
    if name == "tune" and (_kind_of(before) or DEFAULT_KINDS[name]) != meant["kind"]:
        known = {"modules_to_save"}
    kept = {key: value for key, value in before.items() if key in known} if isinstance(before, dict) else {}
    return {**kept, **meant}


def _optimizer_or_schedule(name: str, word: str) -> Mapping[str, Any]:
    kinds = CHOICES_BY_WORD[name]
    if word.lower() not in kinds:
        raise InputError(f"{name} is {quoted(word)}; {nearest(word.lower(), kinds)}")
    return {"kind": kinds[word.lower()]}


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

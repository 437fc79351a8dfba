"""Settings of a run: a preset or a YAML file, and dotted overrides, in; one checked `RunConfig` out.

Overrides win over the file. An unknown key is an error with the nearest name. A config can be written as YAML
and run again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, Literal

import yaml

from ..errors import InputError, SpecError, nearest, quoted
from ..families import FAMILIES, NAMES, SIZE_WORDS
from ..spec import Spec
from ..train import Training
from ..tune import Tuning
from .checks import check_keys, check_settings
from .methods import parse_tuning
from .overrides import apply_overrides, overrides, set_value
from .yamlfile import read_yaml

# The tasks, and the forms of rows each can learn from; the first form is the one named in errors. Of several
# forms that the rows may have, the one the task names first is read.
TASKS: dict[str, tuple[str, ...]] = {
    "translate": ("pair", "prompt"),
    "causal": ("text", "prompt", "pair", "messages"),
    "masked": ("text",),
    "pretrain": ("text",),
    "denoise": ("text",),
    "spans": ("text",),
    "classify": ("label", "labels"),
    "regress": ("score",),
    "choose": ("choice",),
    "embed": ("score", "pair"),
    "tag": ("tags",),
    "answer": ("answer",),
}
# The recipes of tasks that are not called like their recipe, for messages.
RECIPES_OF_TASK = {"causal": "lm or sft", "masked": "mlm", "pretrain": "bert-mini"}
# What fine-tuning takes instead of a preset's steps and tokens per batch; a rate is chosen by the width.
FINE_TUNING_EPOCHS = 3
FINE_TUNING_ROWS = {"causal": 4, "answer": 16, "choose": 8, "translate": 16}  # rows per batch
OTHER_ROWS = 32
SETTINGS_FILE = "settings.yaml"  # in the folder of a run
PRESETS = files("clearhead.recipes") / "presets"
RECIPES = sorted(path.name.removesuffix(".yaml") for path in PRESETS.iterdir() if path.name.endswith(".yaml"))


@dataclass(frozen=True)
class DataConfig:
    """Where the rows come from, and how they are truncated and batched."""

    source: str | list[str] | None = None  # a file, two parallel files, a folder, or a built-in corpus
    valid: str | None = None  # a validation file; None: a split of the source, or every 20th row
    map: dict[str, str] | None = None  # columns by role, such as text=review label=stars
    language: str | None = None  # of the targets, for BLEU; None: by their script
    prefix: str | None = None  # text put before every source, such as "summarize: " for T5
    # prompts and answers: auto, by the model's chat template if it has one; chat, always by a template
    template: Literal["auto", "chat"] = "auto"
    length: int = 64  # longest text in tokens; for causal models the length of a row
    truncate: Literal["none", "source"] = "none"  # pairs with a longer source: dropped, or truncated
    tokens: int = 2000  # tokens per batch, padding included
    batch_size: int | None = None  # rows per batch, instead of a number of tokens
    epochs: float | None = None  # passes over the training rows; sets train.steps
    rows: int = 12  # rows per batch, for causal models without batch_size
    smoothing: float = 0.0  # label smoothing
    augment: dict[str, Any] | None = None  # perturbed copies of rows: copies, delete, swap, letters, ...
    back: dict[str, Any] | None = None  # back-translation: model (of the reverse direction), texts (targets)
    masking: Literal["dynamic", "static"] = "dynamic"  # new masks every epoch, or always the same


@dataclass(frozen=True)
class TokenizerConfig:
    """The tokenizer to train; a model that comes with one keeps it."""

    kind: Literal["bpe", "byte-bpe", "unigram", "wordpiece", "chars"] = "bpe"  # how words are split
    vocab: int = 4000  # number of tokens, at most


@dataclass(frozen=True)
class RunConfig:
    """All settings of a training run."""

    task: str  # one of TASKS
    about: str = ""
    data: DataConfig = field(default_factory=DataConfig)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    # family: a name or a folder; edit: changes of the spec, {Attention.kernel: Linear}; quantize: int8 or
    # int4, of a checkpoint whose adapter is trained; the rest: its config
    model: dict[str, Any] = field(default_factory=dict)
    train: Training = field(default_factory=lambda: Training(steps=1000))
    tune: Tuning | None = None  # what is added to a checkpoint, and learns; None: all its weights learn

    def with_absolute_paths(self) -> RunConfig:
        """The same run with files under their full names, so that it can be resumed from any folder."""
        data = self.data
        source = [_absolute(each) for each in data.source] if isinstance(data.source, list) else data.source
        source = _absolute(source) if isinstance(source, str) else source
        valid = None if data.valid is None else _absolute(data.valid)
        return replace(self, data=replace(data, source=source, valid=valid))

    def to_dict(self) -> dict[str, Any]:
        plain = {"task": self.task, "about": self.about, "data": asdict(self.data)}
        return {
            **plain,
            "tokenizer": asdict(self.tokenizer),
            "model": self.model,
            "train": self.train.to_dict(),
            **({} if self.tune is None else {"tune": self.tune.to_dict()}),
        }

    def to_yaml(self) -> str:
        text: str = yaml.safe_dump(self.to_dict(), sort_keys=False, allow_unicode=True)
        return text


def _absolute(name: str) -> str:
    """The full name of a file; the name of a built-in corpus as it is."""
    return str(Path(name).resolve()) if Path(name).exists() else name


def load_run(recipe: str, arguments: Sequence[str] = (), *, fine_tune: bool = False) -> RunConfig:
    """`recipe` is a preset or a YAML file; `arguments` are `--train.lr 3e-4` or `train.lr=3e-4`."""
    return run_of(recipe, overrides(arguments), fine_tune=fine_tune)


def run_of(recipe: str, given: Mapping[str, Any], *, fine_tune: bool = False) -> RunConfig:
    """A preset or a YAML file with some settings replaced.

    With `fine_tune` (or a checkpoint as `model.family`) a preset's settings for fresh models are left open:
    `prepare` then chooses a rate for the checkpoint, trains a few epochs, and validates after each.
    """
    tree = _read_recipe(recipe)
    if recipe in RECIPES:
        family = given.get("model.family")
        if isinstance(family, str):
            tree["model"] = _sizes_for(family, tree["model"])
            fine_tune = fine_tune or not _is_fresh(family)
        if fine_tune:
            _open_for_fine_tuning(tree, given)
    if "train.steps" in given and "data.epochs" not in given:
        set_value(tree, ["data", "epochs"], None)
    if "data.tokens" in given and "data.batch_size" not in given:
        set_value(tree, ["data", "batch_size"], None)
    apply_overrides(tree, given)
    return _parse_run(tree)


def _is_fresh(family: str) -> bool:
    """Whether this names a family or one of its sizes, and not a checkpoint."""
    return family in NAMES


def _sizes_for(family: str, model: Mapping[str, Any]) -> dict[str, Any]:
    """The model settings of a preset that fit another family: its sizes, for a family without a size."""
    if family == model.get("family"):
        return dict(model)
    return {key: value for key, value in model.items() if key in SIZE_WORDS and family in FAMILIES}


def _open_for_fine_tuning(tree: dict[str, Any], given: Mapping[str, Any]) -> None:
    for name in ("train.lr", "train.valid_every"):
        section, key = name.split(".")
        if name == "train.lr" or "train.steps" not in given:
            tree.get(section, {}).pop(key, None)
    set_value(tree, ["data", "epochs"], FINE_TUNING_EPOCHS)
    set_value(tree, ["data", "batch_size"], FINE_TUNING_ROWS.get(tree["task"], OTHER_ROWS))


def with_overrides(run: RunConfig, arguments: Sequence[str]) -> RunConfig:
    """The same config with some settings replaced."""
    tree = run.to_dict()
    apply_overrides(tree, overrides(arguments))
    return _parse_run(tree)


def _read_recipe(recipe: str) -> dict[str, Any]:
    if recipe in RECIPES:
        with as_file(PRESETS / f"{recipe}.yaml") as path:
            return read_yaml(path)
    path = Path(recipe)
    if path.suffix in (".yaml", ".yml") and path.is_file():
        return read_yaml(path)
    raise InputError(f"no recipe is called {recipe!r}; {nearest(recipe, RECIPES)}")


def _parse_run(tree: Mapping[str, Any]) -> RunConfig:
    check_keys("a run", tree, [f.name for f in fields(RunConfig)])
    task = tree.get("task")
    if not isinstance(task, str) or task not in TASKS:  # a list cannot be looked up
        raise InputError(f"task is {quoted(task)}; {nearest(str(task), TASKS)}")
    sections: dict[str, Any] = {name: tree[name] for name in ("task", "about", "model") if name in tree}
    for name, kind in (("data", DataConfig), ("tokenizer", TokenizerConfig)):
        section = tree.get(name) or {}
        check_keys(name, section, [f.name for f in fields(kind)])
        sections[name] = kind(**{key: _as_int(kind, key, value) for key, value in section.items()})
        check_settings(name, sections[name])
    sections["train"] = _parse_training(tree.get("train") or {})
    sections["tune"] = parse_tuning(tree.get("tune"))
    sections["model"] = sections.get("model") or {}
    _check_type("model", sections["model"], dict)
    _check_type("model.family", sections["model"].get("family", ""), str)
    _check_type("model.edit", sections["model"].get("edit") or {}, dict)
    if (bits := sections["model"].get("quantize")) in (4, 8):
        sections["model"] |= {"quantize": f"int{bits}"}
    _check_type("model.quantize", sections["model"].get("quantize") or "", str)
    _check_type("about", sections.get("about", ""), str)
    return RunConfig(**sections)


def _check_type(name: str, value: Any, kind: type) -> None:
    if not isinstance(value, kind):
        expected = "text" if kind is str else "keys and values"
        raise InputError(f"{name} is {quoted(value)}; expected {expected}")


def _as_int(kind: type, key: str, value: Any) -> Any:
    """1e3 is read as a float; where a setting is an int, a whole float becomes one."""
    int_settings = {f.name for f in fields(kind) if f.type == "int"}
    return int(value) if key in int_settings and isinstance(value, float) and value.is_integer() else value


def _parse_training(section: Mapping[str, Any]) -> Training:
    check_keys("train", section, ["kind", *(f.name for f in fields(Training))])
    values = {name: _as_whole_number(name, value) for name, value in section.items() if name != "kind"}
    try:
        training = Spec.from_dict({"kind": "Training", **values})
    except SpecError as error:
        raise InputError(str(error).replace("Training.", "train.")) from None
    assert isinstance(training, Training)
    return training


def _as_whole_number(name: str, value: Any) -> Any:
    """`--train.steps 1e3` means the int 1000; settings that are floats stay floats."""
    is_whole = isinstance(value, float) and value.is_integer()
    return int(value) if is_whole and name not in ("lr", "clip", "time_budget") else value

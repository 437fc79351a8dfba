"""The settings of a recipe, for help: a recipe in; every setting with its value and a sentence out.

The sentence is the comment behind a field in its dataclass, so that there is one place to write it.
"""

from __future__ import annotations

import inspect
import io
import tokenize
from collections.abc import Iterator
from dataclasses import fields
from typing import Any, NamedTuple

from ..families import SIZE_WORDS, family_and_config
from ..spec import Spec
from ..tune import Lora, Tuning
from .methods import METHODS, parse_tuning
from .overrides import SYNONYMS
from .settings import RunConfig

ABOUT_SIZES = {
    "width": "numbers per token, the hidden size",
    "depth": "layers of each stack",
    "heads": "attention heads of each layer",
    "feedforward": "width of the feed-forward layers (default: 4 x width)",
    "positions": "longest text in tokens that has positions",
    "dropout": "dropout of embeddings and layers",
    "attention_dropout": "dropout of attention weights",
}
ABOUT_TUNING = "what learns beside a checkpoint: " + ", ".join(METHODS)
ABOUT_QUANTIZE = "int8 or int4: the number format of a checkpoint whose adapter is trained"
ABOUT_FAMILY = "a family or size (clearhead families), or a checkpoint to fine-tune, as --from"


class SettingHelp(NamedTuple):
    name: str  # dotted
    value: Any
    sentence: str
    short: str  # its short name, or ""


def describe_settings(run: RunConfig) -> Iterator[SettingHelp]:
    """Every setting of a run, in the order of the file."""
    sections: tuple[tuple[str, Any], ...] = (
        ("data", run.data),
        ("tokenizer", run.tokenizer),
        ("train", run.train),
    )
    for section, values in sections:
        comments = field_comments(type(values))
        for each in fields(values):
            value = getattr(values, each.name)
            yield _setting(f"{section}.{each.name}", value, comments.get(each.name, ""))
            if isinstance(value, Spec):
                inner = field_comments(type(value))
                for part in fields(value):
                    name = f"{section}.{each.name}.{part.name}"
                    yield _setting(name, getattr(value, part.name), inner.get(part.name, ""))
    yield from _describe_tuning(run)
    yield from _describe_model(run)


def describe_method(method: str) -> Iterator[SettingHelp]:
    """Every setting of a way of tuning, by its word."""
    own = parse_tuning(method)
    comments = field_comments(type(own))
    for each in fields(own):  # type: ignore[arg-type]
        yield _setting(f"tune.{each.name}", getattr(own, each.name), comments.get(each.name, ""))


def _describe_tuning(run: RunConfig) -> Iterator[SettingHelp]:
    """The settings of the run's tuning, or of LoRA, and those that only other kinds have."""
    yield _setting("tune", run.tune, ABOUT_TUNING)
    own = run.tune or Lora()
    seen = {}
    for kind in (type(own), *Tuning.kinds().values()):
        comments = field_comments(kind)
        for each in fields(kind):
            if each.name not in seen:
                value = getattr(own, each.name, getattr(kind(), each.name))
                only = "" if kind is type(own) else f"{kind.__name__}: "
                seen[each.name] = _setting(f"tune.{each.name}", value, only + comments.get(each.name, ""))
    yield from seen.values()


def _describe_model(run: RunConfig) -> Iterator[SettingHelp]:
    name = str(run.model.get("family"))
    yield _setting("model.family", name, ABOUT_FAMILY)
    yield _setting("model.quantize", run.model.get("quantize"), ABOUT_QUANTIZE)
    for word, sentence in ABOUT_SIZES.items():
        yield _setting(f"model.{word}", run.model.get(word), sentence)
    family, config = family_and_config(name)
    known = {key for keys in SIZE_WORDS.values() for key in keys}
    for key, value in config.items():
        if key not in known:
            yield _setting(
                f"model.{key}", run.model.get(key, value), f"as in the config.json of {family.title}"
            )


def _setting(name: str, value: Any, sentence: str) -> SettingHelp:
    short = next((f"--{word.replace('_', '-')}" for word, full in SYNONYMS.items() if full == name), "")
    return SettingHelp(name, value, sentence, short)


def field_comments(kind: type) -> dict[str, str]:
    """The comment behind, or in the lines above, each field of a dataclass and of its parents."""
    comments: dict[str, str] = {}
    for parent in reversed(kind.__mro__):
        if parent.__module__.startswith("clearhead."):
            comments |= _own_comments(inspect.getsource(parent))
    return comments


def _own_comments(source: str) -> dict[str, str]:
    found: dict[str, str] = {}
    above: list[str] = []
    name, depth = "", 0
    for token in tokenize.generate_tokens(io.StringIO(inspect.cleandoc(source)).readline):
        if token.type == tokenize.INDENT:
            depth += 1
        elif token.type == tokenize.DEDENT:
            depth -= 1
        elif depth != 1:
            continue
        elif token.type == tokenize.COMMENT:
            text = token.string.removeprefix("#").strip()
            if name:
                found[name] = f"{found[name]} {text}" if name in found else text
            else:
                above.append(text)
        elif token.type == tokenize.NAME and not name and _is_field(token.line, token.string):
            name = token.string
            if above:
                found[name] = " ".join(above)
            above = []
        elif token.type == tokenize.NEWLINE:
            name, above = "", []
    return found


def _is_field(line: str, name: str) -> bool:
    return line.strip().startswith(f"{name}:")

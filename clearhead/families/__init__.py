"""The families: a name in, a spec out. One short file of data each; a new one is a file and a line here."""

from __future__ import annotations

import sys
from types import ModuleType

from ..errors import SpecError, nearest
from . import (
    albert,
    bart,
    bert,
    big_bird,
    distilbert,
    gemma2,
    gpt2,
    gpt_neox,
    led,
    llama,
    longformer,
    mistral,
    openai_gpt,
    qwen2,
    qwen3,
    reformer,
    roberta,
    t5,
    transfo_xl,
    transformer,
    xlnet,
)
from .family import Config, Family, HeadKind, normalize_config
from .size_words import SIZE_WORDS, config_from_words

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        transformer.FAMILY,
        openai_gpt.FAMILY,
        gpt2.FAMILY,
        gpt_neox.FAMILY,
        llama.FAMILY,
        mistral.FAMILY,
        qwen2.FAMILY,
        qwen3.FAMILY,
        gemma2.FAMILY,
        bert.FAMILY,
        roberta.FAMILY,
        roberta.XLMR,
        albert.FAMILY,
        distilbert.FAMILY,
        t5.FAMILY,
        t5.MT5,
        bart.FAMILY,
        bart.MBART,
        longformer.FAMILY,
        led.FAMILY,
        big_bird.FAMILY,
        transfo_xl.FAMILY,
        reformer.FAMILY,
        xlnet.FAMILY,
    )
}
SIZES: dict[str, Family] = {size: family for family in FAMILIES.values() for size in family.sizes}


def families() -> dict[str, tuple[str, ...]]:
    """Every family by name, with its named sizes."""
    return {family.name: tuple(family.sizes) for family in FAMILIES.values()}


def of_type(model_type: str) -> Family:
    """The family that a config.json names."""
    for family in FAMILIES.values():
        if family.key == model_type:
            return family
    known = [family.key for family in FAMILIES.values()]
    raise SpecError(f"model_type {model_type!r} is not known here; {nearest(model_type, known)}")


def family_and_config(name: str) -> tuple[Family, Config]:
    """A family or one of its named sizes: `bert`, `bert-large`, `gpt3`."""
    if name in SIZES:
        return SIZES[name], SIZES[name].config(SIZES[name].sizes[name])
    if name in FAMILIES:
        return FAMILIES[name], FAMILIES[name].config({})
    raise SpecError(f"no family or size is called {name!r}; {nearest(name, [*SIZES, *FAMILIES])}")


__all__ = [
    "FAMILIES", "SIZES", "Config", "Family", "HeadKind", "families", "family_and_config", "of_type",
    # for the other packages
    "SIZE_WORDS", "config_from_words", "normalize_config",
]  # fmt: skip


class _CallableModule(ModuleType):
    """`clearhead.families` is this package, and `clearhead.families()` is public API as well."""

    def __call__(self) -> dict[str, tuple[str, ...]]:
        return families()


sys.modules[__name__].__class__ = _CallableModule

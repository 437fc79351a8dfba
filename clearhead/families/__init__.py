"""The families: a name in, a spec out. One short file of data each; a new one is a file and a line here."""

from __future__ import annotations

import sys
from types import ModuleType

from ..errors import SpecError, nearest, quoted
from .family import ONE_TOWER_OUTPUTS, Config, Family, HeadKind
from .key_names import normalize_config
from .shared import HF_ACTIVATIONS
from .size_words import SIZE_WORDS, config_from_words
from .text import (
    albert,
    bart,
    bert,
    big_bird,
    blenderbot,
    bloom,
    cohere,
    cohere2,
    deberta,
    deepseek,
    distilbert,
    electra,
    ernie,
    esm,
    eurobert,
    falcon,
    fnet,
    funnel,
    gemma,
    gemma2,
    gemma3,
    glm,
    gpt2,
    gpt_bigcode,
    gpt_neo,
    gpt_neox,
    gpt_oss,
    gptj,
    granite,
    helium,
    led,
    llama,
    longformer,
    longt5,
    m2m_100,
    mistral,
    mixtral,
    modernbert,
    mpnet,
    nomic_bert,
    olmo,
    olmo2,
    olmo3,
    openai_gpt,
    opt,
    pegasus,
    phi,
    phi3,
    qwen2,
    qwen3,
    qwen_moe,
    reformer,
    rembert,
    roberta,
    roformer,
    seed_oss,
    smollm3,
    stablelm,
    starcoder2,
    switch_transformers,
    t5,
    transfo_xl,
    transformer,
    umt5,
    xlm_roberta_xl,
    xlnet,
)
from .unsupported import explain_unsupported

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        transformer.FAMILY,
        openai_gpt.FAMILY,
        gpt2.FAMILY,
        gpt_neo.FAMILY,
        gpt_bigcode.FAMILY,
        gpt_neox.FAMILY,
        gptj.FAMILY,
        gptj.CODEGEN,
        opt.FAMILY,
        bloom.FAMILY,
        falcon.FAMILY,
        phi.FAMILY,
        llama.FAMILY,
        mistral.FAMILY,
        mixtral.FAMILY,
        qwen2.FAMILY,
        qwen3.FAMILY,
        qwen_moe.QWEN2_MOE,
        qwen_moe.QWEN3_MOE,
        gpt_oss.FAMILY,
        deepseek.DEEPSEEK_V2,
        deepseek.DEEPSEEK_V3,
        gemma.FAMILY,
        gemma2.FAMILY,
        gemma3.FAMILY,
        starcoder2.FAMILY,
        granite.FAMILY,
        phi3.FAMILY,
        smollm3.FAMILY,
        olmo.FAMILY,
        olmo2.FAMILY,
        olmo3.FAMILY,
        stablelm.FAMILY,
        cohere.FAMILY,
        cohere2.FAMILY,
        helium.FAMILY,
        seed_oss.FAMILY,
        glm.FAMILY,
        bert.FAMILY,
        roberta.FAMILY,
        roberta.XLMR,
        roberta.CAMEMBERT,
        roberta.DATA2VEC,
        albert.FAMILY,
        distilbert.FAMILY,
        ernie.FAMILY,
        electra.FAMILY,
        mpnet.FAMILY,
        rembert.FAMILY,
        xlm_roberta_xl.FAMILY,
        roformer.FAMILY,
        esm.FAMILY,
        nomic_bert.FAMILY,
        modernbert.FAMILY,
        eurobert.FAMILY,
        deberta.FAMILY,
        deberta.DEBERTA_V2,
        fnet.FAMILY,
        t5.FAMILY,
        t5.MT5,
        umt5.FAMILY,
        longt5.FAMILY,
        switch_transformers.FAMILY,
        bart.FAMILY,
        bart.MBART,
        m2m_100.FAMILY,
        pegasus.FAMILY,
        bart.PLBART,
        blenderbot.FAMILY,
        longformer.FAMILY,
        led.FAMILY,
        big_bird.FAMILY,
        transfo_xl.FAMILY,
        reformer.FAMILY,
        xlnet.FAMILY,
        funnel.FAMILY,
    )
}
BY_MODEL_TYPE = {family.key: family for family in FAMILIES.values()}
SIZES: dict[str, Family] = {size: family for family in FAMILIES.values() for size in family.sizes}

NAMES = frozenset({*SIZES, *FAMILIES, *BY_MODEL_TYPE})  # of what can be built


def families() -> dict[str, tuple[str, ...]]:
    """Every family by name, with its named sizes."""
    return {family.name: tuple(family.sizes) for family in FAMILIES.values()}


def of_type(model_type: str) -> Family:
    """The family that a config.json names."""
    for family in FAMILIES.values():
        if family.key == model_type:
            return family
    known = [family.key for family in FAMILIES.values()]
    raise SpecError(f"model_type {quoted(model_type)} is not supported; {nearest(model_type, known)}")


def family_and_config(name: str) -> tuple[Family, Config]:
    """A family, its model type or one of its named sizes: `bert`, `gemma3_text`, `bert-large`, `gpt3`."""
    if name in SIZES:
        return SIZES[name], SIZES[name].config(SIZES[name].sizes[name])
    family = FAMILIES.get(name) or BY_MODEL_TYPE.get(name)
    if family is not None:
        return family, family.config({})
    raise SpecError(f"no family or size is called {name!r}; {nearest(name, NAMES)}")


__all__ = [
    "FAMILIES", "SIZES", "NAMES", "BY_MODEL_TYPE", "Config", "Family", "HeadKind", "families",
    "family_and_config", "of_type",
    # for the other packages
    "ONE_TOWER_OUTPUTS", "SIZE_WORDS", "config_from_words", "explain_unsupported", "normalize_config",
    "HF_ACTIVATIONS",
]  # fmt: skip


class _CallableModule(ModuleType):
    """`clearhead.families` is this package, and `clearhead.families()` is public API as well."""

    def __call__(self) -> dict[str, tuple[str, ...]]:
        return families()


sys.modules[__name__].__class__ = _CallableModule

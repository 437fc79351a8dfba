"""Tuning a bundle: a bundle and a tuning in; a tuned bundle over the same weights out, and merged ones."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor

from ..engine import layout, preparation
from ..errors import InputError, UnsupportedError
from ..families import Family, HeadKind
from ..nn import Model, generator
from ..tune import ModelNames, TunedModel, Tuning, attach_tuning, merged_model, names_of_parameters
from .parts import BundleParts

B = TypeVar("B", bound=BundleParts)
MERGED_ROWS, MERGED_LENGTH = 4, 16  # random ids that a merged model is compared on


def tune(bundle: B, tuning: Tuning, *, seed: int = 0) -> B:
    """A bundle whose model has what `tuning` adds, over the weights of this one, which stays as it is.

    What learns is drawn from `seed`; so are the parameters of a head that is new. `ch.train` trains it,
    `ch.save` writes an adapter, `.merged()` puts it into the weights, and `.base` is the bundle before.
    """
    if not isinstance(bundle, BundleParts):
        raise InputError(f"tune takes a bundle, as ch.load returns one; given {type(bundle).__name__}")
    if bundle.tuning is not None:
        kind = type(bundle.tuning.value).__name__
        raise InputError(
            f"this bundle is tuned already ({kind}): tune its base, bundle.base, or bundle.merged()"
        )
    names = model_names(bundle)
    tuned = attach_tuning(bundle.model, tuning, names=names, seed=seed, learn=new_parameters(bundle, names))
    return tuned_bundle(bundle, tuned)


def new_parameters(bundle: BundleParts, names: ModelNames) -> list[str]:
    """The parameters of a new head, which learn with any tuning.

    A buffer of their class that the checkpoint lacks is what it is there, and no adapter holds it.
    """
    return [name for name in bundle.report.fresh if not names.is_buffer(name)]


def copy_tuning(bundle: BundleParts, base: B, *, seed: int = 0) -> B:
    """The tuning of a bundle over another base with the same towers, such as one with another head.

    What learns is copied where the other base has it, too, and drawn from `seed` where it does not.
    """
    assert bundle.tuning is not None
    own, names = {name for name, _ in base.model.named_parameters()}, model_names(base)
    learn = [name for name in bundle.tuning.trained if name in own] + new_parameters(base, names)
    tuned = attach_tuning(
        base.model,
        bundle.tuning.value,
        names=names,
        seed=seed,
        learn=list(dict.fromkeys(learn)),
    )
    before = dict(bundle.model.named_parameters())
    with torch.no_grad():
        for name, x in tuned.model.named_parameters():
            if name in tuned.tuning.trained and name in before and name not in base.report.fresh:
                x.copy_(before[name])
    kept = bundle.adapter_kept if base.task == bundle.task else None  # it says what the head is
    return replace(tuned_bundle(base, tuned), adapter_kept=kept)


def tuned_bundle(bundle: B, tuned: TunedModel) -> B:
    layout.for_inference(tuned.model, only_trained=True)
    return replace(
        bundle,
        model=tuned.model,
        spec=tuned.spec,
        tuning=tuned.tuning,
        base=bundle,
        config=dict(bundle.config),
        generation=dict(bundle.generation),
        files=dict(bundle.files),
        scores={},
    )


def model_names(bundle: BundleParts) -> ModelNames:
    """What transformers calls the parts of the bundle's model."""
    before = bundle if bundle.base is None else bundle.base
    parameters, aliases = names_of_parameters(before.model)
    family = bundle.family
    if family is None:
        return ModelNames(parameters, aliases=aliases)
    read = [*bundle.report.used, *bundle.report.aliases]
    rules = family.class_weights or family.weights
    return ModelNames(
        parameters,
        rules(family.config(bundle.config, stored=read), bundle.task),
        partial(_of_class, family, bundle.task),
        partial(_of_table, family, bundle.task),
        prefixes=tuple(prefix for prefix in (family.prefix, *family.head_prefix.values()) if prefix),
        linear_experts=family.linear_experts,
        names_of_experts=family.names_of_experts,
        aliases=aliases,
    )


def _of_class(family: Family, task: HeadKind, name: str) -> str:
    """A name of the weight table as transformers' class for this head has it."""
    if task in family.bare:
        return name.removeprefix(family.prefix)
    return family.stored_name(name, task)


def _of_table(family: Family, task: HeadKind, name: str) -> str:
    return family.prefix + name if task in family.bare else family.table_name(name)


def merged(bundle: B) -> B:
    """A bundle without adapters, whose weights have them in: computed in float64, rounded once.

    `report.merged` is the largest difference to the tuned model on random ids, relative to its output.
    """
    if bundle.tuning is None or bundle.base is None:
        raise InputError("this bundle is not tuned: there is nothing to merge")
    if quantized := quantized_precision(bundle):
        raise UnsupportedError(
            f"adapters cannot be merged into {quantized} weights, where rounding would erase them: use the "
            f"adapter beside them as it is, or merge it into the float base and quantize the result"
        )
    model = merged_model(bundle.model, bundle.tuning)
    layout.for_inference(model)
    whole = replace(
        bundle,
        model=model,
        spec=bundle.base.spec,
        tuning=None,
        base=None,
        adapter_kept=None,
        weight_files=(),  # other weights than those that were loaded
        loaded_from=None,
    )
    return replace(whole, report=replace(bundle.report, fresh=(), merged=difference(bundle, whole)))


def quantized_precision(bundle: BundleParts) -> str | None:
    """int8, int8-fine or int4, if the model computes with such weights."""
    done = preparation(bundle.model)
    return done.precision if done is not None and done.precision not in ("float32", "bfloat16") else None


@torch.no_grad()
def difference(one: BundleParts, other: BundleParts) -> float:
    """The largest difference of the outputs of two models on random ids, relative to the largest output."""
    inputs = probe(one.spec)
    before, after = (bundle.model(*(x.to(bundle.device) for x in inputs)) for bundle in (one, other))
    return float((before - after).abs().max() / before.abs().max().clamp(min=1e-30))


def probe(spec: Model) -> list[Tensor]:
    """Random inputs of a model, the same for every model of a spec."""
    length = min(MERGED_LENGTH, spec.max_length or MERGED_LENGTH)
    return [
        tower.embed.example(MERGED_ROWS, length, generator(0, "probe", str(i)))
        for i, tower in enumerate(list(spec.towers.values())[: spec.inputs])
    ]

"""`clearhead inspect`: a folder, a hub id or the name of a size in; a description with its sizes out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from ..errors import InputError, LoadError, nearest
from .console import ERR, OUT, amount, print_json, table
from .opening import adapted
from .options import NO_ADAPTER, AdapterOptions, Edits, Json, ModelOrSize, Set, edits

if TYPE_CHECKING:
    from ..bundle import Bundle
    from ..families import Family, HeadKind
    from ..lens.cost import Cost
    from ..nn import Model

HEAD_OUTPUTS: dict[HeadKind, str] = {
    "hidden": "hidden states, sentence embeddings",
    "tokens": "next or missing words",
    "encoder": "hidden states of the encoder alone, sentence embeddings",
    "decoder": "next words, by the decoder alone",
    "labels": "a label for a text",
    "tags": "a label for every token",
    "span": "the span of an answer",
    "choice": "the score of one of several choices",
    "replaced": "whether each token was replaced by another",
    "pair": "whether two texts follow each other",
    "pretrain": "words at every token, and whether two texts follow each other",
}


def inspect(
    what: ModelOrSize,
    *,
    over: AdapterOptions = NO_ADAPTER,
    set_: Set = None,
    diff: Annotated[
        str | None, Parameter(help="another model: which fields differ, and what each costs")
    ] = None,
    length: Annotated[int, Parameter(help="sequence length for counting FLOPs")] = 128,
    json: Json = False,
) -> None:
    """Describe a model. Named sizes are counted without allocating memory."""
    from ..store import MANIFEST

    if diff is not None:
        if over.adapter is not None:
            raise InputError("--diff compares the specs of two models, and an adapter has none: leave it out")
        _diff(what, diff, length, edits(set_), json=json)
        return
    facts = _facts(what, edits(set_), over)
    if json:
        print_json(facts)
        return
    OUT.print(f"[bold]{facts['title']}[/] · {facts['year']} · {facts['mode']} · gives {facts['can']}")
    for side, words in facts["towers"].items():
        OUT.print(f"{side:<11}{words}")
    active = f" · {facts['active']:,} of them for each token" if facts["active"] < facts["parameters"] else ""
    OUT.print(f"{'size':<11}{facts['parameters']:,} parameters{active} · {facts['bytes']}")
    parts = table("", "parameters", "share", right=(1, 2))
    for part, count in facts["parts"].items():
        parts.add_row(f"  {part}", f"{count:,}", f"{count / facts['parameters']:.1%}")
    OUT.print(parts)
    if facts["cache"]:
        OUT.print(f"{'cache':<11}{facts['cache']:,} numbers per token while decoding")
    for name in ("tuning", "weights", "tokenizer"):
        if facts.get(name):
            OUT.print(f"{name:<11}{facts[name]}")
    if facts.get("manifest"):
        OUT.print(f"{'files':<11}{facts['manifest']['files']} match {MANIFEST}")


def _facts(what: str, edit: Edits, over: AdapterOptions) -> dict[str, Any]:
    if _is_name(what) and over.adapter is not None:
        raise InputError(f"{what} is a size without weights; an adapter is put over a model")
    if _is_name(what):
        family, spec = _named_size(what, edit)
        return _describe(family, "tokens", spec) | {"bytes": f"{amount(4 * spec.count())}B in float32"}
    manifest = _manifest(Path(what))
    bundle = _load(what, edit, over)
    assert bundle.family is not None
    facts = _describe(bundle.family, bundle.task, bundle.spec)
    stored = sum(p.numel() * p.element_size() for p in bundle.model.parameters())
    dtype = str(next(bundle.model.parameters()).dtype).removeprefix("torch.")
    return facts | {
        "bytes": f"{amount(stored)}B in {dtype}",
        "weights": str(bundle.report),
        "tuning": str(bundle.tuning) if bundle.tuning else None,
        "tokenizer": _tokenizer(bundle),
        "manifest": manifest,
    }


def _manifest(folder: Path) -> dict[str, int] | None:
    """The number of files that match the manifest of the run, if there is one; a changed file is an error."""
    from ..store import MANIFEST, has_manifest, verify

    if not has_manifest(folder):
        return None
    try:
        return {"files": verify(folder)}
    except LoadError as error:
        advice = f"publish again with clearhead train --resume, or remove {MANIFEST} to keep the change"
        raise LoadError(f"{error}; it was changed after the run wrote it: {advice}") from None


def _describe(family: Family, task: HeadKind, spec: Model) -> dict[str, Any]:
    from ..generate import cache_values
    from ..lens import idle_parameters, sentence, shape

    parts = spec.count_parts()
    return {
        "family": family.name,
        "title": family.title,
        "year": family.year,
        "mode": family.mode,
        "task": task,
        "can": HEAD_OUTPUTS[task],
        "towers": {side: sentence(tower) for side, tower in spec.towers.items()},
        "shape": {side: shape(tower) for side, tower in spec.towers.items()},
        "parameters": sum(parts.values()),
        "active": sum(parts.values()) - idle_parameters(spec),
        "parts": parts,
        "cache": cache_values(spec),
    }


def _tokenizer(bundle: Bundle) -> str:
    tokenizer = bundle.tokenizer
    if tokenizer is None:
        return "none in the folder: ids work, text does not"
    words = {"pad": tokenizer.pad, "bos": tokenizer.bos, "eos": tokenizer.eos, "mask": tokenizer.mask}
    specials = ", ".join(f"{name} {special.text}" for name, special in words.items() if special)
    return f"{tokenizer.vocab:,} tokens" + (f" · {specials}" if specials else "")


def _is_name(what: str) -> bool:
    from ..families import NAMES

    return what in NAMES and not Path(what).exists()


def _named_size(what: str, edit: Edits) -> tuple[Family, Model]:
    from ..bundle import apply_edits, spec_of
    from ..families import family_and_config

    family, config = family_and_config(what)
    return family, apply_edits(spec_of(family, config, "tokens"), edit)


def spec_from(what: str, edit: Edits | None = None) -> Model:
    """The spec of a named size, a folder or a hub id, edited."""
    if _is_name(what):
        return _named_size(what, edit or {})[1]
    bundle = _load(what, edit or {})
    if bundle.tuning is not None:
        beside = f"without {bundle.tuning.trainable:,} parameters that were trained"
        ERR.print(f"{what} is an adapter: the numbers are those of its base, {beside}", soft_wrap=True)
    return bundle.spec


def _load(what: str, edit: Edits, over: AdapterOptions = NO_ADAPTER) -> Bundle:
    from ..bundle import open_mapped
    from ..families import NAMES

    try:
        model, adapter = adapted(what, over)
        return open_mapped(model, edit=edit, **adapter)  # read-only: nothing is copied
    except LoadError as error:
        if Path(what).exists() or "/" in what:
            raise
        raise LoadError(f"{error}. As a named size: {nearest(what, NAMES)}") from None


def _diff(one: str, two: str, length: int, edit: Edits, *, json: bool) -> None:
    """--set applies to the second model: `inspect gpt2 --diff gpt2 --set ...` shows its effect."""
    from ..lens import differences
    from ..lens.cost import cost

    first, second = spec_from(one), spec_from(two, edit)
    before, after = (cost(spec, length=length) for spec in (first, second))
    changes = differences(first, second, length)
    if json:
        changes_json = [
            vars(change) | {"cost": change.cost.to_dict() if change.cost else None} for change in changes
        ]
        print_json({"before": before.to_dict(), "after": after.to_dict(), "changes": changes_json})
        return
    name = f"{two}, edited" if edit else two
    OUT.print(
        f"[bold]{one} → {name}[/] · {length} tokens · {before.parameters:,} → {after.parameters:,} parameters"
    )
    # Lines, not a table: a choice may be a whole spec, and no figure is cut in a narrow terminal.
    for change in changes:
        more = f" (and {len(change.places) - 1} more)" if len(change.places) > 1 else ""
        OUT.print(f"{change.places[0]}{more}: {_value(change.before)} → {_value(change.after)}", markup=False)
        effect = _effect(before, change.cost) if change.cost else "possible only together with others"
        OUT.print(f"    {effect}", style="dim")
    OUT.print(f"together: {_effect(before, after)}")


def _value(choice: object) -> str:
    return str(choice) or "none"  # no biases are an empty text


def _effect(before: Cost, after: Cost) -> str:
    kinds = (
        (" parameters", before.parameters, after.parameters),
        ("FLOP", before.flops, after.flops),
        ("B of cache", before.cache, after.cache),
    )
    effects = [_delta(a, b, unit) for unit, a, b in kinds if a != b]
    return " · ".join(effects) or "no change in parameters, FLOP or cache"


def _delta(a: int, b: int, unit: str) -> str:
    """+255 M parameters (+205%)."""
    share = (b - a) / a if a else 0.0
    shown = f" ({share:+.1%})" if 0.0005 <= abs(share) < 1 else f" ({share:+,.0%})" if abs(share) >= 1 else ""
    return f"{'+' if b > a else '-'}{amount(abs(b - a))}{unit}{shown}"

"""`clearhead look positions` and `look architecture`: specs as pictures, without an input text."""

from __future__ import annotations

from pathlib import Path

from ...bundle import load, spec_of
from ...errors import InputError
from ...families import NAMES, family_and_config
from ...lens import PositionEffects, effects_in_model, position_effects, scheme_named, sentence, shape
from ...lens.pictures import architecture, position_picture
from ...nn import Model
from ..console import OUT, print_json


def show_positions(word: str, model: str | None, save: Path | None, *, json: bool) -> None:
    """A scheme at its defaults, 100 positions of width 512; `own` is the trained one of a model."""
    effects = _effects_of_model(model) if word == "own" else position_effects(scheme_named(word, 100))
    similarity = effects.similarity
    facts = {
        "scheme": effects.name,
        "positions": None if effects.added_TD is None else list(effects.added_TD.shape),
        "wavelengths": [round(w, 3) for w in effects.wavelengths],
        "similarity": None if similarity is None else [round(x, 4) for x in similarity.tolist()],
        "bias": None
        if effects.bias_HT is None
        else [[round(x, 4) for x in row] for row in effects.bias_HT.tolist()],
    }
    path = position_picture(effects).save(save) if save is not None else None
    if json:
        print_json({**facts, "saved": path})
        return
    OUT.print(f"[bold]{effects.name}[/]")
    if effects.wavelengths:
        first, last = effects.wavelengths[0], effects.wavelengths[-1]
        OUT.print(
            f"wavelengths    {first:.2f} to {last:,.0f} tokens, {len(effects.wavelengths)} pairs of channels"
        )
    if similarity is not None:
        OUT.print(
            "similarity     "
            + " · ".join(
                f"{d} apart {float(similarity[d]):.2f}"
                for d in (1, 2, 4, 8, 16, 32, 64)
                if d < len(similarity)
            )
        )
    if effects.bias_HT is not None:
        for head, row in enumerate(effects.bias_HT):
            at = [d for d in (0, 1, 4, 16, 64) if d < len(row)]
            OUT.print(f"bias head {head:<4} " + " · ".join(f"{d} back {float(row[d]) + 0.0:.2f}" for d in at))
    OUT.print(
        f"saved          {path}" if path else "draw it with --save positions.png",
        style=None if path else "dim",
    )


def _effects_of_model(model: str | None) -> PositionEffects:
    if model is None:
        raise InputError("own needs a model: clearhead look positions own FOLDER")
    bundle = load(model)
    stack = list(bundle.model.stacks.values())[-1]
    attention, spec = stack.spec.pattern[0].attention, stack.spec
    width, (heads, head_dim) = spec.embed.table_width(spec.width), attention.sizes(spec.width)
    return effects_in_model(
        stack.positions,
        spec.positions,
        length=100,
        width=width,
        heads=heads,
        head_dim=head_dim,
        attention=stack.blocks[0].attn,
    )


def show_architecture(what: str, save: Path | None, *, json: bool) -> None:
    title, spec = _spec(what)
    sides = spec.towers
    path = architecture(spec, title).save(save) if save is not None else None
    if json:
        facts = {side: shape(tower) for side, tower in sides.items()}
        print_json({"title": title, "parameters": spec.count(), "towers": facts, "saved": path})
        return
    OUT.print(f"[bold]{title}[/] · {spec.count():,} parameters")
    for side, tower in sides.items():
        OUT.print(f"{side:<11}{sentence(tower)}")
    OUT.print(
        f"saved      {path}" if path else "draw it with --save model.svg", style=None if path else "dim"
    )


def _spec(what: str) -> tuple[str, Model]:
    if what in NAMES and not Path(what).exists():
        family, config = family_and_config(what)
        return what, spec_of(family, config, "tokens")
    bundle = load(what)
    return bundle.family.title if bundle.family else what, bundle.spec

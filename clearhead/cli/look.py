"""`clearhead look`: a model and a text in; who looks at whom out, in the terminal, a picture or a page.

Also position schemes (`--positions rope`), runs (`--curves`, `--gradients`, `--loss`), masks (`--check-mask`)
and the drawing of any architecture (`--architecture`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from ..errors import InputError


def look(
    model: Annotated[str | None, Parameter(help="a folder, a hub id, a run, or a saved trace")] = None,
    text: Annotated[str | None, Parameter(help="what it reads")] = None,
    *,
    target: Annotated[str | None, Parameter(help="the answer to trace, or the second text of a pair")] = None,
    kind: Annotated[Literal["self", "decoder", "cross"] | None, Parameter(help="which attention")] = None,
    layer: Annotated[int | None, Parameter(help="from 0; -1 is the last")] = None,
    head: Annotated[int | None, Parameter(help="from 0; without it, all heads together")] = None,
    word: Annotated[str | None, Parameter(help="one token: where it looks")] = None,
    generate: Annotated[
        bool, Parameter(negative="", show_default=False, help="let it go on, one frame per new token")
    ] = False,
    beams: Annotated[int | None, Parameter(help="beam search, and its whole tree")] = None,
    new: Annotated[int, Parameter(help="at most so many new tokens")] = 32,
    without: Annotated[
        list[str] | None,
        Parameter(negative="", help="head:3.7, attn:3, mlp:3, norm:3, residual:3, scale, mask, positions"),
    ] = None,
    set: Annotated[
        list[str] | None,
        Parameter(
            negative="", help="ADDRESS=VALUE: a number, mean, x0.5; or a choice, Attention.kernel=Linear"
        ),
    ] = None,
    heads: Annotated[
        bool, Parameter(negative="", show_default=False, help="what every head does, in numbers")
    ] = False,
    importance: Annotated[
        bool, Parameter(negative="", show_default=False, help="switch off every head in turn")
    ] = False,
    logits: Annotated[
        bool, Parameter(negative="", show_default=False, help="what each layer would have said")
    ] = False,
    activations: Annotated[
        bool, Parameter(negative="", show_default=False, help="mean, spread and largest values inside")
    ] = False,
    view: Annotated[
        str | None,
        Parameter(
            help="for --save: heat grid two arcs lines alignment logits tree rollout importance entropy"
        ),
    ] = None,
    save: Annotated[
        Path | None, Parameter(help=".png .svg .pdf .html, or .safetensors for the trace")
    ] = None,
    html: Annotated[
        bool, Parameter(negative="", show_default=False, help="an interactive page, look.html")
    ] = False,
    positions: Annotated[
        str | None, Parameter(help="rope sinusoidal alibi learned t5; own: the model's")
    ] = None,
    architecture: Annotated[
        bool, Parameter(negative="", show_default=False, help="draw the model; named sizes too")
    ] = False,
    curves: Annotated[bool, Parameter(negative="", show_default=False, help="the curves of a run")] = False,
    gradients: Annotated[
        bool, Parameter(negative="", show_default=False, help="gradient norms of a run's next step")
    ] = False,
    loss: Annotated[
        bool, Parameter(negative="", show_default=False, help="which tokens of a run's batch carry loss")
    ] = False,
    check_mask: Annotated[str | None, Parameter(help='a file, or rows: "1 0; 1 1"')] = None,
    json: Annotated[bool, Parameter(negative="", show_default=False, help="for machines")] = False,
) -> None:
    """See inside a model. Layers and heads are counted from 0."""
    if check_mask is not None:
        from .looking.mask import check

        check(check_mask, json=json)
    elif positions is not None:
        from .looking.drawings import show_positions

        show_positions(positions, model, save, json=json)
    elif architecture:
        from .looking.drawings import show_architecture

        show_architecture(_given(model, "--architecture"), save, json=json)
    elif curves or gradients or loss:
        from .looking import runs

        show = runs.curves if curves else runs.gradients if gradients else runs.loss
        show(_given(model, "a run"), save, json=json)
    else:
        from .looking.text import Wanted, show_text

        page = Path("look.html") if html and save is None else save
        wanted = Wanted(
            target=target, kind=kind, layer=layer, head=head, word=word, generate=generate, beams=beams,
            new=new, without=tuple(without or ()), set=tuple(set or ()), heads=heads, importance=importance,
            logits=logits, activations=activations, view=view, save=page,
        )  # fmt: skip
        show_text(_given(model, "a model"), text, wanted, json=json)


def _given(model: str | None, what: str) -> str:
    if model is None:
        raise InputError(f"{what} needs a folder: clearhead look FOLDER ...; clearhead look --help says more")
    return model

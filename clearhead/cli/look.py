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
    model: Annotated[str | None, Parameter(help="a folder, a Hub id, a run, or a saved trace")] = None,
    text: Annotated[str | None, Parameter(help="the input text")] = None,
    *,
    target: Annotated[str | None, Parameter(help="the target text, or the second text of a pair")] = None,
    kind: Annotated[Literal["self", "decoder", "cross"] | None, Parameter(help="which attention")] = None,
    layer: Annotated[int | None, Parameter(help="from 0; -1 is the last")] = None,
    head: Annotated[int | None, Parameter(help="from 0; default: mean over all heads")] = None,
    word: Annotated[
        str | None, Parameter(help="one token: what it attends to, or what attends to it")
    ] = None,
    generate: Annotated[
        bool, Parameter(negative="", show_default=False, help="generate, with one frame per new token")
    ] = False,
    beams: Annotated[int | None, Parameter(help="beam search, with its whole tree")] = None,
    new: Annotated[int, Parameter(help="maximum number of new tokens")] = 32,
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
        bool, Parameter(negative="", show_default=False, help="scores of every head: entropy, distance, role")
    ] = False,
    importance: Annotated[
        bool, Parameter(negative="", show_default=False, help="ablate every head in turn")
    ] = False,
    logits: Annotated[
        bool, Parameter(negative="", show_default=False, help="logit lens: what each layer would predict")
    ] = False,
    activations: Annotated[
        bool,
        Parameter(
            negative="", show_default=False, help="mean, standard deviation and maximum of activations"
        ),
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
        bool, Parameter(negative="", show_default=False, help="write an interactive page, look.html")
    ] = False,
    positions: Annotated[
        str | None, Parameter(help="rope sinusoidal alibi learned t5; own: the model's")
    ] = None,
    architecture: Annotated[
        bool, Parameter(negative="", show_default=False, help="draw the architecture; named sizes too")
    ] = False,
    curves: Annotated[
        bool, Parameter(negative="", show_default=False, help="training curves of a run")
    ] = False,
    gradients: Annotated[
        bool, Parameter(negative="", show_default=False, help="gradient norms of a run's next step")
    ] = False,
    loss: Annotated[
        bool,
        Parameter(
            negative="", show_default=False, help="which tokens of a run's batch the loss is computed on"
        ),
    ] = False,
    check_mask: Annotated[str | None, Parameter(help='a file, or rows: "1 0; 1 1"')] = None,
    json: Annotated[bool, Parameter(negative="", show_default=False, help="JSON output")] = False,
) -> None:
    """Look inside a model. Layers and heads are counted from 0."""
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

"""`clearhead look`: a model and a text in; its attention out, in the terminal, as a picture or a page.

Subcommands: `look run` (training curves, gradients, loss), `look mask`, `look positions` and
`look architecture`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

from ..errors import InputError
from .options import NO_ADAPTER, AdapterOptions, Json

Save = Annotated[Path | None, Parameter(help="write a picture: .png .svg .pdf")]

look = App(
    name="look",
    help="Look inside a model: attention, heads, layers, positions; as text, picture or HTML page.",
)


@look.command
def run(
    folder: Annotated[str, Parameter(help="folder of a run")],
    what: Annotated[
        Literal["curves", "gradients", "loss"],
        Parameter(help="training curves; gradient norms of the next step; which tokens carry loss"),
    ] = "curves",
    *,
    save: Save = None,
    json: Json = False,
) -> None:
    """Look at a training run: its curves, the gradients of its next step, the tokens with loss."""
    from .looking import runs

    {"curves": runs.show_curves, "gradients": runs.show_gradients, "loss": runs.show_loss}[what](
        folder, save, json=json
    )


@look.command(name="mask")
def check_mask(
    mask: Annotated[str, Parameter(help='a file, or rows: "1 0; 1 1"')], *, json: Json = False
) -> None:
    """Draw an attention mask and report what looks wrong with it."""
    from .looking.mask import show_mask_check

    show_mask_check(mask, json=json)


@look.command
def positions(
    scheme: Annotated[str, Parameter(help="rope sinusoidal alibi learned t5; own: that of MODEL")],
    model: Annotated[str | None, Parameter(help="for own: a folder, a Hub id, or a .gguf file")] = None,
    *,
    save: Save = None,
    json: Json = False,
) -> None:
    """Draw a positional encoding."""
    from .looking.drawings import show_positions

    show_positions(scheme, model, save, json=json)


@look.command
def architecture(
    model: Annotated[str, Parameter(help="a folder, a Hub id, a .gguf file, or a named size")],
    *,
    save: Save = None,
    json: Json = False,
) -> None:
    """Draw the architecture of a model."""
    from .looking.drawings import show_architecture

    show_architecture(model, save, json=json)


@look.default
def look_at_text(
    model: Annotated[str, Parameter(help="a folder, a Hub id, a .gguf file, a run, or a saved trace")],
    text: Annotated[str | None, Parameter(help="the input text")] = None,
    *,
    over: AdapterOptions = NO_ADAPTER,
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
    routing: Annotated[
        bool, Parameter(negative="", show_default=False, help="which experts every token went to")
    ] = False,
    view: Annotated[
        str | None,
        Parameter(
            help="for --save: heat grid two arcs lines alignment logits tree rollout importance entropy "
            "routing"
        ),
    ] = None,
    compare: Annotated[
        list[str] | None,
        Parameter(
            consume_multiple=(0, 2),
            negative="",
            help="before and after: compare with another model, or an adapter over MODEL; alone: an adapter "
            "with its base, or MODEL without and with what --adapter, --set, --without or --precision change",
        ),
    ] = None,
    effects: Annotated[
        Literal["auto", "heads", "layers", "none"],
        Parameter(
            help="with --compare: which parts are switched off in turn; auto: heads where that is quick"
        ),
    ] = "auto",
    top: Annotated[int, Parameter(help="with --compare: how many tokens, parts or rows are listed")] = 8,
    file: Annotated[
        str | None, Parameter(help="with --compare: every row of a file, those that changed most first")
    ] = None,
    column: Annotated[str | None, Parameter(help="column of the file with the text")] = None,
    target_column: Annotated[str | None, Parameter(help="column of the file with the target")] = None,
    precision: Annotated[
        str | None, Parameter(help="with --compare: float32, bfloat16, int8, int8-fine or int4")
    ] = None,
    save: Annotated[
        Path | None, Parameter(help=".png .svg .pdf .html, or .safetensors for the trace")
    ] = None,
    html: Annotated[
        bool, Parameter(negative="", show_default=False, help="write an interactive page, look.html")
    ] = False,
    json: Json = False,
) -> None:
    """Look inside a model. Layers and heads are counted from 0."""
    from .looking.text import LookOptions, show_text

    for_comparison = {
        "--effects": effects != "auto", "--top": top != 8, "--file": file, "--column": column,
        "--target-column": target_column, "--precision": precision,
    }  # fmt: skip
    if compare is None and (given := [name for name, value in for_comparison.items() if value]):
        raise InputError(f"{given[0]} is for --compare; see clearhead look --help")
    page = Path("look.html") if html and save is None else save
    options = LookOptions(
        target=target, kind=kind, layer=layer, head=head, word=word, generate=generate, beams=beams,
        new=new, without=tuple(without or ()), set=tuple(set or ()), heads=heads, importance=importance,
        logits=logits, activations=activations, routing=routing, view=view, save=page,
    )  # fmt: skip
    if compare is None:
        show_text(model, text, options, over, json=json)
        return
    from .looking.compare import CompareOptions, show_comparison

    others = {
        "--kind": kind, "--layer": layer is not None, "--head": head is not None, "--word": word,
        "--generate": generate, "--beams": beams, "--heads": heads, "--importance": importance,
        "--logits": logits, "--activations": activations, "--routing": routing, "--view": view,
    }  # fmt: skip
    if shown := [name for name, value in others.items() if value]:
        raise InputError(f"--compare has a page of its own; leave out {shown[0]}")
    comparison = CompareOptions(
        other=tuple(compare), target=target, set=options.set, without=options.without, precision=precision,
        effects=effects, new=new, top=top, file=file, column=column, target_column=target_column, save=page,
    )  # fmt: skip
    show_comparison(model, text, comparison, over, json=json)

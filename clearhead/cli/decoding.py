"""What the commands that generate share: decoding settings as options, and how answers look."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from .console import ERR
from .swap import Edits

if TYPE_CHECKING:
    from ..bundle import Bundle


@Parameter(name="*")
@dataclass(frozen=True)
class Decoding:
    """How the next token is chosen. What is not said comes from the checkpoint's generation_config.json."""

    max_new_tokens: Annotated[
        int | None, Parameter(name=["--max-new-tokens", "--max"], help="tokens of the answer at most")
    ] = None
    min_new_tokens: Annotated[int | None, Parameter(help="tokens of the answer at least")] = None
    num_beams: Annotated[
        int | None, Parameter(name=["--beams", "--num-beams"], help="beam search with so many")
    ] = None
    num_beam_groups: Annotated[
        int | None,
        Parameter(name=["--groups", "--num-beam-groups"], help="groups of beams that avoid each other"),
    ] = None
    diversity_penalty: Annotated[float | None, Parameter(help="how much they do")] = None
    length_penalty: Annotated[float | None, Parameter(help="beams: above 0 favours long answers")] = None
    early_stopping: Annotated[
        Literal["yes", "no", "never"] | None, Parameter(help="beams: when to stop looking")
    ] = None
    do_sample: Annotated[
        bool | None,
        Parameter(
            name=["--sample", "--do-sample"],
            negative="--no-sample",
            help="draw tokens instead of taking the likeliest",
        ),
    ] = None
    temperature: Annotated[
        float | None, Parameter(help="below 1 surer, above 1 bolder; 0 the likeliest; implies --sample")
    ] = None
    top_k: Annotated[int | None, Parameter(help="draw from the k likeliest; implies --sample")] = None
    top_p: Annotated[
        float | None, Parameter(help="draw from the likeliest that make up p together; implies --sample")
    ] = None
    min_p: Annotated[
        float | None, Parameter(help="draw from those p times as likely as the likeliest; implies --sample")
    ] = None
    typical_p: Annotated[float | None, Parameter(help="draw from the least surprising; implies --sample")] = (
        None
    )
    penalty_alpha: Annotated[float | None, Parameter(help="contrastive search with --top-k candidates")] = (
        None
    )
    repetition_penalty: Annotated[float | None, Parameter(help="above 1: say less again")] = None
    frequency_penalty: Annotated[float | None, Parameter(help="for every time a token was said")] = None
    presence_penalty: Annotated[float | None, Parameter(help="for tokens that were said at all")] = None
    no_repeat_ngram_size: Annotated[
        int | None,
        Parameter(
            name=["--no-repeat", "--no-repeat-ngram-size"], help="never say so many tokens in a row twice"
        ),
    ] = None
    truncate_source: Annotated[
        bool | None,
        Parameter(negative="", help="encoder-decoder: read the beginning of a text that is too long"),
    ] = None
    begin: Annotated[
        list[int] | None,
        Parameter(negative=(), consume_multiple=True, help="ids of the tokens that the answer begins with"),
    ] = None
    stop: Annotated[
        list[str] | None, Parameter(negative=(), help="end before this text; may be given again")
    ] = None
    seed: Annotated[int | None, Parameter(help="the draw depends on it")] = None

    def settings(self) -> dict[str, Any]:
        """What was said, under the library's names."""
        said = {f.name: getattr(self, f.name) for f in fields(self)}
        said = {name: value for name, value in said.items() if value is not None}
        if "early_stopping" in said:
            said["early_stopping"] = {"yes": True, "no": False, "never": "never"}[said["early_stopping"]]
        return said


def opened(model: str, *, quantize: str | None = None, edit: Edits | None = None) -> Bundle:
    """A model, loaded while somebody waits."""
    from ..bundle import load

    with ERR.status(f"loading {Path(model).name}"):
        return load(model, quantize=quantize, edit=edit)


AS_STORED = Decoding()  # nothing said

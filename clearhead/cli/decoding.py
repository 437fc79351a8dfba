"""Decoding options shared by the commands that generate."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal

from cyclopts import Parameter


@Parameter(name="*")
@dataclass(frozen=True)
class DecodingOptions:
    """How the next token is chosen. Options that are not given come from generation_config.json."""

    max_new_tokens: Annotated[
        int | None, Parameter(name=["--max-new-tokens", "--max"], help="maximum number of new tokens")
    ] = None
    min_new_tokens: Annotated[int | None, Parameter(help="minimum number of new tokens")] = None
    num_beams: Annotated[
        int | None, Parameter(name=["--beams", "--num-beams"], help="number of beams for beam search")
    ] = None
    num_beam_groups: Annotated[
        int | None,
        Parameter(name=["--groups", "--num-beam-groups"], help="number of groups for diverse beam search"),
    ] = None
    diversity_penalty: Annotated[
        float | None, Parameter(help="penalty for tokens that another beam group chose at this step")
    ] = None
    length_penalty: Annotated[
        float | None, Parameter(help="beam search: values above 0 favour longer sequences")
    ] = None
    early_stopping: Annotated[
        Literal["yes", "no", "never"] | None, Parameter(help="beam search: when to stop")
    ] = None
    do_sample: Annotated[
        bool | None,
        Parameter(
            name=["--sample", "--do-sample"],
            negative="--no-sample",
            help="sample instead of greedy decoding",
        ),
    ] = None
    temperature: Annotated[
        float | None, Parameter(help="sampling temperature; 0 is greedy; implies --sample")
    ] = None
    top_k: Annotated[int | None, Parameter(help="sample from the k most likely tokens; implies --sample")] = (
        None
    )
    top_p: Annotated[
        float | None,
        Parameter(help="nucleus sampling: the most likely tokens with total probability p; implies --sample"),
    ] = None
    min_p: Annotated[
        float | None,
        Parameter(help="sample from tokens at least p times as likely as the most likely; implies --sample"),
    ] = None
    typical_p: Annotated[float | None, Parameter(help="locally typical sampling; implies --sample")] = None
    penalty_alpha: Annotated[float | None, Parameter(help="contrastive search with --top-k candidates")] = (
        None
    )
    repetition_penalty: Annotated[
        float | None, Parameter(help="values above 1 penalise tokens that already occurred")
    ] = None
    frequency_penalty: Annotated[
        float | None, Parameter(help="penalty for each earlier occurrence of a token")
    ] = None
    presence_penalty: Annotated[float | None, Parameter(help="penalty for tokens that already occurred")] = (
        None
    )
    no_repeat_ngram_size: Annotated[
        int | None,
        Parameter(name=["--no-repeat", "--no-repeat-ngram-size"], help="no n-gram of this size occurs twice"),
    ] = None
    truncate_source: Annotated[
        bool | None,
        Parameter(negative="", help="encoder-decoder: truncate an input that is too long"),
    ] = None
    begin: Annotated[
        list[int] | None,
        Parameter(negative=(), consume_multiple=True, help="token ids that the output starts with"),
    ] = None
    stop: Annotated[
        list[str] | None, Parameter(negative=(), help="stop before this text; can be repeated")
    ] = None
    seed: Annotated[int | None, Parameter(help="random seed for sampling")] = None

    def settings(self) -> dict[str, Any]:
        """The options that were given, under the library's names."""
        options = {f.name: getattr(self, f.name) for f in fields(self)}
        options = {name: value for name, value in options.items() if value is not None}
        if "early_stopping" in options:
            options["early_stopping"] = {"yes": True, "no": False, "never": "never"}[
                options["early_stopping"]
            ]
        return options


NO_OPTIONS = DecodingOptions()  # no option given

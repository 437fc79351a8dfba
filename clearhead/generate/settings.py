"""Settings of a run under Hugging Face's names: `generation_config.json` and arguments in; strategy, filters,
stops and limits out, as the loop takes them. Arguments win over the file, the file over the defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from ..errors import InputError, nearest, quoted
from .beam_search import Beam, EarlyStopping
from .checks import check_setting
from .filters import (
    Allowed,
    AtLeast,
    Banned,
    Filter,
    Forced,
    ForcedEnd,
    Frequency,
    MinP,
    NoRepeatNgram,
    Repetition,
    Suppressed,
    Temperature,
    TopK,
    TopP,
    Typical,
)
from .sampling import Contrastive, Greedy, Sample
from .search import EndTokens, Stop, StopStrings, Strategy

DEFAULT_NEW = 128  # new tokens, if neither an argument nor the checkpoint sets a limit

# Keys of generation_config.json that do not change the output: options of other libraries.
WITHOUT_EFFECT = {
    "_from_model_config", "transformers_version", "use_cache", "cache_implementation", "cache_config",
    "max_cache_len", "return_dict_in_generate", "output_attentions", "output_hidden_states",
    "output_scores", "output_logits", "compile_config", "disable_compile", "low_memory",
    "prefill_chunk_size", "is_assistant", "num_assistant_tokens_schedule",
    "assistant_confidence_threshold", "remove_invalid_values", "max_time", "bos_token_id",
}  # fmt: skip
# Values that mean "off" for keys that are not known here.
OFF_VALUES: tuple[Any, ...] = (None, False, 0, 0.0, 1.0, [], {})
NOT_IN_FILES = {"allowed", "tools"}  # of a call
SAMPLING = ("temperature", "top_k", "top_p", "min_p", "typical_p")


@dataclass(frozen=True, kw_only=True)
class GenerationSettings:
    """The settings of a run. Names and meanings are those of Hugging Face's generate."""

    max_new_tokens: int | None = None
    max_length: int | None = None  # prompt and new tokens; for an encoder-decoder, the decoder's tokens
    min_new_tokens: int = 0
    min_length: int = 0
    num_beams: int = 1
    num_beam_groups: int = 1
    diversity_penalty: float = 0.0
    length_penalty: float = 1.0
    early_stopping: EarlyStopping = False
    num_return_sequences: int = 1
    do_sample: bool | None = None  # None: yes, if an argument such as top_p or temperature is given
    temperature: float = 1.0  # 0 is greedy decoding
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    typical_p: float = 1.0
    penalty_alpha: float = 0.0  # above 0, with top_k: contrastive search
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    no_repeat_ngram_size: int = 0
    bad_words_ids: Sequence[Sequence[int]] = ()
    suppress_tokens: Sequence[int] = ()
    begin_suppress_tokens: Sequence[int] = ()
    forced_bos_token_id: int | None = None
    forced_eos_token_id: int | Sequence[int] | None = None
    begin: Sequence[int] = ()  # the first new tokens, whatever the model predicts
    allowed: Callable[[list[int]], Sequence[int]] | None = None  # which tokens may follow these ids
    stop: str | Sequence[str] = ()
    tools: Sequence[Mapping[str, Any]] = ()  # functions a chat model may call; its template writes them
    truncate_source: bool = False  # truncate a source that is too long for the encoder
    seed: int | Sequence[int] = 0  # one for all requests, or one for each
    num_assistant_tokens: int = 5  # how many tokens a draft model proposes at a time
    eos_token_id: int | Sequence[int] | None = None
    pad_token_id: int | None = None
    decoder_start_token_id: int | Sequence[int] | None = None
    given: frozenset[str] = field(default=frozenset(), repr=False)  # the names the caller set

    @property
    def ends(self) -> tuple[int, ...]:
        return as_tuple(self.eos_token_id)

    @property
    def pad(self) -> int:
        if self.pad_token_id is not None:
            return self.pad_token_id
        return self.ends[0] if self.ends else 0

    @classmethod
    def read(cls, file: Mapping[str, Any], given: Mapping[str, Any]) -> tuple[GenerationSettings, list[str]]:
        """Arguments over the checkpoint's file; and a note for each unknown key of the file."""
        known = {f.name for f in fields(cls)} - {"given"}
        for name in given:
            if name not in known:
                raise InputError(f"generate has no setting {name!r}; {nearest(name, known)}")
        arguments = {name: value for name, value in given.items() if value is not None}
        stored = {"stop" if k == "stop_strings" else k: v for k, v in file.items() if v is not None}
        notes = [
            f"generation_config.json asks for {quoted(name)} = {quoted(value)}, unknown here and ignored"
            for name, value in stored.items()
            if name not in known | WITHOUT_EFFECT and not _is_off(value)
        ]
        values = {name: value for name, value in stored.items() if name in known - NOT_IN_FILES}
        for one, two in (("max_new_tokens", "max_length"), ("min_new_tokens", "min_length")):
            if one in arguments and two in arguments:
                raise InputError(f"{one} and {two} set the same limit; give one of them")
            if one in arguments or two in arguments:  # an argument of either name wins over both in the file
                values = {name: value for name, value in values.items() if name not in (one, two)}
        for name, value in {**values, **arguments}.items():
            check_setting(name, value, "" if name in arguments else "generation_config.json: ")
        return cls(**{**values, **arguments}, given=frozenset(arguments)), notes

    def strategy(self) -> Strategy:
        seed, samples = self.seed if isinstance(self.seed, int) else tuple(self.seed), self._samples
        if self.penalty_alpha:
            if samples or self.num_beams > 1 or self.num_return_sequences > 1:
                raise InputError(
                    "contrastive search (penalty_alpha) supports one sequence, without num_beams or do_sample"
                )
            return Contrastive(self.top_k or 4, self.penalty_alpha)
        if self.num_beams != 1:
            return Beam(
                self.num_beams, self.length_penalty, self.early_stopping, self.num_return_sequences,
                self.num_beam_groups, self.diversity_penalty, seed if samples else None,
            )  # fmt: skip
        if self.num_beam_groups != 1:
            raise InputError(f"{self.num_beam_groups} groups need more than one beam; set num_beams")
        if samples:
            return Sample(seed, self.num_return_sequences)
        if self.num_return_sequences != 1:
            raise InputError(
                f"num_return_sequences is {self.num_return_sequences}, but greedy decoding gives one "
                f"sequence; use num_beams or do_sample"
            )
        return Greedy()

    @property
    def _samples(self) -> bool:
        """Whether tokens are sampled: if requested, or if an argument only makes sense with sampling."""
        if self.temperature == 0:
            return False
        plain = GenerationSettings()
        shaped = [n for n in SAMPLING if n in self.given and getattr(self, n) != getattr(plain, n)]
        if self.penalty_alpha:
            shaped = []  # contrastive search has a use of its own for top_k
        if self.do_sample is False and shaped:
            raise InputError(f"{shaped[0]} needs sampling, but do_sample is False; drop one of them")
        return bool(shaped) if self.do_sample is None else self.do_sample

    def filters(self) -> list[Filter]:
        """In the order Hugging Face applies them."""
        banned = tuple(
            tuple(word) for word in self.bad_words_ids if tuple(word) not in {(e,) for e in self.ends}
        )
        begin = ((self.forced_bos_token_id,) if self.forced_bos_token_id is not None else ()) + tuple(
            self.begin
        )
        rules: list[Filter | None] = [
            Repetition(self.repetition_penalty) if self.repetition_penalty != 1 else None,
            Frequency(self.frequency_penalty, self.presence_penalty)
            if self.frequency_penalty or self.presence_penalty
            else None,
            NoRepeatNgram(self.no_repeat_ngram_size) if self.no_repeat_ngram_size else None,
            Banned(banned) if banned else None,
            AtLeast(self.ends, self.min_new_tokens, self.min_length)
            if self.ends and (self.min_new_tokens or self.min_length)
            else None,
            Allowed(self.allowed) if self.allowed is not None else None,
            *(Forced((token,), at) for at, token in enumerate(begin)),
            ForcedEnd(as_tuple(self.forced_eos_token_id)) if self.forced_eos_token_id is not None else None,
            Suppressed(tuple(self.suppress_tokens)) if self.suppress_tokens else None,
            Suppressed(tuple(self.begin_suppress_tokens), at=len(begin))
            if self.begin_suppress_tokens
            else None,
        ]
        if self._samples:  # a beam keeps a token to continue with, next to every end token
            rules += self._sampling_filters(1 if self.num_beams == 1 else 1 + len(self.ends))
        return [rule for rule in rules if rule is not None]

    def _sampling_filters(self, least: int) -> list[Filter | None]:
        return [
            Temperature(self.temperature) if self.temperature != 1 else None,
            TopK(self.top_k, least) if self.top_k else None,
            TopP(self.top_p, least) if self.top_p != 1 else None,
            MinP(self.min_p, least) if self.min_p else None,
            Typical(self.typical_p, least) if self.typical_p != 1 else None,
        ]

    def stops(self, decode: Callable[[Sequence[int]], str] | None) -> list[Stop]:
        stops: list[Stop] = [EndTokens(self.ends)] if self.ends else []
        if texts := self.stop_strings:
            if decode is None:
                raise InputError("stop strings need a tokenizer, and this model has none")
            stops.append(StopStrings(texts, decode))
        return stops

    @property
    def stop_strings(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    def limits(self, lengths: Sequence[int], max_length: int | None) -> list[int]:
        """New tokens allowed for prompts of these lengths, in a model of `max_length` positions."""
        return [self._limit(length, max_length) for length in lengths]

    def _limit(self, length: int, positions: int | None) -> int:
        if positions is not None and length > positions:
            raise InputError(
                f"the prompt has {length} tokens, the model {positions} positions; shorten the prompt"
            )
        # The last token is never fed back into the model, so it needs no position.
        room = None if positions is None else positions - length + 1
        explicit = bool(self.given & {"max_new_tokens", "max_length"})
        if self.max_new_tokens is not None:
            wanted = self.max_new_tokens
        elif self.max_length is not None:
            wanted = self.max_length - length
            if wanted < 1:
                raise InputError(
                    f"the prompt has {length} tokens and max_length is {self.max_length}; set max_new_tokens"
                )
        else:
            wanted = DEFAULT_NEW
        if room is not None and wanted > room:
            if explicit:
                raise InputError(
                    f"{length} tokens and {wanted} new ones need {length + wanted - 1} positions, the model "
                    f"has {positions}; ask for at most {room} new tokens, or shorten the prompt"
                )
            wanted = room
        return wanted


def _is_off(value: Any) -> bool:
    return isinstance(value, bool | int | float | list | dict) and value in OFF_VALUES


def as_tuple(value: int | Sequence[int] | None) -> tuple[int, ...]:
    """One id, several or none, as a tuple."""
    if value is None:
        return ()
    return (value,) if isinstance(value, int) else tuple(value)

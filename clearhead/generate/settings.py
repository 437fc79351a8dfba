"""Settings of a run under the names people know: `generation_config.json` and arguments in; what the loop
takes out (strategy, filters, stops, limits). Arguments win over the file, the file over the defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from ..errors import InputError, nearest, quoted
from .beams import Beam
from .checks import check
from .contrastive import Contrastive
from .filters import (
    Allowed,
    AtLeast,
    Banned,
    Filter,
    Forced,
    ForcedEnd,
    Frequency,
    NoRepeatNgram,
    Repetition,
    Suppressed,
)
from .pool import Early
from .rows import Greedy, Sample
from .search import Strategy
from .shaping import MinP, Temperature, TopK, TopP, Typical
from .stops import EndTokens, Stop, StopStrings

DEFAULT_NEW = 128  # new tokens, where neither an argument nor the checkpoint says how many

# Keys of generation_config.json that do not change what is said: plumbing of other libraries.
HARMLESS = {
    "_from_model_config", "transformers_version", "use_cache", "cache_implementation", "cache_config",
    "max_cache_len", "return_dict_in_generate", "output_attentions", "output_hidden_states",
    "output_scores", "output_logits", "compile_config", "disable_compile", "low_memory",
    "prefill_chunk_size", "is_assistant", "num_assistant_tokens_schedule",
    "assistant_confidence_threshold", "remove_invalid_values", "max_time", "bos_token_id",
}  # fmt: skip
# Values that mean "off" for keys that are not known here.
OFF: tuple[Any, ...] = (None, False, 0, 0.0, 1.0, [], {})
CALLERS = {"allowed"}  # a function; no file can name one
DRAWING = ("temperature", "top_k", "top_p", "min_p", "typical_p")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything a caller may say about a run. Names and meanings are those of Hugging Face's generate."""

    max_new_tokens: int | None = None
    max_length: int | None = None  # of prompt and answer together; of the decoder's side in a Pair
    min_new_tokens: int = 0
    min_length: int = 0
    num_beams: int = 1
    num_beam_groups: int = 1
    diversity_penalty: float = 0.0
    length_penalty: float = 1.0
    early_stopping: Early = False
    num_return_sequences: int = 1
    do_sample: bool | None = None  # None: yes, if an argument shapes the draw
    temperature: float = 1.0  # 0 is the likeliest token
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
    begin: Sequence[int] = ()  # what the answer begins with, whatever the model thinks
    allowed: Callable[[list[int]], Sequence[int]] | None = None  # which tokens may follow these
    stop: str | Sequence[str] = ()
    truncate_source: bool = False  # a source too long for the encoder loses its end instead of being refused
    seed: int | Sequence[int] = 0  # one for all requests, or one for each
    num_assistant_tokens: int = 5  # how far a draft model looks ahead
    eos_token_id: int | Sequence[int] | None = None
    pad_token_id: int | None = None
    decoder_start_token_id: int | Sequence[int] | None = None
    given: frozenset[str] = field(default=frozenset(), repr=False)  # which of these the caller said

    @property
    def ends(self) -> tuple[int, ...]:
        return several(self.eos_token_id)

    @property
    def pad(self) -> int:
        if self.pad_token_id is not None:
            return self.pad_token_id
        return self.ends[0] if self.ends else 0

    @classmethod
    def read(cls, file: Mapping[str, Any], given: Mapping[str, Any]) -> tuple[Settings, list[str]]:
        """Arguments over the checkpoint's file; and a line for whatever in the file is not known here."""
        known = {f.name for f in fields(cls)} - {"given"}
        for name in given:
            if name not in known:
                raise InputError(f"generate has no setting {name!r}; {nearest(name, known)}")
        said = {name: value for name, value in given.items() if value is not None}
        stored = {"stop" if k == "stop_strings" else k: v for k, v in file.items() if v is not None}
        notes = [
            f"generation_config.json asks for {quoted(name)} = {quoted(value)}, not known here and left out"
            for name, value in stored.items()
            if name not in known | HARMLESS and not _is_off(value)
        ]
        values = {name: value for name, value in stored.items() if name in known - CALLERS}
        for one, two in (("max_new_tokens", "max_length"), ("min_new_tokens", "min_length")):
            if one in said and two in said:
                raise InputError(f"{one} and {two} say the same thing in two ways; give one of them")
            if one in said or two in said:  # an argument of either name wins over both in the file
                values = {name: value for name, value in values.items() if name not in (one, two)}
        for name, value in {**values, **said}.items():
            check(name, value, "" if name in said else "generation_config.json: ")
        return cls(**{**values, **said}, given=frozenset(said)), notes

    def strategy(self) -> Strategy:
        seed, draws = self.seed if isinstance(self.seed, int) else tuple(self.seed), self._draws
        if self.penalty_alpha:
            if draws or self.num_beams > 1 or self.num_return_sequences > 1:
                raise InputError(
                    "contrastive search (penalty_alpha) gives one answer, without beams or a draw"
                )
            return Contrastive(self.top_k or 4, self.penalty_alpha)
        if self.num_beams != 1:
            return Beam(
                self.num_beams, self.length_penalty, self.early_stopping, self.num_return_sequences,
                self.num_beam_groups, self.diversity_penalty, seed if draws else None,
            )  # fmt: skip
        if self.num_beam_groups != 1:
            raise InputError(f"{self.num_beam_groups} groups need more than one beam; set num_beams")
        if draws:
            return Sample(seed, self.num_return_sequences)
        if self.num_return_sequences != 1:
            raise InputError(
                f"num_return_sequences is {self.num_return_sequences}, but taking the likeliest token gives "
                f"one answer; use num_beams or do_sample"
            )
        return Greedy()

    @property
    def _draws(self) -> bool:
        """Whether tokens are drawn: where that is asked for, or where an argument shapes the draw."""
        if self.temperature == 0:
            return False
        plain = Settings()
        shaped = [n for n in DRAWING if n in self.given and getattr(self, n) != getattr(plain, n)]
        if self.penalty_alpha:
            shaped = []  # contrastive search has a use of its own for top_k
        if self.do_sample is False and shaped:
            raise InputError(f"{shaped[0]} shapes a draw, but do_sample is False; leave one of them out")
        return bool(shaped) if self.do_sample is None else self.do_sample

    def filters(self) -> list[Filter]:
        """In the order Hugging Face applies them."""
        strategy = self.strategy()
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
            ForcedEnd(several(self.forced_eos_token_id)) if self.forced_eos_token_id is not None else None,
            Suppressed(tuple(self.suppress_tokens)) if self.suppress_tokens else None,
            Suppressed(tuple(self.begin_suppress_tokens), at=len(begin))
            if self.begin_suppress_tokens
            else None,
        ]
        if isinstance(strategy, Sample) or (isinstance(strategy, Beam) and strategy.seed is not None):
            rules += self._shaping(1 + len(self.ends) if isinstance(strategy, Beam) else 1)
        return [rule for rule in rules if rule is not None]

    def _shaping(self, least: int) -> list[Filter | None]:
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
                raise InputError("stop strings need a tokenizer, and this model came without one")
            stops.append(StopStrings(texts, decode))
        return stops

    @property
    def stop_strings(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    def limits(self, lengths: Sequence[int], window: int | None) -> list[int]:
        """How many new tokens each request may have, after so many, in a model of `window` positions."""
        return [self._limit(length, window) for length in lengths]

    def _limit(self, length: int, window: int | None) -> int:
        if window is not None and length > window:
            raise InputError(
                f"the prompt has {length} tokens, the model {window} positions; shorten the prompt"
            )
        # The last token is said but never read again, so it needs no position.
        room = None if window is None else window - length + 1
        said = bool(self.given & {"max_new_tokens", "max_length"})
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
            if said:
                raise InputError(
                    f"{length} tokens and {wanted} new ones need {length + wanted - 1} positions, the model "
                    f"has {window}; ask for at most {room} new tokens, or shorten the prompt"
                )
            wanted = room
        return wanted


def _is_off(value: Any) -> bool:
    return isinstance(value, bool | int | float | list | dict) and value in OFF


def several(value: int | Sequence[int] | None) -> tuple[int, ...]:
    """One id, several or none, as a tuple."""
    if value is None:
        return ()
    return (value,) if isinstance(value, int) else tuple(value)

"""Settings: arguments over generation_config.json over defaults, in the words of Hugging Face."""

from typing import Any

import pytest

from clearhead.errors import InputError
from clearhead.generate import Beam, Contrastive, GenerationSettings, Greedy, Sample
from clearhead.generate.filters import (
    AtLeast,
    Banned,
    Filter,
    Forced,
    ForcedEnd,
    Frequency,
    MinP,
    Repetition,
    Temperature,
    TopK,
    TopP,
    Typical,
)
from clearhead.generate.search import EndTokens, StopStrings
from clearhead.generate.settings import DEFAULT_NEW


def read(file: dict[str, Any] | None = None, **given: Any) -> GenerationSettings:
    return GenerationSettings.read(file or {}, given)[0]


def kinds(settings: GenerationSettings) -> list[type[Filter]]:
    return [type(rule) for rule in settings.filters()]


def test_arguments_win_over_the_file_and_none_is_not_said() -> None:
    file = {"num_beams": 4, "length_penalty": 2.0, "early_stopping": True, "eos_token_id": [2, 3]}
    assert read(file).strategy() == Beam(4, 2.0, True)
    assert read(file, num_beams=2, length_penalty=None).strategy() == Beam(2, 2.0, True)
    assert read(file, num_beams=1).strategy() == Greedy()
    assert read(file).ends == (2, 3) and read(file, eos_token_id=7).ends == (7,)


@pytest.mark.parametrize(
    ("given", "strategy"),
    [
        ({}, Greedy()),
        ({"do_sample": True, "seed": 3}, Sample(3)),
        ({"temperature": 0.5}, Sample(0)),
        ({"top_p": 0.9, "num_return_sequences": 3, "seed": [1, 2]}, Sample((1, 2), 3)),
        ({"temperature": 0.0}, Greedy()),
        ({"temperature": 1.0, "top_k": 0}, Greedy()),
        ({"top_k": 1}, Sample(0)),
        ({"num_beams": 4, "num_return_sequences": 2}, Beam(4, count=2)),
        ({"num_beams": 4, "num_beam_groups": 2, "diversity_penalty": 0.5}, Beam(4, groups=2, diversity=0.5)),
        ({"num_beams": 4, "do_sample": True, "seed": 1}, Beam(4, seed=1)),
        ({"penalty_alpha": 0.6, "top_k": 5}, Contrastive(5, 0.6)),
    ],
)
def test_words_choose_a_strategy(given: dict[str, Any], strategy: Any) -> None:
    assert read(**given).strategy() == strategy


def test_a_file_that_shapes_draws_does_not_make_them() -> None:
    """As in the reference: sampling settings beside do_sample false are dormant."""
    file = {"temperature": 0.6, "top_p": 0.9, "top_k": 20}
    assert read(file).strategy() == Greedy() and kinds(read(file)) == []
    assert read(file | {"do_sample": True}).strategy() == Sample(0)
    assert kinds(read(file, do_sample=True)) == [Temperature, TopK, TopP]


def test_filters_stand_in_the_order_of_the_reference() -> None:
    settings = read(
        do_sample=True, temperature=0.5, top_k=5, top_p=0.5, min_p=0.1, typical_p=0.5, repetition_penalty=2.0,
        presence_penalty=1.0, bad_words_ids=[[1], [2]], min_new_tokens=2, forced_bos_token_id=1,
        forced_eos_token_id=2, eos_token_id=2,
    )  # fmt: skip
    expected = [
        Repetition,
        Frequency,
        Banned,
        AtLeast,
        Forced,
        ForcedEnd,
        Temperature,
        TopK,
        TopP,
        MinP,
        Typical,
    ]
    assert kinds(settings) == expected
    assert settings.filters()[2] == Banned(((1,),)), "an end token cannot be banned; min_new_tokens does that"


def test_a_beginning_is_forced_token_by_token() -> None:
    assert read(begin=[5, 6], forced_bos_token_id=9).filters() == [
        Forced((9,), 0), Forced((5,), 1), Forced((6,), 2),
    ]  # fmt: skip


def test_stops() -> None:
    assert read(eos_token_id=2).stops(None) == [EndTokens((2,))]
    assert isinstance(read({"stop_strings": ["x"]}).stops(lambda ids: "")[0], StopStrings)
    assert read(stop="a").stop_strings == ("a",)
    with pytest.raises(InputError, match="stop strings need a tokenizer"):
        read(stop="x").stops(None)


@pytest.mark.parametrize(
    ("file", "given", "length", "window", "limit"),
    [
        ({}, {}, 5, None, DEFAULT_NEW),
        ({}, {}, 5, 20, 16),  # the last token needs no position
        ({}, {"max_new_tokens": 7}, 5, 20, 7),
        ({}, {"max_new_tokens": 16}, 5, 20, 16),
        ({}, {"max_length": 7}, 5, 20, 2),
        ({"max_length": 50}, {}, 5, 20, 16),
        ({"max_length": 50}, {"max_new_tokens": 3}, 5, 20, 3),
        ({"max_new_tokens": 50}, {"max_length": 8}, 5, None, 3),
        ({}, {}, 20, 20, 1),
    ],
)
def test_limits(
    file: dict[str, Any], given: dict[str, Any], length: int, window: int | None, limit: int
) -> None:
    assert read(file, **given).limits([length], window) == [limit]


@pytest.mark.parametrize(
    ("given", "length", "message"),
    [
        ({"max_new_tokens": 17}, 5, "5 tokens and 17 new ones need 21 positions, the model has 20"),
        ({"max_length": 30}, 5, "5 tokens and 25 new ones need 29 positions, the model has 20"),
        ({"max_length": 5}, 5, "the prompt has 5 tokens and max_length is 5; set max_new_tokens"),
        ({}, 21, "the prompt has 21 tokens, the model 20 positions"),
    ],
)
def test_what_does_not_fit_is_an_error_with_both_numbers(
    given: dict[str, Any], length: int, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        read(**given).limits([length], 20)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"num_beam": 4}, "no setting 'num_beam'; did you mean 'num_beams'"),
        ({"num_beams": 0}, "num_beams is 0, expected a whole number from 1"),
        ({"num_beams": 2.5}, "num_beams is 2.5, expected a whole number"),
        ({"num_beams": True}, "num_beams is True, expected a whole number"),
        ({"top_p": 1.5}, "top_p is 1.5, expected a number from 0 to 1"),
        ({"temperature": -1}, "temperature is -1, expected a number from 0"),
        ({"temperature": "hot"}, "temperature is 'hot', expected a number"),
        ({"max_new_tokens": 0}, "max_new_tokens is 0, expected a whole number from 1"),
        ({"max_new_tokens": 5, "max_length": 9}, "max_new_tokens and max_length set the same limit"),
        ({"do_sample": False, "top_k": 5}, "top_k needs sampling, but do_sample is False"),
        ({"num_return_sequences": 2}, "num_return_sequences is 2, but greedy decoding gives one"),
        ({"num_beams": 2, "num_return_sequences": 3}, "num_return_sequences is 3 with 2 beams"),
        ({"num_beam_groups": 2}, "2 groups need more than one beam"),
        ({"penalty_alpha": 0.5, "num_beams": 2}, "contrastive search .* supports one sequence"),
        ({"eos_token_id": "x"}, "eos_token_id is 'x', expected a token id or several"),
        ({"seed": 1.5}, "seed is 1.5, expected a whole number"),
    ],
)
def test_words_that_make_no_sense_are_one_line(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        read(**given).strategy()
    assert "\n" not in str(error.value)


def test_what_a_file_asks_for_and_is_not_known_is_said() -> None:
    file = {
        "guidance_scale": 1.5,
        "top_h": None,
        "use_cache": True,
        "transformers_version": "5.0",
        "epsilon_cutoff": 0.0,
    }
    _, notes = GenerationSettings.read(file, {})
    assert len(notes) == 1 and "'guidance_scale' = 1.5" in notes[0]
    with pytest.raises(InputError, match=r"generation_config\.json: num_beams is 'four'"):
        read({"num_beams": "four"})


@pytest.mark.parametrize("name", ["num_beams", "num_return_sequences", "num_beam_groups"])
def test_a_file_cannot_ask_for_tens_of_thousands_of_sequences(name: str) -> None:
    with pytest.raises(InputError, match=f"{name} is 65536, expected a whole number from 1 to 1,024"):
        read({name: 65536})

"""Beam search against `transformers` where little shows: how long to wait, what fills short rows up.

The other laws of decoding meet every family with two of the settings each; here one family meets many.
"""

from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from references import REFERENCES, Reference

import clearhead as ch
from clearhead.bundle import Bundle
from clearhead.generate.beam_search import HypothesisPool
from clearhead.generate.results import Hypothesis

WIDTHS, PENALTIES, LIMITS = (2, 4), (0.5, 1.0, 2.0), (6, 15)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Bundle, torch.Tensor]:
    """Theirs and ours, and prompts of six tokens."""
    folder: Path = tmp_path_factory.mktemp("model")
    plain = REFERENCES["gpt2/tokens/plain"]
    theirs = Reference(plain.family, plain.task, plain.name, {"vocab_size": 24, "n_inner": None}).files(
        folder
    )
    prompts = torch.randint(5, 24, (8, 6), generator=torch.Generator().manual_seed(7))
    return theirs, ch.load(folder), prompts


def said(models: tuple[Any, Bundle, torch.Tensor], **settings: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Theirs, then ours. Many ends, so that beams end early and at unequal lengths."""
    theirs, ours, prompts = models
    settings = {"eos_token_id": [2, 11, 17], "pad_token_id": 1} | settings
    mask = torch.ones_like(prompts)
    return theirs.generate(prompts, attention_mask=mask, do_sample=False, **settings), ours.generate_ids(
        prompts, mask, **settings
    )


def test_never_means_until_no_running_beam_can_win_at_any_length(
    models: tuple[Any, Bundle, torch.Tensor],
) -> None:
    differ = 0
    for width, penalty, limit in product(WIDTHS, PENALTIES, LIMITS):
        settings = {"num_beams": width, "length_penalty": penalty, "max_new_tokens": limit}
        settings["num_return_sequences"] = width
        theirs, ours = said(models, early_stopping="never", **settings)
        assert torch.equal(ours, theirs), settings
        sooner = said(models, early_stopping=False, **settings)[1]
        differ += sooner.shape != ours.shape or not torch.equal(sooner, ours)
    assert differ, "waiting changed no answer; the test would prove nothing"


@pytest.mark.parametrize("pad", [0, 1, 2], ids=["token 0", "a token of its own", "the end token"])
@pytest.mark.parametrize("width", [1, 3])
def test_short_rows_are_filled_up_as_the_reference_fills_them(
    models: tuple[Any, Bundle, torch.Tensor], width: int, pad: int
) -> None:
    """Theirs fills up beams with the end token where padding is token 0, and only then."""
    beams = {"num_return_sequences": width, "early_stopping": True} if width > 1 else {}
    theirs, ours = said(models, num_beams=width, pad_token_id=pad, max_new_tokens=12, **beams)
    assert torch.equal(ours, theirs)
    short = [row for row in ours[:, 6:].tolist() if {2, 11, 17} & set(row[:-2])]
    assert short and len(short) < len(ours), "no row had to be filled up; the test would prove nothing"


@pytest.mark.parametrize(
    ("early", "penalty", "sum_of_logs", "is_open"),
    [
        # One has ended at -1.0 a token, after 4 of 16. A running one of sum -8 after 5 tokens stands at -1.6;
        # at 16 tokens it could be as good as -0.5.
        (True, 1.0, -8.0, False),
        (False, 1.0, -8.0, False),
        ("never", 1.0, -8.0, True),
        (False, 1.0, -4.0, True),
        ("never", 1.0, -15.9, True),
        ("never", 1.0, -16.1, False),
        # Longer texts are punished: it can only become worse, and the length it has is its best.
        ("never", -1.0, -8.0, False),
        ("never", -1.0, -2.0, True),
        ("never", 0.0, -8.0, False),
    ],
)
def test_a_pool_closes_when_nothing_better_can_come(
    early: Any, penalty: float, sum_of_logs: float, is_open: bool
) -> None:
    pool = HypothesisPool(size=1, early=early, penalty=penalty, limit=16)
    pool.add(Hypothesis([5] * 4, [-1.0] * 4, -4.0 / 4**penalty, "end"))
    pool.close(sum_of_logs, 5)
    assert pool.open == is_open

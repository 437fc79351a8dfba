"""Laws of decoding: every family that speaks says what `transformers` says, and says it in any company.

The references run without padding where theirs counts padding as positions; ours runs the padded batch.
"""

from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from references import REFERENCES, Reference
from tolerance import TOLERANCE
from torch import Tensor

import clearhead as ch
from clearhead.generate import Prompt, Settings, generate
from clearhead.nn import PairModel

SPEAKS = {
    name: reference
    for name, reference in REFERENCES.items()
    if reference.task == "tokens" and reference.family.mode != "bidirectional"
}
NEW = 9
BEAMS = list(product((2, 3, 5, 8), (False, True, "never"), (1.0, 0.0, 2.0, -1.0, 0.6)))


class Both:
    """A tiny random model twice: theirs and ours, and three prompts of six tokens."""

    def __init__(self, reference: Reference, folder: Path) -> None:
        self.theirs = reference.files(folder)
        self.ours = ch.load(folder)
        key = torch.Generator().manual_seed(4)
        self.ids = torch.randint(3, 77, (3, 6), generator=key)
        self.plumbing: dict[str, Any] = {"max_new_tokens": NEW}
        if self.pair:  # theirs cannot cache where encoder and decoder differ in depth; and T5 says no start
            self.plumbing |= {"decoder_start_token_id": 2}
        # Ends that are met: what the model likes to say in the middle of an answer.
        said = self.ours.generate_ids(self.ids, **self.plumbing, eos_token_id=2)[:, -NEW:]
        self.ends = [2, *{int(said[0, 4]), int(said[1, 6])}]

    @property
    def pair(self) -> bool:
        return isinstance(self.ours.model, PairModel)

    def they_say(self, ids: Tensor, **settings: Any) -> Any:
        more = {"use_cache": False} if self.pair else {}
        how = {"return_dict_in_generate": True, "output_scores": True, "do_sample": False}
        mask = torch.ones_like(ids)
        settings = self.plumbing | {"eos_token_id": self.ends} | settings
        return self.theirs.generate(ids, attention_mask=mask, **how, **more, **settings)

    def we_say(self, ids: Tensor, mask: Tensor | None = None, **settings: Any) -> Tensor:
        mask = torch.ones_like(ids) if mask is None else mask
        settings = self.plumbing | {"eos_token_id": self.ends} | settings
        return self.ours.generate_ids(ids, mask, **settings)

    def scores(self, ids: Tensor, **settings: Any) -> list[float]:
        said, _ = Settings.read(self.ours.generation, self.plumbing | {"eos_token_id": self.ends} | settings)
        start = torch.full((len(ids), 1), 2) if self.pair else None
        run = generate(self.ours.model, Prompt(ids, None, start), strategy=said.strategy(),
                       filters=said.filters(), stops=said.stops(None), limit=NEW)  # fmt: skip
        return [answer.score for answers in run.finish() for answer in answers]


@pytest.fixture(scope="module", params=SPEAKS, ids=str)
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Both:
    return Both(SPEAKS[request.param], tmp_path_factory.mktemp("model"))


def test_greedy_says_what_the_reference_says(both: Both) -> None:
    assert torch.equal(both.we_say(both.ids), both.they_say(both.ids).sequences)


def test_beams_say_what_the_reference_says_and_score_it_alike(both: Both) -> None:
    """Four of the sixty settings for each model; together the models meet all of them."""
    number = list(SPEAKS).index(str(_reference(both)))
    for width, early, penalty in (BEAMS[(number * 4 + i * 17) % len(BEAMS)] for i in range(4)):
        settings = {"num_beams": width, "early_stopping": early, "length_penalty": penalty}
        settings["num_return_sequences"] = width
        theirs = both.they_say(both.ids, **settings)
        assert torch.equal(both.we_say(both.ids, **settings), theirs.sequences), settings
        assert both.scores(both.ids, **settings) == pytest.approx(
            theirs.sequences_scores.tolist(), rel=TOLERANCE[torch.float32], abs=TOLERANCE[torch.float32]
        ), settings


def test_prompts_of_unequal_length_get_the_answers_they_get_alone(both: Both) -> None:
    """Padding on either side, or none: the same tokens, from greedy and from beams."""
    lengths = (6, 3, 4)
    for settings in ({}, {"num_beams": 3, "no_repeat_ngram_size": 2, "repetition_penalty": 1.2}):
        alone = [
            both.we_say(both.ids[i : i + 1, :n], **settings)[0, 0 if both.pair else n :].tolist()
            for i, n in enumerate(lengths)
        ]
        for side in ("left", "right"):
            padded, mask = torch.zeros_like(both.ids), torch.zeros_like(both.ids)
            for i, n in enumerate(lengths):
                place = slice(6 - n, 6) if side == "left" else slice(0, n)
                padded[i, place], mask[i, place] = both.ids[i, :n], 1
            said = both.we_say(padded, mask, **settings)[:, 0 if both.pair else 6 :].tolist()
            for one, row in zip(alone, said, strict=True):
                assert row[: len(one)] == one and set(row[len(one) :]) <= {1, 2}, (side, settings)


def _reference(both: Both) -> str:
    config = both.theirs.config
    return next(name for name, r in SPEAKS.items() if r.family.key == config.model_type)

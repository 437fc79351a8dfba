"""No key of a config.json is ignored in silence: changed or left out, we follow the reference or refuse."""

import random
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest
from config_keys import Case, attempt, cases
from references import KNOWN, REFERENCES, Reference

from clearhead.families import Family

GOOD = ("same", "refused", "not counted")
FEW, SOME = 6, 25  # cases that count


def check(drawn: Iterable[Case], count: int, folder: Path) -> None:
    """Try cases until `count` of them counted; raise for one that is neither the same nor refused."""
    outcomes: Counter[str] = Counter()
    for case in drawn:
        found, words = attempt(case, folder)
        assert found in GOOD, f"{case}: {found}: {words}"
        outcomes[found] += 1
        if outcomes["same"] + outcomes["refused"] == count:
            break
    # It must not pass because nothing could be built, or because everything was refused.
    counted = outcomes["same"] + outcomes["refused"]
    assert counted >= 0.5 * count and outcomes["same"] >= 0.5 * counted, outcomes


@pytest.mark.parametrize("family", KNOWN.values(), ids=KNOWN)
def test_some_keys_of_every_family(family: Family, tmp_path: Path) -> None:
    """A few cases, always the same; `make proof` takes all."""
    models = [reference for reference in REFERENCES.values() if reference.family is family]
    everything = [case for reference in models for case in cases(reference)]
    check(random.Random(family.name).sample(everything, 5 * FEW), FEW, tmp_path / "model")


@pytest.mark.proof
@pytest.mark.timeout(600)
@pytest.mark.parametrize("reference", REFERENCES.values(), ids=REFERENCES)
def test_every_key(reference: Reference, tmp_path: Path) -> None:
    """All keys of the plain language models; of other heads and variations, some that are drawn."""
    everything = list(cases(reference))
    whole = reference.task == "tokens" and reference.name == "plain"
    drawn = random.Random(str(reference)).sample(everything, len(everything))
    check(drawn, len(everything) if whole else SOME, tmp_path / "model")

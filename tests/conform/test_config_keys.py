"""No key of a config.json is ignored in silence: changed or left out, we follow the reference or refuse."""

import random
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest
from config_keys import Case, attempt, cases
from references import KNOWN, REFERENCES, Reference

from clearhead.families import Family

FEW, SOME = 6, 25
GOOD = ("same", "refused", "not counted")


def check(chosen: Iterable[Case], folder: Path) -> Counter[str]:
    """Raise for every case that is not good; the outcomes of all."""
    found = {str(case): attempt(case, folder) for case in chosen}
    bad = {name: outcome for name, outcome in found.items() if outcome[0] not in GOOD}
    assert not bad, bad
    return Counter(outcome for outcome, _ in found.values())


@pytest.mark.parametrize("family", KNOWN.values(), ids=KNOWN)
def test_some_keys_of_every_family(family: Family, tmp_path: Path) -> None:
    """A few cases, always the same; `make proof` takes all."""
    heads = [reference for reference in REFERENCES.values() if reference.family is family]
    draw = random.Random(family.name)
    chosen = [draw.choice(list(cases(draw.choice(heads)))) for _ in range(FEW)]
    check(chosen, tmp_path / "model")


@pytest.mark.proof
@pytest.mark.timeout(600)
@pytest.mark.parametrize("reference", REFERENCES.values(), ids=REFERENCES)
def test_every_key(reference: Reference, tmp_path: Path) -> None:
    """All keys of the plain language models; of other heads and variations, some that are drawn."""
    everything = list(cases(reference))
    whole = reference.task == "tokens" and reference.name == "plain"
    chosen = everything if whole else random.Random(str(reference)).sample(everything, SOME)
    outcomes = check(chosen, tmp_path / "model")
    # It must not pass because nothing could be built.
    assert outcomes["same"] > 0.4 * len(chosen), outcomes

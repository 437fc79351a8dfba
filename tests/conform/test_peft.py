"""Folders of PEFT, against PEFT: every family with every method, read and written.

A part of the table in every run, in which every family and every method is met; the whole in `make proof`.
"""

import itertools
import re
from pathlib import Path

import matrix
import peft_models
import pytest
from peft_exceptions import FROM_PEFT, PARTS, TO_PEFT, UNUSED_PARTS
from peft_models import (
    METHODS,
    assert_same,
    base_folder,
    content,
    head_of,
    load_theirs,
    our_adapter,
    our_output,
    save_theirs,
    their_adapter,
    their_base,
    their_output,
)
from references import KNOWN

import clearhead as ch
from clearhead.bundle import why_not_peft
from clearhead.errors import ClearheadError

FAMILIES = list(KNOWN)
CASES = list(itertools.product(FAMILIES, METHODS))


def in_turn(name: str, method: str) -> bool:
    """One method for every family, others for its neighbours."""
    return FAMILIES.index(name) % len(METHODS) == list(METHODS).index(method)


every = pytest.mark.parametrize(("name", "method"), matrix.combinations(CASES, "{}-{}".format, in_turn))


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bases")


def test_every_family_and_every_method_is_met_in_every_run() -> None:
    met = [case for case in CASES if in_turn(*case)]
    assert {name for name, _ in met} == set(KNOWN) and {method for _, method in met} == set(METHODS)
    named = [*FROM_PEFT, *TO_PEFT]
    assert set(named) <= set(CASES) and {*UNUSED_PARTS, *PARTS} <= set(KNOWN)


@every
def test_what_peft_writes_is_read_and_written_back(
    name: str, method: str, bases: Path, tmp_path: Path
) -> None:
    folder, known = base_folder(bases, name, head_of(name, method)), FROM_PEFT.get((name, method))
    if known is not None and known.kind == "raises":
        with pytest.raises(Exception) as error:
            their_output(their_adapter(their_base(folder), name, method), name, method)
        assert re.search(known.text, str(error.value))
        return
    theirs = their_adapter(their_base(folder), name, method)
    save_theirs(theirs, tmp_path / "theirs")
    if known is not None and known.kind == "refused":
        with pytest.raises(ClearheadError) as refused:
            ch.load(folder, adapter=tmp_path / "theirs")
        assert re.search(known.text, str(refused.value)) and "\n" not in str(refused.value)
        return
    bundle = ch.load(folder, adapter=tmp_path / "theirs")
    want = their_output(theirs, name, method)
    if known is None:
        assert_same(our_output(bundle), want)
    else:
        with pytest.raises(AssertionError):
            assert_same(our_output(bundle), want)
    ch.save(bundle, tmp_path / "ours")
    assert content(tmp_path / "ours") == content(tmp_path / "theirs")
    ch.save(ch.load(tmp_path / "ours"), tmp_path / "again")
    assert content(tmp_path / "again") == content(tmp_path / "theirs")


@every
def test_what_is_written_is_read_by_peft(name: str, method: str, bases: Path, tmp_path: Path) -> None:
    folder, known = base_folder(bases, name, head_of(name, method)), TO_PEFT.get((name, method))
    if known is not None and known.kind == "refused":
        with pytest.raises(ClearheadError) as refused:
            our_adapter(folder, name, method)
        assert re.search(known.text, str(refused.value)) and "\n" not in str(refused.value)
        return
    bundle = our_adapter(folder, name, method)
    ch.save(bundle, tmp_path / "ours")
    again, want = ch.load(folder, adapter=tmp_path / "ours"), our_output(bundle)
    assert_same(our_output(again), want)
    ch.save(again, tmp_path / "again")
    assert content(tmp_path / "again") == content(tmp_path / "ours")
    if known is not None and known.kind == "own":
        assert re.search(known.text, why_not_peft(bundle))
        assert "peft_type" not in peft_models.config_of(tmp_path / "ours")
        return
    assert why_not_peft(bundle) == ""
    if known is not None and known.kind == "raises":
        with pytest.raises(Exception) as error:
            their_output(load_theirs(their_base(folder), tmp_path / "ours"), name, method)
        assert re.search(known.text, str(error.value))
        return
    unused = UNUSED_PARTS.get(name, "") if method == "rslora" else ""
    theirs = load_theirs(their_base(folder), tmp_path / "ours", unused=unused)
    if known is None:
        assert_same(their_output(theirs, name, method), want)
    else:
        with pytest.raises(AssertionError):
            assert_same(their_output(theirs, name, method), want)

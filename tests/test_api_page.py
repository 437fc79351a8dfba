"""docs/api.md lists every public name, and no name that does not exist. Its examples run as a doctest."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

import clearhead as ch
from clearhead.lens import Trace
from clearhead.text import Tokenizer

PAGE = (Path(__file__).parents[1] / "docs/api.md").read_text("utf-8")


def listed(prefix: str) -> set[str]:
    """The names that the page introduces, in bold: **`bundle.save(folder)`**."""
    return set(re.findall(rf"\*\*`{prefix}\.(\w+)", PAGE))


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


@pytest.mark.parametrize(
    ("prefix", "names"),
    [
        ("ch", set(ch.__all__)),
        ("bundle", public(ch.Bundle) | {field.name for field in fields(ch.Bundle)}),
        ("tokenizer", public(Tokenizer)),
        ("trace", public(Trace)),
    ],
)
def test_every_public_name_is_on_the_page(prefix: str, names: set[str]) -> None:
    assert listed(prefix) == names


def test_every_name_is_used_in_an_example() -> None:
    examples = "\n".join(re.findall(r"^(?:>>>|\.\.\.).*$", PAGE, re.MULTILINE))
    # Fields, and names for the same thing as another.
    told = {
        *(field.name for field in fields(ch.Bundle)),
        "bos",
        "eos",
        "unk",
        "mask",
        "sep",
        "save_pretrained",
    }
    assert [name for name in ch.__all__ if f"ch.{name}" not in examples] == ["Bundle", "Spec"]
    for prefix, kind in ((r"bundle|gpt|tuned|\)", ch.Bundle), ("tokenizer|Tokenizer", Tokenizer)):
        names = sorted(public(kind) - told)
        assert [name for name in names if not re.search(rf"(?:{prefix})\.{name}\b", examples)] == []

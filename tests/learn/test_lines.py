"""The line explainer: every explained line is in the source, once, and is shown with its reason."""

import json

import pytest

from clearhead.cli.main import main
from clearhead.learn.lines import source_of, walks


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as done:
        main(["learn", "lines", *words])
    shown = capsys.readouterr()
    return int(done.value.code or 0), shown.out, shown.err


@pytest.mark.parametrize("name", walks())
def test_every_explained_line_is_in_the_source(name: str) -> None:
    for where, reasons in walks()[name].reasons.items():
        source = [line.strip() for line in source_of(where)]
        for reason in reasons:
            found = [line for line in source if line.startswith(reason["line"])]
            assert len(found) == 1, f"{where}: {reason['line']!r} begins {len(found)} lines"
            assert reason["en"].isascii() and any(ord(letter) > 0x2E80 for letter in reason["zh"])


@pytest.mark.parametrize("name", walks())
def test_it_is_shown_in_both_languages(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    for lang in ("en", "zh"):
        code, out, _ = run(capsys, name, "--lang", lang)
        flat = "".join(out.split())
        assert code == 0 and '"""' not in out
        for where, reasons in walks()[name].reasons.items():
            assert all("".join(reason[lang].split()) in flat for reason in reasons)
            assert all("".join(line.split()) in flat for line in source_of(where))
        facts = json.loads(run(capsys, name, "--lang", lang, "--json")[1])
        told = [line["why"] for each in facts["functions"] for line in each["lines"] if line["why"]]
        assert told == [reason[lang] for reasons in walks()[name].reasons.values() for reason in reasons]


def test_the_three_questions_are_answered() -> None:
    """Why view and transpose, why sqrt(d_k), why residual and norm."""
    text = json.dumps([walk.reasons for walk in walks().values()])
    assert all(words in text for words in ("view, then transpose", "sqrt(d_k)", "Pre-norm"))


def test_names_are_listed_and_unknown_ones_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert all(name in run(capsys)[1] for name in walks())
    assert [each["name"] for each in json.loads(run(capsys, "--json")[1])] == list(walks())
    code, _, err = run(capsys, "atention")
    assert code == 2 and "did you mean 'attention'?" in err

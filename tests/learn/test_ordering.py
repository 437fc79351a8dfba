"""The ordering game: every puzzle has a right order, faults are told by place, nonsense is refused."""

import io
import json
from itertools import permutations

import pytest

from clearhead.cli.main import main
from clearhead.errors import InputError
from clearhead.learn.ordering import first_fault, parse_order, puzzles


@pytest.fixture(autouse=True)
def english(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLEARHEAD_LANG", "en")


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as done:
        main(["learn", "order", *words])
    shown = capsys.readouterr()
    return int(done.value.code or 0), shown.out, shown.err


def right_answer(name: str, seed: int = 0) -> str:
    puzzle = puzzles()[name]
    shown = puzzle.shuffled(seed)
    return " ".join(str(shown.index(step) + 1) for step in puzzle.steps)


@pytest.mark.parametrize("name", puzzles())
def test_a_puzzle_is_whole(name: str) -> None:
    puzzle = puzzles()[name]
    names = [step.name for step in puzzle.steps]
    assert len(names) >= 6 and first_fault(puzzle.steps) is None
    for step in puzzle.steps:
        assert set(step.needs) < set(names)
        for words in (puzzle.title, step.text, step.why):
            assert words["en"].isascii() and words["zh"]
        assert any(ord(letter) > 0x2E80 for letter in step.why["zh"])
    assert len({step.text["en"] for step in puzzle.steps}) == len({step.text["zh"] for step in puzzle.steps})
    for seed in range(20):
        shown = puzzle.shuffled(seed)
        assert sorted(step.name for step in shown) == sorted(names) and first_fault(shown) is not None


@pytest.mark.parametrize(("name", "count"), [("encoder-layer", 1), ("decoder-layer", 1), ("attention", 2)])
def test_only_steps_that_do_not_depend_on_each_other_may_change_places(name: str, count: int) -> None:
    """Scale and mask may be swapped; in a layer there is one order."""
    steps = puzzles()[name].steps
    head, tail = steps[:3], steps[6:]  # the longest puzzle has nine steps: only its middle is permuted
    middles = permutations(steps[3:6])
    found = sum(first_fault([*head, *middle, *tail]) is None for middle in middles)
    assert found == count


def test_the_first_wrong_place_is_told_with_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    puzzle = puzzles()["encoder-layer"]
    shown = puzzle.shuffled(0)
    first, second, third, *others = puzzle.steps
    wrong = " ".join(str(shown.index(step) + 1) for step in (first, third, second, *others))
    code, out, _ = run(capsys, "encoder-layer", "--answer", wrong)
    assert code == 1 and "place 2 is too early" in out and third.why["en"] in out
    code, out, _ = run(capsys, "encoder-layer", "--answer", wrong, "--lang", "zh")
    assert code == 1 and "第 2 位" in out and third.why["zh"] in out
    facts = json.loads(run(capsys, "encoder-layer", "--answer", wrong, "--json")[1])
    assert facts["solved"] is False and facts["wrong"]["place"] == 2
    assert facts["wrong"]["number"] == shown.index(third) + 1 and facts["wrong"]["why"] == third.why["en"]


@pytest.mark.parametrize("name", puzzles())
def test_a_right_order_is_accepted(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, name, "--answer", right_answer(name, 7).replace(" ", "，"), "--seed", "7")
    assert code == 0 and "✓ Right." in out
    facts = json.loads(run(capsys, name, "--answer", right_answer(name), "--json")[1])
    assert facts["solved"] is True and facts["wrong"] is None


def test_answers_come_through_a_pipe(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    right, wrong = right_answer("model"), "8 7 6 5 4 3 2 1"
    monkeypatch.setattr("sys.stdin", io.StringIO(f"\n{wrong}\n{right}\n{wrong}\n"))
    code, out, _ = run(capsys, "model")
    assert code == 0 and out.count("✗") == 1 and out.count("✓") == 1
    monkeypatch.setattr("sys.stdin", io.StringIO(wrong))
    assert run(capsys, "model")[0] == 1
    monkeypatch.setattr("sys.stdin", io.StringIO("first things first\n"))
    code, _, err = run(capsys, "model")
    assert code == 2 and "1 to 8" in err
    monkeypatch.setattr("sys.stdin", io.StringIO(""))  # nothing to judge: the puzzle, and how to answer
    code, out, _ = run(capsys, "model")
    assert code == 0 and "--answer" in out


@pytest.mark.parametrize(
    "answer", ["", "abc", "1 2 3", "1 1 2 3 4 5", "0 1 2 3 4 5", "1 2 3 4 5 6 7", "-1 2", "²"]
)
def test_nonsense_is_refused(answer: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "encoder-layer", f"--answer={answer}")
    assert code == 2 and out == "" and err.count("\n") == 1 and "1 to 6" in err
    with pytest.raises(InputError):
        parse_order(answer, 6)


def test_hints_seeds_and_lists(capsys: pytest.CaptureFixture[str]) -> None:
    puzzle = puzzles()["decoder-layer"]
    out = run(capsys, "decoder-layer", "--hints", "2", "--answer", right_answer("decoder-layer"))[1]
    assert out.count("hint") == 2 and f"hint  2. {puzzle.steps[1].text['en']}" in out
    shuffles = [json.loads(run(capsys, "model", "--json", "--seed", seed)[1])["steps"] for seed in "113"]
    assert shuffles[0] == shuffles[1] != shuffles[2]
    assert all(name in run(capsys)[1] for name in puzzles())
    assert [each["name"] for each in json.loads(run(capsys, "--json")[1])] == list(puzzles())
    code, _, err = run(capsys, "decoder-layr")
    assert code == 2 and "did you mean 'decoder-layer'?" in err


def test_in_a_terminal_it_asks_again(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    typed = iter(["x", "h", "6 5 4 3 2 1", "h", right_answer("encoder-layer")])
    monkeypatch.setattr("clearhead.cli.ordering._is_interactive", lambda: True)
    monkeypatch.setattr("builtins.input", lambda prompt: next(typed))
    code, out, err = run(capsys, "encoder-layer")
    assert code == 0 and out.count("✗") == 1 and "✓" in out and "1 to 6" in err
    first, second, *_ = puzzles()["encoder-layer"].steps
    assert (
        out.index(f"hint  1. {first.text['en']}")
        < out.index("✗")
        < out.index(f"hint  2. {second.text['en']}")
    )

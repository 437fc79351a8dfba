"""`clearhead look` as a person uses it."""

import json
import re
from pathlib import Path

import pytest
from rich.cells import cell_len
from speakers import TEXT, reader, translator, with_experts, writer

import clearhead as ch
from clearhead.bundle import Bundle
from clearhead.cli.main import main
from clearhead.families import FAMILIES
from clearhead.lens import VIEWS


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as done:
        main(["look", *words])
    said = capsys.readouterr()
    return int(done.value.code or 0), said.out, said.err


@pytest.fixture
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Bundle]:
    """Folders by name, without writing them: what `load` gives is made here."""
    there = {"writer": writer(tmp_path), "translator": translator(tmp_path), "moe": with_experts(tmp_path)}
    for bundle in there.values():
        bundle.family = FAMILIES["gpt2"]
    for module in ("text", "drawings"):
        monkeypatch.setattr(f"clearhead.cli.looking.{module}.load", lambda name, **_: there[name])
    monkeypatch.chdir(tmp_path)
    return there


def test_rows_and_columns_are_aligned_for_wide_letters(
    loaded: dict[str, Bundle], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clearhead.cli.looking.rows.OUT.width", 200, raising=False)
    code, out, err = run(capsys, "writer", "你好 fox", "--layer", "0", "--head", "1")
    assert code == 0 and err == ""
    matrix = out.split("head 1\n")[1].split("Attention weights show")[0].rstrip("\n").splitlines()
    assert len(matrix) == 1 + len(loaded["writer"].encode("你好 fox"))
    assert len({cell_len(line) for line in matrix}) == 1
    assert "read" in out and "好" in out and "not why" in out


def test_json_has_everything_that_was_asked(
    loaded: dict[str, Bundle], capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = ("--heads", "--importance", "--logits", "--activations", "--generate", "--new", "3")
    code, out, _ = run(capsys, "writer", TEXT, "--layer", "1", "--head", "2", *wanted, "--json")
    said = json.loads(out)
    assert code == 0 and {"tokens", "attention", "answer", "frames", "heads", "importance", "logits"} <= set(
        said
    )
    rows = said["attention"]["weights"]
    assert (said["attention"]["layer"], said["attention"]["head"]) == (1, 2)
    assert all(sum(row) == pytest.approx(1, abs=1e-4) for row in rows)
    said = json.loads(run(capsys, "translator", TEXT, "--beams", "2", "--new", "3", "--json")[1])
    assert len(said["tree"]["answers"]) == 2 and said["attention"]["kind"] == "cross"


@pytest.mark.parametrize("extra", ["--heads", "--importance", "--logits", "--activations", "--generate"])
def test_every_view_of_the_terminal_speaks(
    extra: str, loaded: dict[str, Bundle], capsys: pytest.CaptureFixture[str]
) -> None:
    for model in loaded:
        code, out, _ = run(capsys, model, TEXT, extra, "--new", "3")
        assert code == 0 and len(out.splitlines()) > 4


def test_before_and_after(loaded: dict[str, Bundle], capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "writer", TEXT, "--without", "head:1.2", "--without", "mlp:0")
    assert code == 0 and "without head:1.2 mlp:0" in out and "the answer moved by" in out
    out = run(capsys, "writer", TEXT, "--set", "tower.blocks.0.ff.out=x1")[1]
    assert "nothing moved" in out
    said = json.loads(run(capsys, "translator", TEXT, "--without", "cross", "--new", "4", "--json")[1])
    assert said["changed"]["moved"] > 0 and said["changed"]["before"]["said"] is not None


def test_what_is_saved_is_named(loaded: dict[str, Bundle], capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a.svg", "a.html", "a.safetensors"):
        assert f"saved {name}" in run(capsys, "writer", TEXT, "--save", name)[1] and Path(name).stat().st_size
    assert "saved look.html" in run(capsys, "writer", TEXT, "--html")[1]
    assert "all heads together" in run(capsys, "a.safetensors")[1]
    assert run(capsys, "positions", "rope", "--save", "p.svg")[0] == 0 and Path("p.svg").exists()
    assert run(capsys, "architecture", "bert-base", "--save", "m.svg")[0] == 0 and Path("m.svg").exists()
    assert "similarity" in run(capsys, "positions", "own", "writer")[1]


def test_a_mask_is_drawn_and_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "mask", "1 0 0; 1 1 0; 1 1 1")
    assert code == 0 and "■ ■ ·" in out and "nothing wrong" in out
    code, out, _ = run(capsys, "mask", "0 1 1; 0 0 1; 0 0 0")
    assert code == 1 and "inverted" in out
    (tmp_path / "m.json").write_text("[[0, -Infinity], [0, 0]]")
    assert "additive" in json.loads(run(capsys, "mask", f"{tmp_path}/m.json", "--json")[1])["findings"][0]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), "requires an argument"), (("nowhere/x", "hi"), "nowhere"), (("writer",), "give a text"),
        (("writer", TEXT, "--head", "9"), "no head 9"), (("writer", TEXT, "--layer", "9"), "no layer 9"),
        (("writer", TEXT, "--kind", "cross"), "no 'cross' attention"), (("writer", "x " * 99), "at most 48"),
        (("writer", TEXT, "--save", "a.jpg"), "a.jpg"), (("writer", TEXT, "--view", "x"), "no view 'x'"),
        (("writer", TEXT, "--without", "hed:1.1"), "'head'"),
        (("writer", TEXT, "--set", "a"), "ADDRESS=VALUE"),
        (("writer", TEXT, "--word", "zebra"), "no token is 'zebra'"), (("positions", "ropee"), "'rope'"),
        (("mask", "abc"), "cannot be read"), (("run", "writer", "gradients"), "is not a run"),
        (("run", "writer"), "metrics.jsonl"), (("run", "writer", "loss"), "is not a run"),
        (("positions", "own"), "needs a model"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_line_and_exit_2(
    words: tuple[str, ...], expected: str, loaded: dict[str, Bundle], capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    if words and words[0] == "nowhere/x":
        monkeypatch.setattr("clearhead.cli.looking.text.load", ch.load)
    code, out, err = run(capsys, *words)
    assert code == 2 and out == "" and err.count("\n") == 1 and expected in err, err


def test_unknown_tokens_are_shown_as_what_the_model_reads(tmp_path: Path) -> None:
    bundle = reader(tmp_path)
    assert bundle.tokenizer is not None and bundle.tokenizer.unk is not None
    trace = bundle.trace("the quick 龘龘 fox")
    assert [token.label for token in trace.tokens if token.id == bundle.tokenizer.unk.id] == ["[UNK]"] * 2
    assert [token.text for token in trace.tokens if token.label == "[UNK]"] == ["龘", "龘"]
    assert trace.notes == (
        f"2 of {len(trace.tokens) - 2} tokens are unknown to this model's vocabulary: 龘; "
        "each is read as the same token",
    )
    assert bundle.trace("the quick fox").notes == ()


def test_a_word_of_the_source_shows_who_looks_at_it(
    loaded: dict[str, Bundle], capsys: pytest.CaptureFixture[str]
) -> None:
    trace = loaded["translator"].trace(TEXT, max_new_tokens=4)
    source, target = trace.labels("cross")[1], trace.labels("cross")[0]
    only = next(label for label in source if label not in target)
    code, out, _ = run(capsys, "translator", TEXT, "--new", "4", "--word", only)
    assert code == 0
    line = next(line for line in out.splitlines() if "←" in line)
    weights = trace.attention("cross", -1).mean(0)[:, len(source) - 1 - source[::-1].index(only)]
    best = int(weights.argmax())
    assert line.startswith(f"{only} ← {target[best]} {float(weights[best]):.2f}")
    code, _, err = run(capsys, "translator", TEXT, "--new", "4", "--word", "nowhere")
    assert code == 2 and "no token is 'nowhere'" in err


@pytest.mark.parametrize("name", ["writer", "translator"])
@pytest.mark.parametrize("more", [(), ("--importance",), ("--kind", "self"), ("--kind", "decoder")])
def test_the_hint_below_a_picture_can_be_typed(
    name: str, more: tuple[str, ...], loaded: dict[str, Bundle], capsys: pytest.CaptureFixture[str]
) -> None:
    if name == "writer" and "decoder" in more:
        return  # it has no such attention
    code, out, _ = run(capsys, name, TEXT, "--new", "4", *more)
    assert code == 0
    found = re.search(r"--without\s+(\S+)\)", out)
    assert found is not None
    assert run(capsys, name, TEXT, "--new", "4", "--without", found[1])[0] == 0


def test_parts_of_both_sides_and_what_the_mask_does(
    loaded: dict[str, Bundle], capsys: pytest.CaptureFixture[str]
) -> None:
    for part in ("residual", "norm", "mlp"):
        assert run(capsys, "translator", TEXT, "--new", "4", "--without", part)[0] == 0
    code, out, _ = run(capsys, "translator", TEXT, "--new", "4", "--without", "mask")
    assert code == 0 and "the text is the same; its probabilities moved by" in out
    assert "decoding adds one token at a time" in " ".join(out.split())
    code, _, err = run(capsys, "writer", " ")
    assert code == 2 and "give a text" in err


def test_the_experts_of_a_text(loaded: dict[str, Bundle], capsys: pytest.CaptureFixture[str]) -> None:
    words = ("moe", TEXT, "--kind", "self", "--routing")
    code, out, _ = run(capsys, *words)
    assert code == 0 and "experts of the encoder" in out and "layer 1" in out and "load" in out
    code, out, _ = run(capsys, *words, "--json", "--save", "experts.svg")
    said = json.loads(out)["routing"]
    assert code == 0 and said["layers"] == [0, 1]
    assert said["tokens"] == [t.label for t in loaded["moe"].trace(TEXT, max_new_tokens=1).tokens]
    assert all(sum(row) == pytest.approx(1, abs=1e-3) for row in said["load"])
    assert "which experts" in Path("experts.svg").read_text(encoding="utf-8")
    code, _, err = run(capsys, "writer", TEXT, "--routing")
    assert code == 2 and err.count("\n") == 1 and "this model has no experts" in err


def test_the_help_names_every_view(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["look", "--help"])
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert " ".join(VIEWS) in shown

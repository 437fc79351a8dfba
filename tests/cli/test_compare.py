"""`clearhead look --compare` as a person uses it: two models, an adapter, a change of one model, a file."""

import io
import json
import re
from pathlib import Path

import pytest
import torch
from rich.cells import cell_len
from tunings import move

import clearhead as ch
from clearhead.cli.console import SafeConsole
from clearhead.cli.looking import comparison, comparison_tables
from clearhead.cli.main import main
from clearhead.text import train_tokenizer
from clearhead.tune import Bottleneck, Lora

LINES = ["the cat sat on a mat", "a dog ran in the park", "今天天气很好，我们去公园玩"]
TEXT = "the cat ran in the park"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders: a base, two adapters over it, another checkpoint, an encoder with a classifier over it."""
    root = tmp_path_factory.mktemp("models")
    tokenizer = train_tokenizer(LINES * 4, vocab=80)
    base = ch.build("gpt2", vocab_size=tokenizer.vocab, n_positions=64, n_embd=32, n_layer=2, n_head=4)
    base.tokenizer = tokenizer
    with torch.no_grad():
        for p in base.model.parameters():
            if p.ndim > 1:
                p.mul_(6.0)
    ch.save(base, root / "base")
    base = ch.load(root / "base")
    for name, tuning in (("one", Lora(rank=2)), ("two", Bottleneck(reduction=4))):
        after = ch.tune(base, tuning)
        move(after.model, after.tuning.trained, 0.2)
        ch.save(after, root / name)
    with torch.no_grad():
        base.model.tower.blocks[0].ff.up.weight.mul_(1.3)
    ch.save(base, root / "other")
    words = train_tokenizer(LINES * 4, kind="wordpiece", vocab=90, frame="cls-sep")
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 32}
    bert = ch.build("bert", task="hidden", vocab_size=words.vocab, **sizes)
    bert.tokenizer = words
    ch.save(bert, root / "bert")
    labels = ch.tune(ch.load(root / "bert", head="labels", labels=["good", "bad"]), Lora(rank=2))
    move(labels.model, labels.tuning.trained, 0.4)
    ch.save(labels, root / "labels")
    (root / "rows.txt").write_text("\n".join([*LINES[:2], "", LINES[0] * 20]), "utf-8")
    (root / "rows.tsv").write_text("text\tlabel\n" + "".join(f"{line}\tgood\n" for line in LINES), "utf-8")
    return root


def run(capsys: pytest.CaptureFixture[str], folders: Path, *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as done, pytest.MonkeyPatch.context() as patch:
        patch.chdir(folders)
        patch.setenv("HF_HUB_OFFLINE", "1")
        main(["look", *words])
    said = capsys.readouterr()
    return int(done.value.code or 0), said.out, said.err


SPELLINGS = [
    ("base", TEXT, "--compare", "one"),
    ("base", "--compare", "one", TEXT),
    ("one", TEXT, "--compare"),
    ("one", "--compare", TEXT),
    ("one", TEXT, "--compare", "base"),
    ("base", TEXT, "--adapter", "one", "--compare"),
]


@pytest.mark.parametrize("words", SPELLINGS)
def test_every_spelling_compares_a_base_with_its_adapter(
    words: tuple[str, ...], folders: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, folders, *words, "--json", "--effects", "none", "--new", "3")
    assert code == 0 and err == ""
    found = json.loads(out)
    assert (found["before"], found["after"]) == ("base", "one") and found["tuning"].startswith("Lora")
    wanted = ch.compare(ch.load(folders / "one"), TEXT, effects="none", max_new_tokens=0)
    assert found["change"] == pytest.approx(wanted.change, rel=1e-5) and found["change"] > 0


def test_the_page_in_the_terminal(folders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, folders, "one", TEXT, "--compare", "--new", "4", "--top", "3")
    assert code == 0 and err == "" and "\x1b" not in out
    for words in (
        "base → one", "loss per token", "tokens whose prediction changed most", "the text, continued",
        "attention that moved most", "by layer and head, in %", "share of the change",
        "parts that carry the change", "of the change",
    ):  # fmt: skip
        assert words in out, words
    c = ch.compare(ch.load(folders / "one"), TEXT, max_new_tokens=0)
    best = c.most_changed(1)[0]
    table = out.split("tokens whose prediction changed most\n")[1].splitlines()
    assert f"{best.change:.2f}" in table[1] and len(table[:5]) == 5 and table[4] == ""
    shares = re.findall(r"layer (\d) +([\d.]+) %", out.split("parts that carry the change")[1])
    largest = max((part for part in c.parts if not part.step), key=lambda part: part.share)
    assert int(shares[0][0]) == largest.layer and float(shares[0][1]) == pytest.approx(
        100 * largest.share, rel=0.1
    )


def test_two_checkpoints_two_adapters_and_a_classifier(
    folders: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = json.loads(run(capsys, folders, "base", TEXT, "--compare", "other", "--json", "--new", "0")[1])
    energies = {part["address"] for part in found["parts"] if part["energy"]}
    assert energies == {"tower.blocks.0", "tower.blocks.0.ff"} and found["texts"] is None
    two = json.loads(run(capsys, folders, "one", TEXT, "--compare", "two", "--json", "--new", "0")[1])
    again = json.loads(
        run(capsys, folders, "base", TEXT, "--adapter", "one", "--compare", "two", "--json", "--new", "0")[1]
    )
    assert (two["before"], two["after"]) == ("one", "two") and two["change"] == again["change"] > 0
    for words in (("bert", TEXT, "--compare", "labels"), ("labels", TEXT, "--compare")):
        code, out, err = run(capsys, folders, *words)
        assert code == 0 and "good" in out and "tokens whose state moved most" in out
        assert "no head of its own" in " ".join(err.split())


CHANGES = [
    (("--set", "Attention.kernel=Linear"), "Attention.kernel=Linear"),
    (("--without", "head:0.1"), "base without head:0.1"),
    (("--set", "tower.blocks.0.ff.out=0"), "base without tower.blocks.0.ff.out=0"),
    (("--without", "scale"), "base without scale"),
    (("--precision", "int8"), "base in int8"),
    (("--set", "Attention.kernel=Linear", "--precision", "bfloat16"), "Attention.kernel=Linear"),
]


@pytest.mark.parametrize(("words", "name"), CHANGES)
def test_one_model_before_and_after_a_change(
    words: tuple[str, ...], name: str, folders: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, folders, "base", TEXT, "--compare", *words, "--json", "--new", "3")
    found = json.loads(out)
    assert code == 0 and err == "" and (found["before"], found["after"]) == ("base", name)
    assert found["change"] > 0
    assert bool(found["parts"]) == (words[0] != "--without" or words[1] == "scale") * (
        ".out" not in words[1]
    ) or (words[1] == "scale")


def test_an_adapter_in_another_precision_changes_both_sides(
    folders: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain, packed = (
        json.loads(run(capsys, folders, "one", TEXT, "--compare", "--json", "--new", "0", *more)[1])
        for more in ((), ("--precision", "int8"))
    )
    assert packed["change"] == pytest.approx(plain["change"], rel=0.2) and packed["change"] != plain["change"]


def test_rows_of_a_file(folders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, folders, "base", "--compare", "one", "--file", "rows.txt", "--top", "2")
    assert code == 0 and "3 rows" in out and "mean loss" in out and "1 texts were longer" in err
    found = json.loads(run(capsys, folders, "one", "--compare", "--file", "rows.txt", "--json")[1])
    assert [row["row"] for row in found["rows"]] and {row["row"] for row in found["rows"]} == {1, 2, 4}
    changes = [row["change"] for row in found["rows"]]
    assert changes == sorted(changes, reverse=True)
    code, out, err = run(capsys, folders, "labels", "--compare", "--file", "rows.tsv", "--column", "text")
    assert code == 0 and "with another label" in out and "今天" in out


def test_what_is_saved_is_named(folders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a.svg", "a.html", "a.pdf"):
        _, out, err = run(
            capsys, folders, "one", TEXT, "--compare", "--effects", "layers", "--new", "2", "--save", name
        )
        if name == "a.pdf" and "fonts-noto-cjk" in err:
            pytest.skip("a prediction is Chinese, and this machine has no font: apt install fonts-noto-cjk")
        assert f"saved {name}" in out and (folders / name).stat().st_size > 1000


def test_the_page_has_a_name_by_default(folders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "saved look.html" in run(capsys, folders, "one", TEXT, "--compare", "--html", "--new", "0")[1]


WRONG = [
    (("base", TEXT, "--compare"), "is not an adapter, so it has no model before it"),
    (("base", "--compare", "one"), "give a text to compare"),
    (("base", " ", "--compare", "one"), "give a text to compare"),
    (("base", TEXT, "--compare", "bert"), "different tokenizers"),
    (("bert", TEXT, "--compare", "one"), "trained over other weights"),
    (("base", TEXT, "--compare", "nowhere/x"), "nowhere/x"),
    (("base", TEXT, "--compare", "rows.txt"), "rows.txt"),
    (("base", "word " * 90, "--compare", "one"), "at most 64"),
    (("one", TEXT, "--compare", "--heads"), "leave out --heads"),
    (("one", TEXT, "--compare", "--layer", "0"), "leave out --layer"),
    (("one", TEXT, "--compare", "--view", "heat"), "leave out --view"),
    (("one", TEXT, "--compare", "--without", "head:0.1"), "change one model alone"),
    (("base", TEXT, "--compare", "--without", "attn:0", "--set", "Attention.kernel=Linear"), "one at a time"),
    (("base", TEXT, "--compare", "--without", "head:9.1"), "2 layers"),
    (("base", TEXT, "--top", "3"), "--top is for --compare"),
    (("base", TEXT, "--precision", "int8"), "--precision is for --compare"),
    (("one", TEXT, "--compare", "--top", "0"), "expected 1 or more"),
    (("one", TEXT, "--compare", "--precision", "int3"), "int4"),
    (("one", TEXT, "--compare", "--save", "a.jpg"), "saved as .html"),
    (("one", TEXT, "--compare", "--save", "no/a.png"), "no folder no"),
    (("one", TEXT, "--compare", "--file", "rows.txt"), "leave out the text"),
    (("one", "--compare", "--file", "nothing.txt"), "nothing.txt"),
    (("one", "--compare", "--file", "rows.txt", "--save", "a.svg"), "for one text"),
    (("one", TEXT, "--compare", "base", "other"), "at most 2|one other model|takes"),
    (("a.safetensors", TEXT, "--compare"), "a.safetensors"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "expected"), WRONG)
def test_what_is_wrong_is_one_line_and_exit_2(
    words: tuple[str, ...], expected: str, folders: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = set(folders.iterdir())
    code, out, err = run(capsys, folders, *words)
    assert code == 2 and out == "" and err.count("\n") == 1 and re.search(expected, err), err
    assert set(folders.iterdir()) == before


@pytest.mark.parametrize("width", [50, 80, 120])
def test_lines_fit_the_terminal(width: int, folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Coloured, and as wide as the terminal; the text and the tables also where it is narrow."""
    terminal = SafeConsole(highlight=False, soft_wrap=True, width=width, force_terminal=True,
                           color_system="truecolor", record=True, file=io.StringIO())  # fmt: skip
    for module in (comparison, comparison_tables):
        monkeypatch.setattr(module, "OUT", terminal)
    bundle = ch.load(folders / "one")
    for text in (f"{TEXT} " * 6, "今天天气很好，我们去公园玩" * 3):
        comparison.print_comparison(ch.compare(bundle, text, max_new_tokens=8), 8)
        said = terminal.export_text(clear=False)
        assert max(cell_len(line) for line in said.splitlines()) <= width
        coloured = terminal.export_text(styles=True)
        assert "\x1b[" in coloured and "KL(after || before)" in said

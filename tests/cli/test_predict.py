"""`predict` and `embed` as a person uses them."""

import io
import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file

import clearhead as ch
from clearhead.cli.main import main
from clearhead.families import HeadKind
from clearhead.text.training import train_tokenizer

LINES = ["the cat sat on a mat", "a dog ran", "猫坐在垫子上", "the dog sat"]
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
LABELS = {"labels": ["good", "bad"], "tags": ["B-PER", "B-ORG"], "span": ["first", "last"]}


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as done:
        main(list(words))
    said = capsys.readouterr()
    return int(done.value.code or 0), said.out, said.err


def model(folder: Path, task: HeadKind) -> str:
    tokenizer = train_tokenizer(LINES, kind="wordpiece", vocab=90, frame="cls-sep")
    names = {str(i): name for i, name in enumerate(LABELS.get(task, ["a", "b"]))}
    bundle = ch.build("bert", task=task, vocab_size=tokenizer.vocab, id2label=names, **SIZES)
    bundle.tokenizer = tokenizer
    ch.save(bundle, folder / task)
    return str(folder / task)


@pytest.fixture
def lines(tmp_path: Path) -> str:
    path = tmp_path / "lines.txt"
    path.write_text("\n".join(LINES) + "\n", encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("quantize", [(), ("--quantize", "int8")])
def test_labels(quantize: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = model(tmp_path, "labels")
    code, out, _ = run(capsys, "predict", folder, LINES[0], *quantize)
    assert code == 0 and "good" in out and "bad" in out and "%" in out
    said = json.loads(run(capsys, "predict", folder, LINES[0], "--json", *quantize)[1])
    assert said["kind"] == "labels" and sum(g["probability"] for g in said["guesses"]) == pytest.approx(
        1, abs=1e-5
    )


def test_tags_stand_in_brackets_where_there_are_no_colours(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(capsys, "predict", model(tmp_path, "tags"), LINES[2])
    assert code == 0 and ("|PER]" in out or "|ORG]" in out)
    bare = out.strip().replace("|PER]", "").replace("|ORG]", "").replace("[", "")
    assert bare == LINES[2]  # not a character is lost


def test_answers_words_and_lines_of_stdin(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = model(tmp_path, "span")
    code, out, _ = run(capsys, "predict", folder, "the dog", "--context", LINES[0], "--top", "2")
    assert code == 0 and len(out.splitlines()) == 3
    best = ch.load(folder).predict("the dog", LINES[0]).guesses[0]
    shown = f"{LINES[0][: best.start]}[{best.text}]{LINES[0][best.end :]}"
    assert out.splitlines()[2] == shown  # the answer in its context
    assert "context" in run(capsys, "predict", folder, "the dog")[2]
    monkeypatch.setattr("sys.stdin", io.StringIO("the <mask> sat\n\na <mask> ran\n"))
    code, out, _ = run(capsys, "predict", model(tmp_path, "tokens"), "-", "--json", "--top", "3")
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 0 and [row["text"] for row in rows] == ["the <mask> sat", "a <mask> ran"]
    assert all(len(row["guesses"]) == 3 for row in rows)


def test_vectors_of_every_line(tmp_path: Path, lines: str, capsys: pytest.CaptureFixture[str]) -> None:
    folder = model(tmp_path, "hidden")
    code, out, _ = run(capsys, "embed", folder, lines)
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 0 and [row["text"] for row in rows] == LINES
    wanted = np.array([row["vector"] for row in rows], dtype=np.float32)
    for suffix in (".npy", ".safetensors", ".jsonl"):
        path = tmp_path / f"out{suffix}"
        said = json.loads(run(capsys, "embed", folder, lines, "--out", str(path), "--json")[1])
        assert (said["count"], said["width"]) == (4, 32)
        if suffix == ".npy":
            found = np.load(path)
        elif suffix == ".safetensors":
            found = load_file(path)["vectors"].numpy()
        else:
            found = np.array([json.loads(line)["vector"] for line in path.read_text().splitlines()])
        np.testing.assert_allclose(found, wanted, atol=1e-6)
    assert sorted(p.suffix for p in tmp_path.glob("out*")) == [".jsonl", ".npy", ".safetensors"]


def test_a_search_finds_the_line_itself_first(
    tmp_path: Path, lines: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = model(tmp_path, "hidden")
    code, out, _ = run(capsys, "embed", folder, lines, "--search", LINES[2], "--top", "2")
    assert code == 0 and len(out.splitlines()) == 3 and "1.000" in out.splitlines()[1] and LINES[2] in out
    said = json.loads(run(capsys, "embed", folder, lines, "--search", LINES[1], "--json")[1])
    assert [said["found"][0][key] for key in ("line", "text")] == [2, LINES[1]]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("predict", "HIDDEN", "a text"), "clearhead embed"),
        (("predict", "LABELS", "a text", "--quantize", "int3"), "did you mean 'int8'?"),
        (("predict", "LABELS", "a text", "--top", "0"), "top is 0"),
        (("embed", "HIDDEN", "nowhere.txt"), "nowhere.txt is not a file"),
        (("embed", "HIDDEN", "FILE", "--out", "vectors.txt"), "ends in .npy, .safetensors, .jsonl"),
        (("embed", "HIDDEN", "FILE", "--out", "no/where.npy"), "there is no folder no"),
        (("embed", "HIDDEN", "FILE", "--top", "0", "--search", "x"), "--top is 0"),
        (("embed", "HIDDEN", "FILE", "--search", "x", "--out", "v.npy"), "give one of them"),
        (("embed", "HIDDEN", "EMPTY"), "is empty"),
        (("embed", "HIDDEN", "BYTES"), "is not UTF-8"),
    ],
)  # fmt: skip
def test_a_wrong_word_is_one_line_and_exit_2(
    words: tuple[str, ...], expected: str, tmp_path: Path, lines: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    paths = {"FILE": lines, "EMPTY": str(tmp_path / "empty"), "BYTES": str(tmp_path / "bytes")}
    paths |= {word: model(tmp_path, word.lower()) for word in ("HIDDEN", "LABELS") if word in words}
    code, out, err = run(capsys, *(paths.get(word, word) for word in words))
    assert code == 2 and out == "" and expected in err, err
    assert err.startswith("clearhead: ") and err.count("\n") == 1

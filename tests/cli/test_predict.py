"""`predict` and `embed` as a person uses them."""

import gzip
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


@pytest.mark.parametrize("quantize", [(), ("--quantize", "int8"), ("--precision", "bfloat16")])
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
    written = sorted(path.name for path in tmp_path.glob("out*"))
    assert written == ["out.jsonl", "out.npy", "out.safetensors", "out.texts.json"]


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
        (("predict", "LABELS", "a text", "--quantize", "int3"), "did you mean 'int4'?"),
        (("predict", "LABELS", "a text", "--top", "0"), "top is 0"),
        (("embed", "HIDDEN", "nowhere.txt"), "nowhere.txt is not a file"),
        (("embed", "HIDDEN", "FILE", "--out", "vectors.txt"), "ends in .npy, .safetensors, .jsonl"),
        (("embed", "HIDDEN", "FILE", "--out", "no/where.npy"), "there is no folder no"),
        (("embed", "HIDDEN", "FILE", "--top", "0", "--search", "x"), "--top is 0"),
        (("embed", "HIDDEN", "FILE", "--search", "x", "--out", "v.npy"), "give one of them"),
        (("embed", "HIDDEN", "EMPTY"), "is empty"),
        (("embed", "HIDDEN", "BYTES"), "is not UTF-8"),
        (("embed", "HIDDEN"), "name a file of texts, or --vectors FILE"),
        (("embed", "HIDDEN", "TABLE", "--column", "sentense"), "did you mean 'sentence'?"),
        (("embed", "HIDDEN", "NUMBERS"), "name the one to read: --column id"),
        (("embed", "HIDDEN", "--vectors", "nowhere.npy", "--search", "x"), "there is no file nowhere.npy"),
        (("embed", "HIDDEN", "--vectors", "FILE", "--search", "x"), "ends in .npy, .safetensors, .jsonl"),
        (("embed", "HIDDEN", "--vectors", "TABLE.jsonl", "--search", "x"), "holds no vectors"),
        (("embed", "HIDDEN", "--vectors", "v.npy"), "--vectors needs --search"),
        (("embed", "HIDDEN", "FILE", "--vectors", "v.npy", "--search", "x"), "leave FILE and --out out"),
        (("embed", "HIDDEN", "FILE", "--batch-size", "0"), "batch_size is 0"),
        (("predict", "LABELS"), "give a text, or --file FILE"),
        (("predict", "LABELS", "a text", "--file", "FILE"), "not both"),
        (("predict", "LABELS", "a text", "--column", "x"), "are for --file"),
        (("predict", "LABELS", "--file", "TABLE", "--column", "sentense"), "did you mean 'sentence'?"),
        (("predict", "LABELS", "--file", "TABLE", "--context-column", "label"), "needs --column"),
        (("predict", "LABELS", "--file", "TABLE", "--context", "x"), "a file has columns for them"),
        (("predict", "LABELS", "--file", "EMPTY"), "has no text in it"),
        (("predict", "LABELS", "a text", "--choice", "x"), "multiple-choice head"),
    ],
)  # fmt: skip
def test_a_wrong_word_is_one_line_and_exit_2(
    words: tuple[str, ...], expected: str, tmp_path: Path, lines: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    (tmp_path / "rows.tsv").write_text("sentence\tlabel\nthe cat sat\tgood\na dog ran\tbad\n")
    (tmp_path / "rows.jsonl").write_text('{"sentence": "the cat"}\n')
    (tmp_path / "numbers.csv").write_text("id,size\n1,2\n3,4\n")
    names = {"TABLE": "rows.tsv", "TABLE.jsonl": "rows.jsonl", "NUMBERS": "numbers.csv"}
    paths = {word: str(tmp_path / name) for word, name in names.items()}
    paths |= {"FILE": lines, "EMPTY": str(tmp_path / "empty"), "BYTES": str(tmp_path / "bytes")}
    paths |= {word: model(tmp_path, word.lower()) for word in ("HIDDEN", "LABELS") if word in words}
    code, out, err = run(capsys, *(paths.get(word, word) for word in words))
    assert code == 2 and out == "" and expected in err, err
    assert err.startswith("clearhead: ") and err.count("\n") == 1


# --- files with columns ---

ROWS = [("the cat sat on a mat", "good"), ("a dog ran", "bad"), ("", "bad"), ("猫坐在垫子上", "good")]


@pytest.fixture(params=["tsv", "csv", "jsonl", "parquet", "tsv.gz"])
def rows_file(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    path = tmp_path / f"rows.{request.param}"
    records = [{"sentence": text, "label": label, "id": i} for i, (text, label) in enumerate(ROWS)]
    if request.param == "jsonl":
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in records), "utf-8")
    elif request.param == "parquet":
        pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not here: pip install 'clearhead[data]'")
        parquet = pytest.importorskip("pyarrow.parquet")
        parquet.write_table(pyarrow.Table.from_pylist(records), path)
    else:
        separator = "," if request.param == "csv" else "\t"
        table = "".join(
            separator.join(map(str, row)) + "\n" for row in [records[0], *map(dict.values, records)]
        )
        path.write_bytes(gzip.compress(table.encode()) if path.suffix == ".gz" else table.encode())
    return str(path)


def test_every_row_of_a_file_is_predicted(
    rows_file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = model(tmp_path, "labels")
    code, out, err = run(capsys, "predict", folder, "--file", rows_file, "--json")
    found = [json.loads(line) for line in out.splitlines()]
    assert code == 0 and [row["row"] for row in found] == [1, 2, 4]
    assert [row["text"] for row in found] == [text for text, _ in ROWS if text]
    assert "reading text=sentence; --column names another" in err and "1 rows without text left out" in err
    bundle = ch.load(folder)
    for row in found:
        best = bundle.predict(row["text"]).guesses[0]
        assert (row["guesses"][0]["text"], row["guesses"][0]["probability"]) == (
            best.text,
            pytest.approx(best.probability, abs=1e-5),
        )
    code, out, err = run(capsys, "predict", folder, "--file", rows_file, "--column", "label")
    assert code == 0 and [line.split("\t")[2] for line in out.splitlines()] == [label for _, label in ROWS]
    assert err == "" and all(line.split("\t")[0] in LABELS["labels"] for line in out.splitlines())


def test_a_column_is_embedded_and_named_if_it_was_guessed(
    rows_file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = model(tmp_path, "hidden")
    for words, note in (((), "reading text=sentence"), (("--column", "sentence"), "")):
        code, out, err = run(capsys, "embed", folder, rows_file, *words)
        assert code == 0 and note in err and bool(err) == bool(note)
        assert [json.loads(line)["text"] for line in out.splitlines()] == [text for text, _ in ROWS]
    found = json.loads(run(capsys, "embed", folder, rows_file, "--search", ROWS[1][0], "--json")[1])["found"]
    assert (found[0]["line"], found[0]["text"]) == (2, ROWS[1][0])


@pytest.mark.parametrize("suffix", [".npy", ".safetensors", ".jsonl"])
def test_saved_vectors_are_searched_again_without_embedding_the_lines(
    suffix: str,
    tmp_path: Path,
    lines: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder, saved = model(tmp_path, "hidden"), str(tmp_path / f"saved{suffix}")
    want = run(capsys, "embed", folder, lines, "--search", LINES[1], "--json")[1]
    code, _, err = run(capsys, "embed", folder, lines, "--out", saved)
    assert code == 0 and f"--vectors {saved}" in err
    Path(lines).unlink()
    counts: list[int] = []
    embed = ch.Bundle.embed
    monkeypatch.setattr(
        ch.Bundle, "embed", lambda self, texts, **o: counts.append(len([texts])) or embed(self, texts, **o)
    )
    code, out, _ = run(capsys, "embed", folder, "--vectors", saved, "--search", LINES[1], "--json")
    assert code == 0 and counts == [1, 1]  # the search, and one saved text to compare
    for one, two in zip(json.loads(out)["found"], json.loads(want)["found"], strict=True):
        assert one["line"] == two["line"] and one["likeness"] == pytest.approx(two["likeness"], abs=1e-5)
    assert run(capsys, "embed", folder, "--vectors", saved, "--search", "x", "--quantize", "int8")[0] == 0


@pytest.mark.parametrize("suffix", [".npy", ".safetensors", ".jsonl"])
def test_vectors_of_another_model_are_refused(
    suffix: str, tmp_path: Path, lines: str, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = str(tmp_path / f"saved{suffix}")
    run(capsys, "embed", model(tmp_path, "hidden"), lines, "--out", saved)
    for changes, expected in (
        ({"hidden_size": 16}, "has vectors of 32 numbers, this model makes 16"),
        ({"seed": 3}, "was made by another model"),
    ):
        other = ch.build("bert", task="hidden", vocab_size=90, **(SIZES | changes))
        other.tokenizer = ch.load(tmp_path / "hidden").tokenizer
        other.save(tmp_path / "other")
        code, out, err = run(capsys, "embed", str(tmp_path / "other"), "--vectors", saved, "--search", "x")
        assert code == 2 and out == "" and expected in err and err.count("\n") == 1


def test_a_damaged_file_of_vectors_is_one_line(
    tmp_path: Path, lines: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = model(tmp_path, "hidden")
    for suffix in (".npy", ".safetensors", ".jsonl"):
        saved = tmp_path / f"saved{suffix}"
        run(capsys, "embed", folder, lines, "--out", str(saved))
        saved.write_bytes(saved.read_bytes()[:60])
        code, out, err = run(capsys, "embed", folder, "--vectors", str(saved), "--search", "x")
        assert code == 2 and out == "" and err.count("\n") == 1, err
    run(capsys, "embed", folder, lines, "--out", str(tmp_path / "saved.npy"))
    beside = tmp_path / "saved.texts.json"
    for text, expected in (('["one"]', "4 vectors and 1 texts"), ("{}", "not a list of texts")):
        beside.write_text(text)
        code, _, err = run(capsys, "embed", folder, "--vectors", str(tmp_path / "saved.npy"), "--search", "x")
        assert code == 2 and expected in err
    beside.unlink()
    code, _, err = run(capsys, "embed", folder, "--vectors", str(tmp_path / "saved.npy"), "--search", "x")
    assert code == 2 and "saved.texts.json" in err


def test_answers_and_pairs_of_a_file_come_from_two_columns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, path = model(tmp_path, "span"), tmp_path / "questions.jsonl"
    row = {"question": "the dog", "context": LINES[0], "answers": {"text": ["cat"], "answer_start": [4]}}
    path.write_text(json.dumps(row) + "\n")
    best = ch.load(folder).predict("the dog", LINES[0]).guesses[0]
    for words in ((), ("--column", "question", "--context-column", "context")):
        code, out, _ = run(capsys, "predict", folder, "--file", str(path), *words)
        assert code == 0 and out == f"{best.text.strip()}\t{best.probability:.4f}\tthe dog\n"
    table = tmp_path / "pairs.tsv"
    table.write_text("sentence1\tsentence2\tlabel\nthe cat\ta dog\tgood\na dog ran\tthe cat\tbad\n")
    folder = model(tmp_path, "labels")
    _, out, err = run(capsys, "predict", folder, "--file", str(table), "--json")
    want = ch.load(folder).predict(["the cat", "a dog ran"], ["a dog", "the cat"])
    found = [json.loads(line)["guesses"][0]["probability"] for line in out.splitlines()]
    assert found == pytest.approx([each.guesses[0].probability for each in want], abs=1e-5)
    assert "reading text=sentence1, second=sentence2" in err


def test_scores_choices_and_several_labels_are_printed(
    tmp_path: Path, lines: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = model(tmp_path, "labels")
    config = json.loads((Path(folder) / "config.json").read_text())
    for kind in ("regression", "multi_label_classification"):
        (Path(folder) / "config.json").write_text(json.dumps(config | {"problem_type": kind}))
        bundle = ch.load(folder)
        code, out, _ = run(capsys, "predict", folder, "--file", lines)
        first = bundle.predict(LINES[0])
        if kind == "regression":
            numbers = "\t".join(f"{score:.4f}" for score in first.scores.values())
            assert code == 0 and out.splitlines()[0] == f"{numbers}\t{LINES[0]}"
            assert "good" in run(capsys, "predict", folder, LINES[0])[1]
        else:
            likely = ", ".join(guess.text for guess in first.guesses if guess.probability >= 0.5)
            assert code == 0 and out.splitlines()[0] == f"{likely}\t{LINES[0]}"
    folder = model(tmp_path, "choice")
    code, out, _ = run(capsys, "predict", folder, LINES[0], "--choice", "a dog", "--choice", "the cat")
    best = ch.load(folder).predict(LINES[0], choices=["a dog", "the cat"]).guesses[0]
    assert code == 0 and len(out.splitlines()) == 2 and best.text in out.splitlines()[0]
    path = tmp_path / "choices.jsonl"
    path.write_text(json.dumps({"question": LINES[0], "choices": ["a dog", "the cat"], "answer": 0}) + "\n")
    code, out, _ = run(capsys, "predict", folder, "--file", str(path))
    assert code == 0 and out == f"{best.text}\t{best.probability:.4f}\t{LINES[0]}\n"


def test_long_texts_are_cut_and_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for task in ("labels", "hidden"):
        tokenizer = train_tokenizer(LINES, kind="wordpiece", vocab=90, frame="cls-sep")
        short = ch.build("bert", task=task, vocab_size=tokenizer.vocab, max_position_embeddings=16, **SIZES)
        short.tokenizer = tokenizer
        short.save(tmp_path / task)
    path = tmp_path / "long.txt"
    path.write_text(f"a dog\n{'the cat sat ' * 20}\n{'a dog ' * 30}\n")
    code, out, err = run(capsys, "predict", str(tmp_path / "labels"), "--file", str(path))
    assert code == 0 and len(out.splitlines()) == 3
    assert "2 of 3 texts were longer than the model reads and were cut" in err
    code, _, err = run(capsys, "predict", str(tmp_path / "labels"), "a dog " * 30)
    assert code == 0 and "tokens more than the 16 that were read" in err
    code, out, err = run(capsys, "embed", str(tmp_path / "hidden"), str(path))
    assert code == 0 and len(out.splitlines()) == 3 and "2 of 3 texts were read up to token 16" in err

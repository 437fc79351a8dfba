"""`data check`: the report, what it prints, and how it leaves."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from clearhead.cli.main import main
from clearhead.data import InMemorySource, check_data, read_rows
from clearhead.text import train_tokenizer

FAQ = "question,answer,category\n" + "".join(
    f"怎么退货 {i}？,{'' if i in (16, 30) else f'请在 {i} 天内…'},{'ab'[i % 2]}\n" for i in range(40)
)


def run(*words: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "clearhead", "data", "check", *words], capture_output=True, text=True
    )
    return done.returncode, done.stdout, done.stderr


def leave(capsys, *words: str) -> tuple[int, str, str]:
    """The same in this process, for speed."""
    with pytest.raises(SystemExit) as left:
        main(["data", "check", *words])
    out, err = capsys.readouterr()
    return left.value.code, out, err


def test_the_report(tmp_path: Path) -> None:
    (tmp_path / "faq.csv").write_text(FAQ + "怎么退货 1？,请在 1 天内…,b\n", encoding="utf-8")
    source = read_rows(tmp_path / "faq.csv")
    report = check_data(source, length=16)
    assert (report.rows, report.usable, report.encoding, report.unit) == (41, 39, "utf-8", "characters")
    assert report.columns == ("question", "answer", "category")
    assert str(report.schema) == "prompt (prompt=question, completion=answer)"
    assert [shape.kind for shape in report.others] == ["label"]
    assert report.empty == {"completion is empty": [17, 31]} and report.wrong == {} and report.why == ""
    assert report.duplicates == [41]
    assert report.over_long == [number for number in range(11, 41) if number not in (17, 31)]
    assert report.lengths["prompt"].min == 7 and report.lengths["prompt"].max == 8
    assert sum(report.lengths["prompt"].histogram) == 39
    assert report.first == [("怎么退货 0？", False), ("\n", False), ("请在 0 天内…", True)]
    assert report.files == source.hashes()
    assert json.loads(json.dumps(report.to_dict()))["shape"]["columns"] == {
        "prompt": "question",
        "completion": "answer",
    }


@pytest.mark.parametrize(
    ("row", "first"),
    [
        ({"text": "a b"}, [("a b", True)]),
        ({"src": "a", "tgt": "b"}, [("a", False), (" → ", False), ("b", True)]),
        (
            {"messages": [{"role": "user", "content": "u"}, {"role": "assistant", "content": "v"}]},
            [
                ("user: ", False),
                ("u", False),
                ("\n", False),
                ("assistant: ", False),
                ("v", True),
                ("\n", False),
            ],
        ),
        ({"text": "a", "label": 1}, [("a → ", False), ("1", True)]),
        ({"tokens": ["x"], "tags": ["O"]}, [("x/", False), ("O", True), (" ", False)]),
        (
            {"question": "q", "context": "abc", "answers": [{"text": "b", "answer_start": 1}]},
            [("q\n", False), ("a", False), ("b", True), ("c", False)],
        ),
        (
            {"question": "q", "context": "abc", "answers": []},
            [("q\n", False), ("abc", False), ("\n(no answer)", True)],
        ),
    ],
)
def test_the_loss_mask_of_row_1(row: dict, first) -> None:
    assert check_data(InMemorySource([row])).first == first


def test_lengths_in_tokens() -> None:
    tokenizer = train_tokenizer(["we find old apples", "我们找到旧的苹果"] * 3, vocab=60)
    report = check_data(
        InMemorySource([{"src": "we find apples", "tgt": "我们找到苹果"}]), tokenizer=tokenizer, length=5
    )
    assert report.unit == "tokens" and report.lengths["tgt"].max == 6
    assert report.over_long == [1]  # one side is enough
    assert (
        check_data(
            InMemorySource([{"src": "we", "tgt": "我们找到苹"}]), tokenizer=tokenizer, length=5
        ).over_long
        == []
    )


def test_labels_are_counted() -> None:
    rows = [{"tokens": ["a", "b"], "tags": ["O", "B-x"]}, {"tokens": ["c"], "tags": ["O"]}]
    assert check_data(InMemorySource(rows)).labels == {"O": 2, "B-x": 1}


def test_wrong_rows_make_it_unusable_and_are_named() -> None:
    rows = [{"src": "a", "tgt": "b"}] * 20 + [{"src": "c"}, {"src": {}, "tgt": "x"}, {"src": "d"}]
    report = check_data(InMemorySource(rows, name="x.jsonl"))
    assert report.why == (
        "x.jsonl row 21: there is no tgt in it (rows 21, 23); "
        "1 more rows have other faults; fix or remove them"
    )
    assert report.wrong == {"there is no tgt in it": [21, 23], "src holds a dict; expected text": [22]}


def test_nothing_but_empty_rows_is_unusable() -> None:
    report = check_data(InMemorySource([{"text": ""}, {"text": " "}]))
    assert report.why == "there is nothing to train on: text is empty (rows 1, 2)" and report.usable == 0


def test_what_is_printed(tmp_path: Path, capsys) -> None:
    (tmp_path / "faq.csv").write_text(FAQ, encoding="utf-8")
    code, out, err = leave(capsys, str(tmp_path / "faq.csv"), "--length", "10")
    assert code == 0 and err == ""
    for words in (
        "40 rows · utf-8 · columns: question, answer, category",
        "looks like   prompt (prompt=question, completion=answer)",
        "or else      label (text=question, label=category)",
        "completion is empty (rows 17, 31)",
        "38 longer than 10 characters, to be left out (rows 1, 2, 3, 4, 5 and 33 more)",
        "row 1, as text (--tokenizer MODEL shows its tokens); «marked»: with loss",
        "怎么退货 0？⏎",
        "«请在 0 天内…»",
        f"train sft {tmp_path / 'faq.csv'} --from MODEL",
    ):
        assert words in out, out


def test_markup_in_the_data_is_text(tmp_path: Path, capsys) -> None:
    (tmp_path / "x.txt").write_text("[red]not red[/] [link=file:///x]\n")
    assert "[red]not red[/] [link=file:///x]" in leave(capsys, str(tmp_path / "x.txt"))[1]


def test_json_and_map(tmp_path: Path, capsys) -> None:
    (tmp_path / "x.jsonl").write_text('{"a": "x", "b": "y"}\n')
    code, out, _ = leave(capsys, str(tmp_path / "x.jsonl"), "--map", "prompt=b", "completion=a", "--json")
    report = json.loads(out)
    assert code == 0 and report["shape"]["columns"] == {"prompt": "b", "completion": "a"}
    assert report["first"] == [["y", False], ["\n", False], ["x", True]]


def test_exit_codes(tmp_path: Path, capsys) -> None:
    (tmp_path / "bad.csv").write_text("text,label\na,1\nb\n")
    (tmp_path / "blank.txt").write_text(" \n\n")
    (tmp_path / "good.txt").write_text("a\n")
    for words, code, message in [
        (["bad.csv"], 3, "line 3 has 1 cells"),
        (["blank.txt"], 3, "nothing to train on: text is empty (rows 1, 2)"),
        (["good.txt"], 0, ""),
        (["none.txt"], 2, "no file or folder"),
        (["good.txt", "--map", "text=txet"], 2, "did you mean 'text'"),
        (["good.txt", "--length", "0"], 2, "expected at least 1"),
        (["good.txt", "--tokenizer", "here"], 2, "no tokenizer in"),
        (["good.txt", "--lenght", "3"], 2, "--length"),
        ([], 2, "no file was named"),
    ]:
        files = [str(tmp_path / word) if word.endswith((".txt", ".csv")) else word for word in words]
        left, _, err = leave(capsys, *files)
        assert left == code and message in err, (words, left, err)
        assert err.count("\n") == (1 if code else 0)


def test_it_starts_without_torch(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("hello\n")
    code, out, err = run(str(tmp_path / "x.txt"))
    assert (code, err) == (0, "") and "1 rows" in out
    code = (
        "import sys, clearhead.cli.main as m\n"
        f"try: m.main(['data', 'check', {str(tmp_path / 'x.txt')!r}])\nexcept SystemExit: pass\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_what_json_calls_nan_is_no_text() -> None:
    rows = [{"text": "fine", "label": "a"}] * 20 + [{"text": float("nan"), "label": "b"}]
    assert check_data(InMemorySource(rows, name="x.jsonl")).wrong == {
        "text holds a float; expected text": [21]
    }


PROSE = "".join(f"A line of paragraph {i // 3}.\n" + ("\n" if i % 3 == 2 else "") for i in range(90))


def test_prose_is_paragraphs_without_problems(tmp_path: Path, capsys) -> None:
    (tmp_path / "book.txt").write_text(PROSE + "A line of paragraph 1.\n" * 3)  # a paragraph twice
    code, out, _ = leave(capsys, str(tmp_path / "book.txt"), "--length", "10")
    assert code == 0 and "31 paragraphs" in out and "123 lines" in out and "prose" in out
    assert "problems     none" in out and "train lm" in out
    report = check_data(read_rows(tmp_path / "book.txt"))
    assert report.rows == report.usable == 31 and report.lengths["text"].max == 3 * 23 + 2


def test_a_list_of_texts_stays_rows(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("".join(f"text {i}\n" for i in range(99)) + "\ntext 1\n")
    report = check_data(read_rows(tmp_path / "list.txt"))
    assert report.rows_are == "rows" and report.rows == 101 and report.duplicates == [101]
    assert report.empty == {"text is empty": [100]}


@pytest.mark.parametrize(
    ("columns", "option"),
    [
        (["prompt", "chosen", "rejected"], "--map prompt=prompt completion=chosen"),
        (["chosen", "rejected"], "--map text=chosen"),
        (
            ["instruction", "input", "output", "rejected", "chosen"],
            "--map instruction=instruction output=chosen",
        ),
    ],
)
def test_preference_rows_are_no_answers(columns: list[str], option: str, tmp_path: Path, capsys) -> None:
    rows = [dict.fromkeys(columns, f"some words {i}") for i in range(9)]
    (tmp_path / "x.jsonl").write_text("\n".join(map(json.dumps, rows)))
    code, out, err = leave(capsys, str(tmp_path / "x.jsonl"))
    assert code == 3 and out == "" and "preference rows" in err and option in err and err.count("\n") == 1
    code, out, _ = leave(capsys, str(tmp_path / "x.jsonl"), *option.split())
    assert code == 0 and "«some words 0»" in out

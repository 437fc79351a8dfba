"""Pages as a terminal shows them and as a printer gets them: nothing is cut, no line begins with a comma."""

import io
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from clearhead.cli.main import main
from clearhead.cli.page import CLOSING, OPENING, Page, breaks, column_widths, html
from clearhead.learn.lessons import LANGUAGES, Lesson, find_lesson, lessons

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
EVERY = [(lesson, lang) for lesson in lessons().values() for lang in LANGUAGES]
ids = [f"{lesson.name}-{lang}" for lesson, lang in EVERY]


def rendered(text: str, width: int) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    console.print(Page(text))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def prose(text: str) -> str:
    return re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)


@pytest.mark.parametrize(("lesson", "lang"), EVERY, ids=ids)
@pytest.mark.parametrize("width", [80, 100])
def test_no_number_and_no_line_is_cut(lesson: Lesson, lang: str, width: int) -> None:
    text = lesson.text(lang)  # type: ignore[arg-type]
    shown = rendered(text, width)
    assert shown.count("…") == text.count("…")
    assert all(cell_len(line) <= width for line in shown.splitlines())
    for number in re.findall(r"\d[\d,.]*\d", prose(text)):
        assert number in shown, number
    for url in re.findall(r"\]\((https:[^)]+)\)", text):
        assert url in re.sub(r"\s", "", shown), url
    for line in shown.splitlines():
        assert not line.strip().startswith(tuple(CLOSING)), line
        assert not line.strip().endswith(tuple(OPENING)), line


def test_a_table_wider_than_the_terminal_is_stacked() -> None:
    table = "| name | parameters |\n|---|---|\n| GPT-3 | 174,604,259,328 |\n"
    assert "name    parameters" in rendered(table, 40)
    shown = rendered(table, 20).splitlines()
    assert "name: GPT-3" in shown and "174,604,259,328" in shown


def test_column_widths() -> None:
    rows = [[Text("a"), Text("one two three four")], [Text("word"), Text("x")]]
    assert column_widths(rows, 40) == [4, 18]
    assert column_widths(rows, 14) == [4, 10]  # short texts get all they want
    assert column_widths(rows, 9) == [4, 5]
    assert column_widths(rows, 8) is None  # "three" and "word" need nine


def test_lines_break_between_chinese_characters_but_not_before_a_comma() -> None:
    text = "模型学习，然后生成"
    parts = [text[a:b] for a, b in zip([0, *breaks(text, 8)], [*breaks(text, 8), None], strict=True)]
    assert parts == ["模型学", "习，然后", "生成"]
    assert breaks("one two three", 7) == [8]
    assert breaks("abcdefgh", 3) == [3, 6]


def test_a_lesson_is_saved_as_a_page_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "sheet.html"
    with pytest.raises(SystemExit) as done:
        main(["learn", "cheatsheet", "--lang", "zh", "--save", str(path)])
    assert not done.value.code and str(path) in capsys.readouterr().err.replace("\n", "")
    page = path.read_text()
    assert '<html lang="zh-Hans">' in page and "<table>" in page and "174,604,259,328" in page
    assert "http" not in page and "<script" not in page
    for words, said in (
        (["learn", "cheatsheet", "--save", str(tmp_path / "sheet.docx")], "expected a name ending in .html"),
        (["learn", "cheatsheet", "--save", str(tmp_path / "no" / "sheet.html")], "cannot write"),
        (["learn", "--save", str(path)], "--save needs a lesson"),
    ):
        with pytest.raises(SystemExit) as refused:
            main(words)
        assert refused.value.code == 2 and said in capsys.readouterr().err.replace("\n", " ")


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine to print with")
@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_cheat_sheet_prints_on_one_page(lang: str, tmp_path: Path) -> None:
    sheet, pdf = tmp_path / "sheet.html", tmp_path / "sheet.pdf"
    lesson = find_lesson("cheatsheet")
    sheet.write_text(html(lesson.text(lang), name=lesson.name, title="", lang=lang, folder=tmp_path))  # type: ignore[arg-type]
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--no-pdf-header-footer"]
    command = [str(CHROMIUM), *options, f"--user-data-dir={tmp_path / 'profile'}", f"--print-to-pdf={pdf}"]
    subprocess.run([*command, str(sheet)], check=True, capture_output=True, timeout=120)
    assert len(re.findall(rb"/Type\s*/Page\b", pdf.read_bytes())) == 1

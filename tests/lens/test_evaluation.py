"""Pictures and pages of evaluations: every count and text is in them, in any script, and none is markup."""

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from clearhead.errors import ClearheadError
from clearhead.lens import EvaluationView, WorstRow, save_evaluation
from clearhead.lens.evaluation_page import evaluation_page
from clearhead.lens.pictures import chinese_font
from clearhead.lens.pictures.evaluation import LIST_WIDTH, MAX_CLASSES, _width, _wrapped

NAMES = ["正面评价", "负面评价", "中立"]
COUNTS = [[90, 7, 3], [12, 80, 8], [0, 1, 999]]
ROWS = [
    WorstRow(
        "line 3", "这家餐厅的服务员态度非常好，但是等了一个小时才上菜。" * 3, "负面评价", "正面评价", 3.21
    ),
    WorstRow("line 9", "<b>not bold</b> & <script>alert(1)</script>", "中立", "负面评价", 2.25),
]
VIEW = EvaluationView(
    "模型 on rows.tsv · 1,200 rows", {"accuracy": 97.5, "loss": 0.25}, "loss", NAMES, COUNTS, ROWS
)


def texts(path: Path) -> list[str]:
    """Every text of an SVG picture."""
    return ["".join(node.itertext()) for node in ElementTree.parse(path).iter() if node.tag.endswith("}text")]


def test_the_picture_has_counts_shares_names_and_examples(tmp_path: Path) -> None:
    found = texts(save_evaluation(VIEW, tmp_path / "a.svg"))
    for name, row in zip(NAMES, COUNTS, strict=True):
        assert name in found and f"{name}  ({sum(row):,})" in found
        for count in row:
            assert not count or f"{count:,}" in found
    assert {"90 %", "8 %", "<1 %", "100 %", "12 %"} <= set(found)
    assert "accuracy 97.5    loss 0.25" in found
    listed = "".join(found)
    assert ROWS[0].text in listed and "loss 3.21 · line 3" in listed and ROWS[1].text in listed


def test_no_line_of_the_list_is_wider_than_its_column() -> None:
    for text in (ROWS[0].text, "word " * 90, "w" * 400, "混合 text 在一起 " * 30, ""):
        lines = _wrapped(text, 3)
        assert 1 <= len(lines) <= 3 and all(_width(line) <= LIST_WIDTH - 0.3 for line in lines)
    assert _wrapped("a short text", 3) == ["a short text"]
    assert _wrapped("word " * 90, 3)[-1].endswith("…")


def test_the_page_has_the_same_and_no_markup_of_the_data(tmp_path: Path) -> None:
    page = save_evaluation(VIEW, tmp_path / "a.html").read_text(encoding="utf-8")
    assert "<script>" not in page and "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert page == evaluation_page(VIEW) and "http" not in page
    cells = re.findall(r"<td style=[^>]*>(.*?)</td>", page)
    assert cells == [f"{count:,}<small>{100 * count / sum(row):.0f} %</small>" if count else ""
                     for row in COUNTS for count in row]  # fmt: skip


def test_without_classes_there_is_a_list_alone(tmp_path: Path) -> None:
    view = EvaluationView("a model", {"chrf": 50.0}, "100 - chrF", rows=ROWS)
    found = texts(save_evaluation(view, tmp_path / "a.svg"))
    assert "The 2 worst examples, by 100 - chrF" in found and "predicted" not in found
    bare = EvaluationView("a model", {"perplexity": 9.5}, "loss")
    assert texts(save_evaluation(bare, tmp_path / "b.svg")) == ["a model", "perplexity 9.5"]


def test_of_many_classes_those_with_errors_are_shown() -> None:
    count = MAX_CLASSES + 15
    counts = [[5 * (i == j) + (i == 3 and j == count - 1) for j in range(count)] for i in range(count)]
    view = EvaluationView("x", {}, "loss", [f"c{i}" for i in range(count)], counts)
    shown = view.shown_classes()
    assert len(shown) == MAX_CLASSES and {3, count - 1} <= set(shown) and shown == sorted(shown)


def test_a_png_needs_a_font_for_its_script(tmp_path: Path) -> None:
    if chinese_font() is None:
        with pytest.raises(ClearheadError, match="no font with the Chinese characters"):
            save_evaluation(VIEW, tmp_path / "a.png")
    else:
        assert save_evaluation(VIEW, tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("name", "message"), [("a.doc", "saved as .png"), ("no/a.png", "there is no folder")]
)
def test_a_file_that_cannot_be_saved(name: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ClearheadError, match=message):
        save_evaluation(VIEW, tmp_path / name)

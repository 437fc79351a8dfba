"""Lessons: the same code in both languages, every page reachable, every name in them real."""

import json
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from clearhead.cli.main import main
from clearhead.learn.cards import all_cards
from clearhead.learn.clinic import exercises
from clearhead.learn.language import Lang
from clearhead.learn.lessons import LEVELS, Lesson, find_lesson, lessons, lessons_dir, neighbours
from clearhead.learn.lines import walks
from clearhead.learn.ordering import puzzles
from clearhead.learn.tries import TRIES, tries

ROOT = Path(__file__).parents[2]
NINE = {  # the headings that one of the notes left empty
    "seq2seq": "Seq2Seq", "feed-forward": "前馈神经网络", "layer-norm": "层归一化", "residual": "残差连接",
    "encoder": "Encoder", "decoder": "Decoder", "embedding": "Embedding", "positions": "位置编码",
    "transformer": "一个完整的 Transformer",
}  # fmt: skip
COMPONENTS = (
    "attention",
    "embedding",
    "positions",
    "multi-head",
    "feed-forward",
    "layer-norm",
    "residual",
    "encoder",
    "decoder",
)
TERMS = (
    "注意力权重", "加权求和", "维度", "激活函数", "归一化", "残差连接", "掩码", "填充", "位置编码", "词表",
    "批次", "隐藏状态", "推理", "生成", "贪心", "束搜索", "采样", "过拟合", "梯度消失", "梯度爆炸", "预热",
    "标签平滑", "微调", "预训练", "检查点", "自注意力", "交叉注意力", "前馈网络", "卷积", "CNN", "并行",
    "消融",
)  # fmt: skip
NOT_TERMS = (
    "弯一下",
    "词元",
    "写作",
    "份额",
    "塔",
    "抽签",
    "瞎猜",
    "偷懒",
    "薄薄",
    "看它怎么坏",
    "嵌入表变窄",
    "瘦矩阵",
)
WORDS = {"learn", "try", "clinic", "cards", "order", "lines"}


@pytest.fixture(autouse=True)
def english(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLEARHEAD_LANG", "en")


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as done:
        main(["learn", *words])
    said = capsys.readouterr()
    return int(done.value.code or 0), said.out, said.err


def blocks(text: str) -> list[str]:
    """The code of a page; drawings are not code."""
    return re.findall(r"^```(?:pycon|sh|python)\n.*?^```", text, flags=re.M | re.S)


@pytest.mark.parametrize("lesson", lessons().values(), ids=lambda lesson: lesson.name)
def test_both_languages_have_the_same_code_and_headings(lesson: Lesson) -> None:
    en, zh = lesson.text("en"), lesson.text("zh")
    assert blocks(en) == blocks(zh)
    assert [line.split(" ")[0] for line in prose(en)] == [line.split(" ")[0] for line in prose(zh)]
    chinese = sum(0x4E00 <= ord(letter) < 0xA000 for letter in zh)
    assert chinese > 100 and lesson.title["zh"] != lesson.title["en"]
    # A few Chinese words are the subject of an English page; a page of them is not English.
    assert sum(0x4E00 <= ord(letter) < 0xA000 for letter in outside_code(en)) < 40


def outside_code(text: str) -> str:
    return re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)


def prose(text: str) -> list[str]:
    return [line for line in outside_code(text).splitlines() if line.startswith("#")]


@pytest.mark.parametrize("lesson", lessons().values(), ids=lambda lesson: lesson.name)
def test_every_command_in_a_lesson_exists(lesson: Lesson) -> None:
    for lang in ("en", "zh"):
        text = lesson.text(lang)
        for name in re.findall(r"`?clearhead learn ([a-z0-9-]+)`", text):
            assert name in lessons() or name in WORDS, name
        for name in re.findall(r"clearhead learn try ([a-z-]+)", text):
            assert name in TRIES, name
        for name in re.findall(r"clearhead learn order ([a-z-]+)", text):
            assert name in puzzles(), name
        for name in re.findall(r"clearhead learn lines ([a-z-]+)", text):
            assert name in walks(), name
        for names in re.findall(r"clearhead learn clinic ([^。.]*)", text):
            for name in re.findall(r"[a-z0-9]+(?:-[a-z0-9]+)+", names.split("Next")[0]):
                assert name in exercises() or name in lessons(), name


def test_the_nine_empty_headings_are_written() -> None:
    for name, words in NINE.items():
        assert words in find_lesson(name).title["zh"] and len(blocks(find_lesson(name).text("zh"))) >= 2


@pytest.mark.parametrize("name", COMPONENTS)
def test_components_have_the_same_card(name: str) -> None:
    for lang, rows in (
        ("en", ("what it does", "formula", "shape", "which problem it solves", "without it")),
        ("zh", ("做什么", "公式", "形状", "解决什么问题", "没有它会怎样")),
    ):
        text = find_lesson(name).text(lang)
        # The decoder's page has a second one, for the mask.
        cards = 2 if name == "decoder" else 1
        assert all(text.count(f"\n| {row} |") == cards for row in rows)


def test_the_index_has_the_titles_of_the_pages() -> None:
    index = (lessons_dir() / "learn" / "README.md").read_text()
    for lesson in lessons().values():
        for lang, path in lesson.files.items():
            assert f"[{lesson.title[lang]}](" in index, path
    assert all(heading in index for level in LEVELS.values() for heading in level.values())


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_everything_on_the_reading_list_has_a_link(lang: Lang) -> None:
    items = [line for line in find_lesson("reading").text(lang).splitlines() if re.match(r"(\d+\.|-) ", line)]
    assert len(items) >= 15
    assert all("](https://" in item for item in items), items
    links = re.findall(r"\]\(([^)]+)\)", find_lesson("reading").text(lang))
    assert links == re.findall(r"\]\(([^)]+)\)", find_lesson("reading").text("en"))


def chinese_course() -> dict[str, str]:
    """Everything that the Chinese course says, by where it says it; code is not Chinese."""
    texts = {name: outside_code(lesson.text("zh")) for name, lesson in lessons().items()}
    for name, exercise in exercises().items():
        words = [exercise.title, exercise.story, exercise.why, *exercise.checks.values()]
        texts[f"exercise {name}"] = "\n".join([*(each["zh"] for each in words), *exercise.hints["zh"]])
    for name, experiment in tries().items():
        texts[f"try {name}"] = experiment.question["zh"] + experiment.answer["zh"]
    for name, puzzle in puzzles().items():
        words = [puzzle.title, *(each for step in puzzle.steps for each in (step.text, step.why))]
        texts[f"order {name}"] = "\n".join(each["zh"] for each in words)
    for name, walk in walks().items():
        reasons = [reason["zh"] for found in walk.reasons.values() for reason in found]
        texts[f"lines {name}"] = "\n".join([walk.title["zh"], *reasons])
    texts["cards"] = "\n".join(card.question["zh"] + card.answer["zh"] for card in all_cards())
    return texts


def test_the_chinese_course_has_the_terms_of_chinese_textbooks() -> None:
    everything = "\n".join(chinese_course().values())
    for term in TERMS:
        assert everything.count(term) >= 2, term
    for name, text in chinese_course().items():
        for word in NOT_TERMS:
            assert word not in text, (name, word)
    # The width of a column on a screen is one; that of a vector is its dimension.
    wide = {name for name, text in chinese_course().items() if "宽" in text}
    assert wide <= {"exercise crooked-table"}, wide


def test_the_path_has_its_levels_and_no_page_is_lost() -> None:
    assert {lesson.level for lesson in lessons().values()} == set(LEVELS)
    pages = [*lessons_dir().glob("learn/*/*.md"), *lessons_dir().glob("projects/*/*.md")]
    assert len(pages) == 2 * len(lessons())
    index = (lessons_dir() / "learn" / "README.md").read_text()
    assert all(f"/{page.parent.name}/{page.name})" in index.replace("](", "](/") for page in pages)


def test_each_page_names_the_next_one() -> None:
    path = [lesson for lesson in lessons().values() if lesson.level in "1234"]
    for lesson, after in pairwise(path):
        assert neighbours(lesson)[1] is after and neighbours(after)[0] is lesson
        for lang in ("en", "zh"):
            last = lesson.text(lang).rstrip().splitlines()[-1]
            assert f"`clearhead learn {after.name}`" in last, f"{lesson.name} ({lang}): {last}"


def test_a_lesson_ends_with_its_neighbours(capsys: pytest.CaptureFixture[str]) -> None:
    first, *_, last = lessons()
    assert neighbours(find_lesson(first))[0] is None and neighbours(find_lesson(last))[1] is None
    assert "← previous: softmax   next: vampire →" in run(capsys, "attention")[1]
    assert "← 上一课：softmax   下一课：vampire →" in run(capsys, "attention", "--lang", "zh")[1]
    assert "previous" not in run(capsys, first)[1].splitlines()[-1]
    facts = json.loads(run(capsys, "attention", "--json")[1])
    assert (facts["previous"], facts["next"]) == ("softmax", "vampire")


def test_the_vampire_is_told_in_traditional_script() -> None:
    chinese = {letter for letter in find_lesson("vampire").text("zh") if 0x4E00 <= ord(letter) < 0xA000}
    assert len(chinese) > 300 and {*"萬聖節權頭"} <= chinese
    for letter in chinese:
        letter.encode("big5")  # simplified characters have no place there


def test_pictures_of_lessons_exist() -> None:
    for lesson in lessons().values():
        for lang, file in lesson.files.items():
            for target in re.findall(r"!\[[^]]*\]\(([^)]+)\)", lesson.text(lang)):
                assert (file.parent / target).is_file(), target
    drawing = (lessons_dir() / "learn" / "rnn.svg").read_text(encoding="utf-8")
    assert all(word in drawing for word in ("我", "爱", "自然", "语言", "处理", "h₁", "h₅"))
    assert "prefers-color-scheme: dark" in drawing


def test_a_saved_page_carries_its_pictures_and_its_script(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, lang, tag in (
        ("networks", "zh", "zh-Hans"),
        ("vampire", "zh", "zh-Hant"),
        ("networks", "en", "en"),
    ):
        code, _, _ = run(capsys, name, "--lang", lang, "--save", str(tmp_path / "page.html"))
        saved = (tmp_path / "page.html").read_text(encoding="utf-8")
        assert code == 0 and f'<html lang="{tag}">' in saved
        assert re.findall(r'<img src="([^"]{0,26})', saved) == ["data:image/svg+xml;base64,"] * (
            name == "networks"
        )


def test_a_lesson_can_be_read_and_listed(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys)
    assert code == 0 and all(name in out for name in lessons())
    assert "第 1 级" in run(capsys, "--lang", "zh")[1]
    code, out, _ = run(capsys, "attention", "--lang", "zh")
    assert code == 0 and "手算注意力" in out and "0.6282" in out
    said = json.loads(run(capsys, "attention", "--json")[1])
    assert said["title"] == "Attention by hand" and said["text"].startswith("# Attention")
    assert [each["name"] for each in json.loads(run(capsys, "--json")[1])] == list(lessons())


@pytest.mark.parametrize("wrong", ["atention", "embeding"])
def test_an_unknown_lesson_is_refused_with_the_nearest(
    wrong: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, wrong)
    assert code == 2 and out == "" and "did you mean" in err and err.count("\n") == 1


def test_cards_hide_their_answers_until_asked(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(all_cards()) >= 30
    for card in all_cards():
        assert card.question["zh"] and card.answer["zh"] and card.question["en"] and card.answer["en"]
    code, out, _ = run(capsys, "cards", "--count", "2", "--lang", "zh")
    assert code == 0 and out.count("2/2") == 1 and all_cards()[1].answer["zh"][:9] in out
    shuffled = json.loads(run(capsys, "cards", "--seed", "1", "--json")[1])
    assert len(shuffled) == len(all_cards()) and shuffled != json.loads(run(capsys, "cards", "--json")[1])
    shown: list[str] = []

    def enter(prompt: str) -> str:
        shown.append(capsys.readouterr().out)
        return "" if len(shown) == 1 else "q"

    monkeypatch.setattr("builtins.input", enter)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    with pytest.raises(SystemExit):
        main(["learn", "cards"])
    answers = [card.answer["en"] for card in all_cards()]
    assert (
        answers[0] not in shown[0]
        and answers[0] in shown[1].replace("\n", " ")
        and answers[1] not in shown[1]
    )


def test_listing_does_not_import_torch() -> None:
    for words in (
        ["learn"],
        ["learn", "try"],
        ["learn", "clinic"],
        ["learn", "cards"],
        ["learn", "order"],
        ["learn", "lines", "attention"],
        ["learn", "attention"],
    ):
        code = f"from clearhead.cli.main import main\ntry: main({words})\nexcept SystemExit: pass"
        done = subprocess.run(
            [sys.executable, "-c", f"{code}\nimport sys; print('torch' in sys.modules)"],
            capture_output=True,
            text=True,
            cwd=ROOT,
        )
        assert done.stdout.splitlines()[-1] == "False", words


def test_an_installed_package_would_carry_the_pages() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    for folder in ("learn", "projects"):
        assert f'"docs/{folder}" = "clearhead/learn/pages/{folder}"' in text

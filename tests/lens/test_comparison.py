"""Pages and pictures of comparisons: all is told, words stay words, nothing is fetched, any size fits."""

import json
import math
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch
from tunings import move

import clearhead as ch
from clearhead.errors import InputError
from clearhead.lens import (
    AttentionChange,
    Comparison,
    KeptParts,
    MovedLink,
    PartChange,
    TokenChange,
    cancel_sentence,
    change_sentence,
    head_tables,
    kept_sentence,
    part_name,
    percent,
    probability,
    scale_top,
    shade,
)
from clearhead.lens.comparison_chinese import change_sentence_zh, kept_sentence_zh, part_name_zh
from clearhead.lens.comparison_page import comparison_page
from clearhead.lens.markup import CHINESE
from clearhead.lens.pictures import canvas
from clearhead.tune import Lora, Prefix

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
LINES = ["今天天气很好，我们去公园", "the cat sat on a mat <b>&amp;</b>", "小龙和小狗在花园里玩球 {{body}}"]


def comparison(layers: int = 2, heads: int = 4, text: str = LINES[0], tuning: Any = None) -> Comparison:
    tokenizer = ch.text.train_tokenizer(LINES * 4, vocab=120)
    base = ch.build(
        "llama", vocab_size=tokenizer.vocab, hidden_size=8 * heads, intermediate_size=16,
        num_hidden_layers=layers, num_attention_heads=heads,
    )  # fmt: skip
    base.tokenizer = tokenizer
    after = ch.tune(base, tuning or Lora(rank=2))
    assert after.tuning is not None
    move(after.model, after.tuning.trained, 0.5)
    return ch.compare(after, text, max_new_tokens=8, names=("base", "tuned <i>"))


@pytest.fixture(scope="module")
def small() -> Comparison:
    return comparison()


class Reader(HTMLParser):
    """The text of a page, its elements, and what they refer to."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "link", "br", "img", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("script", "style"):
            self.words.append(data)


@pytest.mark.parametrize("text", LINES)
def test_a_page_tells_everything_without_a_script(text: str) -> None:
    c = comparison(text=text)
    page = comparison_page(c)
    found = Reader(page)
    assert not found.open, "every element is closed"
    words = "".join(found.words)
    for token in c.tokens:
        assert token.label in words
    assert c.texts is not None and c.texts.after in words and c.texts.before in words
    assert kept_sentence(c) in words and kept_sentence_zh(c) in words and "tuned <i>" in words
    spans = [attrs for tag, attrs in found.elements if "data-token" in attrs]
    assert len(spans) == len(c.tokens) and all(attrs["title"] for attrs in spans)
    cells = [attrs for tag, attrs in found.elements if "data-cell" in attrs]
    tables = head_tables(c)["self"]
    assert len(cells) == sum(value is not None for table in tables for row in table.rows for value in row)
    assert {tag for tag, _ in found.elements} & {"main", "header", "h1", "h2", "caption", "th"}
    # Nothing is fetched, and no text becomes markup.
    assert not re.search(r"(?:src|href)\s*=|https?://|@import|url\(", page)
    assert {tag for tag, _ in found.elements} <= {
        "html", "head", "meta", "title", "style", "body", "header", "h1", "h2", "h3", "button", "p", "main",
        "span", "div", "section", "table", "caption", "thead", "tbody", "tr", "th", "td", "b", "i", "u",
        "script",
    }  # fmt: skip
    assert not [attrs for tag, attrs in found.elements if tag in ("b", "i") and "body" in str(attrs)]
    data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])
    assert [token["label"] for token in data["tokens"]] == [token.label for token in c.tokens]
    assert {attrs["data-cell"] for attrs in cells} <= set(data["cells"])


def test_both_languages_say_the_same_things(small: Comparison) -> None:
    page = comparison_page(small)
    english, chinese = (re.findall(rf'lang="{lang}">([^<]*)<', page) for lang in ("en", "zh"))
    assert len(english) - 1 == len(chinese) > 20  # the page itself is marked as English
    assert all(re.search("[\u4e00-\u9fff]", text) for text in chinese)
    script = (Path(ch.lens.__file__).parent / "page/compare.js").read_text("utf-8")
    blocks = re.findall(r"^  (?:en|zh): \{(.*)\},$", script, re.MULTILINE)
    assert len(blocks) == 2
    assert re.findall(r"(\w+): \"", blocks[0]) == re.findall(r"(\w+): \"", blocks[1])
    assert all(CHINESE.values())
    for towers in ((), ("encoder", "decoder")):
        for part in small.parts:
            assert part_name(part, towers) and part_name_zh(part, towers)
    assert change_sentence(small) and change_sentence_zh(small)


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt install chromium")
def test_the_page_draws_in_a_browser(small: Comparison, tmp_path: Path) -> None:
    small.save(tmp_path / "a.html")
    done = subprocess.run(
        [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom",
         "--virtual-time-budget=3000", (tmp_path / "a.html").as_uri()],
        capture_output=True, text=True, timeout=90,
    )  # fmt: skip
    assert 'data-drawn="1"' in done.stdout and 'tabindex="0"' in done.stdout


@pytest.mark.parametrize(("layers", "heads"), [(1, 1), (24, 20)])
def test_any_size_is_drawn(layers: int, heads: int, tmp_path: Path) -> None:
    c = made_up(layers, heads, tokens=620)
    for name in ("a.svg", "a.html"):
        text = c.save(tmp_path / name).read_text("utf-8")
        assert "… 20 tokens more" in text or name == "a.html"
        assert "词0" in text and f"layer {layers - 1}" in text
    picture = c.draw()
    assert (tmp_path / "a.svg").read_bytes() == picture.render("svg") or layers > 1  # equal bytes each time
    figure = picture.figure
    assert figure.get_figwidth() == pytest.approx(11) and figure.get_figheight() < 40
    page = figure.axes[0]
    for words in page.texts:  # nothing is set outside of the page
        x, y = words.get_position()
        assert -0.01 <= x <= 11.01 and 0 <= y <= figure.get_figheight() + 0.01, words.get_text()


def made_up(layers: int, heads: int, tokens: int) -> Comparison:
    """A comparison with numbers of every size."""
    key = torch.Generator().manual_seed(0)
    parts = []
    for i in range(layers):
        at = f"tower.blocks.{i}"
        parts.append(PartChange(at, i, "", None, 0.1, 1.0, float(torch.rand((), generator=key)), -0.2))
        parts += [PartChange(f"{at}.{s}", i, s, None, 0.1, 1.0, 0.3) for s in ("attn", "ff")]
        parts += [PartChange(f"{at}.attn.heads.{h}", i, "attn", h, 12.0, 1.0, 2.5) for h in range(heads)]
    guess = (("词", 0.5), ("b", 0.2))
    line = [
        TokenChange(f"词{i}", f"词{i}", special=i == 0, change=i / 100, before=1e-9, after=0.5,
                    top_before=guess, top_after=guess[::-1], space=i % 3 == 0)
        for i in range(tokens)
    ]  # fmt: skip
    moved = torch.rand(layers, heads, generator=key)
    links = tuple(MovedLink(i, 0, "词", "virtual tokens", 0.1, 0.9, 0, -1) for i in range(layers))
    return Comparison(
        title="LLaMA", names=("a", "b"), kind="words", source=(), tokens=tuple(line), labels=(),
        summary={"loss per token": (1.0, 2.0)}, change=9.0, rows=tokens,
        attention={"self": AttentionChange("self", "tower.blocks.{}.attn", moved, links, None)},
        parts=tuple(parts), kept=(KeptParts(("tower.blocks.0",), 0.5),), depth={"tower": layers},
    )  # fmt: skip


def test_png_has_chinese_letters_or_says_what_to_install(
    small: Comparison, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "天" in small.save(tmp_path / "a.svg").read_text("utf-8")  # text needs no font here
    if canvas.chinese_font() is None:
        with pytest.raises(InputError, match="apt install fonts-noto-cjk"):
            small.save(tmp_path / "a.png")
    else:
        assert small.save(tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_what_cannot_be_saved_is_said_before_anything_is_written(small: Comparison, tmp_path: Path) -> None:
    for name, words in (("a.jpg", "saved as .html"), ("no/a.png", "no folder")):
        with pytest.raises(InputError, match=words):
            small.save(tmp_path / name)
    assert not list(tmp_path.iterdir()) and "iframe" in small._repr_html_()


def test_shades_follow_the_change(small: Comparison) -> None:
    top = scale_top(small)
    known = [token for token in small.tokens if token.change is not None]
    assert top >= max(0.5, *(token.change for token in known))
    levels = [shade(token, top) for token in sorted(known, key=lambda token: token.change)]
    assert levels == sorted(levels) and 0 <= levels[0] <= levels[-1] <= 1
    assert shade(small.tokens[0], top) == 0 and small.tokens[0].change is None
    assert small.most_changed(3) == sorted(known, key=lambda token: -token.change)[:3]


def test_sentences_are_true() -> None:
    c = made_up(3, 2, 5)
    assert kept_sentence(c) == "layer 0 alone makes 50 % of the change: 1 of 3 layers"
    assert "2.5 times as far" in cancel_sentence(c)
    assert change_sentence(c).startswith(
        "KL(after || before) 1.8 nats per token; the best guess changed for 5 of 5"
    )
    assert [percent(x) for x in (0.5, 0.023, 0.00001, -0.4)] == ["50 %", "2.3 %", "0 %", "-40 %"]
    assert [probability(x) for x in (0.5, 0.0007, 0.0, None)] == ["0.50", "7e-4", "0", ""]
    assert part_name(
        PartChange("decoder.blocks.1.cross.heads.2", 1, "cross", 2, None), ("encoder", "decoder")
    ) == ("decoder layer 1, cross head 2")
    assert part_name(PartChange("head", None, "", None, None), ("encoder", "decoder")) == "output head"


def test_tables_hold_the_numbers_of_the_parts() -> None:
    c = comparison(tuning=Prefix(length=2))
    moved, share = head_tables(c)["self"]
    assert (moved.measure, share.measure) == ("moved", "share")  # a prefix has no weights to change
    assert share.columns == ("0", "1", "2", "3", "attn", "layer") and share.heads == 4
    for layer, row in enumerate(share.rows):
        for name, value in zip(share.columns, row, strict=True):
            end = f".attn.heads.{name}" if name.isdigit() else "" if name == "layer" else f".{name}"
            part = c.part(f"tower.blocks.{layer}{end}")
            assert part is not None and part.share == value
        assert moved.rows[layer] == tuple(c.attention["self"].moved_LH[layer].tolist())
    assert all(0 <= table.level(x) <= 1 for table in (moved, share) for row in table.rows for x in row)
    assert not any(math.isnan(x) for row in moved.rows for x in row)

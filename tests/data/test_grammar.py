"""The built-in grammar: a second, independent translator agrees with it, and order is all that tells mirror
images apart."""

from collections.abc import Iterator
from itertools import islice

import pytest

from clearhead.data import grammar, read_corpus

# What a dictionary says, written down once more: the grammar's own tables are not used here.
NOUNS = {
    "teacher": ("老师", "位"), "doctor": ("医生", "位"), "student": ("学生", "名"), "child": ("孩子", "个"),
    "farmer": ("农民", "个"), "dog": ("狗", "只"), "cat": ("猫", "只"), "bird": ("鸟", "只"),
    "horse": ("马", "匹"), "cow": ("牛", "头"), "snake": ("蛇", "条"), "book": ("书", "本"),
    "hat": ("帽子", "顶"), "cup": ("杯子", "个"), "chair": ("椅子", "把"), "map": ("地图", "张"),
    "letter": ("信", "封"), "coat": ("大衣", "件"), "flower": ("花", "朵"),
}  # fmt: skip
THINGS = ("book", "hat", "cup", "chair", "map", "letter", "coat", "flower")
ADJECTIVES = {
    "lazy": "懒惰的", "clever": "聪明的", "happy": "快乐的", "hungry": "饥饿的", "brave": "勇敢的",
    "new": "新的", "red": "红色的", "blue": "蓝色的", "clean": "干净的", "beautiful": "漂亮的",
}  # fmt: skip
VERBS = {
    "see": "看见", "hear": "听见", "find": "找到", "meet": "遇见", "follow": "跟着", "help": "帮助",
    "like": "喜欢", "miss": "想念", "trust": "信任", "fear": "害怕",
    "give": "给", "lend": "借给", "sell": "卖给", "send": "寄给",
}  # fmt: skip
NUMBERS = {"two": "两", "three": "三", "ten": "十"}
PLACES = {
    "in the park": "在公园里", "in the garden": "在花园里", "in the library": "在图书馆里",
    "at school": "在学校", "at the market": "在市场上", "at the station": "在车站", "by the river": "在河边",
}  # fmt: skip
TIMES = {
    "today": "今天", "every day": "每天", "tonight": "今晚", "in the morning": "早上",
    "in the evening": "晚上", "on sunday": "星期天",
}  # fmt: skip


class Reader:
    """Reads an English sentence from left to right and says it in Chinese; refuses wrong English."""

    def __init__(self, english: str) -> None:
        english, self.time = _ending(english, TIMES)
        english, self.place = _ending(english, PLACES)
        self.words = english.split()

    def chinese(self) -> str:
        subject, many = self.noun()
        verb = self.verb(many)
        if VERBS["give"] in verb:
            objects = self.things()
            assert self.words.pop(0) == "to"
            objects = self.noun()[0] + objects
        else:
            objects = self.noun()[0]
        assert not self.words
        return self.time + subject + self.place + verb + objects

    def things(self) -> str:
        first = self.noun()[0]
        assert self.words.pop(0) == "and"
        return f"{first}和{self.noun()[0]}"

    def noun(self) -> tuple[str, bool]:
        """determiner, adjective, noun, relative clause; and whether there are several."""
        which = self.words.pop(0)
        adjective = self.words.pop(0) if self.words[0] == "old" or self.words[0] in ADJECTIVES else ""
        name, many = _singular(self.words.pop(0))
        chinese, measure = NOUNS[name]
        assert many == (which in NUMBERS or which == "these") or which == "the"
        before = NUMBERS.get(which) or ("那" if which == "the" else "这")
        before += "些" if many and which not in NUMBERS else measure
        if adjective == "old":  # of things 旧, of living beings 年老
            adjective_zh = "旧的" if name in THINGS else "年老的"
        else:
            adjective_zh = ADJECTIVES.get(adjective, "")
        return self.clause(many) + before + adjective_zh + chinese, many

    def clause(self, many: bool) -> str:
        if not self.words or self.words[0] != "that":
            return ""
        self.words.pop(0)
        if self.words[0] in ("the", "this", "these", *NUMBERS):  # that the child likes
            inner, several = self.noun()
            return f"{inner}{self.verb(several)}的"
        verb = self.verb(many)  # that likes the child
        return f"{verb}{self.noun()[0]}的"

    def verb(self, many: bool) -> str:
        word = self.words.pop(0)
        if many:
            return VERBS[word]
        return VERBS["miss"] if word == "misses" else VERBS[word.removesuffix("s")] if word[-1] == "s" else ""


def _ending(english: str, phrases: dict[str, str]) -> tuple[str, str]:
    found = [phrase for phrase in phrases if english.endswith(f" {phrase}")]
    return (english.removesuffix(f" {found[0]}"), phrases[found[0]]) if found else (english, "")


def _singular(noun: str) -> tuple[str, bool]:
    if noun == "children":
        return "child", True
    return (noun, False) if noun in NOUNS else (noun.removesuffix("s"), True)


def rows(seed: int = 0) -> Iterator[tuple[str, str]]:
    for split in read_corpus("grammar-en-zh", seed=seed).values():
        yield from ((row["src"], row["tgt"]) for row in split)


@pytest.mark.parametrize(
    "english, chinese",
    [
        ("three brave dogs help the old horse in the park", "三只勇敢的狗在公园里帮助那匹年老的马"),
        ("the old horse helps three brave dogs today", "今天那匹年老的马帮助三只勇敢的狗"),
        ("the cat that the child likes sees two dogs", "那个孩子喜欢的那只猫看见两只狗"),
        ("the cat that likes the child sees two dogs", "喜欢那个孩子的那只猫看见两只狗"),
        ("two dogs see the cats that this child misses", "两只狗看见这个孩子想念的那些猫"),
        (
            "the doctor lends ten old books and two hats to this child",
            "那位医生借给这个孩子十本旧的书和两顶帽子",
        ),
    ],
)  # fmt: skip
def test_the_reader_of_these_tests_knows_chinese(english: str, chinese: str) -> None:
    assert Reader(english).chinese() == chinese


def test_every_translation_follows_from_the_order_of_the_english_words() -> None:
    """Measure words, numbers, adjectives, clauses and agreement, by a translator that shares no table."""
    count = 0
    for english, chinese in islice(rows(), 0, None, 5):
        assert Reader(english).chinese() == chinese, english
        count += 1
    assert count > 4000


def test_the_same_words_in_another_order_mean_something_else() -> None:
    one, two, three = (
        "three brave dogs help the old horse",
        "the old horse helps three brave dogs",
        "three old dogs help the brave horse",
    )
    assert len({grammar.combination(text) for text in (one, two, three)}) == 1
    assert len({Reader(text).chinese() for text in (one, two, three)}) == 3
    assert grammar.combination(one) != grammar.combination("three brave dogs help the old cow")


def test_a_combination_is_on_one_side_only_whatever_the_seed() -> None:
    sides: dict[str, set[str]] = {"train": set(), "valid": set()}
    for seed in (0, 1):
        for split, source in read_corpus("grammar-en-zh", seed=seed).items():
            sides[split] |= {grammar.combination(row["src"]) for row in source}
    assert len(sides["valid"]) > 900 and not sides["train"] & sides["valid"]


def test_the_sentences_of_the_demo_are_held_out() -> None:
    from clearhead.cli.demo import MIRRORED, SENTENCE
    from clearhead.data.documents import is_held_out

    assert grammar.combination(SENTENCE) == grammar.combination(MIRRORED)
    assert is_held_out(grammar.combination(SENTENCE), one_in=20)
    assert Reader(SENTENCE).chinese() != Reader(MIRRORED).chinese()


def test_every_word_is_seen_in_training_and_every_pattern_on_both_sides() -> None:
    splits = read_corpus("grammar-en-zh")
    english, chinese = ({word for row in splits["train"] for word in cut(row)} for cut in (_words, _letters))
    for row in splits["valid"]:
        assert set(_words(row)) <= english and set(_letters(row)) <= chinese
    things = {f"{thing}s" for thing in THINGS}  # always counted, so always several
    assert (set(NOUNS) - set(THINGS)) | things | set(ADJECTIVES) | set(VERBS) | set(NUMBERS) <= english
    for split in splits.values():
        sources = [row["src"].split() for row in split]
        kinds = [sum(word in words for words in sources) / len(sources) for word in ("that", "and")]
        assert all(0.25 < share < 0.42 for share in kinds)


def _words(row: dict[str, str]) -> list[str]:
    return row["src"].split()


def _letters(row: dict[str, str]) -> list[str]:
    return list(row["tgt"])


def test_sentences_and_numbers_are_one_to_one() -> None:
    some = range(0, grammar.SENTENCES, grammar.SENTENCES // 20_000)
    assert len({grammar.translated_sentence(number)[0] for number in some}) == len(some)
    with pytest.raises(IndexError):
        grammar.translated_sentence(grammar.SENTENCES)

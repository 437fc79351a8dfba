"""The words of the built-in grammar: English and Chinese, with the measure word that Chinese counts by."""

from __future__ import annotations

from dataclasses import dataclass

Word = tuple[str, str]  # English, Chinese
NO_WORD: Word = ("", "")


@dataclass(frozen=True)
class Noun:
    singular: str
    plural: str
    chinese: str
    measure: str


@dataclass(frozen=True)
class Verb:
    plural: str  # they follow
    singular: str  # it follows
    chinese: str


@dataclass(frozen=True)
class Determiner:
    """What stands before a noun; Chinese puts the noun's measure word after it, but not after 些."""

    english: str
    chinese: str
    plural: bool
    measured: bool = True


PEOPLE = (
    Noun("teacher", "teachers", "老师", "位"),
    Noun("doctor", "doctors", "医生", "位"),
    Noun("student", "students", "学生", "名"),
    Noun("child", "children", "孩子", "个"),
    Noun("farmer", "farmers", "农民", "个"),
)
ANIMALS = (
    Noun("dog", "dogs", "狗", "只"),
    Noun("cat", "cats", "猫", "只"),
    Noun("bird", "birds", "鸟", "只"),
    Noun("horse", "horses", "马", "匹"),
    Noun("cow", "cows", "牛", "头"),
    Noun("snake", "snakes", "蛇", "条"),
)
THINGS = (
    Noun("book", "books", "书", "本"),
    Noun("hat", "hats", "帽子", "顶"),
    Noun("cup", "cups", "杯子", "个"),
    Noun("chair", "chairs", "椅子", "把"),
    Noun("map", "maps", "地图", "张"),
    Noun("letter", "letters", "信", "封"),
    Noun("coat", "coats", "大衣", "件"),
    Noun("flower", "flowers", "花", "朵"),
)

DEFINITE = (
    Determiner("the", "那", plural=False),
    Determiner("this", "这", plural=False),
    Determiner("the", "那些", plural=True, measured=False),
    Determiner("these", "这些", plural=True, measured=False),
)
NUMERALS = (
    Determiner("two", "两", plural=True),
    Determiner("three", "三", plural=True),
    Determiner("ten", "十", plural=True),
)

# "old" is two words in Chinese: which one depends on the noun.
OF_BEINGS: tuple[Word, ...] = (
    NO_WORD,
    ("old", "年老的"),
    ("lazy", "懒惰的"),
    ("clever", "聪明的"),
    ("happy", "快乐的"),
    ("hungry", "饥饿的"),
    ("brave", "勇敢的"),
)
OF_THINGS: tuple[Word, ...] = (
    NO_WORD,
    ("old", "旧的"),
    ("new", "新的"),
    ("red", "红色的"),
    ("blue", "蓝色的"),
    ("clean", "干净的"),
    ("beautiful", "漂亮的"),
)

ACTIONS = (
    Verb("see", "sees", "看见"),
    Verb("hear", "hears", "听见"),
    Verb("find", "finds", "找到"),
    Verb("meet", "meets", "遇见"),
    Verb("follow", "follows", "跟着"),
    Verb("help", "helps", "帮助"),
)
# What happens nowhere in particular: a sentence with one of these names no place.
FEELINGS = (
    Verb("like", "likes", "喜欢"),
    Verb("miss", "misses", "想念"),
    Verb("trust", "trusts", "信任"),
    Verb("fear", "fears", "害怕"),
)
GIVING = (
    Verb("give", "gives", "给"),
    Verb("lend", "lends", "借给"),
    Verb("sell", "sells", "卖给"),
    Verb("send", "sends", "寄给"),
)

PLACES: tuple[Word, ...] = (
    NO_WORD,
    ("in the park", "在公园里"),
    ("in the garden", "在花园里"),
    ("in the library", "在图书馆里"),
    ("at school", "在学校"),
    ("at the market", "在市场上"),
    ("at the station", "在车站"),
    ("by the river", "在河边"),
)
TIME_PHRASES: tuple[Word, ...] = (
    NO_WORD,
    ("today", "今天"),
    ("every day", "每天"),
    ("tonight", "今晚"),
    ("in the morning", "早上"),
    ("in the evening", "晚上"),
    ("on sunday", "星期天"),
)

"""A grammar: a seed in, English sentences with their Chinese translation out.

English says who, does, what, where, when; Chinese says when, who, where, does, what. So the words cross over,
as anyone can see in the cross-attention of a model that learned it.
"""

from __future__ import annotations

from math import prod

from .heldout import is_held_out
from .order import noise

Word = tuple[str, str]  # English, Chinese
NOBODY: Word = ("", "")

WHO = [("i", "我"), ("you", "你"), ("we", "我们"), ("they", "他们"), ("the children", "孩子们")]
ONE = [
    ("he", "他"),
    ("she", "她"),
    ("the teacher", "老师"),
    ("my friend", "我的朋友"),
    ("my mother", "我的妈妈"),
]
VERBS = [
    ("find", "找到"), ("want", "想要"), ("buy", "买"), ("sell", "卖"), ("like", "喜欢"), ("see", "看到"),
    ("need", "需要"), ("draw", "画"), ("bring", "带来"), ("lose", "丢失"), ("choose", "选择"),
    ("share", "分享"),
]  # fmt: skip
THINGS = [  # with the word that Chinese counts them by
    ("apples", "苹果", "个"), ("books", "书", "本"), ("flowers", "花", "朵"), ("hats", "帽子", "顶"),
    ("cups", "杯子", "个"), ("chairs", "椅子", "把"), ("cats", "猫", "只"), ("birds", "鸟", "只"),
    ("maps", "地图", "张"), ("pictures", "图片", "张"), ("umbrellas", "雨伞", "把"),
    ("bicycles", "自行车", "辆"), ("letters", "信", "封"), ("keys", "钥匙", "把"), ("stones", "石头", "块"),
    ("coats", "大衣", "件"),
]  # fmt: skip
STUFF = [("tea", "茶"), ("bread", "面包"), ("milk", "牛奶"), ("paper", "纸")]
COUNTS = [("two", "两"), ("three", "三"), ("ten", "十")]
KINDS = [
    NOBODY, ("old", "旧的"), ("new", "新的"), ("red", "红色的"), ("blue", "蓝色的"), ("green", "绿色的"),
    ("big", "大的"), ("small", "小的"), ("beautiful", "漂亮的"), ("cheap", "便宜的"), ("clean", "干净的"),
]  # fmt: skip
PLACES = [
    NOBODY, ("in the park", "在公园里"), ("in the garden", "在花园里"), ("in the kitchen", "在厨房里"),
    ("in the library", "在图书馆里"), ("at school", "在学校"), ("at home", "在家"),
    ("at the market", "在市场上"), ("at the station", "在车站"), ("by the river", "在河边"),
]  # fmt: skip
TIMES = [
    NOBODY, ("today", "今天"), ("tomorrow", "明天"), ("now", "现在"), ("every day", "每天"),
    ("tonight", "今晚"), ("in the morning", "早上"), ("in the evening", "晚上"), ("this week", "这个星期"),
    ("on sunday", "星期天"),
]  # fmt: skip

WHATS: list[Word] = [
    *STUFF,
    *((english, chinese) for english, chinese, _ in THINGS),
    *((f"{n} {english}", f"{many}{by}") for n, many in COUNTS for english, _, by in THINGS),
]
CHOICES = [len(WHO) + len(ONE), len(VERBS), len(WHATS), len(KINDS), len(PLACES), len(TIMES)]
SENTENCES = prod(CHOICES)
TRAIN, HELD_OUT = 12_000, 500


def sentence(number: int) -> Word:
    """Sentence 0 to SENTENCES - 1, in both languages."""
    places = []
    for size in CHOICES:
        number, place = divmod(number, size)
        places.append(place)
    who, verb, what, kind, where, when = places
    does, does_zh = VERBS[verb]
    does += "s" if who >= len(WHO) else ""
    (subject, subject_zh), (like, like_zh) = (WHO + ONE)[who], KINDS[kind]
    (thing, thing_zh), (there, there_zh), (then, then_zh) = WHATS[what], PLACES[where], TIMES[when]
    count, _, name = thing.rpartition(" ")
    if count:  # 三 + 本 + 旧的 + 书
        name_zh = next(chinese for english, chinese, _ in THINGS if english == name)
        like_zh = thing_zh + like_zh
    else:
        name_zh = thing_zh
    english = " ".join(word for word in (subject, does, count, like, name, there, then) if word)
    return english, then_zh + subject_zh + there_zh + does_zh + like_zh + name_zh


def make(seed: int) -> dict[str, list[dict[str, str]]]:
    """Distinct sentences. Which may be held out is a matter of the sentence, so no seed mixes the two."""
    splits: dict[str, dict[str, str]] = {"train": {}, "valid": {}}
    sizes = {"train": TRAIN, "valid": HELD_OUT}
    drawn = noise(seed, "grammar", count=4 * (TRAIN + HELD_OUT))
    for number in (drawn % SENTENCES).tolist():
        english, chinese = sentence(number)
        split = "valid" if is_held_out(english, one_in=20) else "train"
        if len(splits[split]) < sizes[split]:
            splits[split][english] = chinese
    return {name: [{"src": e, "tgt": c} for e, c in pairs.items()] for name, pairs in splits.items()}

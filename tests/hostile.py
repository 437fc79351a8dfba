"""Hostile input for fuzzing: a random generator in; files that are odd, damaged or malicious out; a judge.

Case n of seed s is `Random(f"{s}-{n}")`, so a failure is repeated by its two numbers.
"""

import contextlib
import io
import json
import random
import resource
import signal
import traceback
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SECONDS = 10  # of one case
MEGABYTES = 400  # that the process may grow in one case
TEXTS = [
    "", " ", "a", "the old dog finds an apple", "今天天气很好", "👨‍👩‍👧 family", "x" * 3000, "a\tb",
    "a,b;c", 'a "quoted" b', "line\nbreak", "\r\n", "\x1b[31mred\x1b[0m", "\x1b]0;title\x07",
    "\x9b2J", "\u202eevil", "\u2028", "\ufeff", "\x7f", "[red]x[/]", "[/]",
    "[link=file:///etc/passwd]x[/link]", "{{x}}", "%s%n", "../../etc/passwd", "NaN", "1e999", "-1",
    "0", "null", "\ud800", "\U000e0001", "e\u0301" * 50, "O", "B-ORG", "user", "assistant", "\x00",
]  # fmt: skip
VALUES: list[Any] = [
    None, True, False, 0, -1, 1, 2**31, 2**63, 10**30, -(10**400), 0.5, float("nan"), float("inf"),
    [], {}, [[]], [{}], [None], ["a", "b"], [1, "a"], {"a": 1}, {"en": "a", "zh": "b"}, {"": ""},
    [["a"], ["b"]], {"text": ["a"], "answer_start": [0]},
]  # fmt: skip
NAMES = [
    "text", "label", "src", "tgt", "prompt", "completion", "question", "context", "answers",
    "messages", "conversations", "tokens", "tags", "instruction", "input", "output", "en", "zh",
    "translation", "data", "id", "sentence1", "sentence2",
]  # fmt: skip


@dataclass
class Found:
    """What went wrong, by kind; each with the number of its case."""

    cases: int = 0
    tracebacks: list[str] = field(default_factory=list)
    hangs: list[str] = field(default_factory=list)
    controls: list[str] = field(default_factory=list)
    long_lines: list[str] = field(default_factory=list)
    memory: list[str] = field(default_factory=list)
    other: list[str] = field(default_factory=list)

    @property
    def faults(self) -> list[str]:
        lists = (self.tracebacks, self.hangs, self.controls, self.long_lines, self.memory, self.other)
        return [line for each in lists for line in each]

    def __str__(self) -> str:
        return (
            f"{self.cases} cases: {len(self.tracebacks)} tracebacks, {len(self.hangs)} hangs, "
            f"{len(self.controls)} with control characters, {len(self.long_lines)} long lines, "
            f"{len(self.memory)} large, {len(self.other)} other"
        )


class Hung(BaseException):
    pass


@contextlib.contextmanager
def alarm(seconds: int = SECONDS) -> Iterator[None]:
    def ring(number: int, frame: object) -> None:
        raise Hung

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def judge(found: Found, case: str, call: Callable[[], object], codes: tuple[int, ...]) -> None:
    """Run one case. It must leave with one of the exit codes, quickly, quietly and within its lines."""
    found.cases += 1
    out, err = io.StringIO(), io.StringIO()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    code: object = None
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), alarm():
            call()
    except SystemExit as left:
        code = left.code or 0
    except Hung:
        found.hangs.append(case)
        return
    except BaseException as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        found.tracebacks.append(
            f"{case}: {type(error).__name__}: {str(error)[:120]} ({last.filename}:{last.lineno})"
        )
        return
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024
    if code not in codes:
        found.other.append(f"{case}: left with {code}: {err.getvalue()[-300:]}")
    odd = dangerous(out.getvalue() + err.getvalue())
    if odd:
        found.controls.append(f"{case}: {sorted(odd)!r}")
    # A loss that is no number is told with a list of what to look at, in words of our own.
    lines = [line for line in err.getvalue().split("\n") if ". Look at " not in line]
    if max(map(len, lines)) > 300 + len("clearhead: "):
        found.long_lines.append(f"{case}: {err.getvalue()[:400]}")
    if grown > MEGABYTES:
        found.memory.append(f"{case}: grew by {grown} MB")


def dangerous(text: str) -> set[str]:
    """Characters that act on a terminal, or on the order in which others stand."""
    joiners = "\u200c\u200d" + "".join(map(chr, range(0xE0020, 0xE0080)))
    return {
        letter
        for letter in text
        if unicodedata.category(letter) in ("Cc", "Cf", "Zl", "Zp", "Cs") and letter not in "\n\t" + joiners
    }


def damage(chance: random.Random, data: bytes) -> bytes:
    """A file with some of it changed, cut, doubled or moved."""
    broken = bytearray(data)
    for _ in range(chance.choice([0, 1, 1, 2, 5])):
        at = chance.randrange(len(broken) + 1)
        kind = chance.randrange(8)
        if kind == 0 and broken:
            broken[at % len(broken)] ^= 1 << chance.randrange(8)
        elif kind == 1:
            del broken[at:]
        elif kind == 2:
            broken[at:at] = chance.randbytes(chance.choice([1, 4, 100]))
        elif kind == 3:
            broken[at:at] = chance.choice(
                [b"\x00", b"\xff", b"\n", b'"', b"\\", b"\xef\xbb\xbf", b"\r", b"\x1b["]
            )
        elif kind == 4:
            end = min(len(broken), at + chance.randrange(200))
            broken[at:at] = broken[at:end] * chance.choice([1, 2, 30])
        elif kind == 5:
            del broken[at : at + chance.randrange(1, 50)]
        elif kind == 6:
            broken[at:at] = chance.choice(
                [b"[" * 3000, b"{" * 3000, b"9" * 5000, b'{"a":' * 2000, b"," * 2000]
            )
        elif broken:
            broken[at:at] = chance.choice(TEXTS).encode("utf-8", "surrogatepass")
    return bytes(broken)


def value(chance: random.Random, depth: int = 2) -> Any:
    kind = chance.randrange(10)
    if kind < 5:
        return chance.choice(TEXTS)
    if kind < 8 or depth == 0:
        return chance.choice(VALUES)
    if kind == 8:
        return [value(chance, depth - 1) for _ in range(chance.randrange(4))]
    return {chance.choice([*NAMES, *TEXTS]): value(chance, depth - 1) for _ in range(chance.randrange(4))}


def row(chance: random.Random) -> Any:
    """A row as some task wants it, or one that is nearly so, or none at all."""
    text = lambda: chance.choice(TEXTS)  # noqa: E731
    rows: list[Any] = [
        {"text": text()},
        {"text": text(), "label": chance.choice([0, 1, "a", text(), None, [1]])},
        {"src": text(), "tgt": text()},
        {"translation": {"en": text(), "zh": text()}},
        {"messages": [{"role": chance.choice(["user", text()]), "content": text()}, {"role": "assistant"}]},
        {"conversations": [{"from": chance.choice(["human", "gpt", text()]), "value": value(chance)}]},
        {"tokens": [text(), text()], "tags": [text(), chance.choice(["O", 1, None])]},
        {"question": text(), "context": f"x {text()}", "answers": _answers(chance)},
        {"question": text(), "context": text(), "answers": value(chance)},
        {"instruction": text(), "input": value(chance), "output": text()},
        value(chance),
    ]  # fmt: skip
    chosen = chance.choice(rows)
    if isinstance(chosen, dict) and chance.random() < 0.3:
        chosen[chance.choice([*NAMES, *TEXTS])] = value(chance)
    return chosen


def _answers(chance: random.Random) -> Any:
    return {"text": [chance.choice(TEXTS)], "answer_start": [chance.choice([0, 2, -1, "a"])]}


def dumped(chance: random.Random, rows: Any) -> str:
    return json.dumps(rows, ensure_ascii=chance.random() < 0.5, indent=chance.choice([None, None, 1]))


def packed(chance: random.Random, name: str, data: bytes) -> tuple[str, bytes]:
    """Sometimes packed, and then sometimes damaged as packed."""
    import gzip
    import lzma

    kind = chance.randrange(6)
    if kind > 1:
        return name, data
    pack, suffix = ((gzip.compress, ".gz"), (lzma.compress, ".xz"))[kind]
    whole = pack(data) + (pack(b"more\n") if chance.random() < 0.2 else b"")
    return name + suffix, damage(chance, whole) if chance.random() < 0.5 else whole


def make_fifo_or_link(chance: random.Random, path: Path) -> None:
    import os

    path.unlink(missing_ok=True)
    kind = chance.randrange(5)
    if kind == 0:
        os.mkfifo(path)
    elif kind == 1:
        path.symlink_to(path)
    else:
        path.symlink_to(
            chance.choice(["/dev/zero", "/dev/full", "/proc/self/mem", "/proc/kmsg", "nowhere", "/"])
        )

"""Options and arguments that several commands have, declared and read once."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from ..errors import InputError, reason
from ..learn import Lang
from ..readfile import open_regular

if TYPE_CHECKING:
    from ..engine import InferencePrecision

Json = Annotated[bool, Parameter(negative="", show_default=False, help="JSON output")]
Language = Annotated[Lang | None, Parameter(help="zh or en (default: from the environment)")]
Threads = Annotated[int | None, Parameter(name="--threads", help="number of threads (default: all cores)")]

# For every command that opens a model.
ModelName = Annotated[str, Parameter(help="a folder, a Hub id, or a .gguf file")]
ModelOrSize = Annotated[str, Parameter(help="a folder, a Hub id, a .gguf file, or a size such as bert-base")]
Set = Annotated[
    list[str] | None,
    Parameter(
        name="--set", negative="", help="replace a field of the spec: Attention.kernel='Window(left=256)'"
    ),
]
PrecisionName = Annotated[
    str | None,
    Parameter(
        name=["--precision", "--quantize"],
        help="number format of the weights (default: as they are stored). float32: exact; bfloat16: half "
        "the memory, faster, next to no loss; int8: a quarter, faster still, a small loss; int8-fine: as "
        "int8 with the quality of float32, less fast; int4: a sixth, the fastest for one text at a time, "
        "the largest loss",
    ),
]
CachePrecisionName = Annotated[
    str | None,
    Parameter(
        name="--cache-precision",
        help="number format of the cached keys and values: float32 (the default), bfloat16 or int8; less to "
        "read for each token after a long text, at next to no loss",
    ),
]
Keep = Annotated[
    bool,
    Parameter(
        negative="",
        help="with int8, int8-fine or int4: keep the quantized weights in the model's folder, so that it "
        "opens faster the next time",
    ),
]
ModelThreads = Annotated[
    int | None,
    Parameter(name="--threads", help="number of threads (default: OMP_NUM_THREADS, or all cores)"),
]
SomePrecisions = Annotated[
    tuple[str, ...],
    Parameter(
        consume_multiple=True,
        negative="",
        show_default=False,
        help="float32, bfloat16, int8, int8-fine, int4: one or several (default: all)",
    ),
]

DeviceName = Annotated[
    str | None, Parameter(help="cpu, cuda, cuda:1, mps, or auto: the best there is (default: cpu)")
]

Edits = dict[str, str]


@Parameter(name="*")
@dataclass(frozen=True)
class AdapterOptions:
    """An adapter over the model."""

    adapter: Annotated[
        str | None,
        Parameter(
            help="folder of an adapter to put over the model (clearhead, PEFT or adapters wrote it); none: "
            "the base of an adapter, without it"
        ),
    ] = None
    any_base: Annotated[
        bool, Parameter(negative="", help="with --adapter: over other weights than it was trained over")
    ] = False


NO_ADAPTER = AdapterOptions()


def checked_precisions(words: Sequence[str]) -> tuple[InferencePrecision, ...]:
    """The precisions to measure, each once; all if none is given."""
    from ..engine import PRECISIONS, check_precision

    return tuple(dict.fromkeys(check_precision(word) for word in words)) or PRECISIONS


def is_edit(word: str) -> bool:
    """Attention.kernel=Linear edits the spec, tower.blocks.0.ff.out=0 an activation of one call."""
    kind = word.partition("=")[0].split(".")[-2:-1]
    return bool(kind) and kind[0][:1].isupper()


def edits(words: list[str] | None) -> Edits:
    """The values of --set by field; `bundle.edits` parses them."""
    result: Edits = {}
    for word in words or ():
        place, sign, value = word.partition("=")
        if not sign or not place.strip() or not value.strip():
            raise InputError(f"--set takes Kind.field=value, such as Attention.kernel=Linear; given {word!r}")
        result[place.strip()] = value.strip()
    return result


def texts_of(word: str) -> Iterator[str]:
    """The text itself; for `-` the lines of stdin as they come, empty ones left out."""
    if word != "-":
        yield word
        return
    for line in sys.stdin:
        if line.strip():
            yield line.rstrip("\n")


def lines_of(file: str) -> list[str]:
    """Every line of a text file, empty ones included, so that line numbers stay; `-` is stdin."""
    if file == "-":
        return [line.rstrip("\n") for line in sys.stdin]
    if not Path(file).is_file():
        raise InputError(f"{file} is not a file; give a text file with one text per line, or - for stdin")
    try:
        with open_regular(file) as handle:
            return handle.read().decode("utf-8").splitlines()
    except OSError as error:
        raise InputError(f"{file} cannot be read: {reason(error)}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{file} is not UTF-8 text (byte {error.start}); save it as UTF-8") from None

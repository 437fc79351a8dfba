"""Decoding speed of Clearhead and other libraries: one model, the same prompts and number of new tokens.

The others load the folder that Clearhead saves, so all have the same weights; llama.cpp loads the .gguf file
that Clearhead was given. None may stop early. Each of them runs in a separate process.

Decoding is measured without the prompt, for all in the same way: the time of a call that generates all
tokens, less that of a call that generates one. What remains is the time of all tokens but one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import torch

from ..bundle import Bundle, build, load, save
from ..engine import InferencePrecision, step_bytes
from ..errors import ClearheadError, InputError, reason
from ..families import SIZES
from ..nn import CachePrecision, TokenHead, generator
from ..store import resolve
from .bandwidth import read_bandwidth
from .ctranslate2 import convert_folder, open_ctranslate2
from .llama_cpp import open_llama_cpp, weights_of
from .process import PeerProcess, TimedDecoder, timed
from .task import DECODE_PEERS, Decoder, DecodeTask
from .timing import ProgressCallback, installed
from .transformers import open_transformers

PAUSE = 0.3  # seconds before each turn: OpenMP threads of the previous side spin for a while, then sleep
LEAST_SHARE = 0.01  # of the whole time, as the time of decoding: other load can make it seem less than none
# The compute type of CTranslate2 that a precision is compared with.
SAME_PRECISION = {"float32": "float32", "int8": "int8", "int8-fine": "int8"}


@dataclass(frozen=True)
class DecodeSide:
    """A library and a precision, with a decoder."""

    library: str
    precision: str
    decode: TimedDecoder
    step_bytes: int  # of weights that are read for one token
    cache: CachePrecision = "float32"

    @property
    def name(self) -> str:
        kept = "" if self.cache == "float32" else f", {self.cache} cache"
        return f"{self.library} {self.precision}{kept}"


@dataclass(frozen=True)
class SideSpeed:
    side: str
    tokens_per_second: float  # while decoding, of all rows together
    with_prompt: float  # new tokens per second of the whole call
    prompt_seconds: float  # until the first new token
    times: dict[str, float]  # the speed while decoding, relative to that of each peer
    times_with_prompt: dict[str, float]  # the same for the whole call
    memory_share: float | None  # bytes of weights read per second, relative to reading alone; for one row
    same_tokens: float  # the share of tokens equal to those of Clearhead, unprepared, in float32


@dataclass(frozen=True)
class DecodePoint:
    batch: int
    prompt: int
    sides: list[SideSpeed]


@dataclass(frozen=True)
class DecodeBenchmark:
    points: list[DecodePoint]
    bandwidth: float  # bytes per second, reading
    peers: dict[str, str]  # versions
    missing: list[str]


def compare_decoding(
    model: str,
    tasks: Sequence[DecodeTask],
    precisions: Sequence[InferencePrecision],
    peers: Sequence[str],
    *,
    cache_precisions: Sequence[CachePrecision] = ("float32",),
    rounds: int,
    threads: int,
    progress: ProgressCallback,
) -> DecodeBenchmark:
    """Measure all sides at each task. `peers` are names of `DECODE_PEERS`."""
    if rounds < 1:
        raise InputError(f"rounds is {rounds}, expected 1 or more")
    reference = _load_generator(model)
    for task in tasks:
        _check_length(reference, task)
    versions, _ = installed(list(dict.fromkeys(DECODE_PEERS[peer] for peer in peers)))
    missing = [f"{peer} (not installed: pip install {DECODE_PEERS[peer]})" for peer in peers
               if DECODE_PEERS[peer] not in versions]  # fmt: skip
    with TemporaryDirectory() as scratch, ExitStack() as open_:
        folder = Path(scratch) / "model"
        # Peers open no adapter: the weights that they get have it in.
        save(reference if reference.tuning is None else reference.merged(), folder)
        opening = _Opening(model, folder, reference, tasks, threads)
        available = [peer for peer in peers if DECODE_PEERS[peer] in versions]
        sides: list[DecodeSide] = []
        for name, open_side in {
            **opening.own(precisions, cache_precisions),
            **opening.of_peers(available),
        }.items():
            progress(f"opening {name}")
            try:
                sides.append(open_side(open_))
            except MemoryError:
                raise
            except Exception as error:  # a peer may fail in any way; measure the others
                missing.append(f"{name} ({_described(error)})")
        progress("reading memory")
        bandwidth = read_bandwidth()
        times = [_measure(task, sides, reference, rounds, progress) for task in tasks]
        bandwidth = max(bandwidth, read_bandwidth())  # again: other load only ever makes it less
    points = [
        DecodePoint(task.batch, task.prompt, _speeds(task, sides, found, bandwidth))
        for task, found in zip(tasks, times, strict=True)
    ]
    return DecodeBenchmark(points, bandwidth, versions, missing)


@dataclass
class _SideTimes:
    """What was measured of one side; seconds of each round."""

    same_tokens: float
    first: list[float] = field(default_factory=list)  # until the first new token
    whole: list[float] = field(default_factory=list)  # of the whole call


OpenSide = Callable[[ExitStack], DecodeSide]


@dataclass(frozen=True)
class _Opening:
    """How each side is opened. `folder` has the weights of `reference`, which `model` names."""

    model: str
    folder: Path
    reference: Bundle
    tasks: Sequence[DecodeTask]
    threads: int

    def own(
        self, precisions: Sequence[InferencePrecision], caches: Sequence[CachePrecision]
    ) -> dict[str, OpenSide]:
        return {
            f"clearhead {precision}, {cache} cache": partial(self._clearhead, precision, cache)
            for precision in precisions
            for cache in caches
        }

    def of_peers(self, peers: Sequence[str]) -> dict[str, OpenSide]:
        found: dict[str, OpenSide] = {}
        if "transformers" in peers:
            found["transformers float32"] = partial(self._transformers, "float32")
        if "transformers-bfloat16" in peers:
            found["transformers bfloat16"] = partial(self._transformers, "bfloat16")
        if "ctranslate2" in peers:
            for kind in ("float32", "int8"):
                found[f"ctranslate2 {kind}"] = partial(self._ctranslate2, kind)
        if "llama.cpp" in peers:
            found["llama.cpp"] = self._llama_cpp
        return found

    def _clearhead(
        self, precision: InferencePrecision, cache: CachePrecision, open_: ExitStack
    ) -> DecodeSide:
        bundle = load(self.folder, precision=precision, cache_precision=cache)
        decode = partial(timed, clearhead_decoder(bundle))
        return DecodeSide("clearhead", precision, decode, step_bytes(bundle.model), cache)

    def _transformers(self, number: str, open_: ExitStack) -> DecodeSide:
        peer = PeerProcess(open_transformers, self.folder, number, self.threads)
        size = step_bytes(self.reference.model, {"float32": 4, "bfloat16": 2}[number])
        return DecodeSide("transformers", number, open_.enter_context(peer), size)

    def _ctranslate2(self, kind: str, open_: ExitStack) -> DecodeSide:
        translates = self.reference.spec.is_encoder_decoder
        converted = convert_folder(self.folder, kind, _vocab(self.reference), translates=translates)
        peer = PeerProcess(open_ctranslate2, converted, self.threads)
        size = step_bytes(self.reference.model, {"float32": 4, "int8": 1}[kind])
        return DecodeSide("ctranslate2", kind, open_.enter_context(peer), size)

    def _llama_cpp(self, open_: ExitStack) -> DecodeSide:
        path = Path(self.model) if self.model in SIZES else resolve(self.model)
        if path.suffix != ".gguf":
            raise InputError("it reads .gguf files only")
        if any(task.beams > 1 for task in self.tasks):
            raise InputError("it has no beam search")
        rows = max(task.batch for task in self.tasks)
        length = max(task.prompt + task.tokens for task in self.tasks)
        peer = PeerProcess(open_llama_cpp, path, rows, length, self.threads)
        number, size = weights_of(path)
        return DecodeSide("llama.cpp", number, open_.enter_context(peer), size)


def clearhead_decoder(bundle: Bundle) -> Decoder:
    def decode(ids: Sequence[list[int]], task: DecodeTask) -> list[list[int]]:
        ids_BT = torch.tensor(ids)
        rows = bundle.generate_ids(ids_BT, torch.ones_like(ids_BT), **task.settings)
        # The new tokens are the last ones, whether a prompt or a start token precedes them.
        return [row[-task.tokens :] for row in rows.tolist()]

    return decode


def _measure(
    task: DecodeTask, sides: Sequence[DecodeSide], reference: Bundle, rounds: int, progress: ProgressCallback
) -> dict[str, _SideTimes]:
    """The times of each side by its name. The sides take turns, round by round."""
    about = f"batch {task.batch}, prompt {task.prompt}"
    key = generator(0, "bench")
    ids = torch.randint(4, _vocab(reference) - 4, (task.batch, task.prompt), generator=key).tolist()
    progress(f"{about}: the tokens of float32")
    wanted = clearhead_decoder(reference)(ids, task)
    short = replace(task, tokens=1)
    times = {}
    for side in sides:
        progress(f"{about}: warming up {side.name}")
        times[side.name] = _SideTimes(_agreement(side.decode(ids, task).rows, wanted))
    for turn in range(1, rounds + 1):
        for side in sides:
            progress(f"{about}: round {turn} of {rounds}, {side.name}")
            time.sleep(PAUSE)
            side.decode(ids, short)  # wakes its threads up
            times[side.name].first.append(side.decode(ids, short).seconds)
            times[side.name].whole.append(side.decode(ids, task).seconds)
    return times


def _speeds(
    task: DecodeTask, sides: Sequence[DecodeSide], times: Mapping[str, _SideTimes], bandwidth: float
) -> list[SideSpeed]:
    """Each figure is the median of the rounds."""
    decoding, with_prompt = {}, {}
    for name, found in times.items():
        rounds = zip(found.first, found.whole, strict=True)
        seconds = median(max(whole - first, LEAST_SHARE * whole) for first, whole in rounds)
        decoding[name] = task.batch * (task.tokens - 1) / seconds
        with_prompt[name] = task.batch * task.tokens / median(found.whole)
    single = task.batch == task.beams == 1
    return [
        SideSpeed(
            side.name,
            decoding[side.name],
            with_prompt[side.name],
            median(times[side.name].first),
            _times(side, sides, decoding),
            _times(side, sides, with_prompt),
            side.step_bytes * decoding[side.name] / bandwidth if single else None,
            times[side.name].same_tokens,
        )
        for side in sides
    ]


def _times(side: DecodeSide, sides: Sequence[DecodeSide], speeds: Mapping[str, float]) -> dict[str, float]:
    """A speed relative to each peer: transformers in float32, CTranslate2 in the same precision."""
    peers = {
        "transformers": "transformers float32",
        "ctranslate2": f"ctranslate2 {SAME_PRECISION.get(side.precision)}",
        "llama.cpp": next((other.name for other in sides if other.library == "llama.cpp"), ""),
    }
    return {peer: speeds[side.name] / speeds[name] for peer, name in peers.items() if name in speeds}


def _load_generator(name: str) -> Bundle:
    bundle = build(name) if name in SIZES else load(name, dtype="float32")
    if not (bundle.spec.generates and isinstance(bundle.spec.head, TokenHead)):
        raise InputError(
            f"{name} does not generate text; give a model that generates, such as gpt2 or transformer-base"
        )
    return bundle


def _check_length(bundle: Bundle, task: DecodeTask) -> None:
    """Raise an error for more tokens than the model has positions for, before anything is measured."""
    limit = bundle.spec.max_length
    needed = max(task.prompt, task.tokens) if bundle.spec.is_encoder_decoder else task.prompt + task.tokens
    if limit is not None and needed > limit:
        raise InputError(
            f"--prompt {task.prompt} and --tokens {task.tokens} need {needed} positions, and the model has "
            f"{limit}; give fewer"
        )


def _vocab(bundle: Bundle) -> int:
    assert isinstance(bundle.spec.head, TokenHead)
    return bundle.spec.head.vocab


def _agreement(rows: list[list[int]], reference: list[list[int]]) -> float:
    """The share of equal tokens."""
    pairs = [pair for one, two in zip(rows, reference, strict=True) for pair in zip(one, two, strict=False)]
    return sum(one == two for one, two in pairs) / max(len(pairs), 1)


def _described(error: Exception) -> str:
    """A sentence of ours as it is; another library's error with its kind, cut."""
    if isinstance(error, ClearheadError):
        return str(error)
    return f"{type(error).__name__}: {reason(error)[:80]}"

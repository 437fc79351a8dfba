"""Model folders that somebody spoiled: a seed and a number in, a folder out; and what opening it did.

Case n of a seed is always the same folder, so a failure can be opened again by its two numbers. A case is
good if the folder opens and answers, or if it is refused with one printable line of at most 300 characters,
within ten seconds and 200 MB.
"""

import copy
import json
import os
import random
import resource
import shutil
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from references import tiny_sizes
from trained import trained, write

import clearhead as ch
from clearhead.errors import ClearheadError
from clearhead.families import FAMILIES, Family

SECONDS, MEGABYTES, LONGEST = 10, 200, 300
XL = {"d_embed": 32, "d_head": 8, "cutoffs": [20, 60], "div_val": 2, "mem_len": 8, "clamp_len": 16}
TOKENIZERS = {"causal": "bytes", "encoder-decoder": "unigram", "bidirectional": "words"}
DECODING = {"max_new_tokens": 6, "num_beams": 2, "do_sample": False, "temperature": 0.7, "top_k": 5,
            "top_p": 0.9, "repetition_penalty": 1.1, "length_penalty": 1.0, "no_repeat_ngram_size": 2,
            "suppress_tokens": [1], "bad_words_ids": [[5, 6]], "eos_token_id": 2, "early_stopping": True,
            "begin_suppress_tokens": [3], "forced_eos_token_id": 2, "min_new_tokens": 1}  # fmt: skip
LENGTHS = ("max_new_tokens", "max_length", "min_new_tokens", "min_length")
ODD: list[Any] = [
    None, True, False, -1, 0, 1, 3, 7, 2**31, 2**63, 10**12, 10**30, 10**400, -(10**30), 0.5, 3.5, -0.5,
    1e308, -1e308, float("nan"), float("inf"), "", "x", "1", "gelu", "\x1b]0;pwned\x07", "\u202e", "\n\r\0",
    "a" * 5000, "../../etc/passwd", "__import__('os').system('true')", [], {}, [[]], [1], ["x"], [None],
    [-1], [10**12], [0.5], ["\x1b[2J"], {"a": 1}, {"rope_type": "yarn"}, {"rope_type": 3}, [[1, "x"]],
    99999999, 65536, "99999999", "Window(left=10**9)", [1] * 2000,
]  # fmt: skip
KEYS = [
    "clearhead", "rope_parameters", "rope_scaling", "rope_theta", "id2label", "architectures", "layer_types",
    "num_labels", "tie_word_embeddings", "model_type", "dtype", "head_dim", "attention_window",
    "pad_token_id", "classifier_dropout", "eos_token_id", "\x1b[31m", "quantization_config", "auto_map",
    "hidden_size", "num_attention_heads", "num_experts", "n_embed", "rotary_emb_base", "attention_layers",
    "dense_act_fn", "is_gated_act", "scoring_func", "rope_local_base_freq", "sliding_window_pattern",
    "is_decoder", "is_encoder_decoder", "vision_config",
]  # fmt: skip
EDITS = [
    {"Tower.depth": "99999999"}, {"Tower.depth": "3000"}, {"Attention.kernel": "Linear()"}, {"x": "y"},
    {"Attention.window": "(1, 0)"}, {"Attention.kernel": "Performer(features=10**9)"}, {"Tower.width": "1"},
    {"Attention.kernel": "Performer(features=100000000)"}, {"MLP.hidden": "999999999"}, 3,
]  # fmt: skip


def bases(folder: Path) -> dict[str, Path]:
    """A whole small folder of every family, with tokenizer and decoding defaults."""
    made = {}
    for family in FAMILIES.values():
        place = folder / family.name
        kind = TOKENIZERS[family.mode]
        ch.save(ch.build(family.name, **_sizes(family, trained(kind).get_vocab_size())), place)
        write(place, kind)
        (place / "generation_config.json").write_text(json.dumps(DECODING))
        (place / "modules.json").write_text(json.dumps([{"type": "x.Pooling", "path": "1_Pooling"}]))
        (place / "1_Pooling").mkdir()
        (place / "1_Pooling" / "config.json").write_text('{"pooling_mode_mean_tokens": true}')
        made[family.name] = place
    return made


def _sizes(family: Family, vocab: int) -> dict[str, Any]:
    sizes = {key: value for key, value in XL.items() if key in family.defaults} | tiny_sizes(family)
    return sizes | {key: vocab for key in ("vocab_size", "decoder_vocab_size") if key in sizes}


def spoil_json(data: bytes, draw: random.Random) -> bytes:
    """Change one value anywhere in the tree, or add a key, or leave one out."""
    value = json.loads(data)
    holder: Any = value if isinstance(value, dict | list) else []
    while True:  # walk down to some object or list
        below = holder.values() if isinstance(holder, dict) else holder
        inner = [part for part in below if isinstance(part, dict | list) and part]
        if not inner or draw.random() < 0.8:
            break
        holder = draw.choice(inner)
    new = copy.deepcopy(draw.choice(ODD))
    if not holder:
        return json.dumps(new).encode()
    if isinstance(holder, dict):
        action = draw.random()
        keys = list(holder)
        if action < 0.12:
            holder.pop(draw.choice(keys))
        elif action < 0.32:
            key = draw.choice(KEYS)
            holder[key] = {"edit": draw.choice(EDITS)} if key == "clearhead" else new
        else:
            holder[draw.choice(keys)] = new
    else:
        holder[draw.randrange(len(holder))] = new
    return json.dumps(value).encode()


def spoil_bytes(data: bytes, draw: random.Random) -> bytes:
    action = draw.randrange(5)
    at = draw.randrange(len(data))
    if action == 0:
        return data[:at]
    if action == 1:
        return data + draw.randbytes(draw.randrange(1, 40))
    if action == 2:
        return data[:at] + draw.randbytes(draw.randrange(1, 9)) + data[at + draw.randrange(9) :]
    spoiled = bytearray(data)
    front = len(data) if action == 3 else min(len(data), 2000)  # headers are in front
    for _ in range(draw.choice([1, 1, 4, 16])):
        spoiled[draw.randrange(front)] ^= 1 << draw.randrange(8)
    return bytes(spoiled)


RAW = [
    b"", b"[" * 200000, b'{"a":' * 50000, b"9" * 400000, b"\xef\xbb\xbf{}", '{"a": 1}'.encode("utf-16"),
    b'{"a": "\0"}', b'{"model_type": "\\ud800"}', b"null", b"3", b'"x"', b"[" + b"[]," * 1500000 + b"[]]",
    b'{"a": ' + b"9" * 4000 + b"}", b"{" + b'"a":1,' * 900000 + b'"b":1}', b"\x00" * 5_000_000,
]  # fmt: skip
LINKS = [
    "/dev/zero", "/dev/urandom", "/dev/stdin", "/proc/self/mem", "/proc/kmsg", "/proc/self/environ", "/",
    "/nowhere", "/dev/full", "/proc/kcore", "config.json",
]  # fmt: skip
JSONS = {  # and how often each is chosen
    "config.json": 6, "generation_config.json": 4, "tokenizer.json": 2, "tokenizer_config.json": 2,
    "modules.json": 1, "1_Pooling/config.json": 1,
}  # fmt: skip
FILES = [
    "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "modules.json",
    "model.safetensors",
]  # fmt: skip


@dataclass
class Case:
    """One spoiled folder: which file of which family, and how."""

    name: str
    kind: str
    file: str
    data: bytes | None = None
    link: str | None = None

    def write(self, bases: dict[str, Path], to: Path) -> Path:
        shutil.rmtree(to, ignore_errors=True)
        shutil.copytree(bases[self.name], to, copy_function=os.link)
        place = to / self.file
        place.unlink()
        if self.link is not None:
            place.symlink_to(self.link)
        else:
            place.write_bytes(self.data or b"")
        return to


def case(seed: int, number: int, bases: dict[str, Path]) -> Case:
    draw = random.Random(f"{seed}-{number}")
    name = draw.choice(list(bases))
    way = draw.random()
    if way < 0.78:
        file = draw.choices(list(JSONS), list(JSONS.values()))[0]
        data = (bases[name] / file).read_bytes()
        for _ in range(draw.choice([1, 1, 1, 2, 3])):
            data = spoil_json(data, draw)
        return Case(name, "json", file, data)
    file = draw.choice(FILES)
    if way < 0.92:
        return Case(name, "bytes", file, spoil_bytes((bases[name] / file).read_bytes(), draw))
    if way < 0.97:
        return Case(name, "raw", file, draw.choice(RAW))
    return Case(name, "link", file, link=draw.choice(LINKS))


def use(folder: Path) -> None:
    """Open a folder as a person would, and ask it something."""
    bundle = ch.load(folder)
    ids = torch.tensor([[3, 4, 5, 6]])
    with torch.no_grad():
        if bundle.family is not None and bundle.family.mode == "encoder-decoder":
            bundle.model(ids, ids)
        else:
            bundle.model(ids)
    if bundle.family is None or bundle.family.mode == "bidirectional":
        if bundle.tokenizer is not None and bundle.pooling is not None:
            bundle.embed(["The quick fox"])
        return
    long = any(isinstance(bundle.generation.get(name), int) for name in LENGTHS)
    if bundle.tokenizer is None:
        bundle.generate_ids(ids, max_new_tokens=4)
    elif long and "max_new_tokens" not in DECODING | bundle.generation:
        list(islice(bundle.stream("The quick fox", num_beams=1), 3))
    else:
        bundle.generate("The quick fox", max_new_tokens=4)
        list(islice(bundle.stream("The quick fox", num_beams=1), 3))


class TooSlowError(BaseException):
    """Not an Exception: nothing but the clock's owner may catch it."""


@dataclass
class Outcome:
    opened: int = 0
    refused: int = 0
    bad: list[dict[str, Any]] = field(default_factory=list)

    def __str__(self) -> str:
        kinds = Counter(entry["what"] for entry in self.bad)
        faults = ", ".join(f"{count} {what}" for what, count in kinds.items()) or "0 tracebacks, 0 hangs"
        return f"{self.opened} opened, {self.refused} refused in one line, {faults}"


def attempt(action: Callable[[], None]) -> tuple[str, str]:
    """What came of it: opened, refused, or what was wrong; and the words."""

    def late(*_: object) -> None:
        raise TooSlowError

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, 6 * SECONDS)
    started = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    try:
        action()
        found = "opened", ""
    except ClearheadError as error:
        line = str(error)
        good = line.isprintable() and len(line) <= LONGEST and line.strip()
        found = ("refused", line) if good else ("bad line", repr(line))
    except TooSlowError:
        found = "hang", "".join(traceback.format_stack(limit=3))
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        found = "traceback", "".join(traceback.format_exception(error)[-4:])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    seconds = resource.getrusage(resource.RUSAGE_SELF).ru_utime - started
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024
    if found[0] in ("opened", "refused") and (seconds > SECONDS or grown > MEGABYTES):
        return "too much", f"{seconds:.1f} s, {grown} MB: {found[1]}"
    return found


def run(seed: int, numbers: Iterator[int] | range, bases: dict[str, Path], scratch: Path) -> Outcome:
    outcome = Outcome()
    for number in numbers:
        spoiled = case(seed, number, bases)
        folder = spoiled.write(bases, scratch / "case")
        what, words = attempt(lambda folder=folder: use(folder))
        if what == "opened":
            outcome.opened += 1
        elif what == "refused":
            outcome.refused += 1
        else:
            entry = {"what": what, "seed": seed, "case": number, "family": spoiled.name, "file": spoiled.file}
            outcome.bad.append(entry | {"words": words, "kind": spoiled.kind})
    return outcome


if __name__ == "__main__":  # SEED FIRST LAST: every fault as a line of JSON, then the figures
    import tempfile

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        made = bases(Path(place) / "bases")
        found = run(int(sys.argv[1]), range(int(sys.argv[2]), int(sys.argv[3])), made, Path(place))
        for entry in found.bad:
            sys.stdout.write(json.dumps(entry) + "\n")
        sys.stdout.write(json.dumps({"opened": found.opened, "refused": found.refused}) + "\n")

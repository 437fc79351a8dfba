"""Ways of tuning by the words that people type: a word in, the settings of a tuning out.

`--method dora` is Lora with another variant, so a word stands for some settings, and others stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from ..errors import InputError, SpecError, nearest, quoted
from ..spec import Spec
from ..tune import Tuning


@dataclass(frozen=True)
class Method:
    about: str
    settings: Mapping[str, Any]


def _lora(about: str, **changes: str) -> Method:
    plain = {"kind": "Lora", "variant": "lora", "scaling": "rank", "start": "zero"}
    return Method(about, {**plain, **changes})


METHODS = {
    "lora": _lora("two narrow matrices beside each linear layer: --rank, --alpha, --targets"),
    "dora": _lora("as lora, and each row of the sum has a length that is learned", variant="dora"),
    "rslora": _lora("as lora, scaled by alpha / sqrt(rank), for large ranks", scaling="sqrt-rank"),
    "pissa": _lora(
        "as lora, beginning with the largest singular directions of the weights", start="principal"
    ),
    "adapter": Method(
        "two narrow layers behind each sub-layer (Houlsby): --reduction, --targets",
        {"kind": "Bottleneck", "reads": "output", "targets": ["*.{attn,cross,ff}"]},
    ),
    "pfeiffer": Method(
        "two narrow layers behind each feed-forward layer",
        {"kind": "Bottleneck", "reads": "sum", "targets": ["*.ff"]},
    ),
    "parallel": Method(
        "two narrow layers beside each feed-forward layer, scaled by 4",
        {"kind": "Bottleneck", "reads": "input", "targets": ["*.ff"], "reduction": 2, "scale": 4.0},
    ),
    "prefix": Method(
        "learned keys and values before the text in every layer: --virtual-tokens", {"kind": "Prefix"}
    ),
    "prompt": Method("learned vectors before the text: --virtual-tokens", {"kind": "Prompt"}),
    "ia3": Method("a learned factor for each key, value and hidden number", {"kind": "IA3"}),
    "bias": Method("the biases of the model alone (BitFit)", {"kind": "Full", "targets": ["*.bias"]}),
    "head": Method("the head alone", {"kind": "Full", "targets": ["head.*"]}),
    "full": Method("all weights, as a model of its own", {"kind": "Full", "targets": ["*"]}),
}
# What papers and other libraries call them.
OTHER_WORDS = {
    "houlsby": "adapter", "bottleneck": "adapter", "bitfit": "bias", "freeze": "head", "pa": "parallel",
    "prompt_tuning": "prompt", "prompt-tuning": "prompt",
    "prefix_tuning": "prefix", "prefix-tuning": "prefix",
}  # fmt: skip
PATTERN_FIELDS = ("rank_pattern", "alpha_pattern", "reduction_pattern")  # may be given as {pattern: value}


def parse_tuning(section: Any) -> Tuning | None:
    """The tuning of a run: a word, settings with a kind, a value from Python, or nothing."""
    if section is None or isinstance(section, Tuning):
        return section
    if isinstance(section, str):
        section = method_settings(section)
    if not isinstance(section, Mapping):
        raise InputError(f"tune is {quoted(section)}; expected settings such as {{kind: Lora, rank: 8}}")
    kinds = Tuning.kinds()
    kind = section.get("kind", "Lora")
    if not isinstance(kind, str) or kind not in kinds:
        raise InputError(f"tune.kind is {quoted(kind)}; {nearest(str(kind), kinds)}")
    values = {name: _as_field(name, value) for name, value in section.items()}
    known = [f.name for f in fields(kinds[kind])]
    for name in values:
        if name not in (*known, "kind"):
            raise InputError(f"tune has no setting {quoted(name)} with {kind}; {nearest(str(name), known)}")
    try:
        tuning = Spec.from_dict({**values, "kind": kind})
    except SpecError as error:
        raise InputError(str(error).replace(f"{kind}.", "tune.")) from None
    assert isinstance(tuning, Tuning)
    return tuning


def _as_field(name: str, value: Any) -> Any:
    if name in PATTERN_FIELDS and isinstance(value, Mapping):
        return [list(pair) for pair in value.items()]
    if name == "targets" and isinstance(value, list) and len(value) == 1:
        return value[0]
    whole = isinstance(value, float) and value.is_integer() and name in ("rank", "length")
    return int(value) if whole else value


def method_settings(word: str) -> Mapping[str, Any]:
    """The settings that a word stands for: lora, dora, prefix, ... or the name of a kind."""
    kinds = {name.lower(): name for name in Tuning.kinds()}
    own = OTHER_WORDS.get(word.lower(), word.lower())
    if own in METHODS:
        return METHODS[own].settings
    if word.lower() in kinds:
        return {"kind": kinds[word.lower()]}
    raise InputError(f"tune is {quoted(word)}; {nearest(word.lower(), METHODS)}")

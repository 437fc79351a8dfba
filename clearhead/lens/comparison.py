"""Before and after: the comparison of two models on one text, as `clearhead.compare` makes it.

    c = ch.compare(base, tuned, "once upon a time")
    c.tokens                      how the prediction of every token changed
    c.attention["self"].moved_LH  how much of the attention of every head moved
    c.parts                       which layers and heads carry the change: energy, effect, share
    c.save("page.html")           or .svg, .png, .pdf; c.to_dict() for other programs

Shape suffixes: L layers, H heads.
"""

from __future__ import annotations

import html
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from ..errors import InputError, SaveError
from .attention_change import AttentionChange
from .output_change import LabelChange, OutputKind, TokenChange
from .record import AttentionKind
from .tokens import Token

if TYPE_CHECKING:
    from .pictures import Picture

COMPARISON_SUFFIXES = (".html", ".svg", ".png", ".pdf")
UNITS: dict[OutputKind, str] = {
    "words": "nats", "tags": "nats", "span": "nats", "labels": "nats", "decisions": "nats",
    "score": "squared difference", "states": "squared distance of the states",
}  # fmt: skip


@dataclass(frozen=True)
class PartChange:
    """A part in which the models differ.

    `energy` is |dW| / |W|. `effect` is how far the output moves if this part alone is as it was before, in
    the unit of the comparison; `share` is that by the distance of the model before. `alone` is the share of
    the change that this part makes by itself, in the model before. None: not known.
    """

    address: str
    layer: int | None
    step: str  # attn, cross, ff; "" for a whole layer and for what is in no layer
    head: int | None
    energy: float | None
    effect: float | None = None
    share: float | None = None
    alone: float | None = None

    @property
    def tower(self) -> str:
        return self.address.partition(".")[0]


@dataclass(frozen=True)
class KeptParts:
    """Parts with the largest effects, and the share of the change that they make together."""

    addresses: tuple[str, ...]
    share: float


@dataclass(frozen=True)
class GeneratedTexts:
    prompt: str
    before: str
    after: str


@dataclass(frozen=True, eq=False)
class Comparison:
    """What one text shows of the difference between two models."""

    title: str
    names: tuple[str, str]  # of the models before and after
    kind: OutputKind  # what is compared
    source: tuple[Token, ...]  # the text that an encoder read, where the tokens are those of a decoder
    tokens: tuple[TokenChange, ...]  # in the order of the text; the last may be the word that comes next
    labels: tuple[LabelChange, ...]
    summary: Mapping[str, tuple[float, float]]  # loss, perplexity, similarity: before and after
    change: float  # the distance of the outputs, summed up
    rows: int  # how many distributions or states were compared
    attention: Mapping[AttentionKind, AttentionChange]
    parts: tuple[PartChange, ...]
    kept: tuple[KeptParts, ...] = ()
    texts: GeneratedTexts | None = None
    cosine: float | None = None  # of the sentence vectors before and after
    depth: Mapping[str, int] = field(default_factory=dict)  # layers of each tower
    tuning: str = ""
    notes: tuple[str, ...] = ()

    @property
    def unit(self) -> str:
        return UNITS[self.kind]

    @property
    def mean_change(self) -> float:
        return self.change / max(self.rows, 1)

    @property
    def predicted(self) -> list[TokenChange]:
        """The tokens with a prediction."""
        return [token for token in self.tokens if token.top_before]

    @property
    def switched(self) -> float | None:
        """The share of tokens whose best guess is another one; None without a guess for each token."""
        found = self.predicted
        return sum(token.is_switched for token in found) / len(found) if found else None

    def most_changed(self, count: int = 10) -> list[TokenChange]:
        """The tokens that changed most, those first."""
        known = [token for token in self.tokens if token.change is not None]
        return sorted(known, key=lambda token: -(token.change or 0.0))[:count]

    def part(self, address: str) -> PartChange | None:
        return next((part for part in self.parts if part.address == address), None)

    def head_values(self, kind: AttentionKind, value: str) -> list[list[float | None]]:
        """`energy`, `effect`, `share` or `alone` of every head of one kind of attention, by layer."""
        own = self.attention.get(kind)
        template = (
            own.address if own is not None else f"tower.blocks.{{}}.{'cross' if kind == 'cross' else 'attn'}"
        )
        return [
            self._heads(template.format(layer), value) for layer in range(self.depth[template.split(".")[0]])
        ]

    def _heads(self, address: str, value: str) -> list[float | None]:
        inside = [
            part for part in self.parts if part.head is not None and part.address.startswith(f"{address}.")
        ]
        return [getattr(part, value) for part in inside]

    def save(self, path: str | Path) -> Path:
        """Save a page (.html) or a picture (.svg, .png, .pdf)."""
        path = check_comparison_path(path)
        if path.suffix.lower() != ".html":
            return self.draw().save(path)
        from .comparison_page import comparison_page

        try:
            path.write_text(comparison_page(self), encoding="utf-8")
        except OSError as error:
            raise SaveError(f"{path} cannot be written: {error.strerror}") from None
        return path

    def draw(self) -> Picture:
        """The comparison as one picture."""
        from .pictures import draw_comparison

        return draw_comparison(self)

    def _repr_html_(self) -> str:
        from .comparison_page import comparison_page

        inner = html.escape(comparison_page(self), quote=True)
        style = "width:100%;height:860px;border:0"
        return f'<iframe srcdoc="{inner}" style="{style}" sandbox="allow-scripts"></iframe>'

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values; None for what is not known."""
        texts = None if self.texts is None else asdict(self.texts)
        return {
            "title": self.title, "before": self.names[0], "after": self.names[1], "tuning": self.tuning,
            "kind": self.kind, "unit": self.unit, "notes": list(self.notes),
            "change": self.change, "mean_change": self.mean_change, "switched": self.switched,
            "cosine": self.cosine,
            "summary": {name: {"before": a, "after": b} for name, (a, b) in self.summary.items()},
            "labels": [asdict(label) for label in self.labels],
            "source": [token.label for token in self.source],
            "tokens": [asdict(token) for token in self.tokens],
            "texts": texts,
            "attention": {kind: _attention_facts(change) for kind, change in self.attention.items()},
            "parts": [asdict(part) for part in self.parts],
            "kept": [asdict(kept) for kept in self.kept],
        }  # fmt: skip


def _attention_facts(change: AttentionChange) -> dict[str, Any]:
    return {
        "address": change.address,
        "moved": plain_numbers(change.moved_LH),
        "virtual": None if change.virtual_LH is None else plain_numbers(change.virtual_LH),
        "links": [asdict(link) for link in change.links],
        "left_out": list(change.reasons),
    }


def plain_numbers(x: Tensor) -> list[list[float | None]]:
    """A table of numbers for JSON, which has no NaN."""
    return [[value if math.isfinite(value) else None for value in row] for row in x.tolist()]


def check_comparison_path(path: str | Path) -> Path:
    """Raise an error for a file that could not be saved, before the work is done."""
    path = Path(path)
    if path.suffix.lower() not in COMPARISON_SUFFIXES:
        raise InputError(f"a comparison is saved as {', '.join(COMPARISON_SUFFIXES)}; given {path.name}")
    if not path.parent.is_dir():
        raise InputError(f"there is no folder {path.parent} to save {path.name} in")
    return path

"""Model facts: a bundle in; its description for the page out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..bundle import Bundle
from ..lens import attention_addresses, sentence
from ..nn import Attention, Tower
from .registry import ModelEntry, ModelRegistry, first_sample

SAMPLE_TEXT = "The cat sat on the mat because it was tired."


def facts(registry: ModelRegistry, entry: ModelEntry, bundle: Bundle) -> dict[str, Any]:
    sides = bundle.spec.towers
    family = bundle.family
    stored = sum(p.numel() * p.element_size() for p in bundle.model.parameters())
    return {
        "id": entry.id,
        "name": entry.name,
        "where": registry.where(entry),
        "title": family.title if family else type(bundle.spec).__name__,
        "mode": family.mode if family else "",
        "task": bundle.task,
        "parameters": bundle.parameters,
        "bytes": stored,
        "text": bundle.tokenizer is not None,
        "generates": bundle.spec.generates,
        "chat": has_template(bundle),
        "vocabulary": vocabulary(bundle),
        "pair": bundle.spec.is_encoder_decoder,
        "window": bundle.spec.max_length,
        "sample": _shorten(bundle, first_sample(entry) or SAMPLE_TEXT),
        "towers": {side: sentence(tower) for side, tower in sides.items()},
        "kinds": attention_kinds(bundle),
    }


def _shorten(bundle: Bundle, text: str) -> str:
    """The beginning of a text that fits the context, with room for special tokens and an answer."""
    max_length = bundle.spec.max_length
    if max_length is None or bundle.tokenizer is None:
        return text
    ids = list(bundle.tokenizer.encode(text, specials=False).ids)
    if len(ids) <= max_length - 8:
        return text
    return bundle.tokenizer.decode(ids[: max(1, max_length // 2)]).strip()


def has_template(bundle: Bundle) -> bool:
    """Whether its checkpoint has a chat template."""
    return (
        bundle.spec.generates and bundle.tokenizer is not None and bundle.tokenizer.chat_template is not None
    )


def vocabulary(bundle: Bundle) -> str:
    """A fingerprint of the vocabulary; models with the same one share token ids."""
    return bundle.tokenizer.fingerprint if bundle.tokenizer else ""


def attention_kinds(bundle: Bundle) -> list[dict[str, Any]]:
    """The kinds of attention, and how many layers, heads and key/value heads each has."""
    rows = []
    for kind, tower in _attention_towers(bundle):
        first = tower.pattern[0]
        spec = first.cross if kind == "cross" else first.attention
        if not isinstance(spec, Attention):  # another token mixer has no heads to show
            continue
        groups = spec.kv_heads or spec.heads
        rows.append({"kind": kind, "layers": tower.depth, "heads": spec.heads, "groups": groups})
    return rows


def causal_kinds(bundle: Bundle) -> list[str]:
    """The kinds of attention that are causal."""
    return [kind for kind, tower in _attention_towers(bundle) if tower.causal and kind != "cross"]


def _attention_towers(bundle: Bundle) -> Iterator[tuple[str, Tower]]:
    for kind, address in attention_addresses(bundle.model).items():
        yield kind, bundle.model.stacks[address.split(".")[0]].spec

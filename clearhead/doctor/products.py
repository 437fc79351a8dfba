"""A finding about matrix products: the processor's instructions, and what was measured and chosen here."""

from __future__ import annotations

from collections import Counter, defaultdict

import torch

from ..engine import PRECISIONS, all_choices, candidates, pack_name
from .findings import Finding

# Functions of torch.cpu that not every version has, and the instructions they ask for.
INSTRUCTIONS = {
    "_is_avx512_bf16_supported": "bfloat16",
    "_is_amx_tile_supported": "AMX",
    "_is_vnni_supported": "int8 (VNNI)",
}


def check_products() -> Finding:
    """Which product each precision uses, for the shapes that were measured on this machine."""
    has = [name for function, name in INSTRUCTIONS.items() if getattr(torch.cpu, function, bool)()]
    instructions = f"instructions for {', '.join(has)}" if has else "no instructions for bfloat16 or int8"
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for choice in all_choices().values():
        for precision in PRECISIONS:
            if choice.seconds.keys() == {pack_name(pack) for pack in candidates(precision)}:
                counts[precision][choice.name] += 1
    if not counts:
        return Finding("products", f"{instructions} · nothing measured yet: clearhead bench products")
    chosen = [
        f"{precision}: " + ", ".join(f"{name} ({_shapes(count)})" for name, count in names.most_common())
        for precision, names in counts.items()
    ]
    return Finding("products", " · ".join([instructions, *chosen]))


def _shapes(count: int) -> str:
    return f"{count} shape{'' if count == 1 else 's'}"

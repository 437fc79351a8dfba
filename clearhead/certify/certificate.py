"""The certificate of a checkpoint: every layer compared with the reference, and five invariances.

Reference and Clearhead run in float32; a float64 run of Clearhead is the yardstick for both. That separates
rounding (both slightly off, in different directions) from a mistake (one of them far off).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ..bundle import Bundle, load
from ..store import resolve
from . import invariances
from .reference import Reference, find_reference
from .sample import SampleBatch

DIRECT = "ours against reference, float32"
TOLERANCE = 1e-5  # of the largest value of a layer, or of one, whichever is larger


@dataclass(frozen=True)
class CertificateRow:
    """One line of the certificate. `apart` is a difference relative to the size of the values."""

    check: str
    what: str
    apart: float
    limit: float

    @property
    def passed(self) -> bool:
        return self.apart <= self.limit  # a NaN does not pass


@dataclass(frozen=True)
class Certificate:
    family: str
    parameters: int
    rows: tuple[CertificateRow, ...]
    reference: str  # which version was compared with, or why none was

    @property
    def passed(self) -> bool:
        return all(row.passed for row in self.rows)

    @property
    def verdict(self) -> str:
        """The result in one sentence."""
        direct = [row for row in self.rows if row.check == DIRECT]
        if not direct:
            return f"not compared with a reference: {self.reference}"
        # A NaN is further away than any number.
        worst = max(direct, key=lambda row: (row.apart != row.apart, row.apart))
        if worst.passed:
            apart = f"at most {worst.apart:.1e} apart in any" if worst.apart else "bit-identical in all"
            return f"ours = {self.reference}: {apart} of the {len(direct)} layers compared"
        return f"ours differs from {self.reference}: {worst.apart:.1e} apart at {worst.what}"


def certify(
    folder: str | Path,
    edit: Mapping[str, Any] | None = None,
    *,
    adapter: str | Path | None = None,
    any_base: bool = False,
) -> Certificate:
    """Load the folder with Clearhead and, if it is installed, with `transformers`, and compare the outputs.

    `folder` may be that of an adapter, or `adapter` one that is put over it: the reference is then PEFT.
    An edit is applied to Clearhead's model only: the certificate then shows how much it changes the model.
    """
    folder = resolve(folder)  # the files of a hub id are in a folder, too
    bundle = load(folder, dtype="float32", edit=edit, adapter=adapter, any_base=any_base)
    sample = SampleBatch.of(bundle)
    exact = load(folder, dtype="float64", edit=edit, adapter=adapter, any_base=any_base)
    reference = find_reference(folder, bundle, adapter)
    rows = _parity(bundle, exact, sample, reference) if isinstance(reference, Reference) else []
    for name, check in invariances.CHECKS.items():
        difference = check(bundle, sample)
        if difference is not None:  # None: does not apply, such as a cache to an encoder
            limit = 0.0 if name == "save and load" else TOLERANCE
            rows.append(CertificateRow("invariance", name, difference, limit))
    family = bundle.family.title if bundle.family else "unknown"
    return Certificate(family, bundle.parameters, tuple(rows), str(reference))


@torch.no_grad()
def _parity(bundle: Bundle, exact: Bundle, sample: SampleBatch, reference: Reference) -> list[CertificateRow]:
    ours, truth = sample.layers(bundle), sample.layers(exact)
    theirs = reference.layers(sample)
    rows = []
    for name, right in theirs.items():
        if name != "answer" and right.shape != truth[name].shape:
            continue  # Reformer has two streams; the reference returns one
        size = max(1.0, float(truth[name].abs().max()))
        for who, values in (("ours", ours[name]), ("reference", right)):
            apart = float((values.double() - truth[name]).abs().max()) / size
            rows.append(CertificateRow(f"{who}, float32 against float64", name, apart, TOLERANCE))
        # Both lie within the limit of the truth, so at most twice as far from each other.
        apart = float((ours[name].double() - right.double()).abs().max()) / size
        rows.append(CertificateRow(DIRECT, name, apart, 2 * TOLERANCE))
    return rows

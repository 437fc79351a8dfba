"""Effects of parts: two models and a distance of outputs in; what each part in which they differ does, out.

The effect of a part is the distance to the model after, of the model after with this part as it was before:
one pass for each part. Parts act together, so shares do not add up to one. Heads are many: in a large model
those of the layers with the largest effects are measured, and a note says which.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Literal, NamedTuple

from torch import Tensor

from ..errors import ClearheadError, InputError, nearest
from ..lens import KeptParts, PartChange
from ..nn import TransformerModel
from ..tune import (
    ModelPart,
    PairedModels,
    PartSwitches,
    pair_models,
    part_energies,
    skip_layers,
    why_not_paired,
)

Effects = Literal["auto", "heads", "layers", "none"]
EFFECTS: tuple[Effects, ...] = ("auto", "heads", "layers", "none")
EffectProgress = Callable[[int, int], None]  # passes done, and of how many
Distance = Callable[[TransformerModel], float]  # of the output of a model to that of the model after

BUDGET = 4e12  # operations of "auto": about a minute of one core
LAYER_OVERHEAD = 1e8  # operations in the time that Python takes for a layer
ROUNDING = 1e-11  # of a distance per token that float32 has between equal models
ENOUGH = 0.95  # the share of the change at which the list of parts that make it together ends
MOST_KEPT = 12  # parts of that list


class MeasuredParts(NamedTuple):
    parts: tuple[PartChange, ...] = ()
    kept: tuple[KeptParts, ...] = ()
    notes: tuple[str, ...] = ()


def check_effects(effects: str) -> None:
    if effects not in EFFECTS:
        raise InputError(f"effects is {effects!r}; {nearest(effects, EFFECTS)}")


def measure_parts(
    before: TransformerModel,
    after: TransformerModel,
    distance: Distance,
    *,
    known: Mapping[str, Tensor],
    effects: Effects,
    length: int,
    progress: EffectProgress | None = None,
) -> MeasuredParts:
    """`known` are the outputs of the layers of the model after, `length` the number of tokens of a pass."""
    reason = why_not_paired(before, after)
    if reason is not None:
        return MeasuredParts(notes=(f"layers and heads are not compared: {reason}",))
    paired = pair_models(before, after)
    energies = part_energies(paired)
    total = distance(before) if paired.parts else 0.0
    run = _Passes(paired, distance, total, known, progress or (lambda done, of: None))
    if 0 < total <= ROUNDING * length:
        run.notes.append("the outputs differ by rounding alone: no part is measured")
    elif total > 0 and effects != "none":
        layers = sum(len(stack.blocks) for stack in after.stacks.values())
        numbers = sum(p.numel() for p in after.parameters())
        run.measure(effects, 2.0 * length * numbers + layers * LAYER_OVERHEAD)
    parts = [
        PartChange(
            part.address,
            part.layer,
            part.step,
            part.head,
            energies[part.address],
            run.effects.get(part.address),
            run.share(part.address),
            run.alone.get(part.address),
        )
        for part in paired.parts
    ]
    return MeasuredParts(tuple(parts), tuple(run.kept), tuple(run.notes))


class _Passes:
    """The passes of one comparison, and what they found."""

    def __init__(
        self,
        paired: PairedModels,
        distance: Distance,
        total: float,
        known: Mapping[str, Tensor],
        progress: EffectProgress,
    ) -> None:
        self.paired, self.distance, self.total, self.progress = paired, distance, total, progress
        self.switches, self.known = PartSwitches(paired), known
        self.effects = dict[str, float]()
        self.alone = dict[str, float]()
        self.kept: list[KeptParts] = []
        self.notes: list[str] = []
        self.done = self.planned = 0

    def share(self, address: str) -> float | None:
        effect = self.effects.get(address)
        return None if effect is None else effect / self.total

    def measure(self, effects: Effects, operations: float) -> None:
        parts = self.paired.parts
        outer = [part for part in parts if part.layer is None or part.is_layer]
        inner = [part for part in parts if part.step]
        allowed = len(inner) if effects == "heads" else 0 if effects == "layers" else None
        if allowed is None:
            allowed = max(0, int(BUDGET / operations) - 3 * len(outer))
        self.planned = 3 * len(outer) + min(allowed, len(inner))
        for part in outer:
            self._switch_off(part)
        by_effect = sorted(outer, key=lambda part: -self.effects.get(part.address, 0.0))
        self._measure_alone(by_effect)
        chosen = self._inside(by_effect, inner, allowed)
        self.planned = self.done + len(chosen)
        for part in chosen:
            self._switch_off(part)

    def _inside(
        self, layers: Sequence[ModelPart], inner: Sequence[ModelPart], allowed: int
    ) -> list[ModelPart]:
        """The sub-layers and heads to measure: those of the layers with the largest effects."""
        chosen: list[ModelPart] = []
        left_out: list[str] = []
        for layer in layers:
            own = [part for part in inner if part.is_in(layer)]
            if own and len(chosen) + len(own) > allowed and (chosen or not allowed):
                left_out.append(layer.address)
            else:
                chosen += own
        if left_out and chosen:
            named = ", ".join(
                layer.address for layer in layers if layer.address not in left_out and layer.is_layer
            )
            self.notes.append(
                f"effects of heads were measured in the layers that matter most: {named}; effects='heads' "
                f"(--effects heads) measures all"
            )
        return chosen

    def _measure_alone(self, parts: Sequence[ModelPart]) -> None:
        """What each part makes by itself, and the first few together."""
        for part in parts:
            self._note(part, self.alone, partial(self._only, [part]))
        self.kept = [KeptParts((parts[0].address,), self.alone.get(parts[0].address, 0.0))] if parts else []
        for count in range(2, min(len(parts), MOST_KEPT + 1)):
            if self.kept[-1].share >= ENOUGH:
                break
            chosen = parts[:count]
            try:
                self.kept.append(KeptParts(tuple(part.address for part in chosen), self._only(chosen)))
            except ClearheadError:
                break

    def _only(self, parts: Sequence[ModelPart]) -> float:
        """The share of the change that these parts make in the model before."""
        outer = [part for part in self.paired.parts if part.layer is None or part.is_layer]
        return 1 - self._pass([part for part in outer if part not in parts]) / self.total

    def _switch_off(self, part: ModelPart) -> None:
        self._note(part, self.effects, partial(self._pass, [part]))

    def _note(self, part: ModelPart, into: dict[str, float], measure: Callable[[], float]) -> None:
        try:
            into[part.address] = measure()
        except ClearheadError as error:  # such as a kernel that cannot hide virtual tokens
            self.notes.append(f"{part.address} cannot be switched off: {error}")

    def _pass(self, off: Collection[ModelPart]) -> float:
        model = self.switches.off(off).model
        if len(off) == 1:
            model = skip_layers(model, self.known, next(iter(off)))
        found = self.distance(model)
        self.done += 1
        self.progress(self.done, max(self.planned, self.done))
        return found

"""Adapters beside quantized weights: gradients go through the matrices that the products multiply by.

A tuned model over int8 or int4 weights is compared with the same tuning over plain float weights that are the
dequantized matrices: training computes the same outputs and the same gradients.
"""

import itertools

import pytest
import torch
import zoo
from matrix import combinations
from packed import packed_layers, plain_twin
from tolerance import assert_close
from torch import nn
from tunings import POSSIBLE, TUNINGS, move
from zoo import ids, run

from clearhead.engine import prepare_model
from clearhead.tune import Full, TunedModel, attach_tuning

PRECISIONS = ("int8", "int4")
# Parameters of the model itself do not learn in quantized matrices.
KINDS = [kind for kind, tuning in TUNINGS.items() if not isinstance(tuning, Full)]
CASES = [
    (name, kind, precision)
    for name, kind, precision in itertools.product(zoo.EVERY, KINDS, PRECISIONS)
    if kind in POSSIBLE[name]
]


def in_turn(name: str, kind: str, precision: str) -> bool:
    own = [case for case in CASES if case[0] == name]
    return own.index((name, kind, precision)) == list(zoo.EVERY).index(name) % len(own)


def gradients(made: TunedModel, source: torch.Tensor, target: torch.Tensor) -> dict[str, torch.Tensor]:
    made.model.train()
    torch.manual_seed(0)  # of dropout
    answer = run(made.model, source, target)
    weights = torch.randn(answer.shape, generator=torch.Generator().manual_seed(1))
    (answer * weights).sum().backward()
    return {name: made.model.get_parameter(name).grad for name in made.tuning.trained}


@pytest.mark.parametrize(("name", "kind", "precision"), combinations(CASES, "{}-{}-{}".format, in_turn))
def test_gradients_over_quantized_weights_are_those_over_their_floats(
    name: str, kind: str, precision: str
) -> None:
    base = zoo.EVERY[name].build(dtype=torch.float32)
    stored = {n: p.detach().clone() for n, p in base.named_parameters()}
    prepare_model(base, precision)
    codes = [product.fused.product.dequantized() for _, product, _, _ in packed_layers(base)]
    made = attach_tuning(base, TUNINGS[kind])
    move(made.model, made.tuning.trained)
    source, target = ids(2, 6), ids(2, 9)
    found = gradients(made, source, target)
    wanted = gradients(of_plain_twin(base, made, kind), source, target)
    for n, gradient in found.items():
        assert (gradient is None) == (wanted[n] is None), n
        if gradient is not None:
            assert_close(gradient, wanted[n])
    assert all(torch.equal(p, stored[n]) for n, p in base.named_parameters())
    after = [product.fused.product.dequantized() for _, product, _, _ in packed_layers(base)]
    assert all(torch.equal(one, two) for one, two in zip(codes, after, strict=True)) and codes


def of_plain_twin(base: nn.Module, made: TunedModel, kind: str) -> TunedModel:
    """The same tuning with the same values over the dequantized matrices."""
    twin = attach_tuning(plain_twin(base), TUNINGS[kind])
    with torch.no_grad():
        for n in made.tuning.trained:
            twin.model.get_parameter(n).copy_(made.model.get_parameter(n))
        for n, p in twin.model.named_parameters():
            if ".start_" in n:  # the principal directions of the stored weights
                p.copy_(made.model.get_parameter(n))
    return twin

"""Position schemes against the implementations other people trust."""

import math

import pytest
import torch
from tolerance import assert_close
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.t5.modeling_t5 import T5Attention

from clearhead import nn as cn
from clearhead.nn.position_schemes import waves
from clearhead.spec import Dims

POS = torch.arange(50)[None]


def dims(heads: int = 4, *, causal: bool = True) -> Dims:
    return Dims(width=16 * heads, depth=2, heads=heads, head_dim=16, causal=causal)


def over(spec: cn.Positions, at: Dims, pos: torch.Tensor = POS):
    return spec.build(at, at.width), cn.View(cn.Everyone(), 1, pos, pos)


STRETCHES = {
    "linear": (cn.LinearStretch(factor=4.0), {}),
    "dynamic": (cn.DynamicNTK(factor=2.0, length=32), {}),
    "yarn": (cn.Yarn(factor=4.0, length=32), {"original_max_position_embeddings": 32}),
    "yarn-loose": (
        cn.Yarn(factor=8.0, length=32, fast=20.0, slow=2.0, rounded=False, amplify=1.5),
        {"original_max_position_embeddings": 32, "beta_fast": 20, "beta_slow": 2, "truncate": False,
         "attention_factor": 1.5},
    ),
    "llama3": (
        cn.Llama3(factor=8.0, length=32),
        {"original_max_position_embeddings": 32, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STRETCHES)
def test_stretched_frequencies_equal_the_reference(name: str) -> None:
    stretch, more = STRETCHES[name]
    kind = name.split("-")[0]
    config = LlamaConfig(
        hidden_size=64, num_attention_heads=4, max_position_embeddings=32,
        rope_parameters={"rope_type": kind, "rope_theta": 5000.0, "factor": stretch.factor} | more,
    )  # fmt: skip
    theirs, amplitude = ROPE_INIT_FUNCTIONS[kind](config, torch.device("cpu"), seq_len=50)
    plain = 1.0 / 5000.0 ** (torch.arange(0, 16, 2).float() / 16)
    assert_close(stretch.frequencies(plain, 5000.0, 50), theirs, tolerance=1e-7)
    assert math.isclose(stretch.amplitude, amplitude, rel_tol=1e-12)


def test_dynamic_scaling_is_silent_within_the_trained_length() -> None:
    plain = torch.rand(8)
    assert torch.equal(cn.DynamicNTK(factor=2.0, length=50).frequencies(plain, 1e4, 50), plain)


def test_relative_buckets_equal_t5() -> None:
    ahead = torch.arange(-300, 300)
    for causal in (True, False):
        at = dims(causal=causal)
        scheme, _ = over(cn.RelativeBuckets(), at)
        theirs = T5Attention._relative_position_bucket(ahead, bidirectional=not causal)
        assert torch.equal(scheme._bucket(ahead), theirs)


@pytest.mark.parametrize("heads", [1, 4, 6, 12])
def test_alibi_equals_bloom_up_to_a_constant_per_row(heads: int) -> None:
    scheme, view = over(cn.Alibi(), dims(heads))
    ours = scheme.bind(view).bias(0, torch.zeros(1, heads, 50, 16), torch.zeros(1, heads, 50, 16))
    theirs = build_alibi_tensor(torch.ones(1, 50), heads, torch.float32).reshape(1, heads, 1, 50)
    future = torch.ones(50, 50).triu(1).bool()
    weights = [
        x.expand(1, heads, 50, 50).masked_fill(future, float("-inf")).softmax(-1) for x in (ours, theirs)
    ]
    assert_close(*weights)


@pytest.mark.parametrize("width", [1, 2, 7, 16])
@pytest.mark.parametrize("layout", ["interleaved", "halves"])
def test_waves_are_the_formula_at_any_length_and_width(width: int, layout: str) -> None:
    got = waves(torch.tensor([[0, 3, 12345]]), width, cn.Sinusoidal(layout=layout))[0]
    half = (width + 1) // 2
    for row, pos in enumerate((0, 3, 12345)):
        for channel in range(width):
            pair, cosine = (
                divmod(channel, 2) if layout == "interleaved" else (channel % half, channel >= half)
            )
            angle = pos / 10000 ** (2 * pair / width)
            assert math.isclose(
                got[row, channel], math.cos(angle) if cosine else math.sin(angle), abs_tol=1e-11
            )


def test_every_position_has_its_own_vector_and_an_offset_is_a_rotation() -> None:
    table = waves(torch.arange(5000)[None], 16, cn.Sinusoidal())[0]
    assert len({tuple(row) for row in table.tolist()}) == 5000
    turn = waves(torch.tensor([[7]]), 16, cn.Sinusoidal())[0, 0]
    sine, cosine = turn[0::2], turn[1::2]
    moved = torch.empty_like(table[:-7])
    moved[:, 0::2] = table[:-7, 0::2] * cosine + table[:-7, 1::2] * sine
    moved[:, 1::2] = table[:-7, 1::2] * cosine - table[:-7, 0::2] * sine
    assert_close(moved, table[7:], tolerance=1e-11)


def test_neighbour_pairing_is_halves_pairing_of_shuffled_channels() -> None:
    q = torch.randn(1, 4, 50, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    order = torch.cat([torch.arange(0, 16, 2), torch.arange(1, 16, 2)])
    halves, view = over(cn.Rope(), dims())
    neighbours, _ = over(cn.Rope(pairing="neighbours"), dims())
    assert_close(neighbours.bind(view).rotate_q(q)[..., order], halves.bind(view).rotate_q(q[..., order]))


def test_a_scheme_may_look_at_the_content() -> None:
    """The protocol is open: a bias made of the queries, with weights of its own for each layer."""

    class ByContent(cn.BoundPositions):
        def bias(self, layer: int, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
            seen.append(layer)
            return (q.sum(-1)[..., None] * (layer + 1)).expand(*q.shape[:3], k.shape[2])

    from zoo import ids, single

    seen: list[int] = []
    model = single(causal=True, positions=cn.NoPositions()).build()
    model.tower.positions.bind = lambda view: ByContent()
    model(ids(1, 4))
    assert seen == [0, 1]

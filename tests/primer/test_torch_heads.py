"""Multi-head attention of the torch primer, and its vampires: equal to torch, call forms, biases, sizes."""

import re

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from textbook import random
from tolerance import assert_close
from torch import Tensor, nn

import clearhead.primer.numpy as arrays
from clearhead.errors import InputError, SpecError
from clearhead.primer import torch as primer
from clearhead.spec import Spec


def like_torch(mha: primer.MultiHeadAttention) -> nn.MultiheadAttention:
    """torch's module with the same weights."""
    theirs = nn.MultiheadAttention(mha.d_model, mha.num_heads, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([mha.W_Q.weight, mha.W_K.weight, mha.W_V.weight]))
        theirs.in_proj_bias.copy_(torch.cat([mha.W_Q.bias, mha.W_K.bias, mha.W_V.bias]))
        theirs.out_proj.load_state_dict(mha.W_O.state_dict())
    return theirs


def test_many_heads_equal_torch() -> None:
    mha = primer.MultiHeadAttention(d_model=12, num_heads=3, dropout=0.1, seed=0).double().eval()
    for p in mha.parameters():
        nn.init.normal_(p, generator=torch.Generator().manual_seed(p.numel()))
    q, k, v = random(2, 4, 12), random(2, 6, 12, seed=1), random(2, 6, 12, seed=2)
    padded = torch.tensor([[0, 0, 0, 0, 1, 1], [0] * 6]).bool()
    output, weights = mha(q, k, v, ~padded)
    expected = like_torch(mha)(q, k, v, key_padding_mask=padded, average_attn_weights=False)
    assert_close(output, expected[0])
    assert_close(weights, expected[1])


def test_the_four_call_forms() -> None:
    x = torch.randn(2, 5, 512)
    for spelling in ("num_heads", "n_heads", "nhead"):
        output, weights = primer.MultiHeadAttention(512, **{spelling: 8})(x, x, x)
        assert output.shape == x.shape and weights.shape == (2, 8, 5, 5)
    uneven = primer.MultiHeadAttention(128, n_heads=3, d_k=48, d_v=80)
    output, weights = uneven(torch.randn(2, 5, 128), torch.randn(2, 7, 128), torch.randn(2, 7, 128))
    assert output.shape == (2, 5, 128) and weights.shape == (2, 3, 5, 7)
    args = primer.ModelArgs(dim=512, n_heads=8, dropout=0.0)
    causal = primer.MultiHeadAttention(args, is_causal=True, seed=0)
    output = causal(x, x, x)
    assert isinstance(output, Tensor)
    later = x.clone()
    later[:, 3] = 0
    assert torch.equal(causal(later, later, later)[:, :3], output[:, :3])
    plain = primer.MultiHeadAttention(512, 8, seed=0).eval()
    alone = plain(x, mask=primer.create_look_ahead_mask(5))
    assert isinstance(alone, Tensor) and torch.equal(plain(x, primer.create_look_ahead_mask(5)), alone)
    assert len(plain(x, need_weights=True)) == 2 and isinstance(plain(x, x, x, need_weights=False), Tensor)


@pytest.mark.parametrize(("bias", "count"), [("qkvo", 1_050_624), ("o", 1_049_088), ("", 1_048_576)])
def test_parameters_of_the_three_kinds_of_bias(bias: str, count: int) -> None:
    assert sum(p.numel() for p in primer.MultiHeadAttention(512, 8, bias=bias).parameters()) == count
    by_itself = {
        "qkvo": primer.MultiHeadAttention(512, 8, 0.1),
        "o": primer.MultiHeadAttention(512, n_heads=8, d_k=64),
        "": primer.MultiHeadAttention(primer.ModelArgs()),
    }[bias]
    assert sum(p.numel() for p in by_itself.parameters()) == count


def test_one_fused_projection_is_eight_small_ones() -> None:
    mha = primer.MultiHeadAttention(32, 8, dropout=0.0, seed=0).double()
    x = random(2, 5, 32)
    heads = mha.split_heads(mha.W_Q(x))
    for i, part in enumerate(mha.W_Q.weight.chunk(8)):
        assert_close(heads[:, i], x @ part.T)
    assert torch.equal(mha.combine_heads(heads), mha.W_Q(x))
    loops = [
        primer.scaled_dot_product_attention(
            *(mha.split_heads(w(x))[:, i] for w in (mha.W_Q, mha.W_K, mha.W_V))
        )[0]
        for i in range(8)
    ]
    assert_close(mha.W_O(torch.cat(loops, -1)), mha(x))


def test_the_projections_have_all_their_names() -> None:
    mha = primer.MultiHeadAttention(16, 2)
    for names in (("W_Q", "w_q", "wq", "W_q"), ("W_O", "w_o", "wo")):
        assert len({id(getattr(mha, name)) for name in names}) == 1
    with pytest.raises(AttributeError):
        mha.w_x  # noqa: B018


def test_batches_are_not_glued_together() -> None:
    mha = primer.MultiHeadAttention(16, 2)
    one, two = torch.randn(1, 3, 16), torch.randn(2, 4, 16)
    with pytest.raises(InputError, match="one batch"):
        mha(one, two, two)
    with pytest.raises(InputError, match="batch_size is 1"):
        mha.split_heads(two, 1)


def test_wrong_sizes_are_refused_by_name() -> None:
    for wrong, words in [
        ({"num_heads": 7}, "not divisible"),
        ({"num_heads": 8, "n_heads": 4}, "spellings of one argument"),
        ({}, "num_heads is missing"),
        ({"num_heads": 8, "dropout": 64}, "dropout is 64"),
        ({"num_heads": 8, "d_k": 64.5}, "d_k is 64.5; expected a whole number"),
        ({"num_heads": 8, "d_k": 0.1, "dropout": 0.2}, "spellings of one argument"),
    ]:
        with pytest.raises((SpecError, InputError), match=words):
            primer.MultiHeadAttention(512, **wrong)
    with pytest.raises(SpecError, match="not divisible by n_heads"):
        primer.ModelArgs(dim=10, n_heads=3)


def test_model_args_are_data() -> None:
    args = primer.ModelArgs(dim=64, n_heads=4, n_embd=32, dropout=0.0)
    assert Spec.from_dict(args.to_dict()) == args
    mha = primer.MultiHeadAttention(args)
    assert mha(torch.randn(2, 5, 32), torch.randn(2, 5, 32), torch.randn(2, 5, 32)).shape == (2, 5, 64)


def test_torchs_seed_governs_a_module_without_one() -> None:
    def weights(*seeds: int, **more: int) -> list[Tensor]:
        for seed in seeds:
            torch.manual_seed(seed)
        return [primer.MultiHeadAttention(8, 2, **more).W_Q.weight for _ in range(2)]

    (a, b), (c, _), (d, e) = weights(0), weights(0), weights(seed=3)
    assert torch.equal(a, c) and not torch.equal(a, b) and torch.equal(d, e)


def test_one_vampire() -> None:
    x = random(2, 4, 12)
    for vampire in (primer.VampireAttention(12, 5, seed=0).double(), arrays.VampireAttention(12, 5, seed=0)):
        is_torch = isinstance(vampire, nn.Module)
        output, weights = vampire(x if is_torch else x.numpy())
        q, k, v = (
            vampire.W_q(x) if is_torch else x @ torch.from_numpy(vampire.W_q),
            vampire.W_k(x) if is_torch else x @ torch.from_numpy(vampire.W_k),
            vampire.W_v(x) if is_torch else x @ torch.from_numpy(vampire.W_v),
        )
        assert_close(torch.as_tensor(output), F.scaled_dot_product_attention(q, k, v))
        assert weights.shape == (2, 4, 4)
        causal = primer.create_look_ahead_mask(4) if is_torch else arrays.create_look_ahead_mask(4)
        first = torch.as_tensor(vampire.forward(x if is_torch else x.numpy(), causal)[0])[:, 0]
        assert_close(first, v[:, 0])


def test_a_vampire_has_taste() -> None:
    x = np.random.default_rng(0).normal(size=(1, 3, 128))
    _, weights = arrays.VampireAttention(128, 64)(x)
    assert np.ptp(weights) > 0.1  # the notes' start: 0.003
    _, alike = arrays.VampireAttention(128, 64)(x * 0.1)
    assert np.ptp(alike) < 0.1


def test_many_vampires() -> None:
    x = random(1, 5, 128)
    for vampires in (
        primer.MultiHeadVampireAttention(128, 8, seed=0).double(),
        arrays.MultiHeadVampireAttention(128, 8, seed=0),
    ):
        output, weights = vampires(x if isinstance(vampires, nn.Module) else x.numpy())
        assert weights.shape == (1, 8, 5, 5) and output.shape == x.shape
    theirs = vampires
    q, k, v = (
        (x @ torch.from_numpy(w)).unflatten(-1, (8, 16)).transpose(1, 2)
        for w in (theirs.W_q, theirs.W_k, theirs.W_v)
    )
    mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
    assert_close(torch.from_numpy(output), mixed @ torch.from_numpy(theirs.W_o))
    for kind in (primer.MultiHeadVampireAttention, arrays.MultiHeadVampireAttention):
        with pytest.raises(ValueError, match=re.escape("d_model 必須能被 num_heads 整除")):
            kind(10, 3)


def test_a_sentence_of_chinese_words() -> None:
    words = ["萬聖節", "的", "南瓜", "燈"]
    vectors = {word: np.random.default_rng(i).normal(size=16) for i, word in enumerate(words)}
    said: list[str] = []
    vector, weights = arrays.self_attention_sentence_encoder(words, vectors, say=said.append)
    again, _ = primer.self_attention_sentence_encoder("萬聖節 的 南瓜 燈", vectors, say=None)
    assert_close(again, torch.from_numpy(vector))
    assert vector.shape == (16,) and np.allclose(weights.sum(-1), 1)
    wide = [sum(2 if ord(c) > 0x2E80 else 1 for c in line) for line in said[0].splitlines()]
    assert len(wide) == 5 and len(set(wide)) == 1  # straight columns
    with pytest.raises(ValueError, match="no vector for '貓'"):
        arrays.self_attention_sentence_encoder(["貓"], vectors)

"""Listings as textbooks print them, pasted with only their imports changed: each runs, and is right."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tolerance import assert_close
from torch import Tensor, nn

import clearhead.primer.numpy as arrays
from clearhead.errors import InputError
from clearhead.primer import torch as primer


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# --- attention in NumPy, a mask of ones above the diagonal ----------------------------------------


@pytest.mark.parametrize("lead", [(), (2,), (5,), (5, 3), (2, 3)], ids=str)
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64])
def test_numpy_attention_with_a_triangle_of_ones(lead: tuple[int, ...], dtype: type) -> None:
    Q, K, V = (random(*lead, 5, 8, seed=i).numpy() for i in range(3))
    look_ahead = np.triu(np.ones((5, 5), dtype), k=1)
    output, attention_weights = arrays.scaled_dot_product_attention(Q=Q, K=K, V=V, mask=look_ahead)
    # What scores + mask * -1e9 means: the ones are blocked.
    expected = F.scaled_dot_product_attention(*map(torch.from_numpy, (Q, K, V)), is_causal=True)
    assert_close(torch.from_numpy(output), expected)
    assert bool((np.triu(attention_weights, 1) == 0).all())


def test_numpy_attention_with_padding() -> None:
    token_ids = np.array([[4, 5, 6, 0, 0], [4, 5, 0, 0, 0]])
    Q, K, V = (random(2, 5, 8, seed=i).numpy() for i in range(3))
    plain = (token_ids == 0).astype(np.float32)
    for padding in (arrays.create_padding_mask(token_ids), plain, plain[:, None, :]):
        output, weights = arrays.scaled_dot_product_attention(Q, K, V, padding)
        for i, length in enumerate((3, 2)):
            alone, _ = arrays.scaled_dot_product_attention(Q[i], K[i, :length], V[i, :length])
            assert np.allclose(output[i], alone) and bool((weights[i, :, length:] == 0).all())


# --- heads with d_k and d_v by position -----------------------------------------------------------


def test_heads_of_their_own_width_by_position() -> None:
    attend = primer.MultiHeadAttention(128, 3, 48, 80, 0.1)
    query, key, value = torch.randn(2, 5, 128), torch.randn(2, 7, 128), torch.randn(2, 7, 128)
    out, weights = attend(query, key, value)
    assert out.shape == (2, 5, 128) and weights.shape == (2, 3, 5, 7)
    assert attend.w_q.weight.shape == (3 * 48, 128) and attend.w_v.weight.shape == (3 * 80, 128)
    assert attend.w_q.bias is attend.w_k.bias is attend.w_v.bias is None and attend.w_o.bias is not None
    assert attend.attn_dropout.p == 0.1
    usual = primer.MultiHeadAttention(512, 8, 64, 64, 0.1)
    assert sum(p.numel() for p in usual.parameters()) == 1_049_088


def test_every_way_to_name_the_inputs() -> None:
    attend = primer.MultiHeadAttention(16, 2, seed=0).eval()
    x, source = torch.randn(2, 3, 16), torch.randn(2, 5, 16)
    want = attend(x, source, source)[0]
    for names in (("Q", "K", "V"), ("q", "k", "v"), ("query", "key", "value")):
        assert torch.equal(attend(**dict(zip(names, (x, source, source), strict=True)))[0], want)
    assert torch.equal(attend(x=x), attend(x))
    with pytest.raises(TypeError, match="unexpected keyword argument 'keys'"):
        attend(x, keys=source)
    with pytest.raises(InputError, match="value is missing"):
        attend(x, source, mask=torch.ones(3, 5))
    with pytest.raises(InputError, match=r"^query, Q are spellings of one argument"):
        attend(x, Q=source)
    with pytest.raises(InputError, match="query is missing"):
        attend(mask=torch.ones(3, 5))


# --- a decoder layer that returns a pair ----------------------------------------------------------


@pytest.mark.parametrize("batch", [1, 2, 3])
def test_a_decoder_layer_returns_states_and_weights(batch: int) -> None:
    decoder_layer = primer.TransformerDecoderLayer(d_model=16, n_heads=4, d_ff=32, dropout=0.0)
    target, source = torch.randn(batch, 5, 16), torch.randn(batch, 7, 16)
    x, attention_weights = decoder_layer(target, encoder_output=source)
    assert x.shape == (batch, 5, 16) and attention_weights.shape == (batch, 4, 5, 7)
    assert_close(attention_weights.sum(-1), torch.ones(batch, 4, 5))
    other, _ = decoder_layer(target, source)
    assert torch.equal(other, x)
    plain = primer.DecoderLayer(16, 4, 32, 0.0)
    plain.load_state_dict(decoder_layer.state_dict())
    assert torch.equal(plain(target, encoder_output=source), x)
    assert torch.equal(plain(target, enc_output=source), x)
    assert torch.equal(decoder_layer(target, source, return_attention=False), x)


def test_decoder_layers_stack_in_both_styles() -> None:
    layers = [primer.TransformerDecoderLayer(16, 4, 32, 0.0, seed=i) for i in range(3)]
    target, source = torch.randn(2, 5, 16), torch.randn(2, 7, 16)
    x = target
    for layer in layers:
        x, _ = layer(x, source)
    pair: Any = target
    for layer in layers:
        pair = layer(pair, source)
    assert torch.equal(pair.x, x) and pair.attention_weights.shape == (2, 4, 5, 7)
    # Forgetting to take the states out of the last pair is an error, not a wrong result.
    with pytest.raises(TypeError):
        nn.Linear(16, 9)(pair)


# --- models from configs --------------------------------------------------------------------------

CONFIG = {
    "d_model": 16, "n_heads": 2, "d_ff": 32, "num_layers": 4, "dropout": 0.1,
    "warmup_steps": 400, "label_smoothing": 0.2,
}  # fmt: skip
SRC = torch.tensor([[5, 6, 7, 0, 0], [8, 9, 10, 11, 12]])
TGT = torch.tensor([[1, 7, 8, 0], [1, 4, 5, 6]])


class ConfigClass:
    d_model, n_heads, d_ff, num_layers, dropout = 16, 2, 32, 4, 0.1
    batch_size, learning_rate = 32, 1e-4


@pytest.mark.parametrize(
    "config",
    [CONFIG, SimpleNamespace(**CONFIG, batch_size=8), ConfigClass, ConfigClass()],
    ids=["dict", "namespace", "class", "instance"],
)
def test_a_distributed_model_from_its_config_alone(config: Any) -> None:
    model = primer.DistributedTransformer(config)
    assert model(SRC, TGT).shape == (2, 4, 10_000)  # no vocabulary is named
    assert model.spec.encoder.depth == model.spec.decoder.depth == 4 and model.spec.encoder.width == 16
    assert model.config["d_model"] == 16
    named = SimpleNamespace(**CONFIG, vocab_size=20)
    assert primer.DistributedTransformer(named)(SRC, TGT).shape == (2, 4, 20)


def test_a_slip_in_a_config_is_found() -> None:
    for wrong in ({**CONFIG, "num_layer": 2}, SimpleNamespace(**CONFIG, num_layer=2)):
        with pytest.raises(InputError, match="'num_layer', which a Transformer does not know; did you mean"):
            primer.DistributedTransformer(wrong)
    with pytest.raises(InputError, match="'batch_size', which a Transformer does not know"):
        primer.DistributedTransformer({**CONFIG, "batch_size": 2})  # as Transformer(**config) would
    with pytest.raises(InputError, match="residuals need one width"):
        primer.DistributedTransformer(primer.ModelArgs(dim=16, n_heads=2, n_embd=8))


def test_a_model_from_a_dict_with_settings_of_its_training() -> None:
    model = primer.Transformer(20, 30, **CONFIG)
    assert (model.warmup_steps, model.label_smoothing) == (400, 0.2)
    criterion = primer.LabelSmoothingLoss(30, smoothing=model.label_smoothing)
    optimizer = torch.optim.Adam(model.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9)
    scheduler = primer.get_lr_scheduler(optimizer, CONFIG["d_model"], model.warmup_steps)
    assert math.isfinite(primer.train_step(model, SRC, TGT, criterion, optimizer, scheduler=scheduler))
    with pytest.raises(ValueError, match="label_smoothing is 2"):
        primer.Transformer(20, 30, **{**CONFIG, "label_smoothing": 2})


def test_the_base_preset_is_the_paper_s() -> None:
    assert dict(primer.BASE) == {
        "d_model": 512, "n_heads": 8, "d_ff": 2048, "num_layers": 6, "dropout": 0.1,
        "warmup_steps": 4000, "label_smoothing": 0.1,
    }  # fmt: skip
    model = primer.Transformer(10_000, 10_000, **primer.BASE)
    assert sum(p.numel() for p in model.parameters()) == 59_508_496
    assert (model.warmup_steps, model.label_smoothing) == (4000, 0.1)


# --- augmentation of ids --------------------------------------------------------------------------


@pytest.mark.parametrize("make", [list, torch.tensor], ids=["list", "tensor"])
def test_ids_are_augmented(make: Callable[..., Any]) -> None:
    source, target = [1, *range(10, 40), 2], [1, 5, 2]
    more = {"seed": 3, "delete": 0.2, "swap": 0.2}
    changed, same = primer.augment_data(make(source), make(target), **more)
    again, _ = primer.augment_data(make(source), make(target), **more)
    assert type(changed) is type(make(source)) and list(map(int, same)) == target
    got = list(map(int, changed))
    assert got == list(map(int, again)) and 2 < len(got) < len(source)
    assert got[0] == 1 and got[-1] == 2 and len(set(got)) == len(got) and set(got) < set(source)
    assert got != [*sorted(got[:-1]), 2]  # some are swapped


def test_a_padded_batch_of_ids_keeps_its_shape() -> None:
    right = torch.tensor([[1, *range(10, 20), 2, 0, 0], [1, *range(30, 42), 2]])
    for src in (right, right.flip(1)):
        changed, _ = primer.augment_data(src, TGT, delete=0.5, swap=0.3)
        assert changed.shape == src.shape and changed.dtype == src.dtype and not torch.equal(changed, src)
        for row, before in zip(changed.tolist(), src.tolist(), strict=True):
            ids = [i for i in row if i]
            padding = [0] * (len(row) - len(ids))
            assert row == (padding + ids if before[0] == 0 else ids + padding)
            assert {1, 2} < set(ids) <= set(before) and len(ids) < len([i for i in before if i])
    rows, _ = primer.augment_data(right.tolist(), TGT.tolist(), delete=0.5)
    assert len(rows[0]) < 14 and {1, 2} < set(rows[0])
    assert primer.augment_data([7], [8], delete=1.0) == ([7], [8])  # never empty


# --- weights by layer and head --------------------------------------------------------------------


def test_weights_are_indexed_by_layer_sentence_and_head() -> None:
    model = primer.Transformer(20, 30, 16, 2, 3, 2, 32, seed=0).eval()
    _, attention_weights = model(SRC, TGT, return_attention=True)
    for layer in range(2):
        for head in range(2):
            one = attention_weights[layer][0, head]
            assert one.shape == (4, 5)  # target tokens by source tokens
            assert torch.equal(one, attention_weights.cross[layer][0, head])
    assert len(attention_weights) == 2 and len(attention_weights.encoder) == 3
    again = pickle.loads(pickle.dumps(attention_weights))
    assert torch.equal(again.encoder[2], attention_weights.encoder[2]) and len(again) == 2


# --- a hand-written module that reads ModelArgs ---------------------------------------------------


def test_a_module_over_model_args() -> None:
    class Attend(nn.Module):
        def __init__(self, args: primer.ModelArgs, is_causal: bool = False) -> None:
            super().__init__()
            self.n_heads, self.width = args.n_heads, args.dim // args.n_heads
            inner = args.n_heads * self.width
            self.to_q, self.to_k, self.to_v = (nn.Linear(args.n_embd, inner, bias=False) for _ in range(3))
            self.to_out = nn.Linear(inner, args.dim, bias=False)
            self.drop = nn.Dropout(args.dropout)
            if is_causal:
                future = torch.full((1, 1, args.max_seq_len, args.max_seq_len), float("-inf")).triu(1)
                self.register_buffer("future", future, persistent=False)

        def forward(self, x: Tensor) -> Tensor:
            batch, length, _ = x.shape
            q, k, v = (
                part(x).view(batch, length, self.n_heads, self.width).transpose(1, 2)
                for part in (self.to_q, self.to_k, self.to_v)
            )
            scores = q @ k.transpose(2, 3) / math.sqrt(self.width) + self.future[..., :length, :length]
            mixed = self.drop(scores.softmax(-1)) @ v
            return self.to_out(mixed.transpose(1, 2).contiguous().view(batch, length, -1))

    args = primer.ModelArgs(dim=64, max_seq_len=32, dropout=0.0)
    mine, ours = Attend(args, is_causal=True), primer.MultiHeadAttention(args, is_causal=True)
    with torch.no_grad():
        for name, part in (("wq", mine.to_q), ("wk", mine.to_k), ("wv", mine.to_v), ("wo", mine.to_out)):
            getattr(ours, name).weight.copy_(part.weight)
    x = torch.randn(2, 7, 64)
    assert_close(mine(x), ours(x, x, x))
    assert primer.ModelArgs(dim=64).n_embd == 64 and primer.ModelArgs(dim=64, n_embd=32).n_embd == 32


# --- a sentence of words --------------------------------------------------------------------------


@pytest.mark.parametrize("package", [arrays, primer], ids=["numpy", "torch"])
def test_the_weights_of_a_sentence_are_a_batch_of_one(package: Any) -> None:
    words = ["吸血鬼", "喜歡", "番茄", "汁"]
    vectors = {word: np.random.default_rng(i).normal(size=64) for i, word in enumerate(words)}
    vector, attention_weights = package.self_attention_sentence_encoder(words, vectors, say=None)
    assert tuple(vector.shape) == (64,) and tuple(attention_weights.shape) == (1, 4, 4)
    assert_close(torch.as_tensor(attention_weights).sum(-1), torch.ones(1, 4, dtype=torch.float64))


# --- the whole model, step by step ----------------------------------------------------------------


@pytest.mark.parametrize("tie_output", [False, True])
def test_forward_is_output_linear_of_decode_of_encode(tie_output: bool) -> None:
    more = {"share_embeddings": tie_output, "tie_output": tie_output}
    model = primer.Transformer(30, 30, 16, 2, 1, 1, 32, seed=0, **more).eval()
    states = model.decode(TGT, model.encode(SRC))
    assert_close(model.output_linear(states), model(SRC, TGT))
    assert model.output_linear.weight.shape == (30, 16)
    model.output_linear(states).sum().backward()
    assert model.inner.head.bias.grad is not None  # the model's own parameters
    known = {id(p) for p in model.parameters()}
    assert {id(p) for p in model.output_linear.parameters()} <= known


def test_the_method_of_a_module_drops_weights_in_training_only() -> None:
    attend = primer.MultiHeadAttention(16, 2, 0.5)
    q = torch.randn(2, 2, 40, 8)
    output, weights = attend.scaled_dot_product_attention(Q=q, K=q, V=q)
    assert (output - weights @ q).abs().max() > 0.1
    assert_close(weights.sum(-1), torch.ones(2, 2, 40))  # those before dropout
    output, weights = attend.eval().scaled_dot_product_attention(q, q, q)
    assert_close(output, weights @ q)


def look_ahead(size: int) -> list[Any]:
    return [
        primer.create_look_ahead_mask(size),
        primer.create_look_ahead_mask(size).float(),
        primer.generate_square_subsequent_mask(size),
        arrays.create_look_ahead_mask(size),
        np.tri(size, dtype=bool),
    ]


@pytest.mark.parametrize("kind", range(5))
@pytest.mark.parametrize("batch", [1, 2, 4])
def test_a_decoding_loop_works_at_every_step(kind: int, batch: int) -> None:
    model = primer.Transformer(20, 9, 16, 2, 1, 1, 32, seed=4).eval()
    src = torch.tensor([[5, 6, 7, 0, 0], [8, 9, 10, 11, 12], [5, 0, 0, 0, 0], [5, 6, 0, 0, 0]])[:batch]
    source_mask = primer.create_padding_mask(src)
    encoded, written = model.encoder(src, src != 0), torch.ones(batch, 1, dtype=torch.long)
    layer = primer.TransformerDecoderLayer(16, 2, 32, 0.0, seed=0)
    for size in range(1, 8):
        logits = model.decoder(written, encoded, src != 0, look_ahead(size)[kind])
        assert_close(logits, model(src, written, source_mask))
        x = torch.randn(batch, size, 16)
        states, _ = layer(x, encoded, src != 0, look_ahead(size)[kind])
        ahead = primer.create_look_ahead_mask(size)[None, None]
        assert_close(states, layer(x, encoded, source_mask, ahead)[0])
        written = torch.cat([written, logits[:, -1:].argmax(-1)], dim=1)
    assert torch.equal(written, primer.greedy_decode(model, src, max_len=8, end_symbol=-1))


def test_the_short_way_is_the_torch_primer() -> None:
    import clearhead.primer as primer
    from clearhead.primer import MultiHeadAttention, create_masks, greedy_decode
    from clearhead.primer import torch as long

    assert (MultiHeadAttention, create_masks, greedy_decode) == (
        long.MultiHeadAttention, long.create_masks, long.greedy_decode,
    )  # fmt: skip
    assert "MultiHeadAttention" in dir(primer) and "numpy" in dir(primer)
    with pytest.raises(AttributeError, match="no attribute 'MultiHed'"):
        _ = primer.MultiHed

"""The textbook Transformer as a whole, against torch's own layers and against arithmetic."""

import doctest
from importlib import import_module
from typing import Any

import pytest
import torch
from textbook import SIZES, SRC, TGT, shaken, small
from tolerance import assert_close
from torch import Tensor, nn

import clearhead.primer.numpy as arrays
from clearhead.errors import InputError
from clearhead.primer import torch as primer


def test_the_notes_demo_has_59_508_496_parameters() -> None:
    with torch.device("meta"):  # counted, not filled
        spec = primer.model.transformer_spec(10_000, 10_000)
    assert spec.count() == 59_508_496
    model = small()
    assert model(SRC, TGT).shape == (2, 4, 30)
    assert f"{model.spec.count():,} parameters" in model.describe() and "decoder x 2" in model.describe()
    assert sum(p.numel() for p in model.parameters()) == model.spec.count()


def test_tables_may_be_shared_tied_and_unscaled() -> None:
    plain = primer.Transformer(30, 30, **SIZES, seed=0)
    shared = primer.Transformer(30, 30, **SIZES, share_embeddings=True, tie_output=True, seed=0)
    assert plain.spec.count() - shared.spec.count() == 2 * 30 * 16
    loud, quiet = (
        primer.Transformer(30, 30, **SIZES, scale_embeddings=s, seed=0).eval() for s in (True, False)
    )
    words = quiet.inner.encoder.embed(SRC, None)
    assert_close(loud.inner.encoder.embed(SRC, None), words * 4)  # the root of 16


def test_the_defaults_are_the_notes() -> None:
    model = primer.Transformer(11, 13, seed=0)
    encoder, decoder = model.spec.encoder, model.spec.decoder
    assert (encoder.width, encoder.depth, decoder.depth) == (512, 6, 6)
    assert (encoder.block.attention.heads, encoder.block.feedforward.hidden) == (8, 2048)
    assert (encoder.block.dropout, model.max_seq_len) == (0.1, 5000)
    assert sum(p.numel() for p in model.parameters()) == 44_138_496 + 11 * 512 + 13 * 512 + 512 * 13 + 13


@pytest.mark.parametrize("norm_first", [False, True])
def test_the_model_equals_the_numpy_primer(norm_first: bool) -> None:
    model = shaken(small(norm_first=norm_first))
    inner = model.inner

    def array(x: Tensor) -> Any:
        return x.detach().numpy()

    def linear(x: nn.Linear) -> arrays.Linear:
        return arrays.Linear(array(x.weight).T, array(x.bias))

    def norm(x: Any) -> arrays.Norm | None:
        return None if x is None else arrays.Norm(array(x.weight), array(x.bias), x.eps)

    def attention(x: Any) -> arrays.Attention:
        return arrays.Attention(*(linear(getattr(x, part)) for part in ("q", "k", "v", "out")))

    def ff(b: Any) -> arrays.FeedForward:
        return arrays.FeedForward(linear(b.ff.up), linear(b.ff.down))

    weights = arrays.Transformer(
        array(inner.encoder.embed.table.weight),
        array(inner.decoder.embed.table.weight),
        tuple(
            arrays.EncoderLayer(attention(b.attn), norm(b.attn_norm), ff(b), norm(b.ff_norm))
            for b in inner.encoder.blocks
        ),
        tuple(
            arrays.DecoderLayer(
                attention(b.attn),
                norm(b.attn_norm),
                attention(b.cross),
                norm(b.cross_norm),
                ff(b),
                norm(b.ff_norm),
            )
            for b in inner.decoder.blocks
        ),
        arrays.Linear(array(inner.head.weight).T, array(inner.head.bias)),
        norm(inner.encoder.norm),
        norm(inner.decoder.norm),
    )
    order = "pre" if norm_first else "post"
    expected = torch.from_numpy(arrays.transformer(SRC.numpy(), TGT.numpy(), weights, 2, order=order))
    real = TGT != 0
    assert_close(model(SRC, TGT, *primer.create_masks(SRC, TGT))[real], expected[real])


def test_all_ways_to_call_the_model_agree() -> None:
    model = small()
    src_mask, tgt_mask = primer.create_masks(SRC, TGT)
    logits = model(SRC, TGT, src_mask, tgt_mask)
    memory = model.encode(SRC, src_mask)
    assert torch.equal(memory, model.encoder(SRC, src_mask))
    assert_close(model.inner.head(model.decode(TGT, memory, src_mask, tgt_mask), None, None), logits)
    assert_close(model.decoder(TGT, memory, src_mask, tgt_mask), logits)
    real = TGT != 0
    added = model.generate_square_subsequent_mask(4)
    for mask in (None, added, primer.create_look_ahead_mask(4), arrays.create_look_ahead_mask(4)):
        assert_close(model(SRC, TGT, src_mask, mask)[real], logits[real])
    for source in (SRC != 0, arrays.create_padding_mask(SRC.numpy()), (SRC != 0)[:, None], src_mask.float()):
        assert_close(model(SRC, TGT, source, tgt_mask), logits)
    with pytest.raises(InputError, match="differs from query to query"):
        model(SRC, TGT, primer.create_look_ahead_mask(5))
    with pytest.raises(InputError, match="src_mask is a look-ahead mask"):  # as many sentences as tokens
        model(SRC[:, :2], TGT, primer.create_look_ahead_mask(2))
    lengths = arrays.create_padding_mask([[5, 0], [5, 6]])  # its maker says that it is padding
    assert_close(model(SRC[:, :2], TGT, lengths)[:1], model(SRC[:1, :1], TGT[:1]))


def test_weights_of_every_layer_and_head() -> None:
    model = small()
    logits, seen = model(SRC, TGT, *primer.create_masks(SRC, TGT), return_attention=True)
    assert torch.equal(logits, model(SRC, TGT, *primer.create_masks(SRC, TGT)))
    assert [len(side) for side in (seen.encoder, seen.decoder, seen.cross, seen)] == [2, 2, 2, 2]
    assert seen.encoder[0].shape == (2, 2, 5, 5)
    assert seen.decoder[0].shape == (2, 2, 4, 4) and seen.cross[1].shape == (2, 2, 4, 5)
    assert bool((seen.cross[0][0, ..., 3:] == 0).all()) and bool((seen.decoder[0].triu(1) == 0).all())


def test_the_future_does_not_leak_whatever_the_mask() -> None:
    model = small()
    for mask in (None, model.generate_square_subsequent_mask(4), torch.ones(1, 1, 4, 4)):
        logits = model(SRC, TGT, None, mask)
        changed = TGT.clone()
        changed[:, 3] = 9
        difference = (model(SRC, changed, None, mask) - logits).abs().amax(-1)
        assert bool((difference[:, :3] == 0).all()) and bool((difference[:, 3] > 0).all())


def test_padding_on_either_side_changes_nothing() -> None:
    model = small()
    alone = model(SRC[:1, :3], TGT[:1, :3])
    left_src, left_tgt = torch.tensor([[0, 0, 5, 6, 7]]), torch.tensor([[0, 1, 7, 8]])
    for src, tgt, where in ((SRC[:1], TGT[:1], slice(0, 3)), (left_src, left_tgt, slice(1, 4))):
        assert_close(model(src, tgt, *primer.create_masks(src, tgt))[:, where], alone)


def test_layers_on_several_devices() -> None:
    config = {
        "src_vocab_size": 20,
        "tgt_vocab_size": 30,
        "d_model": 16,
        "n_heads": 2,
        "num_layers": 4,
        "d_ff": 32,
    }
    one = primer.Transformer(**config, norm_first=True, seed=0).eval()
    many = primer.DistributedTransformer(config, devices=("cpu", "cpu"), norm_first=True, seed=0).eval()
    masks = primer.create_masks(SRC, TGT)
    assert torch.equal(many(SRC, TGT, *masks), one(SRC, TGT, *masks))
    assert many.state_dict().keys() == one.state_dict().keys()
    # torch's meta device stands for a second one: whatever is left behind raises.
    apart = primer.DistributedTransformer(config, devices=("cpu", "meta"), norm_first=True).eval()
    assert list(apart.placement.values()) == ["cpu", "cpu", "meta", "meta"] * 2
    assert apart.encode(SRC, masks[0]).device.type == "meta"
    logits = apart.decoder(TGT, one.encode(SRC), masks[0], masks[1])
    assert logits.device.type == "meta" and logits.shape == (2, 4, 30)
    notes = {"d_model": 16, "n_heads": 2, "d_ff": 32, "num_layers": 4, "dropout": 0.1, "warmup_steps": 4000}
    named = primer.DistributedTransformer({**notes, "label_smoothing": 0.1}, vocab_size=9, devices=("cpu",))
    args = primer.ModelArgs(dim=16, n_heads=2, n_layers=3, vocab_size=9)
    assert named(SRC % 9, TGT).shape == (2, 4, 9)
    small_one = primer.DistributedTransformer(args, devices=("cpu",))
    assert small_one.spec.encoder.depth == 3
    assert small_one.inner.encoder.blocks[0].ff.up.weight.shape == (64, 16)  # four times the width
    with pytest.raises(InputError, match="did you mean 'num_heads'"):
        primer.DistributedTransformer({**notes, "nun_heads": 2})
    with pytest.raises(InputError, match="devices is empty"):
        primer.DistributedTransformer(config, devices=())


@pytest.mark.parametrize(("module", "examples"), [("layers", 4), ("attention", 3)])
def test_the_examples_in_the_docstrings(module: str, examples: int) -> None:
    result = doctest.testmod(import_module(f"clearhead.primer.torch.{module}"))
    assert result.attempted == examples and not result.failed


def test_many_devices_are_not_promised_to_be_faster() -> None:
    advice = str(primer.DistributedTransformer.__doc__)
    assert "torchrun" not in advice and "DistributedDataParallel" in advice


def test_every_name_is_promised() -> None:
    for name in primer.__all__:
        assert getattr(primer, name) is not None

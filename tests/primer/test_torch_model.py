"""The notes' layers and model against torch's own; training, decoding, looking against arithmetic."""

import doctest
import math
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tolerance import assert_close
from torch import Tensor, nn

import clearhead.primer.numpy as arrays
from clearhead.errors import InputError, SpecError
from clearhead.primer import torch as primer
from clearhead.primer.torch import looking


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def shaken(module: nn.Module) -> Any:
    """Every parameter drawn anew, biases and gains too: forgetting one then changes the answer."""
    for i, p in enumerate(module.parameters()):
        p.data = random(*p.shape, seed=i) * 0.3
    return module.double().eval()


# --- parts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_feed_forward_is_its_formula_and_each_token_alone(activation: str) -> None:
    ff = shaken(primer.PositionwiseFeedForward(6, 10, activation=activation))
    x = random(2, 5, 6)
    bend = getattr(F, activation)
    expected = F.linear(
        bend(F.linear(x, ff.linear1.weight, ff.linear1.bias)), ff.linear2.weight, ff.linear2.bias
    )
    assert_close(ff(x), expected)
    assert_close(ff(x.flip(1)), ff(x).flip(1))
    assert primer.FeedForward(512).linear1.weight.shape == (2048, 512)


@pytest.mark.parametrize("width", [4, 8, 512])
@pytest.mark.parametrize("size", [1.0, 1e-4])
def test_layer_norm_equals_torch(width: int, size: float) -> None:
    norm = shaken(primer.LayerNorm(width))
    x = random(3, width) * size
    assert_close(norm(x), F.layer_norm(x, (width,), norm.gamma, norm.beta, eps=1e-6))
    assert bool(primer.LayerNorm(1)(torch.randn(3, 1)).isfinite().all())


@pytest.mark.parametrize("width", [16, 7])
def test_positions_are_the_formula(width: int) -> None:
    table = primer.positional_encoding(50, width)
    for pos in (0, 1, 17, 49):
        for column in range(width):
            angle = pos / 10000 ** (2 * (column // 2) / width)
            wave = math.cos(angle) if column % 2 else math.sin(angle)
            assert float(table[pos, column]) == pytest.approx(wave, abs=1e-6)
    assert torch.equal(primer.get_positional_encoding(50, width), table)
    assert_close(table, torch.from_numpy(arrays.get_positional_encoding(50, width)).float())
    module = primer.PositionalEncoding(width, max_len=20, dropout=0.0)
    assert not list(module.state_dict()) and torch.equal(module.pe, module.PE)
    assert torch.equal(module.pe[0], table[:20])
    assert_close(module(torch.zeros(2, 50, width))[1], table)  # longer than its table


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_layers_equal_torch(norm_first: bool, activation: str) -> None:
    more = {"activation": activation, "norm_first": norm_first}
    encoder = shaken(primer.EncoderLayer(8, num_heads=2, d_ff=16, **more))
    decoder = shaken(primer.DecoderLayer(8, n_heads=2, d_ff=16, **more))
    theirs = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dtype=torch.float64, **more).eval()
    other = nn.TransformerDecoderLayer(8, 2, 16, batch_first=True, dtype=torch.float64, **more).eval()
    copied(encoder, theirs)
    copied(decoder, other)
    x, memory = random(2, 5, 8), random(2, 7, 8, seed=1)
    padded = torch.tensor([[0] * 7, [0, 0, 0, 0, 1, 1, 1]]).bool()
    ahead = primer.create_look_ahead_mask(5)
    real = ~padded[:, None, None, :]
    # Not under no_grad: torch's fused path would fill the padding with zeros.
    assert_close(encoder(memory, real), theirs(memory, src_key_padding_mask=padded))
    expected = other(x, memory, tgt_mask=~ahead, memory_key_padding_mask=padded)
    assert_close(decoder(x, memory, real, ahead), expected)
    causal = primer.DecoderLayer(8, 2, 16, is_causal=True, **more).double().eval()
    causal.load_state_dict(decoder.state_dict())
    assert_close(causal(x, memory, real), expected)
    same, weights = decoder(x, memory, real, ahead, return_attention=True)
    assert torch.equal(same, decoder(x, memory, real, ahead)) and weights.shape == (2, 2, 5, 7)
    assert bool((weights[1, ..., 4:] == 0).all())
    assert encoder(memory, return_attention=True)[1].shape == (2, 2, 7, 7)


def copied(ours: nn.Module, theirs: nn.Module) -> None:
    """Our weights in torch's layer."""
    block: Any = ours.inner
    parts = [("attn", "self_attn"), ("cross", "multihead_attn")][: 2 if hasattr(block, "cross") else 1]
    norms = ["attn_norm", "cross_norm", "ff_norm"] if len(parts) == 2 else ["attn_norm", "ff_norm"]
    with torch.no_grad():
        for one, two in parts:
            a, b = getattr(block, one), getattr(theirs, two)
            b.in_proj_weight.copy_(torch.cat([a.q.weight, a.k.weight, a.v.weight]))
            b.in_proj_bias.copy_(torch.cat([a.q.bias, a.k.bias, a.v.bias]))
            b.out_proj.load_state_dict(a.out.state_dict())
        theirs.linear1.load_state_dict(block.ff.up.state_dict())
        theirs.linear2.load_state_dict(block.ff.down.state_dict())
        for i, name in enumerate(norms):
            getattr(theirs, f"norm{i + 1}").load_state_dict(getattr(block, name).state_dict())


def test_a_stack_of_either_layer_runs() -> None:
    x = memory = torch.randn(2, 5, 16)
    for layer in [primer.TransformerEncoderLayer(16, n_heads=4) for _ in range(3)]:
        x = layer(x)
    for layer in [primer.TransformerDecoderLayer(16, nhead=4) for _ in range(3)]:
        x, _ = layer(x, memory)
    block = primer.TransformerBlock(16, nhead=4, dropout=0.0, is_causal=True)
    later = x.detach().clone()
    later[:, 4] = 0
    assert torch.equal(block(x)[:, :4], block(later)[:, :4])
    theirs = nn.TransformerEncoderLayer(16, 4, 64, 0.0, activation="gelu", batch_first=True)
    copied(block, theirs)
    open_ = primer.TransformerBlock(16, nhead=4, dropout=0.0)
    open_.load_state_dict(block.state_dict())
    assert_close(open_(x), theirs(x))


# --- the whole ------------------------------------------------------------------------------------

SIZES: dict[str, Any] = {"d_model": 16, "num_heads": 2, "num_layers": 2, "d_ff": 32}
SRC = torch.tensor([[5, 6, 7, 0, 0], [8, 9, 10, 11, 12]])
TGT = torch.tensor([[1, 7, 8, 0], [1, 4, 5, 6]])


def small(**more: Any) -> primer.Transformer:
    return primer.Transformer(20, 30, **SIZES, seed=0, **more).double().eval()


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


# --- training -------------------------------------------------------------------------------------


def test_a_step_does_not_count_padding_and_training_learns() -> None:
    model = primer.Transformer(20, 30, **SIZES, dropout=0.0, seed=0)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    steps: list[int] = []
    scheduler = type("Counting", (), {"step": lambda self: steps.append(1)})()
    with torch.no_grad():
        src_mask, tgt_mask = primer.create_masks(SRC, TGT[:, :-1])
        logits, wanted = model(SRC, TGT[:, :-1], src_mask, tgt_mask), TGT[:, 1:]
        expected = F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), ignore_index=0)
    plain = nn.CrossEntropyLoss()  # not told of padding
    loss = primer.train_step(model, SRC, TGT, plain, optimizer, scheduler=scheduler)
    assert loss == pytest.approx(float(expected), abs=1e-5) and steps == [1] and model.training
    for _ in range(120):
        loss = primer.train_step(model, SRC, TGT, plain, optimizer)
    assert loss < 0.05
    with pytest.raises(InputError, match="every target is padding"):
        primer.train_step(model, SRC, torch.zeros_like(TGT), plain, optimizer)


def test_the_rate_is_noams() -> None:
    for base in (1e-3, 1.0):
        optimizer = torch.optim.Adam([nn.Parameter(torch.zeros(1))], lr=base)
        scheduler = primer.get_lr_scheduler(optimizer, 512, 4000)
        rates = []
        for _ in range(4002):
            rates.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            scheduler.step()
        assert rates[0] == pytest.approx(1.7469e-7, rel=1e-4) and rates[1] == pytest.approx(2 * rates[0])
        assert max(rates) == rates[3999] == pytest.approx(6.9877e-4, rel=1e-4)
    with pytest.raises(InputError, match="lr is 0"):
        primer.get_lr_scheduler(torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.0), 8)


def test_label_smoothing_is_a_divergence_over_real_words() -> None:
    size, target = 6, torch.tensor([2, 0, 5])
    loss = primer.LabelSmoothingLoss(size, padding_idx=0, smoothing=0.1)
    logits = random(3, size)
    truth = torch.full((3, size), 0.1 / (size - 2), dtype=torch.float64)
    truth[:, 0] = 0
    truth[range(3), target] = 0.9
    expected = F.kl_div(logits.log_softmax(-1)[[0, 2]], truth[[0, 2]], reduction="sum")
    assert_close(loss(logits, target), expected / 2)
    assert_close(loss(logits + 100, target), expected / 2)  # a shift of logits means nothing
    assert_close(loss(logits.log_softmax(-1), target), expected / 2)
    assert_close(primer.LabelSmoothingLoss(size, reduction="sum")(logits, target), expected)
    perfect = truth.log().clamp(min=-50)
    assert float(loss(perfect, target)) == pytest.approx(0, abs=1e-9)
    assert float(loss(logits, torch.zeros(3, dtype=torch.long))) == 0.0
    with pytest.raises(SpecError, match="3 or more"):
        primer.LabelSmoothingLoss(2)
    with pytest.raises(InputError, match=r"given \(3, 6\) and \(2,\)"):
        loss(logits, target[:2])


def test_augmentation_is_a_function_of_its_seed_and_empties_nothing() -> None:
    src, tgt = ["I am very happy in my big house", "我非常喜欢漂亮的房子"], ["甲", "乙"]
    one, two = (primer.augment_data(src, tgt, seed=seed, delete=0.3, synonyms=0.9) for seed in (0, 0))
    assert one == two and one[1] == tgt and one[0] != src
    assert primer.augment_data(src, tgt, seed=5, delete=0.3, synonyms=0.9) != one
    assert primer.augment_data("word", "字", delete=1.0, synonyms=0, letters=0) == ("word", "字")
    replaced, _ = primer.augment_data("非常喜欢", "x", delete=0, synonyms=1.0, swap=0, letters=0)
    assert replaced[:2] in ("十分", "很喜") and "喜欢" not in replaced


def test_segmented_chinese_stays_words() -> None:
    words = ["我", "非常", "喜歡", "萬聖節"]
    synonyms = {"十分", "很", "喜愛"}
    seen = set()
    for seed in range(40):
        changed, _ = primer.augment_data(
            " ".join(words), "x", seed=seed, delete=0.3, swap=0.3, letters=0, synonyms=0.3
        )
        assert changed.split() and set(changed.split()) <= {*words, *synonyms}, changed
        seen |= set(changed.split())
    assert seen == {*words, *synonyms}


def test_synonyms_keep_to_their_script() -> None:
    pairs = [
        ("我 很 高興", "開心快樂"),
        ("我很高兴", "开心快乐"),
        ("我 經常 開始", "常常著手"),
        ("美麗的房子", "漂亮屋子"),
    ]
    for text, known in pairs:
        changed, _ = primer.augment_data(text, "x", delete=0, synonyms=1.0, swap=0, letters=0)
        assert changed != text and set(changed) <= {*text, *known}, changed


# --- decoding and looking -------------------------------------------------------------------------


def test_greedy_decoding_is_argmax_step_by_step() -> None:
    model = primer.Transformer(20, 9, **SIZES, seed=4).train()
    src_mask = primer.create_padding_mask(SRC)
    said = primer.greedy_decode(model, SRC, src_mask, 12, 1, 2)
    assert model.training and not said.requires_grad
    model.eval()
    for row in range(2):
        ids = [1]
        while len(ids) < 12 and ids[-1] != 2:
            real = SRC[row : row + 1][SRC[row : row + 1] != 0][None]
            ids.append(int(model(real, torch.tensor([ids]))[0, -1].argmax()))
        assert said[row, : len(ids)].tolist() == ids and bool((said[row, len(ids) :] == 0).all())
    assert torch.equal(primer.greedy_decode(model, SRC, max_len=12), said)
    with pytest.raises(InputError, match="max_len is 1"):
        primer.greedy_decode(model, SRC, src_mask, 1, 1, 2)


def test_each_sentence_ends_by_itself() -> None:
    model = primer.Transformer(20, 9, **SIZES, dropout=0.0, seed=0)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    src, tgt = torch.tensor([[5, 5, 5], [6, 6, 6]]), torch.tensor([[1, 4, 2, 0, 0], [1, 4, 5, 6, 2]])
    for _ in range(60):
        primer.train_step(model, src, tgt, nn.CrossEntropyLoss(), optimizer)
    assert primer.greedy_decode(model, src, None, 10, 1, 2).tolist() == tgt.tolist()


def test_parameters_by_part(capsys: pytest.CaptureFixture[str]) -> None:
    assert primer.count_transformer_params() == 93_322_496
    told = capsys.readouterr().out
    for count in ("32,768,000", "18,914,304", "25,224,192", "16,416,000", "93,322,496"):
        assert count in told
    assert primer.count_transformer_params(10_000, say=None) == 59_508_496
    counted = primer.count_transformer_params(25, 16, 2, 32, 3, say=None)
    model = primer.Transformer(25, 25, 16, 2, 3, 3, 32)
    assert counted == sum(p.numel() for p in model.parameters())


KINDS = ["encoder", "decoder", "cross"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("batch", [lambda ids: ids, lambda ids: ids[0], lambda ids: ids.tolist()])
@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("pad", [0, 19])
def test_no_weight_is_drawn_on_padding(
    kind: Any, batch: Any, side: str, pad: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Any] = []
    real_heat_map = looking.heat_map
    monkeypatch.setattr(looking, "heat_map", lambda *given: drawn.append(given) or real_heat_map(*given))
    src, tgt = torch.tensor([[5, 6, 7, 0, 0], [8, 9, 10, 11, 12]]), torch.tensor([[1, 7, 8, 0], [1, 4, 5, 6]])
    src, tgt = (ids.masked_fill(ids == 0, pad) for ids in (src, tgt))
    if side == "left":
        src, tgt = torch.tensor([[pad, pad, 5, 6, 7]]), torch.tensor([[pad, 1, 7, 8]])
    model = small()
    primer.visualize_attention(
        model, batch(src), batch(tgt), 1, 1, kind=kind, pad_idx=pad, path=tmp_path / "a.svg"
    )
    weights, rows, columns, _ = drawn[0]
    assert rows == (["5", "6", "7"] if kind == "encoder" else ["1", "7", "8"])
    assert columns == (["1", "7", "8"] if kind == "decoder" else ["5", "6", "7"])
    # As if there had never been any padding.
    _, alone = model(torch.tensor([[5, 6, 7]]), torch.tensor([[1, 7, 8]]), return_attention=True)
    assert_close(weights, getattr(alone, kind)[1][0, 1])
    if kind == "decoder":
        assert bool((weights.triu(1) == 0).all())


def test_names_of_tokens_with_and_without_padding(tmp_path: Path) -> None:
    words = {"src_tokens": ["我", "爱", "你"], "tgt_tokens": ["<s>", "I", "love"]}
    path = primer.visualize_attention(small(), SRC, TGT, path=tmp_path / "a.svg", **words)
    assert "我" in path.read_text()
    with pytest.raises(InputError, match="src_tokens has 4 tokens; expected 5, or 3 without padding"):
        primer.visualize_attention(small(), SRC, TGT, src_tokens=list("我爱你们"), path=tmp_path / "b.svg")
    with pytest.raises(InputError, match="there is nothing to draw"):
        primer.visualize_attention(small(), SRC * 0, TGT, path=tmp_path / "b.svg")
    with pytest.raises(InputError, match="ids are"):
        primer.visualize_attention(small(), [], TGT, path=tmp_path / "b.svg")


@pytest.mark.parametrize("kind", KINDS)
def test_a_picture_of_one_head(kind: Any, tmp_path: Path) -> None:
    words = {"src_tokens": ["我", "爱", "你", "。", "■"], "tgt_tokens": ["<s>", "I", "love", "you"]}
    path = primer.visualize_attention(small(), SRC, TGT, 1, 1, kind=kind, path=tmp_path / "a.svg", **words)
    text = path.read_text()
    assert "Layer 1, Head 1" in text and ("我" in text) == (kind != "decoder")
    with pytest.raises(InputError, match="2 layers of 2 heads"):
        primer.visualize_attention(small(), SRC, TGT, layer=7, kind=kind, path=tmp_path / "b.svg")


def test_the_description_is_true() -> None:
    model = primer.Transformer(100, 90, 64, 4, 1, 2, 128)
    total = sum(p.numel() for p in model.parameters())
    assert model.describe().splitlines() == [
        "source ids -> embedding * sqrt(d_model) + positions",
        "  encoder x 1: self-attention, add & norm, feed-forward, add & norm",
        "target ids (shifted right) -> embedding * sqrt(d_model) + positions",
        "  decoder x 2: masked self-attention, add & norm, attention to the encoder's last output, "
        "add & norm, feed-forward, add & norm",
        "  linear -> 90 logits",
        f"{total:,} parameters, {total:,} trainable",
    ]
    for p in model.inner.encoder.parameters():
        p.requires_grad_(False)
    frozen = sum(p.numel() for p in model.inner.encoder.parameters())
    assert model.describe().endswith(f"{total:,} parameters, {total - frozen:,} trainable") and frozen > 0
    other = primer.Transformer(
        90, 90, 64, 4, 1, 1, 128,
        norm_first=True, scale_embeddings=False, share_embeddings=True, tie_output=True,
    )  # fmt: skip
    total = sum(p.numel() for p in other.parameters())
    assert other.describe().splitlines() == [
        "source ids -> embedding + positions",
        "  encoder x 1: norm, self-attention, add, norm, feed-forward, add; a last norm",
        "target ids (shifted right) -> embedding + positions (the source's table)",
        "  decoder x 1: norm, masked self-attention, add, norm, attention to the encoder's last output, add, "
        "norm, feed-forward, add; a last norm",
        "  linear (the target embedding's weights) -> 90 logits",
        f"{total:,} parameters, {total:,} trainable",
    ]


def test_gradients_are_measured_as_clipping_measures_them() -> None:
    model = small()
    with pytest.raises(InputError, match="no parameter has a gradient"):
        primer.analyze_gradients(model)
    model(SRC, TGT).square().sum().backward()
    said: list[str] = []
    norms = primer.analyze_gradients(model, say=said.append)
    total = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    assert norms["total"] == pytest.approx(float(total), rel=1e-9)
    assert len(said) == len(norms) and said[-1].startswith("Total gradient norm")


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

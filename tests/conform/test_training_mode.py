"""Training mode: every dropout acts, alone, and only there; first weights have the spread they promise."""

from pathlib import Path

import pytest
import torch
import transformers
from references import TINY
from safetensors.torch import load_file
from zoo import VOCAB, block, ids, single

import clearhead as ch
from clearhead import nn as cn
from clearhead.families import FAMILIES
from clearhead.nn.model import Model

QUIET = block(feedforward=cn.MLP(hidden=40), dropout=0.0)
SILENT = {"embed": cn.Tokens(vocab=VOCAB), "block": QUIET}
PLACES: dict[str, Model] = {
    "embedding": single(**SILENT | {"embed": cn.Tokens(vocab=VOCAB, dropout=0.5)}),
    "residual": single(**SILENT | {"block": block(feedforward=cn.MLP(hidden=40), dropout=0.5)}),
    "feed-forward": single(
        **SILENT | {"block": block(feedforward=cn.MLP(hidden=40, dropout=0.5), dropout=0.0)}
    ),
    "gated": single(**SILENT | {"block": block(feedforward=cn.Gated(hidden=40, dropout=0.5), dropout=0.0)}),
    "weights": single(**SILENT).edit(cn.Attention, kernel=cn.Softmax(dropout=0.5)),
    "capped weights": single(**SILENT).edit(cn.Attention, kernel=cn.Softmax(dropout=0.5, cap=5.0)),
    "labels": single(cn.Labels(count=3, dropout=0.5), **SILENT),
    "tags": single(cn.Tags(count=3, dropout=0.5), **SILENT),
}


def answer(model: torch.nn.Module, seed: int) -> torch.Tensor:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return model(ids(2, 6))


@pytest.mark.parametrize("place", PLACES)
@torch.no_grad()
def test_each_dropout_acts_in_training_and_only_there(place: str) -> None:
    model = PLACES[place].build()
    assert torch.equal(answer(model, 1), answer(model, 2))
    model.train()
    assert torch.equal(answer(model, 1), answer(model, 1))
    assert not torch.equal(answer(model, 1), answer(model, 2))


@torch.no_grad()
def test_without_dropout_training_mode_changes_nothing() -> None:
    model = single(**SILENT).build()
    assert torch.equal(model.eval()(ids(2, 6)), model.train()(ids(2, 6)))


@torch.no_grad()
def test_dropped_weights_keep_their_mean() -> None:
    """Averaged over many draws, attention with dropout is attention without: what is kept is scaled up."""
    kernel = cn.Softmax(dropout=0.3).build(2, 8).train()
    key = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 2, 5, 8, generator=key) for _ in range(3))
    slots = torch.arange(5)[None]
    view = cn.View(cn.Causal(), 1, slots, slots)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        draws = [kernel(cn.AttentionCall(q, k, v, view, scale=0.3)) for _ in range(4000)]
    still = kernel.eval()(cn.AttentionCall(q, k, v, view, scale=0.3))
    assert (torch.stack(draws).mean(0) - still).abs().max() < 0.06


def test_the_pattern_shown_in_training_is_the_one_before_dropout() -> None:
    model, seen = (
        single(**SILENT).edit(cn.Attention, kernel=cn.Softmax(dropout=0.5)).build().train(),
        cn.Recorder(),
    )
    model(ids(2, 6), tap=seen.tap("*.pattern"))
    for pattern in seen.values():
        assert (pattern.sum(-1) - 1).abs().max() < 1e-5


WIDE = {
    "hidden_size": 96, "d_model": 96, "n_embd": 96, "intermediate_size": 200, "d_ff": 200, "d_kv": 24,
    "num_hidden_layers": 3, "n_layer": 3, "num_layers": 3, "vocab_size": 300,
}  # fmt: skip


@pytest.mark.parametrize("name", ["gpt2", "bert", "t5", "llama"])
def test_first_weights_are_spread_as_the_reference_spreads_them(name: str, tmp_path: Path) -> None:
    family = FAMILIES[name]
    sizes = {
        **{k: v for k, v in TINY.items() if k in family.defaults},
        **{k: v for k, v in WIDE.items() if k in family.defaults},
    }
    ch.save(ch.build(name, seed=3, **sizes), tmp_path / "ours")
    config = transformers.AutoConfig.for_model(family.key, **sizes)
    with torch.random.fork_rng():
        torch.manual_seed(3)
        getattr(transformers, family.architectures["tokens"])(config).save_pretrained(tmp_path / "theirs")
    ours, theirs = (load_file(tmp_path / who / "model.safetensors") for who in ("ours", "theirs"))
    large = [n for n, x in theirs.items() if x.ndim == 2 and x.numel() > 2000]
    assert len(large) > 5
    for n in large:
        assert abs(float(ours[n].std() / theirs[n].std()) - 1) < 0.08, (n, ours[n].std(), theirs[n].std())


def test_xavier_by_its_formula() -> None:
    model = single(**SILENT, width=24).edit(cn.SingleStack, init=cn.Xavier()).build()
    weight = model.tower.blocks[0].ff.up.weight
    edge = (6 / (24 + 40)) ** 0.5
    assert 0.95 * edge < float(weight.detach().abs().max()) <= edge
    assert abs(float(model.tower.embed.table.weight.detach().std()) - 24**-0.5) < 0.02

"""The NumPy primer's whole model against torch, and against misuse."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from arrays import (
    assert_close,
    decoder_layer_of,
    encoder_layer_of,
    linear_of,
    norm_of,
    numpied,
    refused,
    shaken,
)
from numpy.testing import assert_allclose, assert_array_equal
from torch import Tensor, nn

from clearhead.primer import numpy as primer

# --- the whole model ------------------------------------------------------------------------------

SIZES: dict[str, Any] = {"source_vocab": 11, "target_vocab": 13, "width": 8, "depth": 2}


@pytest.mark.parametrize("order", ["post", "pre"])
def test_transformer_equals_torch(order: primer.Order) -> None:
    torch.manual_seed(0)
    style = {"activation": "gelu", "batch_first": True, "norm_first": order == "pre"}
    # The paper's post order has no last norm; nn.Transformer by itself would always add one.
    last = [nn.LayerNorm(8) if order == "pre" else None for _ in range(2)]
    layer = nn.TransformerEncoderLayer(8, 2, 16, **style)  # type: ignore[arg-type]
    encoder = nn.TransformerEncoder(layer, 2, last[0], enable_nested_tensor=False)
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16, **style), 2, last[1])  # type: ignore[arg-type]
    towers = shaken(nn.Transformer(8, 2, custom_encoder=encoder, custom_decoder=decoder, batch_first=True))
    embed_source, embed_target = shaken(nn.Embedding(11, 8)), shaken(nn.Embedding(13, 8))
    head = shaken(nn.Linear(8, 13))
    weights = primer.Transformer(
        numpied(embed_source.weight),
        numpied(embed_target.weight),
        tuple(encoder_layer_of(layer) for layer in towers.encoder.layers),
        tuple(decoder_layer_of(layer) for layer in towers.decoder.layers),
        linear_of(head),
        norm_of(towers.encoder.norm) if order == "pre" else None,
        norm_of(towers.decoder.norm) if order == "pre" else None,
    )
    source = np.array([[3, 4, 5, 6, 7], [8, 9, 10, 0, 0]])
    target = np.array([[1, 5, 6, 12], [1, 7, 0, 0]])
    logits = primer.transformer(source, target, weights, 2, order=order, activation=primer.gelu)

    def embed(ids: Tensor, table: nn.Embedding) -> Any:
        column = torch.arange(8, dtype=torch.float64)
        position = torch.arange(ids.shape[1], dtype=torch.float64)[:, None]
        angle = position / 10000 ** (2 * (column // 2) / 8)
        positions = torch.where(column % 2 == 0, angle.sin(), angle.cos())
        return table(ids) * math.sqrt(8) + positions

    s, t = torch.from_numpy(source), torch.from_numpy(target)
    x = towers(
        embed(s, embed_source),
        embed(t, embed_target),
        tgt_mask=torch.from_numpy(~primer.causal_mask(4)),
        src_key_padding_mask=s == 0,
        memory_key_padding_mask=s == 0,
        tgt_key_padding_mask=t == 0,
    )
    real = target != 0  # what stands at a padded position is nobody's answer
    assert_close(logits[real], numpied(head(x))[real])


@pytest.mark.parametrize("order", ["post", "pre"])
def test_padding_left_right_or_none_gives_the_same_logits(order: primer.Order) -> None:
    weights = primer.init(3, **SIZES, order=order)
    source, target = np.array([[3, 4, 5]]), np.array([[1, 7]])
    alone = primer.transformer(source, target, weights, 2, order=order)
    right = primer.transformer(
        np.array([[3, 4, 5, 0, 0], [9, 9, 9, 9, 9]]),
        np.array([[1, 7, 0], [1, 2, 3]]),
        weights,
        2,
        order=order,
    )
    left = primer.transformer(np.array([[0, 0, 3, 4, 5]]), np.array([[0, 1, 7]]), weights, 2, order=order)
    assert alone.shape == (1, 2, 13)
    assert_close(right[:1, :2], alone)
    assert_close(left[:, 1:], alone)
    assert np.isfinite(left).all()


def test_the_future_does_not_leak_and_the_source_arrives() -> None:
    weights = primer.init(3, **SIZES)
    source, target = np.array([[3, 4, 5]]), np.array([[1, 7, 8, 9]])
    logits = primer.transformer(source, target, weights, 2)
    for position in range(4):
        changed = target.copy()
        changed[0, position] = 12
        difference = np.abs(primer.transformer(source, changed, weights, 2) - logits).max(-1)[0]
        assert (difference[:position] == 0).all()
        assert (difference[position:] > 1e-6).all()
    other = primer.transformer(np.array([[3, 4, 6]]), target, weights, 2)
    assert (np.abs(other - logits).max(-1) > 1e-6).all()


def test_every_weight_reaches_the_logits() -> None:
    source, target = np.array([[3, 4, 5]]), np.array([[1, 7, 8]])
    weights = primer.init(3, **SIZES, order="pre")
    logits = primer.transformer(source, target, weights, 2, order="pre")

    def leaves(tree: Any, path: str = "") -> list[tuple[str, primer.Array]]:
        if isinstance(tree, np.ndarray):
            return [(path, tree)]
        items = tree._asdict().items() if hasattr(tree, "_asdict") else enumerate(tree)
        return [leaf for k, v in items if k != "eps" for leaf in leaves(v, f"{path}.{k}")]

    found = leaves(weights)
    # 2 embeddings, the head, 2 last norms; 16 arrays in an encoder layer, 26 in a decoder layer.
    assert len(found) == 2 + 2 + 4 + 2 * 16 + 2 * 26
    for path, array in found:
        if path.endswith(".k.bias"):
            continue  # adds the same amount to every score of a query: softmax cannot see it
        array += np.random.default_rng(0).normal(size=array.shape)
        changed = primer.transformer(source, target, weights, 2, order="pre")
        assert np.abs(changed - logits).max() > 1e-9, path
        logits = changed


def test_init_is_a_function_of_its_seed() -> None:
    assert_array_equal(primer.init(1, **SIZES).head.weight, primer.init(1, **SIZES).head.weight)
    assert np.any(primer.init(1, **SIZES).head.weight != primer.init(2, **SIZES).head.weight)
    before = np.random.get_state(legacy=False)["state"]
    primer.init(1, **SIZES)
    after = np.random.get_state(legacy=False)["state"]
    assert_array_equal(after["key"], before["key"])
    assert after["pos"] == before["pos"]


@pytest.mark.parametrize("wrong", [-1, 11])
def test_ids_outside_the_vocabulary_are_refused(wrong: int) -> None:
    weights = primer.init(0, **SIZES)
    low, high = min(wrong, 3), max(wrong, 3)
    with refused(f"ids must be in 0..10, given {low}..{high}"):
        primer.transformer(np.array([[3, wrong]]), np.array([[1]]), weights, 2)


@pytest.mark.parametrize("missing", ["encoder_norm", "decoder_norm"])
def test_pre_order_without_last_norms_is_refused(missing: str) -> None:
    absent: dict[str, Any] = {missing: None}
    weights = primer.init(0, **SIZES, order="pre")._replace(**absent)
    with refused("order='pre' needs the last norms"):
        primer.transformer(np.array([[3]]), np.array([[1]]), weights, 2, "pre")


def test_the_padding_id_is_a_choice() -> None:
    weights = primer.init(3, **SIZES)
    alone = primer.transformer(np.array([[3, 0]]), np.array([[1, 0]]), weights, 2, pad=9)
    source, target = np.array([[9, 3, 0, 9]]), np.array([[9, 1, 0]])
    padded = primer.transformer(source, target, weights, 2, pad=9)
    assert_close(padded[:, 1:], alone)


def test_a_model_in_single_precision_stays_there() -> None:
    weights = primer.init(0, **{**SIZES, "depth": 0})
    single = weights._replace(
        source_embedding=weights.source_embedding.astype(np.float32),
        target_embedding=weights.target_embedding.astype(np.float32),
        head=primer.Linear(*(array.astype(np.float32) for array in weights.head)),
    )
    ids = np.array([[1, 2]])
    logits = primer.transformer(ids, ids, single, 2)
    assert logits.dtype == np.float32
    assert_allclose(logits, primer.transformer(ids, ids, weights, 2), rtol=0, atol=1e-5)

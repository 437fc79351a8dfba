"""Looking inside with the torch primer: pictures without padding, the description, parameters by part."""

from pathlib import Path
from typing import Any

import pytest
import torch
from textbook import SRC, TGT, small
from tolerance import assert_close

from clearhead.errors import InputError
from clearhead.primer import torch as primer
from clearhead.primer.torch import looking


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
    with pytest.raises(InputError, match="there is nothing to plot"):
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

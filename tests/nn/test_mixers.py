"""The baselines in the place of attention: torch's own cells and convolutions, and what they refuse."""

import pytest
import torch
from mixing import noise, view
from tolerance import assert_close
from zoo import attention, block, single

from clearhead import nn as cn
from clearhead.errors import ClearheadError
from clearhead.nn.context import Context


def call(mixer: torch.nn.Module, x: torch.Tensor, rule: cn.Mask) -> torch.Tensor:
    return mixer(x, Context(view(rule, *x.shape[:2], x.shape[1]), cn.BoundPositions()))


def filled(spec: cn.TokenMixer, width: int) -> torch.nn.Module:
    mixer, key = spec.build(width).double(), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in mixer.parameters():
            p.copy_(torch.randn(p.shape, generator=key, dtype=p.dtype) * 0.3)
    return mixer


@pytest.mark.parametrize(("cell", "kind"), [("lstm", torch.nn.LSTM), ("gru", torch.nn.GRU)])
@torch.no_grad()
def test_a_recurrent_mixer_is_torchs_cell_on_each_text(cell: str, kind: type[torch.nn.Module]) -> None:
    for both_ways in (False, True):
        ours = filled(cn.Recurrent(cell=cell, hidden=5, both_ways=both_ways), 8)
        theirs = kind(8, 5, batch_first=True, bidirectional=both_ways).double()
        theirs.load_state_dict(ours.cell.state_dict())
        x, document = noise(1, 9, 8), torch.tensor([[-1, 0, 0, 0, 3, 3, -1, 3, -1]])
        got = call(ours, x, cn.Documents(document))
        for number in (0, 3):
            alone = x[:, document[0] == number]
            assert_close(got[:, document[0] == number], ours.out(theirs(alone)[0]))


@pytest.mark.parametrize("size", [1, 3, 4])
@torch.no_grad()
def test_a_convolution_looks_back_in_a_decoder_and_around_in_an_encoder(size: int) -> None:
    mixer, x = filled(cn.Convolution(size=size), 6), noise(2, 10, 6)
    for rule, back in ((cn.Causal(), size - 1), (cn.Everyone(), (size - 1) // 2)):
        got = call(mixer, x, rule)
        wide = torch.zeros(2, 10 + size - 1, 6).double()
        wide[:, back : back + 10] = x
        want = torch.zeros_like(x)
        for at in range(10):
            seen = wide[:, at : at + size].reshape(2, -1) @ mixer.conv.weight.mT.reshape(12, -1).mT
            one, gate = (seen + mixer.conv.bias).chunk(2, dim=-1)
            want[:, at] = one * gate.sigmoid()
        assert_close(got, mixer.out(want))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: cn.Recurrent(hidden=0), "Recurrent.hidden is 0"),
        (lambda: cn.Convolution(size=0), "Convolution.size is 0"),
        (lambda: single(causal=True, block=block(attention=cn.Recurrent(both_ways=True))).build(),
         "a decoder reads forwards"),
        (lambda: call(cn.Convolution().build(8), noise(1, 3, 8), cn.PrefixMask(2)),
         "Convolution cannot take a mask of any kind; choose Attention, which can"),
        (lambda: cn.Block(attention=attention().kernel, feedforward=cn.MLP(hidden=4)),
         "Block.attention is Softmax("),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_in_one_line(make, words: str) -> None:
    with pytest.raises(ClearheadError) as caught:
        make()
    assert words in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "mixer",
    [cn.Recurrent(), cn.Recurrent(cell="gru"), cn.Convolution(), attention(kernel=cn.Linear()), attention()],
    ids=str,
)
@torch.no_grad()
def test_a_row_that_waits_keeps_its_state(mixer: cn.TokenMixer) -> None:
    """Rows of a batch that are given padding while others go on go on later as if nothing had been."""
    model = single(causal=True, block=block(attention=mixer)).build(dtype=torch.float64)
    ids = torch.arange(14).reshape(2, 7)
    real = torch.tensor([[1, 1, 1, 1, 1, 1, 1], [1, 1, 0, 0, 1, 0, 1]])
    whole, cache = model(ids, real), model.cache()
    steps = [
        model(new, flags, cache=cache) for new, flags in zip(ids.split(1, 1), real.split(1, 1), strict=True)
    ]
    got = torch.cat(steps, dim=1)
    assert_close(got[real.bool()], whole[real.bool()])
    assert_close(got[1][real[1].bool()], model(ids[1:, [0, 1, 4, 6]])[0])

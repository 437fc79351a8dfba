"""Bad input: one clear error with what was given and what was expected. Never a silent broadcast."""

import pytest
import torch
from zoo import ENCODERS, VOCAB, ids, pair, single

from clearhead import nn as cn
from clearhead.errors import ClearheadError

DECODER = single(causal=True).build()
TYPED = ENCODERS["typed-scaled-normed"].build()
PAIR = pair().build()


def cached(capacity: int | None = None, rows: int = 2) -> cn.Cache:
    cache = DECODER.cache(capacity)
    DECODER(ids(rows, 3), cache=cache)
    return cache


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: DECODER(torch.tensor([[1, VOCAB]])),
            f"ids contain {VOCAB}; this model knows 0 to {VOCAB - 1}",
        ),
        (lambda: DECODER(torch.tensor([[-1, 2]])), "ids contain -1"),
        (lambda: DECODER(torch.ones(2, 3)), "whole numbers of shape (batch, length); given float32 (2, 3)"),
        (lambda: DECODER(torch.ones(3).long()), "given int64 (3,)"),
        (lambda: DECODER(torch.ones(2, 0).long()), "ids are empty"),
        (lambda: DECODER(ids(1, 49)), "49 tokens is longer than the 48 learned positions"),
        (lambda: DECODER(ids(2, 3), types=ids(2, 3)), "this model has no segment types"),
        (lambda: TYPED(ids(2, 3), types=torch.full((2, 3), 2)), "types contain 2; this model knows 0 to 1"),
        (lambda: TYPED(ids(2, 3), types=torch.zeros(2, 4).long()), "types are (2, 4), ids (2, 3)"),
        (lambda: DECODER(ids(2, 3), torch.ones(2, 4)), "the mask is (2, 4), expected (2, 3): batch, length"),
        (lambda: DECODER(ids(2, 3), torch.ones(3, 3)), "the mask is (3, 3), expected (2, 3)"),
        (lambda: DECODER(ids(2, 3), torch.ones(1, 3)), "the mask is (1, 3), expected (2, 3)"),
        (lambda: DECODER(ids(2, 3), torch.ones(2, 1, 3, 3)), "pass mask_adapters.from_allowed(mask)"),
        (lambda: DECODER(ids(1, 2), torch.tensor([[0.0, float("-inf")]])), "use from_additive()"),
        (
            lambda: DECODER(ids(2, 3), cn.Padding(torch.ones(1, 3).bool())),
            "the padding mask is (1, 3), expected (2, 3)",
        ),
        (lambda: DECODER(ids(2, 3), cn.Documents(torch.ones(2, 5).long())), "the document mask is (2, 5)"),
        (
            lambda: DECODER(ids(2, 3), cn.mask_adapters.from_allowed(torch.ones(3, 4))),
            "the attention mask is (1, 1, 3, 4)",
        ),
        (
            lambda: DECODER(ids(2, 3), cn.Causal() & cn.mask_adapters.from_allowed(torch.ones(5, 3, 3))),
            "(5, 1, 3, 3)",
        ),
        (lambda: DECODER(ids(2, 1), torch.ones(2, 2), cache=cached()), "expected (2, 1) or (2, 4)"),
        (lambda: DECODER(ids(2, 4), cache=cached(6)), "capacity of 6 tokens, this call makes it 7"),
        (lambda: DECODER(ids(3, 1), cache=cached()), "the cache holds 2 rows, this call has 3"),
        (lambda: DECODER(ids(1, 1), cache=cn.Cache(3)), "the cache has 3 layers, the tower 2"),
        (lambda: cached().trim(9), "cannot trim a cache of 3 tokens to 9"),
        (lambda: PAIR(ids(1, 3), ids(2, 3)), "the encoder output has 1 rows, the target 2"),
        (lambda: PAIR(ids(2, 3), ids(1, 3)), "the encoder output has 2 rows, the target 1"),
        (lambda: PAIR(ids(2, 3), ids(2, 3), torch.ones(2, 4)), "the mask is (2, 4), expected (2, 3)"),
        (lambda: PAIR.decoder(ids(2, 3)), "call it with encoder_output="),
    ],
)
def test_bad_input_is_one_clear_line(call, words: str) -> None:
    with pytest.raises(ClearheadError) as caught:
        call()
    assert words in str(caught.value), str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_refused_call_leaves_the_cache_as_it_was() -> None:
    cache = cached(6)
    with pytest.raises(ClearheadError):
        DECODER(ids(2, 4), cache=cache)
    assert cache.length == 3
    want = DECODER(torch.cat([ids(2, 3), ids(2, 2, seed=4)], 1))[:, 3:]
    assert torch.allclose(DECODER(ids(2, 2, seed=4), cache=cache), want, atol=1e-5)

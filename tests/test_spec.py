"""Specs: edited as trees, refused with the nearest name."""

import json
from dataclasses import FrozenInstanceError

import pytest
from zoo import pair, single

from clearhead import nn as cn
from clearhead.errors import SpecError
from clearhead.spec import Spec


def test_a_variant_is_an_edit_of_the_tree() -> None:
    spec = pair()
    grouped = spec.edit(cn.Attention, kv_heads=2)
    found = [node.kv_heads for node in grouped.nodes() if isinstance(node, cn.Attention)]
    assert found == [2, 2, 2] and spec == pair()  # encoder, decoder, cross; the original is as it was
    assert grouped.edit(cn.Attention, kv_heads=None) == spec


def test_an_edit_reaches_the_nodes_inside_a_pattern() -> None:
    spec = single(block=(pair().encoder.block,) * 2)
    assert all(n.heads == 2 for n in spec.edit(cn.Attention, heads=2).nodes() if isinstance(n, cn.Attention))


def test_specs_are_values() -> None:
    assert pair() == pair() and hash(single()) == hash(single())
    with pytest.raises(FrozenInstanceError):
        single().tower.width = 3
    with pytest.raises(TypeError):
        cn.Rope(10000.0)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: single().edit(cn.Rope, theta=1.0), "there is no Rope to edit"),
        (lambda: single().edit(cn.Attention, head=2), "did you mean 'heads'?"),
        (lambda: Spec.from_dict({"kind": "Roppe"}), "unknown spec kind 'Roppe'; did you mean 'Rope'?"),
        (
            lambda: Spec.from_dict({"kind": "Rope", "tetha": 1.0}),
            "Rope has no field 'tetha'; did you mean 'theta'?",
        ),
        (lambda: Spec.from_dict({"kind": "Learned"}), "Learned needs length"),
        (lambda: Spec.from_dict({}), "unknown spec kind None"),
        (lambda: Spec.from_dict({"kind": ["Rope"]}), "unknown spec kind"),
        (lambda: Spec.from_dict({"kind": "Norm"}), "unknown spec kind 'Norm'"),
        (lambda: cn.Attention(heads="8"), "Attention.heads is '8', expected a whole number from 1"),
        (lambda: cn.Attention(heads=True), "Attention.heads is True, expected a whole"),
        (lambda: cn.Rope(pairing="both"), "expected one of 'halves', 'neighbours'"),
        (lambda: single(positions=cn.norm.Layer()), "Tower.positions is Layer("),
        (lambda: cn.Attention(heads=4, window=(1,)), "expected a tuple of a whole number from 0 or nothing"),
        (lambda: cn.Attention(heads=4, kv_heads=3), "kv_heads 3 does not divide heads 4"),
        (lambda: cn.Attention(heads=0), "heads is 0"),
        (lambda: cn.Attention(heads=4, bias="qx"), "letters q, k, v, o"),
        (lambda: cn.Attention(heads=5).build(24), "width 24 is not divisible by heads 5"),
        (lambda: cn.Softmax(cap=0.0), "above 0"),
        (lambda: single(depth=0), "Tower.depth is 0, expected a whole number from 1"),
        (lambda: single(depth=10**30), "Tower.depth is "),
        (lambda: single(depth=10**5000), "is a whole number of 16610 bits, expected a whole number from 1"),
        (lambda: cn.Softmax(dropout=-0.1), "Softmax.dropout is -0.1, expected a number from 0 to 1"),
        (lambda: cn.MLP(hidden=3, dropout=float("nan")), "MLP.dropout is nan"),
        (lambda: cn.norm.Layer(eps=float("inf")), "Layer.eps is inf, expected a number from 0"),
        (lambda: cn.norm.Layer(eps=10**30), "Layer.eps is 1000000000000000000000000000000, expected"),
        (lambda: cn.MLP(hidden=3, act=["gelu"]), "MLP.act is ['gelu'], expected one of"),
        (lambda: cn.Rope(theta=0.0), "Rope.theta is 0.0, expected a number above 1"),
        (lambda: cn.Rope(theta=1), "expected a number above 1"),
        (lambda: cn.Llama3(factor=2.0, length=8, low=4.0, high=4.0), "low must be below high"),
        (lambda: cn.RelativeBuckets(buckets=2), "4 buckets or more"),
        (lambda: single(distinct=3), "distinct 3 does not divide depth 2"),
        (lambda: single(positions=cn.Rope(fraction=0.1)).build(), "rotates pairs of channels"),
        (lambda: single(cn.TokenHead(vocab=7)), "a tied head needs the embedding's vocabulary"),
        (lambda: single(embed=cn.Tokens(vocab=31, factor=8)), "needs a transform between"),
        (lambda: cn.EncoderDecoder(encoder=single().tower, decoder=single().tower), "needs cross-attention"),
        (lambda: pair().edit(cn.Attention, window=(1, 0)).build(), "cross-attention cannot have one"),
    ],
)
def test_what_cannot_be_built_is_refused_in_one_line(call, words: str) -> None:
    with pytest.raises(SpecError) as caught:
        call()
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_a_shared_table_must_fit_both_sides() -> None:
    data = pair().to_dict()
    data["encoder"]["embed"]["vocab"] = 30
    with pytest.raises(SpecError, match="a shared table must fit both sides"):
        Spec.from_dict(json.loads(json.dumps(data)))


def test_kinds_are_found_by_what_they_are() -> None:
    assert set(cn.norm.Norm.kinds()) == {"Layer", "NonParametric", "RMS", "NoNorm"}
    assert "Norm" not in Spec.kinds() and "Rope" in Spec.kinds()


def test_two_kinds_cannot_have_one_name() -> None:
    with pytest.raises(SpecError, match="two spec kinds are called 'Rope'"):
        type("Rope", (Spec,), {"__module__": "elsewhere"})

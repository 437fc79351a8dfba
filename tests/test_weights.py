"""Weight tables: the same table loads and exports, so both ways together change nothing and lose nothing."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from clearhead.errors import LoadError
from clearhead.weights import (
    Alias,
    Fused,
    Ignore,
    Name,
    StateDict,
    Table,
    export,
    export_aliases,
    load_tensors,
)

QKV = ("blocks.{i}.q.{p}", "blocks.{i}.k.{p}", "blocks.{i}.v.{p}")


def numbered(*shape: int) -> torch.Tensor:
    """No two elements are equal, so that none can stand in for another."""
    return torch.arange(torch.Size(shape).numel(), dtype=torch.float32).reshape(shape)


@given(
    layers=st.integers(1, 3),
    heads=st.integers(1, 4),
    size=st.integers(1, 3),
    width=st.integers(1, 5),
    transpose=st.booleans(),
    per_head=st.booleans(),
    leading=st.integers(0, 2),
)
def test_load_then_export_is_the_checkpoint(
    layers: int, heads: int, size: int, width: int, transpose: bool, per_head: bool, leading: int
) -> None:
    table: Table = (
        Name("wte", "table", leading=leading),
        Name("h.{i}.rel", "blocks.{i}.rel", heads=heads),
        Name("h.{i}.up.{p}", "blocks.{i}.up.{p}", transpose=transpose),
        Fused("h.{i}.qkv.{p}", QKV, transpose=transpose, per_head=heads if per_head else 0),
        Fused("h.{i}.gate.weight", ("blocks.{i}.gate", "blocks.{i}.value"), sizes=(size, width)),
    )
    theirs: StateDict = {"wte": numbered(*(1,) * leading, 7, width)}
    for i in range(layers):
        fused = numbered(3 * heads * size, width)
        theirs |= {
            f"h.{i}.rel": numbered(width, heads, size),
            f"h.{i}.up.weight": numbered(4, width),
            f"h.{i}.up.bias": numbered(4),
            f"h.{i}.qkv.weight": fused.mT.contiguous() if transpose else fused,
            f"h.{i}.qkv.bias": numbered(3 * heads * size),
            f"h.{i}.gate.weight": numbered(size + width, width),
        }
    loaded = load_tensors(theirs, table)
    assert not loaded.unknown and sorted(loaded.used) == sorted(theirs)
    again = export(loaded.state, table)
    assert again.keys() == theirs.keys()
    assert all(torch.equal(again[name], x) for name, x in theirs.items())
    assert sum(x.numel() for x in loaded.state.values()) == sum(x.numel() for x in theirs.values())


def test_heads_that_alternate_are_sorted_out() -> None:
    """GPT-NeoX: of each head in turn its queries, its keys, its values; here two heads of two rows each."""
    row = Fused("qkv", ("q", "k", "v"), per_head=2)
    stored = torch.tensor([[1, 1, 2, 2, 3, 3, 10, 10, 20, 20, 30, 30]]).T
    found = load_tensors({"qkv": stored}, (row,)).state
    assert {name: x[:, 0].tolist() for name, x in found.items()} == {
        "q": [1, 1, 10, 10], "k": [2, 2, 20, 20], "v": [3, 3, 30, 30],
    }  # fmt: skip


def test_a_tensor_of_ours_that_no_rule_writes_is_refused_by_name() -> None:
    """Otherwise a model would be saved without it, and nobody would know until it is loaded."""
    table: Table = (Name("a", "ours.a"), Fused("bc", ("ours.b", "ours.c")), Ignore("d", "a buffer"))
    whole: StateDict = {"ours.a": numbered(2), "ours.b": numbered(2), "ours.c": numbered(2)}
    assert set(export(whole, table)) == {"a", "bc"}
    with pytest.raises(LoadError, match=r"writes ours\.d, ours\.e$"):
        export(whole | {"ours.e": numbered(2), "ours.d": numbered(2)}, table)


def test_a_tensor_of_theirs_that_no_rule_knows_is_named() -> None:
    loaded = load_tensors(
        {"a": numbered(2), "b.0.weight": numbered(2)}, (Name("a", "ours"), Ignore("c.{i}", "why"))
    )
    assert loaded.unknown == ["b.0.weight"] and loaded.used == ["a"]


TIED: Table = (Alias("head", "table"), Name("wte", "table"))


def test_a_second_name_must_hold_the_very_same_numbers() -> None:
    table = numbered(3, 2)
    same = load_tensors({"head": table.clone(), "wte": table}, TIED)
    assert list(same.aliases) == ["head"] and list(same.state) == ["table"]
    for other in (table.clone().index_fill(0, torch.tensor([2]), 9.0), numbered(2, 3), numbered(6)):
        with pytest.raises(LoadError, match="head should equal the tensor it is tied to"):
            load_tensors({"head": other, "wte": table}, TIED)


def test_a_second_name_alone_is_the_tensor_and_follows_it_when_it_changes() -> None:
    alone = load_tensors({"head": numbered(3, 2)}, TIED)
    assert torch.equal(alone.state["table"], numbered(3, 2)) and alone.used == ["head"]
    trained = {"table": numbered(3, 2) + 1}
    assert torch.equal(export_aliases(trained, TIED, ["head", "wte"])["head"], trained["table"])


def test_a_tensor_that_cannot_be_cut_is_one_line() -> None:
    table = (Fused("h.{i}.qkv.{p}", tuple(f"blocks.{{i}}.{x}.{{p}}" for x in "qkv")),)
    for x in (torch.rand(2, 8), torch.tensor(1.0)):
        with pytest.raises(LoadError, match=r"h\.0\.qkv\.weight has the shape \(.*\), which does not fit"):
            load_tensors({"h.0.qkv.weight": x}, table)

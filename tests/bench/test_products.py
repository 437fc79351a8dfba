"""The bench of matrix products: every product of a model's shapes, the choice it keeps, the doctor's line."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import zoo

import clearhead as ch
from clearhead.bench import products as bench
from clearhead.bench.bandwidth import read_bandwidth
from clearhead.cli.main import main
from clearhead.doctor.products import check_products
from clearhead.engine import (
    PRECISIONS,
    ROW_CLASSES,
    ProductShape,
    all_choices,
    choice,
    preparation,
    prepare_model,
    product_shapes,
    step_bytes,
)
from clearhead.engine.products import PlainFloat32

SMALL = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "vocab_size": 96}
PAIR = {
    "d_model": 32, "encoder_layers": 2, "decoder_layers": 3, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "vocab_size": 96,
    "decoder_vocab_size": 96, "max_position_embeddings": 64,
}  # fmt: skip


@pytest.fixture(autouse=True)
def nothing_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine on which nothing was measured yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(choice, "_measured", {})
    monkeypatch.setattr("clearhead.bench.bandwidth.BYTES", 4_000_000)
    yield


@pytest.fixture
def folder(tmp_path: Path) -> str:
    ch.build("gpt2", **SMALL).save(tmp_path / "model")
    return str(tmp_path / "model")


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    before = torch.get_num_threads()
    with pytest.raises(SystemExit) as done:
        main(list(words))
    torch.set_num_threads(before)
    said = capsys.readouterr()
    return int(done.value.code or 0), said.out, said.err


def test_every_product_of_every_shape_is_listed(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("bench", "products", folder, "--rounds", "1", "--threads", "1")
    code, out, err = run(capsys, *words, "--json")
    found = json.loads(out)
    assert code == 0, err
    # q, k and v are one product of 96 outputs.
    counts = {(s["outputs"], s["inputs"], s["vocabulary"]): s["count"] for s in found["shapes"]}
    blocks = {(96, 32, False): 2, (32, 32, False): 2, (128, 32, False): 2, (32, 128, False): 2}
    assert counts == {**blocks, (96, 32, True): 1}
    for shape in counts:
        rows = [p for p in found["products"] if (p["outputs"], p["inputs"], p["vocabulary"]) == shape]
        assert {row["rows"] for row in rows} == set(ROW_CLASSES)
        for precision in set(PRECISIONS) - set(found["missing"]):
            assert len({row["product"] for row in rows if precision in row["used_for"]}) == 1, precision
        for row in rows:
            weights = row["outputs"] * row["inputs"]
            assert row["weights_per_second"] == pytest.approx(1e6 * weights / row["microseconds"])
            assert row["flops"] == pytest.approx(2 * row["measured_rows"] * row["weights_per_second"])
    one = next(p for p in found["products"] if p["product"] == "float32" and p["rows"] == "1")
    size = 4 * one["outputs"] * one["inputs"]
    assert one["memory_share"] == pytest.approx(1e6 * size / one["microseconds"] / found["bandwidth"])
    assert {"int8", "int8-fine", "int4"} <= found["row_seconds"].keys()
    code, out, _ = run(capsys, *words, "--precision", "float32", "int8-fine")
    assert code == 0 and "for float32" in out and "128 x 32, 2 times" in out and "96 x 32, vocabulary" in out
    assert "bfloat16" not in out


def test_what_it_measures_is_what_is_chosen_from_then_on(
    folder: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "nothing measured yet: clearhead bench products" in check_products().value

    def measure(pack: object, outputs: int, inputs: int, tolerance: float) -> dict[str, float]:
        fast = {"float32 by inputs": 1.0, "bfloat16": 1.0}
        working = choice.measure_pack(pack, outputs, inputs, tolerance)
        return dict.fromkeys(working, fast.get(bench.pack_name(pack), 2.0))

    monkeypatch.setattr(bench, "measure_pack", measure)
    code, out, _ = run(capsys, "bench", "products", folder, "--rounds", "1", "--threads", "1", "--json")
    used = {p["product"] for p in json.loads(out)["products"] if {"float32", "bfloat16"} & {*p["used_for"]}}
    assert code == 0 and used == {"float32 by inputs", "bfloat16"}
    assert {made.name for made in all_choices().values()} == used
    monkeypatch.setattr(choice, "_measured", {})  # as in another process
    for precision, name in (("float32", "float32 by inputs"), ("bfloat16", "bfloat16")):
        found = preparation(ch.load(folder, precision=precision).model)
        assert found is not None and {product.name for product in found.products} == {name}
    line = check_products().value
    assert "float32: float32 by inputs (4 shapes)" in line and "bfloat16: bfloat16 (4 shapes)" in line


def test_a_product_that_is_wrong_is_not_used() -> None:
    class Wrong(PlainFloat32):
        name = "wrong"

        def compute(self, x: torch.Tensor) -> torch.Tensor:
            return super().compute(x) + 1.0

    assert choice.measure_pack(Wrong, 8, 8) == {}
    assert set(choice.measure_pack(Wrong, 8, 8, tolerance=1e9)) == set(ROW_CLASSES)


@pytest.mark.parametrize("name", ["decoder/grouped", "pair/Gated-silu", "encoder/shared-layers"])
def test_shapes_are_those_of_a_prepared_model(name: str) -> None:
    spec = zoo.EVERY[name]
    shapes = product_shapes(spec.empty())
    found = preparation(prepare_model(spec.build(), "float32"))
    assert found is not None and shapes.total() == len(found.products)
    assert sum(shape.outputs * count for shape, count in shapes.items()) == sum(
        product.out_features for product in found.products
    )
    assert all(isinstance(shape, ProductShape) for shape in shapes)


def test_bytes_of_a_step_are_those_of_the_decoder() -> None:
    blocks = 2 * 12 * 32 * 32  # four of width x width and two of width x 4 width, twice
    table = 96 * 32
    single = ch.build("gpt2", **SMALL)
    assert step_bytes(single.model) == 4 * (blocks + table)
    assert step_bytes(single.model, 0.5) == (blocks + table) // 2
    pair = ch.build("transformer", **PAIR)
    # Self-attention, the queries and outputs of cross-attention, and a feed-forward layer of twice the width.
    assert step_bytes(pair.model) == 4 * (3 * (4 + 2 + 4) * 32 * 32 + table)
    packed = ch.build("gpt2", **SMALL).prepare("int8")
    assert blocks + table < step_bytes(packed.model) < 1.6 * (blocks + table)


def test_memory_is_read_at_some_speed() -> None:
    assert 1e8 < read_bandwidth() < 1e13


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--rounds", "0"), "rounds is 0"),
        (("--precision", "int3"), "precision is 'int3'"),
        (("--threads", "999"), "threads is 999"),
    ],
)
def test_bad_input_is_one_line(
    words: tuple[str, ...], expected: str, folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, "bench", "products", folder, *words)
    assert (code, out, err.count("\n")) == (2, "", 1) and expected in err, err

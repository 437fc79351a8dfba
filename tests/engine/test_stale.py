"""Stale packs are never used: whatever changes a weight, the next run computes with it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from packed import SMALL_LLAMA, folder_of, packed_layers
from torch import Tensor, nn

import clearhead as ch
from clearhead.bundle import Bundle
from clearhead.engine import PRECISIONS, drop_stale_products, preparation, preparing, unprepare
from clearhead.engine.pages import are_as_in_file
from clearhead.engine.products import BoundProduct, FusedProduct, PlainFloat32, Product
from clearhead.nn import LinearLayer

PRECISION = pytest.mark.parametrize("precision", PRECISIONS)
IDS = torch.arange(12)[None]
Change = Callable[[Bundle], None]


def layer(bundle: Bundle) -> LinearLayer:
    return bundle.model.tower.blocks[0].ff.down


def inferred(bundle: Bundle) -> Tensor:
    with torch.inference_mode():
        return bundle(IDS)


def in_place(bundle: Bundle) -> None:
    with torch.no_grad():
        layer(bundle).weight[3] *= 2.0


def other_data(bundle: Bundle) -> None:
    layer(bundle).weight.data = layer(bundle).weight.data * 2


def loaded_state(bundle: Bundle) -> None:
    name = "tower.blocks.0.ff.down.weight"
    bundle.model.load_state_dict({**bundle.model.state_dict(), name: layer(bundle).weight * 2})


def assigned_state(bundle: Bundle) -> None:
    name = "tower.blocks.0.ff.down.weight"
    state = {**bundle.model.state_dict(), name: layer(bundle).weight.detach() * 2}
    bundle.model.load_state_dict(state, assign=True)


def optimizer_step(bundle: Bundle) -> None:
    weight = layer(bundle).weight.requires_grad_()
    bundle.model(IDS).square().mean().backward()
    torch.optim.SGD([weight], lr=10.0).step()
    weight.requires_grad_(requires_grad=False)


def replaced_parameter(bundle: Bundle) -> None:
    layer(bundle).weight = nn.Parameter(layer(bundle).weight.detach() * 2, requires_grad=False)


def behind_torch(bundle: Bundle) -> None:
    layer(bundle).weight.data.mul_(2.0)


def through_numpy(bundle: Bundle) -> None:
    layer(bundle).weight.data.numpy()[:] *= 2


CHANGES: list[Change] = [
    in_place, other_data, loaded_state, assigned_state, optimizer_step, replaced_parameter, behind_torch,
    through_numpy,
]  # fmt: skip
change = pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)


@change
@PRECISION
@pytest.mark.parametrize("source", ["built", "loaded"])
def test_the_next_run_computes_with_what_was_changed(
    source: str, precision: str, change: Change, tmp_path: Path
) -> None:
    bundle = ch.build("llama", **SMALL_LLAMA)
    if source == "loaded":
        bundle.save(tmp_path)
        bundle = ch.load(tmp_path, precision=precision)
    else:
        bundle.prepare(precision)
    packed = inferred(bundle)
    change(bundle)
    changed = inferred(bundle)
    assert not torch.equal(changed, packed)
    # Exactly as the changed layer without a product, in an otherwise prepared model.
    layer(bundle).product = None
    assert torch.equal(inferred(bundle), changed)


def test_memory_that_is_given_out_again_is_not_taken_for_the_packed_one() -> None:
    """Freed and allocated again, every second one would have the same address; torch counts no write."""
    weight, x = nn.Parameter(torch.ones(64, 64), requires_grad=False), torch.ones(1, 64)
    bound = BoundProduct(FusedProduct(PlainFloat32(weight, None), [64]), 0, weight, None)
    assert bound.fits(x, weight, None)
    for _ in range(50):
        weight.data = weight.data * 2
        assert not bound.fits(x, weight, None)


def test_all_ways_to_run_a_bundle_look_for_changes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Of a single number in a mapped file, and of a weight in memory."""
    writer, reader = folder_of("gpt2", tmp_path), folder_of("bert", tmp_path)
    runs: dict[str, Callable[[Bundle], object]] = {
        "generate": lambda bundle: bundle.generate("the fox", max_new_tokens=2),
        "generate_ids": lambda bundle: bundle.generate_ids(torch.tensor([[5, 6]]), max_new_tokens=2),
        "stream": lambda bundle: list(bundle.stream("the fox", max_new_tokens=2)),
        "trace": lambda bundle: bundle.trace("the fox"),
        "call": lambda bundle: bundle(torch.tensor([[5, 6]])),
        "draft": lambda bundle: ch.load(writer).generate("the fox", max_new_tokens=3, assistant=bundle),
    }
    for name, run in runs.items():
        bundle = ch.load(writer, precision="int8")
        weight = bundle.model.tower.blocks[1].ff.up.weight
        assert all(are_as_in_file([weight]))
        weight.data[3, 2] += 1.0
        caplog.clear()
        run(bundle)
        assert [record.getMessage() for record in caplog.records] == [changed_line(1)], name
        caplog.clear()
        run(bundle)
        assert not caplog.records, "said once"
    for run in (lambda bundle: bundle.embed(["the fox"]), lambda bundle: bundle.predict("the [MASK]")):
        bundle = ch.load(reader, dtype="float64").prepare("int8")
        bundle.model.tower.blocks[1].ff.up.weight.data.mul_(3.0)
        caplog.clear()
        run(bundle)
        assert [record.getMessage() for record in caplog.records] == [changed_line(1)]


def changed_line(layers: int) -> str:
    return (
        f"the weights of {layers} layers changed after they were packed: these layers compute with the plain "
        f"weights; prepare the model again for speed"
    )


def test_a_run_that_finds_nothing_says_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ch.build("llama", **SMALL_LLAMA).save(tmp_path)
    for bundle in (ch.load(tmp_path, precision="int8"), ch.load(tmp_path).prepare("int8")):
        before = inferred(bundle)
        bundle.generate_ids(IDS, max_new_tokens=3)
        assert torch.equal(inferred(bundle), before) and not caplog.records
        with torch.no_grad():
            assert all(
                bound.fits(IDS, weight, bias) for _, bound, weight, bias in packed_layers(bundle.model)
            )


def test_a_change_before_it_was_packed_is_packed(tmp_path: Path) -> None:
    """Through `.data`, of which torch knows nothing, in a single row, of a model that was loaded from a file:
    `prepare` must not go back to the file."""
    ch.build("llama", **SMALL_LLAMA).save(tmp_path)
    unchanged = inferred(ch.load(tmp_path, precision="int8"))
    for precision in (None, "int8"):
        bundle = ch.load(tmp_path, precision=precision)
        layer(bundle).weight.data[5] = 3.0
        wanted = layer(bundle).weight.detach().clone()
        found = inferred(bundle.prepare("int8"))
        assert not torch.equal(found, unchanged) and torch.equal(layer(bundle).weight, wanted)
        # And a further change is seen.
        layer(bundle).weight.data.mul_(2.0)
        assert not torch.equal(inferred(bundle), found)


def test_a_wrapped_layer_is_computed_with_its_wrapper(tmp_path: Path) -> None:
    """As adapters do it: the layer is called inside, and more is added."""

    class Adapted(nn.Module):
        def __init__(self, inside: LinearLayer) -> None:
            super().__init__()
            self.inside = inside

        def forward(self, x: Tensor) -> Tensor:
            return self.inside(x) + x.sum(-1, keepdim=True)

    results = []
    for precision in (None, "float32"):
        bundle = ch.build("llama", **SMALL_LLAMA)
        if precision is not None:
            bundle.prepare(precision)
        for block in bundle.model.tower.blocks:
            block.attn.q, block.ff.up = Adapted(block.attn.q), Adapted(block.ff.up)
        results.append(inferred(bundle))
        assert not any(b.fused._pending[1] for _, b, _, _ in packed_layers(bundle.model))
    torch.testing.assert_close(*results, atol=1e-5, rtol=1e-5)


def test_moving_a_bundle_leaves_no_product_behind() -> None:
    bundle = ch.build("llama", **SMALL_LLAMA).prepare("int8").to("bfloat16")
    assert preparation(bundle.model) is None and not list(packed_layers(bundle.model))
    assert bundle.dtype == torch.bfloat16
    bundle.prepare("int8").to("float32")
    assert bundle.dtype == torch.float32 and inferred(bundle).dtype == torch.float32


def test_an_error_halfway_leaves_a_plain_model(monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = ch.build("llama", **SMALL_LLAMA).to("bfloat16")
    plain, made = inferred(bundle), []
    packed = preparing._product

    def failing(*args: Any) -> Product:
        made.append(packed(*args))
        if len(made) == 3:
            raise MemoryError
        return made[-1]

    monkeypatch.setattr(preparing, "_product", failing)
    with pytest.raises(MemoryError):
        bundle.prepare("int8")
    assert preparation(bundle.model) is None and torch.equal(inferred(bundle), plain)
    assert all(parameter.requires_grad for parameter in bundle.model.parameters())


def test_nothing_is_looked_for_in_a_plain_model() -> None:
    bundle = ch.build("llama", **SMALL_LLAMA)
    drop_stale_products(bundle.model)
    unprepare(bundle.model)
    assert preparation(bundle.model) is None

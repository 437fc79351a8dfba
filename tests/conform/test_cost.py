"""Cost by formula is cost by measurement: torch's own counter, what autograd keeps, what a cache holds.

Over every choice of the zoo and every family with every head. Nothing here names a family.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import zoo
from references import GOLDEN, REFERENCES
from safetensors import safe_open
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import (
    FlopCounterMode,
    flop_registry,
    sdpa_backward_flop_count,
    sdpa_flop_count,
    shape_wrapper,
)
from zoo import CHOICES, EVERY, OPEN, block, run, single

from clearhead import nn as cn
from clearhead.errors import SpecError, UnsupportedError
from clearhead.families import FAMILIES
from clearhead.lens.cost import Cost, cost
from clearhead.lens.cost.total import model_cost
from clearhead.nn.cost import CallShape
from clearhead.nn.embed import Embed
from clearhead.nn.feedforward import FeedForward
from clearhead.nn.heads import Head
from clearhead.nn.kernels import Tiled
from clearhead.nn.model import Model
from clearhead.nn.norm import Norm

BATCH, SOURCE, TARGET = 5, 9, 11
ATEN = torch.ops.aten


def cell_flops(x: Any, w: Any, u: Any, *_: Any, **__: Any) -> int:
    """An LSTM in one call: the gates of all tokens of `x` (L, B, D), by `w` (4 H, D) and `u` (4 H, H)."""
    return 2 * x[0] * x[1] * w[0] * (w[1] + u[1])


def cell_backward_flops(x: Any, w: Any, u: Any, *_: Any, **__: Any) -> int:
    """Two products for each; but before the first step there is nothing that learns."""
    return 2 * cell_flops(x, w, u) - 2 * x[1] * u[0] * u[1]


# torch counts the fused call of the graphics card, not that of the CPU: it is given the same formula. Of the
# fused LSTM it counts nothing; that this formula is right is tested below, with a loop of steps.
FUSED = {
    ATEN.mkldnn_rnn_layer: cell_flops,
    ATEN.mkldnn_rnn_layer_backward: cell_backward_flops,
    ATEN._scaled_dot_product_flash_attention_for_cpu: lambda q, k, v, *_, **__: sdpa_flop_count(q, k, v),
    ATEN._scaled_dot_product_flash_attention_for_cpu_backward: lambda *grad_q_k_v, **_: (
        sdpa_backward_flop_count(*grad_q_k_v[:4])
    ),
}


class Counter(TorchDispatchMode):
    """torch's own formulas, operation by operation.

    `FlopCounterMode` is these and a tracker of modules, which is slow and cannot follow a backward pass
    inside of a backward pass; that both count alike is tested below.
    """

    def __init__(self) -> None:
        super().__init__()
        self.flops = 0
        self._of = {**flop_registry, **{call: shape_wrapper(formula) for call, formula in FUSED.items()}}

    def __torch_dispatch__(self, call: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        answer = call(*args, **(kwargs or {}))
        formula = self._of.get(call._overloadpacket)
        if formula is not None:
            self.flops += formula(*args, **(kwargs or {}), out_val=answer)
        return answer


def families() -> dict[str, Model]:
    made = {}
    for name, reference in REFERENCES.items():
        config = reference.family.config(reference.config().to_dict())
        made[name] = reference.family.spec(config, reference.task)
    return made | golden()


def golden() -> dict[str, Model]:
    """Families that the installed package no longer has, with the configs of their golden tensors."""
    made = {}
    for family in (FAMILIES[name] for name in GOLDEN):
        file = Path(__file__).parents[1] / "golden" / f"{family.name.replace('-', '_')}.safetensors"
        with safe_open(file, "pt") as tensors:
            said = sorted(tensors.metadata().items())  # it has no order of its own
        configs = {name: family.config(json.loads(text)) for name, text in said}
        for name, config in configs.items():
            for task in family.architectures:
                made[f"{family.name}/{task}/{name}"] = family.spec(config, task)
    return made


# How a model begins costs nothing.
ALL = {name: spec for name, spec in EVERY.items() if not name.startswith("init/")} | families()
PLAIN = {name: spec.edit(cn.Tower, recompute=False) for name, spec in ALL.items()}


def call(spec: Model) -> CallShape:
    """Singles are called with the target alone."""
    length = SOURCE if isinstance(spec, cn.EncoderDecoder) else TARGET
    return CallShape(batch=BATCH, length=length, target=TARGET, training=True)


def of(spec: Model, *, training: bool = False) -> Cost:
    how = call(spec)
    return cost(spec, batch=BATCH, length=how.length, target=TARGET, training=training)


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    key = torch.Generator().manual_seed(0)
    return torch.randint(0, 30, (BATCH, SOURCE), generator=key), torch.randint(
        0, 30, (BATCH, TARGET), generator=key
    )


def made(spec: Model) -> torch.nn.Module:
    """Sizes are all that matters here; the weights are whatever stood in memory. Not those of a router: what
    is no number chooses no expert."""
    if zoo.has_experts(spec):
        return spec.build().train()
    return spec.empty().to_empty(device="cpu").train()


class Packed:
    """What autograd keeps: each storage once, and only if it is still there when it is asked for.

    A result that is detached at once had its inputs kept for a moment; nobody pays for those.
    """

    def __init__(self) -> None:
        self._seen: dict[StorageWeakRef, int] = {}

    def __enter__(self) -> "Packed":
        self._hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, lambda x: x)
        self._hooks.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._hooks.__exit__(*error)

    def _pack(self, x: torch.Tensor) -> torch.Tensor:
        self._seen[StorageWeakRef(x.untyped_storage())] = x.untyped_storage().nbytes()
        return x

    def bytes(self, but: set[int]) -> int:
        return still_there(self._seen, but)

    def storages(self) -> set[int]:
        return {ref.cdata for ref in self._seen if not ref.expired()}


def still_there(seen: dict[StorageWeakRef, int], but: set[int]) -> int:
    there = {ref.cdata: size for ref, size in seen.items() if not ref.expired()}
    return sum(size for where, size in there.items() if where not in but)


class Alive(TorchDispatchMode):
    """Every storage that is made meanwhile, without holding any; `bytes` are those still there."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[StorageWeakRef, int] = {}

    def __torch_dispatch__(self, call: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        answer = call(*args, **(kwargs or {}))
        for x in tree_leaves(answer):
            if isinstance(x, torch.Tensor):
                self._seen[StorageWeakRef(x.untyped_storage())] = x.untyped_storage().nbytes()
        return answer

    def bytes(self, but: set[int]) -> int:
        return still_there(self._seen, but)


def storages(*tensors: torch.Tensor) -> set[int]:
    return {x.untyped_storage()._cdata for x in tensors}


def held(spec: Model, said: Cost) -> int:
    """What is kept when the forward pass is over; a layer that is computed again comes on top later."""
    return said.activations - max(side.recomputed for side in model_cost(spec, call(spec)).towers.values())


def test_only_these_have_no_decoder() -> None:
    assert {name for name, spec in LONG.items() if not can_be_built(spec)} == NO_DECODERS


# Without their formulas parts are counted, which must come to the same. Not so kernels: LSH, which has no
# formula, is in all laws here, and fused calls are taken apart where there is no memory.
KINDS = [Embed, cn.Positions, Norm, FeedForward, Head, cn.TokenMixer]
COUNTED = [
    name
    for name in ALL
    if name.split("/")[0] in ("encoder", "decoder", "head")
    # oneDNN's LSTM is one call in which torch counts nothing; its formula is tested below.
    and not any(word in name for word in ("mixer-Recurrent", "mixer-both-ways", "mixed-mixers", "mixer-gru"))
]


def without_formulas(monkeypatch: pytest.MonkeyPatch, spec: Model) -> list[type]:
    dropped = []
    for base in KINDS:
        for kind in {type(node) for node in spec.nodes() if isinstance(node, base)} - {cn.Attention}:
            for one in kind.__mro__:
                if one is not base and issubclass(one, base) and "cost" in vars(one):
                    monkeypatch.delattr(one, "cost")
                    dropped.append(one)
    return dropped


@pytest.mark.parametrize("name", COUNTED)
def test_a_part_without_a_formula_is_counted(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = PLAIN[name]
    want, want_training = of(spec), of(spec, training=True)
    assert without_formulas(monkeypatch, spec)
    got, got_training = of(spec), of(spec, training=True)
    assert got.parts == want.parts
    assert (got.flops, got_training.training_flops) == (want.flops, want_training.training_flops)
    close = abs(got_training.activations / want_training.activations - 1)
    assert close < 0.05, (got_training.activations, want_training.activations)


SOME = [
    "encoder/order-post", "decoder/grouped", "pair/RelativeBuckets", "decoder/dropped", "head/factored",
    "encoder/RelativeWaves", "head/adaptive", "encoder/mixer-both-ways", "decoder/mixer-gru",
]  # fmt: skip


@pytest.mark.parametrize("name", SOME)
def test_our_counter_is_the_one_of_torch(name: str) -> None:
    model, texts = made(PLAIN[name]), inputs()
    with FlopCounterMode(display=False, custom_mapping=FUSED) as theirs, Counter() as ours:
        run(model, *texts).sum().backward()
    assert ours.flops == theirs.get_total_flops() > 0


@pytest.mark.parametrize(("length", "width", "hidden"), [(1, 6, 4), (7, 6, 4), (7, 4, 9)])
def test_a_fused_cell_is_counted_as_a_loop_of_its_steps(length: int, width: int, hidden: int) -> None:
    fused, cell = torch.nn.LSTM(width, hidden), torch.nn.LSTMCell(width, hidden)
    x = torch.zeros(length, BATCH, width, requires_grad=True)
    with Counter() as ours:
        fused(x)[0].sum().backward()
    with FlopCounterMode(display=False) as theirs:
        state, out = None, torch.zeros(())
        for step in x:
            state = cell(step, state)
            out = out + state[0].sum()
        out.backward()
    assert ours.flops == theirs.get_total_flops() > 0


@pytest.mark.parametrize("name", PLAIN)
def test_formulas_say_what_torch_counts_and_keeps(name: str) -> None:
    spec, texts = PLAIN[name], inputs()
    model, said = made(spec), of(spec, training=True)
    assert said.parts == spec.count_parts()
    with Counter() as count:
        with Packed() as kept:
            answer = run(model, *texts)
        true = kept.bytes(but=storages(*model.parameters(), *texts))
        assert said.flops == count.flops
        answer.sum().backward()
    assert said.training_flops == count.flops
    assert abs(held(spec, said) / true - 1) < 0.05, (held(spec, said), true)


# Encoders recompute as decoders do; theirs are run by `make proof`.
AGAIN = [pytest.param(n, marks=pytest.mark.proof) if n.startswith("encoder/") else n for n in PLAIN]


@pytest.mark.parametrize("name", AGAIN)
def test_recomputing_keeps_the_stream_and_computes_once_more(name: str) -> None:
    """Checkpointing hides what it holds from autograd's hooks, so storages that live on are counted."""
    spec, texts = PLAIN[name].edit(cn.Tower, recompute=True), inputs()
    model, said = made(spec), of(spec, training=True)
    with torch.no_grad():  # what a module draws in its first call and keeps is not of this call
        run(model, *(text[:1, :1] for text in texts))
    with Counter() as count:
        with Alive() as alive, Packed() as kept:
            answer = run(model, *texts)
        ours = storages(answer) - kept.storages()  # a head of logarithms keeps its answer itself
        true = alive.bytes(but=storages(*model.parameters(), *texts) | ours)
        answer.sum().backward()
    assert said.training_flops == count.flops
    assert 0 < held(spec, said) < said.activations
    assert abs(held(spec, said) / true - 1) < 0.05, (held(spec, said), true)


@pytest.mark.parametrize("name", [n for n in PLAIN if of(PLAIN[n]).cache])
def test_a_cache_holds_as_many_bytes(name: str) -> None:
    model, texts = made(PLAIN[name]).eval(), inputs()
    cache = model.cache()
    with torch.no_grad():
        run(model, *texts, cache=cache)
    kinds = [(layer.kv, layer.cross_kv, layer.state) for layer in cache.layers]
    held = [x for kept in kinds for tensors in kept for x in tensors or ()]
    assert of(PLAIN[name]).cache == sum(x.numel() * x.element_size() for x in held)


@pytest.mark.parametrize(("batch", "length"), [(5, 11), (1, 11), (5, 1)])
@pytest.mark.parametrize("both_ways", [False, True])
@pytest.mark.parametrize("hidden", [10, 70])
@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_wide_cells_keep_what_is_said(
    cell: str, hidden: int, both_ways: bool, batch: int, length: int
) -> None:
    """To the byte: what a narrow cell keeps is little beside all else, and 5 % would hide it."""
    mixer = cn.Recurrent(cell=cell, hidden=hidden, both_ways=both_ways)
    spec = single(positions=cn.NoPositions(), block=block(attention=mixer))
    model, ids = made(spec), torch.zeros(batch, length, dtype=torch.long)
    with Packed() as kept:
        answer = model(ids)
    true = kept.bytes(but=storages(*model.parameters(), ids))
    assert answer.requires_grad
    assert cost(spec, batch=batch, length=length, training=True).activations == true


LENGTH = 300
CUT = ("kernel-", "window", "mixer-")
LONG = {
    f"{name}/{'decoder' if causal else 'encoder'}": single(
        positions=cn.NoPositions(), causal=causal, **change
    )
    for name, change in CHOICES.items()
    if name.startswith(CUT)
    for causal in (False, True)
}
# A scheme that learns scores says something of every pair, of which a window needs few.
LONG |= {
    f"window-{type(scheme).__name__}/{'decoder' if causal else 'encoder'}": single(
        positions=scheme, causal=causal, **CHOICES["window"]
    )
    for scheme in (cn.RelativeBuckets(), cn.RelativeWaves())
    for causal in (False, True)
}
# Only for encoders: near tokens by tiles, and as many summaries as there are blocks.
LONG |= {
    f"{name}/encoder": single(**{"positions": cn.NoPositions(), **change})
    for name, change in OPEN.items()
    if name.startswith("block-summaries")
}
# Tiles of a few tokens are ten thousands of products here; larger ones are the same formula.
LONG |= {name: spec.edit(Tiled, tile=64) for name, spec in LONG.items() if "Tiled" in name}


# Kernels that look at all tokens at once, and so are for encoders alone.
NO_DECODERS = {
    f"{name}/decoder" for name in ("kernel-BigBird", "kernel-Linformer", "kernel-Nystrom", "mixer-Fourier")
}


def can_be_built(spec: Model) -> bool:
    try:
        spec.empty()
    except (SpecError, UnsupportedError):  # no kernel for decoders
        return False
    return True


@pytest.mark.parametrize("name", [name for name, spec in LONG.items() if can_be_built(spec)])
def test_long_texts_cost_what_is_said(name: str) -> None:
    """Kernels that cut a text into parts have more than one of them here."""
    spec, ids = LONG[name], torch.zeros(2, LENGTH, dtype=torch.long)
    model, said = made(spec), cost(spec, batch=2, length=LENGTH, training=True)
    with Counter() as count:
        with Packed() as kept:
            answer = model(ids)
        true = kept.bytes(but=storages(*model.parameters(), ids))
        assert said.flops == count.flops
        answer.sum().backward()
    assert said.training_flops == count.flops
    assert abs(said.activations / true - 1) < 0.05, (said.activations, true)

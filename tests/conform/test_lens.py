"""Laws of the lens: whatever a model is made of, it can be looked into, and looking changes nothing."""

import pytest
import torch
from tolerance import assert_close
from zoo import EVERY, VOCAB, ids, run

import clearhead as ch
from clearhead import nn as cn
from clearhead.lens import open_trace
from clearhead.lens.ablate import ablate
from clearhead.nn.kernels.softmax import Softmax
from clearhead.nn.model import Model

every = pytest.mark.parametrize("spec", EVERY.values(), ids=EVERY)
BOTH = {n: s for n, s in EVERY.items() if n.startswith(("decoder/", "pair/"))}
decoders = pytest.mark.parametrize("spec", BOTH.values(), ids=BOTH)
KINDS = {cn.SingleStack: ("self",), cn.EncoderDecoder: ("self", "decoder", "cross"),
         cn.SameInput: ("self", "decoder", "cross")}  # fmt: skip


@every
@torch.no_grad()
def test_the_answer_and_the_weights_are_those_of_the_model(spec: Model) -> None:
    """Bit-identical answers; the same weights at the tap, by layer, and head by head."""
    bundle, source, target = ch.build(spec), ids(1, 6), ids(1, 5, seed=1)
    trace = bundle.trace(source, target) if isinstance(spec, cn.EncoderDecoder) else bundle.trace(target)
    assert torch.equal(trace.answer, run(bundle.model, source, target)[0])
    assert trace.kinds == KINDS[type(spec)]
    record = cn.Recorder()
    run(bundle.model, source, target, tap=record.tap("*.pattern"))
    for kind in trace.kinds:
        for layer in range(trace.layers(kind)):
            if trace.address(kind, layer) not in trace.record.calls:  # mixed in another way
                assert f"{trace.address(kind, layer)}.pattern" not in record
                with pytest.raises(ch.errors.InputError, match="has no attention weights"):
                    trace.attention(kind, layer, 0)
                continue
            want = record[f"{trace.address(kind, layer)}.pattern"][0].float()
            if trace.address(kind, layer) in trace.record.virtual:
                whole, (rows, columns) = want, map(len, trace.sides(kind))
                want = whole[:, -rows:, -columns:]
                both = torch.cat([trace.virtual_attention(kind, layer), want], dim=-1)
                assert torch.equal(both, whole[:, -rows:])
            if (groups := trace.record.groups.get(trace.address(kind, layer))) is not None:
                _check_groups(trace.attention(kind, layer), want, *groups.tolist())
                want = trace.attention(kind, layer)
            assert_close(trace.attention(kind, layer), want, 1e-6)
            for head in range(trace.heads(kind)):
                assert_close(trace.attention(kind, layer, head), want[head], 1e-6)
            assert want[0].shape == tuple(map(len, trace.sides(kind)))


def _check_groups(shown: torch.Tensor, want: torch.Tensor, rows: list[int], columns: list[int]) -> None:
    """A token has the row of its group, and its share of the column; without a group it has zeros."""
    assert set(rows) - {-1} == set(range(want.shape[1])) and set(columns) - {-1} == set(range(want.shape[2]))
    for t, row in enumerate(rows):
        summed = torch.zeros_like(want[:, 0])
        for u, column in enumerate(columns):
            if column >= 0:
                summed[:, column] += shown[:, t, u]
            else:
                assert not shown[:, t, u].any()
        assert_close(summed, torch.zeros_like(summed) if row < 0 else want[:, row], 1e-6)


def _mixes(spec: Model) -> bool:
    """Whether some layer has no attention at all."""
    return any(not isinstance(n.attention, cn.Attention) for n in spec.nodes() if isinstance(n, cn.Block))


@decoders
@torch.no_grad()
def test_steps_lead_from_one_to_the_next(spec: Model) -> None:
    """q k' -> scores -> scaled -> masked -> weights -> mix, and the mix is the one the model used."""
    if any(type(n) is not Softmax for n in spec.nodes() if isinstance(n, cn.AttentionKernel)) or _mixes(spec):
        pytest.skip("only exact attention has scores; the weights of the others are in the law above")
    bundle, source, target = ch.build(spec, dtype=torch.float64), ids(1, 6), ids(1, 5, seed=1)
    trace = bundle.trace(source, target) if isinstance(spec, cn.EncoderDecoder) else bundle.trace(target)
    for kind in trace.kinds:
        mixed = trace.activation(f"{trace.address(kind, 1)}.mix")
        for head in (0, trace.heads(kind) - 1):
            seen = trace.steps(kind, 1, head)
            assert_close(seen.scores, seen.q_QE @ seen.k_KE.mT)
            sunk = seen.masked.new_full((len(seen.masked), int(seen.sink is not None)), seen.sink or 0.0)
            assert_close(torch.cat([seen.masked, sunk], -1).softmax(-1)[:, : len(seen.k_KE)], seen.weights)
            assert_close(seen.mix, mixed[head][-len(seen.mix) :])
            blocked = seen.masked.isinf()
            assert torch.equal(seen.masked[~blocked], seen.scaled[~blocked])


@decoders
@torch.no_grad()
def test_a_saved_trace_opens_to_the_same_numbers(spec: Model, tmp_path: object) -> None:
    bundle, source, target = ch.build(spec), ids(1, 6), ids(1, 5, seed=1)
    trace = bundle.trace(source, target) if isinstance(spec, cn.EncoderDecoder) else bundle.trace(target)
    again = open_trace(trace.save(f"{tmp_path}/a.safetensors"))
    assert again.tokens == trace.tokens and again.target_tokens == trace.target_tokens
    assert torch.equal(again.answer, trace.answer) and torch.equal(again.hidden(), trace.hidden())
    for kind in trace.kinds:
        for layer in range(trace.layers(kind)):
            if trace.address(kind, layer) in trace.record.calls:
                assert torch.equal(again.attention(kind, layer), trace.attention(kind, layer))
    with pytest.raises(ch.errors.InputError, match="opened from a file"):
        again.activation("tower.out")


@every
@torch.no_grad()
def test_a_trace_has_the_experts_of_every_token(spec: Model, tmp_path: object) -> None:
    """Those of the model, by layer and side, also from a file; a model without any says so in one line."""
    bundle, source, target = ch.build(spec), ids(1, 6), ids(1, 5, seed=1)
    trace = bundle.trace(source, target) if isinstance(spec, cn.EncoderDecoder) else bundle.trace(target)
    record = cn.Recorder()
    run(bundle.model, source, target, tap=record.tap("*.routing"))
    if not spec.has_experts:
        assert not record
        with pytest.raises(ch.errors.InputError, match="this model has no experts"):
            trace.routing()
        with pytest.raises(ch.errors.InputError, match="this model has no experts"):
            trace.draw("routing")
        return
    again = open_trace(trace.save(f"{tmp_path}/a.safetensors"))
    for side, tower in spec.tower_fields.items():
        assert trace.expert_layers(side) == again.expert_layers(side) == list(range(tower.depth))
        want = torch.stack([record[f"{side}.blocks.{i}.ff.routing"][0] for i in range(tower.depth)])
        assert torch.equal(trace.routing(side=side), want) and torch.equal(again.routing(side=side), want)
        assert torch.equal(trace.routing(-1, side), want[-1])
    with pytest.raises(ch.errors.InputError, match="there is no layer 9"):
        trace.routing(9)


@torch.no_grad()
def test_only_some_layers_have_experts() -> None:
    some = EVERY["decoder/experts-switch"]
    blocks = (EVERY["decoder/Learned"].tower.pattern[0], some.tower.pattern[0])
    trace = ch.build(some.edit(cn.Tower, block=blocks, depth=4)).trace(ids(1, 5))
    assert trace.expert_layers() == [1, 3] and trace.routing().shape == (2, 5, 2)
    with pytest.raises(ch.errors.InputError, match="layer 2 has no experts; layers with experts: 1, 3"):
        trace.routing(2)
    three = some.tower.pattern[0].edit(cn.Experts, count=3)
    mixed = ch.build(some.edit(cn.Tower, block=(three, some.tower.pattern[0]))).trace(ids(1, 5))
    assert mixed.routing(0).shape == (5, 3)
    with pytest.raises(ch.errors.InputError, match="different numbers of experts"):
        mixed.routing()


WORDS = ("head:1.2", "attn:1", "mlp:1", "residual:0", "norm:1", "scale", "positions")
CHANGED = {n: s for n, s in EVERY.items() if n.split("/")[-1] in ("Learned", "order-post", "order-parallel",
           "order-sandwich", "Rope", "Alibi", "grouped", "window", "shared-layers", "bert")}  # fmt: skip


@pytest.mark.parametrize("spec", CHANGED.values(), ids=CHANGED)
@torch.no_grad()
def test_every_part_can_be_switched_off_and_the_model_stays(spec: Model) -> None:
    model, source, target = spec.build(), ids(2, 6), ids(2, 5, seed=1)
    before = run(model, source, target)
    state = {name: x.clone() for name, x in model.state_dict().items()}
    sides = ("encoder", "decoder", "cross") if isinstance(spec, cn.EncoderDecoder) else ("tower",)
    words = [f"{side}.{word}" if ":" in word else word for word in WORDS for side in sides]
    words = [w for w in words if not w.startswith(("cross.attn", "cross.mlp", "cross.res", "cross.norm"))]
    causal = isinstance(spec, cn.EncoderDecoder) or spec.tower.causal
    for word in [*words, *(["mask"] if causal else [])]:
        assert not torch.equal(run(ablate(model, [word]), source, target), before), word
    assert torch.equal(run(model, source, target), before)
    assert all(torch.equal(x, state[name]) for name, x in model.state_dict().items())


@torch.no_grad()
def test_switching_off_means_what_it_says() -> None:
    """Each against the same thing done by hand, to the weights or to the spec."""
    spec = EVERY["decoder/Learned"]
    model, x = spec.build(dtype=torch.float64), ids(2, 7)
    width = 24 // 4

    def by_hand(name: str, change: object) -> torch.Tensor:
        other = spec.build(dtype=torch.float64)
        change(other.get_submodule(name))  # type: ignore[operator]
        return other(x)

    def mute_head(out: torch.nn.Linear) -> None:
        out.weight[:, 2 * width : 3 * width] = 0

    def mute(layer: torch.nn.Linear) -> None:
        layer.weight.zero_()
        layer.bias.zero_()

    assert_close(ablate(model, ["head:1.2"])(x), by_hand("tower.blocks.1.attn.out", mute_head))
    assert_close(ablate(model, ["attn:1"])(x), by_hand("tower.blocks.1.attn.out", mute))
    assert_close(ablate(model, ["mlp:0"])(x), by_hand("tower.blocks.0.ff.down", mute))
    assert_close(
        ablate(model, ["positions"])(x), by_hand("tower.positions", lambda p: p.table.weight.zero_())
    )
    for word, edit in (
        ("scale", {"kind": cn.Attention, "scale": 1.0}),
        ("mask", {"kind": cn.Tower, "causal": False}),
    ):
        other = spec.edit(edit.pop("kind"), **edit).build(dtype=torch.float64)
        assert_close(ablate(model, [word])(x), other(x))


@torch.no_grad()
def test_an_activation_becomes_what_was_set() -> None:
    model, x = EVERY["encoder/Learned"].build(dtype=torch.float64), ids(1, 7)
    site = "tower.blocks.0.ff.out"
    plain, other = cn.Recorder(), cn.Recorder()
    model(x, tap=plain.tap(site))
    model(ids(1, 7, seed=3), tap=other.tap(site))
    doubled = ablate(model, set={site: "x2"})
    seen = cn.Recorder()
    doubled(x, tap=seen.tap(site))
    assert_close(seen[site], 2 * plain[site])
    for value, want in (
        ("mean", plain[site].mean(1, keepdim=True).expand_as(plain[site])),
        (0.5, torch.full_like(plain[site], 0.5)),
        ("0.5", torch.full_like(plain[site], 0.5)),
        (other[site], other[site]),  # patched in from another text
        (lambda t: -t, -plain[site]),
    ):
        seen = cn.Recorder()
        ablate(model, set={site: value})(x, tap=seen.tap(site))
        assert_close(seen[site], want)
    with pytest.raises(ch.errors.InputError, match="cannot replace it"):
        ablate(model, set={site: torch.zeros(3, 3)})(x)


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("head:9.1", "2 layers, from 0 to 1"), ("head:1.9", "4 heads, from 0 to 3"), ("hed:1.1", "'head'"),
        ("head:1", "head:LAYER.HEAD"), ("mlp:1.2", "takes? no head"), ("encoder.head:1.1", "no encoder"),
        ("cross:1", "no decoder"), ("tower.blocks.1.ff.hiden", "tower.blocks.1.ff.hidden"),
    ],
)  # fmt: skip
def test_a_part_that_is_not_there_is_one_line(word: str, said: str) -> None:
    model = EVERY["decoder/Learned"].build()
    with pytest.raises(ch.errors.InputError, match=said):
        ablate(model, [word])
    with pytest.raises(
        ch.errors.InputError, match=r"use one of encoder\.head:0\.0, decoder\.head:0\.0, cross\.head:0\.0"
    ):
        ablate(EVERY["pair/Learned"].build(), ["head:0.0"])


@torch.no_grad()
def test_a_changed_model_still_decodes_and_a_cache_changes_nothing() -> None:
    model = ablate(EVERY["decoder/Rope"].build(dtype=torch.float64), ["head:0.1", "norm:1"])
    x, cache = ids(2, 8), model.cache()
    steps = [model(x[:, t : t + 1], cache=cache) for t in range(8)]
    assert_close(torch.cat(steps, dim=1), model(x))
    assert int(x.max()) < VOCAB

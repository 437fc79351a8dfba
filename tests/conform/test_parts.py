"""Laws of parts: what two models differ in, switched off part by part, over the choices of the core.

Oracles are taps that carry activations from one model into the other, and plain models whose weights are put
together from both.
"""

import re
from collections.abc import Callable

import pytest
import torch
import zoo
from matrix import combinations
from tolerance import assert_close
from torch import Tensor
from tunings import TUNINGS, Tuned, move, tuned
from zoo import ids, run

from clearhead import nn as cn
from clearhead.errors import ClearheadError, UnsupportedError
from clearhead.generate import Greedy, generate
from clearhead.generate import Prompt as GenerationPrompt
from clearhead.nn.model import Model
from clearhead.tune import (
    Bottleneck,
    Full,
    ModelPart,
    PairedModels,
    Prefix,
    Prompt,
    attach_tuning,
    merged_model,
    pair_models,
    part_energies,
    skip_layers,
    switch_off,
)
from clearhead.tune.head_slices import head_count, head_slices
from clearhead.tune.switching import HiddenKeys

MODELS = list(zoo.EVERY)
KINDS = ("lora", "dora", "ia3", "houlsby", "prefix", "prompt", "full", "layer")


def in_turn(turn: int) -> Callable[[str, str], bool]:
    """Each model with some of the tunings; each law takes others of them."""
    return lambda kind, name: (MODELS.index(name) + 2 * KINDS.index(kind) + turn) % (2 * len(KINDS)) == 0


CASES = [(k, n) for k in KINDS for n in MODELS]


def some(turn: int) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("kind", "name"), combinations(CASES, "{}-{}".format, in_turn(turn)))


def made_pair(kind: str, name: str) -> tuple[Tuned, PairedModels] | None:
    """A tuned model and the parts it differs in; None where the model takes no such tuning (test_tuning)."""
    try:
        made = tuned(zoo.EVERY[name], TUNINGS[kind])
        with torch.no_grad():
            run(made.model, ids(2, 6), ids(2, 5))
    except ClearheadError:
        return None
    return made, pair_models(made.base, made.model)


def same_bits(spec: Model, one: Tensor, two: Tensor) -> None:
    """Equal; an LSTM of torch rounds otherwise when its weights take no gradient."""
    if any(isinstance(node, cn.Recurrent) for node in spec.nodes()):
        assert_close(one, two)
    else:
        assert torch.equal(one, two)


def outer(paired: PairedModels) -> list[ModelPart]:
    return [part for part in paired.parts if part.layer is None or part.is_layer]


@some(0)
@torch.no_grad()
def test_all_off_is_the_base_and_none_off_the_tuned_model(kind: str, name: str) -> None:
    if (found := made_pair(kind, name)) is None:
        return
    made, paired = found
    inputs = ids(2, 6), ids(2, 5)
    base, after = run(made.base, *inputs), run(made.model, *inputs)
    assert paired.parts and not torch.equal(base, after)
    off = switch_off(paired, paired.parts)
    same_bits(made.spec, run(off.model, *inputs), base)
    assert off.spec == made.base.spec
    same_bits(made.spec, run(switch_off(paired, outer(paired)).model, *inputs), base)
    same_bits(made.spec, run(switch_off(paired, []).model, *inputs), after)
    # Both models are what they were.
    assert torch.equal(run(made.base, *inputs), base) and torch.equal(run(made.model, *inputs), after)


@some(1)
@torch.no_grad()
def test_a_layer_switched_off_is_that_layer_of_the_base(kind: str, name: str) -> None:
    """The oracle: the base's layer is fed with the stream of the tuned model, which continues from there.

    Not where layers pass on two streams or pooled ones, where something else of the tower differs, or where
    virtual tokens change what the first token is, or how many there are.
    """
    if (both := made_pair(kind, name)) is None or kind == "full":
        return
    made, paired = both
    layers = [part for part in paired.parts if part.is_layer]
    counting = (cn.DynamicNTK, cn.LongRope, cn.Longformer, cn.Chunks)
    by_number = any(isinstance(n, counting) or getattr(n, "first", "") == "apart" for n in made.spec.nodes())
    towers = [stack.spec for stack in made.model.stacks.values()]
    if any(t.residual != "plain" or t.pooling for t in towers) or (kind == "prefix" and by_number):
        return
    assert layers or kind in ("prompt", "ia3")
    inputs = ids(2, 6), ids(2, 5)
    for part in (*layers[:1], *layers[-1:]):
        try:
            found = run(switch_off(paired, [part]).model, *inputs)
        except UnsupportedError as error:  # a kernel that cannot hide keys from its heads
            assert kind == "prefix" and "a mask of any kind" in str(error)
            continue
        assert_close(found, through_layer_of_base(made, part, inputs))
        known = layer_outputs(made.model, inputs)
        skipped = skip_layers(switch_off(paired, [part]).model, known, part)
        same_bits(made.spec, run(skipped, *inputs), found)


def layer_outputs(model: cn.TransformerModel, inputs: tuple[Tensor, Tensor]) -> dict[str, Tensor]:
    record = cn.Recorder()
    run(model, *inputs, tap=record.tap("*.blocks.*.out"))
    return {name.removesuffix(".out"): x for name, x in record.items() if name.count(".") == 3}


def through_layer_of_base(made: Tuned, part: ModelPart, inputs: tuple[Tensor, Tensor]) -> Tensor:
    record = cn.Recorder()
    run(made.model, *inputs, tap=record.tap())
    before = f"{part.tower}.embed" if part.layer == 0 else f"{part.tower}.blocks.{part.layer - 1}.out"
    known = {before: record[before]}
    if "encoder.out" in record and part.tower == "decoder":
        known["encoder.out"] = record["encoder.out"]
    seen = cn.Recorder()

    def carry(address: str, x: Tensor) -> Tensor:
        x = known.get(address, x)
        return seen._keep(address, x)

    run(made.base, *inputs, tap=cn.Tap("*", carry))
    out = f"{part.address}.out"
    replaced = cn.Tap(out, lambda _, x: seen[out])
    return run(made.model, *inputs, tap=replaced)


ATTENTIONS = [
    "decoder/Learned", "decoder/Rope", "decoder/grouped", "decoder/one-key", "encoder/odd-sizes",
    "decoder/qk-norm", "decoder/qk-norm-each", "decoder/qk-norm-joint", "decoder/clipped", "decoder/sink",
    "decoder/window", "encoder/Alibi", "encoder/RelativeBuckets", "decoder/shared-layers", "decoder/pattern",
    "encoder/order-post", "decoder/order-parallel-shared", "pair/grouped", "pair/Learned", "encoder/no-bias",
]  # fmt: skip


@pytest.mark.parametrize("kind", ["lora", "ia3", "full"])
@pytest.mark.parametrize("name", ATTENTIONS)
@torch.no_grad()
def test_heads_switched_off_are_weights_put_together(kind: str, name: str) -> None:
    """The oracle: a plain model with keys for every head and weights for every layer, in which the rows and
    columns of the heads are those of the base."""
    made = tuned(zoo.EVERY[name], TUNINGS[kind])
    # Biases begin as zeros, which would hide mistakes.
    move(made.base, tuple(n for n, _ in made.base.named_parameters() if n.endswith("bias")), 0.5)
    paired = pair_models(made.base, made.model)
    heads = [part for part in paired.parts if part.head is not None]
    assert heads
    merged = merged_model(made.model, attach_tuning(made.base, TUNINGS[kind]).tuning)
    inputs = ids(2, 6), ids(2, 5)
    first = next(part for part in paired.parts if part.is_sublayer and heads[0].is_in(part))
    whole = [head for head in heads if head.is_in(first)]
    for chosen in ([heads[1]], heads[1::3], whole):
        oracle = with_heads_of(made.base, merged, chosen)
        assert_close(run(switch_off(paired, chosen).model, *inputs), run(oracle, *inputs))
    if kind == "lora":  # nothing else in it differs: it is the sub-layer of the base, bit for bit
        found, wanted = (run(switch_off(paired, off).model, *inputs) for off in (whole, [first]))
        assert torch.equal(found, wanted)


def with_heads_of(
    base: cn.TransformerModel, merged: cn.TransformerModel, heads: list[ModelPart]
) -> cn.TransformerModel:
    spec = base.spec.edit(cn.Attention, kv_heads=None).edit(cn.Tower, distinct=None)
    oracle = spec.build(dtype=torch.float64)
    states = [expanded(model) for model in (base, merged)]
    for part in heads:
        attention = oracle.get_submodule(f"{part.tower}.blocks.{part.layer}.{part.step}")
        for name in ("q", "k", "v", "out"):
            width = attention.value_dim if name in ("v", "out") else attention.head_dim
            own = slice(part.head * width, (part.head + 1) * width)
            for end in ("weight", "bias"):
                key = f"{part.tower}.blocks.{part.layer}.{part.step}.{name}.{end}"
                if key in states[1] and (name != "out" or end == "weight"):
                    at = (slice(None), own) if name == "out" else own
                    states[1][key][at] = states[0][key][at]
    oracle.load_state_dict(states[1])
    return oracle


def expanded(model: cn.TransformerModel) -> dict[str, Tensor]:
    """The weights with keys and values for every head."""
    state = {name: x.clone() for name, x in model.state_dict().items()}
    for path, module in model.named_modules(remove_duplicate=False):
        if isinstance(module, cn.MultiHead):
            each = module.out.in_features // module.value_dim // module.cached_sizes[0]
            for name in list(state):
                inside = name.removeprefix(f"{path}.")
                if name == inside or not inside.startswith(("k.", "v.", "k_norm.")) or each == 1:
                    continue
                if inside.startswith("k_norm.") and not module.norm_first:
                    continue  # shared by all heads
                groups = state[name].reshape(module.cached_sizes[0], -1, *state[name].shape[1:])
                state[name] = groups.repeat_interleave(each, 0).flatten(0, 1)
            if isinstance(module.k_norm, torch.nn.ModuleList):
                norms = [state.pop(f"{path}.k_norm.{i}.weight") for i in range(len(module.k_norm))]
                for i in range(len(norms) * each):
                    state[f"{path}.k_norm.{i}.weight"] = norms[i // each]
    return state


MORE_ATTENTIONS = ["decoder/latent", "encoder/own-globals", "decoder/waves-in-halves",
                   "encoder/distances-of-the-layer", "encoder/block-summaries"]  # fmt: skip


@pytest.mark.parametrize("name", [*ATTENTIONS, *MORE_ATTENTIONS])
@torch.no_grad()
def test_a_change_of_one_head_is_named_by_its_effect(name: str) -> None:
    """Queries and columns of out are of one head; off, the model is the base, and others change nothing."""
    made = tuned(zoo.EVERY[name], Full())
    base = made.base
    for n, p in made.model.named_parameters():
        p.copy_(base.get_parameter(n))
    path, attention = [(n, m) for n, m in made.model.named_modules() if isinstance(m, cn.MultiHead)][-1]
    head = head_count(attention) - 2
    for layer, cut in head_slices(attention).items():
        if layer in ("q", "out"):
            own = slice(head * cut.width, (head + 1) * cut.width)
            weight = attention.get_submodule(layer).weight
            weight[own if cut.axis == "rows" else (slice(None), own)] *= 1.5
    paired = pair_models(base, made.model)
    inputs = ids(2, 6), ids(2, 5)
    before, after = run(base, *inputs), run(made.model, *inputs)
    assert not torch.equal(before, after)
    number = int(path.split(".")[2])
    stack = made.model.stacks[path.split(".")[0]]
    shared = [i for i, w in enumerate(stack.weights_of_layers) if w == stack.weights_of_layers[number]]
    energies = part_energies(paired)
    parts = [part for part in paired.parts if part.head is not None and part.step == path.split(".")[-1]]
    for part in parts:
        found = run(switch_off(paired, [part]).model, *inputs)
        changed = part.head == head and part.layer in shared and part.tower == path.split(".")[0]
        assert (energies[part.address] is not None) == changed, part
        if not changed:
            assert_close(found, after)
        elif len(shared) == 1:
            assert_close(found, before)
        else:
            assert (found - after).abs().max() > 1e-6
    mine = [part for part in parts if part.head == head]
    assert_close(run(switch_off(paired, mine).model, *inputs), before)


@torch.no_grad()
def test_keys_that_heads_share_change_all_of_them_and_no_others() -> None:
    made = tuned(zoo.EVERY["decoder/grouped"], Full())
    for n, p in made.model.named_parameters():
        p.copy_(made.base.get_parameter(n))
    attention = made.model.tower.blocks[1].attn
    attention.k.weight[: attention.head_dim] *= 1.5  # of the first group: heads 0 and 1
    paired = pair_models(made.base, made.model)
    parts = {part.head: part for part in paired.parts if part.head is not None}
    inputs = ids(2, 6), ids(2, 5)
    before, after = run(made.base, *inputs), run(made.model, *inputs)
    energies = part_energies(paired)
    for head, part in parts.items():
        found = run(switch_off(paired, [part]).model, *inputs)
        assert ((found - after).abs().max() > 1e-6) == (head < 2)
        assert (energies[part.address] is not None) == (head < 2)
    assert_close(run(switch_off(paired, [parts[0], parts[1]]).model, *inputs), before)


@some(2)
@torch.no_grad()
def test_energy_is_that_of_merged_weights(kind: str, name: str) -> None:
    if (found := made_pair(kind, name)) is None:
        return
    made, paired = found
    energies = part_energies(paired)
    if isinstance(TUNINGS[kind], Bottleneck | Prefix | Prompt):
        inside = [energies[part.address] for part in paired.parts if part.layer is not None]
        assert not any(inside)
        return
    merged = made.model
    if not isinstance(TUNINGS[kind], Full):
        merged = merged_model(made.model, attach_tuning(made.base, TUNINGS[kind]).tuning)
    for part in paired.parts:
        wanted = naive_energy(made.base, merged, part)
        assert energies[part.address] == (None if wanted is None else pytest.approx(wanted, rel=1e-9)), part


def naive_energy(base: cn.TransformerModel, merged: cn.TransformerModel, part: ModelPart) -> float | None:
    """The norm of the difference of the weights of a part by that of the weights, from lists of tensors."""
    one, two = (dict(model.named_parameters(remove_duplicate=False)) for model in (base, merged))
    if part.head is None:
        inside = f"{part.address}_" if part.step else f"{part.address}."
        norms = [
            n for n in one if n.startswith(inside) and re.match(r"\w+\.blocks\.\d+\.\w+_(norm|after)\.", n)
        ]
        same = {n.rpartition(".")[0] for n in norms}
        same -= {n.rpartition(".")[0] for n in norms if not torch.equal(one[n], two[n])}
        names = [
            n for n in one if n.startswith((f"{part.address}.", inside)) and n.rpartition(".")[0] not in same
        ]
        pairs = [(one[name], two[name]) for name in names]
    else:
        path = part.address.rpartition(".heads.")[0]
        attention = base.get_submodule(path)
        pairs = []
        for name, cut in head_slices(attention).items():
            group = part.head * cut.groups // head_count(attention)
            own = slice(group * cut.width, (group + 1) * cut.width)
            for end in ("weight", "bias") if cut.axis == "rows" else ("weight",):
                if f"{path}.{name}.{end}" in one:
                    at = own if cut.axis == "rows" else (slice(None), own)
                    pairs.append(tuple(model[f"{path}.{name}.{end}"][at] for model in (one, two)))
    change, own = (sum(float(x.square().sum()) for x in xs) ** 0.5
                   for xs in ([b - a for a, b in pairs], [a for a, _ in pairs]))  # fmt: skip
    return change / own or None if own else None


@pytest.mark.parametrize("name", ["decoder/Rope", "encoder/Alibi", "decoder/grouped", "pair/NoPositions"])
@torch.no_grad()
def test_hidden_virtual_tokens_are_no_tokens(name: str) -> None:
    """Hidden from every head of every layer, where it does not matter at which position a text begins."""
    spec = zoo.EVERY[name].edit(cn.Tower, positions=cn.Rope())
    made = tuned(spec, Prefix(length=3))
    paired = pair_models(made.base, made.model)
    inputs = ids(2, 6), ids(2, 5)
    base = run(made.base, *inputs)
    attn = [part for part in paired.parts if part.is_sublayer]
    # All but the last sub-layer by masks; that of the last is taken away.
    hidden = switch_off(paired, attn[:-1]).model
    assert any(isinstance(stack.virtual, cn.PrefixModule) for stack in hidden.stacks.values())
    for stack in hidden.stacks.values():
        if isinstance(stack.virtual, cn.PrefixModule):
            for names in (stack.virtual.keys, stack.virtual.values):
                assert len(names) == len(stack.blocks)
    whole = switch_off(paired, attn).model
    assert torch.equal(run(whole, *inputs), base)
    heads = [part for part in paired.parts if part.head is not None]
    tower, layer, step = attn[-1].tower, attn[-1].layer, attn[-1].step
    last = [p for p in heads if (p.tower, p.layer, p.step) == (tower, layer, step)]
    by_head = switch_off(paired, [*attn[:-1], *last[:-1]]).model
    found, before = run(by_head, *inputs), run(hidden, *inputs)
    assert not torch.allclose(found, before) and not torch.allclose(found, base)
    # The mask alone, without taking anything away, gives the base as well.
    for stack in by_head.stacks.values():
        if getattr(stack.virtual, "hidden", None):
            for key, off_H in stack.virtual.hidden.items():
                stack.virtual.hidden[key] = torch.ones_like(off_H)
    assert_close(run(by_head, *inputs), base)


def test_a_mask_of_heads_hides_keys_from_these_alone() -> None:
    mask = HiddenKeys(torch.tensor([[True, False, False]]), torch.tensor([True, False]))
    b, q, k = (
        torch.zeros(1, 1, 1, 1).long(),
        torch.arange(2)[None, None, :, None],
        torch.arange(3)[None, None, None],
    )
    allowed = mask.allows(b, torch.zeros_like(b), q, k)
    assert allowed.expand(1, 2, 2, 3)[0].tolist() == [[[False, True, True]] * 2, [[True] * 3] * 2]


DECODING = [
    ("lora", "decoder/grouped"), ("full", "decoder/one-key"), ("lora", "decoder/latent"),
    ("houlsby", "decoder/Rope"), ("prefix", "decoder/Rope"), ("prefix", "decoder/grouped"),
    ("lora", "pair/grouped"), ("full", "decoder/qk-norm-each"), ("ia3", "decoder/shared-layers"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "name"), DECODING)
@torch.no_grad()
def test_a_model_with_parts_off_decodes_with_a_cache(kind: str, name: str) -> None:
    made = tuned(zoo.EVERY[name], TUNINGS[kind])
    paired = pair_models(made.base, made.model)
    heads = [part for part in paired.parts if part.head is not None] or list(paired.parts)
    model = switch_off(paired, heads[1::3]).model.eval()
    source, target = ids(2, 6), ids(2, 10)
    whole = run(model, source, target)
    cache = model.cache(None)
    parts = [run(model, source, new, cache=cache) for new in target.split([6, 1, 3], 1)]
    assert_close(torch.cat(parts, dim=1), whole)
    if name.startswith("decoder/"):  # a row with padding on its left is what it is alone
        real = torch.ones(2, 10).long()
        real[1, :4] = 0
        padded = run(model, source, target, mask=real)
        assert_close(padded[1:, 4:], run(model, source[1:], target[1:, 4:]))
    start = torch.full((2, 1), 2) if name.startswith("pair/") else None
    prompt = GenerationPrompt(ids(2, 5), None, start)
    answers = generate(model, prompt, strategy=Greedy(), limit=12).finish()
    assert all(len(best[0].ids) for best in answers)


@torch.no_grad()
def test_models_of_other_frames_are_refused_in_one_line() -> None:
    base = zoo.EVERY["decoder/Learned"]
    others = {
        "3 layers": base.edit(cn.Tower, depth=3),
        "other ways": base.edit(cn.Block, order="post"),
        "one has tower": zoo.EVERY["pair/Learned"],
    }
    for words, spec in others.items():
        with pytest.raises(ClearheadError, match=words):
            pair_models(base.build(), spec.build())


@torch.no_grad()
def test_two_models_of_one_kind_differ_where_they_differ() -> None:
    """Without any tuning: another embedding, another attention, another feed-forward layer."""
    spec = zoo.EVERY["decoder/Rope"]
    one, two = spec.build(dtype=torch.float64), spec.build(dtype=torch.float64)
    assert pair_models(one, two).parts == ()
    two.tower.embed.table.weight.mul_(1.1)
    two.tower.blocks[1].ff.up.bias.add_(0.1)
    names = [part.address for part in pair_models(one, two).parts]
    assert names == ["tower.embed", "tower.blocks.1", "tower.blocks.1.ff"]
    swapped = spec.edit(cn.Attention, kernel=cn.Linear()).build(dtype=torch.float64)
    swapped.load_state_dict(one.state_dict(), strict=False)
    paired = pair_models(one, swapped)
    assert [part.address for part in paired.parts if part.is_sublayer] == [
        "tower.blocks.0.attn",
        "tower.blocks.1.attn",
    ]
    inputs = ids(2, 6), ids(2, 5)
    half = switch_off(paired, [part for part in paired.parts if part.layer == 0]).model
    assert isinstance(half.tower.blocks[0].attn.kernel, type(one.tower.blocks[0].attn.kernel))
    assert isinstance(half.tower.blocks[1].attn.kernel, type(swapped.tower.blocks[1].attn.kernel))
    assert bool(run(half, *inputs).isfinite().all())


def test_every_layer_of_an_attention_is_cut_into_heads_or_serves_all() -> None:
    """A linear layer that a new attention brings must be listed, or be among those that serve all heads."""
    specs = {n for spec in zoo.EVERY.values() for n in spec.nodes() if isinstance(n, cn.Attention)}
    assert len(specs) > 20
    for spec in specs:
        with torch.device("meta"):
            module = spec.build(zoo.WIDTH)
        linear = {n for n, child in module.named_children() if isinstance(child, cn.LinearLayer)}
        cut = head_slices(module)
        assert linear - set(cut) <= {"q_down", "kv_down"}
        for n, each in cut.items():
            size = module.get_submodule(n).weight.shape[0 if each.axis == "rows" else 1]
            assert each.groups * each.width == size and head_count(module) % each.groups == 0

"""Laws of tuning: every tuning over every choice of the core.

A part of the table in every run, in which every model and every tuning is met; the whole in `make proof`.
"""

import itertools
import json

import pytest
import torch
import zoo
from matrix import combinations
from replaying import AT_ONCE, OFF, replayed
from tolerance import assert_close
from tunings import CASES, POSSIBLE, SILENT, TUNINGS, Tuned, attached, move, refusal, tuned
from zoo import DECODERS, PAIRS, VOCAB, has_no_effect, ids, run

from clearhead import nn as cn
from clearhead.errors import ClearheadError, UnsupportedError
from clearhead.generate import Greedy, generate
from clearhead.generate import Prompt as GenerationPrompt
from clearhead.spec import Spec
from clearhead.tune import (
    IA3,
    Bottleneck,
    Full,
    Lora,
    Prefix,
    Prompt,
    SharedAdapters,
    TunedModel,
    attach_tuning,
    merged_model,
)

MODELS = list(zoo.EVERY)
GENERATIVE = {f"decoder/{n}" for n in DECODERS} | {f"pair/{n}" for n in PAIRS}


def in_turn(kind: str, name: str) -> bool:
    """One tuning for every model, others for its neighbours."""
    possible = POSSIBLE[name]
    return possible.index(kind) == MODELS.index(name) % len(possible)


every = pytest.mark.parametrize(("kind", "name"), combinations(CASES, "{}-{}".format, in_turn))
generative = pytest.mark.parametrize(
    ("kind", "name"), combinations([c for c in CASES if c[1] in GENERATIVE], "{}-{}".format, in_turn)
)


def test_every_tuning_and_every_model_is_met_in_every_run() -> None:
    met = [case for case in CASES if in_turn(*case)]
    assert {kind for kind, _ in met} == set(TUNINGS) and {name for _, name in met} == set(MODELS)


@pytest.mark.parametrize(
    ("kind", "name"),
    [case for case in itertools.product(TUNINGS, MODELS) if refusal(case[0], zoo.EVERY[case[1]])],
)
def test_what_a_model_cannot_have_is_refused_in_one_line(kind: str, name: str) -> None:
    why = refusal(kind, zoo.EVERY[name])
    assert why is not None
    with pytest.raises(ClearheadError, match=why):
        attach_tuning(zoo.EVERY[name].build(), TUNINGS[kind])


@every
@torch.no_grad()
def test_it_begins_as_its_base_over_the_same_memory(kind: str, name: str) -> None:
    made = attached(zoo.EVERY[name], TUNINGS[kind])
    plain, answer = (run(model, ids(2, 6), ids(2, 5)) for model in (made.base, made.model))
    if kind in SILENT:
        assert torch.equal(answer, plain)
    else:
        assert bool(answer.isfinite().all()) and not torch.equal(answer, plain)
    base = dict(made.base.named_parameters())
    for p_name, p in made.model.named_parameters():
        assert p.requires_grad == (p_name in made.trained)
        if p_name in base:
            assert (p.data_ptr() == base[p_name].data_ptr()) == (p_name not in made.trained)
    assert made.spec == made.model.spec and Spec.from_dict(json.loads(json.dumps(made.spec.to_dict())))


@every
def test_what_learns_gets_gradient_and_the_base_stays(kind: str, name: str) -> None:
    made = tuned(zoo.EVERY[name], TUNINGS[kind])
    before = {n: p.detach().clone() for n, p in made.base.named_parameters()}
    target = torch.arange(44).reshape(2, 22) % VOCAB
    source = target.flip(1)
    with torch.no_grad():
        plain = run(made.base, source, target)
    learning = [made.model.get_parameter(n) for n in made.trained]
    optimizer = torch.optim.AdamW(learning, lr=1e-2)
    answer = run(made.model, source, target)
    weights = torch.randn(answer.shape, dtype=answer.dtype, generator=torch.Generator().manual_seed(1))
    loss = (answer * weights).sum()
    if isinstance(made.spec, cn.SingleStack) and made.spec.second:
        second = made.model.read_second(made.model.states(target))
        loss = loss + (second * weights.flatten()[: second.numel()].reshape(second.shape)).sum()
    loss.backward()
    for n, p in made.model.named_parameters():
        if n not in made.trained:
            assert p.grad is None, n
        elif not may_rest(made, n):
            assert p.grad is not None and p.grad.abs().max() > 1e-9, f"{n} gets no gradient"
    optimizer.step()
    assert all(torch.equal(p, before[n]) for n, p in made.base.named_parameters())
    with torch.no_grad():
        assert torch.equal(run(made.base, source, target), plain)


def may_rest(made: Tuned, name: str) -> bool:
    """Parameters of the model itself without effect on this call, and those of experts without a token."""
    if ".experts." in name:
        return True
    if name not in dict(made.base.named_parameters()):
        return False
    aside = name.endswith((".types.weight", "tasks.weight", ".balance"))
    return aside or has_no_effect(made.spec, name)


@every
@torch.no_grad()
def test_merged_says_what_unmerged_said(kind: str, name: str) -> None:
    made = tuned(zoo.EVERY[name], TUNINGS[kind])
    record = attach_tuning(made.base, TUNINGS[kind]).tuning
    before = {n: p.detach().clone() for n, p in made.base.named_parameters()}
    if isinstance(TUNINGS[kind], Bottleneck | Prefix | Prompt):
        with pytest.raises(UnsupportedError, match="cannot be merged"):
            merged_model(made.model, record)
        return
    merged = merged_model(made.model, record)
    assert {n: p.shape for n, p in merged.named_parameters()} == {n: p.shape for n, p in before.items()}
    answer = run(made.model, ids(2, 6), ids(2, 5))
    assert_close(run(merged, ids(2, 6), ids(2, 5)), answer)
    assert not torch.equal(run(made.base, ids(2, 6), ids(2, 5)), answer)
    assert all(torch.equal(p, before[n]) for n, p in made.base.named_parameters())


@every
@torch.no_grad()
def test_watching_changes_nothing_and_every_site_exists(kind: str, name: str) -> None:
    made, record = tuned(zoo.EVERY[name], TUNINGS[kind]), cn.Recorder()
    plain = run(made.model, ids(2, 5), ids(2, 4))
    watched = run(made.model, ids(2, 5), ids(2, 4), tap=record.tap())
    assert torch.equal(plain, watched)
    assert set(record) == set(cn.sites(made.model))


@every
@torch.no_grad()
def test_left_right_and_no_padding_agree(kind: str, name: str) -> None:
    made = tuned(zoo.EVERY[name], TUNINGS[kind])
    source, target = ids(1, 6), ids(1, 5)
    alone = run(made.model, source, target)
    for left in (0, 3):
        s, s_real = padded(source, left, 3 - left)
        t, t_real = padded(target, left, 3 - left)
        masks = {"src_mask": s_real, "tgt_mask": t_real}
        if made.spec.inputs == 1:
            masks = {"mask": t_real}
        answer = run(made.model, s, t, **masks)
        if answer.ndim == 3:  # one answer per token
            answer = answer[:, left : left + 5]
        assert_close(answer[1:], alone)


def padded(x: torch.Tensor, left: int, right: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A batch of a full row of noise and the padded `x`; the padding holds noise as well."""
    batch = ids(2, left + x.shape[1] + right, seed=7)
    real = torch.ones_like(batch)
    batch[1, left : left + x.shape[1]] = x[0]
    real[1, :left], real[1, left + x.shape[1] :] = 0, 0
    return batch, real


@generative
@torch.no_grad()
def test_cached_packed_and_whole_texts_agree(kind: str, name: str) -> None:
    model = tuned(zoo.EVERY[name], TUNINGS[kind]).model
    source, target = ids(2, 6), ids(2, 10)
    whole = run(model, source, target)
    cache = model.cache(None)
    parts = [run(model, source, new, cache=cache) for new in target.split([7, 1, 2], 1)]
    assert_close(torch.cat(parts, dim=1), whole)
    if counts_slots(model):
        with pytest.raises(UnsupportedError, match="packed texts share a prefix"):
            packed_and_alone(name, model, source, target)
    else:
        packed, alone = packed_and_alone(name, model, source, target)
        assert_close(packed, alone)


def counts_slots(model: torch.nn.Module) -> bool:
    """Whether a prefix stands before packed texts for a kernel that counts the tokens between."""
    kernels = cn.Longformer | cn.Chunks
    virtual = [(t.virtual, t.nodes()) for t in model.spec.towers.values()]
    return any(
        isinstance(kind, cn.PrefixTokens) and any(isinstance(n, kernels) for n in nodes)
        for kind, nodes in virtual
    )


def packed_and_alone(
    name: str, model: torch.nn.Module, source: torch.Tensor, target: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """What two texts in one row give, and what each gives alone."""
    t_doc = cn.Documents(torch.tensor([[0] * 4 + [1] * 6] * 2))
    if not name.startswith("pair/"):
        alone = [model(part) for part in target.split([4, 6], 1)]
        return model(target, t_doc), torch.cat(alone, dim=1)
    s_doc = cn.Documents(torch.tensor([[0] * 2 + [1] * 4] * 2))
    pairs = zip(source.split([2, 4], 1), target.split([4, 6], 1), strict=True)
    return model(source, target, s_doc, t_doc), torch.cat([model(*pair) for pair in pairs], dim=1)


@generative
def test_a_replayed_step_is_a_step(kind: str, name: str) -> None:
    model = tuned(zoo.EVERY[name], TUNINGS[kind], torch.float32).model.eval()
    found = []
    for mode in (OFF, AT_ONCE):
        with replayed(mode):
            start = torch.full((3, 1), 2) if name.startswith("pair/") else None
            prompt = GenerationPrompt(ids(3, 5), None, start)
            answers = generate(model, prompt, strategy=Greedy(), limit=12).finish()
            found.append([(a.ids, a.logprobs) for each in answers for a in each])
    assert found[0] == found[1]


@every
def test_checkpointed_gradients_equal_plain_ones(kind: str, name: str) -> None:
    gradients = []
    for recompute in (False, True):
        made = tuned(zoo.EVERY[name].edit(cn.Tower, recompute=recompute), TUNINGS[kind])
        run(made.model, ids(2, 5), ids(2, 6)).square().sum().backward()
        gradients.append({n: made.model.get_parameter(n).grad for n in made.trained})
    for n, one in gradients[0].items():
        assert (one is None) == (gradients[1][n] is None), n
        if one is not None:
            assert_close(one, gradients[1][n])


@every
def test_half_precision_learns_in_float32(kind: str, name: str) -> None:
    """What is added to a bfloat16 model is float32; parameters of its own stay what they are."""
    made = tuned(zoo.EVERY[name], TUNINGS[kind], torch.bfloat16)
    answer = run(made.model, ids(2, 5), ids(2, 6))
    assert answer.dtype == torch.bfloat16 and bool(answer.isfinite().all())
    answer.float().square().sum().backward()
    own = dict(made.base.named_parameters())
    for n in made.trained:
        assert made.model.get_parameter(n).dtype == (torch.bfloat16 if n in own else torch.float32), n


BY_ROW = {
    "lora": Lora(rank=3, alpha=5),
    "dora": Lora(rank=2, variant="dora", targets="*.attn"),
    "ia3": IA3(targets="all-linear", feedforward=()),
    "principal": Lora(rank=1, start="principal", targets="*.ff"),
    "inputs": IA3(targets=(), feedforward="*.ff"),
    "prompt": Prompt(length=2),
    "layer": Full(targets="*.blocks.0"),
}


@pytest.mark.parametrize("name", sorted(GENERATIVE))
@torch.no_grad()
def test_rows_with_adapters_of_their_own_are_each_as_alone(name: str) -> None:
    """What learns in linear layers shares a batch; the other adapters do not, and say so."""
    base = zoo.EVERY[name].build(dtype=torch.float64)
    made: dict[str, TunedModel] = {}
    for kind, tuning in BY_ROW.items():
        try:
            made[kind] = attach_tuning(base, tuning)
        except ClearheadError:
            assert kind == "prompt" or not any(isinstance(n, cn.Attention) for n in zoo.EVERY[name].nodes())
            continue
        move(made[kind].model, made[kind].tuning.trained)
    shared = SharedAdapters(base, made)
    assert not {"prompt", "layer"} & set(shared.names)
    rows = [*shared.names, None, *reversed(shared.names)]
    model = shared.model_of(rows)
    source, target = ids(len(rows), 6), ids(len(rows), 5)
    together = run(model, source, target)
    cache = model.cache(None)
    run(model, source, target[:, :3], cache=cache)
    order = torch.arange(len(rows)).flip(0)
    cache.reorder(order)
    model.row_order.reorder(order)
    later = run(model, source.flip(0), target.flip(0)[:, 3:], cache=cache)
    for i, row in enumerate(rows):
        alone = run(base if row is None else made[row].model, source[i : i + 1], target[i : i + 1])
        assert_close(together[i : i + 1], alone)
        assert_close(later[len(rows) - 1 - i][None], alone[:, 3:])


def test_the_number_of_numbers_is_that_of_the_formula() -> None:
    """LoRA: rank (inputs + outputs) for every layer; one length for each output more for DoRA."""
    spec = DECODERS["Rope"] if "Rope" in DECODERS else next(iter(DECODERS.values()))
    base = spec.build()
    layers = [m for n, m in base.named_modules() if isinstance(m, cn.LinearLayer) and ".blocks." in n]
    both = sum(sum(layer.weight.shape) for layer in layers)
    outputs = sum(len(layer.weight) for layer in layers)
    assert attach_tuning(base, Lora(rank=5)).tuning.trainable == 5 * both
    assert attach_tuning(base, Lora(rank=5, variant="dora")).tuning.trainable == 5 * both + outputs
    assert attach_tuning(base, IA3(targets="all-linear", feedforward=())).tuning.trainable == outputs
    assert attach_tuning(base, Full()).tuning.trainable == sum(p.numel() for p in base.parameters())


@pytest.mark.parametrize("kind", TUNINGS)
def test_a_tuning_comes_back_from_json(kind: str) -> None:
    assert Spec.from_dict(json.loads(json.dumps(TUNINGS[kind].to_dict()))) == TUNINGS[kind]


def test_seeds_decide_what_is_drawn() -> None:
    base = zoo.EVERY["decoder/Learned"].build()
    for tuning in TUNINGS.values():
        one, same, other = (attach_tuning(base, tuning, seed=s) for s in (0, 0, 1))
        for n in one.tuning.trained:
            assert torch.equal(one.model.get_parameter(n), same.model.get_parameter(n))
        if isinstance(tuning, Bottleneck | Prefix | Prompt):
            assert any(
                not torch.equal(one.model.get_parameter(n), other.model.get_parameter(n))
                for n in one.tuning.trained
            )


def test_patterns_are_lists_and_mappings_too_and_name_layers() -> None:
    spec = zoo.EVERY["decoder/Learned"]
    model = spec.build()
    given = Lora(targets=["*.attn.q", "*.attn.v"], exclude="*.blocks.0", rank_pattern={"*.attn.v": 2})
    written = Lora(targets=("*.attn.q", "*.attn.v"), exclude=("*.blocks.0",), rank_pattern=(("*.attn.v", 2),))
    assert given == written and hash(given) == hash(written)
    made = attach_tuning(model, given)
    assert {name: len(p) for name, p in made.model.named_parameters() if name.endswith("lora.down")} == {
        "tower.blocks.1.attn.q.lora.down": 8, "tower.blocks.1.attn.v.lora.down": 2
    }  # fmt: skip
    assert repr(made.tuning) == f"<{made.tuning}>"
    for wrong, why in (
        (
            Lora(rank_pattern={"attn.vv": 2}),
            "rank_pattern 'attn.vv' matches no linear layer; did you mean 'attn.v'",
        ),
        (Lora(alpha_pattern={"zzz": 2.0}), "alpha_pattern 'zzz' matches no linear layer"),
        (Lora(rank=10**9), "is a matrix of"),
        (Lora(targets="tower.norm"), "names tower.norm, a"),
        (Lora(targets="tower.embed.table"), "a table"),
    ):
        with pytest.raises(ClearheadError, match=why):
            attach_tuning(model, wrong)


def test_dora_learns_after_a_text_was_generated() -> None:
    """Lengths of rows that inference mode has made are made again where gradients flow."""
    made = tuned(zoo.EVERY["decoder/Learned"], TUNINGS["dora"])
    with torch.inference_mode():
        run(made.model, ids(2, 6), ids(2, 5))
    run(made.model, ids(2, 6), ids(2, 5)).sum().backward()
    for name in made.trained:
        assert made.model.get_parameter(name).grad is not None

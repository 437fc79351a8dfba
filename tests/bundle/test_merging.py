"""Merging bundles: adapters over one base, whole models, heads and tokenizers that differ, and refusals."""

import copy
import json
import logging
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
import transformers
import zoo
from matrix import combinations
from references import tiny_sizes
from safetensors import safe_open
from tolerance import assert_close
from torch import Tensor
from tunings import MERGED, TUNINGS, move

import clearhead as ch
from clearhead.engine import preparation
from clearhead.errors import ClearheadError
from clearhead.families import FAMILIES
from clearhead.nn import generator
from clearhead.recipes import read_mergekit
from clearhead.store import write_folder
from clearhead.tune import (
    IA3,
    Bottleneck,
    Dare,
    DareTies,
    Full,
    Lora,
    MergeKey,
    MergeMethod,
    Prefix,
    Prompt,
    Slerp,
    TaskArithmetic,
    Ties,
    Tuning,
    WeightedAverage,
)

GOLDEN = Path(__file__).parents[1] / "golden" / "merged_by_mergekit.safetensors"
SIZES = {"vocab_size": 50, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2}  # fmt: skip
METHODS: dict[str, MergeMethod] = {
    "average": WeightedAverage(weights=(0.3, 0.9)),
    "sum": WeightedAverage(weights=(0.3, 0.9), normalize=False),
    "slerp": Slerp(t=0.3),
    "task": TaskArithmetic(weights=(0.8, -0.3), scale=1.2),
    "ties": Ties(weights=(0.8, 0.3), density=0.5),
    "dare": Dare(density=0.4),
    "dare-ties": DareTies(density=(0.3, 0.8)),
}
LINEAR = ("average", "sum", "slerp", "task")
IDS = torch.randint(0, 50, (2, 9), generator=generator(0, "ids"))


def llama(seed: int = 0, **changes: object) -> ch.Bundle:
    return ch.build("llama", seed=seed, **SIZES | changes)


def tuned(base: ch.Bundle, tuning: Tuning, seed: int, size: float = 0.1) -> ch.Bundle:
    """With everything that learns moved."""
    made = ch.tune(base, tuning, seed=seed)
    with torch.no_grad():
        for name in made.tuning.trained:
            p = made.model.get_parameter(name)
            p.add_((size * torch.randn(p.shape, generator=generator(seed, name))).to(p))
    return made


def two_adapters(base: ch.Bundle) -> list[ch.Bundle]:
    """Of different ranks, on different layers."""
    return [
        tuned(base, Lora(rank=3, alpha=5), 1),
        tuned(base, Lora(rank=2, targets="*.attn.{q,v}", start="principal"), 2),
    ]


def state(bundle: ch.Bundle) -> dict[str, Tensor]:
    return {name: x.detach().double() for name, x in bundle.model.named_parameters()}


@torch.no_grad()
def logits(bundle: ch.Bundle, ids: Tensor = IDS) -> Tensor:
    return bundle.model(ids)


# Whole models


def in_turn(name: str) -> bool:
    return list(zoo.EVERY).index(name) % 13 == 0


@pytest.mark.parametrize("name", combinations([(name,) for name in zoo.EVERY], "{}".format, in_turn))
def test_every_model_of_the_core_merges_and_stays_as_it_was(name: str) -> None:
    one, two, base = (ch.build(zoo.EVERY[name], seed=seed) for seed in (1, 2, 3))
    before = [state(each) for each in (one, two, base)]
    first = ch.merge([one, two], WeightedAverage(weights=(1.0, 0.0)))
    assert state(first).keys() == before[0].keys()  # what is shared stays shared
    assert all(torch.equal(x, before[0][n]) for n, x in state(first).items())
    assert torch.equal(*(zoo.run(each.model, zoo.ids(2, 6), zoo.ids(2, 5)) for each in (first, one)))
    same = ch.merge([two, two], Ties(density=1.0), base=base)
    assert all(torch.allclose(x, before[1][n], rtol=0, atol=1e-6) for n, x in state(same).items())
    for bundle, old in zip((one, two, base), before, strict=True):
        assert all(torch.equal(x, old[n]) for n, x in state(bundle).items())


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("mapped", [False, True], ids=["in-memory", "folders"])
def test_every_parameter_of_whole_models_is_merged(name: str, mapped: bool, tmp_path: Path) -> None:
    method = METHODS[name]
    bundles = [llama(seed) for seed in (1, 2, 3)]
    for i, each in enumerate(bundles):
        each.save(tmp_path / str(i))
    given = [tmp_path / str(i) for i in range(3)] if mapped else bundles
    base = given[2] if method.needs_base else None
    merged = ch.merge(given[:2], method, base=base, seed=5)
    one, two, origin = (state(each) for each in bundles)
    for parameter, x in merged.model.named_parameters():
        key = MergeKey((parameter,), 5)
        if method.needs_base:
            start = origin[parameter]
            expected = start + method.combine([one[parameter] - start, two[parameter] - start], key).tensor
        else:
            expected = method.combine([one[parameter], two[parameter]], key).tensor
        assert torch.equal(x, expected.float()), parameter
        assert x.requires_grad
    report = merged.report.merge
    assert report.method == method and report.numbers == merged.parameters
    assert report.changed > 0.1 and (report.conflicts is None) == (not method.needs_base)


@pytest.mark.parametrize("name", ["llama", "gpt2", "bert", "t5", "albert", "modernbert"])
def test_transformers_opens_a_merged_folder_with_the_same_logits(name: str, tmp_path: Path) -> None:
    family = FAMILIES[name]
    task = "labels" if name in ("bert", "modernbert") else "tokens"
    models = [ch.build(name, task=task, seed=seed, **tiny_sizes(family, task)) for seed in (1, 2)]
    merged = ch.merge(models, Slerp(t=0.4))
    merged.save(tmp_path)
    theirs = getattr(transformers, family.architectures[task]).from_pretrained(tmp_path).eval()
    ids = torch.randint(3, 90, (2, 7), generator=generator(0))
    inputs = {"input_ids": ids} | ({"decoder_input_ids": ids.flip(1)} if name == "t5" else {})
    with torch.no_grad():
        ours = merged.model(ids, ids.flip(1)) if name == "t5" else merged.model(ids)
        assert_close(ours, theirs(**inputs).logits)
    again = ch.load(tmp_path)
    assert all(torch.equal(x, state(again)[n]) for n, x in state(merged).items())


@pytest.mark.parametrize("name", [name for name in METHODS if "dare" not in name])
@pytest.mark.parametrize("adapters", [False, True], ids=["models", "adapters"])
def test_pieces_of_parameters_give_what_whole_ones_give(
    name: str, adapters: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = llama(dtype=torch.float64)
    given = two_adapters(base) if adapters else [llama(seed, dtype=torch.float64) for seed in (1, 2)]
    origin = base if METHODS[name].needs_base else None
    whole = ch.merge(given, METHODS[name], base=origin)
    monkeypatch.setattr("clearhead.bundle.merge_job.PIECE_NUMBERS", 100)
    pieces = ch.merge(given, METHODS[name], base=origin)
    assert all(torch.allclose(x, state(whole)[n], rtol=0, atol=1e-14) for n, x in state(pieces).items())
    one, two = whole.report.merge, pieces.report.merge
    assert (one.changed, one.conflicts, one.numbers) == (two.changed, two.conflicts, two.numbers)
    assert abs(one.moved - two.moved) < 1e-12


def test_number_formats() -> None:
    one, two = llama(1).to(torch.bfloat16), llama(2).to(torch.float16)
    assert ch.merge([one, one]).dtype == torch.bfloat16
    assert ch.merge([one, two]).dtype == torch.float32
    assert ch.merge([one, two], dtype="bfloat16").dtype == torch.bfloat16
    wide = [llama(seed).to(torch.float64) for seed in (1, 2)]
    exact, rounded = ch.merge(wide), ch.merge(wide, dtype=torch.float16)
    assert exact.dtype == torch.float64
    assert all(torch.equal(x, state(exact)[n].half().double()) for n, x in state(rounded).items())
    tuned_half = [tuned(one, Lora(rank=2), seed) for seed in (1, 2)]
    assert {x.dtype for x in ch.merge(tuned_half).model.parameters()} == {torch.bfloat16}
    wider = ch.merge(tuned_half, dtype="float32")
    assert {x.dtype for x in wider.model.parameters()} == {torch.float32}


# As mergekit does it


@pytest.fixture(scope="module")
def golden() -> dict[str, Any]:
    with safe_open(GOLDEN, "pt") as file:
        return {
            "configs": file.metadata(),
            "tensors": {name: file.get_tensor(name) for name in file.keys()},  # noqa: SIM118
        }


CONFIGS = ("linear", "sum", "slerp", "slerp-back", "task", "ties", "ties-sum")


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("kind", ["llama", "bert"])
def test_configs_of_mergekit_give_what_mergekit_gives(
    kind: str, config: str, golden: dict[str, Any], tmp_path: Path
) -> None:
    def part(name: str) -> dict[str, Tensor]:
        start = f"{kind}/{name}/"
        return {n.removeprefix(start): x for n, x in golden["tensors"].items() if n.startswith(start)}

    head = "LlamaForCausalLM" if kind == "llama" else "BertForSequenceClassification"
    model = json.loads(golden["configs"][kind]) | {"architectures": [head]}
    text = golden["configs"][f"config/{config}"].replace("DEPTH", str(model["num_hidden_layers"]))
    for name in ("BASE", "A", "B"):
        write_folder(tmp_path / name, config=model, tensors=part(name))
        text = re.sub(rf"\b{name}\b", str(tmp_path / name), text)
    (tmp_path / "config.yml").write_text(text)
    plan = read_mergekit(tmp_path / "config.yml")
    merged = ch.merge(plan.models, plan.method, base=plan.base, dtype=plan.dtype)
    merged.save(tmp_path / "out")
    expected = part(config)
    with safe_open(tmp_path / "out" / "model.safetensors", "pt") as file:
        assert set(file.keys()) == set(expected)
        for name, x in expected.items():
            torch.testing.assert_close(file.get_tensor(name), x, atol=1e-6 * float(x.abs().max()), rtol=1e-6)


# Adapters


@pytest.mark.parametrize("kind", MERGED)
@pytest.mark.parametrize("name", ["average", "task", "ties"])
def test_adapters_of_every_kind_are_merged_by_what_they_add(kind: str, name: str) -> None:
    base = llama(dtype=torch.float64)
    pair = [ch.tune(base, TUNINGS[kind], seed=seed) for seed in (1, 2)]
    for i, each in enumerate(pair):
        move(each.model, each.tuning.trained[i:], 0.05)
    before = state(base)
    merged, method = ch.merge(pair, METHODS[name], seed=5), METHODS[name]
    one, two = (state(each.merged()) for each in pair)
    shared = dict(base.model.named_parameters())
    for parameter, x in merged.model.named_parameters():
        start = before[parameter]
        expected = method.combine([one[parameter] - start, two[parameter] - start], MergeKey((parameter,), 5))
        assert_close(x.detach(), start + expected.tensor, 1e-12)
        untouched = torch.equal(one[parameter], start) and torch.equal(two[parameter], start)
        assert not untouched or torch.equal(x, shared[parameter])
    assert all(torch.equal(x, before[n]) for n, x in state(base).items())
    assert merged.tuning is None and merged.base is None


def test_weights_that_no_adapter_changes_are_shared() -> None:
    base = llama()
    merged = ch.merge(two_adapters(base))
    table, norm = "tower.embed.table.weight", "tower.blocks.0.attn_norm.weight"
    for name in (table, norm):
        assert merged.model.get_parameter(name).data_ptr() == base.model.get_parameter(name).data_ptr()
    query = "tower.blocks.0.attn.q.weight"
    assert merged.model.get_parameter(query).data_ptr() != base.model.get_parameter(query).data_ptr()


@pytest.mark.parametrize("name", LINEAR)
@pytest.mark.parametrize("family", ["llama", "gpt2", "gpt_neox"])
def test_a_weighted_sum_of_adapters_is_one_adapter_of_all_ranks(
    family: str, name: str, tmp_path: Path
) -> None:
    """In GPT-2 and NeoX q, k and v are one matrix in the file, with one `down` for all."""
    base = ch.build(family, **tiny_sizes(FAMILIES[family])).to(torch.float64)
    pair = two_adapters(base)
    ids = torch.randint(3, 90, (2, 7), generator=generator(0))
    whole, one = ch.merge(pair, METHODS[name]), ch.merge(pair, METHODS[name], rank="exact")
    assert_close(logits(one, ids), logits(whole, ids), 1e-9)
    assert one.base is base and one.report.merge.energy == 1.0 and not one.report.fresh
    one.save(tmp_path / "one")
    again = ch.load(base, adapter=tmp_path / "one")
    assert again.tuning == one.tuning and torch.equal(logits(again, ids), logits(one, ids))


def test_an_adapter_of_lower_rank_is_the_best_one() -> None:
    base = llama()
    pair, layer = two_adapters(base), "tower.blocks.0.attn.q"
    for name in ("average", "ties"):  # out of the narrow matrices, and out of the whole
        method, key = METHODS[name], MergeKey((f"{layer}.weight",))
        start = state(base)[f"{layer}.weight"]
        deltas = [each.model.get_submodule(layer).adapter.merge(start, None)[0] - start for each in pair]
        left, size, right = torch.linalg.svd(method.combine(deltas, key).tensor)
        best = left[:, :4] @ size[:4].diag() @ right[:4]
        one = ch.merge(pair, method, rank=4)
        found = one.model.get_submodule(layer).adapter.delta().double()
        assert_close(found, best, 1e-6)
        report = one.report.merge
        assert report.rank == 4 and report.least[1] <= report.energy < 1
        if report.least[0] == layer:
            assert abs(report.least[1] - float(size[:4].square().sum() / size.square().sum())) < 1e-9
    full = ch.merge(pair, METHODS["ties"], rank=32)
    assert_close(logits(full), logits(ch.merge(pair, METHODS["ties"])), 1e-5)
    assert abs(full.report.merge.energy - 1) < 1e-9


def test_what_is_no_matrix_of_a_layer_is_kept_whole_in_an_adapter(tmp_path: Path) -> None:
    base = ch.build("bert", task="labels", **tiny_sizes(FAMILIES["bert"], "labels"))
    base.save(tmp_path / "base")
    base = ch.load(tmp_path / "base")
    kept = {"modules_to_save": ("head.project",)}
    pair = [
        tuned(base, Lora(rank=2, bias="lora_only", **kept), 1, 0.05),
        tuned(base, IA3(targets="*.attn.{k,v}", **kept), 2, 0.05),
    ]
    one, whole = ch.merge(pair, rank=48), ch.merge(pair)
    assert "head.project.weight" in one.tuning.trained and "tower.blocks.0.attn.k.bias" in one.tuning.trained
    ids = torch.randint(3, 90, (2, 7), generator=generator(0))
    assert_close(logits(one, ids), logits(whole, ids), 1e-5)
    one.save(tmp_path / "one")
    assert torch.equal(logits(ch.load(tmp_path / "one"), ids), logits(one, ids))
    theirs = transformers.BertForSequenceClassification.from_pretrained(tmp_path / "base")
    theirs = peft.PeftModel.from_pretrained(theirs, tmp_path / "one").eval()
    with torch.no_grad():
        assert_close(logits(one, ids), theirs(ids).logits)


def test_merging_again_and_merging_what_was_merged(tmp_path: Path) -> None:
    base = llama()
    one, two = two_adapters(base)
    assert torch.equal(*(logits(ch.merge([one, two], Dare(), seed=2)) for _ in range(2)))
    assert not torch.equal(*(logits(ch.merge([one, two], Dare(), seed=seed)) for seed in (2, 3)))
    itself = ch.merge([one, one])
    assert all(torch.equal(x, state(one.merged())[n]) for n, x in state(itself).items())
    once = ch.merge([one, two])
    twice = ch.merge([once, ch.merge([two, one])])
    assert_close(logits(twice), logits(once))
    alone = ch.merge([one], TaskArithmetic())
    assert_close(logits(alone), logits(one.merged()))
    unlearned = ch.merge([one], TaskArithmetic(weights=(-1.0,)))
    middle = {n: (x + state(alone)[n]) / 2 for n, x in state(unlearned).items()}
    assert all(torch.allclose(middle[n], x, atol=1e-6) for n, x in state(base).items())
    # An adapter over a merged model is not one over its base.
    base.save(tmp_path / "base")
    merged = (
        ch.load(tmp_path / "base", adapter=None) and tuned(ch.load(tmp_path / "base"), Lora(), 1).merged()
    )
    assert merged.loaded_from is None and merged.weight_files == () == once.weight_files
    merged.save(tmp_path / "merged")
    tuned(merged, Lora(rank=1), 3).save(tmp_path / "over")
    info = json.loads((tmp_path / "over" / "clearhead.json").read_text())
    assert Path(info["base"]["name"]).name == "merged"


def test_a_whole_model_and_an_adapter_over_the_same_base(tmp_path: Path) -> None:
    base = llama()
    base.save(tmp_path / "base")
    base = ch.load(tmp_path / "base")
    adapter, whole = tuned(base, Lora(rank=3), 1), tuned(base, Full(), 2, 0.02).merged()
    adapter.save(tmp_path / "adapter")
    merged = ch.merge([tmp_path / "adapter", whole], Ties(density=0.7))  # the base is that of the adapter
    expected = ch.merge([adapter.merged(), whole], Ties(density=0.7), base=base)
    assert_close(logits(merged), logits(expected))
    first = ch.merge([whole, adapter], WeightedAverage(weights=(0.0, 1.0)))
    assert all(torch.equal(x, state(adapter.merged())[n]) for n, x in state(first).items())


@pytest.mark.parametrize(("theirs", "ours", "rank"), [
    ("cat", TaskArithmetic(weights=(0.7, -0.4)), "exact"),
    ("svd", TaskArithmetic(weights=(0.7, -0.4)), 4),
    ("ties_svd", Ties(weights=(0.7, -0.4), density=0.5, election="unweighted", average="count"), 4),
])  # fmt: skip
@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_pefts_combinations_of_adapters(
    family: str, theirs: str, ours: MergeMethod, rank: Any, tmp_path: Path
) -> None:
    base = ch.build(family, **tiny_sizes(FAMILIES[family]))
    base.save(tmp_path / "base")
    base = ch.load(tmp_path / "base")
    # q, k and v of GPT-2 are one matrix there: TIES keeps the largest of all three together.
    targets = "*.ff" if theirs == "ties_svd" else "all-linear"
    for i in (1, 2):
        tuned(base, Lora(rank=3, alpha=5, targets=targets), i).save(tmp_path / str(i))
    merged = ch.merge([tmp_path / "1", tmp_path / "2"], ours, rank=rank)
    model = getattr(transformers, FAMILIES[family].architectures["tokens"]).from_pretrained(tmp_path / "base")
    model = peft.PeftModel.from_pretrained(model, tmp_path / "1", adapter_name="1")
    model.load_adapter(tmp_path / "2", "2")
    settings = {"svd_rank": rank} if rank != "exact" else {}
    settings |= {"density": ours.density} if isinstance(ours, Ties) else {}
    model.base_model.add_weighted_adapter(["1", "2"], [0.7, -0.4], "both", theirs, **settings)
    model.set_adapter("both")
    ids = torch.randint(3, 90, (2, 7), generator=generator(0))
    with torch.no_grad():
        assert_close(logits(merged, ids), model.eval()(ids).logits, 3e-5)  # both compute SVD in float32 or 64
    merged.save(tmp_path / "merged")
    with torch.no_grad():
        model = getattr(transformers, FAMILIES[family].architectures["tokens"]).from_pretrained(
            tmp_path / "base"
        )
        again = peft.PeftModel.from_pretrained(model, tmp_path / "merged").eval()
        assert_close(logits(merged, ids), again(ids).logits)


# Heads, tokenizers, notes


def labelled(names: tuple[str, ...], seed: int) -> ch.Bundle:
    sizes = tiny_sizes(FAMILIES["bert"], "labels") | {"id2label": dict(enumerate(names))}
    return ch.build("bert", task="labels", seed=seed, **sizes)


def test_heads_with_the_same_labels_are_merged_and_others_are_that_of_the_first(
    caplog: pytest.LogCaptureFixture,
) -> None:
    one, two, turned, more = (
        labelled(names, seed)
        for seed, names in enumerate((("a", "b"), ("a", "b"), ("b", "a"), ("x", "y", "z")))
    )
    same = ch.merge([one, two])
    head = "head.project.weight"
    assert_close(state(same)[head], (state(one)[head] + state(two)[head]) / 2, 1e-7)
    assert same.report.merge.notes == () and not caplog.records
    for other, why in ((turned, "the labels"), (more, "the labels")):
        with caplog.at_level(logging.WARNING, "clearhead.bundle"):
            merged = ch.merge([one, other])
        assert torch.equal(state(merged)[head], state(one)[head]) and merged.labels == {0: "a", 1: "b"}
        query = "tower.blocks.0.attn.q.weight"
        assert_close(state(merged)[query], (state(one)[query] + state(other)[query]) / 2, 1e-7)
        assert why in merged.report.merge.notes[0] and why in caplog.records[-1].message
    plain = ch.build("bert", task="tokens", seed=9, **tiny_sizes(FAMILIES["bert"]))
    merged = ch.merge([one, plain])
    assert merged.task == "labels" and torch.equal(state(merged)[head], state(one)[head])


@pytest.mark.parametrize("name", ["average", "ties", "slerp"])
def test_new_heads_of_adapters_are_averaged_and_saved(name: str, tmp_path: Path) -> None:
    hidden = ch.build("bert", task="hidden", **tiny_sizes(FAMILIES["bert"], "hidden"))
    hidden.save(tmp_path / "base")
    for i in (1, 2):
        base = ch.load(tmp_path / "base", head="labels", labels=["neg", "pos"], seed=i)
        tuned(base, Lora(rank=2), i).save(tmp_path / str(i))
    method = METHODS[name]
    merged = ch.merge([tmp_path / "1", tmp_path / "2"], method)
    heads = [state(ch.load(tmp_path / str(i)))["head.project.weight"] for i in (1, 2)]
    shares = method.shares(2, MergeKey(("head.project.weight",)))
    expected = sum(s * x for s, x in zip(shares, heads, strict=True)) / sum(shares)
    assert_close(state(merged)["head.project.weight"], expected, 1e-7)
    merged.save(tmp_path / "merged")
    again = ch.load(tmp_path / "merged")
    assert again.labels == {0: "neg", 1: "pos"} and again.report.fresh == ()
    assert torch.equal(logits(again), logits(merged))
    alone = ch.load(tmp_path / "1").merged()
    alone.save(tmp_path / "alone")
    assert torch.equal(state(ch.load(tmp_path / "alone"))["head.project.weight"], heads[0])
    adapter = ch.merge([tmp_path / "1", tmp_path / "2"], method, rank=8)
    assert_close(state(adapter)["head.project.weight"], expected, 1e-7)


def test_a_base_without_the_head_is_enough_for_differences() -> None:
    sizes = tiny_sizes(FAMILIES["bert"], "labels")
    base = ch.build("bert", task="hidden", seed=3, **tiny_sizes(FAMILIES["bert"], "hidden"))
    one, two = labelled(("a", "b"), 1), labelled(("a", "b"), 2)
    merged = ch.merge([one, two], TaskArithmetic(weights=(1.0, 3.0)), base=base)
    head, query = "head.project.weight", "tower.blocks.0.attn.q.weight"
    assert_close(state(merged)[head], (state(one)[head] + 3 * state(two)[head]) / 4, 1e-7)
    expected = state(one)[query] + 3 * state(two)[query] - 3 * state(base)[query]
    assert_close(state(merged)[query], expected, 1e-6)
    assert sizes and merged.task == "labels"
    less = ch.merge([one, two], TaskArithmetic(weights=(-1.0, 3.0)), base=base)  # nothing to subtract from
    assert torch.equal(state(less)[head], state(one)[head])


def test_tokenizers_and_small_differences_are_noted() -> None:
    texts = ["the cat sat on a mat", "a dog ran in the park"]
    one, two = llama(1), llama(2, rope_parameters={"rope_theta": 500.0, "rope_type": "default"})
    one.tokenizer, two.tokenizer = (ch.text.train_tokenizer([text] * 3, vocab=40) for text in texts)
    merged = ch.merge([one, two])
    assert merged.tokenizer is one.tokenizer and merged.spec == one.spec
    assert len(merged.report.merge.notes) == 2
    assert any("tokenizers of model 1 and model 2 differ" in note for note in merged.report.merge.notes)
    assert any("theta is 10000.0 in model 1 and 500.0" in note for note in merged.report.merge.notes)
    assert "merged by WeightedAverage: 9" in str(merged.report)


# What cannot be merged


def quantized() -> ch.Bundle:
    return llama(hidden_size=64).prepare("int8")


def not_finite() -> ch.Bundle:
    broken = llama(2)
    with torch.no_grad():
        broken.model.get_parameter("tower.blocks.1.ff.up.weight")[0, 0] = float("nan")
    return broken


def of(tuning: Tuning) -> list[ch.Bundle]:
    base = llama()
    return [tuned(base, Lora(rank=2), 1), tuned(base, tuning, 2)]


REFUSED: dict[str, tuple[Callable[[], ch.Bundle], str]] = {
    "one": (lambda: ch.merge([llama()]), "WeightedAverage merges 2 models or more; given 1"),
    "none": (lambda: ch.merge([]), "a list of bundles or folders"),
    "not a list": (lambda: ch.merge(llama()), "a list of bundles or folders"),
    "another thing": (lambda: ch.merge([llama(), 3]), "a list of bundles or folders"),
    "a word": (lambda: ch.merge([llama(), llama()], "ties"), "one of WeightedAverage, Slerp"),
    "vocabulary": (lambda: ch.merge([llama(), llama(vocab_size=51)]), "embed.vocab is 50 .* another voc"),
    "width": (lambda: ch.merge([llama(), llama(hidden_size=48)]), "width is 32 in model 1 and 48 in model 2"),
    "depth": (lambda: ch.merge([llama(), llama(num_hidden_layers=3)]), "depth is 2 in model 1 and 3"),
    "heads": (lambda: ch.merge([llama(), llama(num_attention_heads=2)]), "heads is 4 in model 1 and 2"),
    "tied": (lambda: ch.merge([llama(), llama(tie_word_embeddings=True)]), "head.* in model 1 and"),
    "family": (
        lambda: ch.merge([llama(), ch.build("gpt2", n_embd=32, n_layer=2, n_head=4, vocab_size=50)]),
        "model 2 is of the family GPT-2, model 1 of LLaMA",
    ),
    "no base": (lambda: ch.merge([llama(), llama(1)], Ties()), "differences to a base; give the model"),
    "a base too many": (lambda: ch.merge([llama(), llama(1)], base=llama(2)), "leave the base out"),
    "another base": (lambda: ch.merge([llama(), llama(1)], Ties(), base=llama(vocab_size=51)), "the base"),
    "base of an adapter": (
        lambda: ch.merge([of(IA3())[0], tuned(llama(7), Lora(), 1)]), "over other weights than"
    ),
    "given base": (lambda: ch.merge(of(IA3()), base=llama(7)), "is over other weights than the base"),
    "an adapter as base": (lambda: ch.merge(of(IA3()), base=of(IA3())[0]), "base is an adapter itself"),
    "prefix": (lambda: ch.merge(of(Prefix(length=2))), "Prefix cannot be merged into the weights"),
    "prompt": (lambda: ch.merge(of(Prompt(length=2))), "Prompt cannot be merged into the weights"),
    "bottleneck": (lambda: ch.merge(of(Bottleneck())), "Bottleneck cannot be merged into the weights"),
    "int8": (lambda: ch.merge([llama(hidden_size=64), quantized()]), "int8 weights cannot be merged"),
    "into int4": (lambda: ch.merge([llama(), llama(1)], dtype="int4"), "merge the float models and quantize"),
    "not finite": (lambda: ch.merge([llama(), not_finite()]), "model 2 has numbers in .*ff.up.* not finite"),
    "rank of models": (lambda: ch.merge([llama(), llama(1)], rank=4), "rank is for adapters"),
    "rank 0": (lambda: ch.merge(of(IA3()), rank=0), "expected a whole number from 1, or 'exact'"),
    "exact ties": (lambda: ch.merge(of(Lora()), Ties(), rank="exact"), "has no low rank: give a number"),
    "exact dora": (lambda: ch.merge(of(Lora(variant="dora")), rank="exact"), "has no low rank"),
    "dtype of an adapter": (lambda: ch.merge(of(IA3()), rank=2, dtype="float16"), "dtype is for a merged mo"),
    "no layer": (lambda: ch.merge([of(Full(targets="*.norm*"))[1]] * 2, rank=2), "change no linear layer"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_merged_is_refused_in_one_line(name: str) -> None:
    call, why = REFUSED[name]
    with pytest.raises(ClearheadError, match=why) as error:
        call()
    assert "\n" not in str(error.value)


def test_a_prepared_float_model_is_merged_by_its_stored_weights() -> None:
    one, two = llama(1, hidden_size=64), llama(2, hidden_size=64)
    expected = ch.merge([one, two])
    packed = copy.deepcopy(one).prepare("float32")
    merged = ch.merge([packed, two])
    assert all(torch.equal(x, state(expected)[n]) for n, x in state(merged).items())
    assert preparation(merged.model) is None and preparation(packed.model) is not None
    pair = [tuned(packed, Lora(rank=2), seed) for seed in (1, 2)]
    plain = [tuned(one, Lora(rank=2), seed) for seed in (1, 2)]
    merged = ch.merge(pair)
    assert torch.equal(logits(merged), logits(ch.merge(plain)))
    assert torch.equal(logits(packed), logits(copy.deepcopy(one).prepare("float32")))
    half = copy.deepcopy(one).to(torch.bfloat16)
    converted = copy.deepcopy(half).prepare("float32")
    assert {x.dtype for x in ch.merge([converted, half]).model.parameters()} == {torch.bfloat16}


def test_progress_counts_parameters() -> None:
    seen: list[tuple[int, int]] = []
    ch.merge([llama(1), llama(2)], progress=lambda done, count: seen.append((done, count)))
    count = len(state(llama()))
    assert seen == [(i, count) for i in range(1, count + 1)]


MEASURE = """
import sys, threading, time
import clearhead as ch
from clearhead.bundle import open_mapped
from clearhead.tune import Ties

def private():
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("RssAnon"))

folders = sys.argv[1:]
open_mapped(folders[0])
start = highest = private()

def watch():
    global highest
    while True:
        highest = max(highest, private())
        time.sleep(0.01)

threading.Thread(target=watch, daemon=True).start()
merged = ch.merge(folders[1:], Ties(), base=folders[0])
print(highest - start, private() - start)
"""


@pytest.mark.proof
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from Linux's /proc")
def test_memory_does_not_grow_with_the_number_of_models(tmp_path: Path) -> None:
    """23 million numbers, most of them in one table: 94 MB for each model."""
    sizes = {"n_layer": 1, "n_embd": 512, "n_head": 8, "vocab_size": 40_000}
    for seed in range(3):
        ch.build("gpt2", seed=seed, **sizes).save(tmp_path / str(seed))
    base, *two = (str(tmp_path / str(i)) for i in range(3))
    peaks = []
    for models in (two, [*two, *two, *two]):
        command = [sys.executable, "-c", MEASURE, base, *models]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        peak, after = map(int, done.stdout.split())
        assert after < 130
        peaks.append(peak)
    # As whole tensors in float64 six differences of the table alone would take a gigabyte.
    assert peaks[1] < peaks[0] + 150 < 650, peaks

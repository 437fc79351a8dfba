"""Transformer-XL against golden tensors of the last package that had it, and the laws of segment memory."""

import json
from pathlib import Path

import pytest
import torch
from replaying import MODES, replayed
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from tolerance import assert_close
from torch import Tensor
from zoo import VOCAB, ids, sample, single, tower

import clearhead as ch
from clearhead import nn as cn
from clearhead.errors import InputError, SpecError, UnsupportedError
from clearhead.nn.positions import Positions

GOLDEN = Path(__file__).parents[1] / "golden" / "transfo_xl.safetensors"
MODELS = ["published", "one-table", "pre-norm"]
models = pytest.mark.parametrize("name", MODELS)


def golden(name: str, folder: Path) -> dict[str, Tensor]:
    """What the package said; its checkpoint is written to the folder as the package would write it."""
    with safe_open(GOLDEN, "pt") as file:
        config = json.loads(file.metadata()[name])
    mine = {
        key.removeprefix(f"{name}/"): x for key, x in load_file(GOLDEN).items() if key.startswith(f"{name}/")
    }
    config |= {"model_type": "transfo-xl", "architectures": ["TransfoXLLMHeadModel"]}
    (folder / "config.json").write_text(json.dumps(config))
    weights = {key.removeprefix("weights/"): x for key, x in mine.items() if key.startswith("weights/")}
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return mine


@models
@torch.no_grad()
def test_same_numbers_as_the_reference(name: str, tmp_path: Path) -> None:
    """The answer and every layer: in one call, in segments with a memory, and from a memory of zeros."""
    want = golden(name, tmp_path)
    bundle = ch.load(tmp_path)
    model, text = bundle.model, want["ids"]
    length, width = bundle.config["mem_len"], bundle.config["d_model"]
    runs = {
        "whole": ([15], None),
        "segments": ([5, 5, 5], model.segment_memory(length)),
        "zeros": ([5, 5, 5], model.segment_memory(length).blank(2, width)),
    }
    if bundle.config["pre_lnorm"]:
        del runs["zeros"]  # a memory holds what attention read: a norm of zeros is not zeros
    for how, (lengths, memory) in runs.items():
        seen: list[dict[str, Tensor]] = []
        said = []
        for segment in text.split(lengths, dim=1):
            record = cn.Recorder()
            said.append(model(segment, cache=memory, tap=record.tap("*.out")))
            seen.append(record)
        assert_close(torch.cat(said, dim=1), want[f"{how}/scores"])
        for layer in (0, 1):
            got = torch.cat([record[f"tower.blocks.{layer}.out"] for record in seen], dim=1)
            assert_close(got, want[f"{how}/layer.{layer + 1}"])


@models
def test_load_then_save_gives_back_the_same_tensors(name: str, tmp_path: Path) -> None:
    golden(name, tmp_path)
    ch.save(ch.load(tmp_path), tmp_path / "again")
    before, after = (load_file(folder / "model.safetensors") for folder in (tmp_path, tmp_path / "again"))
    assert set(before) == set(after)
    assert all(torch.equal(before[key], after[key]) for key in before)


@models
@torch.no_grad()
def test_a_short_answer_is_the_same_with_and_without_replay(name: str, tmp_path: Path) -> None:
    """And it is the most likely token at every position of one pass over the whole text."""
    golden(name, tmp_path)
    bundle, prompt = (
        ch.load(tmp_path),
        torch.randint(3, 40, (3, 6), generator=torch.Generator().manual_seed(4)),
    )
    found = []
    for mode in MODES:
        with replayed(mode):
            found.append(bundle.generate_ids(prompt, max_new_tokens=9, eos_token_id=[]))
    assert all(torch.equal(ids, found[0]) for ids in found)
    assert torch.equal(bundle.model(found[0])[:, 5:-1].argmax(-1), found[0][:, 6:])


RELATIVE = {n: sample(k) for n, k in Positions.kinds().items() if k.relative}
relative = pytest.mark.parametrize("positions", RELATIVE.values(), ids=RELATIVE)


@relative
@torch.no_grad()
def test_segments_with_a_long_memory_equal_one_call(positions: Positions) -> None:
    model = single(causal=True, positions=positions).build(dtype=torch.float64)
    text, real = ids(2, 18), torch.ones(2, 18, dtype=torch.long)
    real[1, :2] = 0
    memory = model.segment_memory(18)
    lengths = [7, 1, 6, 4]
    parts = zip(text.split(lengths, 1), real.split(lengths, 1), strict=True)
    got = torch.cat([model(ids, flags, cache=memory) for ids, flags in parts], dim=1)
    want = model(text, real)
    assert_close(got[0], want[0])
    assert_close(got[1, 2:], want[1, 2:])


@torch.no_grad()
def test_a_memory_reaches_further_with_every_layer_and_no_further() -> None:
    """Segments of 4, a memory of 4, two layers: a token is felt two segments later and not three."""
    model = single(causal=True, positions=cn.RelativeWaves()).build(dtype=torch.float64)
    one = ids(1, 16)
    two = one.clone()
    two[0, 0] = (one[0, 0] + 1) % VOCAB

    def read(text: Tensor) -> list[Tensor]:
        memory = model.segment_memory(4)
        return [model(segment, cache=memory) for segment in text.split(4, dim=1)]

    changed = [not torch.equal(a, b) for a, b in zip(read(one), read(two), strict=True)]
    assert changed == [True, True, True, False]
    alone = [model(segment) for segment in one.split(4, dim=1)]
    assert not torch.allclose(read(one)[1], alone[1])


def test_no_gradient_flows_into_a_memory() -> None:
    model = single(causal=True, positions=cn.RelativeWaves()).build(dtype=torch.float64)
    first, second = torch.full((1, 4), 3), torch.full((1, 4), 5)
    memory = model.segment_memory(4)
    model(first, cache=memory)
    model(second, cache=memory)[:, -1, 5].sum().backward()
    grad = model.tower.embed.table.weight.grad
    # The head is the table, too, so only the word that was asked about and read may have any.
    assert grad[5].abs().sum() > 0 and grad[3].abs().sum() == 0
    key = model.tower.blocks[0].attn.k.weight
    assert key.grad.abs().sum() > 0  # keys of remembered states are made anew, and learn
    assert all(not layer.past_BKD.requires_grad for layer in memory.memories)


def test_recomputing_gives_the_same_gradients_with_a_memory() -> None:
    plain, saving = (
        single(causal=True, positions=cn.RelativeWaves(), recompute=recompute).build(dtype=torch.float64)
        for recompute in (False, True)
    )
    for model in (plain, saving):
        memory = model.segment_memory(6)
        for segment in ids(2, 12).split(4, dim=1):
            model(segment, cache=memory).square().sum().backward()
    for one, two in zip(plain.parameters(), saving.parameters(), strict=True):
        assert_close(one.grad, two.grad)


def test_a_memory_can_be_reordered_and_not_taken_back() -> None:
    model = single(causal=True, positions=cn.Alibi()).build(dtype=torch.float64)
    text, rows = ids(3, 8), torch.tensor([2, 0])
    memory = model.segment_memory(8)
    model(text[:, :4], cache=memory)
    memory.reorder(rows)
    assert_close(model(text[rows, 4:], cache=memory), model(text)[rows, 4:])
    with pytest.raises(UnsupportedError, match="cannot be rolled back"):
        memory.trim(2)
    with pytest.raises(InputError, match="holds 2 rows"):
        model(text, cache=memory)


def test_bad_memories_are_refused_in_one_sentence() -> None:
    with pytest.raises(UnsupportedError, match="Learned positions count from the start of a segment"):
        single(causal=True).build().segment_memory(4)
    with pytest.raises(InputError, match="0 tokens long"):
        single(causal=True, positions=cn.Alibi()).build().segment_memory(0)
    with pytest.raises(SpecError, match="farthest is 0"):
        cn.RelativeWaves(farthest=0)


def test_adaptive_probabilities_sum_to_one() -> None:
    embed = cn.Adaptive(vocab=VOCAB, cutoffs=(10, 20), inner_width=16, shrink=2)
    head = cn.AdaptiveHead(vocab=VOCAB, cutoffs=(10, 20), inner_width=16)
    model = cn.SingleStack(tower=tower(embed=embed), head=head).build(dtype=torch.float64)
    chances = model(ids(2, 7)).exp()
    assert chances.shape == (2, 7, VOCAB)
    assert_close(chances.sum(-1), torch.ones(2, 7, dtype=torch.float64))
    chances[..., -1].sum().backward()
    assert all(p.grad is not None for p in model.tower.embed.parameters())


BAD = {
    "cutoffs": lambda: cn.AdaptiveHead(vocab=9, cutoffs=(4, 4)),
    "beyond": lambda: cn.Adaptive(vocab=9, cutoffs=(9,), inner_width=8),
    "narrow": lambda: cn.Adaptive(vocab=9, cutoffs=(3,), inner_width=2, shrink=4),
    "other bands": lambda: cn.SingleStack(
        tower=tower(embed=cn.Adaptive(vocab=VOCAB, cutoffs=(10,), inner_width=16)),
        head=cn.AdaptiveHead(vocab=VOCAB, cutoffs=(11,), inner_width=16),
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_bands_are_refused_in_one_sentence(name: str) -> None:
    with pytest.raises(SpecError) as error:
        BAD[name]()
    assert "\n" not in str(error.value)

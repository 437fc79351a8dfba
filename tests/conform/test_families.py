"""Laws that every family obeys. None of them names one."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from reference_runs import Batch, answer_of, in_64_bits, row_of, run_ours, run_theirs
from references import KNOWN, REFERENCES, TINY, Reference, in_own_memory, tiny_sizes
from safetensors.torch import load_file
from tolerance import assert_close

import clearhead as ch
from clearhead import nn as cn
from clearhead.families import FAMILIES, Family, family_and_config
from clearhead.spec import Spec
from clearhead.weights import Ignore

every = pytest.mark.parametrize("reference", REFERENCES.values(), ids=REFERENCES)
families = pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
known = pytest.mark.parametrize("family", KNOWN.values(), ids=KNOWN)


@every
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["fp32", "fp64"])
@torch.no_grad()
def test_same_numbers_as_the_reference(reference: Reference, dtype: torch.dtype, tmp_path: Path) -> None:
    """Answers and every hidden layer, padded on either side, in both precisions."""
    tolerance = {torch.float32: 1e-5, torch.float64: 1e-10}[dtype]
    batch = Batch.of(reference)
    wanted = _reference_run(reference, dtype, tmp_path, batch)
    ours, seen = ch.load(tmp_path).model, cn.Recorder()
    answer = run_ours(ours, batch, tap=seen.tap("*"))
    for row, want in enumerate(wanted):
        real = batch.mask[row] == 1
        sides = {"tower": ("hidden_states", real)}
        if ours.spec.source_tower is not None:
            everything = torch.ones(11, dtype=torch.bool)
            sides = {
                "encoder": ("encoder_hidden_states", real),
                "decoder": ("decoder_hidden_states", everything if ours.spec.inputs > 1 else real),
            }
        for side, (name, where) in sides.items():
            layers, tower = list(want[name]), getattr(ours.spec, side)
            if tower.pooling and tower.pooling.restore:  # theirs lists what the layer after it reads
                restored = layers.pop(1 + tower.pooling.restore)[0]
                assert_close(
                    seen[f"{side}.blocks.{tower.pooling.restore}.in"][row, where], restored, tolerance
                )
            count = int(where.sum())  # some references fill texts up, and leave that in their states
            for i, layer in enumerate(layers[1:-1]):  # the last of theirs is after the last norm
                state = seen[f"{side}.blocks.{i}.out"][row]
                # What was pooled is aligned to the left.
                state = state[where] if len(state) == len(where) else state[: layer.shape[1]]
                assert_close(state, layer[0, :count], tolerance)
            two_streams = tower.residual == "reversible"  # then it is before, one of two
            last = f"{side}.blocks.{len(layers) - 2}.out" if two_streams else f"{side}.out"
            state = seen[last][row]
            state = state[where] if len(state) == len(where) else state[: layers[-1].shape[1]]
            assert_close(state, layers[-1][0, :count], tolerance)
        assert_close(row_of(ours, answer, batch, row, answer_of(want)), answer_of(want), tolerance)
        if "seq_relationship_logits" in want:
            second = ours.read_second(ours.states(batch.ids, batch.mask))
            assert_close(second[row], want["seq_relationship_logits"][0], tolerance)


def _reference_run(reference: Reference, dtype: torch.dtype, folder: Path, batch: Batch) -> list[Any]:
    if dtype == torch.float32:
        return run_theirs(reference.files(folder), batch)
    with in_64_bits():
        return run_theirs(reference.files(folder, dtype), batch)


@every
@torch.no_grad()
def test_load_then_save_gives_back_the_same_folder(reference: Reference, tmp_path: Path) -> None:
    """The same tensors under the same names, bit for bit, and the reference opens it with the same answer.

    Both of its models get their weights in memory of their own: one was built, the other is a mapped file,
    and where a matrix begins decides how a product rounds.
    """
    theirs = in_own_memory(reference.files(tmp_path / "one"))
    ch.save(ch.load(tmp_path / "one"), tmp_path / "two")
    before, after = (load_file(tmp_path / n / "model.safetensors") for n in ("one", "two"))
    assert set(after) == set(before)
    assert all(torch.equal(after[name], x) for name, x in before.items())
    again = in_own_memory(type(theirs).from_pretrained(tmp_path / "two", local_files_only=True).eval())
    batch = Batch.of(reference)
    for one, two in zip(run_theirs(theirs, batch), run_theirs(again, batch), strict=True):
        assert torch.equal(answer_of(one), answer_of(two))


@known
def test_a_fresh_model_is_opened_by_the_reference(family: Family, tmp_path: Path) -> None:
    """What we build and save, the reference loads without a missing or an unexpected tensor."""
    for task, architecture in family.architectures.items():
        sizes = tiny_sizes(family, task)
        ch.save(ch.build(family.name, task=task, **sizes), tmp_path / task)
        kind = getattr(transformers, architecture)
        _, info = kind.from_pretrained(tmp_path / task, local_files_only=True, output_loading_info=True)
        rows = family.weights(family.config(sizes), task)
        computed = {row.theirs.removeprefix(family.prefix) for row in rows if isinstance(row, Ignore)}
        missing = {name.removeprefix(family.prefix) for name in info["missing_keys"]}
        missing = {re.sub(r"\.\d+\.", ".{i}.", name) for name in missing} - computed
        missing = {re.sub("weight$|bias$", "{p}", name) for name in missing}
        assert not missing - computed and not info["unexpected_keys"] and not info["mismatched_keys"], info
        assert ch.load(tmp_path / task).task == task


@families
def test_a_spec_of_every_size_can_be_written_as_json(family: Family) -> None:
    for name in family.sizes:
        again, config = family_and_config(name)
        assert again is family
        spec = family.spec(config, "tokens")
        assert Spec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec


@known
def test_defaults_are_those_of_the_reference(family: Family) -> None:
    config = type(transformers.AutoConfig.for_model(family.key))
    theirs = config().to_dict()
    for key, value in family.defaults.items():
        if key in theirs and key not in ("rope_parameters", "tie_word_embeddings"):
            # A class may change its default: Qwen 2 has a window of 4096, and none as long as it is not used.
            known = theirs[key] if theirs[key] == value else getattr(config, key, theirs[key])
            required = known is None and key in ("vocab_size", "mask_token_id", "pad_token_id")  # ESM
            assert known == value or value is None or required, (family.name, key, known, value)


@pytest.mark.parametrize("name", ["BertLMHeadModel", "RobertaForCausalLM"])
@torch.no_grad()
def test_an_encoder_saved_as_a_decoder_looks_back_only(name: str, tmp_path: Path) -> None:
    """Its config says `is_decoder`; read as an encoder it would be another model, and nobody would notice."""
    kind = getattr(transformers, name)
    config = kind.config_class(**{k: v for k, v in TINY.items() if k not in ("id2label", "head_dim")})
    config.is_decoder = True
    with torch.random.fork_rng():
        torch.manual_seed(0)
        theirs = kind(config).eval()
    theirs.save_pretrained(tmp_path)
    ours, ids = ch.load(tmp_path), torch.arange(5, 25).view(2, 10)
    assert_close(ours.model(ids), theirs(input_ids=ids).logits)
    longer = (
        ids  # by hand: their `generate` counts RoBERTa's positions from 0, their model from after padding
    )
    for _ in range(6):
        best = theirs(input_ids=longer).logits[:, -1:].argmax(-1)
        longer = torch.cat([longer, best], dim=1)
    assert torch.equal(ours.generate_ids(ids, max_new_tokens=6, eos_token_id=[]), longer)


@pytest.mark.parametrize("key", ["add_cross_attention", "position_embedding_type"])
def test_a_config_of_another_architecture_is_refused(key: str, tmp_path: Path) -> None:
    """What nothing here builds must not be left out in silence."""
    ch.save(ch.build("bert", **{k: v for k, v in TINY.items() if k in FAMILIES["bert"].defaults}), tmp_path)
    other = {"add_cross_attention": True, "position_embedding_type": "relative_key"}[key]
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: other}))
    with pytest.raises(ch.errors.LoadError, match=f"config.json: {key} is .*; only .* can be built here"):
        ch.load(tmp_path)
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: None}))
    ch.load(tmp_path)


@torch.no_grad()
def test_bigbird_turns_to_full_attention_where_the_reference_does(tmp_path: Path) -> None:
    """Blocks of 2 tokens, one drawn block: up to 14 tokens everyone sees everyone."""
    reference = next(r for r in REFERENCES.values() if r.family.name == "big_bird" and r.task == "tokens")
    config = reference.config()
    config.block_size, config.num_random_blocks = 2, 1
    kind = getattr(transformers, reference.family.architectures["tokens"])
    with torch.random.fork_rng():
        torch.manual_seed(0)
        kind(config).save_pretrained(tmp_path)
    ours = ch.load(tmp_path).model
    for length in (3, 7, 13, 14, 15, 16, 22):
        theirs = kind.from_pretrained(tmp_path).eval()  # anew: once full, it stays full
        ids = torch.arange(5, 5 + length)[None]
        assert_close(ours(ids), theirs(input_ids=ids).logits)

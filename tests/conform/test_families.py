"""Laws that every family obeys. None of them names one."""

import inspect
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
import transformers
from references import BASE, KNOWN, REFERENCES, SPEAKING, TINY, Exact, Reference, in_own_memory, patient
from safetensors.torch import load_file
from tolerance import assert_close
from torch import Tensor

import clearhead as ch
from clearhead import nn as cn
from clearhead.families import FAMILIES, Family, family_and_config
from clearhead.spec import Spec
from clearhead.weights import Ignore

every = pytest.mark.parametrize("reference", REFERENCES.values(), ids=REFERENCES)
families = pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
known = pytest.mark.parametrize("family", KNOWN.values(), ids=KNOWN)
LENGTH = 18


@dataclass
class Batch:
    """Ours: three rows in one call, the second padded behind, the third in front. Theirs: each row alone."""

    ids: Tensor
    mask: Tensor
    target: Tensor
    wide: Tensor | None  # which tokens are global, for the families that have such

    @staticmethod
    def of(reference: Reference) -> "Batch":
        config = reference.config()
        key = torch.Generator().manual_seed(4)
        vocab = min(config.vocab_size, getattr(config, "decoder_vocab_size", None) or config.vocab_size)
        ids = torch.randint(3, vocab, (3, LENGTH), generator=key)
        mask = torch.ones(3, LENGTH, dtype=torch.long)
        mask[1, -5:], mask[2, :4] = 0, 0
        ids[mask == 0] = getattr(config, "pad_token_id", None) or 0  # CodeGen's has no such key
        if reference.reads_to_the_end:  # in the last slot, before a further token, and twice
            ids[0, -2], ids[1, -6], ids[2, 7], ids[2, -1] = (config.eos_token_id,) * 4
        wide = torch.zeros_like(mask)
        wide[0, [0, 9]], wide[1, 3], wide[2, [4, 5, 17]] = 1, 1, 1
        target = torch.randint(3, vocab, (3, 11), generator=key)
        return Batch(ids, mask, target, wide if reference.takes_globals else None)

    def rows(self) -> list[dict[str, Tensor]]:
        """Each row without its padding, as theirs take it."""
        real = [self.mask[i] == 1 for i in range(3)]
        rows = [{"input_ids": self.ids[i, real[i]][None]} for i in range(3)]
        if self.wide is not None:
            for i, row in enumerate(rows):
                row["global_attention_mask"] = self.wide[i, real[i]][None]
        return rows

    def rule(self) -> Tensor | cn.Mask:
        """The mask of the whole batch, as ours take it."""
        if self.wide is None:
            return self.mask
        return cn.mask_adapters.from_attention_mask(self.mask) & cn.mask_adapters.from_global_attention_mask(
            self.wide
        )


def run_theirs(theirs: Any, batch: Batch) -> list[Any]:
    patient(theirs)
    more = {"output_hidden_states": True}
    if "use_cache" in inspect.signature(theirs.forward).parameters:
        more["use_cache"] = False  # of decoders alone, theirs counts the layers of the encoder
    if takes_target(theirs):
        pairs = zip(batch.rows(), batch.target, strict=True)
        return [theirs(**row, decoder_input_ids=target[None], **more) for row, target in pairs]
    rows = batch.rows()
    if type(theirs).__name__.endswith("ForMultipleChoice"):  # (B, choices, T): questions with one choice
        # With a mask of ones: ModernBERT's takes the mean over the mask it is given.
        rows = [row | {"attention_mask": torch.ones_like(row["input_ids"])} for row in rows]
        rows = [{name: x[:, None] for name, x in row.items()} for row in rows]
    return [theirs(**row, **more) for row in rows]


def takes_target(theirs: Any) -> bool:
    """Whether theirs reads a target beside its source; its classifiers read the source twice."""
    one_text = type(theirs).__name__.endswith(("ForSequenceClassification", "ForQuestionAnswering"))
    return "decoder_input_ids" in inspect.signature(theirs.forward).parameters and not one_text


def run_ours(ours: Any, batch: Batch, tap: cn.Tap = cn.OFF) -> Tensor:
    if isinstance(ours, cn.EncoderDecoderModel):
        return ours(batch.ids, batch.target, batch.rule(), tap=tap)
    return ours(batch.ids, batch.rule(), tap=tap)


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
        per_token = answer.ndim == 3 and not isinstance(ours, cn.EncoderDecoderModel)
        if per_token and answer.shape[1] != len(real):  # pooled, and aligned to the left
            real = torch.arange(answer.shape[1]) < len(_answer(want))
        assert_close(answer[row, real] if per_token else answer[row], _answer(want), tolerance)
        if "seq_relationship_logits" in want:
            second = ours.read_second(ours.states(batch.ids, batch.mask))
            assert_close(second[row], want["seq_relationship_logits"][0], tolerance)


def _answer(want: Any) -> Tensor:
    if "end_logits" in want:
        return torch.stack([want["start_logits"][0], want["end_logits"][0]], dim=-1)
    names = ("logits", "prediction_logits", "last_hidden_state")
    return next(want[name] for name in names if name in want)[0]


def _reference_run(reference: Reference, dtype: torch.dtype, folder: Path, batch: Batch) -> list[Any]:
    if dtype == torch.float32:
        return run_theirs(reference.files(folder), batch)
    torch.set_default_dtype(torch.float64)
    try:
        with (
            Exact(),
            patch("torch.FloatTensor", torch.DoubleTensor),
        ):  # Marian's sines ask for 32 bits by name
            return run_theirs(reference.files(folder, dtype), batch)
    finally:
        torch.set_default_dtype(torch.float32)


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
        assert torch.equal(_answer(one), _answer(two))


@known
def test_a_fresh_model_is_opened_by_the_reference(family: Family, tmp_path: Path) -> None:
    """What we build and save, the reference loads without a missing or an unexpected tensor."""
    for task, architecture in family.architectures.items():
        sizes = {key: value for key, value in TINY.items() if key in family.defaults}
        sizes |= BASE.get(family.name, {}) | (SPEAKING.get(family.name, {}) if task == "tokens" else {})
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
def test_a_tiny_model_of_every_size_can_be_counted_and_written_as_json(family: Family) -> None:
    for name in family.sizes:
        again, config = family_and_config(name)
        assert again is family
        spec = family.spec(config, "tokens")
        assert spec.count() > 1000
        assert Spec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec


@known
def test_defaults_are_those_of_the_reference(family: Family) -> None:
    theirs = transformers.AutoConfig.for_model(family.key).to_dict()
    for key, value in family.defaults.items():
        if key in theirs and key not in ("rope_parameters", "tie_word_embeddings"):
            known = theirs[key]
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


@pytest.mark.parametrize("key", ["add_cross_attention", "position_embedding_type", "quantization_config"])
def test_a_config_of_another_architecture_is_refused(key: str, tmp_path: Path) -> None:
    """What nothing here builds must not be left out in silence."""
    ch.save(ch.build("bert", **{k: v for k, v in TINY.items() if k in FAMILIES["bert"].defaults}), tmp_path)
    other = {"add_cross_attention": True, "position_embedding_type": "relative_key"}.get(key, {"bits": 4})
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

"""Laws that every family obeys. None of them names one."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from references import REFERENCES, Exact, Reference
from safetensors.torch import load_file
from tolerance import assert_close
from torch import Tensor

from clearhead import nn as cn
from clearhead import weights
from clearhead.families import FAMILIES, Family, named
from clearhead.spec import Spec

every = pytest.mark.parametrize("reference", REFERENCES.values(), ids=REFERENCES)
families = pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
LENGTH = 18


def stored(folder: Path, family: Family) -> dict[str, Tensor]:
    """The tensors of a folder; base models leave the prefix out."""
    state = load_file(folder / "model.safetensors")
    if any(name.startswith(family.prefix) for name in state):
        return state
    return {family.prefix + name: x for name, x in state.items()}


def ours_from(reference: Reference, folder: Path) -> tuple[Any, weights.Loaded, weights.Table]:
    state = stored(folder, reference.family)
    said = json.loads((folder / "config.json").read_text())
    config = reference.family.config(said, stored=state)
    spec, table = (f(config, reference.task) for f in (reference.family.spec, reference.family.weights))
    loaded = weights.load(state, table)
    assert not loaded.unknown, loaded.unknown
    model = spec.empty()
    assert set(loaded.state) == {name for name, _ in model.named_parameters()}
    model.load_state_dict(loaded.state, assign=True, strict=False)
    return model.eval(), loaded, table


@dataclass
class Batch:
    """Ours: three rows in one call, the second padded behind, the third in front. Theirs: each row alone."""

    ids: Tensor
    mask: Tensor
    target: Tensor

    @staticmethod
    def of(config: Any) -> "Batch":
        key = torch.Generator().manual_seed(4)
        vocab = min(config.vocab_size, getattr(config, "decoder_vocab_size", None) or config.vocab_size)
        ids = torch.randint(3, vocab, (3, LENGTH), generator=key)
        mask = torch.ones(3, LENGTH, dtype=torch.long)
        mask[1, -5:], mask[2, :4] = 0, 0
        ids[mask == 0] = config.pad_token_id or 0
        return Batch(ids, mask, torch.randint(3, vocab, (3, 11), generator=key))

    def rows(self) -> list[tuple[Tensor, Tensor]]:
        """Each row without its padding, and its target."""
        return [(self.ids[i, self.mask[i] == 1][None], self.target[i][None]) for i in range(3)]


def run_theirs(theirs: Any, batch: Batch) -> list[Any]:
    more = {"output_hidden_states": True}
    if theirs.config.is_encoder_decoder:
        return [
            theirs(input_ids=ids, decoder_input_ids=tgt, use_cache=False, **more) for ids, tgt in batch.rows()
        ]
    return [theirs(input_ids=ids, **more) for ids, _ in batch.rows()]


def run_ours(ours: Any, batch: Batch, tap: cn.Tap = cn.OFF) -> Tensor:
    if isinstance(ours, cn.PairModel):
        return ours(batch.ids, batch.target, batch.mask, tap=tap)
    return ours(batch.ids, batch.mask, tap=tap)


@every
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["fp32", "fp64"])
@torch.no_grad()
def test_same_numbers_as_the_reference(reference: Reference, dtype: torch.dtype, tmp_path: Path) -> None:
    """Answers and every hidden layer, padded on either side, in both precisions."""
    tolerance = {torch.float32: 1e-5, torch.float64: 1e-10}[dtype]
    batch = Batch.of(reference.config())
    wanted = _reference_run(reference, dtype, tmp_path, batch)
    ours, _, _ = ours_from(reference, tmp_path)
    seen = cn.Recorder()
    answer = run_ours(ours, batch, tap=seen.tap("*.out"))
    for row, want in enumerate(wanted):
        real = batch.mask[row] == 1
        sides = {"tower": ("hidden_states", real)}
        if isinstance(ours, cn.PairModel):
            everything = torch.ones(11, dtype=torch.bool)
            sides = {
                "encoder": ("encoder_hidden_states", real),
                "decoder": ("decoder_hidden_states", everything),
            }
        for side, (name, where) in sides.items():
            layers = want[name]
            for i, layer in enumerate(layers[1:-1]):  # the last of theirs is after the last norm
                assert_close(seen[f"{side}.blocks.{i}.out"][row, where], layer[0], tolerance)
            assert_close(seen[f"{side}.out"][row, where], layers[-1][0], tolerance)
        per_token = answer.ndim == 3 and not isinstance(ours, cn.PairModel)
        assert_close(answer[row, real] if per_token else answer[row], _answer(want), tolerance)


def _answer(want: Any) -> Tensor:
    if "end_logits" in want:
        return torch.stack([want["start_logits"][0], want["end_logits"][0]], dim=-1)
    return (want["logits"] if "logits" in want else want["last_hidden_state"])[0]


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
def test_loading_then_exporting_changes_nothing(reference: Reference, tmp_path: Path) -> None:
    reference.files(tmp_path)
    before = stored(tmp_path, reference.family)
    _, loaded, table = ours_from(reference, tmp_path)
    after = weights.export(loaded.state, table) | loaded.aliases | loaded.kept
    assert set(after) == set(before)
    assert all(torch.equal(after[name], x) for name, x in before.items())


@families
def test_a_tiny_model_of_every_size_can_be_counted_and_written_as_json(family: Family) -> None:
    for name in family.sizes:
        again, config = named(name)
        assert again is family
        spec = family.spec(config, "tokens")
        assert spec.count() > 1000
        assert Spec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec


@families
def test_defaults_are_those_of_the_reference(family: Family) -> None:
    import transformers

    theirs = transformers.AutoConfig.for_model(family.key).to_dict()
    for key, value in family.defaults.items():
        if key in theirs and key not in ("rope_parameters", "tie_word_embeddings"):
            known = theirs[key]
            assert known == value or value is None, (family.name, key, known, value)

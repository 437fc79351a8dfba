"""Training what is tuned: every family with every kind of tuning.

A part of the table in every run, in which every family and every tuning is met; the whole in `make proof`.
"""

import itertools
import shutil
from dataclasses import replace
from pathlib import Path

import matrix
import pytest
import torch
from fine_tuning_rows import COMBINATIONS, TINY, checkpoint, rows_file
from references import KNOWN
from safetensors import safe_open
from tolerance import assert_close
from tunings import TUNINGS, refusal

import clearhead as ch
from clearhead.errors import ClearheadError
from clearhead.recipes import PreparedRun, RunConfig, load_run, prepare
from clearhead.train import Trainer
from clearhead.tune import Bottleneck, Prefix, Prompt

RECIPES = {name: [recipe for family, recipe in COMBINATIONS if family.name == name] for name in KNOWN}
CASES = list(itertools.product(KNOWN, TUNINGS))


def in_turn(name: str, kind: str) -> bool:
    """Two tunings for every family, others for its neighbours in the table."""
    return (list(KNOWN).index(name) + list(TUNINGS).index(kind)) % (len(TUNINGS) // 2) == 0


every = pytest.mark.parametrize(("name", "kind"), matrix.combinations(CASES, "{}-{}".format, in_turn))


def run_of(folder: Path, name: str, kind: str) -> RunConfig:
    """A run of one of the recipes that the family can learn."""
    at = list(KNOWN).index(name) + list(TUNINGS).index(kind)
    recipe = RECIPES[name][at % len(RECIPES[name])]
    base, file = checkpoint(folder / "base", KNOWN[name], recipe), rows_file(folder, recipe)
    words = [f"data.source={file}", f"data.valid={file}", f"model.family={base}", *TINY]
    run = load_run(recipe, [*words, "train.save_every=1", "train.keep=4", "train.lr=0.01"])
    return replace(run, tune=TUNINGS[kind])


def outputs(bundle: ch.Bundle) -> torch.Tensor:
    ids = torch.randint(5, 88, (2, 12), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        if bundle.spec.inputs == 1:
            return bundle.model(ids)
        return bundle.model(ids, ids[:, :8])


def trained(prepared: PreparedRun, folder: Path) -> ch.Bundle:
    Trainer(prepared.bundle, prepared.task, prepared.run.train, folder).run()
    return prepared.bundle


@every
def test_a_tuned_run(name: str, kind: str, tmp_path: Path) -> None:
    run = run_of(tmp_path, name, kind)
    spec = ch.load(tmp_path / "base").spec
    if (why := refusal(kind, spec)) is not None:
        with pytest.raises(ClearheadError, match=why):
            prepare(run)
        return
    prepared = prepare(run)
    bundle = prepared.bundle
    base = bundle.base
    assert base is not None and bundle.tuning is not None
    before = {n: p.detach().clone() for n, p in base.model.named_parameters()}
    start = {n: p.detach().clone() for n, p in bundle.model.named_parameters()}
    trained(prepared, tmp_path / "run")

    # The base is bit for bit what it was; what moved is what learns.
    assert all(torch.equal(p, before[n]) for n, p in base.model.named_parameters())
    moved = {n for n, p in bundle.model.named_parameters() if not torch.equal(p, start[n])}
    assert moved and moved <= set(bundle.tuning.trained)
    with safe_open(tmp_path / "run" / "checkpoint-000003" / "state.safetensors", "pt") as state:
        keys = [key for key in state.keys() if key.startswith("optimizer.")]  # noqa: SIM118
    moments = {key.removeprefix("optimizer.").rpartition("/")[0] for key in keys}
    assert moments <= set(bundle.tuning.trained) and moments

    # What is saved is what was trained, and it merges.
    answer = outputs(bundle)
    again = ch.load(tmp_path / "run")
    assert torch.equal(outputs(again), answer)
    if not isinstance(TUNINGS[kind], Bottleneck | Prefix | Prompt):
        assert_close(outputs(bundle.merged()), answer)

    # A run that was cut off after its first step ends with the same bits.
    for path in (tmp_path / "run").iterdir():
        if path.name not in ("checkpoint-000001", "metrics.jsonl"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    resumed = trained(prepare(run), tmp_path / "run")
    for n, p in resumed.model.named_parameters():
        assert torch.equal(p, bundle.model.get_parameter(n)), n

"""Funnel against its reference where the laws of families do not look: pairs, short texts, packing, sizes."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from references import REFERENCES, Exact, Reference
from tolerance import assert_close

import clearhead as ch
from clearhead import nn as cn
from clearhead.families import FAMILIES, family_and_config

FUNNELS = {name: r for name, r in REFERENCES.items() if r.family.name == "funnel"}
every = pytest.mark.parametrize("reference", FUNNELS.values(), ids=FUNNELS)
per_token = pytest.mark.parametrize(
    "reference", [r for r in FUNNELS.values() if r.task == "tokens"], ids=lambda r: r.name
)


def both(reference: Reference, folder: Path) -> tuple[Any, Any]:
    """Theirs in float64, and ours from its files."""
    torch.set_default_dtype(torch.float64)
    try:
        theirs = reference.files(folder, torch.float64)
    finally:
        torch.set_default_dtype(torch.float32)
    return theirs, ch.load(folder).model


def run_exact(theirs: Any, **inputs: torch.Tensor) -> torch.Tensor:
    torch.set_default_dtype(torch.float64)
    try:
        with Exact():
            if type(theirs).__name__.endswith("ForMultipleChoice"):
                inputs = {name: x[:, None] for name, x in inputs.items()}
            answer = theirs(**inputs)
    finally:
        torch.set_default_dtype(torch.float32)
    return torch.stack([answer[0], answer[1]], -1) if "end_logits" in answer else answer[0]


@every
@torch.no_grad()
def test_pairs_of_texts_have_types(reference: Reference, tmp_path: Path) -> None:
    """The first token is of type 2, which both texts share; a lone token of the other type is pooled."""
    theirs, ours = both(reference, tmp_path)
    for length in (17, 18, 20, 21):
        ids = torch.randint(3, 90, (2, length), generator=torch.Generator().manual_seed(length))
        types = torch.zeros_like(ids)
        types[:, 0], types[0, 9:], types[1, 12:], types[1, 5] = 2, 1, 1, 1
        want = run_exact(theirs, input_ids=ids, token_type_ids=types)
        given = ours(ids, types=types)
        # The discriminator of theirs drops the last dimension.
        want = want[..., None] if reference.task == "replaced" else want
        assert_close(given, want, 1e-10)
        assert (ours(ids) - want).abs().max() > 1e-4  # the types matter


SHORT = ["funnel/tokens/factorized", "funnel/tokens/all-pooled-factorized"]


@pytest.mark.parametrize("name", SHORT)
@torch.no_grad()
def test_texts_too_short_to_be_halved(name: str, tmp_path: Path) -> None:
    """With relative_shift theirs raises an error below five tokens; factorized, it reads them."""
    theirs, ours = both(REFERENCES[name], tmp_path)
    for length in range(1, 10):
        ids = torch.randint(3, 90, (2, length), generator=torch.Generator().manual_seed(length))
        assert_close(ours(ids), run_exact(theirs, input_ids=ids), 1e-10)


@torch.no_grad()
def test_both_ways_to_compute_scores_give_the_same_numbers(tmp_path: Path) -> None:
    theirs, ours = both(REFERENCES["funnel/tokens/plain"], tmp_path)
    ids = torch.randint(3, 90, (2, 19), generator=torch.Generator().manual_seed(0))
    shifted = run_exact(theirs, input_ids=ids)
    theirs.config.attention_type = "factorized"  # every module of theirs reads this one config
    assert_close(shifted, run_exact(theirs, input_ids=ids), 1e-10)
    assert_close(ours(ids), shifted, 1e-10)


@per_token
@torch.no_grad()
def test_packed_texts_equal_each_alone(reference: Reference, tmp_path: Path) -> None:
    """Even, odd and tiny texts in one row, with padding around and a hole inside."""
    reference.files(tmp_path)
    ours = ch.load(tmp_path, dtype=torch.float64).model
    lengths = [5, 1, 9, 2, 13, 3, 8]
    number = [-1, *(i for i, n in enumerate(lengths) for _ in range(n)), -1, -1]
    number[20] = -1
    document = torch.tensor([number])
    ids = torch.randint(3, 90, (1, len(number)), generator=torch.Generator().manual_seed(1))
    got = ours(ids, cn.Documents(document))
    for i in range(len(lengths)):
        own = document[0] == i
        assert_close(got[0, own], ours(ids[:, own])[0], 1e-10)


@pytest.mark.parametrize("name", FAMILIES["funnel"].sizes)
@pytest.mark.parametrize("task", ["tokens", "hidden", "encoder"])
def test_named_sizes_have_the_parameters_of_the_reference(name: str, task: Any) -> None:
    family, config = family_and_config(name)
    kind = getattr(transformers, family.architectures[task])
    with torch.device("meta"):
        theirs = kind(transformers.FunnelConfig(**config))
    assert family.spec(config, task).count() == sum(p.numel() for p in theirs.parameters())


@pytest.mark.parametrize(
    ("task", "given"),
    [
        ("tokens", {"block_sizes": [3]}),
        ("tags", {"block_repeats": [2, 1, 1]}),
        ("span", {"num_decoder_layers": 0}),
    ],
)
def test_what_theirs_restores_otherwise_is_one_line(task: Any, given: dict[str, Any]) -> None:
    with pytest.raises(ch.errors.SpecError, match="a head that reads every token needs two blocks or more"):
        ch.build("funnel", task=task, d_model=32, n_head=4, d_head=8, d_inner=48, **given)


def test_an_encoder_alone_gets_no_head_that_needs_the_decoder(tmp_path: Path) -> None:
    REFERENCES["funnel/encoder/plain"].files(tmp_path)
    assert ch.load(tmp_path, head="labels", labels=["a", "b"]).task == "labels"
    with pytest.raises(ch.errors.InputError, match="the encoder of Funnel Transformer alone; 'tags' needs"):
        ch.load(tmp_path, head="tags", labels=["a", "b"])

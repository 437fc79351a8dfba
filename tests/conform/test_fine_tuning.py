"""Fine-tuning: every family with every recipe it can learn, from a checkpoint with another head.

Three steps are trained, the result is saved and opened by transformers: same logits, same label names.
"""

from pathlib import Path

import matrix
import pytest
import torch
import transformers
from fine_tuning_rows import COMBINATIONS, LABELS, TEXTS, TINY, checkpoint, rows_file
from references import KNOWN, patient
from tolerance import assert_close

import clearhead as ch
from clearhead.families import Family
from clearhead.nn import SameInput
from clearhead.recipes import RECIPES, load_run, prepare
from clearhead.text import Tokenizer
from clearhead.train import Trainer
from clearhead.weights import targets


def test_the_combinations_cover_every_family_and_every_recipe() -> None:
    assert {family.name for family, _ in COMBINATIONS} == set(KNOWN)
    assert {recipe for _, recipe in COMBINATIONS} == set(RECIPES)
    assert len(COMBINATIONS) > 100
    some = [(family.name, recipe) for family, recipe in COMBINATIONS if every_third(family, recipe)]
    assert {name for name, _ in some} == set(KNOWN) and {recipe for _, recipe in some} == set(RECIPES)


def every_third(family: Family, recipe: str) -> bool:
    """Every family with a third of its recipes, another third for its neighbours in the table."""
    own = [r for f, r in COMBINATIONS if f is family]
    return (own.index(recipe) + list(KNOWN).index(family.name)) % 3 == 0


@pytest.mark.parametrize(
    ("family", "recipe"),
    matrix.combinations(COMBINATIONS, lambda family, recipe: f"{family.name}-{recipe}", every_third),
)
def test_a_fine_tuned_checkpoint_is_what_transformers_opens(
    family: Family, recipe: str, tmp_path: Path
) -> None:
    base = checkpoint(tmp_path / "base", family, recipe)
    task = load_run(recipe).task
    file = rows_file(tmp_path, recipe)
    words = [f"data.source={file}", f"data.valid={file}", f"model.family={base}", *TINY]
    prepared = prepare(load_run(recipe, words))
    before = {name: p.detach().clone() for name, p in prepared.bundle.model.named_parameters()}
    Trainer(prepared.bundle, prepared.task, prepared.run.train, tmp_path / "run").run()
    moved = [n for n, p in prepared.bundle.model.named_parameters() if not torch.equal(p, before[n])]
    heads = [name for name in before if name.startswith("head")]  # a tied one has no weights of its own
    assert any(name in moved for name in heads) == bool(heads)
    assert any("blocks" in name for name in moved)

    bundle = ch.load(tmp_path / "run")
    kind = getattr(transformers, family.architectures[bundle.task])
    theirs, info = kind.from_pretrained(tmp_path / "run", output_loading_info=True)
    patient(theirs)
    assert not info["mismatched_keys"]
    table = family.weights(family.config(bundle.config), bundle.task)
    unused = [name for name in info["missing_keys"] if "pooler" in name or targets(name, table) == ()]
    assert set(unused) == set(info["missing_keys"])  # a pooler beside sentence vectors, a bias never added
    if task in LABELS:
        assert list(bundle.labels.values()) == LABELS[task]
        assert theirs.config.id2label == dict(enumerate(LABELS[task]))
    if task == "regress":
        assert theirs.config.problem_type == "regression"
    ids = torch.randint(5, 88, (2, 12), generator=torch.Generator().manual_seed(0))
    if isinstance(bundle.spec, SameInput):  # theirs needs an end token
        ids[:, -1] = bundle.spec.end or 0
    with torch.no_grad():
        inputs = {"decoder_input_ids": ids[:, :8]} if bundle.spec.is_encoder_decoder else {}
        ours = bundle.model(ids, ids[:, :8]) if inputs else bundle.model(ids)
        if (family.name, bundle.task) == ("longformer", "span"):  # theirs looks for the question by itself
            inputs["global_attention_mask"] = torch.zeros_like(ids)
        answer = theirs.eval()(input_ids=ids[:, None] if bundle.task == "choice" else ids, **inputs)
        want = torch.stack(tuple(answer[:2]), -1) if bundle.task == "span" else answer[0]
    assert_close(ours, want)
    # AutoTokenizer would give Qwen 2 a byte-level tokenizer, whatever the file says.
    read = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path / "run")
    own = Tokenizer.read(tmp_path / "run")
    assert own is not None and read(TEXTS[0])["input_ids"] == list(own.encode(TEXTS[0]).ids)


@pytest.mark.parametrize("family", KNOWN.values(), ids=list(KNOWN))
def test_a_recipe_builds_a_new_model_of_any_family_that_has_its_head(family: Family, tmp_path: Path) -> None:
    """`--model.family NAME`: the sizes of the recipe in the words of that family."""
    recipes = [recipe for f, recipe in COMBINATIONS if f.name == family.name]
    for recipe in recipes:
        file = rows_file(tmp_path, recipe)
        words = [f"data.source={file}", f"data.valid={file}", "tokenizer.vocab=300", "data.length=64"]
        sizes = [
            "model.width=32",
            "model.depth=2",
            "model.heads=4",
            "model.feedforward=48",
            "model.positions=64",
        ]
        prepared = prepare(load_run(recipe, [*words, "--model.family", family.name, *sizes]))
        spec = prepared.bundle.spec
        assert prepared.bundle.family is not None and prepared.bundle.family.name == family.name
        for tower in spec.towers.values():
            # Layers that only restore the tokens are no part of the depth, as in transformers.
            restore = tower.pooling.restore if tower.pooling else None
            assert (tower.width, restore or tower.depth) == (32, 2)
        assert spec.count() < 120_000, (recipe, spec.count())
        prepared.task.loss(prepared.bundle.model, prepared.task.batch(1, 0)).backward()

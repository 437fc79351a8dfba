"""What each part does, measured: on the translator that travels with the package and on the demo's own."""

from pathlib import Path

import pytest
import torch

import clearhead as ch
from clearhead.bundle.ablation import PARTS, ablations, exact_match, shuffled
from clearhead.data import read_corpus
from clearhead.lens.ablate import ablate
from clearhead.recipes import load_run, prepare
from clearhead.serve.registry import EXAMPLE
from clearhead.train import Trainer

TEXTS, WANTED = zip(
    *((row["src"], row["tgt"]) for row in list(read_corpus("grammar-en-zh")["valid"])[:200]), strict=True
)
NEEDED = ("order of the words", "positions", "cross-attention", "residual connections")


def measured(bundle: ch.Bundle) -> dict[str, float]:
    return {row.without: row.exact for row in ablations(bundle, TEXTS, WANTED)}


def test_the_translator_in_the_package_needs_its_parts() -> None:
    """Red with a grammar in which the words alone decide: then order and positions are worth nothing."""
    exact = measured(ch.load(str(EXAMPLE / "translator")))
    assert tuple(exact) == tuple(PARTS)
    assert exact["nothing"] >= 99
    for part in NEEDED:
        assert exact[part] <= 25, part
    assert exact["attention scale 1/√d"] < exact["nothing"]
    assert exact["causal mask"] == exact["nothing"]  # one token at a time: there is no future to hide


def test_mirror_images_are_told_apart() -> None:
    bundle = ch.load(str(EXAMPLE / "translator"))
    assert bundle.generate("three brave dogs help the old horse") == "三只勇敢的狗帮助那匹年老的马"
    assert bundle.generate("the old horse helps three brave dogs") == "那匹年老的马帮助三只勇敢的狗"


def test_a_shuffled_text_has_the_same_words_in_an_order_of_its_own() -> None:
    again, other = shuffled(TEXTS, 0), shuffled(TEXTS, 1)
    assert again == shuffled(TEXTS, 0) != other
    for text, mixed in zip(TEXTS, again, strict=True):
        assert sorted(text.split()) == sorted(mixed.split())
    assert sum(text == mixed for text, mixed in zip(TEXTS, again, strict=True)) < 5


def test_exact_match_counts_whole_answers() -> None:
    bundle = ch.load(str(EXAMPLE / "translator"))
    right = bundle.generate(list(TEXTS[:4]))
    assert exact_match(bundle, TEXTS[:4], right) == 100
    assert exact_match(bundle, TEXTS[:4], [right[0], right[1] + "的", right[2][:-1], right[0]]) == 25


@pytest.mark.parametrize("part", ["residual", "norm", "mlp", "attn"])
def test_a_part_without_a_side_is_that_of_both_stacks(part: str) -> None:
    model = ch.load(str(EXAMPLE / "translator")).model
    ids = torch.tensor([[5, 6, 7, 8]]), torch.tensor([[1, 9, 10]])
    both, whole = ablate(model, [part])(*ids), model(*ids)
    assert torch.equal(both, ablate(model, [f"encoder.{part}", f"decoder.{part}"])(*ids))
    for side in ("encoder", "decoder"):  # and each of them counts
        assert not torch.equal(both, ablate(model, [f"{side}.{part}"])(*ids))
    assert not torch.equal(both, whole)


@pytest.mark.proof
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_demo_learns_the_grammar_and_breaks_without_its_parts(seed: int, tmp_path: Path) -> None:
    """The recipe as it is shipped: at least 99 % of 500 held-out sentences, word for word."""
    prepared = prepare(load_run("translate-en-zh", [f"train.seed={seed}"]))
    result = Trainer(prepared.bundle, prepared.task, prepared.run.train, tmp_path).run()
    assert result.status == "done"
    assert prepared.task.score(prepared.bundle.model.eval(), "valid")["exact"] >= 99
    exact = measured(prepared.bundle)
    for part in NEEDED:
        assert exact[part] <= 25, part

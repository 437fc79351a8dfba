"""Tuned bundles as engineers use them: over any base, several at once, taken off, with another attention."""

import threading
from pathlib import Path

import pytest
import torch
from packed import folder_of
from tolerance import assert_close
from tunings import TUNINGS, move

import clearhead as ch
from clearhead.engine import preparation
from clearhead.errors import ClearheadError, InputError, LoadError
from clearhead.tune import Bottleneck, Full, Lora, Prefix, Prompt

TEXTS = ["the cat sat", "a dog", "the old dog sat on a mat", "cat"]
WINDOW = {"Attention.kernel": "Window(left=3)"}


def learned(base: ch.Bundle, tuning: object, seed: int = 0) -> ch.Bundle:
    """A tuned bundle whose adapter does something."""
    tuned = ch.tune(base, tuning, seed=seed)
    torch.manual_seed(seed)
    with torch.no_grad():
        for name in tuned.tuning.trained:
            p = tuned.model.get_parameter(name)
            p.add_(0.2 * torch.randn(p.shape, generator=torch.Generator().manual_seed(seed)))
    return tuned


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder_of("llama", tmp_path_factory.mktemp("llama"))


@pytest.fixture
def base(folder: Path) -> ch.Bundle:
    return ch.load(folder)


def logits(bundle: ch.Bundle) -> torch.Tensor:
    with torch.no_grad():
        return bundle.model(torch.arange(5, 45).reshape(4, 10))


@pytest.mark.parametrize(
    ("given", "tuning", "part"),
    [
        ("base", "lora", "a tuning is one of"),
        ("base", None, "a tuning is one of"),
        ("base", Lora(targets="*.attn.quer"), "did you mean"),
        ("base", Lora(targets="q_prj"), "q_proj"),
        ("base", Lora(targets=()), "no targets"),
        ("base", Lora(targets="*.attn", exclude=("*.attn",)), "leaves no layer"),
        ("base", Bottleneck(targets="*.atn"), "matches no sub-layer"),
        ("base", Full(targets="nothing.*"), "matches no parameter"),
        ("base", Prefix(parts=("cross",)), None),  # of a decoder alone: parts say nothing
        ("text", Lora(), "takes a bundle"),
        ("tuned", Lora(), "tuned already"),
    ],
)
def test_what_cannot_be_tuned_is_one_line(
    given: str, tuning: object, part: str | None, base: ch.Bundle
) -> None:
    bundle = {"base": base, "text": "a model", "tuned": base if given != "tuned" else ch.tune(base, Lora())}
    if part is None:
        assert ch.tune(bundle[given], tuning).tuning is not None
        return
    with pytest.raises(InputError, match=part) as error:
        ch.tune(bundle[given], tuning)
    assert "\n" not in str(error.value)


def test_what_learns_is_said(base: ch.Bundle) -> None:
    said = str(ch.tune(base, Lora(rank=2, targets=["q_proj", "v_proj"][0])).tuning)
    numbers = 2 * 2 * (64 + 64)
    assert f"2 linear layers · {numbers} trainable parameters" in said and "by layer 1 1" in said
    uneven = ch.tune(base, Lora(rank=2, targets="*.blocks.0.attn")).tuning
    assert uneven.by_layer == {"tower": [4, 0]} and "by layer 4 0" in str(uneven)


@pytest.mark.parametrize("kind", ["lora", "dora", "ia3", "houlsby", "prefix", "prompt", "layer"])
def test_adapters_are_swapped_without_a_trace(kind: str, folder: Path, tmp_path: Path) -> None:
    """B after A over one base is B alone, and the base is what it was."""
    one = learned(ch.load(folder), TUNINGS["rslora"], seed=1)
    two = learned(ch.load(folder), TUNINGS[kind], seed=2)
    ch.save(one, tmp_path / "one")
    base = ch.load(folder)
    before = logits(base)
    first = ch.load(base, adapter=tmp_path / "one")
    assert torch.equal(logits(first), logits(one))
    if kind == "layer":
        second = ch.tune(base, TUNINGS[kind])
        with torch.no_grad():
            for name in second.tuning.trained:
                second.model.get_parameter(name).copy_(two.model.get_parameter(name))
    else:
        ch.save(two, tmp_path / "two")
        second = ch.load(base, adapter=tmp_path / "two")
    assert torch.equal(logits(second), logits(two))
    assert torch.equal(logits(first), logits(one)) and torch.equal(logits(base), before)
    assert second.base is base and not torch.equal(logits(second), before)


@pytest.mark.parametrize("order", ["swapped, then tuned", "tuned, then swapped"])
def test_another_attention_under_an_adapter_is_given_back(order: str, folder: Path, tmp_path: Path) -> None:
    wide = {"dtype": torch.float64}
    plain = logits(ch.load(folder, **wide))
    first_swapped = order.startswith("swapped")
    tuned = learned(ch.load(folder, edit=WINDOW if first_swapped else None, **wide), Lora(rank=3))
    ch.save(tuned, tmp_path / "adapter")
    swapped = ch.load(folder, edit=WINDOW, **wide)
    if first_swapped:  # the folder says which attention it was trained with
        again = ch.load(tmp_path / "adapter", **wide)
        assert torch.equal(logits(again), logits(tuned)) and "Window" in str(again.spec)
    else:
        with pytest.raises(InputError, match=r"trained with edit=.*, and this bundle has"):
            ch.load(swapped, adapter=tmp_path / "adapter")
    over = ch.load(swapped, adapter=tmp_path / "adapter", any_base=not first_swapped)
    assert bool(logits(over).isfinite().all())
    assert torch.equal(logits(over), logits(learned(swapped, Lora(rank=3))))
    assert_close(logits(over.merged()), logits(over))
    assert torch.equal(logits(swapped), logits(over.base)) and not torch.equal(logits(swapped), plain)
    assert torch.equal(logits(ch.load(folder, **wide)), plain)


@pytest.mark.parametrize("family", ["llama", "gpt2", "t5"])
def test_texts_with_adapters_of_their_own_are_answered_as_alone(
    family: str, folder: Path, tmp_path: Path
) -> None:
    base = ch.load(folder if family == "llama" else folder_of(family, tmp_path), dtype=torch.float64)
    tunings = {"one": Lora(rank=2), "two": Lora(rank=3, variant="dora"), "three": TUNINGS["ia3"],
               "aside": Prompt(length=2), "houlsby": TUNINGS["houlsby"]}  # fmt: skip
    made = {name: learned(base, tuning, seed) for seed, (name, tuning) in enumerate(tunings.items())}
    crowd = ch.together(base, made)
    assert set(crowd.sharing) == {"one", "two", "three"}
    names = ["two", None, "aside", "one", "three", "one", "houlsby", None]
    texts = (TEXTS * 2)[: len(names)]
    for settings in ({}, {"num_beams": 2}, {"do_sample": True, "seed": 3}):
        settings = {**settings, "max_new_tokens": 5}
        together = crowd.generate(texts, adapter=names, **settings)
        if settings.get("do_sample"):
            assert together == crowd.generate(texts, adapter=names, **settings)
            continue
        alone = [crowd[name].generate(text, **settings) for name, text in zip(names, texts, strict=True)]
        assert together == alone
        backwards = crowd.generate(texts[::-1], adapter=names[::-1], **settings)
        assert backwards == alone[::-1]
    with pytest.raises(InputError, match="did you mean 'one'"):
        crowd.generate("a", adapter="onee")
    with pytest.raises(InputError, match="2 adapters for 3 texts"):
        crowd.generate(["a", "b", "c"], adapter=["one", "two"])


def test_threads_get_the_adapter_they_ask_for(base: ch.Bundle) -> None:
    made = {str(i): learned(base, Lora(rank=2), seed=i) for i in range(4)}
    crowd = ch.together(base, made)
    wanted = {name: each.generate(TEXTS[0], max_new_tokens=6) for name, each in made.items()}
    wanted[None] = base.generate(TEXTS[0], max_new_tokens=6)
    assert len(set(wanted.values())) > 2
    wrong: list[object] = []

    def ask(turn: int) -> None:
        for i in range(6):
            names = [[*made, None][(turn + i + j) % 5] for j in range(3)]
            found = crowd.generate([TEXTS[0]] * 3, adapter=names, max_new_tokens=6)
            if found != [wanted[name] for name in names]:
                wrong.append((names, found))

    threads = [threading.Thread(target=ask, args=(turn,)) for turn in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_prepared_base_is_shared(folder: Path) -> None:
    """The packed weights of a base serve its tuned bundles, too: no second copy."""
    base = ch.load(folder, precision="int8")
    one, two = learned(base, Lora(rank=2), 1), learned(base, Lora(rank=2), 2)
    products = [list(map(id, preparation(each.model).products)) for each in (base, one, two)]
    assert products[0] and products[0] == products[1] == products[2]
    own = {p.data_ptr() for p in base.model.parameters()}
    for tuned in (one, two):
        shared = [p for n, p in tuned.model.named_parameters() if n not in tuned.tuning.trained]
        assert {p.data_ptr() for p in shared} <= own
    for tuned in (one, two):
        with pytest.raises(ClearheadError, match="cannot be merged into int8"):
            tuned.merged()
    with pytest.raises(InputError, match="int8"):
        ch.train(base, {"train": [{"text": text} for text in TEXTS * 4]}, tune=Full(), steps=1)


def test_generation_with_an_adapter_is_that_of_the_merged_model(folder: Path) -> None:
    base = ch.load(folder, dtype=torch.float64)
    tuned = learned(base, Lora(rank=4, alpha=2))
    merged = tuned.merged()
    assert merged.report.merged < 1e-12 and merged.tuning is None
    for settings in (
        {}, {"num_beams": 3}, {"do_sample": True, "seed": 1, "top_k": 5}, {"repetition_penalty": 1.3},
        {"penalty_alpha": 0.6, "top_k": 4},
    ):  # fmt: skip
        both = [each.generate(TEXTS, max_new_tokens=8, **settings) for each in (tuned, merged)]
        assert both[0] == both[1]
    assert tuned.generate(TEXTS, max_new_tokens=8) != base.generate(TEXTS, max_new_tokens=8)


def test_an_adapter_of_another_base_is_refused(folder: Path, tmp_path: Path) -> None:
    ch.save(learned(ch.load(folder), Lora(rank=2)), tmp_path / "adapter")
    other = ch.load(folder)
    with torch.no_grad():
        other.model.tower.blocks[1].attn.q.weight.mul_(1.01)
    with pytest.raises(LoadError, match="trained over other weights"):
        ch.load(other, adapter=tmp_path / "adapter")
    assert ch.load(other, adapter=tmp_path / "adapter", any_base=True).tuning is not None
    half = ch.load(folder, dtype=torch.bfloat16)  # the same weights, rounded
    assert ch.load(half, adapter=tmp_path / "adapter").tuning is not None
    narrow = folder_of("gpt2", tmp_path)
    with pytest.raises(ClearheadError) as error:
        ch.load(narrow, adapter=tmp_path / "adapter", any_base=True)
    assert "\n" not in str(error.value)


def test_trained_from_python(base: ch.Bundle) -> None:
    rows = [{"text": f"{text} {i}"} for i in range(6) for text in TEXTS]
    before = logits(base)
    tuned = ch.train(
        base, rows, recipe="lm", tune=Lora(rank=2), steps=3, lr=1e-2, progress=ch.train.QuietProgress()
    )
    assert tuned.tuning is not None and not torch.equal(logits(tuned), before)
    assert torch.equal(logits(base), before) and tuned.base is not None
    further = ch.train(tuned, rows, recipe="lm", steps=3, lr=1e-2, progress=ch.train.QuietProgress())
    assert further.tuning is not None and further.tuning.value == tuned.tuning.value
    assert not torch.equal(logits(further), logits(tuned))


def test_move_moves(base: ch.Bundle) -> None:
    """The other tests would prove nothing about adapters that are still zero."""
    tuned = ch.tune(base, Lora(rank=2))
    assert torch.equal(logits(tuned), logits(base))
    move(tuned.model, tuned.tuning.trained)
    assert not torch.equal(logits(tuned), logits(base))

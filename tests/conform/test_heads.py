"""Any head on any checkpoint: every family, from each head to every other, as transformers reads it."""

import importlib
from itertools import permutations
from pathlib import Path

import pytest
import torch
import transformers
from matrix import combinations
from references import KNOWN, REFERENCES, Reference, patient
from tolerance import assert_close

import clearhead as ch
from clearhead.errors import InputError
from clearhead.families import Family

LABELS = ["neg", "so-so", "pos", "none"]
TRAINED = ("labels", "tags", "span", "choice", "tokens", "hidden")
CHANGES = [
    (family, before, after)
    for family in KNOWN.values()
    for before, after in permutations(family.architectures, 2)
    if after in TRAINED and family.tower_of(before) in (None, family.tower_of(after))
]


def from_the_first(family: Family, before: str, after: str) -> bool:
    return next(iter(family.architectures)) == before


@pytest.mark.parametrize(
    ("family", "before", "after"),
    combinations(CHANGES, lambda family, *heads: "-".join((family.name, *heads)), from_the_first),
)
def test_a_new_head_is_what_transformers_reads(
    family: Family, before: str, after: str, tmp_path: Path
) -> None:
    old = Reference(family, before, "plain", {}).files(tmp_path / "old")
    labels = LABELS if after in ("labels", "tags") else None
    bundle = ch.load(tmp_path / "old", head=after, labels=labels, seed=3)
    ch.save(bundle, tmp_path / "new")
    kind = getattr(transformers, family.architectures[after])
    theirs, info = kind.from_pretrained(tmp_path / "new", output_loading_info=True)
    patient(theirs)
    kept = {name.removeprefix(family.prefix) for name in bundle.report.kept}  # a pooler beside tags
    assert not info["mismatched_keys"]
    assert {name.removeprefix(family.prefix) for name in info["unexpected_keys"]} <= kept
    if labels:
        assert theirs.config.id2label == dict(enumerate(LABELS)) == bundle.labels
    stored = bare(old)
    same = [name for name in bare(theirs) if name in stored and ("embed" in name or "wte" in name)]
    assert same and all(torch.equal(bare(theirs)[name], stored[name]) for name in same)
    ids = torch.randint(3, 90, (2, 12), generator=torch.Generator().manual_seed(0))
    ids[:, -1] = 2  # some heads of theirs need an end token
    with torch.no_grad():
        ours = bundle.model(ids, ids[:, :8]) if bundle.spec.is_encoder_decoder else bundle.model(ids)
        inputs = {"decoder_input_ids": ids[:, :8]} if bundle.spec.is_encoder_decoder else {}
        given = ids[:, None] if after == "choice" else ids
        if family.name == "longformer" and after in ("span", "choice"):  # theirs looks for the question
            inputs["global_attention_mask"] = torch.zeros_like(given)
        answer = theirs.eval()(input_ids=given, **inputs)
        want = torch.stack(tuple(answer[:2]), -1) if after == "span" else answer[0]
    assert_close(ours, want)


def bare(model: transformers.PreTrainedModel) -> dict[str, torch.Tensor]:
    """Its tensors without the prefix that models with a head have."""
    prefix = f"{model.base_model_prefix}."
    return {name.removeprefix(prefix): x for name, x in model.state_dict().items()}


# Classes of theirs that cannot be opened, and why not.
REFUSED = {
    "GPT2DoubleHeadsModel": "a second head that scores choices, beside that of words",
    "OpenAIGPTDoubleHeadsModel": "the same",
    "XLNetForQuestionAnswering": "a search for the end of an answer from each of its beginnings",
    "BigBirdForQuestionAnswering": "a feed-forward layer in the head; theirs masks the question",
    "BigBirdForCausalLM": "its sparse attention is not causal",
}
# Classes that are the same as others here: causal or not by their config, or with a second head that is kept.
SAME_AS = ("ForCausalLM", "LMHeadModel", "ForMaskedLM", "ForPreTraining")


def their_classes(family: Family) -> list[str]:
    """The models of this type that transformers exports, those of other inputs than text apart."""
    kind = getattr(transformers, next(iter(family.architectures.values())))
    names = importlib.import_module(kind.__module__).__all__
    config = getattr(transformers, family.architectures["hidden"]).config_class
    kinds = [getattr(transformers, name) for name in names if "pretrained" not in name.lower()]
    return [kind.__name__ for kind in kinds if getattr(kind, "config_class", None) is config]


@pytest.mark.parametrize("family", KNOWN.values(), ids=KNOWN)
def test_every_class_of_transformers_is_opened_or_refused(family: Family, tmp_path: Path) -> None:
    """Of the classes that nothing here names, those of REFUSED are refused in one line, the others open."""
    config = next(r for r in REFERENCES.values() if r.family is family).config()
    for name in set(their_classes(family)) - set(family.architectures.values()):
        assert name in REFUSED or name.endswith(SAME_AS), name
        config.is_decoder = name.endswith(("ForCausalLM", "LMHeadModel"))
        with torch.random.fork_rng():
            theirs = getattr(transformers, name)(config).eval()
        theirs.save_pretrained(tmp_path / name)
        if name in REFUSED:
            with pytest.raises(ch.errors.ClearheadError) as refused:
                ch.load(tmp_path / name)
            assert "\n" not in str(refused.value)
        else:
            ids = torch.arange(5, 17)[None]
            with torch.no_grad():
                assert_close(ch.load(tmp_path / name).model(ids), theirs(input_ids=ids)[0])


def test_one_tower_does_not_become_two(tmp_path: Path) -> None:
    Reference(KNOWN["bart"], "decoder", "plain", {}).files(tmp_path)
    with pytest.raises(InputError, match="the decoder of BART alone; 'labels' needs more of it"):
        ch.load(tmp_path, head="labels")


def test_a_head_of_the_same_classes_keeps_its_weights_and_their_order(tmp_path: Path) -> None:
    reference = Reference(KNOWN["bert"], "labels", "plain", {})
    reference.files(tmp_path)
    plain = ch.load(tmp_path)
    assert plain.labels == {0: "a", 1: "b", 2: "c"}
    again = ch.load(tmp_path, head="labels", labels=["c", "a", "b"])
    assert again.labels == plain.labels and again.report.fresh == again.report.dropped == ()
    assert torch.equal(again.model.head.project.weight, plain.model.head.project.weight)
    other = ch.load(tmp_path, labels=["x", "y", "z"])  # as many, other names: another classifier
    assert set(other.report.fresh) == {"head.project.weight", "head.project.bias"}
    assert not torch.equal(other.model.head.project.weight, plain.model.head.project.weight)
    assert torch.equal(other.model.head.transform.dense.weight, plain.model.head.transform.dense.weight)


def test_a_new_head_follows_the_seed(tmp_path: Path) -> None:
    Reference(KNOWN["bert"], "hidden", "plain", {}).files(tmp_path)
    one, two, three = (
        ch.load(tmp_path, head="tags", labels=["O", "B"], seed=seed).model.head.project.weight
        for seed in (0, 0, 1)
    )
    assert torch.equal(one, two) and not torch.equal(one, three)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"head": "label"}, "BERT has no head 'label'; did you mean 'labels'"),
        ({"head": "labels", "labels": "neg pos"}, "labels are a list of names"),
        ({"head": "labels", "labels": []}, "labels are a list of names"),
        ({"head": "labels", "labels": ["a", "a"]}, "labels has a name twice"),
        ({"head": "span", "labels": ["a", "b"]}, "labels are for heads with classes"),
    ],
)
def test_heads_that_cannot_be_are_one_line(given: dict[str, object], said: str, tmp_path: Path) -> None:
    Reference(KNOWN["bert"], "hidden", "plain", {}).files(tmp_path)
    with pytest.raises(InputError, match=said):
        ch.load(tmp_path, **given)

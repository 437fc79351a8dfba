"""Frozen parameters: patterns in two spellings; what is frozen keeps its bits and has no optimizer state."""

from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from toy import Toy, remains, toy_bundle

import clearhead
from clearhead.errors import TrainError
from clearhead.patterns import expand_braces
from clearhead.train import Trainer, Training, checkpoints, frozen_parameters

BERT = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 3, "intermediate_size": 24,
        "vocab_size": 19, "max_position_embeddings": 16}  # fmt: skip


def test_frozen_weights_keep_their_bits_and_the_others_learn(tmp_path: Path) -> None:
    bundle = toy_bundle()
    before = {name: p.detach().clone() for name, p in bundle.model.named_parameters()}
    training = Training(steps=3, lr=0.1, ema=0.5, freeze=("tower.embed.*", "tower.blocks.0"))
    result = Trainer(bundle, Toy(), training, tmp_path).run()
    still = {n for n, p in bundle.model.named_parameters() if torch.equal(before[n], p)}
    assert still == {n for n in before if n.startswith(("tower.embed.", "tower.blocks.0."))}
    assert result.trainable == sum(before[n].numel() for n in before if n not in still)
    assert result.parameters == sum(x.numel() for x in before.values())
    assert all(p.requires_grad for p in bundle.model.parameters()), "restored after training"
    with safe_open(checkpoints(tmp_path)[3] / "state.safetensors", "pt") as stored:
        trained = {name.partition(".")[2].partition("/")[0] for name in stored.keys()}  # noqa: SIM118
    assert trained == before.keys() - still


def test_a_frozen_run_resumes_with_the_bits_of_one_go(tmp_path: Path) -> None:
    settings = {"lr": 0.1, "save_every": 2, "freeze": ("*.attn.{q,k}.*",)}
    Trainer(toy_bundle(), Toy(), Training(steps=4, **settings), tmp_path / "one").run()
    for steps in (2, 4):
        Trainer(toy_bundle(), Toy(), Training(steps=steps, **settings), tmp_path / "two").run()
    assert remains(tmp_path / "one") == remains(tmp_path / "two")
    with pytest.raises(TrainError, match=r"training\.freeze"):
        Trainer(toy_bundle(), Toy(), Training(steps=4, lr=0.1, save_every=2), tmp_path / "two").run()


@pytest.mark.parametrize(
    "ours, theirs",
    [
        ("tower.embed.*", "bert.embeddings.{word_embeddings,token_type_embeddings,LayerNorm}.*"),
        ("tower.blocks.[0-1].*", "encoder.layer.[01].*"),
        ("tower.blocks.2.attn.q.weight", "bert.encoder.layer.2.attention.self.query.weight"),
    ],
)
def test_a_pattern_may_be_in_the_spelling_of_the_checkpoint(ours: str, theirs: str) -> None:
    bundle = clearhead.build("bert", task="tokens", **BERT)
    found = frozen_parameters(bundle, (ours,))
    assert found.names and found == frozen_parameters(bundle, (theirs,))


def test_a_fused_tensor_of_the_checkpoint_is_all_of_its_parts() -> None:
    names = frozen_parameters(toy_bundle(), ("transformer.h.1.attn.c_attn",)).names
    assert {name.split(".")[-2] for name in names} == {"q", "k", "v"}
    assert all(name.startswith("tower.blocks.1.attn.") for name in names)


def test_frozen_layers_of_transformers_are_the_same_tensors() -> None:
    """Their own names, matched by their own module tree."""
    from transformers import BertConfig, BertForMaskedLM

    theirs = BertForMaskedLM(BertConfig(**BERT))
    wanted = sum(p.numel() for n, p in theirs.named_parameters() if n.startswith("bert.encoder.layer.0."))
    found = frozen_parameters(clearhead.build("bert", task="tokens", **BERT), ("bert.encoder.layer.0",))
    assert found.total - found.trainable == wanted


@pytest.mark.parametrize(
    "patterns, message",
    [
        (
            ("tower.blocks.9.*",),
            r"freeze 'tower\.blocks\.9\.\*' matches no parameter; did you mean 'tower\.blocks\.",
        ),
        (("*",), r"freeze \['\*'\] leaves no parameter to train"),
        (("{a,b}" * 20,), "more than 1000 patterns"),
    ],
)
def test_a_pattern_that_cannot_be_meant_is_refused(
    patterns: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    with pytest.raises(TrainError, match=message):
        Trainer(toy_bundle(), Toy(), Training(steps=1, freeze=patterns), tmp_path / "run").run()
    assert not (tmp_path / "run").exists()


def test_braces_expand_as_in_a_shell() -> None:
    assert sorted(expand_braces("a.{q,v}.{w,b}")) == ["a.q.b", "a.q.w", "a.v.b", "a.v.w"]
    assert sorted(expand_braces("{a,b{1,2}}")) == ["a", "b1", "b2"]
    assert expand_braces("a{b") == ["a{b"] and expand_braces("a}b") == ["a}b"]

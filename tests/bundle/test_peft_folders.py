"""Folders of PEFT that are damaged, hostile, or not what they say: one line each. And what is kept of one."""

import json
import math
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from packed import folder_of
from peft_models import (
    CONFIG,
    WEIGHTS,
    assert_same,
    config_of,
    load_theirs,
    our_output,
    save_theirs,
    tensors_of,
    their_base,
    their_output,
    with_peft,
)
from references import KNOWN, Reference
from safetensors.torch import save_file
from torch import Tensor
from tunings import move

import clearhead as ch
from clearhead.bundle import why_not_peft
from clearhead.errors import LoadError
from clearhead.tune import IA3, Lora, Prefix, Prompt

Tensors = dict[str, Tensor]
ATTENTION = ["q_proj", "v_proj"]
LAYER = "base_model.model.model.layers.{}.self_attn.{}."


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder_of("llama", tmp_path_factory.mktemp("llama"))


def written(base: Path, folder: Path, config: Any) -> Path:
    """A folder of PEFT over a base, in which all that learns has moved."""
    theirs = with_peft(their_base(base), config)
    move(theirs, tuple(name for name, p in theirs.named_parameters() if p.requires_grad))
    save_theirs(theirs.eval(), folder)
    return folder


@pytest.fixture(scope="module")
def lora(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = peft.LoraConfig(r=4, lora_alpha=8, target_modules=ATTENTION, task_type="CAUSAL_LM")
    return written(base, tmp_path_factory.mktemp("lora") / "adapter", config)


def changed(
    folder: Path,
    to: Path,
    config: dict[str, Any] | None = None,
    tensors: Callable[[Tensors], Any] | None = None,
) -> Path:
    """A copy of the folder with other values in its config, or other tensors."""
    shutil.copytree(folder, to)
    (to / CONFIG).write_text(json.dumps({**config_of(folder), **(config or {})}))
    if tensors is not None:
        found = tensors_of(folder)
        tensors(found)
        save_file(found, to / WEIGHTS, {"format": "pt"})
    return to


def refused(base: Path, folder: Path) -> str:
    with pytest.raises(LoadError) as error:
        ch.load(base, adapter=folder)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    ("config", "part"),
    [
        *[({"r": r}, "r is .*expected a whole number") for r in (0, -8, "8", 8.5, None, True, [8])],
        ({"r": 10**9}, "says rank 1000000000 for .*q_proj, and its lora_A has 4 rows"),
        ({"r": 8}, "says rank 8 for .*has 4 rows"),
        ({"rank_pattern": {"v_proj": 2, "layers.0.self_attn.v_proj": 3}}, "says rank 2 for .*v_proj"),
        ({"rank_pattern": [1]}, "rank_pattern is .*expected names with values"),
        ({"rank_pattern": {"q_proj": "4"}}, "rank_pattern of 'q_proj' is '4'"),
        ({"alpha_pattern": {"q_proj": None}}, "alpha_pattern of 'q_proj' is None"),
        *[({"lora_alpha": x}, "lora_alpha is .*a number above 0") for x in ("16", math.nan, -1, None)],
        ({"lora_alpha": math.inf}, "lora_alpha is inf"),
        ({"lora_dropout": 1.0}, "lora_dropout is 1.0"),
        ({"bias": "some"}, "bias is 'some'; expected none, all or lora_only"),
        ({"use_dora": "no"}, "use_dora is 'no'; expected true or false"),
        ({"target_modules": 5}, "target_modules is 5; expected a name or a list of names"),
        ({"target_modules": ["q_proj", 5]}, "target_modules is"),
        ({"modules_to_save": 5}, "modules_to_save is 5; expected a list of names"),
        ({"modules_to_save": "lm_head"}, "modules_to_save is 'lm_head'; expected a list of names"),
        ({"some_new_method": {"depth": 3}}, "'some_new_method' is .*which is not known here"),
        ({"use_newer": True}, "'use_newer' is True"),
        ({"use_qalora": True}, "use_qalora is True, which is not supported"),
        ({"layer_replication": [[0, 1]]}, "layer_replication is"),
        ({"peft_type": ["LORA"]}, "which is not supported"),
        ({"peft_type": "OFT"}, "PEFT's 'OFT'"),
    ],
)  # fmt: skip
def test_a_config_is_checked(
    config: dict[str, Any], part: str, base: Path, lora: Path, tmp_path: Path
) -> None:
    assert re.search(part, refused(base, changed(lora, tmp_path / "bad", config)))


@pytest.mark.parametrize(
    "config",
    [
        {"runtime_config": {"ephemeral_gpu_offload": True}, "merge_weights": True, "enable_lora": None},
        {"some_new_method": None, "other": False, "third": {}, "fourth": [], "fifth": "", "sixth": 0},
        {"eva_config": {"rho": 2.0}, "corda_config": None, "loftq_config": {"loftq_bits": 4}},
        {"target_parameters": [], "trainable_token_indices": [], "auto_mapping": {"unsloth_fixed": True}},
        # Patterns are sorted in a file, and the order in which they were tried is lost.
        {"rank_pattern": {"v_proj": 2, "self_attn.v_proj": 4}},
        {"target_modules": r"(((((a+)+)+)+)+)$"},  # a regular expression of a file is not run
    ],
)
def test_keys_that_change_nothing_are_read(
    config: dict[str, Any], base: Path, lora: Path, tmp_path: Path
) -> None:
    plain = our_output(ch.load(base, adapter=lora))
    folder = changed(lora, tmp_path / "other", config)
    bundle = ch.load(base, adapter=folder)
    assert torch.equal(our_output(bundle), plain)
    ch.save(bundle, tmp_path / "again")
    assert config_of(tmp_path / "again") == config_of(folder)


def _drop(*names: str) -> Callable[[Tensors], Any]:
    return lambda tensors: [tensors.pop(name) for name in names]


def _each(change: Callable[[Tensor], Tensor]) -> Callable[[Tensors], Any]:
    return lambda tensors: tensors.update({name: change(x) for name, x in list(tensors.items())[:1]})


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (_each(lambda x: x.int()), "as int32; expected floating point"),
        (_each(lambda x: x / 0), "numbers that are not finite"),
        (_drop(LAYER.format(1, "q_proj") + "lora_A.weight", LAYER.format(1, "q_proj") + "lora_B.weight"),
         "lacks model.layers.1.self_attn.q_proj, which its target_modules name"),
        (_drop(LAYER.format(1, "q_proj") + "lora_B.weight"),
         "lacks lora_A or lora_B of model.layers.1.self_attn.q_proj; it is of another base, or its file"),
        (lambda t: t.update({"base_model.model.lm_hat.lora_A.weight": torch.ones(4, 64)}), "of another base"),
        (lambda t: t.update({"base_model.model.model.embed_tokens.lora_embedding_A": torch.ones(4, 120)}),
         "LoRA on an embedding"),
    ],
)  # fmt: skip
def test_tensors_are_checked(
    change: Callable[[Tensors], Any], part: str, base: Path, lora: Path, tmp_path: Path
) -> None:
    assert part in refused(base, changed(lora, tmp_path / "bad", tensors=change))


@pytest.mark.parametrize(
    "config",
    [{"layers_to_transform": [0]}, {"exclude_modules": ["layers.1"]},
     {"target_modules": r".*0.*q_proj|v_proj"}, {"target_modules": ["0.self_attn.q_proj", "v_proj"]}],
)  # fmt: skip
def test_layers_that_are_left_out_on_purpose_are_not_missing(
    config: dict[str, Any], base: Path, lora: Path, tmp_path: Path
) -> None:
    ends = [LAYER.format(1, "q_proj") + f"lora_{x}.weight" for x in "AB"]
    bundle = ch.load(base, adapter=changed(lora, tmp_path / "part", config, _drop(*ends)))
    assert bundle.tuning is not None and len(bundle.tuning.layers) == 3


def test_an_adapter_of_another_family_says_so(lora: Path, tmp_path: Path) -> None:
    assert "of another base" in refused(folder_of("gpt2", tmp_path), lora)


# --- tables that are tied to the output


@pytest.fixture(scope="module")
def tied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder_of("llama", tmp_path_factory.mktemp("tied"), tie_word_embeddings=True)


def saved_table(tied: Path, folder: Path, *, both: bool = False, **settings: Any) -> Path:
    modules = ["embed_tokens", "lm_head"] if both else ["embed_tokens"]
    config = peft.LoraConfig(
        r=4, target_modules=ATTENTION, modules_to_save=modules, task_type="CAUSAL_LM", **settings
    )
    return written(tied, folder, config)


def test_a_table_that_peft_keeps_tied_is_read_and_written(tied: Path, tmp_path: Path) -> None:
    folder = saved_table(tied, tmp_path / "theirs", ensure_weight_tying=True)
    bundle = ch.load(tied, adapter=folder)
    assert_same(our_output(bundle), their_output(load_theirs(their_base(tied), folder), "llama", "lora"))
    tuned = ch.tune(ch.load(tied), Lora(rank=2, modules_to_save=("embed_tokens",)))
    move(tuned.model, tuned.tuning.trained)
    ch.save(tuned, tmp_path / "ours")
    assert config_of(tmp_path / "ours")["ensure_weight_tying"] is True
    theirs = load_theirs(their_base(tied), tmp_path / "ours")
    assert_same(their_output(theirs, "llama", "lora"), our_output(tuned))


def test_a_table_that_peft_unties_is_refused(tied: Path, tmp_path: Path) -> None:
    folder = saved_table(tied, tmp_path / "theirs")
    assert "ensure_weight_tying=True" in refused(tied, folder)
    both = saved_table(tied, tmp_path / "both", both=True)
    assert "ensure_weight_tying=True" in refused(tied, both)  # the two have moved apart

    def equal(tensors: Tensors) -> None:
        names = [name for name in tensors if "lora" not in name]
        tensors.update(dict.fromkeys(names[1:], tensors[names[0]].clone()))

    same = changed(both, tmp_path / "same", tensors=equal)
    theirs = load_theirs(their_base(tied), same)
    assert_same(our_output(ch.load(tied, adapter=same)), their_output(theirs, "llama", "lora"))


@pytest.mark.parametrize(
    "tuning", [IA3(modules_to_save=("embed_tokens",)), Prompt(modules_to_save=("embed_tokens",))]
)
def test_where_peft_cannot_tie_the_format_is_ours(tuning: Any, tied: Path, tmp_path: Path) -> None:
    tuned = ch.tune(ch.load(tied), tuning)
    move(tuned.model, tuned.tuning.trained)
    ch.save(tuned, tmp_path / "ours")
    assert "peft_type" not in config_of(tmp_path / "ours") and "beside LoRA alone" in why_not_peft(tuned)
    assert_same(our_output(ch.load(tied, adapter=tmp_path / "ours")), our_output(tuned))


def test_a_copy_of_the_table_that_did_not_learn_is_passed_over(tmp_path: Path) -> None:
    """The head of RoBERTa holds the table under a name of its own; PEFT stores that with the head."""
    folder = tmp_path / "base"
    Reference(KNOWN["roberta"], "tokens", "plain", {}).files(folder)
    config = peft.LoraConfig(r=2, target_modules=["query"], modules_to_save=["lm_head"])
    theirs = with_peft(their_base(folder), config)
    learn = [n for n, p in theirs.named_parameters() if p.requires_grad and "decoder" not in n]
    move(theirs, tuple(learn))
    save_theirs(theirs.eval(), tmp_path / "theirs")
    bundle = ch.load(folder, adapter=tmp_path / "theirs")
    assert_same(our_output(bundle), their_output(theirs, "roberta", "lora"))
    assert "tower.embed.table.weight" not in bundle.tuning.trained
    ch.save(bundle, tmp_path / "ours")
    assert (tmp_path / "ours" / WEIGHTS).read_bytes() == (tmp_path / "theirs" / WEIGHTS).read_bytes()


def test_lora_on_a_tied_output_says_so(tied: Path, lora: Path, tmp_path: Path) -> None:
    def add(tensors: Tensors) -> None:
        tensors["base_model.model.lm_head.lora_A.weight"] = torch.ones(4, 64)
        tensors["base_model.model.lm_head.lora_B.weight"] = torch.ones(120, 4)

    folder = changed(lora, tmp_path / "bad", tensors=add)
    assert "lm_head is tied to the table of embeddings" in refused(tied, folder)


# --- what is kept


def test_the_name_of_the_base_is_kept(
    base: Path, lora: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(base, tmp_path / "base")
    for name in ("base", "./base", str(tmp_path / "base"), "other", None):
        folder = changed(
            lora, tmp_path / f"adapter-{name}".replace("/", "-"), {"base_model_name_or_path": name}
        )
        monkeypatch.chdir(tmp_path)
        bundle = ch.load("base", adapter=folder)
        ch.save(bundle, tmp_path / "saved")
        kept = config_of(tmp_path / "saved")["base_model_name_or_path"]
        names_it = name is not None and os.path.exists(tmp_path / name)
        assert kept == (name if names_it else str((tmp_path / "base").resolve()))
        shutil.rmtree(tmp_path / "saved")


@pytest.mark.parametrize(
    ("family", "sizes"),
    [("t5", {"num_layers": 2, "num_decoder_layers": 2, "d_kv": 8, "num_heads": 4}),
     ("bart", {"encoder_layers": 2, "decoder_layers": 2, "decoder_attention_heads": 4})],
)  # fmt: skip
def test_a_prefix_of_an_encoder_decoder_is_read_and_has_our_format(
    family: str, sizes: dict[str, Any], tmp_path: Path
) -> None:
    folder = tmp_path / "base"
    Reference(KNOWN[family], "tokens", "equal", sizes).files(folder)
    config = peft.PrefixTuningConfig(num_virtual_tokens=3, task_type="SEQ_2_SEQ_LM")
    theirs = written(folder, tmp_path / "theirs", config)
    bundle = ch.load(folder, adapter=theirs)
    want = their_output(load_theirs(their_base(folder), theirs), family, "prefix")
    assert_same(our_output(bundle), want)
    ch.save(bundle, tmp_path / "ours")
    assert set(config_of(tmp_path / "ours")) == {"clearhead", "method", "base_model_name_or_path"}
    assert "every attention of an encoder-decoder" in why_not_peft(bundle)
    assert torch.equal(our_output(ch.load(folder, adapter=tmp_path / "ours")), our_output(bundle))


def test_factors_of_one_input_are_one(tmp_path: Path) -> None:
    """q, k and v of GPT-2 are one layer in PEFT, whose input has one factor for each channel."""
    folder = folder_of("gpt2", tmp_path)
    tuned = ch.tune(ch.load(folder), IA3(targets=(), feedforward="*.attn.{q,k,v}"))
    move(tuned.model, tuned.tuning.trained)
    assert len(tuned.tuning.trained) == 3  # of three layers
    ch.save(tuned, tmp_path / "ours")
    theirs = load_theirs(their_base(folder), tmp_path / "ours")
    assert_same(their_output(theirs, "gpt2", "ia3"), our_output(tuned))
    alone = ch.tune(ch.load(folder), IA3(targets=(), feedforward="*.attn.q"))
    assert "scales the inputs of transformer.h.0.attn.c_attn for all of it" in why_not_peft(alone)


def test_a_head_that_did_not_learn_is_in_the_folder_and_does_not_learn(tmp_path: Path) -> None:
    """PEFT asks for the classifier of every SEQ_CLS folder."""
    folder = tmp_path / "base"
    Reference(KNOWN["bert"], "labels", "plain", {}).files(folder)
    tuned = ch.tune(ch.load(folder), Lora(rank=2))
    move(tuned.model, tuned.tuning.trained)
    ch.save(tuned, tmp_path / "ours")
    theirs = load_theirs(their_base(folder), tmp_path / "ours")
    assert_same(their_output(theirs, "bert", "lora"), our_output(tuned))
    again = ch.load(folder, adapter=tmp_path / "ours")
    assert again.tuning.trained == tuned.tuning.trained


def test_biases_that_learn_are_those_of_peft(tmp_path: Path) -> None:
    """The bias of BART's logits is a buffer; DeBERTa's q_bias is beside its matrix."""
    for family, left in (("bart", "head.bias"), ("deberta", "tower.blocks.0.attn.q.bias")):
        Reference(KNOWN[family], "tokens", "plain", {}).files(tmp_path / family)
        for bias in ("all", "lora_only"):
            tuned = ch.tune(ch.load(tmp_path / family), Lora(rank=2, bias=bias))
            assert left not in tuned.tuning.trained
            assert any(name.endswith(".bias") for name in tuned.tuning.trained)


def test_the_prefix_of_a_decoder_is_written_for_peft(base: Path) -> None:
    assert why_not_peft(ch.tune(ch.load(base), Prefix(length=2))) == ""
